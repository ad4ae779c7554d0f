//! Redis streams and Redis pub/sub with real servers.

mod groups;
mod letters;

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use ringmain_gateway::model::{
    BrokerLogin, BrokerTls, Certificate, ChannelTemplate, RedisAccess, RedisDeployment, RedisPubSub,
    RedisStreams, Secret, Source, SourceKind, StartPosition,
};
use ringmain_testkit::folder::Folder;
use ringmain_testkit::port::Reserved;
use ringmain_testkit::redis::{DurableRedis, RedisReply};
use ringmain_testkit::wait;

use crate::support::{Node, source};

const GROUP: &str = "readers";

fn access(servers: &[&DurableRedis], deployment: RedisDeployment) -> RedisAccess {
    RedisAccess {
        servers: servers
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()).into())
            .collect(),
        deployment,
        database: 0,
        login: None,
        tls: None,
    }
}

fn streams_at(access: RedisAccess, streams: &[&str], channel: &str) -> Source {
    let kind = RedisStreams {
        access,
        streams: streams.iter().map(|name| (*name).into()).collect(),
        group: GROUP.into(),
        consumer: "node".into(),
        field: "data".into(),
        claim_after: Duration::from_secs(60),
        start: StartPosition::Earliest,
    };
    source(SourceKind::RedisStreams(kind), channel)
}

fn streams(redis: &DurableRedis, streams: &[&str], channel: &str) -> Source {
    streams_at(access(&[redis], RedisDeployment::Single), streams, channel)
}

fn pubsub(access: RedisAccess, channels: &[&str], patterns: &[&str]) -> Source {
    let kind = RedisPubSub {
        access,
        channels: channels.iter().map(|name| (*name).into()).collect(),
        patterns: patterns.iter().map(|name| (*name).into()).collect(),
    };
    source(SourceKind::RedisPubSub(kind), "kept:{channel}")
}

fn add(stream: &str, number: u64) -> Vec<String> {
    let parts = ["XADD", stream, "*", "data", &number.to_string()];
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// Adds numbers to a stream.
fn fill(redis: &DurableRedis, stream: &str, numbers: std::ops::Range<u64>) {
    let commands: Vec<Vec<String>> = numbers.map(|number| add(stream, number)).collect();
    for reply in redis.calls(&commands) {
        assert!(matches!(reply, RedisReply::Text(_)), "{reply:?}");
    }
}

/// The number of entries that are not acknowledged.
fn pending(redis: &DurableRedis, stream: &str) -> i64 {
    match redis.call(&["XPENDING", stream, GROUP]).list().first() {
        Some(RedisReply::Number(count)) => *count,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn until_acknowledged(node: &mut Node, redis: &DurableRedis, streams: &[&str]) {
    node.until("acknowledgements", |_| {
        streams.iter().all(|stream| pending(redis, stream) == 0)
    });
}

fn all(numbers: std::ops::Range<u64>) -> Vec<u64> {
    numbers.collect()
}

#[test]
fn entries_are_published_in_order_and_acknowledged() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let names = ["a", "b", "c"];
    let mut node = Node::new();
    node.subscribe(&names);
    node.follow(&[("redis", &streams(&redis, &names, "{stream}"))]);
    node.until("delivery", |node| node.report().delivers);
    let commands: Vec<Vec<String>> = (0..2000)
        .map(|number| add(names[number as usize % 3], number))
        .collect();
    redis.calls(&commands);
    node.until_received(2000);
    for (index, name) in (0..).zip(names) {
        let expected: Vec<u64> = (0..2000).filter(|number| number % 3 == index).collect();
        assert_eq!(node.numbers(name), expected);
    }
    until_acknowledged(&mut node, &redis, &names);
    node.until("no lag", |node| node.report().lag == Some(0));
    let report = node.report();
    assert_eq!(
        (report.records, report.published, report.repeated),
        (2000, 2000, 0)
    );
    assert_eq!((report.gaps, report.failures, report.partitions), (0, 0, 3));
    assert!(report.connected && report.lag_time.is_some() && report.commits > 0);
}

#[test]
fn a_server_that_is_killed_loses_nothing() {
    let Some(mut redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new();
    node.subscribe(&["a"]);
    fill(&redis, "a", 0..500);
    node.follow(&[("redis", &streams(&redis, &["a"], "{stream}"))]);
    node.until_received(300);
    redis.kill();
    node.until("a failure", |node| {
        !node.report().delivers && node.report().failures > 0
    });
    assert!(redis.restart());
    fill(&redis, "a", 500..1000);
    node.until_received(1000);
    until_acknowledged(&mut node, &redis, &["a"]);
    assert_eq!(node.numbers("a"), all(0..1000));
    assert_eq!(node.report().gaps, 0);
    assert!(node.report().delivers);
}

#[test]
fn a_source_that_ends_leaves_the_rest_to_the_next() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new();
    node.subscribe(&["a"]);
    fill(&redis, "a", 0..2000);
    let source = streams(&redis, &["a"], "{stream}");
    node.follow(&[("redis", &source)]);
    node.until_received(1);
    node.end_sources();
    node.follow(&[("redis", &source)]);
    node.until_received(2000);
    until_acknowledged(&mut node, &redis, &["a"]);
    assert_eq!(
        node.numbers("a"),
        all(0..2000),
        "repeats are recognized by their identifiers"
    );
}

#[test]
fn entries_that_cannot_be_published_are_dead_letters() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut source = streams(&redis, &["a"], "{header:channel}");
    source.mapping.dead_letters = Some("dead".into());
    let mut node = Node::new();
    node.subscribe(&["x"]);
    for entry in [
        &["channel", "x", "data", "1"][..],
        &["channel", "x", "data", "{", "key", "k"],
        &["data", "2"],
        &["channel", "x", "other", "3"],
        &["channel", "nowhere:x", "data", "4"],
        &["channel", "x", "data", "5"],
    ] {
        redis.call(&[&["XADD", "a", "*"], entry].concat());
    }
    node.follow(&[("redis", &source)]);
    node.until_received(2);
    until_acknowledged(&mut node, &redis, &["a"]);
    assert_eq!(node.numbers("x"), [1, 5]);
    assert_eq!(node.report().dead, [2, 2, 0, 0]);
    let dead = redis.call(&["XRANGE", "dead", "-", "+"]);
    let entries: Vec<Vec<&str>> = dead
        .list()
        .iter()
        .map(|entry| entry.list()[1].list().iter().map(RedisReply::text).collect())
        .collect();
    let letter = |reason, rest: &[&'static str]| {
        let mut letter = vec!["ringmain-reason", reason, "ringmain-stream", "a"];
        letter.extend(rest);
        letter
    };
    assert_eq!(entries.len(), 4);
    for expected in [
        letter("bad_format", &["data", "{", "channel", "x", "key", "k"]),
        letter("no_channel", &["data", "2"]),
        letter("bad_format", &["channel", "x", "other", "3"]),
        letter("no_channel", &["data", "4", "channel", "nowhere:x"]),
    ] {
        assert!(entries.contains(&expected), "{expected:?} in {entries:?}");
    }
}

#[test]
fn a_stream_whose_workers_are_full_is_not_read_while_others_are() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut source = streams(&redis, &["a", "b"], "{stream}");
    source.mapping.in_flight = 64;
    fill(&redis, "a", 0..5000);
    let mut node = Node::new();
    node.subscribe(&["a", "b"]);
    node.follow(&[("redis", &source)]);
    // Workers have no turns meanwhile.
    wait::until("a full stream", || node.report().paused == 1);
    fill(&redis, "b", 0..10);
    let delivered = |stream: &str| pending(&redis, stream);
    wait::until("entries of the other stream", || delivered("b") == 10);
    let read = delivered("a");
    assert!(read <= 1000, "nothing is read after the first entries: {read}");
    node.until_received(5010);
    until_acknowledged(&mut node, &redis, &["a", "b"]);
    assert_eq!(node.numbers("a"), all(0..5000));
    assert_eq!(node.numbers("b"), all(0..10));
    assert_eq!(node.report().gaps, 0);
}

#[test]
fn entries_that_are_deleted_before_they_are_read_are_a_gap() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let source = streams(&redis, &["a"], "kept:{stream}");
    let mut node = Node::new();
    node.subscribe(&["kept:a"]);
    fill(&redis, "a", 0..10);
    node.follow(&[("redis", &source)]);
    node.until_received(10);
    until_acknowledged(&mut node, &redis, &["a"]);
    node.end_sources();
    // Entries that were read may be deleted.
    redis.call(&["XTRIM", "a", "MAXLEN", "0"]);
    fill(&redis, "a", 10..20);
    node.follow(&[("redis", &source)]);
    node.until_received(20);
    until_acknowledged(&mut node, &redis, &["a"]);
    assert_eq!(node.report().gaps, 0);
    node.end_sources();
    fill(&redis, "a", 20..30);
    redis.call(&["XTRIM", "a", "MAXLEN", "5"]);
    node.follow(&[("redis", &source)]);
    node.until("a gap", |node| node.unsubscribed == ["kept:a"]);
    until_acknowledged(&mut node, &redis, &["a"]);
    node.until("all records", |node| node.report().records == 5);
    assert_eq!(node.report().gaps, 1);
}

#[test]
fn a_stream_that_is_created_again_is_read_from_its_start() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut node = Node::new();
    node.subscribe(&["a"]);
    node.follow(&[("redis", &streams(&redis, &["a"], "{stream}"))]);
    redis.call(&["XADD", "a", "1-1", "data", "1"]);
    node.until_received(1);
    until_acknowledged(&mut node, &redis, &["a"]);
    // In one transaction: the source cannot create the stream between them.
    let commands = [
        &["MULTI"][..],
        &["DEL", "a"],
        &["XADD", "a", "1-1", "data", "2"],
        &["XADD", "a", "1-2", "data", "3"],
        &["EXEC"],
    ];
    let commands = commands.map(|command| command.iter().map(|part| (*part).to_owned()).collect());
    redis.calls(&commands);
    node.until_received(3);
    until_acknowledged(&mut node, &redis, &["a"]);
    assert_eq!(
        node.numbers("a"),
        [1, 2, 3],
        "the same identifier is another entry"
    );
    assert_eq!(node.report().gaps, 1);
    // It is deleted, and nothing is added at first.
    redis.call(&["DEL", "a"]);
    node.until("another gap", |node| node.report().gaps == 2);
    fill(&redis, "a", 4..5);
    node.until_received(4);
    assert_eq!(node.report().failures, 0);
}

#[test]
fn a_server_that_lost_its_data_is_another_life() {
    let Some(mut redis) = DurableRedis::start(&["--appendonly", "no"]) else {
        return;
    };
    let mut node = Node::new();
    node.subscribe(&["kept:a"]);
    node.follow(&[("redis", &streams(&redis, &["a"], "kept:{stream}"))]);
    redis.call(&["XADD", "a", "1-1", "data", "1"]);
    node.until("the entry", |node| node.report().published == 1);
    redis.kill();
    assert!(redis.restart());
    redis.call(&["XADD", "a", "1-1", "data", "2"]);
    node.until("a gap", |node| node.unsubscribed == ["kept:a"]);
    node.until("the other entry", |node| node.report().published == 2);
    assert_eq!((node.report().gaps, node.report().repeated), (1, 0));
}

#[test]
fn subscriptions_report_a_gap_after_each_reconnect() {
    let Some(mut redis) = DurableRedis::start(&[]) else {
        return;
    };
    let source = pubsub(access(&[&redis], RedisDeployment::Single), &["a"], &["b.*"]);
    let mut node = Node::new();
    node.subscribe(&["kept:a", "kept:b.1"]);
    node.follow(&[("redis", &source)]);
    node.until("delivery", |node| node.report().delivers);
    redis.call(&["PUBLISH", "a", "1"]);
    redis.call(&["PUBLISH", "b.1", "2"]);
    redis.call(&["PUBLISH", "c", "3"]);
    node.until_received(2);
    assert_eq!(node.report().gaps, 0);
    redis.kill();
    node.until("a failure", |node| !node.report().delivers);
    assert!(redis.restart());
    node.until("notifications", |node| node.unsubscribed.len() == 2);
    assert_eq!(node.report().gaps, 1);
    node.subscribe(&["kept:a"]);
    redis.call(&["PUBLISH", "a", "4"]);
    node.until_received(3);
    assert_eq!(node.numbers("kept:a"), [1, 4]);
}

#[test]
fn a_gap_of_one_source_does_not_notify_clients_of_another() {
    let (Some(mut redis), Some(other)) = (DurableRedis::start(&[]), DurableRedis::start(&[])) else {
        return;
    };
    let pubsub = |redis: &DurableRedis, patterns: &[&str], template: &str| {
        let mut source = pubsub(
            access(&[redis], RedisDeployment::Single),
            &["kept:exact"],
            patterns,
        );
        source.mapping.channel = ChannelTemplate::parse(template).expect("a template");
        source
    };
    // Both may publish in any channel of the namespace.
    let first = pubsub(&redis, &["kept:*"], "{channel}");
    let second = pubsub(&other, &["kept:*"], "{channel}");
    let mut node = Node::new();
    node.subscribe(&["kept:first", "kept:second"]);
    node.follow(&[("first", &first), ("second", &second)]);
    node.until("delivery", |node| {
        node.reports().iter().all(|report| report.delivers)
    });
    redis.call(&["PUBLISH", "kept:first", "1"]);
    other.call(&["PUBLISH", "kept:second", "2"]);
    node.until_received(2);
    redis.kill();
    node.until("a failure", |node| !node.reports()[0].delivers);
    assert!(redis.restart());
    node.until("the gap", |node| {
        node.reports()[0].gaps == 1 && !node.unsubscribed.is_empty()
    });
    // Behind it, as interruptions are applied in turn.
    other.call(&["PUBLISH", "kept:second", "3"]);
    node.until_received(3);
    assert_eq!(node.unsubscribed, ["kept:first"]);
    assert_eq!(node.numbers("kept:second"), [2, 3]);
}

#[test]
fn messages_that_find_no_room_are_dropped_with_a_gap() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut source = pubsub(access(&[&redis], RedisDeployment::Single), &["a"], &[]);
    source.mapping.in_flight = 64;
    let mut node = Node::new();
    node.subscribe(&["kept:a"]);
    node.follow(&[("redis", &source)]);
    node.until("delivery", |node| node.report().delivers);
    // Workers have no turns meanwhile.
    for number in 0..100 {
        redis.call(&["PUBLISH", "a", &number.to_string()]);
    }
    wait::until("all messages", || node.report().records == 100);
    wait::until("dropped messages", || node.report().gaps == 36);
    node.until("a notification", |node| node.unsubscribed == ["kept:a"]);
    node.until("the others", |node| node.report().in_flight == 0);
    assert_eq!(node.report().published, 64);
}

#[test]
fn a_source_follows_the_master_of_sentinels() {
    let Some(mut master) = DurableRedis::start(&[]) else {
        return;
    };
    let port = master.port().to_string();
    let of_master = [
        "--replicaof",
        "127.0.0.1",
        &port,
        "--repl-diskless-sync-delay",
        "0",
    ];
    let replica = DurableRedis::start(&of_master).expect("it is installed");
    wait::until("the replica", || {
        let role = replica.call(&["ROLE"]);
        role.list().get(3).map(RedisReply::text) == Some("connected")
    });
    let sentinel = DurableRedis::start_sentinel("main", &master).expect("it is installed");
    wait::until("the replica at the Sentinel", || {
        sentinel.call(&["SENTINEL", "replicas", "main"]).list().len() == 1
    });
    let by_sentinel = || access(&[&sentinel], RedisDeployment::Sentinel("main".into()));
    let (mut node, mut messages) = (Node::new(), Node::new());
    node.subscribe(&["a"]);
    messages.subscribe(&["kept:m"]);
    node.follow(&[("redis", &streams_at(by_sentinel(), &["a"], "{stream}"))]);
    messages.follow(&[("redis", &pubsub(by_sentinel(), &["m"], &[]))]);
    messages.until("delivery", |node| node.report().delivers);
    fill(&master, "a", 0..100);
    node.until_received(100);
    until_acknowledged(&mut node, &master, &["a"]);
    master.wait_for_replica(&replica);
    master.kill();
    replica.wait_for_promotion();
    fill(&replica, "a", 100..200);
    node.until_received(200);
    until_acknowledged(&mut node, &replica, &["a"]);
    assert_eq!(node.numbers("a"), all(0..200));
    assert_eq!(node.report().gaps, 0);
    messages.until("a gap", |node| {
        node.unsubscribed == ["kept:m"] && node.report().delivers
    });
}

#[test]
fn streams_of_a_cluster_are_on_several_nodes() {
    let Some(first) = DurableRedis::start_node(&[]) else {
        return;
    };
    let more = || DurableRedis::start_node(&[]).expect("it is installed");
    let mut nodes = [first, more(), more()];
    for (node, slots) in nodes
        .iter()
        .zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")])
    {
        node.call(&["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1]);
    }
    for node in &nodes[1..] {
        let (port, bus) = (node.port().to_string(), node.bus_port().to_string());
        nodes[0].call(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    wait::until("the cluster", || {
        nodes.iter().all(|node| {
            let info = node.call(&["CLUSTER", "INFO"]);
            info.text().contains("cluster_slots_ok:16384") && info.text().contains("cluster_state:ok")
        })
    });
    // Their slots are 15495, 3300 and 7365.
    let homes = [("a", 2), ("b", 0), ("c", 1)];
    let cluster = || access(&[&nodes[0], &nodes[1]], RedisDeployment::Cluster);
    let source = streams_at(cluster(), &["a", "b", "c"], "{stream}");
    let messages = pubsub(cluster(), &["m"], &[]);
    let mut node = Node::new();
    node.subscribe(&["a", "b", "c", "kept:m"]);
    node.follow(&[("messages", &messages), ("redis", &source)]);
    for (name, home) in homes {
        fill(&nodes[home], name, 0..100);
    }
    node.until_received(300);
    node.until("delivery", |node| node.report().delivers);
    nodes[2].call(&["PUBLISH", "m", "7"]);
    node.until_received(301);
    for (name, home) in homes {
        until_acknowledged(&mut node, &nodes[home], &[name]);
        assert_eq!(node.numbers(name), all(0..100));
    }
    // One node fails: the streams of the others are read.
    nodes[2].kill();
    fill(&nodes[0], "b", 100..200);
    fill(&nodes[1], "c", 100..200);
    node.until_received(501);
    assert!(nodes[2].restart());
    wait::until("the node", || {
        nodes[2]
            .call(&["CLUSTER", "INFO"])
            .text()
            .contains("cluster_state:ok")
    });
    fill(&nodes[2], "a", 100..200);
    node.until_received(601);
    for (name, home) in homes {
        until_acknowledged(&mut node, &nodes[home], &[name]);
        assert_eq!(node.numbers(name), all(0..200));
    }
}

#[test]
fn connections_are_encrypted_and_both_ends_authenticated() {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose issuer has the same name for a self-signed one.
    params.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let (folder, port) = (Folder::new(), Reserved::new());
    let file = |name, pem: String| folder.file(name, pem).to_string_lossy().into_owned();
    let settings = [
        "--tls-port",
        &port.port().to_string(),
        "--tls-cert-file",
        &file("server.crt", certificate.pem()),
        "--tls-key-file",
        &file("server.key", key.serialize_pem()),
        "--tls-ca-cert-file",
        &file("authority.crt", authority.pem()),
    ];
    let Some(redis) = DurableRedis::start(&settings) else {
        return;
    };
    redis.call(&["ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all"]);
    let mut encrypted = access(&[], RedisDeployment::Single);
    encrypted.servers = vec![format!("127.0.0.1:{}", port.port()).into()];
    encrypted.login = Some(BrokerLogin {
        user: "reader".into(),
        password: Secret::new(&b"secret"[..]),
    });
    encrypted.tls = Some(BrokerTls {
        server_name: None,
        authorities: Some(authority.pem().as_bytes().into()),
        certificate: Some(Arc::new(Certificate {
            name: "reader".into(),
            chain: certificate.pem().as_bytes().into(),
            key: Secret::new(key.serialize_pem().as_bytes()),
        })),
    });
    let mut node = Node::new();
    node.subscribe(&["a", "kept:m"]);
    let messages = pubsub(encrypted.clone(), &["m"], &[]);
    let source = streams_at(encrypted, &["a"], "{stream}");
    node.follow(&[("messages", &messages), ("redis", &source)]);
    fill(&redis, "a", 0..10);
    node.until_received(10);
    until_acknowledged(&mut node, &redis, &["a"]);
    node.until("delivery", |node| node.report().delivers);
    redis.call(&["PUBLISH", "m", "1"]);
    node.until_received(11);
}
