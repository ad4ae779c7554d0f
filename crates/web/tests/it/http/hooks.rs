//! `after` hooks: they see each body, whatever method wrote it, and their changes are sent.

use std::sync::Arc;
use std::time::Duration;

use ringmain_web::{App, Bytes, Precondition, Reply, Request, Result, Validators};

use crate::support::{Setting, get, pattern, serve};

in_every_way!(
    every_body_is_seen_and_can_be_appended_to,
    a_body_is_replaced_under_its_type,
    an_entity_tag_is_made_of_the_body_and_compared,
    a_streamed_reply_is_not_whole,
    a_body_before_trailers_is_seen,
    statuses_without_content_have_none,
    the_last_body_method_names_the_type,
);

const LONG: usize = 100_000;

/// A handler for each way in which a body is written, by target. `long` bodies are handed over without a copy.
fn bodies() -> App {
    let long = Bytes::from(pattern(LONG));
    let (shared, kept, later) = (long.clone(), long.clone(), long.clone());
    App::new()
        .get("/text", |_, reply| reply.text("text"))
        .get("/html", |_, reply| reply.html("html"))
        .get("/json", |_, reply| reply.json("json"))
        .get("/body", |_, reply| {
            reply.body().extend_from_slice(b"body");
            Ok(())
        })
        .get("/bytes", |_, reply| {
            reply.bytes("image/png", Bytes::from_static(b"bytes"))
        })
        .get("/long", move |_, reply| reply.bytes("image/png", shared.clone()))
        // Not the only owner: nothing may be changed in place.
        .get("/kept", move |_, reply| {
            reply.bytes("image/png", kept.slice(..LONG / 2))
        })
        .get("/both", |_, reply| {
            reply.bytes("text/x-own", Bytes::from_static(b"bytes"))?;
            reply.body().extend_from_slice(b" and more");
            Ok(())
        })
        .get("/error", |_, _| Err(ringmain_web::Error::new(418, "a teapot")))
        .get("/none", |_, _| Ok(()))
        .get_async("/later/text", async |_, reply| reply.text("text"))
        .get_async("/later/bytes", async |_, reply| {
            reply.bytes("image/png", Bytes::from_static(b"bytes"))
        })
        .get_async("/later/long", async move |_, reply| {
            reply.bytes("image/png", later.clone())
        })
}

const TARGETS: [&str; 14] = [
    "/text",
    "/html",
    "/json",
    "/body",
    "/bytes",
    "/long",
    "/kept",
    "/both",
    "/error",
    "/none",
    "/nothing",
    "/later/text",
    "/later/bytes",
    "/later/long",
];

fn every_body_is_seen_and_can_be_appended_to(setting: Setting) {
    let plain = serve(setting.clone(), bodies());
    let hooked = bodies()
        .after(|_, reply| {
            assert!(reply.has_complete_body());
            let seen = reply.body_bytes().len();
            reply.header("X-Seen", seen.to_string())?;
            reply.body().extend_from_slice(b" seen");
            assert_eq!(reply.body_bytes().len(), seen + 5);
            Ok(())
        })
        .after(|_, reply| {
            reply.body().extend_from_slice(b" twice");
            Ok(())
        });
    let hooked = serve(setting, hooked);
    let mut client = hooked.client();
    for target in TARGETS {
        let expected = plain.get(target);
        client.send(get(target));
        let found = client.answer();
        let body = [&expected.body[..], b" seen twice"].concat();
        assert_eq!(found.status, expected.status, "{target}");
        assert_eq!(found.field("content-type"), expected.field("content-type"));
        assert_eq!(
            found.field("x-seen"),
            Some(&*expected.body.len().to_string()),
            "{target}"
        );
        assert!(found.body == body, "{target}");
        // HEAD has the same length.
        client.send(get(target).replace("GET", "HEAD"));
        let head = client.answer_to("HEAD");
        if target != "/nothing" {
            assert_eq!(head.field("content-length"), found.field("content-length"));
        }
    }
}

fn a_body_is_replaced_under_its_type(setting: Setting) {
    let app = bodies().after(|_, reply| {
        // Imitates a compressor: each byte once.
        let squeezed: Vec<u8> = {
            let mut bytes = reply.body_bytes().to_vec();
            bytes.sort_unstable();
            bytes.dedup();
            bytes
        };
        reply.set_body(squeezed);
        reply.header("Content-Encoding", "x-once")?;
        Ok(())
    });
    let server = serve(setting, app);
    for (target, body) in [("/text", "etx"), ("/bytes", "besty"), ("/later/bytes", "besty")] {
        let answer = server.get(target);
        answer.expect(200, body);
        assert_eq!(answer.field("content-encoding"), Some("x-once"));
    }
    let long = server.get("/long");
    assert_eq!(
        (long.body.len(), long.field("content-type")),
        (256, Some("image/png"))
    );
}

/// A sum of the body as its tag.
fn tagged(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let sum = reply.body_bytes().iter().fold(0_u64, |sum, &byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    if reply.has_complete_body() && reply.current_status() == 200 {
        let validators = Validators::new()
            .etag(format!("\"{sum:x}\""))
            .modified(Duration::from_secs(784_111_777));
        let outcome = reply.conditional(&validators)?;
        assert_eq!(
            outcome == Precondition::Proceed { range: true },
            reply.current_status() == 200
        );
    }
    Ok(())
}

fn an_entity_tag_is_made_of_the_body_and_compared(setting: Setting) {
    let server = serve(setting, bodies().after(tagged));
    let mut client = server.client();
    for target in ["/text", "/bytes", "/long", "/later/long"] {
        client.send(get(target));
        let whole = client.answer();
        let tag = whole.field("etag").expect("a tag").to_owned();
        assert_eq!(
            whole.field("last-modified"),
            Some("Sun, 06 Nov 1994 08:49:37 GMT")
        );
        for (condition, status) in [
            (format!("If-None-Match: {tag}"), 304),
            (format!("If-None-Match: W/{tag}, \"x\""), 304),
            ("If-None-Match: \"x\"".to_owned(), 200),
            (format!("If-Match: {tag}"), 200),
            ("If-Match: \"x\"".to_owned(), 412),
            (
                "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT".to_owned(),
                412,
            ),
        ] {
            client.send(get(target).replace("Host", &format!("{condition}\r\nHost")));
            let answer = client.answer();
            assert_eq!(answer.status, status, "{target} {condition}");
            assert_eq!(answer.field("etag"), Some(&*tag));
            let length = if status == 200 { whole.body.len() } else { 0 };
            assert_eq!(answer.body.len(), length, "{target} {condition}");
        }
    }
}

fn a_streamed_reply_is_not_whole(setting: Setting) {
    let app = App::new()
        .get_async("/pieces", async |_, reply| {
            reply.write("one").await?;
            reply.write(" two").await
        })
        .get_async("/before", async |_, reply| {
            reply.bytes("text/x-own", Bytes::from_static(b"zero"))?;
            reply.write(" one").await
        })
        .get("/plain", |_, reply| {
            reply.bytes("text/x-own", Bytes::from_static(b"zero"))?;
            // In a plain handler a piece is appended.
            let mut piece = Box::pin(reply.write(" one"));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(piece.as_mut().poll(&mut context).is_ready());
            Ok(())
        })
        .after(|_, reply| {
            let whole = reply.has_complete_body();
            reply.body().extend_from_slice(b"(hook)");
            reply.header("X-Whole", whole.to_string()).map(|_| ())
        });
    let server = serve(setting, app);
    for (target, whole, body) in [
        ("/pieces", "false", "(hook)one two"),
        ("/before", "false", "zero(hook) one"),
        ("/plain", "true", "zero one(hook)"),
    ] {
        let answer = server.get(target);
        answer.expect(200, body);
        assert_eq!(answer.field("x-whole"), Some(whole), "{target}");
    }
}

fn a_body_before_trailers_is_seen(setting: Setting) {
    let app = App::new()
        .get_async("/{length}", async |req, reply| {
            let length = req.param_as("length")?;
            reply.trailer("X-End", "yes")?;
            reply.bytes("text/x-own", Bytes::from(vec![b'x'; length]))
        })
        .after(|_, reply| {
            assert!(reply.has_complete_body());
            let length = reply.body_bytes().len().to_string();
            reply.header("X-Seen", &length)?;
            reply.body().extend_from_slice(b"(hook)");
            Ok(())
        });
    let server = serve(setting, app);
    for length in [0, 5, LONG] {
        let mut client = server.client();
        client.send(format!(
            "GET /{length} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\n\r\n"
        ));
        let head = client.head();
        assert_eq!(head.field("x-seen"), Some(&*length.to_string()));
        let (rest, _) = client.rest();
        assert!(rest.ends_with(b"(hook)\r\n0\r\nX-End: yes\r\n\r\n"));
        assert_eq!(rest.iter().filter(|&&byte| byte == b'x').count(), length);
    }
}

/// RFC 9110 §15.3.5, §15.3.6, §15.4.5, for every way of sending a reply.
fn statuses_without_content_have_none(setting: Setting) {
    let long: Arc<str> = "long".repeat(LONG).into();
    let (plain, later) = (Arc::clone(&long), Arc::clone(&long));
    let app = App::new()
        .get("/plain/{status}", move |req, reply| {
            reply.text(&*plain)?;
            reply.status(req.param_as("status")?);
            Ok(())
        })
        .get_async("/later/{status}", async move |req, reply| {
            reply.bytes("text/plain", Bytes::copy_from_slice(later.as_bytes()))?;
            reply.status(req.param_as("status")?);
            Ok(())
        })
        .get_async("/pieces/{status}", async |req, reply| {
            reply.status(req.param_as("status")?);
            reply.text("before")?;
            reply.write("one").await?;
            reply.write("two").await
        })
        .get_async("/declared/{status}", async |req, reply| {
            reply.status(req.param_as("status")?).length(6);
            reply.write("onetwo").await
        })
        .get_async("/trailers/{status}", async |req, reply| {
            reply.status(req.param_as("status")?);
            reply.trailer("X-End", "yes")?;
            reply.text("before")
        });
    let server = serve(setting, app);
    let mut client = server.client();
    for way in ["plain", "later", "pieces", "declared", "trailers"] {
        for (status, length) in [(204, None), (205, Some("0")), (304, None)] {
            client.send(format!(
                "GET /{way}/{status} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\n\r\n"
            ));
            let answer = client.answer();
            // A 304 may say how long the content of a 200 would be.
            let length = if (way, status) == ("declared", 304) {
                Some("6")
            } else {
                length
            };
            assert_eq!(
                (
                    answer.status,
                    answer.field("content-length"),
                    answer.field("transfer-encoding"),
                    answer.body.len()
                ),
                (status, length, None, 0),
                "{way}"
            );
        }
    }
    client.finish();
    client.expect_end();
}

fn the_last_body_method_names_the_type(setting: Setting) {
    let png = |reply: &mut Reply<'_>| reply.bytes("image/png", Bytes::from_static(b"png"));
    let app = App::new()
        .get("/json", move |_, reply| {
            png(reply)?;
            reply.json("json")
        })
        .get("/text", move |_, reply| {
            png(reply)?;
            reply.text("text")
        })
        .get("/own", |_, reply| {
            reply.header("Content-Type", "application/vnd.api+json")?;
            reply.json("json")
        })
        .get("/own/twice", move |_, reply| {
            png(reply)?;
            reply.header("Content-Type", "application/vnd.api+json")?;
            reply.json("json")
        })
        .get("/bytes", move |_, reply| {
            reply.json("json")?;
            reply.header("Content-Type", "text/x-own")?;
            png(reply)
        })
        .get("/moved", move |_, reply| {
            png(reply)?;
            reply.redirect(302, "/json")
        });
    let server = serve(setting, app);
    for (target, kind) in [
        ("/json", Some("application/json")),
        ("/text", Some("text/plain; charset=utf-8")),
        ("/own", Some("application/vnd.api+json")),
        ("/own/twice", Some("application/vnd.api+json")),
        ("/bytes", Some("image/png")),
        ("/moved", None),
    ] {
        assert_eq!(server.get(target).field("content-type"), kind, "{target}");
    }
}
