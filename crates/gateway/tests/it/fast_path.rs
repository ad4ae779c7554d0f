//! HTTP/2 requests that start without a task: completed without one if their response arrives whole, else passed to a task.

use std::sync::mpsc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_testkit::wait::{pause, until};
use ringmain_wire::h2::{ErrorCode, Limits};

use crate::h2_origin::{Framed, Happened};
use crate::h2_upstreams::by_streams;
use crate::http2::Http2;
use crate::origin::{Edge, Origin, edge, to};
use crate::support::{Setting, get, pattern};

on_every_backend! {
    whole_answers,
    a_response_in_pieces_is_relayed_in_pieces,
    trailers_are_relayed,
    a_long_answer_waits_for_its_client,
    timeouts_apply,
    a_client_that_gives_up_gives_up_its_stream,
    an_answer_overtakes_another,
    a_closed_connection_is_a_fault,
}

fn client(engine: &Config, edge: &Edge) -> Http2 {
    Http2::new(&Setting::from(engine.clone()), &edge.server)
}

/// From clients of both protocols to upstreams of both.
fn whole_answers(engine: Config) {
    let new = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            let fields = [
                ("x-line", &*asked.line),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2"),
            ];
            peer.answer(stream, 203, &fields, asked.line.as_bytes());
        }
    });
    let old = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let line = seen.head.lines().next().unwrap_or_default().to_owned();
            let method = line.split(' ').next().unwrap_or_default();
            let body = if method == "HEAD" { "" } else { "hello" };
            let head = format!("HTTP/1.1 203 x\r\nX-Line: {line}\r\nContent-Length: 5\r\n\r\n{body}");
            peer.send(head);
        }
    });
    let edges = [
        (by_streams(engine.clone(), &new, |_, _| {}), "GET localhost /a?b"),
        (
            edge(engine.clone(), to(&[old.addr], |_, _| {})),
            "GET /a?b HTTP/1.1",
        ),
    ];
    for (edge, line) in edges {
        let mut framed = client(&engine, &edge);
        let mut lines = edge.server.client();
        for _ in 0..5 {
            let got = framed.ask("/a?b");
            assert_eq!(
                (got.status, got.field("x-line"), got.end),
                (203, Some(line), true)
            );
            assert!(got.text() == line || got.text() == "hello", "{}", got.text());
            lines.send("GET /a?b HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let answer = lines.answer();
            assert_eq!((answer.status, answer.field("x-line")), (203, Some(line)));
        }
        let stream = framed.head("HEAD", "/a?b", &crate::http2::fields(&[]), true);
        let got = framed.wait(stream);
        assert_eq!((got.status, got.body.len(), got.end), (203, 0, true));
        edge.server.shut_down();
    }
}

/// The head is relayed before the body arrives, and the body piece by piece.
fn a_response_in_pieces_is_relayed_in_pieces(engine: Config) {
    let (go, gone) = mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let origin = Framed::new(move |mut peer| {
        while let Some((stream, asked)) = peer.request() {
            if asked.line.ends_with("/whole") {
                peer.answer(stream, 200, &[], b"whole");
                continue;
            }
            peer.respond(stream, 200, &[], false);
            peer.flush();
            for (piece, ends) in [("one", false), ("two", true)] {
                gone.lock().expect("one test").recv().expect("a word");
                peer.data(stream, piece.as_bytes(), ends);
            }
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    client.ask("/whole").expect(200, "whole");
    let stream = client.get("/pieces");
    let got = client.wait_for(stream, |got| got.status != 0);
    assert_eq!((got.status, got.body.len(), got.end), (200, 0, false));
    go.send(()).expect("it waits");
    let got = client.wait_for(stream, |got| !got.body.is_empty());
    assert_eq!((got.text(), got.end), ("one", false));
    go.send(()).expect("it waits");
    client.wait(stream).expect(200, "onetwo");
    client.ask("/whole").expect(200, "whole");
    edge.server.shut_down();
}

fn trailers_are_relayed(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            peer.respond(stream, 103, &[("link", "</a>")], false);
            peer.respond(stream, 200, &[], false);
            peer.data(stream, b"body", false);
            peer.trailers(stream, &[("x-sum", "4")]);
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    for _ in 0..3 {
        let block = crate::http2::fields(&[("te", "trailers")]);
        let stream = client.head("GET", "/", &block, true);
        let got = client.wait(stream);
        got.expect(200, "body");
        assert_eq!(got.interim, [103]);
        assert_eq!(got.trailers, [("x-sum".to_owned(), "4".to_owned())]);
    }
    edge.server.shut_down();
}

/// The response is complete, and its client reads a hundred bytes at a time.
fn a_long_answer_waits_for_its_client(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            let length = if asked.line.ends_with("/long") { 60_000 } else { 5 };
            peer.answer(stream, 200, &[], &pattern(length));
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let limits = Limits {
        stream_window: 100,
        ..Limits::INTERNET
    };
    let mut client = Http2::with(&Setting::from(engine), &edge.server, &limits);
    client.hungry = false;
    let long = client.get("/long");
    client.wait_for(long, |got| got.body.len() == 100);
    let short = client.ask("/short");
    assert_eq!((short.status, short.body.len()), (200, 5));
    client.hungry = true;
    client.wire.consume(long, 100, &mut client.out);
    let got = client.wait(long);
    assert!(
        got.status == 200 && got.body == pattern(60_000),
        "{} bytes",
        got.body.len()
    );
    edge.server.shut_down();
}

/// Timeouts also apply where a task continues a request that was started without one.
fn timeouts_apply(engine: Config) {
    let (origin, gate) = Framed::gated(Limits::INTERNET);
    gate.open("/before");
    for span in [30, 450].map(Duration::from_millis) {
        let all = by_streams(engine.clone(), &origin, |forward, _| {
            forward.timeouts.request = Some(span)
        });
        let each = by_streams(engine.clone(), &origin, |forward, _| {
            forward.timeouts.per_try = Some(span)
        });
        for edge in [all, each] {
            let mut framed = client(&engine, &edge);
            // The limit is short for a machine that is busy.
            until("a response in time", || {
                let got = framed.ask("/before");
                got.status == 200 && got.text() == "GET localhost /before"
            });
            let streams = [framed.get("/never"), framed.get("/never")];
            for stream in streams {
                assert_eq!(framed.wait(stream).status, 504);
            }
            let mut lines = edge.server.client();
            lines.send(get("/never"));
            assert_eq!(lines.answer().status, 504);
            until("a response in time behind the others", || {
                framed.ask("/before").status == 200
            });
            edge.server.shut_down();
        }
    }
}

fn a_client_that_gives_up_gives_up_its_stream(engine: Config) {
    let (told, resets) = mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let origin = Framed::new(move |mut peer| {
        loop {
            match peer.next() {
                Happened::Head(stream, asked, _) if asked.line.ends_with("/now") => {
                    peer.answer(stream, 200, &[], b"now");
                }
                Happened::Reset(stream, code) => {
                    let told = told.lock().expect("one test");
                    told.send((stream.id(), code)).expect("it is waited for");
                }
                Happened::Closed => return,
                _ => {}
            }
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    client.ask("/now").expect(200, "now");
    // One at once, and one that a task has by then.
    for waits in [false, true] {
        let never = client.get("/never");
        client.flush();
        if waits {
            // It is left to a task while others are answered.
            for _ in 0..25 {
                pause(Duration::from_millis(10));
                client.ask("/now").expect(200, "now");
            }
        }
        client.ask("/now").expect(200, "now");
        client.reset(never);
        let (_, code) = resets.recv_timeout(crate::support::PATIENCE).expect("it is told");
        assert_eq!(code, ErrorCode::CANCEL);
        client.ask("/now").expect(200, "now");
    }
    edge.server.shut_down();
}

fn an_answer_overtakes_another(engine: Config) {
    let (origin, gate) = Framed::gated(Limits::INTERNET);
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    gate.open("/before");
    let mut client = client(&engine, &edge);
    client.ask("/before").expect(200, "GET localhost /before");
    let paths: Vec<_> = (0..20).map(|number| format!("/{number}")).collect();
    let mut streams: Vec<_> = paths.iter().map(|path| (path, client.get(path))).collect();
    client.flush();
    streams.reverse();
    for (path, stream) in streams {
        gate.open(path);
        client.wait(stream).expect(200, &format!("GET localhost {path}"));
    }
    edge.server.shut_down();
}

/// No part of the response has arrived: a retry would repeat the request, which is only done if allowed.
fn a_closed_connection_is_a_fault(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            if asked.line.ends_with("/cut") {
                return peer.cut();
            }
            peer.answer(stream, 200, &[], b"now");
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    for _ in 0..3 {
        client.ask("/now").expect(200, "now");
        let stream = client.get("/cut");
        assert_eq!(client.wait(stream).status, 502);
    }
    client.ask("/now").expect(200, "now");
    edge.server.shut_down();
}
