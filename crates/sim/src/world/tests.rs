//! The simulation judged by itself: a tiny echo loop on the raw contract over many seeds, each
//! fault seen at least once, and each misuse caught.

mod echo;
mod misuse;
mod run;
mod small;

use super::{Fault, Plan, World};
use crate::seeds;
use run::Run;

/// The workers of these runs do not look for resets that were not reported.
fn mixed(seed: u64) -> Plan {
    Plan::mixed(seed).with(Fault::MissedReset, 0)
}

#[test]
fn no_byte_is_lost_doubled_or_crossed() {
    let mut counts = vec![0; Fault::ALL.len()];
    for seed in seeds::all() {
        let run = Run::new(seed, mixed(seed), 1 + (seed % 3) as usize);
        let world = run.finish();
        for (count, fault) in counts.iter_mut().zip(Fault::ALL) {
            *count += world.count(fault);
        }
    }
    let struck = counts.iter().zip(Fault::ALL);
    for (count, fault) in struck.filter(|(_, fault)| *fault != Fault::MissedReset) {
        assert!(*count > 0, "{fault:?} never struck in seeds {:?}", seeds::all());
    }
}

#[test]
fn without_faults_every_byte_comes_back() {
    for seed in seeds::some(seeds::COMMIT) {
        let run = Run::new(seed, Plan::calm(), 2);
        let clients = run.clients.len();
        // The upstream's connections may come on top of these.
        assert!(run.finish_counting().1 >= clients, "seed {seed}: complete echoes");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| Run::new(seed, mixed(seed), 3).finish().trace_hash();
    let mut hashes: Vec<u64> = (0..40).map(hash).collect();
    for (seed, first) in hashes.iter().enumerate() {
        assert_eq!(*first, hash(seed as u64), "seed {seed} is not reproducible");
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 40, "different seeds give different runs");
}

/// A world whose waits move it, for tests of single calls.
fn single(seed: u64, mut plan: Plan, workers: usize) -> World {
    plan.self_driving = true;
    World::new(seed, plan, workers)
}
