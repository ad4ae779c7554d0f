//! What comes back over WebSockets, and whether it is what was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::limits;
use ringmain_load::plan::{Extent, Pace, Plan};
use ringmain_load::traffic::{Body, Request, Traffic};
use ringmain_wire::ws::{Deflation, Kind, Mask, ServerWish, Window};

use super::{Came, message, messages, open, plainly, run, texts};
use crate::rounds::support::{Server, plan};

on_every_backend!(
    echoed_messages,
    messages_in_fragments,
    deflated_messages,
    a_server_that_does_not_deflate,
    long_messages,
    at_a_rate,
    wrong_echoes,
    pings_are_answered,
    messages_that_nobody_asked_for,
    headers_and_subprotocols,
);

fn echoed_messages(engine: Choice) {
    for (body, bytes) in texts() {
        for pipeline in [1, 5] {
            let server = Server::new(|peer| {
                if let Some(mut socket) = plainly(peer) {
                    assert_eq!(socket.echo(), Some(1000), "it says goodbye");
                }
            });
            let plan = Plan {
                pipeline,
                extent: Extent::Count(60),
                ..plan(&server, engine)
            };
            let round = run(plan, &messages(body.clone(), bytes, false));
            let counts = &round.figures.counts;
            assert_eq!((counts.sent, counts.answered, counts.failed()), (60, 60, 0));
            assert_eq!((counts.unexpected, counts.connects, counts.deflated), (0, 2, 0));
            assert_eq!(round.figures.opening.count(), 2);
            assert_eq!(counts.statuses, BTreeMap::new());
            // A client's frames have a key.
            assert_eq!(
                counts.bytes_sent,
                counts.bytes_received + 60 * 4,
                "{body:?}, {bytes}"
            );
            server.finish();
        }
    }
}

/// The server cuts messages where it likes, also within characters of text, and pings between.
fn messages_in_fragments(engine: Choice) {
    let server = Server::new(|peer| {
        let Some(mut socket) = plainly(peer) else { return };
        loop {
            let (kind, data) = match socket.next() {
                Came::Message(kind, data) => (kind, data),
                Came::Pong(data) => {
                    assert_eq!(data, b"between");
                    continue;
                }
                _ => return,
            };
            let mut out = Vec::new();
            let cut = data.len() / 3;
            let cut = (0..=cut).rev().find(|cut| str::from_utf8(&data[..*cut]).is_ok());
            let (first, second) = data.split_at(cut.unwrap_or(0));
            let encoder = &mut socket.encoder;
            let done = encoder.fragment(&mut out, message(kind, first), false, Mask::None);
            done.and_then(|()| encoder.ping(&mut out, b"between", Mask::None))
                .and_then(|()| encoder.fragment(&mut out, message(kind, second), true, Mask::None))
                .expect("an open connection");
            for piece in out.chunks(1 + data.len() / 7) {
                socket.peer.send(piece);
            }
        }
    });
    for (body, bytes) in texts() {
        let plan = Plan {
            pipeline: 3,
            extent: Extent::Count(30),
            ..plan(&server, engine)
        };
        let counts = run(plan, &messages(body, bytes, false)).figures.counts;
        assert_eq!((counts.answered, counts.unexpected, counts.failed()), (30, 0, 0));
    }
    server.finish();
}

fn deflated_messages(engine: Choice) {
    let windows = [Window::MAX, Window::MIN];
    for window in windows {
        let server = Server::new(move |peer| {
            let wish = ServerWish {
                deflation: Some(Deflation {
                    peer_window: window,
                    ..Deflation::CONTEXT
                }),
                ..ServerWish::default()
            };
            if let Some(mut socket) = open(peer, &wish) {
                assert_eq!(socket.echo(), Some(1000));
            }
        });
        for (body, bytes) in texts() {
            let plan = Plan {
                pipeline: 3,
                extent: Extent::Count(30),
                ..plan(&server, engine)
            };
            let counts = run(plan, &messages(body, bytes, true)).figures.counts;
            assert_eq!((counts.answered, counts.unexpected, counts.failed()), (30, 0, 0));
            assert_eq!(counts.deflated, counts.connects);
            if bytes == 70_000 {
                assert!(counts.bytes_sent < 30 * 10_000, "{}", counts.bytes_sent);
            }
        }
        server.finish();
    }
}

fn a_server_that_does_not_deflate(engine: Choice) {
    let server = Server::new(|peer| {
        if let Some(mut socket) = plainly(peer) {
            socket.echo();
        }
    });
    let counts = run(plan(&server, engine), &messages(Body::None, 64, true))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.deflated, counts.connects), (10, 0, 2));
    server.finish();
}

fn long_messages(engine: Choice) {
    let server = Server::new(|peer| {
        if let Some(mut socket) = plainly(peer) {
            socket.echo();
        }
    });
    let plan = Plan {
        pipeline: 2,
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, limits::ECHO_BYTES, false))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (10, 0, 0));
    server.finish();
}

fn at_a_rate(engine: Choice) {
    let server = Server::new(|peer| {
        if let Some(mut socket) = plainly(peer) {
            socket.echo();
        }
    });
    let plan = Plan {
        pace: Pace::Constant(2_000.0),
        extent: Extent::Time(Duration::from_millis(100)),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, 64, false)).figures.counts;
    assert_eq!(counts.sent + counts.dropped, 200);
    assert_eq!((counts.unexpected, counts.failed()), (0, 0));
    server.finish();
}

/// Each message comes back spoilt in another way; the connection is as good as before.
fn wrong_echoes(engine: Choice) {
    let server = Server::new(|peer| {
        let Some(mut socket) = plainly(peer) else { return };
        let mut last = Vec::new();
        for number in 0.. {
            let Came::Message(kind, data) = socket.next() else {
                return;
            };
            let mut spoilt = data.clone();
            let mut kind = kind;
            match number % 6 {
                0 => spoilt[39] ^= 1,
                1 => drop(spoilt.pop()),
                2 => spoilt.push(b'x'),
                3 => spoilt.clear(),
                4 => (kind, spoilt) = (Kind::Text, vec![b'a'; 40]),
                // One that was sent before.
                _ => spoilt = last,
            }
            last = data;
            socket.say(kind, &spoilt);
            let Came::Message(kind, data) = socket.next() else {
                return;
            };
            socket.say(kind, &data);
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(60),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::None, 40, false)).figures.counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (60, 30, 0));
    assert_eq!(counts.connects, 1);
    server.finish();
}

/// Also before the first message.
fn pings_are_answered(engine: Choice) {
    let server = Server::new(|peer| {
        let Some(mut socket) = plainly(peer) else { return };
        loop {
            let mut out = Vec::new();
            for data in [&b"a"[..], b"", &[7; 125]] {
                socket.encoder.ping(&mut out, data, Mask::None).expect("a ping");
            }
            socket
                .encoder
                .pong(&mut out, b"unasked", Mask::None)
                .expect("a pong");
            socket.peer.send(out);
            let mut pongs = Vec::new();
            let mut asked = None;
            while pongs.len() < 3 || asked.is_none() {
                match socket.next() {
                    Came::Pong(data) => pongs.push(data),
                    Came::Message(kind, data) => asked = Some((kind, data)),
                    _ => return,
                }
            }
            assert_eq!(pongs, [b"a".to_vec(), Vec::new(), vec![7; 125]]);
            let (kind, data) = asked.expect("a message");
            socket.say(kind, &data);
        }
    });
    let counts = run(plan(&server, engine), &messages(Body::None, 64, false))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (10, 0, 0));
    server.finish();
}

fn messages_that_nobody_asked_for(engine: Choice) {
    let server = Server::new(|peer| {
        let Some(mut socket) = plainly(peer) else { return };
        while let Came::Message(kind, data) = socket.next() {
            socket.say(kind, &data);
            socket.say(kind, &data);
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(20),
        ..plan(&server, engine)
    };
    let counts = run(plan, &messages(Body::Text("same".into()), 0, false))
        .figures
        .counts;
    // The second one answers the next message, or ends the connection: which of them is the kernel's to say.
    assert_eq!(counts.answered + counts.failed(), 20);
    assert!(
        counts
            .broken
            .keys()
            .all(|what| *what == "sent data without a request")
    );
    server.finish();
}

fn headers_and_subprotocols(engine: Choice) {
    let server = Server::new(|peer| {
        let wish = ServerWish {
            protocols: &["two"],
            ..ServerWish::default()
        };
        let Some(asked) = peer.request() else { return };
        assert!(asked.target.starts_with("/room/"), "{}", asked.target);
        assert!(
            asked.head.contains("\r\nAuthorization: Bearer x\r\n"),
            "{}",
            asked.head
        );
        peer.unread(asked.head.as_bytes());
        if let Some(mut socket) = open(peer, &wish) {
            socket.echo();
        }
    });
    let request = Request {
        headers: vec![
            ("Authorization".into(), "Bearer x".into()),
            ("Sec-WebSocket-Protocol".into(), "one, two".into()),
        ],
        ..Request::get("/room/{{seq}}", "test")
    };
    let traffic = Traffic::messages(request, 64, false).expect("messages");
    let counts = run(plan(&server, engine), &traffic).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (10, 0));
    server.finish();
}
