//! Limits on requests: rates, concurrency, load shedding, retries; and fault injection.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{
    self, Action, Concurrency, DirectResponse, FaultInjection, Fraction, HeaderName, LoadShedding, Policy,
    RateHeaders, RateKey, RateLimit, Retry, RetryOn, Rule, StaticBody, StatusRange,
};
use ringmain_gateway::stats::upstreams::{CounterState, CounterStatus, UpstreamLimit};
use ringmain_testkit::wait;
use ringmain_web::Limits;

use crate::origin::{Edge, Origin, edge, rules, to};
use crate::policies::{ask, with};
use crate::support::{self, Answer as Got, PATIENCE, get};
use crate::virtual_gateway::{Scene, write};

on_every_backend! {
    a_burst_passes_and_then_nothing,
    a_rate_is_exact_across_workers,
    clients_have_rates_of_their_own,
    all_limits_have_to_let_it_pass,
    log_only_limits_pass,
    headers_of_old,
    counts_survive_a_change,
    so_many_at_once,
    late_requests_go_first,
    errors_that_were_put_in,
    injected_delays,
    tries_have_a_cap,
}

const HOUR: Duration = Duration::from_hours(1);

/// A limit per hour: no share returns while a test runs.
fn hourly(name: &str, requests: u32, change: impl FnOnce(&mut RateLimit)) -> Policy {
    let mut limit = RateLimit::new(name, requests, HOUR);
    change(&mut limit);
    Policy::RateLimit(Arc::new(limit))
}

/// Answers 200 itself behind these policies.
fn own(policies: Vec<Policy>) -> model::Config {
    let answer = DirectResponse {
        status: 200,
        content_type: None,
        body: StaticBody(b"ok".as_slice().into()),
    };
    with(rules(vec![Rule::new(Action::Respond(answer))], vec![]), policies)
}

fn header(name: &str) -> HeaderName {
    HeaderName::parse(name).expect("a name")
}

fn asked(edge: &Edge, fields: &str) -> Got {
    ask(edge, "GET", fields)
}

fn statuses(edge: &Edge, fields: &str, times: usize) -> Vec<u16> {
    (0..times).map(|_| asked(edge, fields).status).collect()
}

fn faults(edge: &Edge, wanted: Fault) -> u64 {
    let faults = edge.gateway.fault_counts();
    faults
        .iter()
        .filter(|(fault, _)| *fault == wanted)
        .map(|(_, count)| count)
        .sum()
}

fn a_burst_passes_and_then_nothing(engine: Config) {
    let origin = Origin::echo();
    let limit = hourly("api", 60, |limit| limit.burst = 2);
    let edge = edge(engine, with(to(&[origin.addr], |_, _| {}), vec![limit]));
    for left in [1, 0] {
        let answer = asked(&edge, "");
        assert_eq!((answer.status, answer.field("x-origin")), (200, Some("yes")));
        assert_eq!(answer.field("ratelimit-policy"), Some("\"api\";q=60;w=3600"));
        let state = answer.field("ratelimit").expect("a state");
        assert!(state.starts_with(&format!("\"api\";r={left};t=")), "{state}");
    }
    let refused = asked(&edge, "");
    refused.expect(429, "rate limit exceeded\n");
    let again: u64 = refused
        .field("retry-after")
        .expect("a time")
        .parse()
        .expect("seconds");
    assert!((1..=60).contains(&again), "{again}");
    assert_eq!(refused.field("x-overloaded"), None);
    assert_eq!(faults(&edge, Fault::RateLimited), 1);
    edge.server.shut_down();
}

fn a_rate_is_exact_across_workers(mut engine: Config) {
    engine.workers = Some(3);
    let limit = hourly("one", 100, |limit| {
        limit.per = 10_000 * HOUR;
        limit.by = vec![RateKey::Header(header("X-Key"))];
    });
    let edge = edge(engine, own(vec![limit]));
    let clients: Vec<_> = (0..12)
        .map(|_| {
            let mut client = edge.server.client();
            std::thread::spawn(move || {
                let mut passed = [0, 0];
                for turn in 0..40 {
                    let key = turn % 2;
                    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"));
                    match client.answer().status {
                        200 => passed[key] += 1,
                        status => assert_eq!(status, 429),
                    }
                }
                passed
            })
        })
        .collect();
    let mut passed = [0, 0];
    for client in clients {
        let [one, two] = client.join().expect("each is answered");
        passed = [passed[0] + one, passed[1] + two];
    }
    assert_eq!(passed, [100, 100]);
    edge.server.shut_down();
}

fn clients_have_rates_of_their_own(engine: Config) {
    let limit = hourly("each", 1, |limit| {
        limit.by = vec![RateKey::SOURCE, RateKey::Method]
    });
    let edge = edge(engine, own(vec![limit]));
    for (address, method, status) in [
        ("192.0.2.1", "GET", 200),
        ("192.0.2.1", "GET", 429),
        ("192.0.2.1", "PUT", 200),
        ("192.0.2.2", "GET", 200),
        ("2001:db8::1", "GET", 200),
        // The same network: whoever has one of its addresses has all.
        ("2001:db8::2", "GET", 429),
        ("2001:db8:0:1::2", "GET", 200),
        // A forged address in front does not make another client.
        ("192.0.2.9, 192.0.2.1", "GET", 429),
    ] {
        let fields = format!("X-Forwarded-For: {address}\r\nContent-Length: 0\r\n");
        assert_eq!(ask(&edge, method, &fields).status, status, "{method} {address}");
    }
    edge.server.shut_down();
}

fn all_limits_have_to_let_it_pass(engine: Config) {
    let all = hourly("all", 3, |_| {});
    let each = hourly("each", 1, |limit| {
        limit.by = vec![RateKey::Header(header("X-Key"))]
    });
    let edge = edge(engine, own(vec![all, each]));
    let key = |key: &str| format!("X-Key: {key}\r\n");
    let first = asked(&edge, &key("a"));
    assert_eq!(
        first.field("ratelimit-policy"),
        Some("\"all\";q=3;w=3600, \"each\";q=1;w=3600")
    );
    // A request that one limit refuses is not counted by the other: two are left for other keys.
    assert_eq!(statuses(&edge, &key("a"), 5), [429; 5]);
    assert_eq!(statuses(&edge, &key("b"), 1), [200]);
    assert_eq!(statuses(&edge, &key("c"), 1), [200]);
    assert_eq!(statuses(&edge, &key("d"), 1), [429]);
    edge.server.shut_down();
}

fn log_only_limits_pass(engine: Config) {
    let limit = hourly("trial", 1, |limit| limit.log_only = true);
    let edge = edge(engine, own(vec![limit]));
    assert_eq!(statuses(&edge, "", 3), [200; 3]);
    assert_eq!(asked(&edge, "").field("ratelimit"), None);
    assert_eq!(faults(&edge, Fault::RateLimited), 0);
    edge.server.shut_down();
}

fn headers_of_old(engine: Config) {
    let wide = hourly("wide", 50, |limit| limit.headers = RateHeaders::Legacy);
    let near = hourly("near", 2, |limit| limit.headers = RateHeaders::Legacy);
    let edge = edge(engine, own(vec![wide, near]));
    let answer = asked(&edge, "");
    assert_eq!(answer.field("ratelimit"), None);
    assert_eq!(answer.field("x-ratelimit-limit"), Some("2"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("1"));
    let reset: u64 = answer
        .field("x-ratelimit-reset")
        .expect("a time")
        .parse()
        .expect("seconds");
    assert!((1..=1800).contains(&reset), "{reset}");
    edge.server.shut_down();
}

fn counts_survive_a_change(engine: Config) {
    let config = |requests, name: &str| own(vec![hourly(name, requests, |_| {})]);
    let edge = edge(engine, config(2, "kept"));
    let turn = |config| assert_eq!(edge.gateway.replace(Arc::new(config), Duration::ZERO), []);
    assert_eq!(statuses(&edge, "", 3), [200, 200, 429]);
    // Another part of the rule changes.
    let mut other = config(2, "kept");
    Arc::make_mut(&mut other.routes[0]).rules[0].name = Some("other".into());
    turn(other);
    assert_eq!(statuses(&edge, "", 2), [429, 429]);
    // A wider limit: debt is a matter of time, of which two of two and four of four are the same amount.
    turn(config(4, "kept"));
    assert_eq!(statuses(&edge, "", 1), [429]);
    turn(config(2, "another"));
    assert_eq!(statuses(&edge, "", 3), [200, 200, 429]);
    let counters = edge.gateway.counters();
    assert!(counters.iter().any(|counter| &*counter.name == "another"
        && matches!(counter.state, CounterState::RateLimitKeys { forgotten: 0, .. })));
    edge.server.shut_down();
}

fn so_many_at_once(engine: Config) {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            // Only the head: the count of a request in flight ends with the last byte of its response.
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            let told = gone.lock().expect("one at a time").recv_timeout(PATIENCE);
            if told.is_err() || !peer.send("ok") {
                return;
            }
        }
    });
    let cap = Concurrency {
        name: "one".into(),
        requests: 1,
        by: Vec::new(),
    };
    let policies = vec![Policy::Concurrency(Arc::new(cap))];
    let edge = edge(engine, with(to(&[origin.addr], |_, _| {}), policies));
    for _ in 0..3 {
        let mut holder = edge.server.client();
        holder.send(get("/"));
        origin.seen();
        let refused = asked(&edge, "");
        refused.expect(503, "concurrency limit reached\n");
        assert_eq!(refused.field("x-overloaded"), Some("concurrency_full"));
        go.send(()).expect("the origin waits");
        holder.answer().expect(200, "ok");
        // The next one of the same connection is behind the end of this one.
        go.send(()).expect("the origin waits");
        holder.send(get("/"));
        holder.answer().expect(200, "ok");
        origin.seen();
        drop(holder);
        let runs = |it: &CounterStatus| it.state == CounterState::InFlight(1);
        wait::until("nothing runs", || !edge.gateway.counters().iter().any(runs));
    }
    assert_eq!(faults(&edge, Fault::ConcurrencyFull), 3);
    edge.server.shut_down();
}

/// By the worker's own clock.
const WORK: Duration = Duration::from_millis(5);

fn late_requests_go_first(engine: Config) {
    let (entered, has_entered) = channel();
    let (open, gate) = channel::<()>();
    let gate: Mutex<Receiver<()>> = Mutex::new(gate);
    let gateway = ringmain_gateway::Gateway::new(
        Arc::new(own(vec![Policy::Shed(LoadShedding { max_delay: WORK / 2 })])),
        Duration::ZERO,
    );
    let app = gateway.app().limits(Limits {
        max_queue_delay: None,
        ..gateway.limits()
    });
    let app = app
        .get("/gate", move |_, reply| {
            entered.send(())?;
            gate.lock().expect("one at a time").recv()?;
            reply.text("open")
        })
        .get("/work", |req, reply| {
            let began = req.cx().clock();
            while req.cx().clock().since(began) < WORK {
                std::hint::spin_loop();
            }
            reply.text("done")
        });
    let server = support::serve(engine, app);
    let mut first = server.client();
    first.send(get("/gate"));
    has_entered.recv().expect("the handler runs");
    // All of these arrive while the worker is held: one batch when it continues.
    let mut clients: Vec<_> = (0..40).map(|_| server.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(get(if index % 2 == 0 { "/work" } else { "/" }));
    }
    open.send(()).expect("the handler waits");
    first.answer().expect(200, "open");
    let answers: Vec<_> = clients.iter_mut().map(|client| client.answer()).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert!(!refused.is_empty(), "all were answered, however late");
    for answer in refused {
        assert_eq!(answer.field("x-overloaded"), Some("shed"));
        assert_eq!(answer.field("retry-after"), Some("1"));
    }
    assert!(
        answers.iter().step_by(2).all(|answer| answer.status == 200),
        "others are not shed"
    );
    server.shut_down();
}

fn errors_that_were_put_in(engine: Config) {
    let inject = |share, header| {
        Policy::Inject(Arc::new(FaultInjection {
            abort: Some((418, share)),
            header,
            ..FaultInjection::default()
        }))
    };
    let origin = Origin::echo();
    let config = |inject| with(to(&[origin.addr], |_, _| {}), vec![inject]);
    let edge = edge(engine, config(inject(Fraction::ALL, Some(header("X-Try")))));
    asked(&edge, "X-Try: 1\r\n").expect(418, "injected fault\n");
    assert_eq!(asked(&edge, "").status, 200);
    assert_eq!(faults(&edge, Fault::Injected), 1);
    let none = Fraction { part: 0, of: 10 };
    let next = config(inject(none, Some(header("X-Try"))));
    assert_eq!(edge.gateway.replace(Arc::new(next), Duration::ZERO), []);
    let passed = asked(&edge, "X-Try: 1\r\nX-Other: 1\r\n");
    assert_eq!(passed.status, 200);
    // It is for the gateway alone.
    let seen = passed.text().to_ascii_lowercase();
    assert!(seen.contains("x-other") && !seen.contains("x-try"), "{seen}");
    let half = Fraction { part: 1, of: 2 };
    assert_eq!(
        edge.gateway
            .replace(Arc::new(config(inject(half, None))), Duration::ZERO),
        []
    );
    let mut statuses = statuses(&edge, "", 200);
    statuses.sort_unstable();
    statuses.dedup();
    assert_eq!(statuses, [200, 418]);
    edge.server.shut_down();
}

fn injected_delays(engine: Config) {
    let inject = FaultInjection {
        delay: Some((Duration::from_millis(30), Fraction::ALL)),
        abort: Some((500, Fraction::ALL)),
        header: Some(header("X-Slow")),
    };
    let edge = edge(engine, own(vec![Policy::Inject(Arc::new(inject))]));
    assert_eq!(asked(&edge, "X-Slow: 1\r\n").status, 500);
    asked(&edge, "").expect(200, "ok");
    edge.server.shut_down();
}

#[test]
fn an_injected_delay_lasts_as_long_as_configured() {
    let delay = Duration::from_secs(30);
    let inject = FaultInjection {
        delay: Some((delay, Fraction::ALL)),
        abort: Some((500, Fraction::ALL)),
        header: Some(header("X-Slow")),
    };
    let mut scene = Scene::new(own(vec![Policy::Inject(Arc::new(inject))]), |_| {});
    let client = scene.dial();
    for (fields, status, expected) in [("X-Slow: 1\r\n", 500, delay), ("", 200, Duration::ZERO)] {
        let begun = scene.now();
        write(
            &client,
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{fields}\r\n"),
        );
        assert_eq!(scene.reply(&client).status(), status);
        let passed = scene.now().since(begun);
        assert!(
            passed >= expected && passed < expected + Duration::from_millis(100),
            "{status} after {passed:?}"
        );
    }
    client.close();
    scene.stop();
}

fn tries_have_a_cap(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let config = |retries| {
        to(&[origin.addr], |forward, upstream| {
            upstream.pool.retries = retries;
            forward.retry = Some(Retry {
                attempts: 2,
                on: RetryOn {
                    statuses: vec![StatusRange::one(503)],
                    ..RetryOn::default()
                },
                backoff: Duration::ZERO,
                ..Retry::default()
            });
        })
    };
    let edge = edge(engine, config(0));
    let refused = |cap: UpstreamLimit| edge.gateway.upstreams()[0].refused[cap as usize];
    assert_eq!(asked(&edge, "").status, 503);
    origin.seen();
    assert_eq!(refused(UpstreamLimit::Retries), (UpstreamLimit::Retries, 1));
    assert_eq!(edge.gateway.replace(Arc::new(config(1)), Duration::ZERO), []);
    assert_eq!(asked(&edge, "").status, 503);
    // One request counts once, however often it is tried.
    (0..3).for_each(|_| drop(origin.seen()));
    assert_eq!(refused(UpstreamLimit::Retries), (UpstreamLimit::Retries, 1));
    wait::until("no retry", || edge.gateway.upstreams()[0].retrying == 0);
    edge.server.shut_down();
}
