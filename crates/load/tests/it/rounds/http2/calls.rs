//! gRPC: how calls end, and the messages of their answers.

use std::collections::BTreeMap;

use ringmain_engine::Choice;
use ringmain_load::plan::{Extent, Grpc, Plan, Protocol};
use ringmain_load::report::Round;
use ringmain_load::traffic::{Body, Request, Traffic};

use super::{Asked, Served, on_streams, serving};
use crate::rounds::support::round;

on_every_backend!(
    unary_calls,
    calls_that_end_otherwise,
    answers_that_are_no_calls,
    streams_of_messages,
);

const MESSAGE: &[u8] = b"\0\0\0\0\x03abc";

/// A round of twenty calls to a server that answers so.
fn called(
    engine: Choice,
    kind: Grpc,
    answer: impl Fn(&mut Served<'_>, &Asked) + Send + Sync + 'static,
) -> Round {
    let server = serving(move |served, _| {
        while let Some(asked) = served.request() {
            assert_eq!((asked.method.as_str(), asked.target.as_str()), ("POST", "/a.B/C"));
            assert_eq!(asked.body, MESSAGE);
            let te = ("te".to_owned(), "trailers".to_owned());
            assert!(asked.fields.contains(&te), "{:?}", asked.fields);
            answer(served, &asked);
        }
    });
    let mut request = Request::get("/a.B/C", "test");
    request.method = "POST".into();
    request.headers = vec![
        ("content-type".into(), "application/grpc".into()),
        ("te".into(), "trailers".into()),
    ];
    request.body = Body::Bytes(MESSAGE.into());
    let plan = Plan {
        protocol: Protocol::Grpc(kind),
        extent: Extent::Count(20),
        ..on_streams(&server, engine, 4)
    };
    let round = round(plan, Traffic::single(request).expect("a request"));
    server.finish();
    let counts = &round.figures.counts;
    assert_eq!((counts.answered, counts.failed()), (20, 0), "{counts:?}");
    assert_eq!(counts.codes.values().sum::<u64>(), 20);
    round
}

const OK: &[(&str, &str)] = &[("grpc-status", "0")];

fn unary_calls(engine: Choice) {
    let round = called(engine, Grpc::Unary, |served, asked| {
        served.answer_with_trailers(asked, MESSAGE, OK);
    });
    let counts = &round.figures.counts;
    assert_eq!((counts.unexpected, counts.messages), (0, 20));
    assert_eq!(counts.codes, BTreeMap::from([("OK", 20)]));
    assert_eq!(round.figures.streamed, None);
}

fn calls_that_end_otherwise(engine: Choice) {
    for (status, name) in [
        ("14", "UNAVAILABLE"),
        ("4", "DEADLINE_EXCEEDED"),
        ("99", "UNKNOWN"),
    ] {
        for alone in [true, false] {
            let round = called(engine, Grpc::Unary, move |served, asked| {
                let status = [("grpc-status", status)];
                if alone {
                    // Trailers that are all there is stand in the head.
                    served.answer_without_length(asked, 200, &status);
                } else {
                    served.answer_with_trailers(asked, b"", &status);
                }
            });
            let counts = &round.figures.counts;
            assert_eq!((counts.unexpected, counts.messages), (20, 0));
            assert_eq!(counts.codes, BTreeMap::from([(name, 20)]));
        }
    }
}

/// Something else than a message, or not as many as there should be; a server that speaks no gRPC.
fn answers_that_are_no_calls(engine: Choice) {
    let two = [MESSAGE, MESSAGE].concat();
    type Fields = &'static [(&'static str, &'static str)];
    let cases: [(&[u8], Fields, &str); 6] = [
        (&two, OK, "OK"),
        (b"", OK, "OK"),
        (b"\0\0\0\0\x05abc", OK, "INTERNAL"),
        (b"\x01\0\0\0\x03abc", OK, "INTERNAL"),
        (b"\x7F\0\0\0\x03abc", OK, "INTERNAL"),
        (MESSAGE, &[("x", "y")], "UNKNOWN"),
    ];
    for (body, trailers, code) in cases {
        let body = body.to_vec();
        let round = called(engine, Grpc::Unary, move |served, asked| {
            served.answer_with_trailers(asked, &body, trailers);
        });
        let counts = &round.figures.counts;
        assert_eq!(counts.unexpected, 20, "{counts:?}");
        assert_eq!(counts.codes, BTreeMap::from([(code, 20)]));
    }
    let round = called(engine, Grpc::Unary, |served, asked| {
        served.answer(asked, 404, "what?")
    });
    let counts = &round.figures.counts;
    assert_eq!(counts.codes, BTreeMap::from([("UNIMPLEMENTED", 20)]));
    assert_eq!(counts.unexpected, 20);
}

fn streams_of_messages(engine: Choice) {
    let round = called(engine, Grpc::ServerStreaming, |served, asked| {
        served.answer_with_trailers(asked, &MESSAGE.repeat(5), OK);
    });
    let counts = &round.figures.counts;
    assert_eq!((counts.unexpected, counts.messages), (0, 100));
    let streamed = round.figures.streamed.expect("messages came");
    assert_eq!((streamed.first.count(), streamed.between.count()), (20, 80));
    assert!(streamed.first.max() <= round.figures.service.max());
    let none = called(engine, Grpc::ServerStreaming, |served, asked| {
        served.answer_with_trailers(asked, b"", OK);
    });
    assert_eq!(
        (none.figures.counts.unexpected, none.figures.counts.messages),
        (0, 0)
    );
}
