//! The share of an upstream that one client may hold: slots of slow bodies, streams and tunnels, over all its connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::Upstream;

use crate::l4_rig::until;
use crate::origin::{Edge, Origin, edge, listener, to};
use crate::support::{Client, PATIENCE, get, pattern};

on_every_backend! {
    slow_uploads_leave_places,
    an_upload_that_is_worth_a_place_takes_it,
    an_upload_that_cannot_be_collected_has_the_only_place,
    streams_of_one_client_have_a_share,
    tunnels_of_one_client_have_a_share,
    waiters_displace_a_slow_body,
    waiters_displace_a_slow_reader,
    a_long_queue_is_shared_by_clients,
}

/// Answers whole requests, and switches protocols where it is asked to.
fn origin() -> Origin {
    Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            if seen.field("upgrade").is_some() {
                peer.send(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
                );
                while peer.some().is_some() {}
                return;
            }
            if seen.line().contains("/large") {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n");
                if !peer.send(pattern(50_000_000)) {
                    return;
                }
                continue;
            }
            let length = seen.body.len().to_string();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{length}",
                length.len()
            ));
        }
    })
}

/// An edge that believes what clients say of their addresses.
fn trusting(engine: Config, origin: &Origin, change: impl FnOnce(&mut Upstream)) -> Edge {
    let mut config = to(&[origin.addr], |_, upstream| change(upstream));
    let mut listener = listener();
    listener.client_address.trusted =
        vec![ringmain_gateway::model::Network::parse("127.0.0.0/8").expect("a network")];
    config.listeners = vec![listener.into()];
    edge(engine, config)
}

fn from(edge: &Edge, address: &str, rest: &str) -> Client {
    let mut client = edge.server.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n{rest}"
    ));
    client
}

fn count(edge: &Edge, fault: Fault) -> u64 {
    let faults = edge.gateway.fault_counts();
    faults
        .iter()
        .find(|(found, _)| *found == fault)
        .map_or(0, |(_, count)| *count)
}

fn connections(edge: &Edge) -> u32 {
    edge.gateway.upstreams()[0].connections
}

/// One that waits for `100 Continue` sends nothing that could be collected.
fn an_upload_that_cannot_be_collected_has_the_only_place(engine: Config) {
    let origin = origin();
    let edge = trusting(engine, &origin, |upstream| {
        upstream.pool.connections = 1;
        upstream.connect_timeout = Duration::from_millis(300);
    });
    for _ in 0..2 {
        let rest = "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        let mut client = from(&edge, "192.0.2.1", rest);
        assert_eq!(client.answer().status, 100);
        client.send("ab");
        client.answer().expect(200, "2");
    }
    assert_eq!(count(&edge, Fault::ClientShareFull), 0);
    edge.server.shut_down();
}

/// More slow uploads than slots: half of the slots remain for other clients, and each upload is served when its body is complete.
fn slow_uploads_leave_places(engine: Config) {
    let origin = origin();
    let edge = edge(
        engine,
        to(&[origin.addr], |_, upstream| upstream.pool.connections = 4),
    );
    let mut clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = edge.server.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
            client
        })
        .collect();
    until(|| connections(&edge) == 2);
    for _ in 0..3 {
        edge.server.ask(get("/")).expect(200, "0");
    }
    for client in clients.iter_mut().rev() {
        client.send(pattern(997));
        client.answer().expect(200, "1000");
    }
    edge.server.shut_down();
}

/// One slot, and an upload that occupies it once enough of its body was collected.
fn an_upload_that_is_worth_a_place_takes_it(engine: Config) {
    let origin = origin();
    let edge = edge(
        engine,
        to(&[origin.addr], |_, upstream| upstream.pool.connections = 1),
    );
    let mut client = edge.server.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send(pattern(30_000));
    edge.server.ask(get("/")).expect(200, "0");
    client.send(pattern(70_000));
    until(|| edge.gateway.upstreams()[0].requests == 1);
    client.send(pattern(100_000));
    client.answer().expect(200, "200000");
    edge.server.shut_down();
}

fn streams_of_one_client_have_a_share(engine: Config) {
    let origin = origin();
    let edge = trusting(engine, &origin, |upstream| {
        upstream.pool.connections = 8;
        upstream.pool.client_share = 25;
        upstream.connect_timeout = Duration::from_millis(300);
    });
    let stream = "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    let mut first: Vec<_> = (0..2).map(|_| from(&edge, "192.0.2.1", stream)).collect();
    until(|| edge.gateway.upstreams()[0].requests == 2);
    let refused = from(&edge, "192.0.2.1", stream).answer();
    assert_eq!((refused.status, count(&edge, Fault::ClientShareFull)), (503, 1));
    // Another client's, and those of this one that hold nothing.
    let other = from(&edge, "192.0.2.2", stream);
    until(|| edge.gateway.upstreams()[0].requests == 3);
    from(&edge, "192.0.2.1", "Content-Length: 1\r\n\r\nx")
        .answer()
        .expect(200, "1");
    // An end makes room.
    first[0].send("0\r\n\r\n");
    first[0].answer().expect(200, "1");
    let next = from(&edge, "192.0.2.1", stream);
    until(|| edge.gateway.upstreams()[0].requests == 3);
    drop((first, other, next));
    until(|| edge.gateway.upstreams()[0].requests == 0);
    edge.server.shut_down();
}

fn tunnels_of_one_client_have_a_share(engine: Config) {
    let origin = origin();
    let edge = trusting(engine, &origin, |upstream| {
        upstream.pool.connections = 4;
        upstream.connect_timeout = Duration::from_millis(300);
    });
    let upgrade = |address: &str| {
        let mut client = edge.server.client();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        ));
        client
    };
    let mut first = [upgrade("2001:db8::1"), upgrade("2001:db8::2")];
    for client in &mut first {
        assert_eq!(client.head().status, 101);
    }
    // The same /64.
    assert_eq!(upgrade("2001:db8::3").answer().status, 503);
    let mut other = upgrade("2001:db8:1::1");
    assert_eq!(other.head().status, 101);
    let [one, two] = first;
    drop(one);
    until(|| connections(&edge) == 2);
    assert_eq!(upgrade("2001:db8::3").head().status, 101);
    assert_eq!(edge.gateway.upstreams()[0].responses, [4, 0, 0, 0, 0]);
    drop((two, other));
    edge.server.shut_down();
}

/// It holds the only place, and brings little.
fn waiters_displace_a_slow_body(engine: Config) {
    let origin = origin();
    let edge = edge(
        engine,
        to(&[origin.addr], |_, upstream| {
            upstream.pool.connections = 1;
            upstream.connect_timeout = PATIENCE;
        }),
    );
    let mut slow = edge.server.client();
    slow.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    until(|| connections(&edge) == 1);
    let mut waiting = edge.server.client();
    waiting.send(get("/"));
    assert_eq!(slow.answer().status, 408);
    waiting.answer().expect(200, "0");
    assert_eq!(count(&edge, Fault::RequestTooSlow), 1);
    edge.server.shut_down();
}

/// It reads nothing of its answer.
fn waiters_displace_a_slow_reader(engine: Config) {
    let origin = origin();
    let edge = edge(
        engine,
        to(&[origin.addr], |_, upstream| {
            upstream.pool.connections = 1;
            upstream.connect_timeout = PATIENCE;
        }),
    );
    let mut slow = edge.server.slow_client();
    slow.send(get("/large"));
    assert_eq!(slow.head().status, 200);
    let mut waiting = edge.server.client();
    waiting.send(get("/"));
    waiting.answer().expect(200, "0");
    until(|| count(&edge, Fault::ClientTooSlow) == 1);
    drop(slow);
    edge.server.shut_down();
}

/// Beyond half of `pool.pending` a client address (IPv6: its /64) has a quarter of the queue, over all its connections.
fn a_long_queue_is_shared_by_clients(engine: Config) {
    const PENDING: usize = 80;
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().expect("nobody has failed");
    let waits = Arc::clone(&gate);
    let origin = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            drop(waits.lock());
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let edge = trusting(engine, &origin, |upstream| {
        upstream.pool.connections = 1;
        upstream.pool.pending = PENDING as u32;
        upstream.connect_timeout = 2 * PATIENCE;
    });
    let ask = |address: &str| {
        let mut client = edge.server.client();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n"
        ));
        client
    };
    let mut clients = vec![ask("192.0.2.9")];
    until(|| connections(&edge) == 1);
    // `more` of one client join the queue.
    let mut join = |address: &dyn Fn(usize) -> String, more: usize, all: usize| {
        clients.extend((0..more).map(|number| ask(&address(number))));
        until(|| edge.gateway.upstreams()[0].waiting as usize == all);
    };
    let refused = |address: &str, fault: Fault, faults: u64| {
        let answer = ask(address).answer();
        answer.expect(503, &format!("{}\n", fault.text()));
        assert_eq!(count(&edge, fault), faults, "{address}");
    };
    let own = |_| "192.0.2.1".to_owned();
    // The first half of the queue is not counted by client.
    join(&own, PENDING / 2, PENDING / 2);
    join(&own, PENDING / 4, PENDING * 3 / 4);
    refused("192.0.2.1", Fault::ClientShareFull, 1);
    join(
        &|number| format!("2001:db8::{number:x}"),
        PENDING / 4 - 1,
        PENDING - 1,
    );
    // The last place is for whoever has not had its share: not for the first client, but for one more of the same /64.
    refused("192.0.2.1", Fault::ClientShareFull, 2);
    join(&|_| "2001:db8::ffff".to_owned(), 1, PENDING);
    refused("2001:db8::1:1", Fault::ClientShareFull, 3);
    refused("192.0.2.2", Fault::PendingFull, 1);
    drop(closed);
    for client in &mut clients {
        client.answer().expect(200, "ok");
    }
    ask("192.0.2.1").answer().expect(200, "ok");
    edge.server.shut_down();
}
