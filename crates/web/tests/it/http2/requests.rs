//! Requests and answers, one and many at once.

use std::time::Duration;

use ringmain_engine::Config;
use ringmain_web::{App, Bytes, Error, ListenerProtocol};
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Limits, PREFACE};

use crate::http2::client::{Http2, fields};
use crate::support::{End, Setting, get, serve, serve_at};

in_every_way!(
    requests_are_answered_in_place_and_in_tasks,
    many_streams_at_once_are_each_answered,
    tasks_answer_in_order_of_completion,
    answers_without_a_body_have_none,
    hooks_see_and_change_every_body,
    statuses_without_content_have_none,
    an_invalid_request_resets_its_stream,
    a_head_that_is_too_large_gets_a_431,
    interim_responses_precede_the_final_one,
    trailers_follow_a_body,
    requests_of_one_connection_are_counted,
    both_protocols_share_a_port,
    a_preface_may_arrive_byte_by_byte,
);

mod alone {
    on_every_backend!(by_prior_knowledge_nothing_else_is_spoken);

    use super::by_prior_knowledge_nothing_else_is_spoken;
}

fn app() -> App {
    App::new()
        .get("/", |req, reply| {
            reply.header(
                "X-Seen",
                format!("{:?} {}", req.version(), req.host().unwrap_or_default()),
            )?;
            reply.text("root")
        })
        .get("/echo/{word}", |req, reply| reply.text(req.param("word")?))
        .get_async("/wait/{ms}", async |req, reply| {
            req.cx().sleep(Duration::from_millis(req.param_as("ms")?)).await;
            reply.text(format!(
                "{} {}",
                req.param("ms")?,
                req.header("x-said").unwrap_or("nothing")
            ))
        })
        .get("/none", |_, reply| reply.no_content())
        .get("/same", |_, reply| {
            reply.status(304);
            Ok(())
        })
        .get("/fail", |_, _| Err(Error::new(418, "a teapot")))
        .get("/panic", |_, _| panic!("in a handler"))
        .get_async("/early", async |_, reply| {
            reply.send_interim(103, &fields(&[("Link", "</a>")]))?;
            reply.text("late")
        })
        .get_async("/sum", async |_, reply| {
            reply.write("body").await?;
            reply.set_trailers(fields(&[("X-Sum", "4")]));
            Ok(())
        })
}

fn requests_are_answered_in_place_and_in_tasks(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let got = client.ask("/");
    got.expect(200, "root");
    assert_eq!(got.field("x-seen"), Some("Http2 localhost"));
    assert_eq!(got.field("content-length"), Some("4"));
    assert_eq!(got.field("content-type"), Some("text/plain; charset=utf-8"));
    assert!(got.field("date").is_some() && got.field("connection").is_none());
    client.ask("/echo/a%20b").expect(200, "a b");
    let stream = client.head("GET", "/wait/1", &fields(&[("X-Said", "hello")]), true);
    client.wait(stream).expect(200, "1 hello");
    assert_eq!(client.ask("/fail").status, 418);
    assert_eq!(client.ask("/panic").status, 500);
    assert_eq!(client.ask("/nowhere").status, 404);
    client.ask("/").expect(200, "root");
    assert_eq!(server.running.report().workers[0].accepted, 1);
}

fn many_streams_at_once_are_each_answered(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    client.ask("/");
    for _ in 0..3 {
        let streams: Vec<_> = (0..200)
            .map(|number| match number % 3 {
                0 => (
                    client.get(&format!("/wait/{}", number % 7)),
                    format!("{} nothing", number % 7),
                ),
                _ => (client.get(&format!("/echo/{number}")), number.to_string()),
            })
            .collect();
        for (stream, expected) in streams {
            client.wait(stream).expect(200, &expected);
        }
    }
}

fn tasks_answer_in_order_of_completion(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let (slow, quick) = (client.get("/wait/3600000"), client.get("/wait/1"));
    client.wait(quick).expect(200, "1 nothing");
    client.ask("/").expect(200, "root");
    assert_eq!(client.so_far(slow).status, 0);
}

fn answers_without_a_body_have_none(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    client.ask("/none").expect(204, "");
    client.ask("/same").expect(304, "");
    for path in ["/", "/wait/1", "/sum"] {
        let stream = client.head("HEAD", path, &FieldBlock::new(), true);
        let got = client.wait(stream);
        got.expect(200, "");
        let length = if path == "/sum" {
            None
        } else {
            Some(if path == "/" { "4" } else { "9" })
        };
        assert_eq!(got.field("content-length"), length, "{path}");
    }
}

/// Bodies that are copied, shared, or sent from tasks, as changed by the hook.
fn hooks_see_and_change_every_body(setting: Setting) {
    let long = Bytes::from(vec![b'x'; 100_000]);
    let later = long.clone();
    let app = App::new()
        .get("/text", |_, reply| reply.text("text"))
        .get("/long", move |_, reply| reply.bytes("text/x-own", long.clone()))
        .get_async("/later", async move |_, reply| {
            reply.bytes("text/x-own", later.clone())
        })
        .get_async("/trailers", async |_, reply| {
            reply.trailer("X-End", "yes")?;
            reply.bytes("text/x-own", Bytes::from(vec![b'x'; 50_000]))
        })
        .after(|_, reply| {
            let seen = reply.body_bytes().len().to_string();
            reply.header("X-Seen", &seen)?;
            reply.body().extend_from_slice(b"(hook)");
            Ok(())
        });
    let server = serve(setting.clone(), app);
    let mut client = Http2::new(&setting, &server);
    for (path, length) in [
        ("/text", 4),
        ("/long", 100_000),
        ("/later", 100_000),
        ("/trailers", 50_000),
    ] {
        let got = client.ask(path);
        assert_eq!(got.field("x-seen"), Some(&*length.to_string()), "{path}");
        assert_eq!(got.body.len(), length + 6, "{path}");
        assert!(got.body.ends_with(b"(hook)") && got.end, "{path}");
    }
}

/// RFC 9110 §15.3.5, §15.3.6, §15.4.5.
fn statuses_without_content_have_none(setting: Setting) {
    let app = App::new()
        .get("/plain/{status}", |req, reply| {
            reply.text("content")?;
            reply.status(req.param_as("status")?);
            Ok(())
        })
        .get_async("/pieces/{status}", async |req, reply| {
            reply.status(req.param_as("status")?);
            reply.write("one").await?;
            reply.write("two").await
        });
    let server = serve(setting.clone(), app);
    let mut client = Http2::new(&setting, &server);
    for way in ["plain", "pieces"] {
        for status in [204, 205, 304] {
            let got = client.ask(&format!("/{way}/{status}"));
            got.expect(status, "");
            assert_eq!(got.field("content-length"), None, "{way} {status}");
        }
    }
}

fn an_invalid_request_resets_its_stream(setting: Setting) {
    let server = serve(setting.clone(), app());
    // Our codec would not let it be said.
    let mut raw = Http2::new(&setting, &server).client;
    // A request with a capital letter in a field's name, then one that is right.
    let bad = b"\x00\x00\x13\x01\x05\x00\x00\x00\x01\x82\x84\x86\x41\x09localhost\x00\x01A\x01b";
    let good = b"\x00\x00\x0e\x01\x05\x00\x00\x00\x03\x82\x84\x86\x41\x09localhost";
    raw.send([&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0], &bad[..], &good[..]].concat());
    loop {
        assert!(raw.receive().expect("bytes") > 0, "the end");
        let all = raw.kept();
        let reset = b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x01";
        if all.ends_with(b"root") {
            assert!(all.windows(13).any(|bytes| bytes == reset));
            break;
        }
    }
}

fn a_head_that_is_too_large_gets_a_431(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let long = "x".repeat(17_000);
    let stream = client.head(
        "GET",
        "/",
        &fields(&[("X-Long", &long), ("X-Longer", &long)]),
        true,
    );
    assert_eq!(client.wait(stream).status, 431);
    client.ask("/").expect(200, "root");
}

fn interim_responses_precede_the_final_one(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let got = client.ask("/early");
    got.expect(200, "late");
    assert_eq!(got.interim, [103]);
}

fn trailers_follow_a_body(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let got = client.ask("/sum");
    got.expect(200, "body");
    assert_eq!(got.trailers, [("x-sum".to_owned(), "4".to_owned())]);
}

fn requests_of_one_connection_are_counted(setting: Setting) {
    let limits = ringmain_web::Limits {
        requests_per_connection: Some(3),
        ..ringmain_web::Limits::default()
    };
    let server = serve(setting.clone(), app().limits(limits));
    let mut client = Http2::new(&setting, &server);
    for _ in 0..3 {
        client.ask("/").expect(200, "root");
    }
    client.expect_end();
    assert_eq!(client.away, Some((5, ErrorCode::NO_ERROR)));
}

fn both_protocols_share_a_port(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    client.ask("/").expect(200, "root");
    server.get("/").expect(200, "root");
    let mut old = server.client();
    old.send(get("/"));
    old.answer().expect(200, "root");
    // Not at the beginning of a connection.
    old.send(PREFACE);
    assert_eq!(old.answer().status, 505);
}

fn a_preface_may_arrive_byte_by_byte(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let stream = client.get("/");
    for byte in std::mem::take(&mut client.out) {
        client.client.send([byte]);
    }
    client.wait(stream).expect(200, "root");
}

fn by_prior_knowledge_nothing_else_is_spoken(engine: Config) {
    let server = serve_at(engine, app().listener(0, ListenerProtocol::h2c()), None);
    Http2::over(server.client(), &Limits::INTERNET)
        .ask("/")
        .expect(200, "root");
    let old = get("/");
    for other in [
        &b"INVALID CONNECTION PREFACE\r\n\r\n"[..],
        old.as_bytes(),
        b"PRI * HTTP/1.1\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(other);
        let (said, end) = client.rest();
        assert_eq!(end, End::Orderly);
        // Its settings (RFC 9113 §3.4) and window are sent first, then the GOAWAY; never an HTTP/1.1 response.
        let mut rest = &said[..];
        let mut kinds = Vec::new();
        while let [a, b, c, kind, ..] = *rest {
            kinds.push(kind);
            rest = &rest[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
        }
        assert_eq!(kinds, [4, 8, 7], "{said:?}");
    }
}
