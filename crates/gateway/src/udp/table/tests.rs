//! Tests of the table alone, and against a plain list.

use std::net::Ipv4Addr;

use super::*;

fn key(client: u16) -> SessionKey {
    SessionKey {
        client: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), client),
        local: None,
        socket: 0,
    }
}

fn sessions(table: &SessionTable<u16>) -> Vec<u16> {
    table.iter().copied().collect()
}

#[test]
fn the_least_recently_used_session_is_evicted() {
    let mut table = SessionTable::default();
    for client in 1..=3 {
        assert!(table.insert(key(client), client, 3).is_empty());
    }
    assert_eq!(table.touch(&key(1)), Some(&1));
    assert_eq!(table.insert(key(4), 4, 3), [2]);
    assert_eq!(sessions(&table), [3, 1, 4]);
    assert_eq!(table.touch(&key(2)), None);
    // A smaller limit evicts several at once; the new one always has a place.
    assert_eq!(table.insert(key(5), 5, 0), [3, 1, 4]);
    assert_eq!(sessions(&table), [5]);
}

#[test]
fn clients_sockets_and_local_addresses_are_told_apart() {
    let mut table = SessionTable::default();
    let one = key(1);
    let other_socket = SessionKey { socket: 1, ..one };
    let other_local = SessionKey {
        local: Some(Ipv4Addr::LOCALHOST.into()),
        ..one
    };
    for (number, key) in [one, other_socket, other_local].into_iter().enumerate() {
        table.insert(key, number, 10);
    }
    assert_eq!(table.touch(&one), Some(&0));
    assert_eq!(table.touch(&other_socket), Some(&1));
    assert_eq!(table.touch(&other_local), Some(&2));
}

#[test]
fn a_session_does_not_remove_its_successor() {
    let mut table = SessionTable::default();
    table.insert(key(1), 10, 4);
    assert_eq!(table.remove(&key(1), |session| *session == 11), None);
    assert_eq!(table.remove(&key(1), |session| *session == 10), Some(10));
    assert_eq!(table.remove(&key(1), |_| true), None);
    assert_eq!(table.len(), 0);
}

/// The table against a list in the order of use.
#[test]
fn any_order_of_calls_matches_a_plain_list() {
    const MAX: usize = 8;
    let mut seed = 0x5eed_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut table = SessionTable::default();
    let mut list: Vec<u16> = Vec::new();
    for _ in 0..20_000 {
        let client = random(16) as u16;
        let found = list.iter().position(|other| *other == client);
        if random(4) == 0 {
            let removed = table.remove(&key(client), |_| true);
            assert_eq!(removed, found.map(|at| list.remove(at)));
        } else if let Some(at) = found {
            assert_eq!(table.touch(&key(client)), Some(&client));
            list.remove(at);
            list.push(client);
        } else {
            assert_eq!(table.touch(&key(client)), None);
            let evicted = table.insert(key(client), client, MAX);
            let expected: Vec<u16> = if list.len() == MAX {
                vec![list.remove(0)]
            } else {
                Vec::new()
            };
            assert_eq!(evicted, expected);
            list.push(client);
        }
        assert_eq!(sessions(&table), list);
        assert!(table.entries.len() <= MAX);
    }
}
