//! The cost of attacks to the gateway, per byte of the attacker: the corpus of `tests/it/attacks`, clients that are slow on purpose, and
//! input that is expensive for expressions, tables and parsers.
//!
//! Bytes and pieces of memory, turns of the worker and bytes for the origin are counted in virtual time, so that a bound holds each
//! time or never. `COSTS=1` prints all figures.

#[path = "../../it/attacks/corpus.rs"]
mod corpus;
#[path = "../../it/attacks/message.rs"]
mod message;

mod attacker;
mod growth;
mod slow_clients;

use std::sync::Arc;

use ringmain_gateway::model::{
    Action, Config, Endpoint, EndpointLocation, Forward, Listener, Protocol, Route, Rule, Upstream,
};

use crate::cost::attacker::{Cost, Script, Stand, statuses};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The number of attacks before the one that is counted.
const WARM: usize = 20;

/// The number of attacks after which the retained bytes and tasks are counted. The memory that pools retain varies by some kilobytes from one
/// attack to the next; a leak is retained after every one.
const COUNTED: usize = 3;

/// The most that an attack may cost in any case, and for each [`STEP`] of its bytes.
struct Bound {
    first: usize,
    step: usize,
}

const STEP: usize = 16;

impl Bound {
    #[track_caller]
    fn holds(&self, what: &str, found: usize, sent: usize, name: &str, cost: &Cost) {
        let Bound { first, step } = self;
        assert!(
            found <= first + step * sent / STEP,
            "{name}: expected {what} to be at most {first} and {step} for each {STEP} of {sent} bytes, found {found}: {cost:?}"
        );
    }
}

/// Two connections and a task with their buffers, and each byte as often as it can wait: in the network on both sides, to be parsed, to
/// be sent.
const HELD: Bound = Bound {
    first: 20 * 1024,
    step: 4 * STEP,
};
/// Short requests that are refused ask for most.
const ALLOCATIONS: Bound = Bound { first: 64, step: 4 };
const TURNS: Bound = Bound { first: 48, step: 2 };
/// The bytes that the gateway adds to a request: fields about the client and the requested host.
const PASSED: Bound = Bound {
    first: 256,
    step: 6 * STEP,
};
/// The size of a response of the gateway's own with its error text; a relayed one has a Date.
const ANSWERED: Bound = Bound {
    first: 512,
    step: 3 * STEP,
};

/// Bytes by which lists and queues may have grown for good.
const LEFT: isize = 4096;

/// All that is said of an attack that is no larger than its bytes.
#[track_caller]
fn bounded(name: &str, cost: &Cost) {
    report(name, cost);
    HELD.holds("bytes held", cost.held, cost.sent, name, cost);
    ALLOCATIONS.holds("allocations", cost.allocations, cost.sent, name, cost);
    TURNS.holds("turns", cost.turns, cost.sent, name, cost);
    PASSED.holds("bytes for the origin", cost.passed, cost.sent, name, cost);
    ANSWERED.holds("bytes of answers", cost.answered, cost.sent, name, cost);
    nothing_left(name, cost);
}

/// Checks that a finished attack leaves nothing: pooled memory existed before.
#[track_caller]
fn nothing_left(name: &str, cost: &Cost) {
    assert!(cost.left <= LEFT, "{name}: bytes that were not freed: {cost:?}");
}

fn report(name: &str, cost: &Cost) {
    if std::env::var_os("COSTS").is_some() {
        println!("{name}: {cost:?}");
    }
}

fn rules(rules: Vec<Rule>) -> Config {
    let listener = Listener {
        name: "web".into(),
        addresses: vec!["127.0.0.1:80".parse().expect("an address")],
        protocol: Protocol::Http,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: Default::default(),
        client_address: Default::default(),
        limits: Default::default(),
        policies: Vec::new(),
    };
    let route = Route {
        name: "all".into(),
        listeners: Vec::new(),
        hostnames: Vec::new(),
        rules,
    };
    let endpoint = Endpoint::new(EndpointLocation::Address(attacker::origin()));
    Config {
        listeners: vec![listener.into()],
        routes: vec![route.into()],
        upstreams: vec![Arc::new(Upstream::new("origin", vec![endpoint]))],
        ..Config::default()
    }
}

fn forward() -> Rule {
    Rule::new(Action::Forward(Box::new(Forward::to("origin"))))
}

/// Measures the cost after warm-up; bytes that are left are those that were not there before.
fn again(config: Config, answer: &[u8], closes: bool, script: &Script) -> (Cost, String) {
    let mut stand = Stand::new(config, answer, closes);
    let (mut left, mut tasks) = (0, 0);
    for _ in 0..WARM {
        let (cost, _) = stand.attacked(script, 1);
        (left, tasks) = (cost.left.max(left), cost.tasks.max(tasks));
    }
    let (mut cost, answers) = stand.attacked(script, 1);
    for _ in 1..COUNTED {
        let (other, _) = stand.attacked(script, 1);
        cost.left = cost.left.min(other.left);
        cost.tasks = cost.tasks.min(other.tasks);
    }
    assert!(
        cost.tasks <= tasks,
        "tasks that wait for ever: {cost:?} of {script:?}"
    );
    cost.left -= left;
    (cost, answers)
}

/// Each payload of the corpus receives the same response as over real sockets, and costs no more than its bytes allow.
fn payloads() {
    let expected = include_str!("../../it/attacks/expected.txt").split("== ").skip(1);
    for (attack, expected) in corpus::ALL.iter().zip(expected) {
        let script = Script::all([attack.bytes, corpus::AFTER].concat());
        let (cost, answers) = again(rules(vec![forward()]), OK, false, &script);
        bounded(attack.name, &cost);
        let said = expected
            .lines()
            .find_map(|line| line.strip_prefix("gateway: "))
            .and_then(|line| line.rsplit_once(' ').or(Some(("", line))));
        let (said, _) = said.expect("a line for the gateway");
        assert_eq!(statuses(&answers), said, "{}", attack.name);
    }
}

/// The same of origins that lie: by the byte of their answers.
fn lies() {
    for lie in corpus::LIES.iter().filter(|lie| !lie.bytes.is_empty()) {
        let script = Script::all(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (mut cost, _) = again(rules(vec![forward()]), lie.bytes, lie.ends, &script);
        cost.sent += lie.bytes.len();
        bounded(lie.name, &cost);
    }
}

pub(crate) fn main() {
    payloads();
    lies();
    slow_clients::all();
    growth::all();
    println!(
        "{} payloads and {} lies, slow clients and growing requests: each within its bounds",
        corpus::ALL.len(),
        corpus::LIES.len()
    );
}
