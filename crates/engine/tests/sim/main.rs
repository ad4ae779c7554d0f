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

use std::ops::Range;

use ringmain_sim::{Fault, World};

use crate::run::Run;

/// The number in an environment variable.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seeds of this run of the test.
fn seeds() -> Range<u64> {
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(50),
    }
}

/// The seeds of a test that needs few: `count` in the long suite, a fifth of them otherwise.
fn some_seeds(count: u64) -> Range<u64> {
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None if number("SIM_SEEDS").is_some() => 0..count,
        None => 0..count.div_ceil(5),
    }
}

/// Tells, when the test fails, which seed it was and what happened last.
struct Named {
    seed: u64,
    test: &'static str,
    world: World,
}

impl Drop for Named {
    #[expect(clippy::print_stderr, reason = "beside the panic's own message")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, test) = (self.seed, self.test);
            let text = self.world.trace_text();
            // Idle turns tell nothing, and there may be many.
            let told: Vec<&str> = text.lines().filter(|line| !line.contains("  wait")).collect();
            let told = &told[told.len().saturating_sub(200)..];
            eprintln!("the last of seed {seed}:\n{}", told.join("\n"));
            eprintln!("again: SIM_SEED={seed} cargo test -p ringmain-engine --test sim {test}");
        }
    }
}

#[test]
fn nothing_is_lost_doubled_or_crossed() {
    let (mut whole, mut runs, mut counts) = (0, 0, vec![0; Fault::ALL.len()]);
    for seed in seeds() {
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
        runs < 100 || never.is_empty(),
        "never seen in {runs} seeds: {never:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in some_seeds(30) {
        let hash = || {
            let run = Run::new(seed, "the_same_seed_gives_the_same_run");
            let world = run.world();
            run.finish();
            world.trace_hash()
        };
        assert_eq!(hash(), hash(), "seed {seed} is not reproducible");
    }
}
