//! Admission is refused beyond the limit, and closed connections no longer count.

use super::*;

#[test]
fn an_address_has_as_many_as_it_may() {
    let connection_limit = ConnectionLimit::new(Some(2));
    let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    assert!(connection_limit.acquire(one) && connection_limit.acquire(one));
    assert!(!connection_limit.acquire(one));
    assert!(connection_limit.acquire(other));
    connection_limit.release(one);
    assert!(connection_limit.acquire(one));
}

#[test]
fn an_address_without_connections_leaves_no_entry() {
    let connection_limit = ConnectionLimit::new(Some(2));
    let one = IpAddr::from([192, 0, 2, 1]);
    assert!(connection_limit.acquire(one));
    connection_limit.release(one);
    assert!(
        connection_limit
            .shards
            .iter()
            .all(|shard| shard.lock().unwrap().is_empty())
    );
}

#[test]
fn a_network_of_ipv6_is_one_client() {
    let connection_limit = ConnectionLimit::new(Some(2));
    let of = |text: &str| -> IpAddr { text.parse().unwrap() };
    assert!(
        connection_limit.acquire(of("2001:db8:0:1::1"))
            && connection_limit.acquire(of("2001:db8:0:1:ffff::2"))
    );
    assert!(!connection_limit.acquire(of("2001:db8:0:1:aaaa:bbbb:cccc:dddd")));
    assert!(connection_limit.acquire(of("2001:db8:0:2::1")), "another network");
    connection_limit.release(of("2001:db8:0:1::1"));
    assert!(connection_limit.acquire(of("2001:db8:0:1::3")));
    // An IPv4 address is the same client in either form.
    assert!(connection_limit.acquire(of("192.0.2.1")) && connection_limit.acquire(of("::ffff:192.0.2.1")));
    assert!(!connection_limit.acquire(of("192.0.2.1")));
    assert!(connection_limit.acquire(of("192.0.2.2")));
}

#[test]
fn loopback_does_not_count() {
    let connection_limit = ConnectionLimit::new(Some(1));
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let address: IpAddr = address.parse().unwrap();
        assert!(
            connection_limit.acquire(address) && connection_limit.acquire(address),
            "{address}"
        );
    }
}
