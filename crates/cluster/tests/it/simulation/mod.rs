//! Nodes and links under a seed, with clients that rely on every report.
//!
//! Nodes are killed, paused, restarted and separated; links have delays and may be slow. Clients check, at each publication: it is the next
//! one of its epoch, unless a gap was reported; an (epoch, offset) is one publication. After quiet: every client has the newest
//! publication, presence equals the connected clients, and nothing is retained without clients.

mod clients;
mod world;

use std::time::Duration;

use ringmain_cluster::node::Mutation;
use world::World;

/// The seeds of one run; `CLUSTER_SEEDS` replaces their number.
const SEEDS: u64 = 30;

/// Runs a world. `Err`: a promise was broken.
fn run(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    let mut world = World::new(seed, mutation);
    for _ in 0..world.draw(20, 60) {
        world.step();
        let pause = world.draw(5, 900);
        world.run_for(Duration::from_millis(pause))?;
    }
    world.heal();
    world.run_for(Duration::from_secs(20))?;
    world.publish_everywhere();
    world.run_for(Duration::from_secs(8))?;
    world.check_quiet()?;
    world.disconnect_all();
    world.run_for(Duration::from_secs(120))?;
    world.check_empty()
}

fn seeds() -> u64 {
    let text = std::env::var("CLUSTER_SEEDS").unwrap_or_default();
    text.parse().unwrap_or(SEEDS)
}

#[test]
fn promises_that_need_no_log_are_kept() {
    for seed in 0..seeds() {
        if let Err(broken) = run(seed, None) {
            panic!("seed {seed}: {broken}");
        }
    }
}

/// Returns the number of seeds until a planted fault is found.
fn seeds_to_find(mutation: Mutation) -> Option<(u64, String)> {
    (0..200).find_map(|seed| run(seed, Some(mutation)).err().map(|broken| (seed, broken)))
}

#[test]
#[cfg(feature = "mutations")]
fn planted_faults_are_found() {
    for mutation in [
        Mutation::DroppedFloor,
        Mutation::DeliveredDoubles,
        Mutation::ForgottenCredit,
    ] {
        let found = seeds_to_find(mutation);
        let (seed, broken) = found.unwrap_or_else(|| panic!("{mutation:?} was not found"));
        println!("{mutation:?}: seed {seed}: {broken}");
    }
}
