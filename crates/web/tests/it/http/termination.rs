//! The end of requests: panics, clients that leave, event streams, shutdown.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ringmain_web::{App, Event, Flow, Reply, Request, Result};

use crate::support::{PATIENCE, Server, Setting, get, serve};

in_every_way!(
    a_panic_is_a_500_and_the_worker_continues,
    a_handler_is_dropped_when_its_client_leaves,
    a_writing_handler_sees_the_disconnect,
    the_handler_sees_an_aborted_upload,
    events_arrive_one_by_one,
    events_end_when_the_client_ends_its_side,
    head_of_a_stream_is_answered_by_the_head,
    shutdown_closes_idle_connections_at_once,
    shutdown_lets_requests_finish,
    shutdown_ends_event_streams_in_order,
    shutdown_receives_the_rest_of_a_request,
);

const HOUR: Duration = Duration::from_secs(3600);

fn a_panic_is_a_500_and_the_worker_continues(config: Setting) {
    let hook = |req: &Request<'_>, _: &mut Reply<'_>| -> Result<Flow> {
        assert!(req.header("X-Panic").is_none(), "in a hook");
        Ok(Flow::Continue)
    };
    let app = App::new()
        .before(hook)
        .get("/", |_, reply| reply.text("ok"))
        .get_async("/wait", async |_, reply| reply.text("ok"))
        .get("/plain", |_, _| panic!("in a handler"))
        .get_async("/later", async |req, _| {
            req.cx().sleep(Duration::from_millis(1)).await;
            panic!("in a handler that has waited")
        })
        .group("/after", |group| {
            group
                .after(|_, _| panic!("in a hook behind it"))
                .get("/", |_, reply| reply.text("ok"))
        });
    let server = serve(config, app);
    let mut client = server.client();
    let with = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Panic: 1\r\n\r\n");
    for request in [
        get("/plain"),
        get("/later"),
        with("/"),
        with("/wait"),
        with("/nothing"),
    ] {
        client.send(&request);
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.closes(), &*answer.detail()),
            (500, false, ""),
            "{request}"
        );
        client.expect_alive("/");
        client.expect_alive("/wait");
    }
    client.send(get("/after/"));
    client.answer().expect(200, "ok");
    assert_eq!(server.running.report().workers[0].accepted, 1);
}

/// Tells when it is dropped.
struct Guard(Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        // The test may have seen enough.
        let _ = self.0.send("dropped");
    }
}

/// `/forever` never completes and reports its start and its drop; `/stream` writes first.
fn waiting(config: Setting) -> (Server, Receiver<&'static str>) {
    let (tell, told) = channel();
    let begin = move |tell: &Sender<&'static str>| {
        tell.send("begun").expect("the test listens");
        Guard(tell.clone())
    };
    let (first, second) = (tell.clone(), tell);
    let app = App::new()
        .get("/", |_, reply| reply.text("ok"))
        .get_async("/forever", async move |req, _| {
            let _guard = begin(&first);
            req.cx().sleep(HOUR).await;
            Ok(())
        })
        .get_async("/stream", async move |req, reply| {
            let _guard = begin(&second);
            loop {
                reply.write("piece").await?;
                req.cx().sleep(Duration::from_millis(1)).await;
            }
        })
        .post_streamed("/upload", async |req, reply| {
            while req.chunk().await?.is_some() {}
            reply.text("all of it")
        });
    (serve(config, app), told)
}

fn a_handler_is_dropped_when_its_client_leaves(config: Setting) {
    let (server, told) = waiting(config);
    for _ in 0..3 {
        let mut client = server.client();
        client.send(get("/forever"));
        assert_eq!(told.recv_timeout(PATIENCE), Ok("begun"));
        client.reset();
        assert_eq!(told.recv_timeout(PATIENCE), Ok("dropped"));
    }
    server.get("/").expect(200, "ok");
}

fn a_writing_handler_sees_the_disconnect(config: Setting) {
    let (server, told) = waiting(config);
    let mut client = server.client();
    client.send(get("/stream"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok("begun"));
    assert_eq!(client.head().status, 200);
    // A normal close: bytes written after it are answered with a reset.
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE), Ok("dropped"));
}

fn the_handler_sees_an_aborted_upload(config: Setting) {
    let (server, _told) = waiting(config);
    let mut client = server.client();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    client.finish();
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (400, true));
    assert!(
        answer.detail().contains("the rest of the message"),
        "{}",
        answer.detail()
    );
    client.expect_end();
}

/// Sends an event for each letter that the test gives it.
fn clock(config: Setting) -> (Server, Receiver<&'static str>) {
    let (tell, told) = channel();
    let app = App::new()
        .get_async("/events", async move |req, reply| {
            let _guard = Guard(tell.clone());
            let mut events = reply.events().await?;
            for number in 0_u64.. {
                let id = number.to_string();
                events
                    .send(&Event::new().event("tick").id(&id).data("a\nb"))
                    .await?;
                req.cx()
                    .sleep(if number < 3 {
                        Duration::from_millis(1)
                    } else {
                        HOUR
                    })
                    .await;
            }
            Ok(())
        })
        .get("/", |_, reply| reply.text("ok"));
    (serve(config, app), told)
}

fn events_arrive_one_by_one(config: Setting) {
    let (server, told) = clock(config);
    let mut client = server.client();
    client.send(get("/events"));
    let head = client.head();
    assert_eq!(
        (head.status, head.field("content-type")),
        (200, Some("text/event-stream"))
    );
    assert_eq!(head.field("cache-control"), Some("no-store"));
    for number in 0..3 {
        let event = client.chunk().expect("an event");
        let expected = format!("event: tick\nid: {number}\ndata: a\ndata: b\n\n");
        assert_eq!(String::from_utf8(event).expect("text"), expected);
    }
    client.reset();
    assert_eq!(told.recv_timeout(PATIENCE), Ok("dropped"));
    // An old client reads until the end.
    let mut client = server.client();
    client.send("GET /events HTTP/1.0\r\n\r\n");
    assert_eq!(client.head().field("transfer-encoding"), None);
    assert_eq!(client.take(12), b"event: tick\n");
    client.finish();
    assert_eq!(told.recv_timeout(PATIENCE), Ok("dropped"));
}

fn events_end_when_the_client_ends_its_side(config: Setting) {
    let (server, told) = clock(config);
    let mut client = server.client();
    client.send(get("/events"));
    client.head();
    client.chunk().expect("an event");
    client.finish();
    assert_eq!(told.recv_timeout(PATIENCE), Ok("dropped"));
    client.rest();
}

fn head_of_a_stream_is_answered_by_the_head(config: Setting) {
    let (server, told) = clock(config);
    let mut client = server.client();
    client.send(get("/events").replace("GET", "HEAD"));
    let head = client.answer_to("HEAD");
    assert_eq!(
        (head.status, head.field("content-type")),
        (200, Some("text/event-stream"))
    );
    assert_eq!(told.recv_timeout(PATIENCE), Ok("dropped"));
    client.expect_alive("/");
    server.running.shut_down();
    client.expect_end();
}

fn shutdown_closes_idle_connections_at_once(config: Setting) {
    let config = config.grace(HOUR);
    let (server, _told) = waiting(config);
    let mut new = server.client();
    let mut idle = server.client();
    idle.expect_alive("/");
    let mut refused = server.client();
    refused.send("nonsense\r\n\r\n");
    assert_eq!(refused.answer().status, 400);
    refused.finish();
    refused.expect_end();
    server.running.shut_down();
    idle.expect_end();
    new.expect_end();
    server.running.join().expect("an orderly end");
}

fn shutdown_lets_requests_finish(config: Setting) {
    let (release, released) = channel::<()>();
    let (tell, told) = channel();
    let released = std::sync::Mutex::new(released);
    let app = App::new()
        .get_async("/slow", async move |req, reply| {
            tell.send("begun").expect("the test listens");
            req.cx().draining().await;
            while released.lock().expect("no panic").try_recv().is_err() {
                req.cx().sleep(Duration::from_millis(1)).await;
            }
            reply.text("finished")
        })
        .health();
    let server = serve(config.grace(HOUR), app);
    let mut client = server.client();
    // The pipelined request behind it is not answered any more: the response says that it is the last.
    client.send(get("/slow") + &get("/healthz"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok("begun"));
    server.running.shut_down();
    release.send(()).expect("the handler waits");
    let answer = client.answer();
    answer.expect(200, "finished");
    assert!(answer.closes(), "{answer:?}");
    client.finish();
    client.expect_end();
    server.running.join().expect("an orderly end");
}

fn shutdown_ends_event_streams_in_order(config: Setting) {
    let config = config.grace(HOUR);
    let (server, told) = clock(config);
    let mut client = server.client();
    client.send(get("/events"));
    client.head();
    client.chunk().expect("an event");
    server.running.shut_down();
    while client.chunk().is_some() {}
    client.expect_end();
    assert_eq!(told.recv_timeout(PATIENCE), Ok("dropped"));
    server.running.join().expect("an orderly end");
}

/// A request whose first bytes arrived before the shutdown is answered.
fn shutdown_receives_the_rest_of_a_request(config: Setting) {
    let config = config.grace(HOUR);
    let (server, _told) = waiting(config);
    let requests = [
        get("/"),
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
    ];
    let mut other = server.client();
    let mut clients: Vec<_> = requests
        .iter()
        .map(|request| {
            let mut client = server.client();
            client.send(&request[..request.len() - 2]);
            other.expect_alive("/");
            client
        })
        .collect();
    server.running.shut_down();
    other.expect_end();
    for (client, request) in clients.iter_mut().zip(&requests) {
        client.send(&request[request.len() - 2..]);
        let answer = client.answer();
        assert_eq!((answer.status, answer.closes()), (200, true), "{request}");
        client.expect_end();
    }
    server.running.join().expect("an orderly end");
}
