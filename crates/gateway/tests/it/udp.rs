//! UDP listeners: sessions of clients with endpoints, their ends, and changes of the configuration.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ringmain_engine::Config as EngineConfig;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{
    Balance, Config, DatagramSessions, HashKey, Hostname, Listener, Protocol, StreamRoute, Upstream,
    UpstreamTls, WeightedBackend,
};
use ringmain_gateway::stats::{DatagramDrop, DatagramReport, SessionEnd};

use crate::l4_rig::{Gates, config, gate, stream, until};
use crate::observability::access_log;
use crate::origin::upstream;
use crate::support::{PATIENCE, tls};

on_every_backend! {
    every_size_is_answered,
    shares_follow_the_weights,
    each_listener_has_its_route,
    replies_leave_from_the_address_of_the_client,
    a_source_has_one_endpoint,
    an_unreachable_endpoint_is_replaced,
    nothing_is_sent_in_the_clear_to_an_upstream_with_tls,
    the_least_recently_used_session_is_evicted,
    a_session_ends_with_its_responses,
    a_session_has_a_line_in_the_access_log,
    a_reload_keeps_sessions,
    addresses_are_opened_and_closed,
    a_shutdown_waits_for_sessions,
}

/// A server that answers each datagram with its name, the address of the sender, and the datagram.
fn echo(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let addr = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let mut answer = format!("{name} {from} ").into_bytes();
            answer.extend_from_slice(&buffer[..count]);
            let _ = socket.send_to(&answer, from);
        }
    });
    addr
}

/// An address that answers with ICMP errors: its socket receives from one peer only.
fn unreachable() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let addr = socket.local_addr().expect("it is bound");
    socket.connect(addr).expect("its own peer");
    (socket, addr)
}

/// A client of the gateway's UDP address with this index.
fn client(gates: &Gates, index: usize) -> UdpSocket {
    dial(gates.gateway.datagram_addrs()[index])
}

fn dial(addr: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(addr).expect("a route");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    socket
}

/// The name of the server that answers, the address that it sees, and the payload.
#[track_caller]
fn ask(client: &UdpSocket, data: &[u8]) -> (String, String, Vec<u8>) {
    client.send(data).expect("sent");
    receive(client)
}

#[track_caller]
fn receive(client: &UdpSocket) -> (String, String, Vec<u8>) {
    let mut buffer = vec![0; 65_536];
    let count = client.recv(&mut buffer).expect("an answer");
    let mut parts = buffer[..count].splitn(3, |byte| *byte == b' ');
    let mut next = || parts.next().expect("three parts").to_vec();
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(next()), text(next()), next())
}

fn udp(addrs: &[SocketAddr], change: impl FnOnce(&mut Listener, &mut StreamRoute, &mut Upstream)) -> Config {
    crate::l4_rig::to(Protocol::Udp, addrs, change)
}

fn report(gates: &Gates) -> DatagramReport {
    let mut all = gates.gateway.datagram_reports();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Waits until so many sessions have ended like this.
#[track_caller]
fn await_ended(gates: &Gates, end: SessionEnd, count: u64) {
    let ended = || -> u64 {
        let all = gates.gateway.datagram_reports();
        all.iter().map(|report| report.ended[end as usize]).sum()
    };
    until(|| ended() >= count);
    assert_eq!(ended(), count, "{end:?}: {:?}", gates.gateway.datagram_reports());
}

fn every_size_is_answered(engine: EngineConfig) {
    let gates = Gates::open(engine, udp(&[echo("one")], |_, _, _| {}));
    let client = client(&gates, 0);
    let mut seen = None;
    for size in [0, 1, 100, 1400, 9000, 60_000] {
        let data = crate::support::pattern(size);
        let (name, from, payload) = ask(&client, &data);
        assert_eq!((name.as_str(), payload.len()), ("one", size));
        assert!(payload == data, "the same bytes");
        // One session: one socket to the endpoint.
        assert_eq!(*seen.get_or_insert(from.clone()), from);
    }
    // A response is counted once the kernel has taken it, which may be after its arrival.
    until(|| report(&gates).sent_datagrams >= 6);
    let report = report(&gates);
    assert_eq!((report.opened, report.open_sessions()), (1, 1));
    assert_eq!((report.received_datagrams, report.sent_datagrams), (6, 6));
    assert_eq!(report.received, 70_501);
    assert_eq!(report.dropped, [0; DatagramDrop::ALL.len()]);
    gates.shut_down();
}

fn shares_follow_the_weights(engine: EngineConfig) {
    const CLIENTS: u32 = 400;
    let names = ["seventy", "thirty", "none"];
    let weights = [70, 30, 0];
    let mut route = stream("all", &[]);
    route.backends = names
        .iter()
        .zip(weights)
        .map(|(name, weight)| WeightedBackend {
            weight,
            ..WeightedBackend::new(*name)
        })
        .collect();
    let upstreams = names.map(|name| upstream(name, &[echo(name)])).to_vec();
    let gates = Gates::open(
        engine,
        config(vec![gate("gate", Protocol::Udp)], vec![route], upstreams),
    );
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..CLIENTS {
        let (name, ..) = ask(&client(&gates, 0), b"hello");
        *counts.entry(name).or_default() += 1;
    }
    let count = |name: &str| counts.get(name).copied().unwrap_or_default();
    assert_eq!(count("none"), 0, "{counts:?}");
    assert_eq!(count("seventy") + count("thirty"), CLIENTS);
    // Six standard deviations of 400 draws.
    assert!(count("seventy").abs_diff(280) < 55, "{counts:?}");
    gates.shut_down();
}

fn each_listener_has_its_route(engine: EngineConfig) {
    let routes = ["one", "two"].map(|name| StreamRoute {
        listeners: vec![format!("gate-{name}").into()],
        ..stream(name, &[])
    });
    let listeners = ["gate-one", "gate-two", "gate-none"].map(|name| gate(name, Protocol::Udp));
    let upstreams = ["one", "two"].map(|name| upstream(name, &[echo(name)]));
    let gates = Gates::open(
        engine,
        config(listeners.to_vec(), routes.to_vec(), upstreams.to_vec()),
    );
    assert_eq!(ask(&client(&gates, 0), b"hello").0, "one");
    assert_eq!(ask(&client(&gates, 1), b"hello").0, "two");
    client(&gates, 2).send(b"hello").expect("sent");
    gates.await_fault(Fault::NoRoute, 1);
    let unrouted = gates.gateway.datagram_reports().remove(0);
    assert_eq!((&*unrouted.name, unrouted.opened), ("", 0));
    assert_eq!(unrouted.dropped[DatagramDrop::NoRoute as usize], 1);
    gates.shut_down();
}

fn replies_leave_from_the_address_of_the_client(engine: EngineConfig) {
    for (bind, to) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "127.0.0.3")] {
        let change = |listener: &mut Listener, _: &mut StreamRoute, _: &mut Upstream| {
            listener.addresses = vec![bind.parse().expect("an address")];
        };
        let gates = Gates::open(engine.clone(), udp(&[echo("one")], change));
        let port = gates.gateway.datagram_addrs()[0].port();
        // Connected: an answer from another address would not arrive.
        let client = dial(SocketAddr::new(to.parse().expect("an address"), port));
        assert_eq!(ask(&client, b"hello").0, "one");
        gates.shut_down();
    }
}

fn a_source_has_one_endpoint(engine: EngineConfig) {
    let endpoints = ["one", "two", "three"].map(echo);
    let change = |_: &mut Listener, _: &mut StreamRoute, upstream: &mut Upstream| {
        upstream.balance = Balance::Maglev(HashKey::Source);
    };
    let gates = Gates::open(engine, udp(&endpoints, change));
    let (first, ..) = ask(&client(&gates, 0), b"hello");
    for _ in 0..20 {
        assert_eq!(ask(&client(&gates, 0), b"hello").0, first);
    }
    gates.shut_down();
}

fn an_unreachable_endpoint_is_replaced(engine: EngineConfig) {
    let [(_one, first), (_two, second)] = [(); 2].map(|()| unreachable());
    let change = |_: &mut Listener, _: &mut StreamRoute, upstream: &mut Upstream| {
        // Of one source each selection is the same endpoint, but for failed attempts.
        upstream.balance = Balance::Maglev(HashKey::Source);
    };
    let gates = Gates::open(engine, udp(&[first, second, echo("alive")], change));
    for _ in 0..8 {
        let client = client(&gates, 0);
        client
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a socket");
        // Clients of UDP repeat lost datagrams.
        let mut buffer = [0; 64];
        until(|| {
            client.send(b"hello").expect("the gateway receives");
            client.recv(&mut buffer).is_ok()
        });
        assert!(buffer.starts_with(b"alive "));
    }
    gates.shut_down();
}

fn nothing_is_sent_in_the_clear_to_an_upstream_with_tls(engine: EngineConfig) {
    let endpoint = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let addr = endpoint.local_addr().expect("it is bound");
    let change = |_: &mut Listener, _: &mut StreamRoute, upstream: &mut Upstream| {
        upstream.tls = Some(UpstreamTls {
            server_name: Some(Hostname::parse("a.example").expect("a name")),
            ..UpstreamTls::default()
        });
    };
    let gates = Gates::open(engine, udp(&[addr], |_, _, _| {}));
    let problems = gates.change(udp(&[addr], change));
    assert!(
        problems[0].contains("expected an upstream without TLS"),
        "{problems:?}"
    );
    client(&gates, 0).send(b"secret").expect("the gateway receives");
    let unavailable = || -> u64 {
        let all = gates.gateway.datagram_reports();
        all.iter()
            .map(|report| report.dropped[DatagramDrop::Unavailable as usize])
            .sum()
    };
    until(|| unavailable() == 1);
    endpoint.set_nonblocking(true).expect("a socket");
    assert!(endpoint.recv(&mut [0; 64]).is_err());
    gates.shut_down();
}

fn the_least_recently_used_session_is_evicted(engine: EngineConfig) {
    let mut config = udp(&[echo("one")], |_, _, _| {});
    config.limits.datagram_sessions = 2;
    let engine = EngineConfig {
        workers: Some(1),
        ..engine
    };
    let gates = Gates::open(engine, config);
    let [a, b, c] = [(); 3].map(|()| client(&gates, 0));
    let (_, of_a, _) = ask(&a, b"1");
    let (_, of_b, _) = ask(&b, b"2");
    assert_eq!(ask(&a, b"3").1, of_a);
    ask(&c, b"4");
    await_ended(&gates, SessionEnd::Evicted, 1);
    assert_eq!(
        ask(&a, b"5").1,
        of_a,
        "the session of `b` was evicted, not this one"
    );
    assert_ne!(ask(&b, b"6").1, of_b, "a new session");
    await_ended(&gates, SessionEnd::Evicted, 2);
    let report = report(&gates);
    assert_eq!((report.opened, report.open_sessions()), (4, 2));
    gates.shut_down();
}

fn a_session_has_a_line_in_the_access_log(engine: EngineConfig) {
    let change = |_: &mut Listener, route: &mut StreamRoute, _: &mut Upstream| {
        route.datagrams.responses = Some(1);
    };
    let endpoint = echo("one");
    let (log, mut lines) = access_log();
    let gates = Gates::open_with(engine, udp(&[endpoint], change), |app| app.access_log(log));
    let (_, _, _) = ask(&client(&gates, 0), b"question");
    let line = lines.next();
    let sent = line["bytes"].as_u64().expect("a number");
    // The answer has the name of the server and the client's address in front.
    assert!(sent > 8, "{line}");
    assert!(
        line["duration_us"].as_u64().is_some_and(|span| span > 0),
        "{line}"
    );
    let endpoint = endpoint.to_string();
    let expected = [
        ("remote", "127.0.0.1"),
        ("method", "UDP"),
        ("target", "-"),
        ("route", "all"),
        ("upstream", "all"),
        ("endpoint", &endpoint),
        ("ended", "complete"),
    ];
    for (field, value) in expected {
        assert_eq!(line[field], *value, "{line}");
    }
    let numbers = ["status", "received", "received_datagrams", "sent_datagrams"];
    assert_eq!(
        numbers.map(|field| line[field].as_u64()),
        [Some(200), Some(8), Some(1), Some(1)]
    );
    assert!(line.get("fault").is_none(), "{line}");

    // Without an endpoint.
    let problems = gates.change(udp(&[], change));
    assert!(problems.is_empty(), "{problems:?}");
    let refused = client(&gates, 0);
    refused.send(b"lost").expect("the gateway receives");
    let line = lines.next();
    assert_eq!(
        (&line["ended"], &line["status"]),
        (&"fault".into(), &503.into()),
        "{line}"
    );
    assert!(
        line["fault"].is_string() && line.get("endpoint").is_none(),
        "{line}"
    );
    gates.shut_down();
}

fn a_session_ends_with_its_responses(engine: EngineConfig) {
    let change = |_: &mut Listener, route: &mut StreamRoute, _: &mut Upstream| {
        route.datagrams = DatagramSessions {
            idle: Some(PATIENCE),
            responses: Some(1),
        };
    };
    let gates = Gates::open(engine, udp(&[echo("one")], change));
    let client = client(&gates, 0);
    for count in 1..=3 {
        ask(&client, b"question");
        await_ended(&gates, SessionEnd::Complete, count);
    }
    assert_eq!(report(&gates).opened, 3);
    gates.shut_down();
}

fn a_reload_keeps_sessions(engine: EngineConfig) {
    let upstreams = ["old", "new"].map(|name| upstream(name, &[echo(name)]));
    let of = |name: &str, upstreams: &[Upstream]| {
        let mut route = stream("all", &[]);
        route.backends = vec![WeightedBackend::new(name)];
        config(vec![gate("gate", Protocol::Udp)], vec![route], upstreams.to_vec())
    };
    let gates = Gates::open(engine, of("old", &upstreams));
    let addrs = gates.gateway.datagram_addrs();
    let stays = client(&gates, 0);
    let (name, from, _) = ask(&stays, b"1");
    assert_eq!(name, "old");
    assert!(gates.change(of("new", &upstreams)).is_empty());
    assert_eq!(gates.gateway.datagram_addrs(), addrs, "the socket stays");
    let (name, again, _) = ask(&stays, b"2");
    assert_eq!((name.as_str(), again), ("old", from), "its session goes on");
    assert_eq!(ask(&client(&gates, 0), b"3").0, "new");
    // Without its upstream it ends.
    assert!(gates.change(of("new", &upstreams[1..])).is_empty());
    await_ended(&gates, SessionEnd::Removed, 1);
    assert_eq!(ask(&stays, b"4").0, "new");
    gates.shut_down();
}

fn addresses_are_opened_and_closed(engine: EngineConfig) {
    let of = |addrs: &[SocketAddr], server: SocketAddr| {
        udp(&[server], |listener, _, _| {
            listener.addresses = addrs.iter().map(|addr| (*addr).into()).collect();
        })
    };
    let server = echo("one");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let gates = Gates::open(engine, of(&[any], server));
    let first = gates.gateway.datagram_addrs()[0];
    let old = client(&gates, 0);
    ask(&old, b"1");
    // An address that another process has: the configuration is rejected as a whole.
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|addr| (addr, taken)).expect("it is bound");
    let rejected = gates
        .gateway
        .replace_atomically(Arc::new(of(&[any, taken.0], server)), tls::now());
    let problems = rejected.expect_err("an address in use");
    assert!(
        problems[0].to_string().contains("Address already in use"),
        "{problems:?}"
    );
    assert_eq!(gates.gateway.datagram_addrs(), [first]);
    assert_eq!(ask(&old, b"2").0, "one");
    // Another address, and the first one is gone.
    let host: SocketAddr = "127.0.0.2:0".parse().expect("an address");
    let replaced = gates
        .gateway
        .replace_atomically(Arc::new(of(&[host], server)), tls::now());
    replaced.expect("a free port");
    await_ended(&gates, SessionEnd::Removed, 1);
    let second = gates.gateway.datagram_addrs();
    assert_eq!(second.len(), 1);
    assert_eq!(ask(&dial(second[0]), b"3").0, "one");
    // The kernel says so to a connected socket.
    until(|| old.send(b"4").is_err());
    gates.shut_down();
}

fn a_shutdown_waits_for_sessions(engine: EngineConfig) {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let addr = server.local_addr().expect("it is bound");
    let (asked, is_asked) = mpsc::channel();
    let (answers, is_answering) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let mut buffer = [0; 16];
        let (count, from) = server.recv_from(&mut buffer).expect("a question");
        asked.send(()).expect("the test waits");
        is_answering.recv().expect("the test says when");
        server.send_to(&buffer[..count], from).expect("sent");
        // Those of clients that were faster than the shutdown.
        while let Ok((count, from)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..count], from);
        }
    });
    let change = |_: &mut Listener, route: &mut StreamRoute, _: &mut Upstream| {
        route.datagrams.responses = Some(1);
        route.datagrams.idle = Some(PATIENCE);
    };
    let gates = Gates::open(
        EngineConfig {
            grace: PATIENCE,
            ..engine
        },
        udp(&[addr], change),
    );
    let before = client(&gates, 0);
    before.send(b"question").expect("sent");
    is_asked.recv().expect("the question arrives");
    gates.running.shut_down();
    // A client without a session is not served any more.
    until(|| {
        client(&gates, 0)
            .send(b"too late")
            .expect("the socket is still open");
        let all = gates.gateway.datagram_reports();
        all.iter()
            .any(|report| report.dropped[DatagramDrop::Draining as usize] > 0)
    });
    answers.send(()).expect("the server waits");
    let mut buffer = [0; 16];
    let count = before.recv(&mut buffer).expect("the answer");
    assert_eq!(&buffer[..count], b"question");
    gates
        .running
        .join()
        .expect("an orderly end, with the last session");
}
