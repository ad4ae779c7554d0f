//! Caps on connections, of one upstream and across upstreams, shared by workers: waiting, timeouts, and idle connections that give way.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{self, Action, Forward, Match, Path, PathMatch, Rule, Upstream};
use ringmain_testkit::wait::until;

use crate::origin::{Edge, Origin, edge, rules, to, upstream};
use crate::support::{Client, PATIENCE, get};

on_every_backend! {
    a_kept_connection_of_another_worker_gives_way,
    all_upstreams_share_the_room,
    a_kept_connection_of_another_upstream_gives_way,
    waiting_for_room_is_bounded,
    more_room,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn rule(prefix: &str, upstream: &str) -> Rule {
    let mut rule = Rule::new(Action::Forward(Box::new(Forward::to(upstream))));
    rule.matches = vec![Match {
        path: PathMatch::Prefix(Path::parse(prefix).expect("a path")),
        ..Match::default()
    }];
    rule
}

/// `/a` to one and `/b` to the other, with room for so many connections together.
fn two(first: Upstream, second: Upstream, most: u32) -> model::Config {
    let mut config = rules(vec![rule("/a", "a"), rule("/b", "b")], vec![first, second]);
    config.limits.upstream_connections = Some(most);
    config
}

/// Longer than any test waits: a waiter that is not woken hangs instead of being slow.
fn patient(mut upstream: Upstream) -> Upstream {
    upstream.connect_timeout = 2 * PATIENCE;
    upstream
}

/// Clients at every one of two workers, each with an answer behind it.
fn clients_of_both(edge: &Edge, path: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    until("connections at both workers", || {
        let mut client = edge.server.client();
        client.send(get(path));
        client.answer().expect(200, "ok");
        clients.push(client);
        let report = edge.server.running.report();
        report.workers.iter().all(|worker| worker.connections > 1)
    });
    clients
}

fn a_kept_connection_of_another_worker_gives_way(mut engine: Config) {
    engine.workers = Some(2);
    let origin = Origin::answering(OK);
    let edge = edge(
        engine,
        to(&[origin.addr], |_, upstream| {
            upstream.pool.connections = 1;
            upstream.connect_timeout = 2 * PATIENCE;
        }),
    );
    let mut clients = clients_of_both(&edge, "/");
    for _ in 0..5 {
        for client in &mut clients {
            client.send(get("/"));
            client.answer().expect(200, "ok");
        }
    }
    edge.server.shut_down();
}

fn all_upstreams_share_the_room(mut engine: Config) {
    engine.workers = Some(2);
    let origins = [Origin::answering(OK), Origin::answering(OK)];
    let [a, b] = [("a", &origins[0]), ("b", &origins[1])]
        .map(|(name, origin)| patient(upstream(name, &[origin.addr])));
    let edge = edge(engine, two(a, b, 2));
    let clients: Vec<_> = (0..12)
        .map(|number| {
            let mut client = edge.server.client();
            std::thread::spawn(move || {
                for turn in 0..30 {
                    let path = if (number + turn) % 2 == 0 { "/a" } else { "/b" };
                    client.send(get(path));
                    client.answer().expect(200, "ok");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("each is answered");
    }
    let standing: u32 = edge
        .gateway
        .upstreams()
        .iter()
        .map(|found| found.connections)
        .sum();
    assert!(standing <= 2, "{standing} connections");
    edge.server.shut_down();
}

fn a_kept_connection_of_another_upstream_gives_way(mut engine: Config) {
    engine.workers = Some(2);
    let origins = [Origin::answering(OK), Origin::answering(OK)];
    let [a, b] = [("a", &origins[0]), ("b", &origins[1])]
        .map(|(name, origin)| patient(upstream(name, &[origin.addr])));
    let edge = edge(engine, two(a, b, 1));
    let mut clients = clients_of_both(&edge, "/a");
    for path in ["/b", "/a", "/b"] {
        for client in &mut clients {
            client.send(get(path));
            client.answer().expect(200, "ok");
        }
    }
    edge.server.shut_down();
}

/// An origin that responds when the test says so.
fn held() -> (Origin, Sender<()>) {
    let (go, gone) = channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let told = gone.lock().expect("one at a time").recv_timeout(PATIENCE);
            if told.is_err() || !peer.send(OK) {
                return;
            }
        }
    });
    (origin, go)
}

fn waiting_for_room_is_bounded(engine: Config) {
    let (first, go) = held();
    let second = Origin::answering(OK);
    let [a, b] = [("a", &first), ("b", &second)].map(|(name, origin)| upstream(name, &[origin.addr]));
    let mut hasty = b.clone();
    hasty.connect_timeout = Duration::from_millis(50);
    let edge = edge(engine, two(patient(a.clone()), hasty, 1));
    let mut holder = edge.server.client();
    holder.send(get("/a"));
    first.seen();
    // The room is taken for as long as this test likes.
    let answer = edge.server.get("/b");
    answer.expect(503, "timeout waiting for a connection slot\n");
    go.send(()).expect("the origin waits");
    holder.answer().expect(200, "ok");
    let shown: Vec<_> = edge
        .gateway
        .fault_counts()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(
        shown,
        [(ringmain_gateway::fault::Fault::ProcessPendingTimeout, 1)]
    );
    // The one that is kept gives way at once, however late a busy machine connects.
    let next = Arc::new(two(patient(a), patient(b), 1));
    assert_eq!(edge.gateway.replace(next, Duration::ZERO), []);
    edge.server.get("/b").expect(200, "ok");
    edge.server.shut_down();
}

fn more_room(engine: Config) {
    let (first, go) = held();
    let second = Origin::answering(OK);
    let [a, b] =
        [("a", &first), ("b", &second)].map(|(name, origin)| patient(upstream(name, &[origin.addr])));
    let mut config = two(a, b, 1);
    let edge = edge(engine, config.clone());
    let mut holder = edge.server.client();
    holder.send(get("/a"));
    first.seen();
    let mut waiter = edge.server.client();
    waiter.send(get("/b"));
    until("it waits", || edge.gateway.upstreams()[1].waiting > 0);
    config.limits.upstream_connections = Some(2);
    assert_eq!(edge.gateway.replace(Arc::new(config), Duration::ZERO), []);
    waiter.answer().expect(200, "ok");
    go.send(()).expect("the origin waits");
    holder.answer().expect(200, "ok");
    edge.server.shut_down();
}
