//! Applications in the simulated world: clients with every kind of request, body and bad manners under one seed.
//!
//! Shows that each request whose connection lives gets one answer, its own, in order; that no connection ends
//! without a cause; and that at the end nothing is held: connections, tasks, addresses, memory.
//!
//! `SIM_SEEDS=10000` runs the long suite (`cargo xtask suite sim`), `SIM_SEED=n` one seed.
#![expect(clippy::print_stdout, reason = "without a harness this is its report")]

mod app;
mod clients;
mod link;
mod requests;
mod run;
mod sockets;
mod streams;

use std::alloc::System;
use std::process::ExitCode;

use ringmain_sim::World;
use ringmain_sim::seeds::{self, Named};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::run::Run;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Names the seed and its last events if its run fails.
fn named(seed: u64, world: &World) -> Named {
    Named::new(seed, world, "cargo test -p ringmain-web --test sim")
}

/// Handlers' own panics are part of the test.
fn hide_planned_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload_as_str() != Some("planned") {
            usual(info);
        }
    }));
}

/// Bytes that are allocated more than before.
fn held(region: &Region<'_, System>) -> isize {
    let change = region.change();
    change.bytes_allocated as isize - change.bytes_deallocated as isize
}

fn main() -> ExitCode {
    ringmain_testkit::cases::main(&[("seeds", seeds_hold)])
}

fn seeds_hold() {
    hide_planned_panics();
    // One-time allocations of libraries are made now.
    Run::new(0).finish();
    let (mut answers, mut runs) = (0, 0);
    for seed in seeds::all() {
        let region = Region::new(ALLOCATOR);
        let first = Run::new(seed);
        let world = first.world();
        answers += first.finish();
        let hash = world.trace_hash();
        drop(world);
        runs += 1;
        let bytes = held(&region);
        assert_eq!(bytes, 0, "seed {seed}: bytes that were not freed");
        if runs <= 10 {
            let again = Run::new(seed);
            let world = again.world();
            again.finish();
            assert_eq!(world.trace_hash(), hash, "seed {seed} is not reproducible");
        }
    }
    println!("{runs} seeds, {answers} answers, each the right one");
    assert!(
        answers > 5 * runs || !seeds::are_many(runs),
        "most requests are answered"
    );
}
