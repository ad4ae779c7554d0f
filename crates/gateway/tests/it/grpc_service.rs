//! External services over gRPC that tests of several policies use.

use std::net::SocketAddr;
use std::sync::Arc;

use ringmain_gateway::model::{Upstream, UpstreamProtocol};
use ringmain_wire::h2::{ErrorCode, Stream};

use crate::authz_messages::framed;
use crate::h2_origin::{Framed, Peer};
use crate::origin::{Edge, upstream};

/// The upstream of a service.
pub(crate) fn upstream_of(name: &str, addr: SocketAddr) -> Arc<Upstream> {
    let mut service = upstream(name, &[addr]);
    service.protocol = UpstreamProtocol::Http2;
    Arc::new(service)
}

/// A service that responds to each framed message with the one that `decide` returns.
pub(crate) fn responding(decide: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Framed {
    Framed::new(move |mut peer| {
        while let Some((stream, asked)) = peer.request() {
            let message = decide(&asked.body);
            respond(&mut peer, stream, &message);
        }
    })
}

pub(crate) fn respond(peer: &mut Peer, stream: Stream, message: &[u8]) {
    peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
    peer.data(stream, &framed(message), false);
    peer.trailers(stream, &[("grpc-status", "0")]);
}

/// A service that fails each call. `ok` is the message that would admit the request.
pub(crate) fn failing(
    fail: impl Fn(&mut Peer, Stream, &[u8]) + Send + Sync + 'static,
    ok: Vec<u8>,
) -> Framed {
    Framed::new(move |mut peer| {
        while let Some((stream, _)) = peer.request() {
            fail(&mut peer, stream, &ok);
        }
    })
}

/// Returns the number of faults with this label.
pub(crate) fn count(edge: &Edge, label: &str) -> u64 {
    let faults = edge.gateway.fault_counts();
    let found = faults.iter().find(|(fault, _)| fault.label() == label);
    found.map_or(0, |(_, count)| *count)
}

/// A kind of failure, and its response to a call that `ok` would admit.
pub(crate) type Failing = (&'static str, fn(&mut Peer, Stream, &[u8]));

/// Services that fail.
pub(crate) const FAILING: &[Failing] = &[
    ("status", |peer, stream, _| {
        let fields = [
            ("content-type", "application/grpc"),
            ("grpc-status", "14"),
            ("grpc-message", "down%21"),
        ];
        peer.respond(stream, 200, &fields, true);
    }),
    ("status after an allowing message", |peer, stream, ok| {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
        peer.data(stream, &framed(ok), false);
        peer.trailers(stream, &[("grpc-status", "13")]);
    }),
    ("no status", |peer, stream, ok| {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
        peer.data(stream, &framed(ok), true);
    }),
    ("no message", |peer, stream, _| {
        let fields = [("content-type", "application/grpc"), ("grpc-status", "0")];
        peer.respond(stream, 200, &fields, true);
    }),
    ("two messages", |peer, stream, ok| {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
        peer.data(stream, &framed(ok).repeat(2), false);
        peer.trailers(stream, &[("grpc-status", "0")]);
    }),
    ("an empty message", |peer, stream, _| respond(peer, stream, &[])),
    ("another message", |peer, stream, _| {
        respond(peer, stream, &[0x0a, 9, 1])
    }),
    ("a cut message", |peer, stream, ok| {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
        peer.data(stream, &framed(ok)[..5], false);
        peer.trailers(stream, &[("grpc-status", "0")]);
    }),
    ("a long message", |peer, stream, _| {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
        peer.data(stream, &[0, 0, 2, 0, 1], false);
    }),
    ("a compressed message", |peer, stream, ok| {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
        let mut framed = framed(ok);
        framed[0] = 1;
        peer.data(stream, &framed, false);
        peer.trailers(stream, &[("grpc-status", "0")]);
    }),
    ("a page", |peer, stream, _| {
        peer.answer(
            stream,
            200,
            &[("content-type", "text/html"), ("grpc-status", "0")],
            b"hi",
        );
    }),
    ("503", |peer, stream, _| peer.respond(stream, 503, &[], true)),
    ("reset", |peer, stream, _| {
        peer.reset(stream, ErrorCode::INTERNAL_ERROR)
    }),
    ("reset after the head", |peer, stream, _| {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
        peer.reset(stream, ErrorCode::CANCEL);
    }),
    ("cut", |peer, _, _| peer.cut()),
];
