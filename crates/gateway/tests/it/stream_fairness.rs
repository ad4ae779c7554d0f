//! Fairness where requests share connections: a waiter is called for a stream that it can use, and none starves.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{self, Balance, Endpoint, EndpointLocation, UpstreamProtocol};
use ringmain_testkit::wait::pause;
use ringmain_wire::h2::Limits;

use crate::h2_origin::Framed;
use crate::h2_upstreams::by_streams;
use crate::l4_rig::until;
use crate::origin::{Edge, edge, to};
use crate::support::{Client, PATIENCE, get, post};

on_every_backend! {
    a_stream_goes_to_a_waiter_that_can_use_it,
    a_change_blocks_no_waiter,
    a_new_connection_is_not_asked_for_more_than_it_takes,
    an_endpoint_that_never_says_what_it_takes,
    a_shortened_deadline_is_met,
}

/// Until so many wait at the upstream.
#[track_caller]
fn until_waiting(edge: &Edge, count: u32) {
    until(|| edge.gateway.upstreams()[0].waiting == count);
}

fn client(edge: &Edge, path: &str) -> Client {
    let mut client = edge.server.client();
    client.send(get(path));
    client
}

/// One connection for two endpoints, which are chosen by turns: one has it, requests to both wait.
fn a_stream_goes_to_a_waiter_that_can_use_it(engine: Config) {
    let origins = [(); 2].map(|()| Framed::gated(Limits::INTERNET));
    let addrs = [origins[0].0.addr, origins[1].0.addr];
    let edge = edge(
        engine,
        to(&addrs, |_, upstream| {
            upstream.protocol = UpstreamProtocol::Http2;
            upstream.balance = Balance::RoundRobin;
            upstream.pool.connections = 1;
            upstream.pool.streams_per_connection = 2;
            upstream.connect_timeout = PATIENCE;
        }),
    );
    let mut clients = vec![client(&edge, "/0")];
    let mut first = None;
    until(|| {
        first = origins.iter().position(|(origin, _)| !origin.is_quiet());
        first.is_some()
    });
    let first = first.expect("one of them is asked");
    let (busy, busy_gate) = &origins[first];
    let (other, other_gate) = &origins[1 - first];
    clients.push(client(&edge, "/1"));
    until_waiting(&edge, 1);
    clients.push(client(&edge, "/2"));
    assert_eq!(busy.asked().line, "GET test /2");
    clients.push(client(&edge, "/3"));
    until_waiting(&edge, 2);
    clients.push(client(&edge, "/4"));
    until_waiting(&edge, 3);
    // The first of those who wait is for the other endpoint.
    busy_gate.open("/2");
    assert_eq!(busy.asked().line, "GET test /4");
    // No request waits for this one now: it accepts no more, so that the other endpoint gets its turn.
    busy_gate.open("/0");
    clients[0].answer().expect(200, "GET test /0");
    clients.push(client(&edge, "/5"));
    until_waiting(&edge, 3);
    clients.push(client(&edge, "/6"));
    until_waiting(&edge, 4);
    assert!(other.is_quiet());
    busy_gate.open("/4");
    for _ in 0..2 {
        assert_eq!(other.asked().connection, 0);
    }
    // And this one's, after all that waited before.
    for path in ["/1", "/3", "/5"] {
        other_gate.open(path);
    }
    let asked = busy.asked();
    assert_eq!((asked.connection, asked.line.as_str()), (1, "GET test /6"));
    busy_gate.open("/6");
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        client.answer().expect(200, &format!("GET test /{number}"));
    }
    edge.server.shut_down();
}

/// The endpoint remains with another weight while a request waits for a stream of its connection.
fn a_change_blocks_no_waiter(engine: Config) {
    let (origin, gate) = Framed::gated(Limits::INTERNET);
    let addr = origin.addr;
    let config = |weight| -> model::Config {
        to(&[addr], |_, upstream| {
            upstream.protocol = UpstreamProtocol::Http2;
            upstream.endpoints = vec![Endpoint {
                weight,
                ..Endpoint::new(EndpointLocation::Address(addr))
            }];
            upstream.pool.connections = 1;
            upstream.pool.streams_per_connection = 2;
            upstream.connect_timeout = PATIENCE;
        })
    };
    let edge = edge(engine, config(1));
    let mut clients = Vec::new();
    for number in 0..2 {
        clients.push(client(&edge, &format!("/{number}")));
        assert_eq!(origin.asked().connection, 0);
    }
    clients.push(client(&edge, "/2"));
    until_waiting(&edge, 1);
    let problems = edge.gateway.replace(Arc::new(config(2)), Duration::ZERO);
    assert_eq!(problems, []);
    // Has the worker look at it.
    clients.push(client(&edge, "/3"));
    until_waiting(&edge, 2);
    for path in ["/1", "/2"] {
        gate.open(path);
        assert_eq!(origin.asked().connection, 0);
    }
    gate.open("/0");
    gate.open("/3");
    for (number, client) in clients.iter_mut().enumerate() {
        client.answer().expect(200, &format!("GET test /{number}"));
    }
    edge.server.shut_down();
}

/// Many concurrent requests with bodies that cannot be sent twice, to an endpoint that accepts two streams per connection.
fn a_new_connection_is_not_asked_for_more_than_it_takes(engine: Config) {
    let limits = Limits {
        streams: 2,
        ..Limits::INTERNET
    };
    // That none is refused its connection sees to: it would break off.
    let origin = Framed::with(limits, |mut peer| {
        while let Some((stream, asked)) = peer.request() {
            peer.answer(stream, 200, &[], &asked.body);
        }
    });
    let edge = by_streams(engine, &origin, |_, upstream| upstream.pool.connections = 3);
    let mut clients: Vec<_> = (0..20).map(|_| edge.server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(post("/", "text/plain", &number.to_string()));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.answer().expect(200, &number.to_string());
    }
    edge.server.shut_down();
}

/// It takes connections, and that is all.
fn an_endpoint_that_never_says_what_it_takes(engine: Config) {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = mute.local_addr().expect("it is bound");
    let patience = |connect: Duration| {
        to(&[addr], |_, upstream| {
            upstream.protocol = UpstreamProtocol::Http2;
            upstream.connect_timeout = connect;
        })
    };
    let edge = edge(engine, patience(Duration::from_millis(100)));
    let mut clients = [client(&edge, "/"), client(&edge, "/")];
    for client in &mut clients {
        assert_eq!(client.answer().status, 503);
    }
    until(|| edge.gateway.upstreams()[0].connections == 0);
    // The client that caused it to be opened leaves, and no other request needs it.
    let next = Arc::new(patience(PATIENCE));
    assert_eq!(edge.gateway.replace(next, Duration::ZERO), []);
    let leaver = client(&edge, "/");
    until(|| edge.gateway.upstreams()[0].connections == 1);
    leaver.reset();
    until(|| edge.gateway.upstreams()[0].connections == 0);
    edge.server.shut_down();
}

/// An answer's head may be waited for for long, the bytes behind it not.
fn a_shortened_deadline_is_met(engine: Config) {
    let origin = Framed::new(|mut peer| {
        let Some((stream, _)) = peer.request() else { return };
        // Its head is waited for when this is begun.
        pause(Duration::from_millis(100));
        peer.respond(stream, 200, &[], false);
        peer.data(stream, b"x", false);
        peer.request();
    });
    let edge = by_streams(engine, &origin, |forward, _| {
        forward.timeouts.idle = Some(Duration::from_mins(10));
        forward.timeouts.minimum_rate = 100_000;
    });
    let mut client = edge.server.client();
    client.send(get("/"));
    assert_eq!(client.head().status, 200);
    assert_eq!(client.rest().0, b"1\r\nx\r\n");
    until(|| edge.gateway.fault_counts().contains(&(Fault::BodyTooSlow, 1)));
    edge.server.shut_down();
}
