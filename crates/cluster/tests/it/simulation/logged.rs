//! Worlds whose channels are in a log.

use std::time::Duration;

use ringmain_cluster::node::Mutation;

use super::log::LogFaults;
use super::moves::{check_kill, check_moves, settled};
use super::world::World;
use super::{DAY, SEEDS, disturb, number};

/// Runs all worlds of a seed. `Err`: a promise was broken.
fn run(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    let faults = LogFaults {
        rolls_back: seed.is_multiple_of(2),
        is_ambiguous: seed.is_multiple_of(3),
        lags: seed % 4 < 2,
        vanishes: seed % 5 < 2,
    };
    run_faults(World::with_log(seed, mutation, faults)).map_err(|broken| format!("faults: {broken}"))?;
    let world = || World::with_log(seed, mutation, LogFaults::default());
    settled(world())
        .and_then(check_moves)
        .map_err(|broken| format!("moves: {broken}"))?;
    settled(world())
        .and_then(check_kill)
        .map_err(|broken| format!("kill: {broken}"))
}

fn run_faults(mut world: World) -> Result<(), String> {
    disturb(&mut world)?;
    world.disconnect_all();
    world.run_for(Duration::from_secs(120))?;
    world.check_empty()
}

#[test]
fn promises_with_a_log_are_kept() {
    let first = number("CLUSTER_FIRST_SEED").unwrap_or(0);
    for seed in first..first + number("CLUSTER_SEEDS").unwrap_or(SEEDS) {
        if let Err(broken) = run(seed, None) {
            panic!("seed {seed}: {broken}");
        }
    }
}

/// As without a log.
#[test]
fn promises_with_a_log_are_kept_for_a_day() {
    let end = match number("CLUSTER_DAY") {
        Some(days) => DAY * days as u32,
        None => Duration::from_secs(180),
    };
    let faults = LogFaults {
        rolls_back: true,
        is_ambiguous: true,
        lags: true,
        vanishes: true,
    };
    let mut world = World::with_log(1, None, faults);
    while world.now < end {
        if let Err(broken) = disturb(&mut world) {
            panic!("at {:?}: {broken}", world.now);
        }
        world.disconnect_all();
        world.forget_positions();
        world.forget_history();
    }
    world
        .run_for(Duration::from_secs(120))
        .expect("no broken promise");
    world.check_empty().expect("nothing is retained");
    println!(
        "{:?} of virtual time, {} publications, {} rollbacks",
        world.now,
        world.published,
        world.log.as_ref().map_or(0, |log| log.rollbacks)
    );
}

#[test]
#[cfg(feature = "mutations")]
fn planted_faults_of_logs_are_found() {
    for mutation in [
        Mutation::DroppedFloor,
        Mutation::DeliveredDoubles,
        Mutation::ForgottenCredit,
        Mutation::ReusedLife,
        Mutation::AssumedStart,
    ] {
        let found = (0..200).find_map(|seed| run(seed, Some(mutation)).err().map(|broken| (seed, broken)));
        let (seed, broken) = found.unwrap_or_else(|| panic!("{mutation:?} was not found"));
        println!("{mutation:?}: seed {seed}: {broken}");
    }
}
