//! How WebSockets begin and end: refused, closed, broken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::plan::{Extent, Plan, Protocol};
use ringmain_load::run::{RunError, Session};
use ringmain_load::traffic::Body;
use ringmain_wire::ws::CloseCode;

use super::{Came, messages, plainly, run};
use crate::rounds::support::{Gate, Server, get, plan};

on_every_backend!(
    goodbye_at_reconnects_and_at_the_end,
    a_server_that_never_says_goodbye,
    a_server_that_closes,
    a_server_that_breaks_the_protocol,
    a_server_that_refuses,
    a_server_that_refuses_later,
    handshakes_that_come_to_nothing,
);

fn goodbye_at_reconnects_and_at_the_end(engine: Choice) {
    let goodbyes = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&goodbyes);
    let server = Server::new(move |peer| {
        if let Some(mut socket) = plainly(peer) {
            // One that is opened when the round ends is given up without a word.
            let said = socket.echo().is_some_and(|code| code == 1000);
            seen.fetch_add(usize::from(said), Ordering::SeqCst);
        }
    });
    let plan = Plan {
        pipeline: 2,
        reconnect_after: Some(5),
        extent: Extent::Count(50),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, 20, false)).figures.counts;
    assert_eq!((counts.sent, counts.answered, counts.failed()), (50, 50, 0));
    assert!((10..=12).contains(&counts.connects), "{}", counts.connects);
    server.finish();
    let goodbyes = goodbyes.load(Ordering::SeqCst) as u64;
    // Those that came to stand when the round was over are not counted.
    assert!(
        (counts.connects..=counts.connects + 2).contains(&goodbyes),
        "{goodbyes}"
    );
}

/// The round does not wait for it for long.
fn a_server_that_never_says_goodbye(engine: Choice) {
    let server = Server::new(|peer| {
        let Some(mut socket) = plainly(peer) else { return };
        while let Came::Message(kind, data) = socket.next() {
            socket.say(kind, &data);
        }
        socket.peer.wait();
    });
    let counts = run(plan(&server, engine), &messages(Body::None, 20, false))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.failed()), (10, 0));
    server.finish();
}

fn a_server_that_closes(engine: Choice) {
    let server = Server::new(|peer| {
        let Some(mut socket) = plainly(peer) else { return };
        for _ in 0..3 {
            let Came::Message(kind, data) = socket.next() else {
                return;
            };
            socket.say(kind, &data);
        }
        socket.close(CloseCode::GOING_AWAY);
        loop {
            match socket.next() {
                // It may have been on its way.
                Came::Message(..) => {}
                Came::Close(code) => return assert!(matches!(code, Some(1000 | 1001)), "{code:?}"),
                Came::End => return,
                other => panic!("{other:?}"),
            }
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(40),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, 20, false)).figures.counts;
    assert_eq!(counts.answered + counts.failed(), 40);
    assert!(counts.answered >= 30, "{counts:?}");
    let known = ["closed by a Close frame", "reset", "closed while sending"];
    assert!(
        counts.broken.keys().all(|what| known.contains(what)),
        "{counts:?}"
    );
    server.finish();
}

fn a_server_that_breaks_the_protocol(engine: Choice) {
    let server = Server::new(|peer| {
        let Some(mut socket) = plainly(peer) else { return };
        if let Came::Message(..) = socket.next() {
            // A masked frame: only clients have them.
            socket.peer.send([0x82, 0x81, 1, 2, 3, 4, 5]);
            assert_eq!(socket.next(), Came::Close(Some(1002)));
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(10),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, 20, false)).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (0, 10));
    assert_eq!(counts.broken, BTreeMap::from([("broke the protocol", 10)]));
    server.finish();
}

/// From the first connection on: there is nothing to measure.
fn a_server_that_refuses(engine: Choice) {
    for (answer, said) in [
        (
            "HTTP/1.1 401 Who are you\r\nContent-Length: 0\r\n\r\n",
            "the server returned 401 Who are you",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "the server returned 200 OK",
        ),
        (
            "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "Sec-WebSocket-Accept",
        ),
        ("SSH-2.0-OpenSSH_9.9\r\n\r\n", "expected"),
    ] {
        let server = Server::new(move |peer| {
            if peer.request().is_some() {
                peer.send(answer);
                peer.wait();
            }
        });
        let traffic = messages(Body::None, 20, false);
        let plan = Plan {
            protocol: traffic.socket().expect("messages").protocol(),
            ..plan(&server, engine)
        };
        let session = Session::new(plan, traffic).expect("a plan");
        match session.round(0, None, &mut |_| ()) {
            Err(error @ RunError::NotConnected { .. }) => {
                let text = error.to_string();
                assert!(text.contains(said), "expected `{said}` in: {text}");
            }
            other => panic!("{other:?}"),
        }
        server.finish();
    }
}

/// Once it has begun, refused handshakes are figures, each by its status.
fn a_server_that_refuses_later(engine: Choice) {
    let server = Server::new(|peer| match peer.number {
        3 | 4 => {
            if peer.request().is_some() {
                peer.answer(503, "busy");
                peer.wait();
            }
        }
        5 => {
            if peer.request().is_some() {
                peer.answer(404, "gone");
                peer.wait();
            }
        }
        6 => drop(peer.request()),
        _ => {
            if let Some(mut socket) = plainly(peer) {
                socket.echo();
            }
        }
    });
    let plan = Plan {
        connections: 1,
        reconnect_after: Some(1),
        extent: Extent::Count(10),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, 20, false)).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (10, 0));
    let refused = [
        ("WebSocket: answered 404", 1),
        ("WebSocket: answered 503", 2),
        ("WebSocket: connection ended", 1),
    ];
    assert_eq!(counts.connect_errors, BTreeMap::from(refused));
    let first = &counts.first_errors["WebSocket: answered 503"];
    assert_eq!(first, "the server returned 503 Text");
    server.finish();
}

/// A handshake may take as long as an answer.
fn handshakes_that_come_to_nothing(engine: Choice) {
    let gate = Gate::default();
    let shut = gate.clone();
    let server = Server::new(move |peer| {
        if peer.number == 1 {
            // Half an answer.
            if peer.request().is_some() {
                peer.send("HTTP/1.1 101 Switching");
                shut.pass();
            }
            return;
        }
        if let Some(mut socket) = plainly(peer) {
            socket.echo();
        }
    });
    let plan = Plan {
        connections: 1,
        reconnect_after: Some(3),
        timeout: Duration::from_millis(500),
        extent: Extent::Count(9),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, 20, false)).figures.counts;
    gate.open();
    assert!(counts.answered + counts.failed() == 9, "{counts:?}");
    assert!(counts.connect_errors["WebSocket: timed out"] >= 1, "{counts:?}");
    server.finish();
}

#[test]
fn a_plan_says_what_its_traffic_is() {
    let server = Server::new(|_| ());
    let traffic = messages(Body::None, 20, false);
    for (protocol, traffic) in [
        (Protocol::Http1, traffic.clone()),
        (traffic.socket().expect("messages").protocol(), get()),
    ] {
        let plan = Plan {
            protocol,
            ..plan(&server, Choice::Auto)
        };
        match Session::new(plan, traffic) {
            Err(RunError::Plan { setting, .. }) => assert_eq!(setting, "protocol"),
            other => panic!("{other:?}"),
        }
    }
    server.finish();
}
