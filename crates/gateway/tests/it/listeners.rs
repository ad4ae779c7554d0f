//! Listeners that are added, removed and changed while the gateway serves.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Certificate, Listener, ListenerTls, Network, Protocol, ProxyProtocol, Secret,
};

use ringmain_wire::h2::Limits;

use crate::http2::Http2;
use crate::l4_rig::{Gates, config, echo, gate, reserved, stream};
use crate::origin::{Origin, to, upstream};
use crate::support::tls::Authority;
use crate::support::{Client, get};

on_every_backend! {
    new_ones_are_opened_and_old_ones_closed,
    the_protocol_changes,
    a_listener_that_cannot_open_is_reported,
    required_addresses_are_bound_before_anything_changes,
    a_hundred_changes,
}

fn at(name: &str, protocol: Protocol, addr: SocketAddr) -> Listener {
    Listener {
        addresses: vec![addr.to_string().parse().expect("an address")],
        ..gate(name, protocol)
    }
}

/// Builds a configuration in which these listeners lead to an origin of HTTP, or one of bytes.
fn all(listeners: &[Listener], origin: &Origin, bytes: SocketAddr) -> model::Config {
    let mut all = to(&[origin.addr], |_, _| {});
    let streams = config(
        listeners.to_vec(),
        vec![stream("bytes", &[])],
        vec![upstream("bytes", &[bytes])],
    );
    all.listeners = streams.listeners;
    all.streams = streams.streams;
    all.upstreams.extend(streams.upstreams);
    all
}

fn origin() -> Origin {
    Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

fn expect_nobody(addr: SocketAddr) {
    let error = TcpStream::connect(addr).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

fn ask(client: &mut Client, status: u16) {
    client.send(get("/"));
    assert_eq!(client.answer().status, status);
}

fn new_ones_are_opened_and_old_ones_closed(engine: Config) {
    let (origin, bytes) = (origin(), echo("bytes"));
    let first = at("first", Protocol::Http, reserved());
    let (second, third) = (reserved(), reserved());
    let gates = Gates::open(engine, all(std::slice::from_ref(&first), &origin, bytes));
    let mut old = gates.client(0);
    ask(&mut old, 200);
    let next = [
        first.clone(),
        at("second", Protocol::Http, second),
        at("third", Protocol::Tcp, third),
    ];
    assert_eq!(gates.change(all(&next, &origin, bytes)), [""; 0]);
    assert_eq!(gates.gateway.unbound_addrs(), []);
    // The listeners are open when the change returns.
    let mut new = Client::new(second);
    ask(&mut new, 200);
    let mut passed = Client::new(third);
    assert_eq!(passed.take(5), b"bytes");
    ask(&mut old, 200);
    // Two are removed, one of which was open from the start.
    let next = [at("second", Protocol::Http, second)];
    assert_eq!(gates.change(all(&next, &origin, bytes)), [""; 0]);
    expect_nobody(gates.addrs[0]);
    expect_nobody(third);
    ask(&mut new, 200);
    // Forwarded connections continue; a request has no listener any more.
    passed.send("still here");
    assert_eq!(passed.take(10), b"still here");
    ask(&mut old, 404);
    // Every listener is added again.
    let next = [
        first,
        at("second", Protocol::Http, second),
        at("third", Protocol::Tcp, third),
    ];
    assert_eq!(gates.change(all(&next, &origin, bytes)), [""; 0]);
    ask(&mut gates.client(0), 200);
    assert_eq!(Client::new(third).take(5), b"bytes");
    // A connection to the closed listener is not one of the new listener.
    ask(&mut old, 404);
    gates.shut_down();
}

fn the_protocol_changes(engine: Config) {
    let (origin, bytes) = (origin(), echo("bytes"));
    let authority = Authority::new("tests");
    let pair = authority.sign("web.example");
    let certificate = Arc::new(Certificate {
        name: "web".into(),
        chain: pair.chain.bytes.into(),
        key: Secret::new(pair.key.bytes),
    });
    let addr = reserved();
    let with = |listener: Listener| {
        let mut config = all(&[listener], &origin, bytes);
        config.certificates = vec![Arc::clone(&certificate)];
        config
    };
    let plain = at("one", Protocol::Http, addr);
    let mut secure = at("one", Protocol::Https, addr);
    secure.tls = Some(ListenerTls {
        certificates: vec!["web".into()],
        ..ListenerTls::default()
    });
    let mut behind = plain.clone();
    behind.proxy_protocol = Some(ProxyProtocol {
        from: vec![Network::parse("127.0.0.0/8").expect("a network")],
        ..ProxyProtocol::default()
    });
    let gates = Gates::open(engine, with(plain.clone()));
    let mut in_the_clear = gates.client(0);
    ask(&mut in_the_clear, 200);
    assert_eq!(gates.change(with(secure)), [""; 0]);
    let mut by_tls = gates.secure(0, "web.example", &authority).expect("a handshake");
    ask(&mut by_tls, 200);
    // Hosts of TLS listeners are not served in the clear.
    ask(&mut in_the_clear, 404);
    assert_eq!(gates.change(with(behind)), [""; 0]);
    let mut proxied = gates.client(0);
    proxied.send("PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n");
    ask(&mut proxied, 200);
    assert_eq!(origin_saw(&origin), "192.0.2.1");
    let mut stranger = gates.client(0);
    // It may be closed before all of this is sent.
    let _ = stranger.stream.write_all(get("/").as_bytes());
    assert_eq!(stranger.rest().0, b"");
    assert_eq!(gates.change(with(at("one", Protocol::H2c, addr))), [""; 0]);
    let mut framed = Http2::over(gates.client(0), &Limits::INTERNET);
    framed.ask("/").expect(200, "ok");
    let mut old = gates.client(0);
    old.send(get("/"));
    assert!(!old.rest().0.starts_with(b"HTTP/"));
    assert_eq!(gates.change(with(at("one", Protocol::Tcp, addr))), [""; 0]);
    assert_eq!(gates.client(0).take(5), b"bytes");
    // Its address is not a proxy's to tell any more.
    ask(&mut proxied, 421);
    assert_eq!(gates.change(with(plain)), [""; 0]);
    ask(&mut gates.client(0), 200);
    // The former configuration is restored.
    ask(&mut in_the_clear, 200);
    gates.shut_down();
}

/// Returns the client address of the last request.
fn origin_saw(origin: &Origin) -> String {
    loop {
        let seen = origin.seen();
        if let Some(client) = seen.field("x-forwarded-for")
            && client != "127.0.0.1"
        {
            return client;
        }
    }
}

fn a_listener_that_cannot_open_is_reported(engine: Config) {
    let (origin, bytes) = (origin(), echo("bytes"));
    let first = at("first", Protocol::Http, reserved());
    let addr = reserved();
    let other = TcpListener::bind(addr).expect("it was free");
    let gates = Gates::open(engine, all(std::slice::from_ref(&first), &origin, bytes));
    let third = reserved();
    let next = [
        first,
        at("second", Protocol::Http, addr),
        at("third", Protocol::Http, third),
    ];
    let problems = gates.change(all(&next, &origin, bytes));
    assert_eq!(problems.len(), 1, "{problems:?}");
    for part in ["listener `second`: addresses", "in use", "it is ignored"] {
        assert!(problems[0].contains(part), "{part} in {problems:?}");
    }
    assert_eq!(gates.gateway.unbound_addrs().len(), 1);
    // All else holds.
    ask(&mut gates.client(0), 200);
    ask(&mut Client::new(third), 200);
    // The next change finds it free.
    drop(other);
    assert_eq!(gates.change(all(&next, &origin, bytes)), [""; 0]);
    assert_eq!(gates.gateway.unbound_addrs(), []);
    ask(&mut Client::new(addr), 200);
    gates.shut_down();
}

fn required_addresses_are_bound_before_anything_changes(engine: Config) {
    let (origin, bytes) = (origin(), echo("bytes"));
    let first = at("first", Protocol::Http, reserved());
    let (taken, free) = (reserved(), reserved());
    let other = TcpListener::bind(taken).expect("it was free");
    let gates = Gates::open(engine, all(std::slice::from_ref(&first), &origin, bytes));
    let replace = |required: &str| {
        let next = [
            at("file", Protocol::Http, free),
            at("cluster", Protocol::Http, taken),
        ];
        let next = Arc::new(all(&next, &origin, bytes));
        gates
            .gateway
            .replace_after_bind(next, crate::support::tls::now(), &|name| **name == *required)
    };
    let problems = replace("cluster").expect_err("its address is taken");
    assert!(problems[0].to_string().contains("in use"), "{problems:?}");
    // Nothing has changed.
    ask(&mut gates.client(0), 200);
    expect_nobody(free);
    assert_eq!(replace("file"), Ok(()));
    ask(&mut Client::new(free), 200);
    expect_nobody(gates.addrs[0]);
    assert_eq!(gates.gateway.unbound_addrs().len(), 1);
    drop(other);
    gates.shut_down();
}

fn a_hundred_changes(mut engine: Config) {
    engine.workers = Some(2);
    let (origin, bytes) = (origin(), echo("bytes"));
    let first = at("first", Protocol::Http, reserved());
    let (second, third) = (reserved(), reserved());
    let gates = Gates::open(engine, all(std::slice::from_ref(&first), &origin, bytes));
    let mut web = gates.client(0);
    let second = at("second", Protocol::Tcp, second);
    assert_eq!(
        gates.change(all(&[first.clone(), second.clone()], &origin, bytes)),
        [""; 0]
    );
    let mut passed = Client::new(match second.addresses[0] {
        model::Addr::Inet(addr) => addr,
        _ => unreachable!("it is an internet address"),
    });
    assert_eq!(passed.take(5), b"bytes");
    for round in 0..100 {
        let protocol = [Protocol::Http, Protocol::Tcp][round / 2 % 2];
        let mut listeners = vec![first.clone(), second.clone()];
        if round % 2 == 0 {
            listeners.push(at("third", protocol, third));
        }
        assert_eq!(gates.change(all(&listeners, &origin, bytes)), [""; 0]);
        match (round % 2, protocol) {
            (0, Protocol::Http) => ask(&mut Client::new(third), 200),
            (0, _) => assert_eq!(Client::new(third).take(5), b"bytes"),
            _ => expect_nobody(third),
        }
        ask(&mut web, 200);
        passed.send("x");
        assert_eq!(passed.take(1), b"x");
    }
    gates.shut_down();
}
