//! The real worker in the simulated world: many workers, connections, mail and faults under one seed.
//!
//! Shows that no byte is lost, doubled or crossed between connections, and that at shutdown every slot,
//! buffer, descriptor, operation and job is returned.
//!
//! `SIM_SEEDS=10000` runs the long suite (`cargo xtask suite sim`), `SIM_SEED=n` one seed.

mod alarms;
mod clients;
mod contract;
mod courier;
mod doors;
mod holding;
mod layers;
mod marks;
mod run;
#[path = "../it/support/scramble.rs"]
mod scramble;
mod sharing;
mod turns;

use ringmain_sim::seeds::{self, Named};
use ringmain_sim::{Fault, World};

use crate::run::Run;

/// Names the seed of a test and its last events if its run fails.
fn named(seed: u64, test: &str, world: &World) -> Named {
    Named::new(
        seed,
        world,
        format!("cargo test -p ringmain-engine --test sim {test}"),
    )
}

#[test]
fn nothing_is_lost_doubled_or_crossed() {
    let (mut whole, mut runs, mut counts) = (0, 0, vec![0; Fault::ALL.len()]);
    for seed in seeds::all() {
        let run = Run::new(seed, "nothing_is_lost_doubled_or_crossed");
        let world = run.world();
        whole += run.finish();
        runs += 1;
        for (count, fault) in counts.iter_mut().zip(Fault::ALL) {
            *count += world.count(fault);
        }
    }
    println!("{runs} seeds, {whole} streams came back whole");
    assert!(whole > runs, "most streams come back whole");
    let never: Vec<Fault> = Fault::ALL
        .into_iter()
        .zip(counts)
        .filter(|(fault, count)| *count == 0 && !format!("{fault:?}").starts_with("Datagram"))
        .map(|(fault, _)| fault)
        .collect();
    assert!(
        !seeds::are_many(runs) || never.is_empty(),
        "never seen in {runs} seeds: {never:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in seeds::some(30) {
        let hash = || {
            let run = Run::new(seed, "the_same_seed_gives_the_same_run");
            let world = run.world();
            run.finish();
            world.trace_hash()
        };
        assert_eq!(hash(), hash(), "seed {seed} is not reproducible");
    }
}
