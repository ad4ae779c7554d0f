//! Mirrored requests: their content, their receivers, and that no client waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringmain_engine::Config;
use ringmain_gateway::MirrorOutcome;
use ringmain_gateway::model::{self, Fraction, Mirror, Target};

use crate::l4_rig::until;
use crate::origin::{Edge, Origin, edge, refusing_addr, to, upstream};
use crate::support::{get, pattern};

on_every_backend! {
    the_same_request_marked,
    bodies_within_their_limit,
    shares,
    a_slow_mirror_is_not_awaited,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn config(origin: &Origin, mirrors: Vec<Mirror>, others: &[(&str, std::net::SocketAddr)]) -> model::Config {
    let mut config = to(&[origin.addr], |forward, _| forward.mirrors = mirrors);
    let others = others.iter().map(|(name, addr)| upstream(name, &[*addr]).into());
    config.upstreams.extend(others);
    config
}

/// Returns the results of mirrored requests at the upstream of that name.
fn copies(edge: &Edge, name: &str) -> [u64; MirrorOutcome::ALL.len()] {
    let upstreams = edge.gateway.upstreams();
    let upstream = upstreams.iter().find(|upstream| &*upstream.name == name);
    upstream.expect("it is configured").mirrors
}

fn the_same_request_marked(engine: Config) {
    let (origin, shadow) = (
        Origin::answering(OK),
        Origin::answering("HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad"),
    );
    let edge = edge(
        engine,
        config(&origin, vec![Mirror::to("shadow")], &[("shadow", shadow.addr)]),
    );
    let mut client = edge.server.client();
    for _ in 0..3 {
        client.send("GET /a?b HTTP/1.1\r\nHost: shop.example\r\nX-One: 1\r\n\r\n");
        client.answer().expect(200, "ok");
        let (own, copy) = (origin.seen(), shadow.seen());
        assert_eq!(
            copy.head,
            own.head
                .replace("\r\n\r\n", "\r\nX-Mirrored-By: ringmain\r\n\r\n")
        );
        // Its connection is kept as others are.
        assert_eq!((own.connection, copy.connection), (0, 0));
        until(|| edge.gateway.upstreams()[1].requests == 0);
    }
    let shadow_status = &edge.gateway.upstreams()[1];
    assert_eq!((shadow_status.attempts, shadow_status.responses), (3, [0; 5]));
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_to("HEAD").status, 200);
    assert_eq!(shadow.seen().line(), "HEAD / HTTP/1.1");
    edge.server.shut_down();
}

fn bodies_within_their_limit(engine: Config) {
    let (origin, shadow) = (Origin::answering(OK), Origin::answering(OK));
    let mirror = Mirror {
        body_bytes: 5000,
        ..Mirror::to("shadow")
    };
    let edge = edge(engine, config(&origin, vec![mirror], &[("shadow", shadow.addr)]));
    for (length, copied) in [(0, true), (5000, true), (5001, false), (3, true)] {
        let body = pattern(length);
        let head = format!("PUT /{length} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        edge.server
            .ask([head.as_bytes(), &body].concat())
            .expect(200, "ok");
        assert!(origin.seen().body == body);
        // The next mirrored request shows that this one was not mirrored.
        if copied {
            let seen = shadow.seen();
            assert_eq!(seen.line(), format!("PUT /{length} HTTP/1.1"));
            assert!(seen.body == body);
        }
    }
    let chunked =
        "PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    edge.server.ask(chunked).expect(200, "ok");
    assert_eq!(shadow.seen().body, b"abc");
    // The last one is counted when it ends, and no client waits for that.
    until(|| copies(&edge, "shadow")[MirrorOutcome::Sent as usize] == 4);
    assert_eq!(copies(&edge, "shadow")[MirrorOutcome::BodyTooLarge as usize], 1);
    edge.server.shut_down();
}

fn shares(engine: Config) {
    let (origin, all, none) = (
        Origin::answering(OK),
        Origin::answering(OK),
        Origin::answering(OK),
    );
    let mirrors = vec![
        Mirror::to("all"),
        Mirror {
            share: Fraction { part: 0, of: 10 },
            ..Mirror::to("none")
        },
        Mirror {
            target: Target::Broken {
                reason: "not allowed".into(),
            },
            ..Mirror::to("all")
        },
    ];
    let edge = edge(
        engine,
        config(&origin, mirrors, &[("all", all.addr), ("none", none.addr)]),
    );
    for number in 0..10 {
        edge.server.get(&format!("/{number}")).expect(200, "ok");
        assert_eq!(all.seen().line(), format!("GET /{number} HTTP/1.1"));
    }
    assert_eq!(edge.gateway.upstreams()[1].connections, 0, "nobody asked `none`");
    edge.server.shut_down();
}

fn a_slow_mirror_is_not_awaited(engine: Config) {
    let origin = Origin::answering(OK);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // Takes requests and never answers.
    let mute = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mirrors = vec![Mirror::to("mute"), Mirror::to("gone")];
    let edge = edge(
        engine,
        config(
            &origin,
            mirrors,
            &[("mute", mute.addr), ("gone", refusing_addr())],
        ),
    );
    let mut client = edge.server.client();
    for _ in 0..200 {
        client.send(get("/"));
        client.answer().expect(200, "ok");
    }
    // Few are under way at once, whoever does not answer them.
    assert!(asked.load(Ordering::SeqCst) <= ringmain_gateway::limits::MIRRORS as usize);
    // Mirrored requests without an endpoint, and those over the limit.
    until(|| copies(&edge, "gone").iter().sum::<u64>() == 200);
    let gone = copies(&edge, "gone");
    assert!(
        gone[MirrorOutcome::Failed as usize] > 0 && gone[MirrorOutcome::Sent as usize] == 0,
        "{gone:?}"
    );
    assert_eq!(
        edge.gateway
            .fault_counts()
            .iter()
            .map(|(_, count)| count)
            .sum::<u64>(),
        0
    );
    edge.server.shut_down();
}
