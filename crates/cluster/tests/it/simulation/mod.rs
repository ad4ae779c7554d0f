//! Nodes and links under a seed, with clients that rely on every report.
//!
//! [`run_faults`]: nodes of all roles and both versions are killed, paused, restarted and separated, join and leave; links have delays and
//! may be slow. Clients check, at each publication: it is the next one of its epoch, unless a gap was reported; an (epoch, offset) is one
//! publication, also as it was acknowledged; an idempotency key is published once in an epoch. After quiet: every client has the newest
//! publication, presence equals the connected clients, and nothing is retained without clients.
//!
//! [`run_moves`]: nodes join and leave, several at once, while publications are requested all the time: none is lost, doubled, late or not
//! acknowledged, no client has a gap, and no member leaves.
//!
//! [`run_kill`]: the presence is right, and publications arrive, within a time after a node was killed.
//!
//! More seeds, and a day of virtual time:
//!
//! ```text
//! CLUSTER_SEEDS=10000 cargo test -p ringmain-cluster --all-features --release --test it promises
//! CLUSTER_DAY=1 cargo test -p ringmain-cluster --all-features --release --test it a_day -- --nocapture
//! ```
//!
//! `CLUSTER_FIRST_SEED` is the first seed, so that several processes can share them.

mod clients;
mod log;
mod logged;
mod moves;
mod rebalance;
mod world;

use std::time::Duration;

use moves::{run_kill, run_moves};
use ringmain_cluster::node::Mutation;
use world::World;

/// The seeds of one run; `CLUSTER_SEEDS` replaces their number.
const SEEDS: u64 = 30;

const DAY: Duration = Duration::from_secs(86_400);

/// Runs all worlds of a seed. `Err`: a promise was broken.
fn run(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    // Both versions work together while an upgrade is rolled out.
    let versions: &[u16] = if seed.is_multiple_of(4) { &[1, 2] } else { &[2] };
    run_faults(seed, mutation, versions).map_err(|broken| format!("faults: {broken}"))?;
    run_moves(seed, mutation).map_err(|broken| format!("moves: {broken}"))?;
    run_kill(seed, mutation).map_err(|broken| format!("kill: {broken}"))
}

fn run_faults(seed: u64, mutation: Option<Mutation>, versions: &'static [u16]) -> Result<(), String> {
    let mut world = World::new(seed, mutation, versions);
    disturb(&mut world)?;
    world.disconnect_all();
    world.run_for(Duration::from_secs(120))?;
    world.check_empty()
}

/// Lets things happen, and then checks the promises that hold after quiet.
fn disturb(world: &mut World) -> Result<(), String> {
    for _ in 0..world.draw(20, 60) {
        world.step();
        let pause = world.draw(5, 900);
        world.run_for(Duration::from_millis(pause))?;
    }
    world.heal();
    world.run_for(Duration::from_secs(20))?;
    world.connect_all();
    world.run_for(Duration::from_secs(5))?;
    world.publish_everywhere();
    world.run_for(Duration::from_secs(8))?;
    world.check_quiet()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn promises_that_need_no_log_are_kept() {
    let first = number("CLUSTER_FIRST_SEED").unwrap_or(0);
    for seed in first..first + number("CLUSTER_SEEDS").unwrap_or(SEEDS) {
        if let Err(broken) = run(seed, None) {
            panic!("seed {seed}: {broken}");
        }
    }
}

/// One world, which is disturbed again and again for as long as `CLUSTER_DAY` has days; without it, for a few minutes.
#[test]
fn promises_are_kept_for_a_day() {
    let end = match number("CLUSTER_DAY") {
        Some(days) => DAY * days as u32,
        None => Duration::from_secs(180),
    };
    let mut world = World::new(1, None, &[2]);
    while world.now < end {
        if let Err(broken) = disturb(&mut world) {
            panic!("at {:?}: {broken}", world.now);
        }
        world.forget_history();
    }
    world.disconnect_all();
    world
        .run_for(Duration::from_secs(120))
        .expect("no broken promise");
    world.check_empty().expect("nothing is retained");
    println!(
        "{:?} of virtual time, {} publications",
        world.now, world.published
    );
}

/// Returns the number of seeds until a planted fault is found.
#[cfg(feature = "mutations")]
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
        Mutation::ForgottenEpoch,
    ] {
        let found = seeds_to_find(mutation);
        let (seed, broken) = found.unwrap_or_else(|| panic!("{mutation:?} was not found"));
        println!("{mutation:?}: seed {seed}: {broken}");
    }
}
