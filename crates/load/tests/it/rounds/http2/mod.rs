//! HTTP/2: streams, bodies under flow control, what is refused, reset and sent away.

mod calls;
mod ends;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::plan::{Extent, Pace, Plan, Protocol};
use ringmain_load::traffic::{Body, Capture, Check, FlowDraft, Request, Source, StepDraft, Test, Traffic};
use ringmain_wire::h2::Limits;

pub(crate) use self::server::{Asked, Served};
use crate::rounds::support::{Server, get, plan, round};

on_every_backend!(
    requests_on_streams,
    no_more_streams_than_the_server_takes,
    answers_in_any_order,
    at_a_rate,
    uploads_under_flow_control,
    answers_that_are_looked_at,
    captured_values_stay_with_their_stream,
    connections_made_anew,
    several_kinds_of_requests,
    heads_are_compressed,
);

/// Two connections with so many streams each.
pub(crate) fn on_streams(server: &Server, engine: Choice, streams: u32) -> Plan {
    Plan {
        protocol: Protocol::Http2,
        pipeline: streams,
        ..plan(server, engine)
    }
}

/// A server that has its own way with each connection.
pub(crate) fn serving(script: impl Fn(&mut Served<'_>, usize) + Send + Sync + 'static) -> Server {
    serving_within(Limits::INTERNET, script)
}

pub(crate) fn serving_within(
    limits: Limits,
    script: impl Fn(&mut Served<'_>, usize) + Send + Sync + 'static,
) -> Server {
    Server::new(move |peer| {
        let number = peer.number;
        script(&mut Served::new(peer, &limits), number);
    })
}

fn requests_on_streams(engine: Choice) {
    for (streams, threads) in [(1, 1), (10, 1), (100, 2)] {
        let server = serving(move |served, _| {
            served.serve();
            assert!(served.most_open <= streams as usize, "{}", served.most_open);
        });
        let plan = Plan {
            threads,
            extent: Extent::Count(500),
            ..on_streams(&server, engine, streams)
        };
        let figures = round(plan, get()).figures;
        let counts = &figures.counts;
        assert_eq!((counts.answered, counts.failed(), counts.unexpected), (500, 0, 0));
        assert_eq!(counts.statuses, BTreeMap::from([(200, 500)]));
        assert_eq!((counts.connects, figures.opening.count()), (2, 2));
        assert_eq!(counts.streams_allowed, Some(256));
        server.finish();
    }
}

/// The codec refuses what comes beyond its limit, which would be counted.
fn no_more_streams_than_the_server_takes(engine: Choice) {
    for pace in [Pace::Closed, Pace::Poisson(20_000.0)] {
        let limits = Limits {
            streams: 3,
            ..Limits::INTERNET
        };
        let server = serving_within(limits, |served, _| {
            loop {
                let asked = served.requests();
                if asked.is_empty() {
                    return;
                }
                for asked in asked {
                    served.answer(&asked, 200, "ok");
                }
            }
        });
        let plan = Plan {
            pace,
            extent: Extent::Count(300),
            ..on_streams(&server, engine, 20)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!((counts.answered, counts.failed()), (300, 0), "{counts:?}");
        assert_eq!(counts.streams_allowed, Some(3));
        server.finish();
    }
}

/// Each kind of request has a status of its own, so that one that went to another stream shows.
fn answers_in_any_order(engine: Choice) {
    let server = serving(|served, _| {
        loop {
            let mut asked = served.requests();
            if asked.is_empty() {
                return;
            }
            asked.reverse();
            for asked in asked {
                served.interim(&asked);
                let status = asked.target[1..].parse().expect("a status");
                served.answer(&asked, status, "ok");
            }
        }
    });
    let kinds = (211..=218).map(|status| {
        let mut step = step(&format!("/{status}"));
        step.request.expect.statuses = vec![status..=status];
        vec![step]
    });
    let plan = Plan {
        extent: Extent::Count(400),
        ..on_streams(&server, engine, 16)
    };
    let counts = round(plan, flows(kinds.collect())).figures.counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (400, 0, 0));
    assert_eq!(counts.statuses.len(), 8);
    server.finish();
}

fn step(target: &str) -> StepDraft {
    StepDraft {
        name: String::new(),
        request: Request::get(target, "test"),
        pause: None,
        captures: Vec::new(),
    }
}

fn flows(flows: Vec<Vec<StepDraft>>) -> Traffic {
    let drafts = flows.into_iter().map(|steps| FlowDraft {
        name: "flow".into(),
        weight: 1,
        steps,
    });
    Traffic::mix(&drafts.collect::<Vec<_>>()).expect("flows")
}

fn at_a_rate(engine: Choice) {
    for pace in [Pace::Constant(5_000.0), Pace::Poisson(5_000.0)] {
        let server = serving(|served, _| served.serve());
        let plan = Plan {
            pace,
            extent: Extent::Time(Duration::from_millis(100)),
            ..on_streams(&server, engine, 8)
        };
        let figures = round(plan, get()).figures;
        let counts = &figures.counts;
        if matches!(pace, Pace::Constant(_)) {
            assert_eq!(counts.sent + counts.dropped, 500);
        }
        assert_eq!(counts.failed(), 0);
        assert!(figures.response.max() >= figures.service.max());
        server.finish();
    }
}

/// Longer than windows and than what a connection may leave unsent, several at once; and short ones.
fn uploads_under_flow_control(engine: Choice) {
    for (length, stream_window) in [(3 << 20, 100_000), (100_000, 20_000), (5, 1_000)] {
        let limits = Limits {
            stream_window,
            connection_window: 65_535,
            ..Limits::INTERNET
        };
        let server = serving_within(limits, move |served, _| {
            while let Some(asked) = served.request() {
                assert_eq!(asked.method, "POST");
                assert_eq!(asked.body.len(), length, "all of it");
                assert!(asked.body.iter().all(|byte| *byte == b'u'));
                served.answer(&asked, 201, "kept");
            }
        });
        let mut request = Request::get("/", "test");
        request.method = "POST".into();
        request.body = Body::Bytes(vec![b'u'; length].into());
        let plan = Plan {
            extent: Extent::Count(12),
            ..on_streams(&server, engine, 4)
        };
        let counts = round(plan, Traffic::single(request).expect("a request"))
            .figures
            .counts;
        assert_eq!((counts.answered, counts.failed()), (12, 0), "{counts:?}");
        assert_eq!(counts.statuses, BTreeMap::from([(201, 12)]));
        assert!(counts.bytes_sent >= 12 * length as u64);
        server.finish();
    }
}

/// Bodies in pieces, and longer than a window; fields; trailers.
fn answers_that_are_looked_at(engine: Choice) {
    let server = serving(|served, _| {
        while let Some(asked) = served.request() {
            let body = "x".repeat(700_000) + "needle";
            let fields = [("X-Kind", "good")];
            match asked.target.as_str() {
                "/long" => served.answer_with(&asked, 200, &fields, body.as_bytes()),
                "/empty" => served.answer_with(&asked, 200, &fields, b""),
                "/other" => served.answer_with(&asked, 200, &[("X-Kind", "bad")], b"needle"),
                _ => served.answer_with_trailers(&asked, b"needle", &[("X-Sum", "1")]),
            }
        }
    });
    let looked = |target: &str, fields: bool, body: bool| {
        let mut request = Request::get(target, "test");
        if fields {
            request.expect.checks.push(Check::Header {
                name: "x-kind".into(),
                test: Test::Equals("good".into()),
            });
        }
        if body {
            let test = Test::Contains("needle".into());
            request.expect.checks.push(Check::Body(test));
        }
        Traffic::single(request).expect("a request")
    };
    for (target, fields, body, right) in [
        ("/long", true, true, true),
        ("/long", false, true, true),
        ("/long", true, false, true),
        ("/empty", true, false, true),
        ("/empty", false, true, false),
        ("/other", false, true, true),
        ("/other", true, true, false),
        ("/other", true, false, false),
        ("/trailers", false, true, true),
        ("/trailers", true, true, false),
    ] {
        let plan = Plan {
            extent: Extent::Count(20),
            ..on_streams(&server, engine, 3)
        };
        let counts = round(plan, looked(target, fields, body)).figures.counts;
        let wrong = if right { 0 } else { 20 };
        assert_eq!(
            (counts.answered, counts.unexpected, counts.failed()),
            (20, wrong, 0),
            "{target} {fields} {body}"
        );
    }
    server.finish();
}

/// Streams of one connection log in at once; each shows what it was given itself.
fn captured_values_stay_with_their_stream(engine: Choice) {
    let logins = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&logins);
    let server = serving(move |served, _| {
        let mut shown: BTreeMap<String, usize> = BTreeMap::new();
        while let Some(asked) = served.request() {
            if asked.target == "/login" {
                let token = format!("t{}", count.fetch_add(1, Ordering::SeqCst));
                served.answer(&asked, 200, &format!("{{\"token\":\"{token}\"}}"));
                continue;
            }
            let token = asked.target.strip_prefix("/show/").expect("the other step");
            assert!(!token.is_empty());
            let bearer = ("authorization".to_owned(), format!("Bearer {token}"));
            assert!(asked.fields.contains(&bearer), "{:?}", asked.fields);
            let times = shown.entry(token.to_owned()).or_default();
            *times += 1;
            assert!(*times <= 2, "{token} belongs to one stream");
            served.answer(&asked, 200, "shown");
        }
    });
    let mut login = step("/login");
    login.captures = vec![Capture {
        name: "token".into(),
        from: Source::Json("/token".into()),
    }];
    let mut show = step("/show/{{value:token}}");
    show.request.headers = vec![("Authorization".into(), "Bearer {{value:token}}".into())];
    let mut later = show.clone();
    later.pause = Some(Duration::from_millis(1));
    let plan = Plan {
        extent: Extent::Count(300),
        ..on_streams(&server, engine, 10)
    };
    let counts = round(plan, flows(vec![vec![login, show, later]])).figures.counts;
    assert_eq!((counts.unexpected, counts.failed()), (0, 0), "{counts:?}");
    assert!(counts.answered >= 300);
    assert!(logins.load(Ordering::SeqCst) >= 100);
    server.finish();
}

fn connections_made_anew(engine: Choice) {
    let server = serving(|served, _| served.serve());
    for streams in [1, 4] {
        let plan = Plan {
            reconnect_after: Some(10),
            connections: 1,
            extent: Extent::Count(100),
            ..on_streams(&server, engine, streams)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!((counts.answered, counts.failed()), (100, 0), "{counts:?}");
        assert!((10..=11).contains(&counts.connects), "{counts:?}");
    }
    server.finish();
}

/// With tokens and without, methods and fields of all kinds: each arrives as it was written.
fn several_kinds_of_requests(engine: Choice) {
    let server = serving(|served, _| {
        while let Some(asked) = served.request() {
            let field = |name: &str| asked.fields.iter().find(|field| field.0 == name);
            let said = (asked.method.as_str(), asked.target.as_str());
            assert_eq!(asked.authority, "test");
            assert_eq!(field("x-plain").map(|field| field.1.as_str()), Some("Plain"));
            let length = field("content-length").map(|field| field.1.parse());
            match said {
                ("HEAD", "/head") => assert_eq!(length, None),
                ("POST", "/none") => assert_eq!(length, Some(Ok(0))),
                ("PUT", target) if target.starts_with("/put?id=") => {
                    assert_eq!(length, Some(Ok(asked.body.len())));
                    let body = String::from_utf8(asked.body.clone()).expect("text");
                    assert_eq!(body.strip_prefix("number "), target.strip_prefix("/put?id="));
                }
                other => panic!("{other:?}"),
            }
            if said.0 == "HEAD" {
                served.answer_with(&asked, 200, &[], b"");
            } else {
                served.answer(&asked, 200, "ok");
            }
        }
    });
    let with = |method: &str, target: &str, body: Body| {
        let mut step = step(target);
        step.request.method = method.into();
        step.request.headers = vec![("X-Plain".into(), "Plain".into())];
        step.request.body = body;
        step
    };
    let mut put = with(
        "PUT",
        "/put?id={{value:id}}",
        Body::Text("number {{value:id}}".into()),
    );
    put.pause = None;
    let mut head = with("HEAD", "/head", Body::None);
    head.captures = vec![Capture {
        name: "id".into(),
        from: Source::Header("content-length".into()),
    }];
    let traffic = flows(vec![vec![head, put], vec![with("POST", "/none", Body::None)]]);
    let plan = Plan {
        extent: Extent::Count(200),
        ..on_streams(&server, engine, 5)
    };
    let counts = round(plan, traffic).figures.counts;
    assert_eq!((counts.failed(), counts.unexpected), (0, 0), "{counts:?}");
    server.finish();
}

/// What is the same each time costs a few bytes.
fn heads_are_compressed(engine: Choice) {
    let server = serving(|served, _| served.serve());
    let mut request = Request::get(
        "/a/rather/long/path?with=a&query=of&some=length",
        "a.rather.long.name.example",
    );
    request.headers = vec![
        ("User-Agent".into(), "one with a long name/1.0".into()),
        ("Accept".into(), "text/html,application/xhtml+xml".into()),
    ];
    let plan = Plan {
        extent: Extent::Count(1_000),
        ..on_streams(&server, engine, 1)
    };
    let counts = round(plan, Traffic::single(request).expect("a request"))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.failed()), (1_000, 0));
    let each = counts.bytes_sent / 1_000;
    assert!(each < 20, "{each} bytes a request");
    server.finish();
}
