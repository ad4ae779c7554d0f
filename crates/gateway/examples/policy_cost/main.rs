//! What policies cost a request: a gateway answers so many requests in a simulated world, without system calls.
//!
//! `policy_cost --list` names the cases. `policy_cost CASE REQUESTS` prints what these requests took as a line of JSON:
//! allocations, and with `--cpu` nanoseconds of CPU; with `--bare` of the same requests without the policy. Most of both is the
//! simulation's and the client's: what a policy costs is the difference. `bench/policies.py` takes it, and counts instructions
//! by running this in valgrind, which looks at the worker's turns alone.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "what it is for")]

mod cases;
mod stage;

use std::alloc::System;

use ringmain_gateway::model::JwtAlgorithm;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use cases::{Case, Fields, Signer};
use stage::Stage;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests before those that count: connections are made, passwords checked, keys fetched, lists have grown.
const WARM: usize = 300;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let signer = Signer::new();
    let cases = cases::cases(&signer);
    let mut flag = |name| {
        let before = words.len();
        words.retain(|word| *word != name);
        words.len() < before
    };
    let (list, bare, timed) = (flag("--list"), flag("--bare"), flag("--cpu"));
    if list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return;
    }
    let [name, requests] = *words else {
        panic!("expected --list, or CASE REQUESTS [--bare] [--cpu], found {words:?}");
    };
    let case = cases.iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("expected a case of --list, found {name}"));
    let requests: usize = requests.parse().expect("a number of requests");
    let mut stage = Stage::new(case, bare, &signer);
    let texts = texts(case, WARM + requests, &signer);
    let all = texts.iter().cycle();
    all.clone().take(WARM).for_each(|text| stage.ask(text));
    let texts: Vec<&[u8]> = all.skip(WARM).take(requests).map(Vec::as_slice).collect();
    let region = Region::new(ALLOCATOR);
    let begun = timed.then(cpu_nanos);
    texts.iter().for_each(|text| stage.ask(text));
    let spent = begun.map_or(0, |begun| cpu_nanos() - begun);
    let change = region.change();
    let allocations = change.allocations + change.reallocations;
    println!("{{\"requests\":{requests},\"allocations\":{allocations},\"cpu_ns\":{spent}}}");
}

fn texts(case: &Case, count: usize, signer: &Signer) -> Vec<Vec<u8>> {
    let text = |fields: &str| {
        format!(
            "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench\r\nAccept: */*\r\n{fields}\r\n"
        )
        .into_bytes()
    };
    let token = |algorithm: JwtAlgorithm| (0..count).map(move |number| signer.field(algorithm, number));
    match &case.fields {
        Fields::Same(fields) => vec![text(fields)],
        Fields::Tokens(algorithm) => token(*algorithm).map(|field| text(&field)).collect(),
    }
}

/// CPU time of this thread, the only one that works. In valgrind it cannot be asked for.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
