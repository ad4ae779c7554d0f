//! The decision to send clients away.

use super::*;

fn moving(options: Rebalance) -> Rebalancing {
    Rebalancing {
        options: Some(options),
        ..Rebalancing::default()
    }
}

/// Runs nodes with these weights and clients for a time, in steps of a second. Clients that a node sends away connect to the next one of
/// smaller load. Returns the clients, and the number that has moved.
fn run(weights: &[u32], clients: &mut [u32], seconds: u32) -> u32 {
    let mut nodes: Vec<_> = weights.iter().map(|_| moving(Rebalance::default())).collect();
    let total_weight: u32 = weights.iter().sum();
    let mut moved = 0;
    for _ in 0..seconds {
        let total: u32 = clients.iter().sum();
        for node in 0..nodes.len() {
            let share = f64::from(total) * f64::from(weights[node]) / f64::from(total_weight);
            nodes[node].advance(clients[node], share, Duration::from_secs(1));
            for _ in 0..nodes[node].take() {
                clients[node] -= 1;
                moved += 1;
                let load = |other: &usize| clients[*other] * 1000 / weights[*other];
                let others = (0..weights.len()).filter(|other| *other != node);
                let least = others.min_by_key(load).expect("another node");
                clients[least] += 1;
            }
        }
    }
    moved
}

#[test]
fn nodes_that_join_receive_their_share_and_nothing_moves_afterwards() {
    let mut clients = [10_000, 10_000, 0, 0];
    let moved = run(&[1, 1, 1, 1], &mut clients, 600);
    assert!(
        clients.iter().all(|count| (4200..=5300).contains(count)),
        "{clients:?}"
    );
    assert!((9_000..=10_000).contains(&moved), "{moved}");
    let settled = clients;
    assert_eq!(run(&[1, 1, 1, 1], &mut clients, 600), 0);
    assert_eq!(clients, settled);
}

#[test]
fn shares_follow_weights() {
    let mut clients = [8_000, 0];
    run(&[1, 3], &mut clients, 1200);
    assert!((2000..=2110).contains(&clients[0]), "{clients:?}");
}

#[test]
fn few_clients_are_left_alone() {
    for mut clients in [[2, 1, 1], [1, 0, 0], [2, 2, 1]] {
        let before = clients;
        assert_eq!(run(&[1, 1, 1], &mut clients, 100_000), 0, "{before:?}");
    }
    let mut clients = [4, 0, 0];
    run(&[1, 1, 1], &mut clients, 100_000);
    assert_eq!(clients.iter().max(), Some(&2), "{clients:?}");
}

#[test]
fn the_rate_is_a_part_of_the_clients_a_second() {
    let mut node = moving(Rebalance::default());
    node.advance(10_000, 1000.0, Duration::from_millis(500));
    assert_eq!(node.take(), 25);
    assert_eq!(node.take(), 0);
    // Those that were not taken do not exceed the excess.
    node.advance(1100, 900.0, Duration::from_secs(3600));
    assert_eq!(node.take(), 155);
    // At the lower limit it stops, and below the upper one it does not start again.
    node.advance(940, 900.0, Duration::from_secs(60));
    node.advance(1070, 900.0, Duration::from_secs(60));
    assert_eq!(node.take(), 0);
}
