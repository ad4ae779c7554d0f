//! The gateway in the simulated world: clients in front, origins behind, each with manners of its own, under one seed.
//!
//! Origins and clients use HTTP/1.1 and HTTP/2; callers have connections that are forwarded as bytes.
//!
//! Shows that each response belongs to its request, complete or recognizably cut; that a calm run answers all; that changes of
//! configuration are not noticed; that limits are exact to the request; that policies which query services admit no client that these
//! have not; that live streams are not cut and clients that stop are; that bytes held for slow readers stay within the limit, and
//! finished work does not wait for unfinished work; and that at the end nothing is held: connections, tasks, counts, memory.
//!
//! `SIM_SEEDS=10000` runs the long suite (`cargo xtask suite sim`), `SIM_SEED=n` one seed, `SIM_FIRST=n` leaves out
//! those before it.
#![expect(
    clippy::disallowed_macros,
    reason = "handlers and filters are `Send`, and the simulated world of a thread is not"
)]
#![expect(clippy::print_stdout, reason = "without a harness this is its report")]

mod busy_filters;
mod clients;
mod filters;
mod fingerprint;
mod h2_clients;
mod h2_origin;
mod l4;
mod load_limits;
mod origins;
mod policy_services;
mod request;
mod run;
mod stalled_clients;

use std::alloc::System;
use std::process::ExitCode;

use ringmain_sim::World;
use ringmain_sim::seeds::{self, Named};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::run::Run;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One in so many seeds also has scenes with a cast of their own.
const SCENES: u64 = 8;

/// Names the seed and its last events if its run fails.
fn named(seed: u64, world: &World) -> Named {
    Named::new(seed, world, "cargo test -p ringmain-gateway --test sim")
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
    let (mut right, mut failed, mut whole, mut runs) = (0, 0, 0, 0);
    for seed in seeds::all() {
        let region = Region::new(ALLOCATOR);
        let first = Run::new(seed);
        let world = first.world();
        let (answers, others, passed) = first.finish();
        (right, failed, whole) = (right + answers, failed + others, whole + passed);
        let hash = world.trace_hash();
        drop(world);
        runs += 1;
        let bytes = held(&region);
        assert_eq!(bytes, 0, "seed {seed}: bytes that were not freed");
        if seed.is_multiple_of(SCENES) {
            let region = Region::new(ALLOCATOR);
            stalled_clients::run(seed);
            busy_filters::run(seed);
            assert_eq!(
                held(&region),
                0,
                "seed {seed}: bytes of a scene that were not freed"
            );
        }
        if runs <= 10 {
            let again = Run::new(seed);
            let world = again.world();
            again.finish();
            assert_eq!(world.trace_hash(), hash, "seed {seed} is not reproducible");
        }
    }
    println!(
        "{runs} seeds, {right} answers, each the right one, {failed} failures told, {whole} connections passed on as a whole"
    );
    assert!(
        (right > 5 * runs && whole > runs) || !seeds::are_many(runs),
        "most requests are answered"
    );
}
