//! Upstreams by name: a DNS server with scripted records, and endpoints that follow it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::Gateway;
use ringmain_gateway::health::{CheckVerdict, EjectionReason};
use ringmain_gateway::model::{
    ActiveHealth, Endpoint, EndpointLocation, HealthCheck, Hostname, OutlierDetection, Retry, RetryOn,
    StatusRange,
};
use ringmain_testkit::wait;

use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::support::{self, Answer};

on_every_backend! {
    names_are_followed,
    names_that_lead_nowhere,
    a_pending_name_is_awaited_within_the_time_of_the_request,
    a_name_that_disappears,
    all_endpoints_are_unhealthy,
    an_unhealthy_endpoint_is_skipped,
    a_failing_endpoint_is_ejected,
}

/// The records of a name: addresses, or a response code.
#[derive(Clone)]
enum Says {
    Addresses(Vec<Ipv4Addr>),
    Code(u8),
    Nothing,
}

struct Dns {
    addr: SocketAddr,
    says: Arc<Mutex<BTreeMap<String, Says>>>,
    /// Counts answered queries.
    asked: Arc<AtomicUsize>,
}

impl Dns {
    fn new() -> Dns {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let addr = socket.local_addr().expect("it is bound");
        let says: Arc<Mutex<BTreeMap<String, Says>>> = Arc::default();
        let told = Arc::clone(&says);
        let asked: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let told = told.lock().expect("a table");
                if let Some(answer) = answer(&buffer[..length], &told) {
                    let _ = socket.send_to(&answer, from);
                }
                // Counted under the lock: a test that changes the records knows the number of earlier queries.
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Dns { addr, says, asked }
    }

    fn say(&self, name: &str, says: Says) {
        self.says.lock().expect("a table").insert(name.to_owned(), says);
    }

    /// Returns a function that checks for a number of queries from now on.
    fn asked(&self) -> impl Fn(usize) -> bool + use<> {
        let asked = Arc::clone(&self.asked);
        let before = asked.load(Ordering::SeqCst);
        move |more| asked.load(Ordering::SeqCst) >= before + more
    }
}

fn answer(question: &[u8], says: &BTreeMap<String, Says>) -> Option<Vec<u8>> {
    let mut at = 12;
    let mut labels = Vec::new();
    while question[at] > 0 {
        let length = usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..][..length]).into_owned());
        at += 1 + length;
    }
    let end = at + 5;
    let is_v4 = question[at + 2] == 1;
    let says = says.get(&labels.join(".")).cloned().unwrap_or(Says::Code(3));
    let (code, addresses) = match says {
        Says::Addresses(addresses) if is_v4 => (0, addresses),
        Says::Addresses(_) => (0, Vec::new()),
        Says::Code(code) => (code, Vec::new()),
        Says::Nothing => return None,
    };
    let mut out = question[..end].to_vec();
    (out[2], out[3]) = (0x81, 0x80 | code);
    out[6..12].copy_from_slice(&[0, addresses.len() as u8, 0, 0, 0, 0]);
    for address in addresses {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    Some(out)
}

fn serve(engine: Config, dns: &Dns, config: ringmain_gateway::model::Config) -> Edge {
    serve_with(engine, dns, config, 1)
}

/// `timeout`: seconds for which the server is waited for.
fn serve_with(engine: Config, dns: &Dns, config: ringmain_gateway::model::Config, timeout: u32) -> Edge {
    let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
    gateway.set_resolver_files(
        &format!("nameserver {}\noptions timeout:{timeout} attempts:1\n", dns.addr),
        "127.0.0.1 in-the-file\n",
    );
    let server = support::serve(engine, gateway.app());
    Edge { server, gateway }
}

fn at(name: &str, port: u16) -> Endpoint {
    Endpoint::new(EndpointLocation::Host {
        name: Hostname::parse(name).expect("a name"),
        port,
    })
}

/// Repeats requests until the response is the expected one; the delay is unspecified.
#[track_caller]
fn until(edge: &Edge, what: &str, is: impl Fn(&Answer) -> bool) {
    wait::until(what, || is(&edge.server.get("/")));
}

fn names_are_followed(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let dns = Dns::new();
    dns.say("shop.example", Says::Addresses(vec![Ipv4Addr::LOCALHOST]));
    let edge = serve(
        engine,
        &dns,
        to(&[], |_, upstream| {
            upstream.endpoints = vec![at("shop.example", origin.addr.port())]
        }),
    );
    // The first request waits for the first answer.
    edge.server.get("/").expect(200, "ok");
    // No listener there: the change of the name is followed.
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    dns.say("shop.example", Says::Addresses(vec![elsewhere]));
    until(&edge, "the new address", |answer| answer.status == 503);
    dns.say(
        "shop.example",
        Says::Addresses(vec![Ipv4Addr::LOCALHOST, elsewhere]),
    );
    until(&edge, "the old one too", |answer| answer.status == 200);
    // The last good addresses are retained, whatever the error.
    dns.say("shop.example", Says::Addresses(vec![Ipv4Addr::LOCALHOST]));
    let endpoints = |edge: &Edge| edge.gateway.upstreams()[0].endpoints.len();
    until(&edge, "one address", |_| endpoints(&edge) == 1);
    for says in [
        Says::Code(3),
        Says::Code(2),
        Says::Nothing,
        Says::Addresses(Vec::new()),
    ] {
        dns.say("shop.example", says);
        for _ in 0..20 {
            edge.server.get("/").expect(200, "ok");
        }
    }
    edge.server.shut_down();
}

fn names_that_lead_nowhere(engine: Config) {
    let dns = Dns::new();
    dns.say("empty.example", Says::Addresses(Vec::new()));
    dns.say("broken.example", Says::Code(2));
    for (name, text) in [
        ("none.example", "upstream hostname does not exist\n"),
        ("empty.example", "upstream hostname has no address\n"),
        ("broken.example", "upstream hostname cannot be resolved\n"),
    ] {
        let edge = serve(
            engine.clone(),
            &dns,
            to(&[], |_, upstream| upstream.endpoints = vec![at(name, 80)]),
        );
        edge.server.get("/").expect(503, text);
        let reason = edge.gateway.upstreams()[0].no_endpoint.expect(name);
        assert_eq!(format!("{}\n", reason.text()), text);
        edge.server.shut_down();
    }
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let edge = serve(
        engine,
        &dns,
        to(&[], |_, upstream| {
            upstream.endpoints = vec![at("in-the-file", origin.addr.port())]
        }),
    );
    edge.server.get("/").expect(200, "ok");
    assert_eq!(edge.gateway.upstreams()[0].no_endpoint, None);
    edge.server.shut_down();
}

/// While a name is being resolved for the first time, the time limit of a request applies, not only the upstream's for connecting.
fn a_pending_name_is_awaited_within_the_time_of_the_request(engine: Config) {
    let dns = Dns::new();
    dns.say("silent.test", Says::Nothing);
    let config = to(&[], |forward, upstream| {
        upstream.endpoints = vec![at("silent.test", 80)];
        upstream.connect_timeout = 2 * support::PATIENCE;
        forward.timeouts.request = Some(Duration::from_millis(20));
    });
    // The resolver waits for longer than the test.
    let edge = serve_with(engine, &dns, config, 30);
    assert_eq!(edge.server.get("/").status, 504);
    edge.server.shut_down();
}

/// The last good answer counts for as long as DNS has no other, and the next good one is followed.
fn a_name_that_disappears(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let dns = Dns::new();
    dns.say("shop.example", Says::Addresses(vec![Ipv4Addr::LOCALHOST]));
    let edge = serve(
        engine,
        &dns,
        to(&[], |_, upstream| {
            upstream.endpoints = vec![at("shop.example", origin.addr.port())]
        }),
    );
    edge.server.get("/").expect(200, "ok");
    dns.say("shop.example", Says::Code(3));
    // One question for each family of addresses: with a third, one look-up has ended that found no such name.
    let asked = dns.asked();
    until(&edge, "another look-up", |answer| {
        answer.expect(200, "ok");
        asked(3)
    });
    edge.server.get("/").expect(200, "ok");
    dns.say("shop.example", Says::Addresses(vec![Ipv4Addr::new(127, 0, 0, 2)]));
    until(&edge, "the new address, where nobody listens", |answer| {
        answer.status == 503
    });
    edge.server.get("/").expect(503, "upstream connection refused\n");
    edge.server.shut_down();
}

fn checked_every(span: Duration) -> ActiveHealth {
    let check = HealthCheck::Http {
        target: "/health".into(),
        host: None,
        statuses: StatusRange {
            first: 200,
            last: 299,
        },
    };
    ActiveHealth {
        every: span,
        ..ActiveHealth::new(check)
    }
}

/// No healthy endpoint: distinguished from no listening endpoint, unless the panic threshold uses unhealthy ones.
fn all_endpoints_are_unhealthy(engine: Config) {
    let ill = || {
        Origin::new(|mut peer| {
            while let Some(seen) = peer.request() {
                let asked = seen.line().contains("/health");
                let status = if asked { "500 Ill" } else { "200 OK" };
                peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nill"));
            }
        })
    };
    let (one, other) = (ill(), ill());
    let mut config = to(&[one.addr, other.addr], |_, upstream| {
        upstream.health.panic_percent = 0;
        upstream.health.active = Some(checked_every(Duration::from_millis(20)));
    });
    let edge = edge(engine, config.clone());
    until(&edge, "nobody", |answer| answer.status == 503);
    edge.server.get("/").expect(503, "no healthy upstream\n");
    let upstream = Arc::make_mut(&mut config.upstreams[0]);
    upstream.health.panic_percent = 50;
    edge.gateway.replace(Arc::new(config.clone()), Duration::ZERO);
    until(&edge, "one of the ill", |answer| answer.status == 200);
    let upstream = Arc::make_mut(&mut config.upstreams[0]);
    upstream.endpoints = vec![Endpoint::new(EndpointLocation::Address(refusing_addr()))];
    upstream.health.active = None;
    edge.gateway.replace(Arc::new(config), Duration::ZERO);
    until(&edge, "nobody who listens", |answer| answer.status == 503);
    edge.server.get("/").expect(503, "upstream connection refused\n");
    edge.server.shut_down();
}

fn an_unhealthy_endpoint_is_skipped(engine: Config) {
    let well = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell");
    let ill = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let asked = seen.line().contains("/health");
            let status = if asked { "500 Ill" } else { "200 OK" };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nill"));
        }
    });
    let config = to(&[well.addr, ill.addr], |_, upstream| {
        upstream.health.active = Some(checked_every(Duration::from_millis(20)));
    });
    let edge = edge(engine, config.clone());
    let verdicts = |edge: &Edge| -> Vec<_> {
        let upstreams = edge.gateway.upstreams();
        upstreams[0]
            .endpoints
            .iter()
            .map(|endpoint| endpoint.verdict)
            .collect()
    };
    until(&edge, "verdicts", |_| {
        verdicts(&edge) == [CheckVerdict::Healthy, CheckVerdict::Unhealthy]
    });
    for _ in 0..50 {
        edge.server.get("/").expect(200, "well");
    }
    // Without health checks the verdict is unknown.
    let mut config = config;
    let upstream = Arc::make_mut(&mut config.upstreams[0]);
    upstream.health.active = None;
    edge.gateway.replace(Arc::new(config), Duration::ZERO);
    until(&edge, "no verdicts", |_| {
        verdicts(&edge) == [CheckVerdict::Unknown; 2]
    });
    until(&edge, "the other one", |answer| answer.text() == "ill");
    edge.server.shut_down();
}

fn a_failing_endpoint_is_ejected(engine: Config) {
    let good = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
    let bad = Origin::answering("HTTP/1.1 500 Bad\r\nContent-Length: 3\r\n\r\nbad");
    let retry = Retry {
        on: RetryOn {
            connect: true,
            ..RetryOn::default()
        },
        ..Retry::default()
    };
    let config = to(&[good.addr, bad.addr, refusing_addr()], |forward, upstream| {
        forward.retry = Some(retry);
        upstream.health.panic_percent = 0;
        upstream.health.outliers = Some(OutlierDetection {
            consecutive: 3,
            max_ejected_percent: 100,
            ejected: Duration::from_secs(3600),
            max_ejected_time: Duration::from_secs(3600),
            ..OutlierDetection::default()
        });
    });
    let edge = edge(engine, config);
    let bads = (0..500).filter(|_| edge.server.get("/").status == 500).count();
    assert!(
        (3..=10).contains(&bads),
        "{bads} bad answers until it was passed over"
    );
    edge.server.get("/").expect(200, "good");
    // The reason and the endpoint are reported.
    let endpoints = &edge.gateway.upstreams()[0].endpoints;
    assert_eq!(endpoints[0].ejection, None);
    let ejection = endpoints[1].ejection.expect("it is passed over");
    assert!(
        matches!(ejection.reason, EjectionReason::Consecutive(count) if count >= 3),
        "{ejection:?}"
    );
    assert_eq!(ejection.times, 1);
    // From well after 2020 on.
    assert!(
        ejection.until > Duration::from_secs(1_600_000_000),
        "{ejection:?}"
    );
    let reached = endpoints.iter().map(|it| it.unreachable_until.is_some());
    assert_eq!(reached.collect::<Vec<_>>(), [false, false, true]);
    edge.server.shut_down();
}
