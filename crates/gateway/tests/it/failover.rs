//! Endpoints that accept no connections get no requests, however many there are; and a request that finds one continues with
//! the next, without a rule for retries.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::health::{CheckVerdict, ConnectFailure};
use ringmain_gateway::limits;
use ringmain_gateway::model::{
    self, ActiveHealth, Balance, HealthCheck, Mirror, Retry, StatusRange, UpstreamProtocol,
};
use ringmain_testkit::PATIENCE;
use ringmain_testkit::wait::until;

use crate::h2_origin::Framed;
use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::support::{chunked, pattern};

on_every_backend! {
    the_dead_get_nothing_after_a_health_check,
    a_connect_failure_continues_with_the_next_endpoint,
    a_body_of_any_length_continues_with_the_next_endpoint,
    all_dead_is_the_failure_of_the_last,
    panic_uses_endpoints_that_respond,
    a_dead_endpoint_that_is_back_is_used,
    a_health_check_replaces_the_error_of_a_connection,
    a_health_check_of_another_port_does_not,
}

fn alive() -> Origin {
    Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalive")
}

/// Fails its health check, and responds to all else.
fn failing() -> Origin {
    Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let status = if seen.line().contains("/health") { 500 } else { 200 };
            peer.send(format!("HTTP/1.1 {status} x\r\nContent-Length: 7\r\n\r\nfailing"));
        }
    })
}

fn to_all(addrs: &[SocketAddr], panic_percent: Option<u8>, is_checked: bool) -> model::Config {
    to(addrs, |_, upstream| {
        upstream.balance = Balance::RoundRobin;
        if let Some(percent) = panic_percent {
            upstream.health.panic_percent = percent;
        }
        if is_checked {
            let check = HealthCheck::Http {
                target: "/health".into(),
                host: None,
                statuses: StatusRange::one(200),
            };
            upstream.health.active = Some(ActiveHealth {
                every: Duration::from_millis(20),
                unhealthy_after: 1,
                ..ActiveHealth::new(check)
            });
        }
    })
}

fn wait_for(edge: &Edge, expected: &[CheckVerdict]) {
    until("health checks", || {
        let upstreams = edge.gateway.upstreams();
        let endpoints = upstreams[0].endpoints.iter();
        endpoints
            .map(|endpoint| endpoint.verdict)
            .eq(expected.iter().copied())
    });
}

fn the_dead_get_nothing_after_a_health_check(engine: Config) {
    let origin = alive();
    for panic_percent in [None, Some(50), Some(100)] {
        let config = to_all(
            &[refusing_addr(), refusing_addr(), origin.addr],
            panic_percent,
            true,
        );
        let edge = edge(engine.clone(), config);
        wait_for(
            &edge,
            &[
                CheckVerdict::Unhealthy,
                CheckVerdict::Unhealthy,
                CheckVerdict::Healthy,
            ],
        );
        for _ in 0..30 {
            edge.server.get("/").expect(200, "alive");
        }
        let attempts: u64 = edge.gateway.fault_counts().iter().map(|(_, count)| count).sum();
        assert_eq!(attempts, 0, "no request was sent to the dead");
        edge.server.shut_down();
    }
}

fn a_connect_failure_continues_with_the_next_endpoint(engine: Config) {
    let origin = Origin::echo();
    let dead: Vec<SocketAddr> = (0..5).map(|_| refusing_addr()).chain([origin.addr]).collect();
    let edge = edge(engine, to_all(&dead, None, false));
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ] {
        for _ in 0..6 {
            assert_eq!(edge.server.ask(request).status, 200);
            let seen = origin.seen();
            assert_eq!(
                seen.body,
                if request.contains("body") {
                    &b"body"[..]
                } else {
                    &b""[..]
                }
            );
        }
    }
    edge.server.shut_down();
}

/// However much of a body was read from the client before an attempt found no connection, no part was sent.
fn a_body_of_any_length_continues_with_the_next_endpoint(engine: Config) {
    let lengths = [0, 1, limits::REPLAY_BYTES + 1, 3 * limits::REPLAY_BYTES, 1 << 20];
    let plain = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let length = seen.body.len().to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", length.len());
            peer.send([head, length].concat());
        }
    });
    let framed = Framed::echo();
    let reaches = |alive: SocketAddr, protocol: UpstreamProtocol, change: &dyn Fn(&mut model::Forward)| {
        let addrs = [
            refusing_addr(),
            refusing_addr(),
            refusing_addr(),
            refusing_addr(),
            alive,
        ];
        for method in ["PUT", "POST"] {
            for length in lengths {
                // Of its own, which does not know yet that the others are dead.
                let config = to(&addrs, |forward, upstream| {
                    upstream.balance = Balance::RoundRobin;
                    upstream.protocol = protocol;
                    change(forward);
                });
                let edge = edge(engine.clone(), config);
                let body = pattern(length);
                let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
                let request = [head.as_bytes(), &chunked(&body, 7000)].concat();
                let reply = edge.server.ask(request);
                let expected = match protocol {
                    UpstreamProtocol::Http2 => body,
                    _ => length.to_string().into_bytes(),
                };
                assert!(
                    reply.status == 200 && reply.body == expected,
                    "{method} of {length} bytes: {} {}",
                    reply.status,
                    reply.text().escape_debug().take(100).collect::<String>()
                );
                edge.server.shut_down();
            }
        }
    };
    let nothing = |_: &mut model::Forward| {};
    let hedged = |forward: &mut model::Forward| forward.hedge = Some(PATIENCE);
    let retried = |forward: &mut model::Forward| {
        forward.hedge = Some(PATIENCE);
        forward.retry = Some(Retry::default());
    };
    let mirrored = |forward: &mut model::Forward| {
        forward.hedge = Some(PATIENCE);
        forward.mirrors = vec![Mirror::to("origin")];
    };
    reaches(plain.addr, UpstreamProtocol::Http1, &nothing);
    reaches(plain.addr, UpstreamProtocol::Http1, &hedged);
    reaches(plain.addr, UpstreamProtocol::Http1, &retried);
    reaches(plain.addr, UpstreamProtocol::Http1, &mirrored);
    reaches(framed.addr, UpstreamProtocol::Http2, &hedged);
}

fn all_dead_is_the_failure_of_the_last(engine: Config) {
    let dead = [refusing_addr(), refusing_addr(), refusing_addr()];
    let edge = edge(engine, to_all(&dead, None, false));
    for _ in 0..3 {
        edge.server.get("/").expect(503, "upstream connection refused\n");
    }
    edge.server.shut_down();
}

fn panic_uses_endpoints_that_respond(engine: Config) {
    let (origin, sick) = (alive(), failing());
    // One of three that respond is healthy: fewer than a half.
    let addrs = [
        refusing_addr(),
        refusing_addr(),
        refusing_addr(),
        sick.addr,
        sick.addr,
        origin.addr,
    ];
    let mut config = to_all(&addrs[..], Some(60), true);
    let other = failing();
    Arc::make_mut(&mut config.upstreams[0]).endpoints[4] =
        model::Endpoint::new(model::EndpointLocation::Address(other.addr));
    let edge = edge(engine, config);
    let ill = [CheckVerdict::Unhealthy; 5];
    wait_for(&edge, &[&ill[..], &[CheckVerdict::Healthy]].concat());
    let mut texts: Vec<String> = (0..30).map(|_| edge.server.get("/").text().to_string()).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts, ["alive", "failing"]);
    edge.server.shut_down();
}

fn a_dead_endpoint_that_is_back_is_used(engine: Config) {
    let addr = refusing_addr();
    let edge = edge(engine, to_all(&[addr], None, false));
    edge.server.get("/").expect(503, "upstream connection refused\n");
    let listener = std::net::TcpListener::bind(addr).expect("its port is free");
    let serving = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut peer, _) = listener.accept().expect("a connection");
        let mut bytes = [0; 4096];
        let count = peer.read(&mut bytes).expect("a request");
        assert!(count > 0);
        peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nback")
            .expect("the gateway reads");
    });
    // At once, though its last connection failed a moment ago.
    edge.server.get("/").expect(200, "back");
    serving.join().expect("no panic");
    edge.server.shut_down();
}

/// Returns the failed connection attempts of the only endpoint.
fn connect_failure(edge: &Edge) -> Option<ConnectFailure> {
    edge.gateway.upstreams()[0].endpoints[0].connect_failure
}

/// Serves an upstream with an endpoint that has refused a connection, and that is not checked.
fn refused(engine: Config) -> (Edge, model::Config, SocketAddr) {
    let addr = refusing_addr();
    let config = to_all(&[addr], None, false);
    let edge = edge(engine, config.clone());
    edge.server.get("/").expect(503, "upstream connection refused\n");
    let failure = connect_failure(&edge).expect("a failed attempt");
    assert_eq!(failure.fault, Fault::ConnectRefused);
    (edge, config, addr)
}

/// Applies the configuration with a check that connects, at another port if there is one, and waits for its first success.
fn check_until_healthy(edge: &Edge, mut config: model::Config, port: Option<u16>) {
    let upstream = Arc::make_mut(&mut config.upstreams[0]);
    upstream.health.active = Some(ActiveHealth {
        every: Duration::from_millis(20),
        port,
        ..ActiveHealth::new(HealthCheck::Connect)
    });
    edge.gateway.replace(Arc::new(config), Duration::ZERO);
    wait_for(edge, &[CheckVerdict::Healthy]);
}

fn a_health_check_replaces_the_error_of_a_connection(engine: Config) {
    let (edge, config, addr) = refused(engine);
    let _listener = std::net::TcpListener::bind(addr).expect("its port is free");
    check_until_healthy(&edge, config, None);
    assert_eq!(connect_failure(&edge), None, "without a request since");
    edge.server.shut_down();
}

/// Its success is no evidence of the port that requests use.
fn a_health_check_of_another_port_does_not(engine: Config) {
    let (edge, config, addr) = refused(engine);
    let other = std::net::TcpListener::bind((addr.ip(), 0)).expect("a port");
    let port = other.local_addr().expect("an address").port();
    check_until_healthy(&edge, config, Some(port));
    assert!(connect_failure(&edge).is_some());
    edge.server.shut_down();
}
