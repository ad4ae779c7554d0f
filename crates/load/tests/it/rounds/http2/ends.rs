//! How streams and connections of HTTP/2 end that do not end well: each is counted by what it was, and the rest goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::plan::{self, Extent, Plan};
use ringmain_load::run::{RunError, Session};
use ringmain_load::traffic::{Body, Request, Traffic};
use ringmain_tls::{Acceptor, ClientSettings, DevCertificate, ServerSettings, Trust};
use ringmain_wire::h2::{ErrorCode, Limits};

use super::{Served, on_streams, serving};
use crate::rounds::support::{Server, get, round};

on_every_backend!(
    streams_that_are_reset,
    answers_that_stop,
    a_server_that_goes_away_in_peace,
    a_server_that_goes_away_at_once,
    a_server_that_refuses_every_second_stream,
    a_server_that_refuses_everything,
    a_server_that_goes_away_in_anger,
    connections_that_end_within_answers,
    a_stream_that_is_never_answered,
    a_server_that_falls_silent,
    an_upload_that_is_answered_early,
    rules_that_are_broken,
    servers_that_speak_something_else,
    over_tls,
    tls_without_http2,
);

fn streams_that_are_reset(engine: Choice) {
    for (code, what) in [
        (ErrorCode::CANCEL, "RST_STREAM: CANCEL"),
        (ErrorCode::INTERNAL_ERROR, "RST_STREAM: INTERNAL_ERROR"),
        (ErrorCode(77), "RST_STREAM: another code"),
    ] {
        let server = serving(move |served, _| {
            let mut number = 0;
            while let Some(asked) = served.request() {
                number += 1;
                if number % 4 == 0 {
                    served.reset(&asked, code);
                } else {
                    served.answer(&asked, 200, "ok");
                }
            }
        });
        let plan = Plan {
            connections: 1,
            extent: Extent::Count(100),
            ..on_streams(&server, engine, 5)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!(counts.broken, BTreeMap::from([(what, 25)]));
        assert_eq!((counts.answered, counts.connects), (75, 1), "{counts:?}");
        server.finish();
    }
}

/// Half of an answer, then the end of its stream.
fn answers_that_stop(engine: Choice) {
    let server = serving(|served, _| {
        while let Some(asked) = served.request() {
            served.half_answer(&asked);
            served.reset(&asked, ErrorCode::CANCEL);
        }
    });
    let counts = round(on_streams(&server, engine, 3), get()).figures.counts;
    assert_eq!(counts.broken, BTreeMap::from([("RST_STREAM: CANCEL", 10)]));
    assert_eq!(counts.connects, 2);
    server.finish();
}

/// Every fifth request is answered behind a GOAWAY; what came before it is answered, too.
fn a_server_that_goes_away_in_peace(engine: Choice) {
    let server = serving(|served, _| {
        let mut number = 0;
        while let Some(asked) = served.request() {
            number += 1;
            if number == 5 {
                served.go_away();
            }
            served.answer(&asked, 200, "ok");
        }
    });
    let plan = Plan {
        extent: Extent::Count(60),
        ..on_streams(&server, engine, 1)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (60, 0), "{counts:?}");
    assert!(counts.connects >= 12, "{counts:?}");
    server.finish();
}

/// A request behind the last processed stream is sent again on the next connection (RFC 9113 §6.8).
fn a_server_that_goes_away_at_once(engine: Choice) {
    let server = Server::new(|peer| {
        let mut served = Served::new(peer, &Limits::INTERNET);
        let Some(asked) = served.request() else {
            return;
        };
        // By hand: only the first stream was taken.
        let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
        served.peer.send(frame);
        served.answer(&asked, 200, "ok");
        served.peer.wait();
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(40),
        ..on_streams(&server, engine, 4)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(
        (counts.sent, counts.answered, counts.failed()),
        (40, 40, 0),
        "{counts:?}"
    );
    assert!(counts.connects >= 40, "one response a connection: {counts:?}");
    // Three of four are sent again on each connection but the last three.
    assert_eq!(counts.unprocessed, 3 * 37 + 2 + 1, "{counts:?}");
    server.finish();
}

/// A stream that the server refuses was not processed (RFC 9113 §8.7).
fn a_server_that_refuses_every_second_stream(engine: Choice) {
    let server = serving(|served, _| {
        let mut number = 0;
        while let Some(asked) = served.request() {
            number += 1;
            match number % 2 {
                1 => served.reset(&asked, ErrorCode::REFUSED_STREAM),
                _ => served.answer(&asked, 200, "ok"),
            }
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(20),
        ..on_streams(&server, engine, 1)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(
        (counts.sent, counts.answered, counts.failed()),
        (20, 20, 0),
        "{counts:?}"
    );
    assert_eq!((counts.unprocessed, counts.connects), (20, 1), "{counts:?}");
    server.finish();
}

/// A server that never processes anything is given up in the end.
fn a_server_that_refuses_everything(engine: Choice) {
    let server = serving(|served, _| {
        while let Some(asked) = served.request() {
            served.reset(&asked, ErrorCode::REFUSED_STREAM);
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(3),
        ..on_streams(&server, engine, 1)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(
        (counts.sent, counts.answered, counts.failed()),
        (3, 0, 3),
        "{counts:?}"
    );
    assert_eq!(
        counts.unprocessed,
        3 * u64::from(ringmain_load::limits::RESENDS),
        "{counts:?}"
    );
    server.finish();
}

fn a_server_that_goes_away_in_anger(engine: Choice) {
    let server = serving(|served, number| {
        if number == 0 {
            served.requests();
            served.abandon(ErrorCode::ENHANCE_YOUR_CALM);
        } else {
            served.serve();
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(40),
        ..on_streams(&server, engine, 4)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(counts.broken, BTreeMap::from([("GOAWAY: ENHANCE_YOUR_CALM", 4)]));
    assert_eq!((counts.answered, counts.connects), (36, 2));
    server.finish();
}

fn connections_that_end_within_answers(engine: Choice) {
    for (half, what) in [
        (true, "closed within a response"),
        (false, "closed without a response"),
    ] {
        let server = serving(move |served, number| {
            if number > 0 {
                return served.serve();
            }
            let asked = served.request().expect("a request");
            if half {
                served.half_answer(&asked);
            }
        });
        let plan = Plan {
            connections: 1,
            extent: Extent::Count(20),
            ..on_streams(&server, engine, 1)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!(counts.broken, BTreeMap::from([(what, 1)]));
        assert_eq!((counts.answered, counts.connects), (19, 2));
        server.finish();
    }
}

/// It is given up alone: the connection goes on, and the server is told.
fn a_stream_that_is_never_answered(engine: Choice) {
    let server = serving(|served, _| {
        let first = served.request().expect("a request");
        served.serve();
        assert!(served.resets >= 1, "{first:?} was given up");
    });
    let plan = Plan {
        connections: 1,
        // Long enough that a busy machine answers the others within it.
        timeout: Duration::from_secs(3),
        extent: Extent::Count(20),
        ..on_streams(&server, engine, 2)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(
        (counts.timeouts, counts.answered, counts.connects),
        (1, 19, 1),
        "{counts:?}"
    );
    assert!(counts.broken.is_empty(), "{counts:?}");
    server.finish();
}

/// Nothing comes any more: the connection is given up with all that is under way on it.
fn a_server_that_falls_silent(engine: Choice) {
    let server = serving(|served, number| {
        if number > 0 {
            return served.serve();
        }
        served.request();
        served.peer.wait();
    });
    let plan = Plan {
        connections: 1,
        // Far longer than a busy machine takes for the responses of the second connection.
        timeout: Duration::from_secs(2),
        extent: Extent::Count(20),
        ..on_streams(&server, engine, 4)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.timeouts, counts.connects), (4, 2), "{counts:?}");
    assert_eq!((counts.answered, counts.failed()), (16, 4));
    server.finish();
}

/// The rest of the body is not sent (RFC 9113 §8.1).
fn an_upload_that_is_answered_early(engine: Choice) {
    let server = serving(|served, _| served.refuse_uploads());
    let mut request = Request::get("/", "test");
    request.method = "POST".into();
    request.body = Body::Bytes(vec![b'u'; 1 << 20].into());
    request.expect.statuses = vec![413..=413];
    let counts = round(
        on_streams(&server, engine, 2),
        Traffic::single(request).expect("a request"),
    )
    .figures
    .counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (10, 0, 0));
    assert_eq!(counts.connects, 2);
    server.finish();
}

fn rules_that_are_broken(engine: Choice) {
    // Data on a stream that nobody has opened, and a header block that is none.
    let data: &[u8] = &[0, 0, 1, 0, 0, 0, 0, 0, 99, b'x'];
    let block: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0xFF];
    for (frame, said) in [(data, "RFC 9113 §5.1"), (block, "RFC 7541")] {
        let server = serving(move |served, number| {
            if number > 0 {
                return served.serve();
            }
            served.request();
            served.peer.send(frame);
            served.peer.wait();
        });
        let plan = Plan {
            connections: 1,
            ..on_streams(&server, engine, 3)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!(counts.broken, BTreeMap::from([("HTTP/2: broke the protocol", 3)]));
        let first = &counts.first_errors["HTTP/2: broke the protocol"];
        assert!(first.contains(said), "{first}");
        assert_eq!((counts.answered, counts.connects), (7, 2));
        server.finish();
    }
}

/// The round of this plan comes to nothing, and says this.
fn check_refused(plan: Plan, said: &str) {
    let session = Session::new(plan, get()).expect("a plan");
    match session.round(0, None, &mut |_| ()) {
        Err(error @ RunError::NotConnected { .. }) => {
            let text = error.to_string();
            assert!(text.contains(said), "expected `{said}` in: {text}");
        }
        other => panic!("{other:?}"),
    }
}

fn servers_that_speak_something_else(engine: Choice) {
    let answers: [(&[u8], &str); 3] = [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            "in HTTP/1.1 to a request over HTTP/2",
        ),
        (b"220 mail.example ESMTP\r\n", "frames of at most 16,384 bytes"),
        (
            // SETTINGS that are none, then nothing.
            &[0, 0, 1, 4, 0, 0, 0, 0, 0, 0],
            "a length that fits the frame's type",
        ),
    ];
    for (bytes, said) in answers {
        let server = Server::new(move |peer| {
            if !peer.bytes().is_empty() {
                peer.send(bytes);
                peer.wait();
            }
        });
        check_refused(on_streams(&server, engine, 1), said);
        server.finish();
    }
}

fn made() -> DevCertificate {
    DevCertificate::new(&[], ringmain_sys::clock::realtime()).expect("names")
}

/// Whose server speaks this.
fn acceptor(made: &DevCertificate, alpn: &[&[u8]]) -> Acceptor {
    let settings = ServerSettings {
        certificates: vec![made.pair.clone()],
        alpn: alpn.iter().map(|name| name.to_vec()).collect(),
        ..ServerSettings::default()
    };
    Acceptor::new(&settings, ringmain_sys::clock::realtime()).expect("settings in order")
}

fn asking(made: &DevCertificate) -> Option<plan::Tls> {
    let mut settings = ClientSettings::new(Trust::Authorities(made.authority.clone()));
    settings.alpn = vec![b"h2".to_vec()];
    Some(plan::Tls {
        settings: Arc::new(settings),
        name: "localhost".into(),
    })
}

fn over_tls(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made, &[b"h2", b"http/1.1"]), |peer| {
        Served::new(peer, &Limits::INTERNET).serve();
    });
    let plan = Plan {
        tls: asking(&made),
        extent: Extent::Count(200),
        ..on_streams(&server, engine, 10)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (200, 0), "{counts:?}");
    assert_eq!((counts.connects, counts.tls_handshakes()), (2, 2));
    server.finish();
}

/// One that agrees on nothing, and one that has nothing in common.
fn tls_without_http2(engine: Choice) {
    let made = made();
    for (alpn, said) in [
        (&[][..], "did not negotiate HTTP/2"),
        (&[&b"http/1.1"[..]][..], "cannot connect"),
    ] {
        let server = Server::tls(&acceptor(&made, alpn), |peer| drop(peer.bytes()));
        let plan = Plan {
            tls: asking(&made),
            ..on_streams(&server, engine, 1)
        };
        check_refused(plan, said);
        server.finish();
    }
}
