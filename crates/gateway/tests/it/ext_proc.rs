//! An external processor over gRPC (`envoy.service.ext_proc.v3`): the parts that it receives, the changes that it demands, and its
//! failures.

use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::limits::FILTER_HELD_BYTES;
use ringmain_gateway::model::{BodyMode, ExternalProcessor};

use crate::origin::{Edge, Origin};
use crate::policies::{ask, header};
use crate::proc_messages::{self as proto, REQUEST_BODY, REQUEST_HEAD, RESPONSE_BODY, RESPONSE_HEAD, reply};
use crate::proc_service::{Action, answering, outcomes, policy, processed, processing, with_bodies};
use crate::support::chunked;

on_every_backend! {
    heads_are_changed,
    fields_of_the_gateway_are_not_changed,
    clients_cannot_send_guarded_headers,
    an_immediate_response_replaces_the_request,
    an_immediate_response_replaces_the_response,
    whole_bodies_are_changed_with_their_heads,
    bodies_are_changed_in_pieces,
    bodies_are_replaced,
    a_body_that_is_too_long,
    a_service_chooses_a_mode,
    a_service_that_ends_its_stream_receives_no_more,
    a_service_requests_more_time,
}

fn post(edge: &Edge, body: &str) -> crate::support::Answer {
    let length = body.len();
    edge.server.ask(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

fn heads_are_changed(engine: Config) {
    let origin = answering();
    let processor = processing(|message| {
        Action::Reply(match message.part {
            REQUEST_HEAD => {
                for (name, value) in [
                    (":method", "GET"),
                    (":path", "/c?d=e"),
                    (":authority", "shop.example"),
                    (":scheme", "http"),
                    ("x-tenant", "one,two"),
                    ("x-forwarded-for", "192.0.2.7"),
                    ("x-forwarded-proto", "http"),
                ] {
                    assert_eq!(message.get(name), Some(value), "{name}");
                }
                for name in ["connection", "x-hidden", "host"] {
                    assert_eq!(message.get(name), None, "{name}");
                }
                assert!(message.is_end);
                assert_eq!(message.protocol, Some((0, 0)));
                reply(
                    REQUEST_HEAD,
                    &[proto::headers(&[
                        proto::set("X-User", "ada"),
                        proto::append("x-tenant", "three"),
                        proto::remove("Authorization"),
                        proto::set(":path", "/changed?x"),
                    ])],
                )
            }
            RESPONSE_HEAD => {
                assert_eq!(
                    (message.get(":status"), message.get("x-old")),
                    (Some("200"), Some("1"))
                );
                assert!(message.protocol.is_none() && !message.is_end);
                reply(
                    RESPONSE_HEAD,
                    &[proto::headers(&[
                        proto::remove("x-old"),
                        proto::set("x-new", "2"),
                        proto::set(":status", "201"),
                    ])],
                )
            }
            part => panic!("expected no message {part}"),
        })
    });
    let edge = processed(engine, &origin, processor.addr, policy());
    let answer = edge.server.ask(
        "GET /a/../c?d=e HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\nX-Tenant: one\r\nX-Tenant: two\r\n\
         X-User: root\r\nAuthorization: Bearer t\r\nX-Hidden: 1\r\nConnection: x-hidden\r\n\r\n",
    );
    answer.expect(201, "answer");
    assert_eq!((answer.field("x-new"), answer.field("x-old")), (Some("2"), None));
    let seen = origin.seen();
    assert_eq!(seen.line(), "GET /changed?x HTTP/1.1");
    for (name, value) in [
        ("x-user", Some("ada")),
        ("x-tenant", Some("one | two | three")),
        ("authorization", None),
    ] {
        assert_eq!(seen.field(name).as_deref(), value, "{name}");
    }
    assert_eq!(outcomes(&edge), [2, 0, 0]);
    edge.server.shut_down();
}

fn fields_of_the_gateway_are_not_changed(engine: Config) {
    let origin = answering();
    let processor = processing(|message| {
        let changes = [
            proto::set("host", "admin.example"),
            proto::set(":authority", "admin.example"),
            proto::set(":method", "DELETE"),
            proto::set("content-length", "3"),
            proto::set("x-forwarded-for", "10.0.0.1"),
            proto::set("transfer-encoding", "gzip"),
            proto::remove("x-forwarded-for"),
            proto::set("x-user", "ada"),
        ];
        Action::Reply(reply(message.part, &[proto::headers(&changes)]))
    });
    let edge = processed(engine, &origin, processor.addr, policy());
    let answer = ask(&edge, "GET", "");
    answer.expect(200, "answer");
    assert_eq!(answer.field("content-length"), Some("6"));
    let seen = origin.seen();
    assert_eq!(seen.line(), "GET / HTTP/1.1");
    for (name, value) in [("host", "a"), ("x-forwarded-for", "127.0.0.1"), ("x-user", "ada")] {
        assert_eq!(seen.field(name).as_deref(), Some(value), "{name}");
    }
    edge.server.shut_down();
}

fn clients_cannot_send_guarded_headers(engine: Config) {
    let origin = Origin::echo();
    let processor = processing(|message| {
        assert_eq!(message.get("x-user"), None, "the client's value is not a fact");
        Action::Reply(reply(message.part, &[]))
    });
    let policy = ExternalProcessor {
        upstream_headers: vec![header("X-User")],
        ..policy()
    };
    let edge = processed(engine, &origin, processor.addr, policy);
    assert_eq!(ask(&edge, "GET", "X-User: root\r\nx_user: root\r\n").status, 200);
    let seen = origin.seen();
    assert_eq!((seen.field("x-user"), seen.field("x_user")), (None, None));
    edge.server.shut_down();
}

fn an_immediate_response_replaces_the_request(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is forwarded"));
    let processor = processing(|message| {
        assert_eq!(message.part, REQUEST_HEAD, "nothing follows");
        let changes = [proto::set("X-Why", "policy"), proto::set("content-length", "1")];
        Action::Reply(match message.get(":path") {
            Some("/login") => proto::immediate(302, &[proto::set("location", "https://id.example/")], ""),
            _ => proto::immediate(403, &changes, "no"),
        })
    });
    let edge = processed(engine, &origin, processor.addr, policy());
    let refused = edge.server.get("/");
    refused.expect(403, "no");
    for (name, value) in [
        ("x-why", "policy"),
        ("content-type", "text/plain"),
        ("content-length", "2"),
    ] {
        assert_eq!(refused.field(name), Some(value), "{name}");
    }
    let login = edge.server.get("/login");
    login.expect(302, "");
    assert_eq!(login.field("location"), Some("https://id.example/"));
    assert_eq!(outcomes(&edge), [0, 2, 0]);
    edge.server.shut_down();
}

fn an_immediate_response_replaces_the_response(engine: Config) {
    for (mode, part) in [
        (BodyMode::None, RESPONSE_HEAD),
        (BodyMode::Buffered, RESPONSE_BODY),
    ] {
        let origin = answering();
        let processor = processing(move |message| {
            Action::Reply(match message.part == part {
                true => proto::immediate(451, &[], "not here"),
                false => reply(message.part, &[]),
            })
        });
        let edge = processed(engine.clone(), &origin, processor.addr, with_bodies(mode));
        let answer = ask(&edge, "GET", "");
        answer.expect(451, "not here");
        assert_eq!(answer.field("x-old"), None);
        edge.server.shut_down();
    }
}

fn whole_bodies_are_changed_with_their_heads(engine: Config) {
    let origin = answering();
    let processor = processing(|message| {
        Action::Reply(match message.part {
            REQUEST_BODY | RESPONSE_BODY => {
                assert!(message.is_end, "it is whole");
                let changes = proto::headers(&[proto::set("x-length", &message.body.len().to_string())]);
                let body = proto::body(&message.body.to_ascii_uppercase());
                reply(message.part, &[changes, body])
            }
            part => reply(part, &[]),
        })
    });
    let edge = processed(engine, &origin, processor.addr, with_bodies(BodyMode::Buffered));
    let chunks = chunked(b"some words", 3);
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = edge.server.ask([&head[..], &chunks].concat());
    answer.expect(200, "ANSWER");
    assert_eq!(
        (answer.field("x-length"), answer.field("content-length")),
        (Some("6"), Some("6"))
    );
    let seen = origin.seen();
    assert_eq!(&seen.body[..], b"SOME WORDS");
    assert_eq!(seen.field("x-length").as_deref(), Some("10"));
    // A request without a body has no message for one.
    assert_eq!(ask(&edge, "GET", "").status, 200);
    assert_eq!(outcomes(&edge), [4 + 3, 0, 0]);
    edge.server.shut_down();
}

fn bodies_are_changed_in_pieces(engine: Config) {
    let origin = answering();
    let processor = processing(|message| {
        Action::Reply(match message.part {
            REQUEST_BODY if message.body.contains(&b'-') => reply(message.part, &[proto::clear_body()]),
            REQUEST_BODY | RESPONSE_BODY => {
                let mut body = message.body.to_ascii_uppercase();
                body.extend_from_slice(if message.is_end { b"!" } else { b"" });
                reply(message.part, &[proto::body(&body)])
            }
            part => reply(part, &[]),
        })
    });
    let edge = processed(engine, &origin, processor.addr, with_bodies(BodyMode::Streamed));
    let mut client = edge.server.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in ["5\r\nsome \r\n", "5\r\nwords\r\n", "0\r\n\r\n"] {
        client.send(chunk);
    }
    let answer = client.answer();
    answer.expect(200, "ANSWER!");
    assert_eq!(&origin.seen().body[..], b"SOME WORDS!");
    // A body that is not changed arrives as it is.
    post(&edge, "dropped-").expect(200, "ANSWER!");
    assert!(matches!(&origin.seen().body[..], b"" | b"!"));
    edge.server.shut_down();
}

fn bodies_are_replaced(engine: Config) {
    let origin = answering();
    let processor = processing(|message| {
        assert!(
            matches!(message.part, REQUEST_HEAD | RESPONSE_HEAD),
            "the body is replaced"
        );
        Action::Reply(reply(message.part, &[proto::replace(), proto::body(b"replaced")]))
    });
    for mode in [BodyMode::None, BodyMode::Buffered, BodyMode::Streamed] {
        let edge = processed(engine.clone(), &origin, processor.addr, with_bodies(mode));
        post(&edge, "some words").expect(200, "replaced");
        assert_eq!(&origin.seen().body[..], b"replaced");
        // A request without a body cannot be given one.
        assert_eq!(ask(&edge, "GET", "").status, 503);
        edge.server.shut_down();
    }
}

fn a_body_that_is_too_long(engine: Config) {
    let origin = answering();
    let processor = processing(|message| Action::Reply(reply(message.part, &[])));
    let edge = processed(engine, &origin, processor.addr, with_bodies(BodyMode::Buffered));
    assert_eq!(post(&edge, &"x".repeat(FILTER_HELD_BYTES + 1)).status, 413);
    assert_eq!(post(&edge, &"x".repeat(FILTER_HELD_BYTES)).status, 200);
    edge.server.shut_down();
}

fn a_service_chooses_a_mode(engine: Config) {
    for is_allowed in [true, false] {
        let origin = answering();
        let processor = processing(|message| {
            Action::Reply(match message.part {
                REQUEST_HEAD => [reply(REQUEST_HEAD, &[]), proto::mode(2, 2, 1)].concat(),
                part => reply(part, &[proto::body(&message.body.to_ascii_uppercase())]),
            })
        });
        let policy = ExternalProcessor {
            allow_mode_override: is_allowed,
            ..policy()
        };
        let edge = processed(engine.clone(), &origin, processor.addr, policy);
        let answer = post(&edge, "words");
        answer.expect(200, if is_allowed { "ANSWER" } else { "answer" });
        let expect: &[u8] = if is_allowed { b"WORDS" } else { b"words" };
        assert_eq!(&origin.seen().body[..], expect);
        edge.server.shut_down();
    }
    // One that is not supported.
    let origin = Origin::new(|_| panic!("no request is forwarded"));
    let processor =
        processing(|message| Action::Reply([reply(message.part, &[]), proto::mode(0, 4, 0)].concat()));
    let policy = ExternalProcessor {
        allow_mode_override: true,
        ..policy()
    };
    let edge = processed(engine, &origin, processor.addr, policy);
    assert_eq!(post(&edge, "words").status, 503);
    edge.server.shut_down();
}

fn a_service_that_ends_its_stream_receives_no_more(engine: Config) {
    let origin = answering();
    let processor = processing(|message| {
        assert_eq!(message.part, REQUEST_HEAD);
        Action::End
    });
    let edge = processed(engine, &origin, processor.addr, with_bodies(BodyMode::Buffered));
    post(&edge, "words").expect(200, "answer");
    assert_eq!(&origin.seen().body[..], b"words");
    assert_eq!(outcomes(&edge), [1, 0, 0]);
    edge.server.shut_down();
}

fn a_service_requests_more_time(engine: Config) {
    // The response never arrives: only the request for more time decides after which time the request fails. It is ignored where it is
    // not allowed, too long, or not the first.
    for (most, seconds) in [(None, 3600), (Some(Duration::from_millis(20)), 3600)] {
        let origin = Origin::new(|_| panic!("no request is forwarded"));
        let processor =
            processing(move |_| Action::Replies(vec![proto::more_time(seconds), proto::more_time(seconds)]));
        let policy = ExternalProcessor {
            message_timeout: Duration::from_millis(20),
            max_message_timeout: most,
            ..policy()
        };
        let edge = processed(engine.clone(), &origin, processor.addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, 503);
        edge.server.shut_down();
    }
    // One that is allowed; the response follows.
    let origin = answering();
    let processor =
        processing(|message| Action::Replies(vec![proto::more_time(1), reply(message.part, &[])]));
    let policy = ExternalProcessor {
        max_message_timeout: Some(Duration::from_secs(1)),
        ..policy()
    };
    let edge = processed(engine, &origin, processor.addr, policy);
    assert_eq!(ask(&edge, "GET", "").status, 200);
    edge.server.shut_down();
}
