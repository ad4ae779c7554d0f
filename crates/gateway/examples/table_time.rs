//! Measures a routing table: the time of its compilation, of a recompilation after one change, and of a lookup.
//!
//! `cargo run --release -p ringmain-gateway --example table_time [ROUTES]`. Limits for 5,000 routes: 100 ms for the first
//! compilation, 10 ms after a change of one route.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]
#![expect(clippy::disallowed_methods, reason = "measures real time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringmain_gateway::model::{
    Action, Config, Endpoint, EndpointLocation, Forward, Hostname, HttpLimits, Listener, Match, Path,
    PathMatch, Protocol, Route, Rule, Upstream,
};
use ringmain_gateway::table::{Headers, RequestFacts, Table};

const ROUNDS: usize = 15;
const LOOKUPS: usize = 200_000;

fn main() {
    let routes = std::env::args()
        .nth(1)
        .map_or(5_000, |argument| argument.parse().expect("a number of routes"));
    for hosts in [routes, 1] {
        println!("{routes} routes on {hosts} hosts:");
        measure(routes, hosts);
    }
}

fn measure(routes: usize, hosts: usize) {
    let (mut first, mut shared, mut reloaded) = (Vec::new(), Vec::new(), Vec::new());
    let mut table = None;
    for round in 0..ROUNDS {
        let config = config(routes, hosts, 0);
        let compiled = timed(&mut first, || compile(config, None));
        // One route changes and the others are shared; then all are built again, as after a reload of a file.
        let mut changed = (**compiled.config()).clone();
        changed.routes[routes / 2] = Arc::new(route(routes / 2, hosts, round + 1));
        let next = timed(&mut shared, || compile(changed, Some(&compiled)));
        let next_config = self::config(routes, hosts, round + 2);
        table = Some(timed(&mut reloaded, || compile(next_config, Some(&next))));
    }
    let table = table.expect("a round");
    println!("  compiled             {:?}", median(&mut first));
    println!("  one changed          {:?}", median(&mut shared));
    println!("  one changed, a file  {:?}", median(&mut reloaded));
    println!("  looked up            {:?}", lookup(&table, routes, hosts));
}

fn timed<T>(times: &mut Vec<Duration>, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    times.push(start.elapsed());
    result
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn lookup(table: &Table<()>, routes: usize, hosts: usize) -> Duration {
    let (listener, _) = table.listeners().next().expect("a listener");
    let urls: Vec<_> = (0..routes)
        .map(|number| (host(number, hosts), format!("/service{number}/a/b")))
        .collect();
    let start = Instant::now();
    for number in 0..LOOKUPS {
        let (host, path) = &urls[number * 7919 % routes];
        let facts = RequestFacts {
            host,
            path,
            method: "GET",
            query: "",
            headers: Headers::List(&[]),
        };
        black_box(
            table
                .find(listener, black_box(&facts))
                .expect("a route")
                .rule_number(),
        );
    }
    start.elapsed() / u32::try_from(LOOKUPS).expect("few")
}

fn compile(config: Config, last: Option<&Table<()>>) -> Table<()> {
    Table::compile(Arc::new(config), last, &mut |_, _| Ok(()))
}

fn config(routes: usize, hosts: usize, version: usize) -> Config {
    let address = EndpointLocation::Address("127.0.0.1:3000".parse().expect("an address"));
    let version = |number| if number == routes / 2 { version } else { 0 };
    Config {
        listeners: vec![Arc::new(Listener {
            name: "web".into(),
            addresses: vec!["127.0.0.1:8080".parse().expect("an address")],
            protocol: Protocol::Http,
            hostnames: Vec::new(),
            tls: None,
            proxy_protocol: None,
            redirect_to_https: None,
            paths: Default::default(),
            client_address: Default::default(),
            limits: HttpLimits::default(),
            policies: Vec::new(),
        })],
        routes: (0..routes)
            .map(|number| Arc::new(route(number, hosts, version(number))))
            .collect(),
        upstreams: vec![Arc::new(Upstream::new("up", vec![Endpoint::new(address)]))],
        ..Config::default()
    }
}

fn host(number: usize, hosts: usize) -> String {
    format!("shop{}.example", number % hosts)
}

fn route(number: usize, hosts: usize, version: usize) -> Route {
    let path = |text: String| Path::parse(&text).expect("a path");
    let rule = |path| {
        let mut rule = Rule::new(Action::Forward(Box::new(Forward::to("up"))));
        rule.matches = vec![Match {
            path,
            ..Match::default()
        }];
        rule
    };
    Route {
        name: format!("route-{number}").into(),
        listeners: Vec::new(),
        hostnames: vec![Hostname::parse(&host(number, hosts)).expect("a hostname")],
        rules: vec![
            rule(PathMatch::Prefix(path(format!("/service{number}")))),
            rule(PathMatch::Exact(path(format!("/status{number}/{version}")))),
        ],
    }
}
