//! Limits that count bytes or requests, and open connections during a shutdown: in virtual time.

use std::time::Duration;

use ringmain_web::testing::{ConnectionEnd, TestClient};
use ringmain_web::{App, Limits};

const HOST: &str = "Host: a\r\n";

fn client(limits: Limits, app: App) -> TestClient {
    TestClient::new(app.limits(limits)).unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn bodies() -> App {
    App::new()
        .post("/collect", |req, reply| reply.text(req.body().len().to_string()))
        .post_streamed("/stream", async |req, reply| {
            let mut bytes = 0;
            while let Some(chunk) = req.chunk().await? {
                bytes += chunk.len();
            }
            reply.text(bytes.to_string())
        })
        .group("/small", |group| {
            group
                .body_limit(10)
                .post("/collect", |req, reply| reply.text(req.body().len().to_string()))
        })
        .post("/json", |req, reply| {
            let value: serde_json::Value = req.json()?;
            reply.json(&value)
        })
}

#[test]
fn a_body_beyond_its_limit_is_413() {
    let limits = Limits {
        body_bytes: 1000,
        streamed_body_bytes: Some(5000),
        ..Limits::default()
    };
    let mut client = client(limits, bodies());
    for (path, most) in [("/collect", 1000), ("/stream", 5000), ("/small/collect", 10)] {
        for chunked in [false, true] {
            let mut send = |bytes: usize| {
                let request = client.post(path).body(vec![b'x'; bytes]);
                if chunked {
                    request.chunked(7).send()
                } else {
                    request.send()
                }
            };
            assert_eq!(send(most).text(), most.to_string(), "{path}");
            let refused = send(most + 1);
            assert_eq!(
                (refused.status(), refused.closes()),
                (413, true),
                "{path} {chunked}"
            );
        }
    }
}

#[test]
fn an_unwanted_body_is_read_up_to_its_limit() {
    let limits = Limits {
        discard_bytes: 100,
        ..Limits::default()
    };
    let mut client = client(limits, App::new());
    assert!(!client.post("/nowhere").body([b'x'; 100]).send().closes());
    assert!(client.post("/nowhere").body([b'x'; 101]).send().closes());
}

#[test]
fn json_nests_as_deep_as_its_limit() {
    let limits = Limits {
        json_depth: 3,
        ..Limits::default()
    };
    let mut client = client(limits, bodies());
    for (text, status) in [("[[[1]]]", 200), ("[[[[1]]]]", 400)] {
        let request = client.post("/json").header("content-type", "application/json");
        assert_eq!(request.body(text).send().status(), status, "{text}");
    }
}

#[test]
fn a_connection_answers_as_many_requests_as_it_may() {
    let limits = Limits {
        requests_per_connection: Some(3),
        ..Limits::default()
    };
    let mut client = client(limits, App::new().get("/", |_, reply| reply.text("root")));
    let mut raw = client.raw();
    raw.send(format!("GET / HTTP/1.1\r\n{HOST}\r\n").repeat(5));
    let closes: Vec<bool> = (0..3).map(|_| raw.reply().closes()).collect();
    assert_eq!(closes, [false, false, true]);
    raw.end();
    assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
}

#[test]
fn a_client_that_sends_on_after_the_last_answer_is_read_for_a_while() {
    let limits = Limits {
        linger_bytes: 100_000,
        ..Limits::default()
    };
    let mut client = client(limits, App::new());
    let refused = format!("POST / HTTP/1.1\r\n{HOST}Content-Length: 9000000\r\n\r\n");
    // For some time.
    let mut raw = client.raw();
    raw.send(&refused);
    assert_eq!(raw.reply().status(), 404);
    raw.advance(Duration::from_millis(1900));
    assert_eq!(client.connections(), 1);
    raw.advance(Duration::from_millis(200));
    assert_eq!(client.connections(), 0);
    // For some bytes.
    let mut raw = client.raw();
    raw.send(&refused);
    assert_eq!(raw.send(vec![b'x'; 90_000]), 90_000);
    raw.advance(Duration::from_millis(100));
    assert_eq!(client.connections(), 1);
    raw.send(vec![b'x'; 20_000]);
    raw.advance(Duration::from_millis(100));
    assert_eq!(client.connections(), 0);
}

#[test]
fn pipelined_requests_wait_while_one_runs() {
    let app = App::new()
        .get("/", |_, reply| reply.text("root"))
        .get_async("/slow", async |req, reply| {
            req.cx().sleep(seconds(30)).await;
            reply.text("slow")
        });
    let mut client = client(Limits::default(), app);
    let mut raw = client.raw();
    raw.send(format!("GET /slow HTTP/1.1\r\n{HOST}\r\n"));
    raw.advance(seconds(1));
    let request = format!("GET / HTTP/1.1\r\n{HOST}\r\n");
    let most = 1_000_000 / request.len();
    let sent = raw.send(request.repeat(most));
    // Bytes that the network holds in both directions, and that a connection buffers.
    assert!(sent < 128 * 1024 + 128 * 1024, "{sent} bytes were taken");
    assert_eq!(raw.reply().text(), "slow");
    for _ in 0..sent / request.len() {
        assert_eq!(raw.reply().text(), "root");
    }
}

#[test]
fn a_shutdown_closes_idle_connections_and_lets_requests_finish() {
    let app = App::new()
        .get("/", |_, reply| reply.text("root"))
        .get_async("/slow", async |req, reply| {
            req.cx().sleep(seconds(2)).await;
            reply.text("slow")
        })
        .get_async("/never", async |_, _| std::future::pending().await);
    let mut client = client(Limits::default(), app);
    let (mut idle, mut slow, mut half, mut never) = (client.raw(), client.raw(), client.raw(), client.raw());
    idle.send(format!("GET / HTTP/1.1\r\n{HOST}\r\n"));
    assert!(!idle.reply().closes());
    slow.send(format!("GET /slow HTTP/1.1\r\n{HOST}\r\n"));
    half.send("GET / HTTP/1.1\r\n");
    never.send(format!("GET /never HTTP/1.1\r\n{HOST}\r\n"));
    client.advance(seconds(1));
    client.shut_down();
    client.advance(Duration::from_millis(100));
    assert_eq!(idle.ending(), Some(ConnectionEnd::Closed));
    half.send(format!("{HOST}\r\n"));
    let reply = half.reply();
    assert_eq!((reply.text(), reply.closes()), ("root", true));
    let reply = slow.reply();
    assert_eq!((reply.text(), reply.closes()), ("slow", true));
    // The grace period ends requests that do not end by themselves.
    assert!(!client.is_shut_down());
    client.advance(seconds(6));
    assert!(client.is_shut_down());
    assert_eq!(never.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Reset));
    client.finish().unwrap();
}
