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

fn limits(sessions: usize) -> TableLimits {
    TableLimits {
        sessions,
        per_owner: usize::MAX,
    }
}

fn sessions(table: &SessionTable<u16>) -> Vec<u16> {
    table.iter().copied().collect()
}

#[test]
fn the_least_recently_used_session_is_evicted() {
    let mut table = SessionTable::default();
    for client in 1..=3 {
        assert!(table.insert(key(client), client, limits(3)).is_empty());
    }
    assert_eq!(table.touch(&key(1)), Some(&1));
    assert_eq!(table.insert(key(4), 4, limits(3)), [2]);
    assert_eq!(sessions(&table), [3, 1, 4]);
    assert_eq!(table.touch(&key(2)), None);
    // A smaller limit evicts several at once; the new one always has a place.
    assert_eq!(table.insert(key(5), 5, limits(0)), [3, 1, 4]);
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
        table.insert(key, number, limits(10));
    }
    assert_eq!(table.touch(&one), Some(&0));
    assert_eq!(table.touch(&other_socket), Some(&1));
    assert_eq!(table.touch(&other_local), Some(&2));
}

#[test]
fn a_session_does_not_remove_its_successor() {
    let mut table = SessionTable::default();
    table.insert(key(1), 10, limits(4));
    assert_eq!(table.remove(&key(1), |session| *session == 11), None);
    assert_eq!(table.remove(&key(1), |session| *session == 10), Some(10));
    assert_eq!(table.remove(&key(1), |_| true), None);
    assert_eq!(table.len(), 0);
}

#[test]
fn an_owner_at_its_share_evicts_its_own_session() {
    let limits = TableLimits {
        sessions: 10,
        per_owner: 2,
    };
    let key = |address: &str| SessionKey {
        client: address.parse().expect("an address"),
        ..key(0)
    };
    let mut table = SessionTable::default();
    assert!(table.insert(key("10.0.0.1:1"), 1, limits).is_empty());
    assert!(table.insert(key("10.0.0.2:1"), 2, limits).is_empty());
    assert!(table.insert(key("10.0.0.2:2"), 3, limits).is_empty());
    assert_eq!(table.touch(&key("10.0.0.2:1")), Some(&2));
    assert_eq!(table.insert(key("10.0.0.2:3"), 4, limits), [3]);
    assert_eq!(sessions(&table), [1, 2, 4]);
    // The hosts of an IPv6 network share the /64.
    assert!(table.insert(key("[2001:db8::1]:1"), 5, limits).is_empty());
    assert!(table.insert(key("[2001:db8::2]:1"), 6, limits).is_empty());
    assert!(table.insert(key("[2001:db8:0:1::1]:1"), 7, limits).is_empty());
    assert_eq!(table.insert(key("[2001:db8::3]:1"), 8, limits), [5]);
    // An IPv4 address within IPv6 is the same client.
    assert_eq!(table.insert(key("[::ffff:10.0.0.2]:4"), 9, limits), [2]);
    // A smaller share evicts several at once.
    let smaller = TableLimits {
        per_owner: 0,
        ..limits
    };
    assert_eq!(table.insert(key("10.0.0.2:5"), 10, smaller), [4, 9]);
    assert_eq!(sessions(&table), [1, 6, 7, 8, 10]);
}

/// The table against a list in the order of use.
#[test]
fn any_order_of_calls_matches_a_plain_list() {
    let limits = TableLimits {
        sessions: 8,
        per_owner: 3,
    };
    let owner = |client: u16| (client % 4) as u8;
    let key_of = |client: u16| SessionKey {
        client: SocketAddr::new(Ipv4Addr::new(10, 0, 0, owner(client)).into(), client),
        ..key(client)
    };
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
            let removed = table.remove(&key_of(client), |_| true);
            assert_eq!(removed, found.map(|at| list.remove(at)));
        } else if let Some(at) = found {
            assert_eq!(table.touch(&key_of(client)), Some(&client));
            list.remove(at);
            list.push(client);
        } else {
            assert_eq!(table.touch(&key_of(client)), None);
            let evicted = table.insert(key_of(client), client, limits);
            let own = |other: &u16| owner(*other) == owner(client);
            let mut expected = Vec::new();
            if list.iter().filter(|other| own(other)).count() == limits.per_owner {
                let at = list.iter().position(own).expect("there is one");
                expected.push(list.remove(at));
            }
            if list.len() == limits.sessions {
                expected.push(list.remove(0));
            }
            assert_eq!(evicted, expected);
            list.push(client);
        }
        assert_eq!(sessions(&table), list);
        let of_owner: Vec<u16> = table.iter_owner(&key_of(client)).copied().collect();
        let own = list.iter().filter(|other| owner(**other) == owner(client));
        assert_eq!(of_owner, Vec::from_iter(own.copied()));
        assert!(table.entries.len() <= limits.sessions && table.owners.len() <= 4);
    }
}
