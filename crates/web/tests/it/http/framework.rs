//! The interface for application authors: hooks, state, requests, replies.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringmain_web::{App, Error, Flow, Reply, Request, Result, SetCookie};
use serde::{Deserialize, Serialize};

use crate::support::{Setting, get, post, serve};

in_every_way!(
    hooks_run_in_order_around_every_handler,
    a_hook_may_answer_instead_of_the_handler,
    a_hook_may_fail_instead_of_the_handler,
    hooks_see_requests_without_a_route,
    state_is_shared_by_all_and_by_each_worker,
    extensions_reach_handler_and_hooks,
    cookies_both_ways,
    redirects,
    forms,
    queries,
    json_both_ways,
    json_errors_say_where,
    parameters_that_do_not_read,
    errors_of_the_program_are_not_shown,
    fields_that_would_split_a_reply_are_refused,
    answers_without_content,
    request_ids_are_given_and_kept,
);

fn step(name: &'static str) -> impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync {
    move |_, reply| reply.add_header("X-Step", name).map(|_| ())
}

fn before(name: &'static str) -> impl Fn(&Request<'_>, &mut Reply<'_>) -> Result<Flow> + Send + Sync {
    let step = step(name);
    move |req, reply| step(req, reply).map(|()| Flow::Continue)
}

/// Returns an application with hooks around handlers of every kind.
fn hooked() -> App {
    App::new()
        .before(before("first"))
        .before(before("second"))
        .after(step("last"))
        .get("/plain", |req, reply| {
            step("handler")(req, reply)?;
            reply.text("done")
        })
        .get_async("/later", async |req, reply| {
            step("handler")(req, reply)?;
            reply.text("done")
        })
        .get_async("/streamed", async |req, reply| {
            step("handler")(req, reply)?;
            reply.write("done").await
        })
        .group("/group", |group| {
            group
                .before(before("inner"))
                .after(step("outer of handler"))
                .get("/plain", |req, reply| {
                    step("handler")(req, reply)?;
                    reply.text("done")
                })
        })
}

fn steps(answer: &crate::support::Answer) -> Vec<&str> {
    let steps = answer.fields.iter().filter(|(name, _)| name == "x-step");
    steps.map(|(_, value)| value.as_str()).collect()
}

fn hooks_run_in_order_around_every_handler(config: Setting) {
    let server = serve(config, hooked());
    for target in ["/plain", "/later", "/streamed"] {
        let answer = server.get(target);
        answer.expect(200, "done");
        assert_eq!(steps(&answer), ["first", "second", "handler", "last"], "{target}");
    }
    let answer = server.get("/group/plain");
    assert_eq!(
        steps(&answer),
        ["first", "second", "inner", "handler", "outer of handler", "last"]
    );
}

fn a_hook_may_answer_instead_of_the_handler(config: Setting) {
    let app = hooked().group("/stop", |stop| {
        stop.before(|_, reply| {
            reply.status(203);
            reply.text("stopped")?;
            Ok(Flow::Stop)
        })
        .before(|_, _| panic!("a hook behind one that stopped"))
        .get("/plain", |_, _| panic!("a handler behind a hook that stopped"))
        .get_async("/later", async |_, _| {
            panic!("a handler behind a hook that stopped")
        })
    });
    let server = serve(config, app);
    let mut client = server.client();
    for target in ["/stop/plain", "/stop/later"] {
        client.send(get(target));
        let answer = client.answer();
        answer.expect(203, "stopped");
        assert_eq!(steps(&answer), ["first", "second", "last"], "{target}");
    }
}

fn a_hook_may_fail_instead_of_the_handler(config: Setting) {
    let app = App::new().after(step("last")).group("/in", |group| {
        group
            .before(|_, _| Err(Error::unauthorized("who are you?").with_header("WWW-Authenticate", "Basic")))
            .after(|_, _| Err(Error::internal("nobody is told of this")))
            .get("/plain", |_, _| panic!("a handler behind a hook that failed"))
            .get_async("/later", async |_, _| {
                panic!("a handler behind a hook that failed")
            })
    });
    let server = serve(config, app);
    let mut client = server.client();
    for target in ["/in/plain", "/in/later"] {
        client.send(get(target));
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.field("www-authenticate")),
            (401, Some("Basic"))
        );
        assert_eq!(answer.detail(), "who are you?");
        assert_eq!(steps(&answer), ["last"], "{target}");
    }
}

fn hooks_see_requests_without_a_route(config: Setting) {
    let server = serve(config, hooked());
    for (request, status) in [
        (get("/nothing"), 404),
        (post("/plain", "text/plain", ""), 405),
        (get("/plain").replace("GET", "OPTIONS"), 204),
        (get("/%00"), 400),
    ] {
        let answer = server.ask(&request);
        assert_eq!(answer.status, status, "{request}");
        assert_eq!(steps(&answer).last(), Some(&"last"), "{request}");
    }
}

#[derive(Default)]
struct Shared(AtomicU64);

#[derive(Default)]
struct Own(Cell<u64>);

fn state_is_shared_by_all_and_by_each_worker(config: Setting) {
    let app = App::new()
        .state(Shared::default())
        .per_worker(|_| Own::default())
        .get("/", |req, reply| {
            let own = &req.local::<Own>()?.0;
            own.set(own.get() + 1);
            let shared = req.state::<Shared>()?.0.fetch_add(1, Ordering::SeqCst) + 1;
            reply.text(format!("{} {} {shared}", req.cx().worker(), own.get()))
        })
        .get("/missing", |req, _| req.state::<String>().map(|_| ()))
        .get("/missing-own", |req, _| req.local::<String>().map(|_| ()));
    let server = serve(config.workers(2), app);
    let mut own = [0; 2];
    for shared in 1..=50 {
        let answer = server.get("/");
        let numbers: Vec<u64> = answer
            .text()
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let worker = usize::try_from(numbers[0]).expect("small");
        own[worker] += 1;
        assert_eq!(numbers[1..], [own[worker], shared]);
    }
    assert_eq!(server.get("/missing").status, 500);
    assert_eq!(server.get("/missing-own").status, 500);
}

struct User(String);

fn extensions_reach_handler_and_hooks(config: Setting) {
    let app = App::new()
        .before(|req, _| {
            if let Some(user) = req.header("X-User") {
                req.extend(User(user.to_owned()));
            }
            Ok(Flow::Continue)
        })
        .after(|req, reply| {
            let name = req
                .extension::<User>()
                .map_or_else(|_| "nobody".into(), |user| user.0.clone());
            reply.header("X-Was", name).map(|_| ())
        })
        .get("/", |req, reply| match req.extension::<User>() {
            Ok(user) => reply.text(&user.0),
            Err(_) => reply.text("nobody"),
        });
    let server = serve(config, app);
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-User: ann\r\n\r\n");
    let answer = client.answer();
    answer.expect(200, "ann");
    assert_eq!(answer.field("x-was"), Some("ann"));
    client.send(get("/"));
    client.answer().expect(200, "nobody");
}

fn cookies_both_ways(config: Setting) {
    let app = App::new()
        .get("/in", |req, reply| {
            let cookies = req.cookies();
            reply.text(format!("{:?} {:?}", cookies.get("a"), cookies.get("b")))
        })
        .get("/out", |_, reply| {
            reply.cookie(&SetCookie::new("id", "7").max_age(Duration::from_secs(60)))?;
            reply.cookie(&SetCookie::removal("old"))?;
            reply.no_content()
        })
        .get("/wrong", |_, reply| {
            reply.cookie(&SetCookie::new("id", "7\r\nX: y"))?;
            reply.no_content()
        });
    let server = serve(config, app);
    let answer = server.ask("GET /in HTTP/1.1\r\nHost: a\r\nCookie: a=1; b=\"2\"\r\n\r\n");
    assert!(answer.text().starts_with("Some(\"1\")"), "{}", answer.text());
    let answer = server.get("/out");
    let cookies: Vec<&str> = answer
        .fields
        .iter()
        .filter(|(name, _)| name == "set-cookie")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(cookies.len(), 2);
    assert!(
        cookies[0].starts_with("id=7; ") && cookies[0].contains("Max-Age=60"),
        "{cookies:?}"
    );
    assert!(
        cookies[0].contains("HttpOnly") && cookies[1].starts_with("old=;"),
        "{cookies:?}"
    );
    assert_eq!(server.get("/wrong").status, 500);
}

fn redirects(config: Setting) {
    let app = App::new()
        .get("/old", |_, reply| reply.redirect(308, "/new?a=b"))
        .get("/wrong", |_, reply| reply.redirect(200, "/new"));
    let server = serve(config, app);
    let answer = server.get("/old");
    assert_eq!(
        (answer.status, answer.field("location"), answer.text()),
        (308, Some("/new?a=b"), "")
    );
    assert_eq!(server.get("/wrong").status, 500);
}

#[derive(Deserialize, Serialize)]
struct Order {
    item: String,
    count: u32,
}

const FORM: &str = "application/x-www-form-urlencoded";

fn forms(config: Setting) {
    let app = App::new().post("/", |req, reply| {
        let order: Order = req.form()?.read()?;
        reply.text(format!("{} {}", order.count, order.item))
    });
    let server = serve(config, app);
    server
        .ask(post("/", FORM, "item=a+b%26c&count=3"))
        .expect(200, "3 a b&c");
    for (kind, body, status, word) in [
        ("text/plain", "item=a&count=3", 415, "text/plain"),
        (FORM, "item=a&count=x", 400, "count"),
        (FORM, "item=a", 400, "count"),
        (FORM, "item=%zz&count=1", 400, "byte 6"),
    ] {
        let answer = server.ask(post("/", kind, body));
        assert_eq!(answer.status, status, "{body}");
        assert!(answer.detail().contains(word), "{body}: {}", answer.detail());
    }
}

fn queries(config: Setting) {
    let app = App::new().get("/", |req, reply| {
        let query = req.query()?;
        let page: u32 = query.parse("page")?.unwrap_or(1);
        let tags: Vec<_> = query.all("tag").collect();
        reply.text(format!("{page} {}", tags.join(",")))
    });
    let server = serve(config, app);
    server.get("/").expect(200, "1 ");
    server.get("/?tag=a&page=7&tag=b%20c").expect(200, "7 a,b c");
    for (target, word) in [("/?page=x", "page"), ("/?page=%f", "byte 6")] {
        let answer = server.get(target);
        assert_eq!(answer.status, 400, "{target}");
        assert!(answer.detail().contains(word), "{target}: {}", answer.detail());
    }
}

fn json_app() -> App {
    App::new()
        .post("/", |req, reply| {
            let order: Order = req.json()?;
            reply.status(201).json(&order)
        })
        .post_async("/later", async |req, reply| {
            let order: Order = req.json()?;
            reply.status(201).json(&order)
        })
}

const JSON: &str = "application/json";

fn json_both_ways(config: Setting) {
    let server = serve(config, json_app());
    for target in ["/", "/later"] {
        for kind in [JSON, "Application/JSON; charset=utf-8", "application/vnd.a+json"] {
            let answer = server.ask(post(target, kind, r#" {"count":3,"item":"é\n"} "#));
            answer.expect(201, r#"{"item":"é\n","count":3}"#);
            assert_eq!(answer.field("content-type"), Some(JSON));
        }
    }
}

fn json_errors_say_where(config: Setting) {
    let server = serve(config, json_app());
    let deep = "[".repeat(100);
    for (kind, body, status, words) in [
        (JSON, r#"{"item":"a","count":-1}"#, 400, "count"),
        (JSON, r#"{"item":7,"count":1}"#, 400, "item"),
        (JSON, r#"{"item":"a"}"#, 400, "count"),
        (JSON, "{\"item\":\n  nothing}", 400, "line 2"),
        (JSON, "", 400, "empty body"),
        (JSON, r#"{"item":"a","count":1} more"#, 400, "line 1"),
        (JSON, &deep, 400, "64"),
        ("text/plain", "{}", 415, "text/plain"),
    ] {
        let answer = server.ask(post("/", kind, body));
        assert_eq!(answer.status, status, "{body}");
        assert!(answer.detail().contains(words), "{body}: {}", answer.detail());
    }
}

fn parameters_that_do_not_read(config: Setting) {
    let app = App::new().get("/{n}", |req, reply| {
        reply.text((req.param_as::<u8>("n")? / 2).to_string())
    });
    let server = serve(config, app);
    server.get("/200").expect(200, "100");
    for wrong in ["/256", "/-1", "/x"] {
        let answer = server.get(wrong);
        assert_eq!(answer.status, 400);
        assert!(answer.detail().contains(&wrong[1..]), "{}", answer.detail());
    }
}

fn errors_of_the_program_are_not_shown(config: Setting) {
    let app = App::new()
        .get("/io", |_, _| Err(std::io::Error::other("the password is 1234"))?)
        .get("/param", |req, _| req.param("secret").map(|_| ()))
        .get("/status", |_, reply| reply.status(99).text("x"));
    let server = serve(config, app);
    for target in ["/io", "/param"] {
        let answer = server.get(target);
        assert_eq!((answer.status, &*answer.detail()), (500, ""), "{target}");
        assert!(!answer.text().contains("1234") && !answer.text().contains("secret"));
    }
    assert_eq!(server.get("/status").status, 500);
}

fn fields_that_would_split_a_reply_are_refused(config: Setting) {
    let app = App::new().get("/{name}", |req, reply| {
        let value = req.query()?.get("value").unwrap_or_default().into_owned();
        reply.header(&req.param("name")?, value)?;
        reply.text("x")
    });
    let server = serve(config, app);
    assert_eq!(server.get("/X-Fine?value=a").field("x-fine"), Some("a"));
    for target in [
        "/X-A?value=a%0d%0aX-B:%20c",
        "/X-A?value=a%0ab",
        "/X-A%0d%0aX-B?value=a",
        "/Content-Length?value=0",
        "/Transfer-Encoding?value=chunked",
        "/Connection?value=close",
    ] {
        let answer = server.get(target);
        assert_eq!(answer.status, 500, "{target}: {:?}", answer.fields);
    }
}

fn answers_without_content(config: Setting) {
    let app = App::new()
        .get("/204", |_, reply| reply.no_content())
        .get("/304", |_, reply| {
            reply.status(304);
            Ok(())
        })
        .get("/200", |_, _| Ok(()))
        .get("/dropped", |_, reply| {
            reply.text("not for a 204")?;
            reply.status(204);
            Ok(())
        });
    let server = serve(config, app);
    let mut client = server.client();
    for (target, status, length) in [
        ("/204", 204, None),
        ("/304", 304, None),
        ("/dropped", 204, None),
        ("/200", 200, Some("0")),
    ] {
        client.send(get(target));
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.field("content-length")),
            (status, length),
            "{target}"
        );
    }
    client.finish();
    client.expect_end();
}

fn request_ids_are_given_and_kept(config: Setting) {
    let app = App::new().request_ids().get("/", |req, reply| {
        reply.text(req.id().map(ToString::to_string).unwrap_or_default())
    });
    let server = serve(config, app);
    let first = server.get("/");
    assert_eq!(first.field("x-request-id"), Some(first.text()));
    assert!(!first.text().is_empty() && first.text() != server.get("/").text());
    let kept = server.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: abc-123\r\n\r\n");
    assert_eq!(
        (kept.field("x-request-id"), kept.text()),
        (Some("abc-123"), "abc-123")
    );
}
