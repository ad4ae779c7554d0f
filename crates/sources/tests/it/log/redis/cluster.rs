//! A Redis Cluster whose slots move and whose masters are replaced.

use ringmain_cluster::log::{AppendOutcome, FollowFrom, Health};
use ringmain_gateway::model::{BrokerLogin, PushLogEngine, RedisDeployment, RedisLoss, Secret};
use ringmain_testkit::redis::{DurableRedis, RedisReply};
use ringmain_testkit::wait;

use super::{FROM_START, Node, engine_at};

/// Nodes that share the slots, which have found each other. `None`: Redis is not installed here.
fn start(slots: &[(&str, &str)]) -> Option<Vec<DurableRedis>> {
    let settings = ["--cluster-node-timeout", "1500"];
    let mut nodes = vec![DurableRedis::start_node(&settings)?];
    for _ in 1..slots.len() {
        nodes.push(DurableRedis::start_node(&settings).expect("it is installed"));
    }
    for (node, (from, to)) in nodes.iter().zip(slots) {
        node.call(&["CLUSTER", "ADDSLOTSRANGE", from, to]);
    }
    for node in &nodes[1..] {
        meet(&nodes[0], node);
    }
    wait::until("the cluster", || nodes.iter().all(is_whole));
    Some(nodes)
}

fn meet(one: &DurableRedis, other: &DurableRedis) {
    let (port, bus) = (other.port().to_string(), other.bus_port().to_string());
    one.call(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
}

fn is_whole(node: &DurableRedis) -> bool {
    let info = node.call(&["CLUSTER", "INFO"]);
    info.text().contains("cluster_slots_ok:16384") && info.text().contains("cluster_state:ok")
}

fn id(node: &DurableRedis) -> String {
    node.call(&["CLUSTER", "MYID"]).text().to_owned()
}

fn slot_of(node: &DurableRedis, key: &str) -> u16 {
    match node.call(&["CLUSTER", "KEYSLOT", key]) {
        RedisReply::Number(slot) => slot as u16,
        other => panic!("{other:?}"),
    }
}

/// Moves a slot with all its keys.
fn move_slot(slot: u16, from: &DurableRedis, to: &DurableRedis) {
    move_keys(slot, from, to);
    finish_move(slot, from, to);
}

/// Moves the keys of a slot, which both nodes have then.
fn move_keys(slot: u16, from: &DurableRedis, to: &DurableRedis) {
    let (slot, source, target, port) = (slot.to_string(), id(from), id(to), to.port().to_string());
    to.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
    from.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    loop {
        let keys = from.call(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
        if keys.list().is_empty() {
            break;
        }
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &*port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.list().iter().map(RedisReply::text));
        from.call(&migrate);
    }
}

fn finish_move(slot: u16, from: &DurableRedis, to: &DurableRedis) {
    let (slot, target) = (slot.to_string(), id(to));
    for node in [to, from] {
        node.call(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
    }
}

#[test]
fn a_slot_that_moves_keeps_its_life_and_loses_nothing() {
    let Some(nodes) = start(&[("0", "8191"), ("8192", "16383")]) else {
        return;
    };
    let addresses: Vec<&DurableRedis> = nodes.iter().collect();
    let mut node = Node::new(engine_at(
        &addresses,
        RedisDeployment::Cluster,
        RedisLoss::Possible,
    ));
    let mut before = Vec::new();
    for partition in 0..4 {
        before.push(node.open(partition, FROM_START));
        node.append_all(partition, 0..500);
    }
    node.until("all outcomes", |node| node.outcomes.len() == 2000);
    // All partitions move to the other node, one after the other.
    for partition in 0..4 {
        let slot = slot_of(&nodes[0], &format!("{{log:{partition}}}"));
        let (from, to) = if slot < 8192 {
            (&nodes[0], &nodes[1])
        } else {
            (&nodes[1], &nodes[0])
        };
        let first = node.append_all(partition, 500..1000);
        move_slot(slot, from, to);
        node.until("all outcomes", |node| node.outcomes.contains_key(&(first + 499)));
        node.append_until_done(partition, 1000);
        node.until_closed(partition);
        let after = node.open(partition, FROM_START);
        assert_eq!(
            after.binding,
            before[usize::from(partition)].binding,
            "nothing was lost"
        );
        node.until_content(partition, 1000);
        let received = node.contents(partition);
        for content in 500..1000 {
            let outcome = node.outcomes[&(first + content - 500)];
            let is_acknowledged = matches!(outcome, AppendOutcome::Appended(_));
            assert!(
                !is_acknowledged || received.contains(&content),
                "{content} is lost"
            );
        }
    }
}

#[test]
fn a_partition_whose_slot_moves_slowly_is_served_by_the_other_node() {
    let Some(nodes) = start(&[("0", "8191"), ("8192", "16383")]) else {
        return;
    };
    let addresses: Vec<&DurableRedis> = nodes.iter().collect();
    let mut node = Node::new(engine_at(
        &addresses,
        RedisDeployment::Cluster,
        RedisLoss::Possible,
    ));
    let before = node.open(0, FROM_START);
    node.append_until_done(0, 1);
    let slot = slot_of(&nodes[0], "{log:0}");
    let (from, to) = if slot < 8192 {
        (&nodes[0], &nodes[1])
    } else {
        (&nodes[1], &nodes[0])
    };
    let run_id = |at: &DurableRedis| at.call(&["HGET", "{log:0}:server", "run_id"]);
    let bound = run_id(from);
    move_keys(slot, from, to);
    // The stream is at the other node, and the slot still at this one.
    let append = node.append(0, 2);
    let outcome = node.outcome(append);
    assert!(matches!(outcome, AppendOutcome::Appended(_)), "{outcome:?}");
    node.until_closed(0);
    let after = node.open(0, FROM_START);
    assert_eq!(after.binding, before.binding);
    node.append_until_done(0, 3);
    node.until_content(0, 3);
    // Behind one with a key, in its partition.
    let (keyed, behind) = (node.append_once(0, 9, "a"), node.append(0, 10));
    node.until("an outcome", |node| {
        node.outcomes.contains_key(&keyed) || node.outcomes.contains_key(&behind)
    });
    assert_eq!(
        node.outcomes.get(&keyed),
        Some(&AppendOutcome::Refused),
        "a key waits for the move, and those behind it wait for it"
    );
    let behind = node.outcome(behind);
    finish_move(slot, from, to);
    node.until("another server of the partition", |_| run_id(to) != bound);
    let keyed = node.append_once(0, 4, "b");
    let outcome = node.outcome(keyed);
    assert!(matches!(outcome, AppendOutcome::Appended(_)), "{outcome:?}");
    node.until_content(0, 4);
    let received: Vec<u64> = match behind {
        AppendOutcome::Appended(_) => vec![1, 2, 3, 10, 4],
        _ => vec![1, 2, 3, 4],
    };
    assert_eq!(node.contents(0), received);
    assert_eq!(node.closed, [], "it remains open");
}

#[test]
fn a_user_with_the_documented_commands_follows_a_slot_that_moves() {
    let Some(nodes) = start(&[("0", "8191"), ("8192", "16383")]) else {
        return;
    };
    for node in &nodes {
        let mut user = vec!["ACL", "SETUSER", "log", "on", ">secret", "~*", "-@all"];
        user.extend([
            "+xadd",
            "+xread",
            "+xrevrange",
            "+xinfo",
            "+eval",
            "+get",
            "+set",
            "+info",
        ]);
        user.extend(["+time", "+client|id", "+client|unblock", "+asking", "+cluster"]);
        user.extend(["+hget", "+hmget", "+hset"]);
        node.call(&user);
    }
    let addresses: Vec<&DurableRedis> = nodes.iter().collect();
    let mut engine = engine_at(&addresses, RedisDeployment::Cluster, RedisLoss::Possible);
    if let PushLogEngine::Redis(redis) = &mut engine {
        redis.access.login = Some(BrokerLogin {
            user: "log".into(),
            password: Secret::new(&b"secret"[..]),
        });
    }
    let mut node = Node::new(engine);
    let before = node.open(0, FROM_START);
    node.append_until_done(0, 1);
    let slot = slot_of(&nodes[0], "{log:0}");
    let (from, to) = if slot < 8192 { (0, 1) } else { (1, 0) };
    move_keys(slot, &nodes[from], &nodes[to]);
    node.append_until_done(0, 2);
    node.until_closed(0);
    let after = node.open(0, FROM_START);
    assert_eq!(after.binding, before.binding);
    node.until_content(0, 2);
    finish_move(slot, &nodes[from], &nodes[to]);
    let keyed = node.append_once(0, 3, "a");
    let outcome = node.outcome(keyed);
    assert!(matches!(outcome, AppendOutcome::Appended(_)), "{outcome:?}");
    node.until_content(0, 3);
    assert_eq!(node.contents(0), [1, 2, 3]);
}

#[test]
fn the_last_slots_of_a_node_that_is_stopped_keep_their_life() {
    let Some(mut nodes) = start(&[("0", "8191"), ("8192", "16383")]) else {
        return;
    };
    let addresses: Vec<&DurableRedis> = nodes.iter().collect();
    let mut node = Node::new(engine_at(
        &addresses,
        RedisDeployment::Cluster,
        RedisLoss::Possible,
    ));
    let before = node.open(0, FROM_START);
    node.append_until_done(0, 1);
    let slot = slot_of(&nodes[0], "{log:0}");
    let (from, to) = if slot < 8192 { (0, 1) } else { (1, 0) };
    move_keys(slot, &nodes[from], &nodes[to]);
    // The partition is appended to at the other node.
    node.append_until_done(0, 2);
    node.until_closed(0);
    let id = id(&nodes[to]);
    nodes[to].call(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
    nodes[from].kill();
    let after = node.open(0, FROM_START);
    assert_eq!(after.binding, before.binding, "nothing was lost");
    node.until_content(0, 2);
    assert_eq!(node.contents(0), [1, 2]);
}

#[test]
fn a_replica_that_is_promoted_is_another_state() {
    let Some(mut nodes) = start(&[("0", "8191"), ("8192", "16383")]) else {
        return;
    };
    let replica = DurableRedis::start_node(&["--cluster-node-timeout", "1500"]).expect("it is installed");
    meet(&nodes[0], &replica);
    let slot = slot_of(&nodes[0], "{log:0}");
    let master = usize::from(slot >= 8192);
    let master_id = id(&nodes[master]);
    wait::until("a replica", || {
        let replicate = ["CLUSTER", "REPLICATE", &*master_id].map(str::to_owned);
        let replies = replica.try_calls(&[replicate.to_vec()]);
        replies.is_ok_and(|replies| replies[0] == RedisReply::Text("OK".to_owned()))
    });
    wait::until("replication", || {
        replica.call(&["ROLE"]).list().get(3).map(RedisReply::text) == Some("connected")
    });
    let addresses: Vec<&DurableRedis> = nodes.iter().chain([&replica]).collect();
    let mut node = Node::new(engine_at(
        &addresses,
        RedisDeployment::Cluster,
        RedisLoss::Possible,
    ));
    let before = node.open(0, FROM_START);
    let first = node.append_until_done(0, 1);
    nodes[master].wait_for_replica(&replica);
    nodes[master].kill();
    node.until_closed(0);
    // Two masters are no majority: the replica takes over by order.
    replica.call(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    let after = node.open(0, FollowFrom::Number(first));
    assert_ne!(after.binding, before.binding);
    node.append_until_done(0, 2);
    node.until_content(0, 2);
    assert_eq!(node.contents(0), [1, 2]);
}

#[test]
fn a_node_of_a_cluster_is_refused_without_the_setting() {
    let Some(nodes) = start(&[("0", "8191"), ("8192", "16383")]) else {
        return;
    };
    let mut node = Node::new(engine_at(
        &[&nodes[0]],
        RedisDeployment::Single,
        RedisLoss::Possible,
    ));
    let is_refused = |health: &Health| !health.is_connected && health.reason.contains("`cluster: true`");
    node.until("a reason", |node| node.health.last().is_some_and(is_refused));
    for partition in 0..4 {
        node.follow(partition, FROM_START);
        let append = node.append(partition, 1);
        assert_eq!(node.outcome(append), AppendOutcome::Refused);
    }
    let connections = || {
        let clients = nodes[0].call(&["CLIENT", "LIST", "TYPE", "normal"]);
        clients.text().lines().count()
    };
    // Those of one attempt, and this one.
    wait::until("few connections", || connections() <= 3);
    assert!(connections() <= 3, "{}", connections());
    assert_eq!(node.opened, []);
}
