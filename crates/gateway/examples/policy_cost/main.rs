//! Measures the cost of policies per request: a gateway in a simulated world, without system calls, serves a number of requests.
//!
//! `policy_cost --list` names the cases. `policy_cost CASE REQUESTS` prints the number of allocations as a line of JSON, and
//! with `--cpu` the nanoseconds of CPU time; `--bare` runs the same requests without the policy. The simulation and the client cause
//! most of both: the cost of a policy is the difference. `bench/policies.py` computes the difference, and counts instructions in
//! valgrind, limited to the worker's loop iterations.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

mod cases;
mod simulation;

use std::alloc::System;

use ringmain_gateway::model::JwtAlgorithm;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use cases::{Case, Fields, Signer};
use simulation::Simulation;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Warm-up requests, which are not counted: connections are established, passarguments verified, keys fetched, buffers allocated.
const WARM_UP: usize = 300;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let signer = Signer::new();
    let cases = cases::cases(&signer);
    let mut flag = |name| {
        let before = arguments.len();
        arguments.retain(|argument| *argument != name);
        arguments.len() < before
    };
    let (list, bare, timed) = (flag("--list"), flag("--bare"), flag("--cpu"));
    if list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return;
    }
    let [name, requests] = *arguments else {
        panic!("expected --list, or CASE REQUESTS [--bare] [--cpu], found {arguments:?}");
    };
    let case = cases.iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("expected a case of --list, found {name}"));
    let requests: usize = requests.parse().expect("a number of requests");
    let mut simulation = Simulation::new(case, bare, &signer);
    let texts = texts(case, WARM_UP + requests, &signer);
    let all = texts.iter().cycle();
    all.clone()
        .take(WARM_UP)
        .for_each(|text| simulation.request(text));
    let texts: Vec<&[u8]> = all.skip(WARM_UP).take(requests).map(Vec::as_slice).collect();
    let region = Region::new(ALLOCATOR);
    let started_at = timed.then(cpu_nanos);
    texts.iter().for_each(|text| simulation.request(text));
    let spent = started_at.map_or(0, |started_at| cpu_nanos() - started_at);
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

/// Returns the CPU time of this thread, the only busy one. Not supported in valgrind.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
