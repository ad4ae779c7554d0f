//! An external processor that fails.

use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::limits::PROCESSOR_TIMEOUT_MOST;
use ringmain_gateway::model::{BodyMode, ExternalProcessor};
use ringmain_wire::h2::ErrorCode;

use crate::grpc_service::count;
use crate::h2_origin::Framed;
use crate::origin::{Origin, refusing_addr};
use crate::policies::{ask, header};
use crate::proc_messages::{self as proto, Message, RESPONSE_BODY, RESPONSE_HEAD, reply};
use crate::proc_service::{Action, answering, outcomes, policy, processed, processing, with_bodies};

on_every_backend! {
    a_failure_denies,
    a_failure_continues_if_configured,
    a_failure_at_the_response,
    a_failure_within_a_streamed_body,
    a_failure_concerns_its_own_request,
    a_refused_stream_is_opened_once_more,
}

type Failing = (&'static str, fn(&Message) -> Action);

/// Services that fail.
const FAILING: &[Failing] = &[
    ("reset", |_| Action::Reset),
    ("cut", |_| Action::Cut),
    ("status", |_| Action::Status("14")),
    ("denied", |_| Action::Status("7")),
    ("an empty message", |_| Action::Reply(Vec::new())),
    ("another message", |_| Action::Reply(vec![0x0a, 9, 1])),
    ("another part", |_| Action::Reply(reply(RESPONSE_HEAD, &[]))),
    ("a part of trailers", |_| Action::Reply(vec![0x2a, 0])),
    ("a forbidden name", |message| {
        Action::Reply(reply(message.part, &[proto::headers(&[proto::set("a b", "1")])]))
    }),
    ("a forbidden value", |message| {
        Action::Reply(reply(
            message.part,
            &[proto::headers(&[proto::set("x-a", "1\r\nb: 2")])],
        ))
    }),
    ("a forbidden path", |message| {
        Action::Reply(reply(
            message.part,
            &[proto::headers(&[proto::set(":path", "admin")])],
        ))
    }),
    ("too many changes", |message| {
        let many = vec![proto::set("x-a", "1"); 129];
        Action::Reply(reply(message.part, &[proto::headers(&many)]))
    }),
    ("an immediate response without a status", |_| {
        Action::Reply(proto::immediate(0, &[], "no"))
    }),
    ("an immediate response that is none", |_| {
        Action::Reply(proto::immediate(100, &[], "no"))
    }),
];

fn a_failure_denies(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is forwarded"));
    for (what, fail) in FAILING {
        let processor = processing(*fail);
        let edge = processed(engine.clone(), &origin, processor.addr, policy());
        let refused = ask(&edge, "GET", "");
        assert_eq!(refused.text(), "external processor unavailable\n", "{what}");
        assert_eq!(
            (refused.status, refused.field("retry-after")),
            (503, Some("1")),
            "{what}"
        );
        assert_eq!(count(&edge, "processor_unavailable"), 1, "{what}");
        assert_eq!(outcomes(&edge), [0, 0, 1], "{what}");
        edge.server.shut_down();
    }
    let silent = processing(|_| Action::Nothing);
    for (addr, message_timeout) in [
        (refusing_addr(), PROCESSOR_TIMEOUT_MOST),
        (silent.addr, Duration::from_millis(20)),
    ] {
        let policy = ExternalProcessor {
            message_timeout,
            ..policy()
        };
        let edge = processed(engine.clone(), &origin, addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, 503);
        edge.server.shut_down();
    }
}

fn a_failure_continues_if_configured(engine: Config) {
    for (what, fail) in FAILING {
        let (origin, processor) = (answering(), processing(*fail));
        let policy = ExternalProcessor {
            fail_open: true,
            upstream_headers: vec![header("X-User")],
            ..with_bodies(BodyMode::Buffered)
        };
        let edge = processed(engine.clone(), &origin, processor.addr, policy);
        let head = "POST / HTTP/1.1\r\nHost: a\r\nX-User: root\r\nContent-Length: 5\r\n\r\nwords";
        edge.server.ask(head).expect(200, "answer");
        let seen = origin.seen();
        assert_eq!(
            (&seen.body[..], seen.field("x-user")),
            (&b"words"[..], None),
            "{what}"
        );
        // It receives nothing more of the exchange.
        assert_eq!(outcomes(&edge), [0, 0, 1], "{what}");
        edge.server.shut_down();
    }
    // The service blames the call: a client could cause that.
    for status in ["3", "8", "9", "11"] {
        let origin = Origin::new(|_| panic!("no request is forwarded"));
        let processor = processing(move |_| Action::Status(status));
        let policy = ExternalProcessor {
            fail_open: true,
            ..policy()
        };
        let edge = processed(engine.clone(), &origin, processor.addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, 503, "{status}");
        edge.server.shut_down();
    }
}

fn a_failure_at_the_response(engine: Config) {
    for (fail_open, expect) in [(false, 503), (true, 200)] {
        for part in [RESPONSE_HEAD, RESPONSE_BODY] {
            let origin = answering();
            let processor = processing(move |message| match message.part == part {
                true => Action::Reset,
                false => Action::Reply(reply(message.part, &[])),
            });
            let policy = ExternalProcessor {
                fail_open,
                ..with_bodies(BodyMode::Buffered)
            };
            let edge = processed(engine.clone(), &origin, processor.addr, policy);
            let answer = ask(&edge, "GET", "");
            assert_eq!(answer.status, expect, "{part}");
            if fail_open {
                answer.expect(200, "answer");
            }
            edge.server.shut_down();
        }
    }
}

fn a_failure_within_a_streamed_body(engine: Config) {
    let origin =
        Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n");
    let processor = processing(|message| match (message.part, message.is_end) {
        (RESPONSE_BODY, true) => Action::Reset,
        (part, _) => Action::Reply(reply(part, &[])),
    });
    let edge = processed(engine, &origin, processor.addr, with_bodies(BodyMode::Streamed));
    let mut client = edge.server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // The response is refused if no part was sent, else the response has no end.
    let (all, _) = client.rest();
    let all = String::from_utf8(all).expect("text");
    assert!(!all.ends_with("0\r\n\r\n"), "{all}");
    assert_eq!(count(&edge, "processor_unavailable"), 1);
    edge.server.shut_down();
}

/// More failures than any breaker would wait for.
const FAILURES: u64 = 20;

fn a_failure_concerns_its_own_request(engine: Config) {
    for fail_open in [false, true] {
        let origin = answering();
        let processor = processing(|message| match message.get(":path") {
            Some("/poison") => Action::Reset,
            Some("/denied") => Action::Reply(proto::immediate(403, &[], "")),
            _ => Action::Reply(reply(message.part, &[])),
        });
        let policy = ExternalProcessor {
            fail_open,
            ..policy()
        };
        let edge = processed(engine.clone(), &origin, processor.addr, policy);
        for _ in 0..FAILURES {
            assert_eq!(
                edge.server.get("/poison").status,
                if fail_open { 200 } else { 503 }
            );
            assert_eq!(edge.server.get("/").status, 200);
            assert_eq!(edge.server.get("/denied").status, 403, "fail_open: {fail_open}");
        }
        edge.server.shut_down();
    }
}

fn a_refused_stream_is_opened_once_more(engine: Config) {
    let origin = answering();
    let processor = Framed::new(|mut peer| {
        while let Some((stream, _, _)) = peer.head() {
            match peer.number {
                0 => peer.reset(stream, ErrorCode::REFUSED_STREAM),
                _ => {
                    peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
                    peer.trailers(stream, &[("grpc-status", "0")]);
                }
            }
        }
    });
    let edge = processed(engine, &origin, processor.addr, policy());
    ask(&edge, "GET", "").expect(200, "answer");
    edge.server.shut_down();
}
