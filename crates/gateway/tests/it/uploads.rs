//! Request bodies that stop, that are streams, and that are answered before they are whole. Slow ones: `slow_uploads.rs`, in virtual time.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{self, Forward, OutlierDetection, Retry, RetryOn, StatusRange};
use ringmain_testkit::wait::pause;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::Limits;

use crate::h2_origin::Framed;
use crate::h2_upstreams::by_streams;
use crate::http2::{Http2, fields};
use crate::l4_rig::until;
use crate::origin::{Edge, Origin, edge, edge_within, listener, to};
use crate::support::{Client, End, PATIENCE, pattern};

on_every_backend! {
    a_live_stream_over_http2_has_none,
    a_call_that_is_cut_has_its_status,
    a_body_that_stops_is_idle,
    an_early_answer_is_relayed,
    an_early_answer_over_http2_is_relayed,
    an_early_answer_to_a_client_that_only_writes,
    an_early_answer_with_a_page,
    an_early_answer_that_is_retried,
    an_early_answer_beside_a_hedge,
    an_early_answer_in_pieces,
    empty_pieces_are_no_chunks,
    a_client_that_leaves_within_bodies,
}

/// Rates are checked each second, without grace.
fn without_grace(engine: Config, config: model::Config) -> Edge {
    edge_within(engine, config, |limits| limits.rate_grace = Duration::ZERO)
}

/// Returns the count of a fault.
fn count(edge: &Edge, fault: Fault) -> u64 {
    let faults = edge.gateway.fault_counts();
    faults
        .iter()
        .find(|(found, _)| *found == fault)
        .map_or(0, |(_, count)| *count)
}

/// All requests to one origin, by a listener that asks for so many bytes a second.
fn at_rate(addr: std::net::SocketAddr, rate: u32, change: impl FnOnce(&mut Forward)) -> model::Config {
    let mut config = to(&[addr], |forward, _| change(forward));
    let mut listener = listener();
    listener.limits.rate_bytes = rate;
    config.listeners = vec![listener.into()];
    config
}

const RATE: u32 = 1_000_000;

/// The answer begins with the end of the body alone.
fn a_live_stream_over_http2_has_none(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
            peer.data(stream, &asked.body, false);
            peer.trailers(stream, &[("grpc-status", "0")]);
        }
    });
    let mut config = at_rate(origin.addr, RATE, |_| {});
    std::sync::Arc::make_mut(&mut config.upstreams[0]).protocol = model::UpstreamProtocol::Http2;
    let edge = without_grace(engine, config);
    let mut client = Http2::over(edge.server.client(), &Limits::INTERNET);
    let head = fields(&[("content-type", "application/grpc"), ("te", "trailers")]);
    let stream = client.head("POST", "/s/m", &head, false);
    for _ in 0..25 {
        client.send_piece(stream, b"x", false);
        pause(Duration::from_millis(100));
    }
    client.send_piece(stream, b"x", true);
    let got = client.wait(stream);
    assert_eq!((got.status, got.body.len()), (200, 26));
    drop(client);
    edge.server.shut_down();
}

/// Before and after its answer has begun.
fn a_call_that_is_cut_has_its_status(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked, _)) = peer.head() {
            if asked.line.ends_with("/begun") {
                peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
            }
        }
    });
    let edge = by_streams(engine, &origin, |forward, _| {
        forward.timeouts.idle = Some(Duration::from_millis(200));
    });
    let mut client = Http2::over(edge.server.client(), &Limits::INTERNET);
    let head = fields(&[("content-type", "application/grpc"), ("te", "trailers")]);
    for (number, path) in ["/begun", "/silent"].into_iter().enumerate() {
        let stream = client.head("POST", path, &head, false);
        client.send_piece(stream, b"x", false);
        let got = client.wait(stream);
        assert_eq!(got.status, 200, "{path}");
        let told = [&got.fields[..], &got.trailers].concat();
        assert!(
            told.contains(&("grpc-status".to_owned(), "4".to_owned())),
            "{path}: {told:?}"
        );
        until(|| count(&edge, Fault::RequestIdle) == number as u64 + 1);
    }
    drop(client);
    edge.server.shut_down();
}

/// Sends a body in ten pieces over a second, longer than the edge's times.
fn trickle(client: &mut Client, request: &str) {
    client.send(request);
    for _ in 0..10 {
        pause(Duration::from_millis(100));
        client.send(pattern(1000));
    }
}

const TEN_PIECES: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n";

fn a_body_that_stops_is_idle(engine: Config) {
    for head in [
        "Content-Length: 10\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let origin = Origin::new(|mut peer| while peer.some().is_some() {});
        let edge = edge(
            engine.clone(),
            to(&[origin.addr], |forward, upstream| {
                forward.timeouts.idle = Some(Duration::from_millis(200));
                forward.retry = Some(Retry::default());
                upstream.health.outliers = Some(OutlierDetection::default());
            }),
        );
        let mut client = edge.server.client();
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{head}"));
        assert_eq!(client.answer().status, 408, "{head}");
        assert_eq!(
            (count(&edge, Fault::RequestIdle), count(&edge, Fault::HeadTimeout)),
            (1, 0)
        );
        edge.server.shut_down();
    }
}

const LARGE: usize = 10_000_000;

fn large(framing: &str) -> Vec<u8> {
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
    head.into_bytes()
}

/// An origin that reads only the head, responds, and continues when the test says so; then it expects the end. Reports the bytes after
/// the head.
fn early(
    answer: &'static str,
) -> (
    Origin,
    std::sync::mpsc::Sender<()>,
    std::sync::mpsc::Receiver<usize>,
) {
    let (go, gone) = channel::<()>();
    let (ended, end) = channel();
    let gone = Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        if peer.head().is_none() {
            return;
        }
        // All that fits between here and the client is on its way when this is sent.
        pause(Duration::from_millis(100));
        peer.send(answer);
        let _ = gone.lock().expect("one").recv_timeout(PATIENCE);
        let mut length = 0;
        while let Some(bytes) = peer.some() {
            length += bytes.len();
        }
        let _ = ended.send(length);
    });
    (origin, go, end)
}

const REFUSED: &str = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\ntoo large";

fn nothing_is_held(edge: &Edge) {
    until(|| {
        let upstream = &edge.gateway.upstreams()[0];
        upstream.requests == 0 && upstream.connections == 0 && edge.server.connections() == 0
    });
}

fn an_early_answer_is_relayed(engine: Config) {
    for framing in [
        format!("Content-Length: {LARGE}"),
        "Transfer-Encoding: chunked".to_owned(),
    ] {
        let (origin, go, end) = early(REFUSED);
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        let mut client = edge.server.client();
        let body = if framing.starts_with('C') {
            pattern(LARGE)
        } else {
            crate::support::chunked(&pattern(LARGE), 100_000)
        };
        let sent = client.send_behind([large(&framing), body].concat());
        let answer = client.answer();
        // The origin has read nothing of the body, and holds its connection.
        answer.expect(413, "too large");
        assert!(answer.closes(), "the client is told that its connection ends");
        drop(client);
        let _ = sent.join().expect("no panic");
        go.send(()).expect("the origin waits");
        let length = end.recv_timeout(PATIENCE).expect("its connection ends");
        assert!(length < LARGE, "the rest of the body is not sent: {length}");
        nothing_is_held(&edge);
        edge.server.shut_down();
    }
}

/// With windows that are full, and with a connection that is.
fn an_early_answer_over_http2_is_relayed(engine: Config) {
    let wide = Limits {
        stream_window: 1 << 30,
        connection_window: 1 << 30,
        ..Limits::INTERNET
    };
    for limits in [Limits::INTERNET, wide] {
        let origin = Framed::with(limits, move |mut peer| {
            peer.consumes = false;
            while let Some((stream, ..)) = peer.head() {
                pause(Duration::from_millis(100));
                peer.answer(stream, 413, &[], b"too large");
                // The client is answered before anything else is read.
                pause(Duration::from_millis(300));
            }
        });
        let edge = by_streams(engine.clone(), &origin, |forward, _| forward.body.request = None);
        let mut client = edge.server.client();
        let framing = format!("Content-Length: {LARGE}");
        let sent = client.send_behind([large(&framing), pattern(LARGE)].concat());
        client.answer().expect(413, "too large");
        drop(client);
        let _ = sent.join().expect("no panic");
        until(|| edge.gateway.upstreams()[0].requests == 0);
        edge.server.shut_down();
    }
}

/// It reads when all of its body is sent: the answer is still there.
fn an_early_answer_to_a_client_that_only_writes(engine: Config) {
    let (origin, go, end) = early(REFUSED);
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    let framing = format!("Content-Length: {LARGE}");
    let sent = client.send_behind([large(&framing), pattern(LARGE)].concat());
    sent.join().expect("no panic").expect("all of it is received");
    client.answer().expect(413, "too large");
    client.expect_end();
    go.send(()).expect("the origin waits");
    end.recv_timeout(PATIENCE).expect("its connection ends");
    drop(client);
    nothing_is_held(&edge);
    edge.server.shut_down();
}

/// The rule's error page replaces the response.
fn an_early_answer_with_a_page(engine: Config) {
    let (origin, go, end) = early(REFUSED);
    let mut config = to(&[origin.addr], |forward, _| forward.replace_errors = true);
    let route = std::sync::Arc::make_mut(&mut config.routes[0]);
    route.rules[0].error_pages = vec![model::ErrorPage {
        statuses: StatusRange {
            first: 400,
            last: 499,
        },
        response: model::DirectResponse {
            status: 413,
            content_type: None,
            body: model::StaticBody(b"page".as_slice().into()),
        },
    }];
    let edge = edge(engine, config);
    let mut client = edge.server.client();
    let framing = format!("Content-Length: {LARGE}");
    let sent = client.send_behind([large(&framing), pattern(LARGE)].concat());
    client.answer().expect(413, "page");
    drop(client);
    let _ = sent.join().expect("no panic");
    go.send(()).expect("the origin waits");
    assert!(end.recv_timeout(PATIENCE).expect("its connection ends") < LARGE);
    nothing_is_held(&edge);
    edge.server.shut_down();
}

/// The sent part of the body is sent again, followed by the rest.
fn an_early_answer_that_is_retried(engine: Config) {
    let origin = Origin::new(|mut peer| {
        if peer.connection == 0 {
            peer.head();
            peer.take(1000);
            peer.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
            peer.some();
            return;
        }
        let Some(seen) = peer.request() else { return };
        assert!(seen.body == pattern(1000).repeat(10));
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| {
            forward.retry = Some(Retry {
                backoff: Duration::from_millis(1),
                on: RetryOn {
                    statuses: vec![StatusRange {
                        first: 503,
                        last: 503,
                    }],
                    ..RetryOn::default()
                },
                ..Retry::default()
            });
        }),
    );
    let mut client = edge.server.client();
    trickle(&mut client, TEN_PIECES);
    client.answer().expect(200, "ok");
    edge.server.shut_down();
}

/// An attempt beside which there could be another one.
fn an_early_answer_beside_a_hedge(engine: Config) {
    let origin = Framed::with(
        Limits {
            stream_window: 10,
            ..Limits::INTERNET
        },
        |mut peer| {
            peer.consumes = false;
            while let Some((stream, ..)) = peer.head() {
                peer.answer(stream, 413, &[], b"too large");
            }
        },
    );
    let edge = by_streams(engine, &origin, |forward, _| forward.hedge = Some(PATIENCE));
    let mut client = edge.server.client();
    client.send([large("Content-Length: 60000"), pattern(60_000)].concat());
    client.answer().expect(413, "too large");
    edge.server.shut_down();
}

/// Its head first: the client has it while the rest is waited for.
fn an_early_answer_in_pieces(engine: Config) {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        peer.head();
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nno");
        let _ = gone.lock().expect("one").recv_timeout(PATIENCE);
        peer.send("pe");
        while peer.some().is_some() {}
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send([large("Content-Length: 100000"), pattern(70_000)].concat());
    assert_eq!(client.head().status, 400);
    assert_eq!(client.take(2), b"no");
    go.send(()).expect("the origin waits");
    assert_eq!(client.take(2), b"pe");
    assert_eq!(client.rest().1, End::Orderly);
    drop(client);
    nothing_is_held(&edge);
    edge.server.shut_down();
}

/// A piece of base64 may hold no byte yet: as a chunk it would end the body.
fn empty_pieces_are_no_chunks(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine, to(&[origin.addr], |forward, _| forward.grpc_web = true));
    let mut client = edge.server.client();
    client.send(
        "POST /a.B/C HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web-text\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    for piece in ["A", "A", "A", "A", "AGF", "iYw=="] {
        client.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
        // Each by itself, as a rule.
        pause(Duration::from_millis(20));
    }
    client.send("0\r\n\r\n");
    let seen = origin.seen();
    assert_eq!(seen.body, b"\0\0\0\0abc");
    assert_eq!(client.head().status, 200);
    drop(client);
    edge.server.shut_down();
}

/// It is no failure of the gateway's.
fn a_client_that_leaves_within_bodies(engine: Config) {
    let origin = Origin::new(|mut peer| while peer.some().is_some() {});
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = Http2::over(edge.server.client(), &Limits::INTERNET);
    for _ in 0..20 {
        let stream = client.head("POST", "/", &FieldBlock::new(), false);
        client.send_piece(stream, b"x", false);
    }
    until(|| edge.gateway.upstreams()[0].requests == 20);
    client.finish();
    until(|| {
        edge.gateway
            .route_reports()
            .iter()
            .flat_map(|report| report.classes)
            .sum::<u64>()
            == 20
    });
    let classes = edge.gateway.route_reports()[0].classes;
    assert_eq!(classes, [0, 0, 0, 20, 0]);
    assert_eq!(edge.server.app.stats().totals().classes[5], 0);
    drop(client);
    nothing_is_held(&edge);
    edge.server.shut_down();
}
