//! The budget of collected bodies of each worker, and the share of each connection.

use std::time::Duration;

use ringmain_sim::Plan;
use ringmain_web::stats::Rejection;
use ringmain_web::testing::{RawConnection, Setup, TestClient};
use ringmain_web::{App, Limits};

const BODY: usize = 100_000;

fn client() -> TestClient {
    let limits = Limits {
        body_bytes: BODY as u64,
        collected_bytes: 10 * BODY,
        rate_bytes: 0,
        ..Limits::default()
    };
    let app = App::new()
        .limits(limits)
        .post("/length", |req, reply| reply.text(req.body().len().to_string()))
        .post_async("/later", async |req, reply| {
            req.cx().sleep(Duration::from_secs(60)).await;
            reply.text(req.body().len().to_string())
        })
        .get("/", |_, reply| reply.text("served"));
    let mut plan = Plan::calm();
    plan.sockets = 256;
    let setup = Setup {
        plan,
        workers: 1,
        ..Setup::default()
    };
    TestClient::with(app, setup).unwrap()
}

fn head(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n")
}

/// Sends all of a body but its last byte.
fn begin(client: &mut TestClient, path: &str) -> RawConnection {
    let mut raw = client.raw();
    raw.send(head(path));
    raw.send(vec![b'x'; BODY - 1]);
    raw.advance(Duration::from_millis(100));
    raw
}

#[test]
fn bodies_that_are_not_whole_are_refused_beyond_the_budget_and_give_it_back() {
    let mut client = client();
    let mut raws: Vec<_> = (0..30).map(|_| begin(&mut client, "/length")).collect();
    let (mut refused, mut waiting) = (0, Vec::new());
    for mut raw in raws.drain(..) {
        if raw.readable() == 0 {
            waiting.push(raw);
            continue;
        }
        let reply = raw.reply();
        assert_eq!((reply.status(), reply.header("Retry-After")), (503, Some("1")));
        refused += 1;
    }
    // Memory is counted, which grows in steps of up to twice.
    assert!(
        (4..=10).contains(&waiting.len()),
        "{} wait, {refused} are refused",
        waiting.len()
    );
    assert_eq!(client.get("/").send().text(), "served");
    for raw in &mut waiting {
        raw.send("x");
        assert_eq!(raw.reply().text(), BODY.to_string());
    }
    drop(waiting);
    let rejected = client.app().stats().totals().rejected;
    assert!(
        rejected.contains(&(Rejection::BufferedBodies, refused)),
        "{rejected:?}"
    );
    client.advance(Duration::from_secs(3));
    // The whole budget is free again.
    for _ in 0..4 {
        let mut raw = begin(&mut client, "/length");
        raw.send("x");
        assert_eq!(raw.reply().text(), BODY.to_string());
    }
    client.finish().unwrap();
}

#[test]
fn bodies_of_handlers_that_wait_count_until_those_are_done() {
    let mut client = client();
    let mut raws = Vec::new();
    for _ in 0..15 {
        let mut raw = begin(&mut client, "/later");
        raw.send("x");
        raw.advance(Duration::from_millis(100));
        raws.push(raw);
    }
    let refused = raws.iter_mut().filter(|raw| raw.readable() > 0).count();
    assert!((5..=11).contains(&refused), "{refused} of 15 are refused");
    client.advance(Duration::from_secs(61));
    for raw in &mut raws {
        let reply = raw.reply();
        assert!(matches!(reply.status(), 200 | 503), "{}", reply.status());
    }
    drop(raws);
    client.advance(Duration::from_secs(3));
    let mut raw = begin(&mut client, "/length");
    raw.send("x");
    assert_eq!(raw.reply().text(), BODY.to_string());
    client.finish().unwrap();
}
