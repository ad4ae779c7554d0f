//! The load of a node relative to others, and states of nodes.

use ringmain_cluster::member::Uid;

use super::*;

fn member(role: Role, weight: u16) -> Member {
    Member {
        uid: Uid(7),
        name: "a".into(),
        zone: "eu-1".into(),
        role,
        weight,
    }
}

fn other(role: Role, weight: u16, clients: u32, is_leaving: bool) -> NodeReport {
    NodeReport {
        uid: Uid(8),
        name: "b".into(),
        zone: "".into(),
        role,
        weight,
        clients,
        is_leaving,
    }
}

fn report(nodes: Vec<NodeReport>) -> ClusterReport {
    ClusterReport {
        nodes,
        ..ClusterReport::default()
    }
}

#[test]
fn the_load_is_relative_to_the_share_by_weight() {
    let ratio = |role, weight, clients, nodes| load_ratio(&member(role, weight), &report(nodes), clients);
    assert_eq!(ratio(Role::All, 1, 0, vec![]), None, "no clients, no share");
    assert_eq!(ratio(Role::All, 1, 5, vec![]), Some(1.0));
    assert_eq!(
        ratio(Role::All, 1, 30, vec![other(Role::All, 1, 10, false)]),
        Some(1.5)
    );
    assert_eq!(
        ratio(Role::All, 3, 30, vec![other(Role::All, 1, 10, false)]),
        Some(1.0)
    );
    // Servers have no clients, and a node that leaves has no share.
    let others = vec![
        other(Role::Server, 9, 0, false),
        other(Role::Gateway, 1, 10, true),
    ];
    assert_eq!(ratio(Role::Gateway, 1, 30, others), Some(1.0));
    assert_eq!(
        ratio(Role::Server, 1, 0, vec![other(Role::All, 1, 10, false)]),
        None
    );
}

#[test]
fn a_node_is_active_until_it_leaves() {
    let state = |has_left, is_leaving| {
        let report = ClusterReport {
            has_left,
            ..report(vec![other(Role::Gateway, 2, 3, true)])
        };
        PushClusterStatus::new(&member(Role::All, 1), &report, 4, is_leaving)
    };
    assert_eq!(
        [
            state(false, false).state,
            state(false, true).state,
            state(true, true).state
        ],
        ["active", "leaving", "left"]
    );
    let shown = state(false, false);
    assert_eq!(
        (shown.uid.as_str(), shown.role, shown.clients),
        ("0000000000000007", "all", 4)
    );
    let row = &shown.nodes[0];
    assert_eq!(
        (row.role, row.state, row.weight, row.clients),
        ("push-gateway", "leaving", 2, 3)
    );
}

#[test]
fn the_page_lists_a_limited_number_of_nodes() {
    let nodes = (0..5).map(|_| other(Role::All, 1, 0, false)).collect();
    let mut status = PushClusterStatus::new(&member(Role::All, 1), &report(nodes), 0, false);
    status.truncate(3);
    assert_eq!((status.nodes.len(), status.more_nodes), (3, 2));
}

#[test]
fn the_log_of_a_node_is_shown_with_its_reason() {
    let log = LogReport {
        is_connected: false,
        reason: "refused".into(),
        partitions: 64,
        owned: 32,
        live: 31,
        ..LogReport::default()
    };
    let report = ClusterReport {
        log: Some(log),
        log_engine: "redis",
        other_log: Some("b".into()),
        ..ClusterReport::default()
    };
    let status = PushClusterStatus::new(&member(Role::All, 1), &report, 0, false);
    let shown = serde_json::to_value(&status).expect("text and numbers");
    let row = &shown["log"];
    assert_eq!(
        (&row["engine"], &row["connected"], &row["reason"]),
        (&"redis".into(), &false.into(), &"refused".into())
    );
    assert_eq!(
        (&row["owned_partitions"], &row["live_partitions"]),
        (&32.into(), &31.into())
    );
    assert_eq!(shown["other_log"], "b");
    let gateway = PushClusterStatus::new(&member(Role::Gateway, 1), &report, 0, false);
    assert_eq!(gateway.log, None, "it is not connected to the broker by its role");
}
