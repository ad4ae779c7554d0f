//! Tests of the settings for name resolution.

use std::time::Duration;

use super::ResolverSettings;

const RESOLV: &str = "# by hand\nnameserver 192.0.2.53 # first\nnameserver fe80::1%eth0\nnameserver x\nnameserver 10.0.0.1\n\
                      nameserver 10.0.0.2\nsearch shop.svc.cluster.local. svc.cluster.local\noptions ndots:5 timeout:1 attempts:3 edns0\n";
const HOSTS: &str =
    "127.0.0.1 localhost\n::1 localhost ip6-localhost\n10.1.2.3\tDb.internal db # the database\nbroken\n";

#[test]
fn files_are_read() {
    let settings = ResolverSettings::parse(RESOLV, HOSTS);
    let servers: Vec<_> = settings.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.53:53", "[fe80::1]:53", "10.0.0.1:53"]);
    assert_eq!((settings.timeout, settings.attempts), (Duration::from_secs(1), 3));
    let found = |name: &str| {
        settings.known_addresses(name).map(|found| {
            found
                .addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(found("localhost"), Some(vec!["127.0.0.1".to_owned()]));
    assert_eq!(found("ip6-localhost"), Some(vec!["::1".to_owned()]));
    assert_eq!(found("DB"), Some(vec!["10.1.2.3".to_owned()]));
    assert_eq!(found("192.0.2.1"), Some(vec!["192.0.2.1".to_owned()]));
    assert_eq!(found("[2001:db8::1]"), Some(vec!["2001:db8::1".to_owned()]));
    assert_eq!(found("shop.example"), None);
}

#[test]
fn few_dots_are_searched() {
    let settings = ResolverSettings::parse(RESOLV, "");
    assert_eq!(
        settings.candidates("cart"),
        ["cart.shop.svc.cluster.local", "cart.svc.cluster.local", "cart"]
    );
    assert_eq!(settings.candidates("cart."), ["cart"]);
    assert_eq!(settings.candidates("a.b.c.d.e.f")[0], "a.b.c.d.e.f");
    let plain = ResolverSettings::parse("", "");
    assert_eq!(plain.candidates("cart"), ["cart"]);
    assert_eq!(plain.servers[0].to_string(), "127.0.0.1:53");
}
