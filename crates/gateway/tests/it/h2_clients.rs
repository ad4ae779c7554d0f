//! Clients that speak HTTP/2, to upstreams of either protocol.

use ringmain_engine::Config;
use ringmain_gateway::model::UpstreamProtocol;
use ringmain_wire::h1::FieldBlock;

use crate::h2_origin::Framed;
use crate::h2_upstreams::by_streams;
use crate::http2::{Http2, fields};
use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::support::{Setting, pattern};

on_every_backend! {
    to_http1,
    to_http2,
    bodies_to_both,
    many_at_once,
    trailers_both_ways,
    an_end_by_the_head_stays_one,
    calls_that_cannot_be_sent_on,
    requests_cannot_be_smuggled,
}

fn client(engine: &Config, edge: &Edge) -> Http2 {
    Http2::new(&Setting::from(engine.clone()), &edge.server)
}

fn to_http1(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
    let mut client = client(&engine, &edge);
    let block = fields(&[("x-one", "1"), ("cookie", "a=1"), ("cookie", "b=2")]);
    let stream = client.head("GET", "/a?b", &block, true);
    let got = client.wait(stream);
    assert_eq!((got.status, got.field("x-origin")), (200, Some("yes")));
    let seen = origin.seen();
    assert_eq!(
        seen.head,
        "GET /a?b HTTP/1.1\r\nHost: localhost\r\nx-one: 1\r\ncookie: a=1; b=2\r\nX-Forwarded-For: 127.0.0.1\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: localhost\r\nVia: 1.1 ringmain\r\n\r\n"
    );
    edge.server.shut_down();
}

fn to_http2(engine: Config) {
    let origin = Framed::echo();
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    for _ in 0..5 {
        let stream = client.post("/a", b"hello");
        client.wait(stream).expect(200, "hello");
        let asked = origin.asked();
        assert_eq!((&*asked.line, asked.connection), ("POST localhost /a", 0));
    }
    edge.server.shut_down();
}

fn bodies_to_both(engine: Config) {
    let (old, new) = (
        Origin::new(|mut peer| {
            while let Some(seen) = peer.request() {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", seen.body.len());
                peer.send([head.as_bytes(), &seen.body].concat());
            }
        }),
        Framed::echo(),
    );
    for (addr, protocol) in [
        (old.addr, UpstreamProtocol::Http1),
        (new.addr, UpstreamProtocol::Http2),
    ] {
        let edge = edge(
            engine.clone(),
            to(&[addr], |_, upstream| upstream.protocol = protocol),
        );
        let mut client = client(&engine, &edge);
        for length in [0, 1, 70_000, 2_000_000] {
            let body = pattern(length);
            let stream = client.post("/", &body);
            let got = client.wait(stream);
            assert_eq!((got.status, got.body.len(), got.end), (200, length, true));
            assert!(got.body == body);
        }
        edge.server.shut_down();
    }
}

fn many_at_once(engine: Config) {
    let origin = Framed::echo();
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    let streams: Vec<_> = (0..60)
        .map(|number| (number, client.post("/", &pattern(number * 500))))
        .collect();
    for (number, stream) in streams {
        let got = client.wait(stream);
        assert!(got.status == 200 && got.body == pattern(number * 500), "{number}");
    }
    edge.server.shut_down();
}

fn trailers_both_ways(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
            peer.data(stream, &asked.body, false);
            peer.trailers(stream, &[("grpc-status", "0")]);
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    let block = fields(&[("te", "trailers"), ("content-type", "application/grpc")]);
    let stream = client.head("POST", "/shop.Cart/Add", &block, false);
    client
        .wire
        .data(stream, b"abc", false, &mut client.out)
        .expect("a window");
    client
        .wire
        .trailers(stream, &fields(&[("x-sum", "1")]), &mut client.out)
        .expect("open");
    let got = client.wait(stream);
    assert_eq!((got.status, got.text()), (200, "abc"));
    assert_eq!(got.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    let asked = origin.asked();
    assert_eq!(asked.trailers, [("x-sum".to_owned(), "1".to_owned())]);
    edge.server.shut_down();
}

/// "Trailers-Only" of gRPC, whose clients take an empty frame behind it for a broken call.
fn an_end_by_the_head_stays_one(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            let told = [("content-type", "application/grpc"), ("grpc-status", "5")];
            peer.respond(stream, 200, &told, true);
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, _| {});
    let mut client = client(&engine, &edge);
    for _ in 0..2 {
        let block = fields(&[("te", "trailers"), ("content-type", "application/grpc")]);
        let stream = client.head("POST", "/shop.Cart/Add", &block, false);
        client.send_piece(stream, b"abc", true);
        let got = client.wait(stream);
        assert!(got.bare, "{got:?}");
        assert_eq!(
            (got.status, got.field("grpc-status"), got.text()),
            (200, Some("5"), "")
        );
    }
    edge.server.shut_down();
}

fn calls_that_cannot_be_sent_on(engine: Config) {
    let edge = edge(engine.clone(), to(&[refusing_addr()], |_, _| {}));
    let mut client = client(&engine, &edge);
    let block = fields(&[("te", "trailers"), ("content-type", "application/grpc")]);
    let stream = client.head("POST", "/shop.Cart/Add", &block, true);
    let got = client.wait(stream);
    assert_eq!((got.status, got.field("grpc-status")), (200, Some("14")));
    assert_eq!(got.field("grpc-message"), Some("upstream connection refused"));
    let stream = client.head("GET", "/", &FieldBlock::new(), true);
    client.wait(stream).expect(503, "upstream connection refused\n");
    edge.server.shut_down();
}

/// The framing of HTTP/2 is regenerated for HTTP/1.1: no part of a request can become another request there.
fn requests_cannot_be_smuggled(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
    let mut client = client(&engine, &edge);
    let inner = b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    let stream = client.post("/outer", inner);
    let got = client.wait(stream);
    assert_eq!(got.status, 200);
    let seen = origin.seen();
    assert_eq!((seen.line(), &*seen.body), ("POST /outer HTTP/1.1", &inner[..]));
    assert_eq!(seen.field("transfer-encoding").as_deref(), Some("chunked"));
    client.ask("/next");
    assert_eq!(origin.seen().line(), "GET /next HTTP/1.1");
    edge.server.shut_down();
}
