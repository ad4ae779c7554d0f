//! Requests that are tried again: after what, how often, and with which bodies; and the budget that bounds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{Balance, Forward, Retry, RetryBudget, RetryOn, StatusRange, Upstream};

use crate::origin::{Origin, edge, refusing_addr, to};
use crate::support::{pattern, post};
use crate::virtual_gateway::{ORIGIN, Scene, write};

on_every_backend! {
    after_a_status,
    unsafe_methods_are_not_retried,
    bodies_are_sent_again,
    bodies_that_are_too_long_are_not,
    after_a_reset_in_the_middle_of_a_body,
    a_retry_that_reaches_no_other_endpoint_goes_back,
    never_more_than_the_budget,
}

fn retry(attempts: u8) -> Retry {
    Retry {
        attempts,
        on: RetryOn {
            connect: true,
            reset: true,
            timeout: false,
            statuses: vec![StatusRange {
                first: 502,
                last: 504,
            }],
        },
        backoff_min: Duration::ZERO,
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
    }
}

fn rule(attempts: u8) -> impl FnOnce(&mut Forward, &mut Upstream) {
    move |forward, upstream| {
        forward.retry = Some(retry(attempts));
        upstream.retry_budget = RetryBudget {
            percent: 100,
            least: 1_000_000,
            ..RetryBudget::default()
        };
    }
}

/// An origin that answers with 503 `times` times and then with an echo of the request; counts requests.
fn failing(times: usize) -> (Origin, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let origin = Origin::new(move |mut peer| {
        while let Some(seen) = peer.request() {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let head = if number < times {
                "HTTP/1.1 503 Busy\r\nX-Try: bad\r\n"
            } else {
                "HTTP/1.1 200 OK\r\n"
            };
            let body = if number < times {
                b"bad".to_vec()
            } else {
                seen.body
            };
            let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
            peer.send([head.as_bytes(), &body].concat());
        }
    });
    (origin, asked)
}

fn after_a_status(engine: Config) {
    for (attempts, status, asked) in [(3, 200, 3), (2, 200, 3), (1, 503, 2), (0, 503, 1)] {
        let (origin, count) = failing(2);
        let edge = edge(engine.clone(), to(&[origin.addr], rule(attempts)));
        let answer = edge.server.get("/");
        // That of the last try is passed on as it is.
        answer.expect(status, if status == 200 { "" } else { "bad" });
        assert_eq!(answer.field("x-try"), (status != 200).then_some("bad"));
        assert_eq!(count.load(Ordering::SeqCst), asked, "{attempts} attempts");
        // The responses that were not forwarded count, too.
        let (asked, successes) = (asked as u64, u64::from(status == 200));
        let upstream = &edge.gateway.upstreams()[0];
        assert_eq!(
            (upstream.attempts, upstream.responses),
            (asked, [0, successes, 0, 0, asked - successes])
        );
        edge.server.shut_down();
    }
}

/// The endpoint that answered 503 is the only one that accepts connections: the one retry that is allowed goes there.
fn a_retry_that_reaches_no_other_endpoint_goes_back(engine: Config) {
    for (times, status) in [(1, 200), (2, 503)] {
        let (origin, count) = failing(times);
        let config = to(
            &[origin.addr, refusing_addr(), refusing_addr()],
            |forward, upstream| {
                rule(1)(forward, upstream);
                upstream.balance = Balance::RoundRobin;
            },
        );
        let edge = edge(engine.clone(), config);
        edge.server
            .get("/")
            .expect(status, if status == 200 { "" } else { "bad" });
        assert_eq!(count.load(Ordering::SeqCst), 2);
        edge.server.shut_down();
    }
}

fn unsafe_methods_are_not_retried(engine: Config) {
    let (origin, count) = failing(1);
    let edge = edge(engine, to(&[origin.addr], rule(3)));
    edge.server.ask(post("/", "text/plain", "abc")).expect(503, "bad");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    edge.server.shut_down();
}

fn bodies_are_sent_again(engine: Config) {
    for length in [1, 5000, 60_000] {
        let body = pattern(length);
        let put = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let chunked = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for request in [
            [put.as_bytes(), &body].concat(),
            [chunked, crate::support::chunked(&body, 700)].concat(),
        ] {
            let (origin, count) = failing(2);
            let edge = edge(engine.clone(), to(&[origin.addr], rule(2)));
            let mut client = edge.server.client();
            let sent = client.send_behind(request);
            let answer = client.answer();
            assert_eq!(answer.status, 200);
            assert!(answer.body == body, "{length} bytes came back");
            assert_eq!(count.load(Ordering::SeqCst), 3);
            sent.join().expect("no panic").expect("all was taken");
            edge.server.shut_down();
        }
    }
}

fn bodies_that_are_too_long_are_not(engine: Config) {
    let (origin, count) = failing(1);
    let edge = edge(engine, to(&[origin.addr], rule(2)));
    let length = ringmain_gateway::limits::REPLAY_BYTES + 1;
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let mut client = edge.server.client();
    let sent = client.send_behind([head.into_bytes(), pattern(length)].concat());
    client.answer().expect(503, "bad");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    sent.join().expect("no panic").expect("all was taken");
    edge.server.shut_down();
}

/// A try takes a part of the body and breaks off; the next one has it from the beginning.
fn after_a_reset_in_the_middle_of_a_body(engine: Config) {
    let origin = Origin::new(|mut peer| {
        if peer.connection == 0 {
            peer.head();
            // Part of the body has arrived.
            assert!(peer.some().is_some());
            return peer.reset();
        }
        while let Some(seen) = peer.request() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", seen.body.len());
            peer.send([head.as_bytes(), &seen.body].concat());
        }
    });
    let edge = edge(engine, to(&[origin.addr], rule(1)));
    let body = pattern(40_000);
    let mut client = edge.server.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n");
    client.send(&body[..10_000]);
    // The rest of the body may arrive before or after the reset.
    let sent = client.send_behind(body[10_000..].to_vec());
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.body == body);
    sent.join().expect("no panic").expect("all was taken");
    // A fault that a retry made up for is counted all the same.
    let faults = edge.gateway.fault_counts();
    assert_eq!(
        faults.iter().map(|(_, count)| count).sum::<u64>(),
        1,
        "{faults:?}"
    );
    edge.server.shut_down();
}

fn never_more_than_the_budget(engine: Config) {
    let (origin, count) = failing(usize::MAX);
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, upstream| {
            forward.retry = Some(retry(10));
            upstream.retry_budget = RetryBudget {
                percent: 20,
                least: 0,
                ..RetryBudget::default()
            };
        }),
    );
    let mut client = edge.server.client();
    for _ in 0..50 {
        client.send(crate::support::get("/"));
        client.answer().expect(503, "bad");
    }
    // A fifth on top of the requests, however many attempts a rule allows.
    assert_eq!(count.load(Ordering::SeqCst), 60);
    let upstream = &edge.gateway.upstreams()[0];
    // Each request was refused its next retry.
    assert_eq!((upstream.retries, upstream.retries_refused), (10, 50));
    edge.server.shut_down();
}

/// The request ends within its first pause, which has a random part otherwise.
/// The second attempt is sent after a pause between the shortest one and the longest.
#[test]
fn pauses_are_at_least_the_shortest() {
    let mut scene = paused(Duration::from_secs(20));
    let client = scene.dial();
    write(&client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let origin = scene.accept();
    scene.read_to(&origin, "\r\n\r\n");
    let failed = scene.now();
    write(&origin, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    let origin = scene.accept();
    scene.read_to(&origin, "\r\n\r\n");
    let pause = scene.now().since(failed);
    // And the time of a connection.
    let most = PAUSE * 2 + Duration::from_secs(1);
    assert!((PAUSE..most).contains(&pause), "{pause:?}");
    write(&origin, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(scene.reply(&client).status(), 204);
    scene.stop();
}

/// A request whose deadline is within a pause is answered at the deadline.
#[test]
fn pauses_end_with_the_time_of_the_request() {
    let limit = Duration::from_secs(2);
    let mut scene = paused(limit);
    let client = scene.dial();
    let began = scene.now();
    write(&client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let origin = scene.accept();
    scene.read_to(&origin, "\r\n\r\n");
    write(&origin, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(scene.reply(&client).status(), 504);
    let took = scene.now().since(began);
    assert!((limit..limit * 2).contains(&took), "{took:?}");
    assert!(origin.read(usize::MAX).is_empty(), "no second attempt");
    scene.stop();
}

const PAUSE: Duration = Duration::from_secs(5);

/// A rule that retries after pauses of at least `PAUSE`, for requests with a time limit.
fn paused(limit: Duration) -> Scene {
    let config = to(&[ORIGIN], |forward, upstream| {
        rule(1)(forward, upstream);
        forward.timeouts.request = Some(limit);
        let retry = forward.retry.as_mut().expect("set above");
        retry.backoff_min = PAUSE;
        retry.backoff = PAUSE * 2;
        retry.backoff_max = PAUSE * 2;
    });
    Scene::new(config, |_| {})
}
