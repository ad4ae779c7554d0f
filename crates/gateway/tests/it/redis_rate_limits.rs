//! Rate limits that several gateways share through a Redis: a real one, started and stopped by each test, and one with invalid replies.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{
    self, Action, DirectResponse, Endpoint, EndpointLocation, Policy, RateKey, RateLimit, Redis, Rule,
    Secret, StaticBody, Target, Upstream,
};
use ringmain_testkit::servers;
use ringmain_testkit::wait::until;

use crate::origin::{Edge, Origin, edge, refusing_addr, rules, upstream};
use crate::policies::{ask, with};
use crate::support::PATIENCE;

on_every_backend! {
    gateways_count_together,
    who_signs_in,
    a_redis_that_restarts,
    one_that_lies,
    one_that_says_nothing,
    one_that_goes_gives_no_second_budget,
    a_full_pool_switches_no_limit_off,
}

fn socket(name: &str, engine: &Config) -> PathBuf {
    let id = std::process::id();
    std::env::temp_dir().join(format!("ringmain-redis-{id}-{name}-{:?}.sock", engine.engine))
}

fn at(socket: &Path) -> Upstream {
    Upstream::new(
        "redis",
        vec![Endpoint::new(EndpointLocation::Unix(socket.to_owned()))],
    )
}

/// Answers 200 itself, so many times a century as the Redis has it.
fn limited(redis: Upstream, requests: u32, change: impl FnOnce(&mut Redis)) -> model::Config {
    let answer = DirectResponse {
        status: 200,
        content_type: None,
        body: StaticBody(b"ok".as_slice().into()),
    };
    let mut place = Redis::of(Target::Upstream(redis.name.clone()));
    // Longer than any test waits: a query without a response hangs instead of being slow.
    place.timeout = 2 * PATIENCE;
    change(&mut place);
    let mut limit = RateLimit::new("all", requests, Duration::from_hours(24 * 365 * 100));
    limit.by = vec![RateKey::Host];
    limit.redis = Some(Arc::new(place));
    let policies = vec![Policy::RateLimit(Arc::new(limit))];
    with(
        rules(vec![Rule::new(Action::Respond(answer))], vec![redis]),
        policies,
    )
}

fn statuses(edge: &Edge, times: usize) -> Vec<u16> {
    (0..times).map(|_| ask(edge, "GET", "").status).collect()
}

fn down(edge: &Edge) -> u64 {
    let faults = edge.gateway.fault_counts();
    let found = faults.iter().find(|(fault, _)| *fault == Fault::LimiterDown);
    found.map_or(0, |(_, count)| *count)
}

fn gateways_count_together(mut engine: Config) {
    engine.workers = Some(2);
    let Some(server) = servers::Redis::start(socket("together", &engine), &[]) else {
        return;
    };
    let config = || limited(at(server.socket()), 50, |_| {});
    let edges = [edge(engine.clone(), config()), edge(engine, config())];
    let first = ask(&edges[0], "GET", "");
    assert_eq!(first.status, 200);
    let state = first.field("ratelimit").expect("a state");
    assert!(state.starts_with("\"all\";r=49;t="), "{state}");
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let mut client = edges[number % 2].server.client();
            std::thread::spawn(move || {
                let asked = (0..20).map(|_| {
                    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    client.answer().status
                });
                let statuses: Vec<u16> = asked.collect();
                assert!(
                    statuses.iter().all(|status| [200, 429].contains(status)),
                    "{statuses:?}"
                );
                statuses.iter().filter(|status| **status == 200).count()
            })
        })
        .collect();
    let passed: usize = clients
        .into_iter()
        .map(|client| client.join().expect("answers"))
        .sum();
    assert_eq!(passed, 49, "and the first one");
    let refused = ask(&edges[1], "GET", "");
    assert_eq!(refused.status, 429);
    assert!(refused.field("retry-after").is_some());
    for edge in edges {
        assert_eq!(down(&edge), 0);
        edge.server.shut_down();
    }
}

fn who_signs_in(engine: Config) {
    let Some(server) = servers::Redis::start(socket("secret", &engine), &["--requirepass", "open sesame"])
    else {
        return;
    };
    let config = |password: &str| {
        limited(at(server.socket()), 2, |redis| {
            redis.password = Some(Secret::new(password.as_bytes()));
            redis.denies = true;
        })
    };
    let right = edge(engine.clone(), config("open sesame"));
    assert_eq!(statuses(&right, 3), [200, 200, 429]);
    right.server.shut_down();
    let wrong = edge(engine, config("sesame"));
    let refused = ask(&wrong, "GET", "");
    refused.expect(503, "rate limiter unavailable\n");
    wrong.server.shut_down();
}

fn a_redis_that_restarts(engine: Config) {
    let Some(server) = servers::Redis::start(socket("back", &engine), &[]) else {
        return;
    };
    let edge = edge(
        engine,
        limited(at(server.socket()), 2, |redis| redis.denies = true),
    );
    assert_eq!(statuses(&edge, 3), [200, 200, 429]);
    let socket = server.stop();
    assert_eq!(statuses(&edge, 3), [503; 3]);
    assert_eq!(down(&edge), 3);
    // Its counts are lost with it.
    let _server = servers::Redis::start(socket, &[]).expect("it was there before");
    until("it is asked again", || match ask(&edge, "GET", "").status {
        503 => false,
        status => {
            assert_eq!(status, 200);
            true
        }
    });
    assert_eq!(statuses(&edge, 2), [200, 429]);
    edge.server.shut_down();
}

fn one_that_lies(engine: Config) {
    for answer in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "*2\r\n:7\r\n:0\r\n",
        "+OK\r\n",
        "-ERR no\r\n",
        ":1\r\n",
        "*1\r\n:1\r\n",
    ] {
        let liar = Origin::new(move |mut peer| while peer.line().is_some() && peer.send(answer) {});
        let redis = upstream("redis", &[liar.addr]);
        let edge = edge(engine.clone(), limited(redis, 1, |_| {}));
        // This process counts alone then.
        assert_eq!(statuses(&edge, 3), [200, 429, 429], "{answer}");
        assert_eq!(down(&edge), 3);
        edge.server.shut_down();
    }
}

fn one_that_says_nothing(engine: Config) {
    let mute = Origin::new(|mut peer| while peer.some().is_some() {});
    let short = |addr: SocketAddr, denies| {
        limited(upstream("redis", &[addr]), 1, |redis| {
            redis.timeout = Duration::from_millis(20);
            redis.denies = denies;
        })
    };
    for addr in [mute.addr, refusing_addr()] {
        for (denies, expected) in [(true, [503; 3]), (false, [200, 429, 429])] {
            let edge = edge(engine.clone(), short(addr, denies));
            assert_eq!(statuses(&edge, 3), expected);
            assert_eq!(down(&edge), 3);
            edge.server.shut_down();
        }
    }
}

fn one_that_goes_gives_no_second_budget(engine: Config) {
    let Some(server) = servers::Redis::start(socket("budget", &engine), &[]) else {
        return;
    };
    let edge = edge(engine, limited(at(server.socket()), 3, |_| {}));
    assert_eq!(statuses(&edge, 2), [200; 2]);
    server.stop();
    assert_eq!(statuses(&edge, 3), [200, 429, 429]);
    edge.server.shut_down();
}

fn a_full_pool_switches_no_limit_off(engine: Config) {
    let (asked, is_asked) = std::sync::mpsc::channel();
    let asked = std::sync::Mutex::new(asked);
    let slow = Origin::new(move |mut peer| {
        while peer.some().is_some() {
            // The test may be over.
            let _ = asked.lock().expect("no panic").send(());
        }
    });
    for (denies, expected) in [(true, [503; 3]), (false, [200, 429, 429])] {
        let mut redis = upstream("redis", &[slow.addr]);
        redis.pool.requests = 1;
        let limited = limited(redis, 1, |redis| {
            redis.denies = denies;
            redis.timeout = Duration::from_secs(2);
        });
        let edge = edge(engine.clone(), limited);
        let mut first = edge.server.client();
        first.send("GET / HTTP/1.1\r\nHost: other\r\n\r\n");
        is_asked.recv_timeout(PATIENCE).expect("the first asks");
        assert_eq!(statuses(&edge, 3), expected);
        drop(first);
        edge.server.shut_down();
    }
}
