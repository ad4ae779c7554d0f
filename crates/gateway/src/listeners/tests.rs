//! Tests of engine listeners: numbers, protocols, certificates and limits of addresses with several listeners.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::model::{Certificate, ClientAddress, HttpLimits, ListenerTls, Network, ProxyProtocol};

fn listener(name: &str, address: &str, protocol: Protocol) -> Listener {
    Listener {
        name: name.into(),
        addresses: vec![address.parse().expect("an address")],
        protocol,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: Default::default(),
        client_address: ClientAddress::default(),
        limits: HttpLimits::default(),
        policies: Vec::new(),
    }
}

fn table(listeners: Vec<Listener>) -> Table<()> {
    let config = Config {
        listeners: listeners.into_iter().map(Arc::new).collect(),
        ..Config::default()
    };
    Table::compile(Arc::new(config), None, &mut |_, _| Ok(()))
}

fn addrs(list: &[Addr]) -> Vec<String> {
    list.iter().map(Addr::to_string).collect()
}

#[test]
fn numbers_stay_with_their_addresses() {
    let (a, b, c) = ("127.0.0.1:1001", "127.0.0.1:1002", "127.0.0.1:1003");
    let http = |name, address| listener(name, address, Protocol::Http);
    let first = table(vec![http("a", a), http("b", b)]);
    let mut fronts = ListenAddresses::default();
    let followed = fronts.follow_table(&first, Duration::ZERO);
    assert_eq!(
        (addrs(&fronts.listen_addrs()), followed.problems),
        (vec![a.to_owned(), b.to_owned()], vec![])
    );

    // In another order, with a new one.
    let next = table(vec![http("c", c), http("b", b), http("a", a)]);
    let followed = fronts.follow_table(&next, Duration::ZERO);
    let name = |id: &Option<AddressId>| {
        let (_, listener) = next.addresses().listeners((*id)?).next()?;
        Some(listener.name.to_string())
    };
    let names: Vec<_> = followed.ids.iter().map(name).collect();
    assert_eq!(names, ["a", "b", "c"].map(|name| Some(name.to_owned())));
    let opened: Vec<_> = followed
        .opened
        .iter()
        .map(|(number, addr, _)| (*number, addr.to_string()))
        .collect();
    assert_eq!(opened, [(2, c.to_owned())]);
    assert_eq!((&followed.changed[..], &followed.closed[..]), (&[2][..], &[][..]));

    // One is removed, and no other takes its number.
    let next = table(vec![http("c", c), http("d", "127.0.0.1:1004"), http("b", b)]);
    let followed = fronts.follow_table(&next, Duration::ZERO);
    assert_eq!(followed.closed, [0]);
    assert!(followed.ids[0].is_none() && followed.ids[1..].iter().all(Option::is_some));
    assert_eq!(followed.opened[0].0, 3);

    // Except a number whose listener could not be opened: no client can have connected there.
    fronts.release_number(3);
    assert_eq!(
        addrs(&fronts.unbound_addrs(&next, &followed.ids)),
        ["127.0.0.1:1004"]
    );
    let followed = fronts.follow_table(&next, Duration::ZERO);
    assert_eq!(followed.opened[0].0, 3);
    assert_eq!(
        addrs(&fronts.unbound_addrs(&next, &followed.ids)),
        Vec::<String>::new()
    );
}

#[test]
fn the_protocol_of_an_address_changes() {
    let (one, any) = ("127.0.0.1:1001", "127.0.0.1:0");
    let mut fronts = ListenAddresses::default();
    let first = vec![
        listener("a", one, Protocol::Http),
        listener("b", any, Protocol::Http),
        listener("c", any, Protocol::Tcp),
    ];
    fronts.follow_table(&table(first), Duration::ZERO);
    let mut behind = listener("a", one, Protocol::Http);
    behind.proxy_protocol = Some(ProxyProtocol {
        from: vec![Network::parse("10.0.0.0/8").expect("a network")],
        ..ProxyProtocol::default()
    });
    for (listener, changed) in [
        (listener("a", one, Protocol::Http), &[][..]),
        (listener("a", one, Protocol::Tcp), &[0]),
        (listener("a", one, Protocol::TlsPassthrough), &[]),
        (listener("a", one, Protocol::Http), &[0]),
        (behind.clone(), &[0]),
        (behind, &[]),
    ] {
        let rest = [
            super::tests::listener("b", any, Protocol::Http),
            super::tests::listener("c", any, Protocol::Tcp),
        ];
        let all = rest.into_iter().chain([listener]).collect();
        let followed = fronts.follow_table(&table(all), Duration::ZERO);
        assert_eq!(followed.changed, changed);
        assert!(followed.opened.is_empty() && followed.closed.is_empty());
    }
    // Of ports that the kernel chose, the one of the same kind stays.
    let followed = fronts.follow_table(&table(vec![listener("c", any, Protocol::Tcp)]), Duration::ZERO);
    assert_eq!(
        (&followed.changed[..], &followed.closed[..]),
        (&[][..], &[0, 1][..])
    );
}

#[test]
fn each_port_0_is_an_address_of_its_own() {
    let any = "127.0.0.1:0";
    let first = table(vec![
        listener("a", any, Protocol::Http),
        listener("b", any, Protocol::Http),
    ]);
    let ids = ListenAddresses::default()
        .follow_table(&first, Duration::ZERO)
        .ids;
    assert_eq!(ids.len(), 2);
    assert!(ids[0].is_some() && ids[0] != ids[1]);
}

#[test]
fn without_a_usable_certificate_no_listener_opens() {
    let mut secure = listener("secure", "127.0.0.1:1004", Protocol::Https);
    secure.tls = Some(ListenerTls {
        certificates: vec!["wrong".into()],
        ..ListenerTls::default()
    });
    let config = Config {
        listeners: vec![Arc::new(secure)],
        certificates: vec![Arc::new(Certificate {
            name: "wrong".into(),
            chain: (*b"-----BEGIN NOTHING-----\n").into(),
            key: crate::model::Secret::new(b"-----BEGIN NOTHING-----\n".to_vec()),
        })],
        ..Config::default()
    };
    let table: Table<()> = Table::compile(Arc::new(config), None, &mut |_, _| Ok(()));
    let mut fronts = ListenAddresses::default();
    let problems = fronts.follow_table(&table, Duration::ZERO).problems;
    assert!(fronts.listen_addrs().is_empty());
    let places: Vec<_> = problems.iter().map(|problem| problem.part.to_string()).collect();
    assert_eq!(places, ["certificate `wrong`", "listener `secure`"]);
    assert!(!problems[0].found.contains('\n'), "{:?}", problems[0].found);
}

#[test]
fn the_widest_limit_applies() {
    let mut narrow = listener("narrow", "127.0.0.1:1005", Protocol::Http);
    narrow.limits.head_bytes = 2048;
    narrow.limits.requests_per_connection = Some(10);
    let wide = listener("wide", "127.0.0.1:1006", Protocol::Http);
    let of = |listeners: &[&Listener], per_address| {
        let listeners = listeners.iter().map(|it| Arc::new(Listener::clone(it)));
        let mut config = Config {
            listeners: listeners.collect(),
            ..Config::default()
        };
        config.limits.per_address = per_address;
        connection_limits(&config)
    };
    let one = of(&[&narrow], PerAddressLimit::Automatic);
    assert_eq!((one.http1.head_bytes, one.http1.start_line_bytes), (2048, 2048));
    assert_eq!(one.requests_per_connection, Some(10));
    assert_eq!(one.connections_per_address, Some(1024));
    narrow.client_address.trusted = vec![Network::parse("10.0.0.0/8").expect("a network")];
    assert_eq!(of(&[&wide], PerAddressLimit::Off).connections_per_address, None);
    assert_eq!(
        of(&[&narrow], PerAddressLimit::AtMost(7)).connections_per_address,
        Some(7)
    );
    let both = of(&[&narrow, &wide], PerAddressLimit::Automatic);
    assert_eq!(both.http1.head_bytes, HttpLimits::default().head_bytes);
    assert_eq!(both.requests_per_connection, None);
    assert_eq!(both.connections_per_address, None);
}
