//! Where queues, interrupts and workers are, and what is proposed.

use super::*;

fn worker(cpu: &str, accepted: u64) -> Worker {
    Worker {
        tid: 1,
        name: "ringmain-0".into(),
        cpus: Cpus::list(cpu).unwrap(),
        accepted: Some(accepted),
        ticks: None,
    }
}

fn row(queue: usize, cpus: &str) -> Row {
    Row {
        queue,
        share: Some((64, 128)),
        interrupt: Some(40),
        cpus: Cpus::list(cpus).unwrap(),
        moved_to: Cpus::default(),
        sent_from: Cpus::default(),
        worker: None,
        proposed: None,
    }
}

fn card() -> Interface {
    Interface {
        name: "eth0".into(),
        kind: Kind::Card,
        driver: None,
        up: true,
        rx_queues: 2,
        tx_queues: 2,
        interrupts: Vec::new(),
        near: None,
    }
}

/// What is said of these rows and workers.
fn check(rows: Vec<Row>, workers: Vec<Worker>, expected: &[&str]) {
    let locality = Locality {
        interface: "eth0".into(),
        rows,
        workers,
        obstacles: Vec::new(),
    };
    let found = obstacles(&card(), &locality);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found} / {expected}");
    }
}

#[test]
fn a_straight_way_has_no_obstacle() {
    check(
        vec![row(0, "0"), row(1, "1")],
        vec![worker("0", 10), worker("1", 12)],
        &[],
    );
}

#[test]
fn every_obstacle_is_named_with_its_step() {
    check(
        vec![row(0, "0-3"), row(1, "1")],
        vec![],
        &["1 interrupt may go to several CPUs (step irq-affinity)"],
    );
    check(
        vec![row(0, "0"), row(1, "0")],
        vec![worker("0", 1), worker("1", 1)],
        &["2 queues share 1 CPU (step"],
    );
    check(
        vec![row(0, "0")],
        vec![worker("0", 1), worker("1", 1)],
        &["1 queue for 2 workers"],
    );
    check(
        vec![row(0, "0"), row(1, "1")],
        vec![worker("0-1", 1), worker("1", 1)],
        &["not every worker is pinned"],
    );
    let mut moved = row(0, "0");
    moved.moved_to = Cpus::list("1").unwrap();
    check(vec![moved], vec![worker("0", 1)], &["(step rps)"]);
}

#[test]
fn uneven_connections_are_seen() {
    let workers = vec![worker("0", 90), worker("1", 5), worker("2", 5)];
    let rows = vec![row(0, "0"), row(1, "1"), row(2, "2")];
    check(rows, workers, &["a worker has accepted 90, the mean is 33"]);
}
