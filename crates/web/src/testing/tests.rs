//! The client does what its documentation says.

use std::time::Duration;

use super::{Setup, TestClient};
use crate::App;
use crate::Error;
use crate::Event;
use crate::limits;

#[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
struct Sum {
    numbers: Vec<u32>,
}

fn app() -> App {
    App::new()
        .get("/", |_, reply| reply.text("root"))
        .post("/sum", |req, reply| {
            let sum: Sum = req.json()?;
            reply.json(&sum.numbers.iter().sum::<u32>())
        })
        .post("/echo", |req, reply| {
            reply.body().extend_from_slice(req.body());
            Ok(())
        })
        .get_async("/hour", async |req, reply| {
            req.cx().sleep(Duration::from_secs(3600)).await;
            reply.text("at last")
        })
        .get_async("/never", async |_, _| std::future::pending().await)
        .get_async("/fails", async |_, _| Err(Error::bad_request("no")))
        .get_async("/clock", async |req, reply| {
            let mut events = reply.events().await?;
            for tick in 0..3 {
                events.send(&Event::new().data(&tick.to_string())).await?;
                req.cx().sleep(Duration::from_secs(10)).await;
            }
            Ok(())
        })
}

#[test]
fn a_burst_reuses_the_tasks_of_the_last_one_and_they_end_after_it() {
    const BURST: usize = 600;
    let app = App::new().get_async("/for/{seconds}", async |req, reply| {
        let seconds = req.param("seconds")?.parse().map_err(Error::internal)?;
        req.cx().sleep(Duration::from_secs(seconds)).await;
        reply.text("done")
    });
    let mut client = TestClient::new(app).unwrap();
    let mut connections: Vec<_> = (0..BURST).map(|_| client.raw()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let seconds = if number < BURST / 2 { 5 } else { 20 };
        connection.send(format!("GET /for/{seconds} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    client.advance(Duration::from_secs(1));
    assert_eq!(client.running(), BURST);
    let idle = |client: &TestClient| client.simulation.borrow().idle_tasks();
    client.advance(Duration::from_secs(9));
    // As many as are running, more than are kept otherwise.
    assert_eq!((client.running(), idle(&client)), (BURST / 2, BURST / 2));
    client.advance(Duration::from_secs(20));
    assert_eq!(client.running(), 0);
    let kept = idle(&client);
    assert!(
        kept <= limits::IDLE_TASKS && kept > limits::IDLE_TASKS / 2,
        "{kept}"
    );
    drop(connections);
    client.finish().unwrap();
}

#[test]
fn requests_are_answered_over_one_connection() {
    for seed in 0..20 {
        let mut client = TestClient::with_seed(app(), seed).unwrap();
        assert_eq!(client.get("/").send().text(), "root");
        let sum = Sum {
            numbers: vec![1, 2, 39],
        };
        let reply = client.post("/sum").json(&sum).send();
        assert_eq!((reply.status(), reply.json::<u32>()), (200, 42));
        let body = vec![b'x'; 300_000];
        let reply = client.post("/echo").body(body.clone()).chunked(777).send();
        assert!(reply.body() == body, "seed {seed}");
        assert_eq!(client.head("/").send().header("content-length"), Some("4"));
        assert_eq!(client.get("/fails").send().status(), 400);
        assert_eq!(client.connections(), 1, "seed {seed}");
        client.finish().unwrap();
    }
}

#[test]
fn time_is_virtual() {
    let setup = Setup {
        timeout: Duration::from_secs(4000),
        ..Setup::default()
    };
    let mut client = TestClient::with(app(), setup).unwrap();
    assert_eq!(client.get("/hour").send().text(), "at last");
    assert!(client.elapsed() >= Duration::from_secs(3600));
    client.finish().unwrap();
}

#[test]
fn a_handler_that_never_responds_is_a_timeout_error() {
    let mut client = TestClient::new(app()).unwrap();
    let error = client.get("/never").try_send().unwrap_err().to_string();
    assert!(
        error.contains("expected a whole answer within 60s") && error.contains("1 requests of asynchronous"),
        "{error}"
    );
    // The connection is given up with it, and the handler with the connection.
    assert_eq!(client.get("/").send().status(), 200);
    assert_eq!(client.running(), 0);
}

#[test]
fn events_are_read_one_by_one() {
    let mut client = TestClient::new(app()).unwrap();
    let mut events = client.get("/clock").open().unwrap();
    assert_eq!(events.head().header("content-type"), Some("text/event-stream"));
    for tick in 0..3 {
        assert_eq!(events.event().unwrap(), Some(format!("data: {tick}")));
        assert_eq!(client.elapsed().as_secs(), tick * 10);
    }
    assert_eq!(events.event().unwrap(), None);
}

#[test]
fn a_raw_connection_sends_every_byte() {
    let mut client = TestClient::new(app()).unwrap();
    let mut raw = client.raw();
    raw.send("GET / HTTP/1.1\r\nHo");
    raw.advance(Duration::from_secs(1));
    assert_eq!(raw.received(), b"");
    raw.send("st: a\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(raw.reply().status(), 200);
    let refused = raw.reply();
    assert_eq!((refused.status(), refused.closes()), (400, true));
    raw.end();
    assert_eq!(
        raw.read_to_end().unwrap(),
        (Vec::new(), super::ConnectionEnd::Closed)
    );
}

#[test]
fn a_connection_closed_by_the_application_is_reopened() {
    let mut client = TestClient::new(app()).unwrap();
    assert_eq!(client.get("/").send().status(), 200);
    client.advance(Duration::from_secs(100));
    assert_eq!(client.connections(), 0, "idle for too long");
    assert_eq!(client.get("/").send().status(), 200);
}
