//! Calls of gRPC, and of gRPC-Web to upstreams that speak gRPC alone.

use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{Retry, UpstreamProtocol};
use ringmain_wire::grpc::{TextDecoder, encode_text};

use crate::h2_origin::Framed;
use crate::h2_upstreams::by_streams;
use crate::origin::{Origin, edge, refusing_addr, to};
use crate::support::{Answer, chunked};

on_every_backend! {
    faults_are_statuses,
    calls_go_through,
    the_web_in_binary,
    the_web_as_text,
    the_web_to_an_upstream_of_http1,
    what_is_not_translated,
    text_that_is_none,
    a_call_of_the_web_is_tried_again,
}

/// A message with its prefix.
fn message(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short").to_be_bytes();
    [&[0], &length[..], bytes].concat()
}

/// The frame of gRPC-Web that has trailers in it.
fn last(lines: &str) -> Vec<u8> {
    let mut frame = message(lines.as_bytes());
    frame[0] = 0x80;
    frame
}

fn call(kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nTE: trailers\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[track_caller]
fn expect_status(answer: &Answer, status: &str, message: &str) {
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("grpc-status"), Some(status));
    assert_eq!(answer.field("grpc-message"), Some(message));
    assert_eq!(answer.body, b"");
}

/// A server that answers calls with an echo and a status.
fn server() -> Framed {
    Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            let kind = asked.field("content-type").expect("a type").to_owned();
            if asked.body == message(b"fail") {
                peer.respond(
                    stream,
                    200,
                    &[("content-type", &kind), ("grpc-status", "5")],
                    true,
                );
                continue;
            }
            peer.respond(stream, 200, &[("content-type", &kind)], false);
            peer.data(stream, &asked.body, false);
            peer.trailers(stream, &[("grpc-status", "0"), ("x-more", "1")]);
        }
    })
}

fn faults_are_statuses(engine: Config) {
    let edge = edge(
        engine,
        to(&[refusing_addr()], |_, upstream| {
            upstream.protocol = UpstreamProtocol::Http2
        }),
    );
    for (kind, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+json", "application/grpc+proto"),
        ("application/grpc-web-text", "application/grpc-web-text"),
    ] {
        let answer = edge.server.ask(call(kind, b""));
        expect_status(&answer, "14", "upstream connection refused");
        assert_eq!(answer.field("content-type"), Some(answered));
        assert_eq!(answer.field("retry-after"), Some("1"));
    }
    // A request that is not gRPC receives a plain HTTP error.
    edge.server
        .ask(call("application/grpcx", b""))
        .expect(503, "upstream connection refused\n");
    edge.server.shut_down();
}

fn calls_go_through(engine: Config) {
    let origin = server();
    let edge = by_streams(engine, &origin, |_, _| {});
    let mut client = edge.server.client();
    client.send(call("application/grpc", &message(b"abc")));
    let head = client.head();
    assert_eq!(head.field("content-type"), Some("application/grpc"));
    client.finish();
    let rest = client.rest().0;
    let text = String::from_utf8_lossy(&rest);
    assert!(
        text.ends_with("\r\n0\r\ngrpc-status: 0\r\nx-more: 1\r\n\r\n"),
        "{text}"
    );
    let asked = origin.asked();
    assert_eq!(asked.line, "POST a /shop.Cart/Add");
    assert_eq!(
        (asked.field("te"), &asked.body),
        (Some("trailers"), &message(b"abc"))
    );
    edge.server.shut_down();
}

fn the_web_in_binary(engine: Config) {
    let origin = server();
    let edge = by_streams(engine, &origin, |forward, _| forward.grpc_web = true);
    let answer = edge
        .server
        .ask(call("application/grpc-web+proto", &message(b"abc")));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), Some("application/grpc-web+proto"));
    assert_eq!(answer.field("trailer"), None);
    let expected = [message(b"abc"), last("grpc-status: 0\r\nx-more: 1\r\n")].concat();
    assert_eq!(answer.body, expected);
    let asked = origin.asked();
    assert_eq!(asked.field("content-type"), Some("application/grpc+proto"));
    assert_eq!(
        (asked.field("te"), &asked.body),
        (Some("trailers"), &message(b"abc"))
    );
    // All in one head.
    let answer = edge.server.ask(call("application/grpc-web", &message(b"fail")));
    assert_eq!(answer.field("grpc-status"), Some("5"));
    assert_eq!(answer.field("content-type"), Some("application/grpc-web"));
    assert_eq!(answer.body, b"");
    edge.server.shut_down();
}

fn the_web_as_text(engine: Config) {
    let origin = server();
    let edge = by_streams(engine, &origin, |forward, _| forward.grpc_web = true);
    let sent = [message(b"abc"), message(&[7; 100_000])].concat();
    let mut text = Vec::new();
    for piece in sent.chunks(7777) {
        // Padded in the middle.
        encode_text(&mut text, piece);
    }
    let mut client = edge.server.client();
    let head = "POST /shop.Cart/Add HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web-text\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let sending = client.send_behind([head.as_bytes(), &chunked(&text, 999)].concat());
    let answer = client.answer();
    sending.join().expect("no panic").expect("all was taken");
    assert_eq!(answer.field("content-type"), Some("application/grpc-web-text"));
    let mut body = Vec::new();
    TextDecoder::new()
        .decode(&answer.body, &mut body)
        .expect("base64");
    let trailers = last("grpc-status: 0\r\nx-more: 1\r\n");
    assert!(body == [sent.clone(), trailers].concat(), "{} bytes", body.len());
    let asked = origin.asked();
    assert_eq!(asked.field("content-type"), Some("application/grpc"));
    assert!(asked.body == sent);
    edge.server.shut_down();
}

fn the_web_to_an_upstream_of_http1(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/grpc\r\n\r\n\
         3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n",
    );
    let edge = edge(engine, to(&[origin.addr], |forward, _| forward.grpc_web = true));
    for _ in 0..2 {
        let answer = edge.server.ask(call("application/grpc-web", &message(b"abc")));
        assert_eq!(
            answer.body,
            [b"abc".to_vec(), last("grpc-status: 0\r\n")].concat()
        );
        let seen = origin.seen();
        assert_eq!(seen.field("content-type").as_deref(), Some("application/grpc"));
        assert_eq!(seen.field("te").as_deref(), Some("trailers"));
        assert_eq!(seen.connection, 0);
    }
    edge.server.shut_down();
}

fn what_is_not_translated(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            peer.respond(stream, 404, &[("content-type", "text/html")], false);
            peer.data(stream, b"<p>", true);
        }
    });
    // An answer that is no gRPC.
    let first = by_streams(engine.clone(), &origin, |forward, _| forward.grpc_web = true);
    let answer = first.server.ask(call("application/grpc-web", &message(b"abc")));
    answer.expect(404, "<p>");
    assert_eq!(answer.field("content-type"), Some("text/html"));
    first.server.shut_down();
    // A rule that does not say so.
    let origin = server();
    let second = by_streams(engine, &origin, |_, _| {});
    let mut client = second.server.client();
    client.send(call("application/grpc-web", &message(b"abc")));
    assert_eq!(origin.asked().field("content-type"), Some("application/grpc-web"));
    second.server.shut_down();
}

fn text_that_is_none(engine: Config) {
    let origin = server();
    let edge = by_streams(engine, &origin, |forward, _| forward.grpc_web = true);
    for body in ["!!!!", "AAAA=AAA", "AAAAA"] {
        let answer = edge
            .server
            .ask(call("application/grpc-web-text", body.as_bytes()));
        assert_eq!(answer.status, 400, "{body}");
    }
    assert!(origin.is_quiet(), "no call came to its end");
    edge.server.shut_down();
}

fn a_call_of_the_web_is_tried_again(engine: Config) {
    let origin = Framed::new(|mut peer| {
        let is_first = peer.number == 0;
        while let Some((stream, asked)) = peer.request() {
            if is_first {
                peer.go_away(0);
                continue;
            }
            peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
            peer.data(stream, &asked.body, false);
            peer.trailers(stream, &[("grpc-status", "0")]);
        }
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, upstream| {
            forward.grpc_web = true;
            forward.retry = Some(Retry {
                backoff: Duration::from_millis(1),
                ..Retry::default()
            });
            upstream.protocol = UpstreamProtocol::Http2;
        }),
    );
    let mut text = Vec::new();
    encode_text(&mut text, &message(b"abc"));
    let answer = edge.server.ask(call("application/grpc-web-text", &text));
    let mut body = Vec::new();
    TextDecoder::new()
        .decode(&answer.body, &mut body)
        .expect("base64");
    assert_eq!(body, [message(b"abc"), last("grpc-status: 0\r\n")].concat());
    assert_eq!(
        [origin.asked().body, origin.asked().body],
        [message(b"abc"), message(b"abc")]
    );
    edge.server.shut_down();
}
