//! Selection of the handler: methods, paths, groups, the fallback, and automatic responses.

use ringmain_web::{App, Flow, Reply, Request, Result};

use crate::support::{Setting, get, serve};

in_every_way!(
    paths_and_parameters,
    head_is_get_without_content,
    options_names_the_methods,
    a_method_that_is_not_there_is_405,
    groups_nest_and_keep_their_hooks,
    the_fallback_serves_requests_without_a_route,
    any_accepts_every_method,
    health_is_answered,
    an_encoded_slash_is_no_separator,
    an_absolute_target_names_the_host,
);

fn show(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let mut text = req.method().as_str().to_owned();
    for (name, value) in req.params() {
        text.push_str(&format!(" {name}={value}"));
    }
    reply.text(text)
}

fn app() -> App {
    App::new()
        .get("/", show)
        .get("/users/{id}", show)
        .delete("/users/{id}", show)
        .get("/users/me", |_, reply| reply.text("me"))
        .get("/files/{*path}", show)
}

fn paths_and_parameters(config: Setting) {
    let server = serve(config, app());
    server.get("/").expect(200, "GET");
    server.get("/users/7").expect(200, "GET id=7");
    server.get("/users/me").expect(200, "me");
    server.get("/users/%C3%A9?q=1").expect(200, "GET id=é");
    server.get("/files/a/b.txt").expect(200, "GET path=a/b.txt");
    server.get("/files/a/../b").expect(200, "GET path=b");
    server.get("http://test/users/7").expect(200, "GET id=7");
    server
        .ask("DELETE /users/7 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect(200, "DELETE id=7");
    for nothing in ["/users", "/users/", "/users/7/", "/Users/7", "/nothing?a=b"] {
        let answer = server.get(nothing);
        assert_eq!(answer.status, 404, "{nothing}");
        assert!(answer.detail().contains(nothing), "{}", answer.detail());
    }
}

/// RFC 9112 §3.2.2: whatever `Host` says.
fn an_absolute_target_names_the_host(config: Setting) {
    let app = App::new().get("/host", |req, reply| reply.text(req.host().unwrap_or_default()));
    let server = serve(config, app);
    for (target, host) in [
        ("/host", "other"),
        ("http://one/host", "one"),
        ("http://two:81/host", "two:81"),
    ] {
        let answer = server.ask(format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n"));
        answer.expect(200, host);
    }
}

fn head_is_get_without_content(config: Setting) {
    let server = serve(config, app());
    let whole = server.get("/users/7");
    let mut client = server.client();
    client.send("HEAD /users/7 HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.answer_to("HEAD");
    assert_eq!(head.status, 200);
    assert_eq!(head.field("content-type"), whole.field("content-type"));
    assert_eq!(
        head.field("content-length"),
        Some("9"),
        "that of `HEAD id=7`, which is not sent"
    );
    client.expect_alive("/");
    client.send("HEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_to("HEAD").status, 404);
    client.expect_alive("/");
}

fn options_names_the_methods(config: Setting) {
    let server = serve(config, app());
    let answer = server.ask("OPTIONS /users/7 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        (answer.status, answer.field("allow")),
        (204, Some("GET, HEAD, DELETE, OPTIONS"))
    );
    let answer = server.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 204);
    assert!(answer.field("allow").expect("methods").contains("GET"));
    let answer = server.ask("OPTIONS /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 404);
}

fn a_method_that_is_not_there_is_405(config: Setting) {
    let server = serve(config, app());
    let mut client = server.client();
    for method in ["POST", "PUT", "BREW", "TRACE"] {
        client.send(format!(
            "{method} /users/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        ));
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.field("allow")),
            (405, Some("GET, HEAD, DELETE, OPTIONS"))
        );
        assert!(answer.detail().contains(method), "{}", answer.detail());
    }
    client.expect_alive("/");
}

fn groups_nest_and_keep_their_hooks(config: Setting) {
    let mark = |name: &'static str| {
        move |_: &Request<'_>, reply: &mut Reply<'_>| -> Result<Flow> {
            reply.add_header("X-Hook", name)?;
            Ok(Flow::Continue)
        }
    };
    let app = App::new()
        .get("/plain", show)
        .group("/api", |api| {
            api.before(mark("api"))
                .get("/users", show)
                .group("/admin", |admin| admin.before(mark("admin")).get("/{what}", show))
        })
        // For its hooks alone.
        .group("", |group| group.before(mark("group")).get("/grouped", show));
    let server = serve(config, app);
    let hooks = |target: &str| -> Vec<String> {
        let answer = server.get(target);
        assert_eq!(answer.status, 200, "{target}");
        let hooks = answer.fields.into_iter().filter(|(name, _)| name == "x-hook");
        hooks.map(|(_, value)| value).collect()
    };
    assert_eq!(hooks("/plain"), [] as [&str; 0]);
    assert_eq!(hooks("/grouped"), ["group"]);
    assert_eq!(hooks("/api/users"), ["api"]);
    assert_eq!(hooks("/api/admin/keys"), ["api", "admin"]);
}

fn the_fallback_serves_requests_without_a_route(config: Setting) {
    let app = app().fallback(|req, reply| {
        reply.status(418);
        reply.text(format!("no {} with {} bytes", req.path(), req.body().len()))
    });
    let server = serve(config, app);
    let mut client = server.client();
    client.send(get("/nothing"));
    client.answer().expect(418, "no /nothing with 0 bytes");
    client.send("POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    client.answer().expect(418, "no /nothing with 3 bytes");
    client.expect_alive("/");
    client.send("POST /users/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(
        client.answer().status,
        405,
        "a path that is there is not the fallback's"
    );
}

fn any_accepts_every_method(config: Setting) {
    let server = serve(
        config,
        App::new().any("/x", show).get("/x", |_, reply| reply.text("got")),
    );
    server.get("/x").expect(200, "got");
    server
        .ask("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .expect(200, "PUT");
    server
        .ask("BREW /x HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect(200, "BREW");
}

fn health_is_answered(config: Setting) {
    let server = serve(config, App::new().health());
    server.get("/healthz").expect(200, "ok\n");
    server.get("/readyz").expect(200, "ok\n");
}

fn an_encoded_slash_is_no_separator(config: Setting) {
    let server = serve(config, app());
    server.get("/users/a%2Fb").expect(200, "GET id=a/b");
    server.get("/users/%2e%2e/users/x").expect(200, "GET id=x");
}
