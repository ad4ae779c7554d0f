//! Allocations of a forwarded request after warm-up: none, on each real back-end, also with policies that need only the request
//! itself.
#![allow(clippy::disallowed_methods, reason = "the origin is a real thread")]

#[allow(dead_code, reason = "cases that allocate are not asked here")]
#[path = "../../examples/policy_cost/cases.rs"]
mod cases;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, Choice, Config, Engine, ListenOptions};
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{
    Action, Forward, HeaderChanges, HeaderName, HeaderValue, Match, Path, PathMatch, Rule,
};
use stats_alloc::Region;

use crate::ALLOCATOR;

use cases::Signer;

const ROUNDS: usize = 250;
const WARM: usize = 300;
/// A buffer may still grow in the first attempt, and on a busy machine pings and timers fall into every long one. Attempts are short, and the
/// one with the fewest allocations counts.
const ATTEMPTS: usize = 40;

/// A repeated request, its response, and the allocations allowed per request.
struct Case {
    name: &'static str,
    request: Vec<u8>,
    allowed: usize,
}

/// Policies that allocate nothing for a request.
const FREE: [&str; 8] = [
    "addresses",
    "concurrency",
    "headers",
    "rate_limit",
    "api_keys",
    "jwt_cached",
    "jwt_cached_served",
    "three_together",
];

/// Policies that allocate little: the CORS fields of the response depend on the client.
const LITTLE: [(&str, usize); 1] = [("cors", 6)];

/// Those of policies: each has a rule of its own.
fn guarded(signer: &Signer) -> Vec<(Case, Rule)> {
    let allowed = |name| {
        let little = LITTLE.iter().find(|(little, _)| *little == name);
        let free = || FREE.contains(&name).then_some(0);
        little.map(|(_, most)| *most).or_else(free)
    };
    let cases = cases::cases(signer).into_iter();
    let guarded = cases.filter_map(|case| {
        let allowed = allowed(case.name)?;
        let cases::Fields::Same(fields) = &case.fields else {
            panic!("{}: expected the same fields each time", case.name);
        };
        let path = format!("/{}", case.name);
        let mut rule = cases::rule(&case, false);
        rule.matches = vec![Match {
            path: PathMatch::Exact(Path::parse(&path).expect("a path")),
            ..Match::default()
        }];
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let case = Case {
            name: case.name,
            request: request.into(),
            allowed,
        };
        Some((case, rule))
    });
    guarded.collect()
}

fn cases() -> Vec<Case> {
    let case = |name, request: &str, allowed| Case {
        name,
        request: request.replace('\n', "\r\n").into(),
        allowed,
    };
    let large = format!(
        "POST /echo HTTP/1.1\nHost: a\nContent-Length: 10\n\n{}",
        "x".repeat(10)
    );
    vec![
        case(
            "GET",
            "GET /a/b?c=d HTTP/1.1\nHost: shop.example\nUser-Agent: test\nAccept: */*\n\n",
            0,
        ),
        case(
            "an escaped path",
            "GET /a/%2e%2e/%41 HTTP/1.1\nHost: Shop.Example:80\n\n",
            0,
        ),
        case(
            "fields of the connection",
            "GET / HTTP/1.1\nHost: a\nConnection: x-own\nX-Own: 1\nX-Forwarded-For: 9.9.9.9\n\n",
            0,
        ),
        case("a chunked answer", "GET /chunked HTTP/1.1\nHost: a\n\n", 0),
        // Each piece is handed over as bytes of its own.
        case("a body", &large, 2),
    ]
}

/// Answers without allocating anything.
fn origin(set: &str) -> SocketAddr {
    let set = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{set}", set.len());
    let set: Arc<[u8]> = set.into_bytes().into();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let set = Arc::clone(&set);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                let mut length = 0;
                loop {
                    match stream.read(&mut buffer[length..]) {
                        Ok(0) | Err(_) => return,
                        Ok(count) => length += count,
                    }
                    let Some(end) = buffer[..length]
                        .windows(4)
                        .position(|window| window == b"\r\n\r\n")
                    else {
                        continue;
                    };
                    let posted = buffer.starts_with(b"POST");
                    if posted && length < end + 14 {
                        continue;
                    }
                    let answer: &[u8] = if buffer.starts_with(b"GET /jwks ") {
                        &set
                    } else if buffer.starts_with(b"GET /chunked") {
                        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                    } else {
                        b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
                    };
                    length = 0;
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

/// Returns the rule for all other requests.
fn plain() -> Rule {
    let mut rule = Rule::new(Action::Forward(Box::new(Forward::to("origin"))));
    rule.request_headers = HeaderChanges {
        set: vec![(
            HeaderName::parse("X-Set").expect("a name"),
            HeaderValue::parse("1").expect("a value"),
        )],
        ..HeaderChanges::default()
    };
    rule
}

pub(crate) fn main() {
    for engine in [Choice::Uring, Choice::Epoll] {
        let config = Config {
            engine,
            workers: Some(1),
            pin: false,
            ..Config::default()
        };
        match Engine::new(config) {
            Ok(engine) => check_all(engine),
            Err(error) => println!("SKIPPED {engine:?}: {error}"),
        }
    }
}

fn check_all(mut engine: Engine) {
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let Addr::Inet(addr) = engine
        .listen(&any, &ListenOptions::default())
        .expect("a free port")
    else {
        panic!("an internet address was asked for");
    };
    println!("on {}", engine.selection());
    let signer = Signer::new();
    let (mut asked, mut rules): (Vec<Case>, Vec<Rule>) = guarded(&signer).into_iter().unzip();
    assert_eq!(asked.len(), FREE.len() + LITTLE.len(), "each policy has a case");
    asked.extend(cases());
    rules.push(plain());
    let config = cases::config(rules, origin(&signer.set()));
    let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
    assert_eq!(gateway.problems(), []);
    let site = gateway.app().build().expect("an application");
    let running = engine
        .start(move |start| site.server(start))
        .expect("the worker starts");
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    let mut buffer = vec![0; 64 * 1024];
    let mut failed = false;
    for case in asked {
        for _ in 0..WARM {
            round(&mut stream, &mut buffer, &case);
        }
        let mut found = usize::MAX;
        for _ in 0..ATTEMPTS {
            if found > case.allowed * ROUNDS {
                let region = Region::new(ALLOCATOR);
                (0..ROUNDS).for_each(|_| round(&mut stream, &mut buffer, &case));
                let change = region.change();
                found = change.allocations + change.reallocations;
            }
        }
        println!("{:30} {:.3} per request", case.name, found as f64 / ROUNDS as f64);
        failed |= found > case.allowed * ROUNDS;
    }
    drop(stream);
    running.shut_down();
    running.join().expect("an orderly end");
    assert!(
        !failed,
        "expected at most what the table says, found more: see above"
    );
}

fn round(stream: &mut TcpStream, buffer: &mut [u8], case: &Case) {
    stream.write_all(&case.request).expect("the server takes it");
    let mut length = 0;
    loop {
        match stream.read(&mut buffer[length..]) {
            Ok(0) => panic!("the end after {}", buffer[..length].escape_ascii()),
            Ok(count) => length += count,
            // Work of a ring that this thread has probed.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("expected an answer, found {error}"),
        }
        let got = &buffer[..length];
        if got.ends_with(b"\r\n\r\nhello") || got.ends_with(b"hello\r\n0\r\n\r\n") {
            assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", got.escape_ascii());
            return;
        }
    }
}
