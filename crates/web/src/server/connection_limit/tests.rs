//! Admission is refused beyond the limit, and closed connections no longer count.

use super::*;

#[test]
fn an_address_has_as_many_as_it_may() {
    let admission = Admission::new(Some(2));
    let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    assert!(admission.enter(one) && admission.enter(one));
    assert!(!admission.enter(one));
    assert!(admission.enter(other));
    admission.leave(one);
    assert!(admission.enter(one));
}

#[test]
fn an_address_without_connections_leaves_no_entry() {
    let admission = Admission::new(Some(2));
    let one = IpAddr::from([192, 0, 2, 1]);
    assert!(admission.enter(one));
    admission.leave(one);
    assert!(
        admission
            .shards
            .iter()
            .all(|shard| shard.lock().unwrap().is_empty())
    );
}

#[test]
fn a_network_of_ipv6_is_one_client() {
    let admission = Admission::new(Some(2));
    let of = |text: &str| -> IpAddr { text.parse().unwrap() };
    assert!(admission.enter(of("2001:db8:0:1::1")) && admission.enter(of("2001:db8:0:1:ffff::2")));
    assert!(!admission.enter(of("2001:db8:0:1:aaaa:bbbb:cccc:dddd")));
    assert!(admission.enter(of("2001:db8:0:2::1")), "another network");
    admission.leave(of("2001:db8:0:1::1"));
    assert!(admission.enter(of("2001:db8:0:1::3")));
    // An IPv4 address is the same client in either form.
    assert!(admission.enter(of("192.0.2.1")) && admission.enter(of("::ffff:192.0.2.1")));
    assert!(!admission.enter(of("192.0.2.1")));
    assert!(admission.enter(of("192.0.2.2")));
}

#[test]
fn loopback_does_not_count() {
    let admission = Admission::new(Some(1));
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let address: IpAddr = address.parse().unwrap();
        assert!(admission.enter(address) && admission.enter(address), "{address}");
    }
}
