//! `Expect: 100-continue` (RFC 9110 §10.1.1): the body is requested when a handler reads it, and not otherwise.

use ringmain_web::{App, Error};

use crate::support::{Client, Server, Setting, get, serve};

in_every_way!(
    a_collected_body_is_requested_at_once,
    a_streamed_body_is_requested_when_it_is_read,
    a_refused_body_is_not_requested,
    a_received_body_is_not_requested,
    http_1_0_receives_no_100_continue,
    an_answer_that_has_begun_is_not_interrupted,
);

fn server(config: Setting) -> Server {
    let app = App::new()
        .get("/", |_, reply| reply.text("ok"))
        .post("/plain", |req, reply| reply.text(req.text()?))
        .post_async("/later", async |req, reply| reply.text(req.text()?))
        .post_streamed("/streamed", async |req, reply| {
            let mut all = Vec::new();
            while let Some(chunk) = req.chunk().await? {
                all.extend_from_slice(&chunk);
            }
            reply.text(String::from_utf8(all)?)
        })
        .post_streamed("/refused", async |_, _| Err(Error::forbidden("not yours")))
        .post_streamed("/begun", async |req, reply| {
            reply.write("begun ").await?;
            while let Some(chunk) = req.chunk().await? {
                reply.write(chunk).await?;
            }
            Ok(())
        });
    serve(config, app)
}

fn head(target: &str, length: usize) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
}

fn expect_continue(client: &mut Client, target: &str) {
    let answer = client.head();
    assert_eq!((answer.status, answer.fields.len()), (100, 0), "{target}");
}

fn a_collected_body_is_requested_at_once(config: Setting) {
    let server = server(config);
    for target in ["/plain", "/later"] {
        let mut client = server.client();
        client.send(head(target, 4));
        expect_continue(&mut client, target);
        client.send("body");
        client.answer().expect(200, "body");
        client.expect_alive("/");
    }
}

fn a_streamed_body_is_requested_when_it_is_read(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    for _ in 0..2 {
        client.send(head("/streamed", 4));
        expect_continue(&mut client, "/streamed");
        client.send("body");
        client.answer().expect(200, "body");
    }
    client.expect_alive("/");
}

fn a_refused_body_is_not_requested(config: Setting) {
    let server = server(config);
    let cases = [
        (head("/refused", 4), 403),
        (head("/nothing", 4), 404),
        (head("/", 4), 405),
        (head("/plain", 1 << 30), 413),
        (head("/plain", 4).replace("100-continue", "200-maybe"), 417),
    ];
    for (request, status) in cases {
        let mut client = server.client();
        client.send(&request);
        let answer = client.answer();
        // It is unknown if the body follows, so the connection cannot be reused (RFC 9110 §10.1.1).
        assert_eq!((answer.status, answer.closes()), (status, true), "{request}");
        client.send("body");
        client.finish();
        client.expect_end();
    }
}

fn a_received_body_is_not_requested(config: Setting) {
    let server = server(config);
    for target in ["/plain", "/later", "/streamed"] {
        let mut client = server.client();
        client.send(head(target, 4) + "body" + &get("/"));
        let mut answer = client.answer();
        if answer.status == 100 {
            answer = client.answer();
        }
        answer.expect(200, "body");
        client.answer().expect(200, "ok");
    }
}

fn http_1_0_receives_no_100_continue(config: Setting) {
    let server = server(config);
    for target in ["/plain", "/later", "/streamed"] {
        let mut client = server.client();
        client.send(format!(
            "POST {target} HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        ));
        client.send("body");
        client.answer().expect(200, "body");
        client.expect_end();
    }
}

fn an_answer_that_has_begun_is_not_interrupted(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    client.send(head("/begun", 4));
    let answer = client.head();
    assert_eq!((answer.status, answer.closes()), (200, true));
    assert_eq!(client.chunk().as_deref(), Some(&b"begun "[..]));
    // The final answer has begun: a client may send the body now, or leave.
    client.send("body");
    assert_eq!(client.chunk().as_deref(), Some(&b"body"[..]));
    assert_eq!(client.chunk(), None);
    client.finish();
    client.expect_end();
}
