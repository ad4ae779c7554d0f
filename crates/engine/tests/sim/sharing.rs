//! Connections among workers: who has too many gives new ones away, who is full waits.

use std::sync::atomic::{AtomicU64, Ordering};

use ringmain_engine::{Counters, limits};
use ringmain_sim::{ClusterConfig, Fault, Plan, World};

use crate::clients::{Client, Manner};
use crate::courier::{HANDLER, Way};
use crate::run::{Run, addr};
use ringmain_sim::seeds;

/// A cluster of three with all connections arriving at the first worker.
fn lopsided(seed: u64, test: &'static str, plan: Plan, config: ClusterConfig) -> Run {
    let world = World::new(seed, plan, 3);
    let config = ClusterConfig { workers: 3, ..config };
    Run::with(seed, test, world, config, &[(0, addr(HANDLER), HANDLER)])
}

/// Dials until there are so many clients; a full backlog is tried again after a step.
fn dial(run: &mut Run, count: usize) {
    let world = run.world();
    while run.clients.len() < count {
        let Ok(peer) = world.connect(&addr(HANDLER)) else {
            run.step();
            continue;
        };
        let key = run.clients.len() as u64 + 1;
        let client = Client::new(&world, peer, key, HANDLER, Way::Write, 200 + key as usize);
        // None ends before all are there.
        run.clients.push(client.patient(Manner::Steady, 0).holding());
    }
}

fn sum(run: &Run, count: impl Fn(&Counters) -> &AtomicU64) -> u64 {
    (0..3)
        .map(|worker| count(run.cluster.counters(worker)).load(Ordering::Relaxed))
        .sum()
}

fn loads(run: &Run) -> [u32; 3] {
    [0, 1, 2].map(|worker| run.cluster.connections(worker))
}

fn finish(mut run: Run) {
    for client in &mut run.clients {
        client.let_go();
    }
    run.drive("all come back", |run| {
        run.clients.iter().all(|client| client.done)
    });
    assert!(run.clients.iter().all(Client::is_whole), "every byte came back");
    run.end();
}

#[test]
fn a_worker_with_too_many_gives_new_ones_away() {
    const CLIENTS: usize = 240;
    for seed in seeds::some(12) {
        let plan = if seed % 2 == 0 {
            Plan::calm()
        } else {
            Plan::calm()
                .with(Fault::GiveRefused, 200)
                .with(Fault::AtOnce, 300)
        };
        let name = "a_worker_with_too_many_gives_new_ones_away";
        let mut run = lopsided(seed, name, plan, ClusterConfig::default());
        dial(&mut run, CLIENTS);
        run.drive("all are accepted", |run| {
            loads(run).iter().sum::<u32>() == CLIENTS as u32
                && sum(run, |c| &c.given) == sum(run, |c| &c.adopted)
        });
        let loads = loads(&run);
        let (most, least) = (loads.into_iter().max(), loads.into_iter().min());
        let skew = most.expect("three") - least.expect("three");
        assert!(skew <= 3 * limits::SKEW_CONNECTIONS, "{loads:?}");
        assert!(sum(&run, |c| &c.given) > 0, "none was given: {loads:?}");
        finish(run);
    }
}

#[test]
fn a_full_process_accepts_again_when_there_is_room() {
    const CLIENTS: usize = 60;
    for seed in seeds::some(12) {
        let config = ClusterConfig {
            capacity: 10,
            max_connections: 24,
            queue_limit: 4,
            ..ClusterConfig::default()
        };
        let mut plan = Plan::calm();
        plan.backlog = CLIENTS;
        let name = "a_full_process_accepts_again_when_there_is_room";
        let mut run = lopsided(seed, name, plan, config);
        dial(&mut run, CLIENTS);
        run.drive("it is full", |run| sum(run, |c| &c.accept_pauses) > 0);
        for _ in 0..3000 {
            run.step();
            // One on its way between two workers is counted by both for a while.
            let twice = sum(&run, |c| &c.adopted).saturating_sub(sum(&run, |c| &c.given));
            let all = loads(&run).iter().sum::<u32>();
            // At most one connection for each other worker above the limit.
            assert!(
                all <= 24 + 2 + twice as u32,
                "{:?} of at most 24, {twice} twice",
                loads(&run)
            );
        }
        assert!(loads(&run).iter().sum::<u32>() >= 20, "{:?}", loads(&run));
        finish(run);
    }
}

#[test]
fn a_full_descriptor_table_backs_off_and_goes_on() {
    const CLIENTS: usize = 30;
    for seed in seeds::some(12) {
        let mut plan = Plan::calm();
        plan.backlog = CLIENTS;
        plan.sockets = 6;
        let name = "a_full_descriptor_table_backs_off_and_goes_on";
        let mut run = lopsided(seed, name, plan, ClusterConfig::default());
        dial(&mut run, CLIENTS);
        let world = run.world();
        run.drive("it is full", |_| world.count(Fault::AcceptProcessLimit) > 0);
        let start = world.now();
        let (turns, pauses) = (sum(&run, |c| &c.turns), sum(&run, |c| &c.accept_pauses));
        while world.now().since(start).as_millis() < 2000 {
            run.step();
        }
        let turns = sum(&run, |c| &c.turns) - turns;
        let pauses = sum(&run, |c| &c.accept_pauses) - pauses;
        // Ten tries a second, each a few turns.
        assert!((5..=25).contains(&pauses), "{pauses} tries in two seconds");
        assert!(turns < 400, "{turns} turns in two seconds: a busy loop");
        finish(run);
    }
}

/// Each time that accepting pauses somebody looks again later: one look at a time, not one for each pause.
#[test]
fn coming_and_going_at_the_limit_leaves_nothing_behind() {
    const ROUNDS: usize = 300;
    for seed in seeds::some(4) {
        let config = ClusterConfig {
            max_connections: 4,
            ..ClusterConfig::default()
        };
        let name = "coming_and_going_at_the_limit_leaves_nothing_behind";
        let mut run = lopsided(seed, name, Plan::calm(), config);
        for round in 0..ROUNDS {
            dial(&mut run, round + 5);
            run.clients[round].let_go();
            run.drive("one leaves", |run| run.clients[round].done);
        }
        let (world, pauses) = (run.world(), sum(&run, |c| &c.accept_pauses));
        assert!(pauses >= ROUNDS as u64 / 2, "{pauses} pauses");
        let (start, turns) = (world.now(), sum(&run, |c| &c.turns));
        while world.now().since(start).as_millis() < 2000 {
            run.step();
        }
        let turns = sum(&run, |c| &c.turns) - turns;
        assert!(
            turns < 300,
            "{turns} turns in two seconds: the timers were not one"
        );
        finish(run);
    }
}

/// Who is on the way to another worker when all ends, and comes back, ends too.
#[test]
fn a_refused_gift_ends_with_its_worker() {
    for seed in seeds::some(40) {
        let mut plan = Plan::calm()
            .with(Fault::GiveRefused, 900)
            .with(Fault::LateCompletion, 500);
        plan.backlog = 200;
        let name = "a_refused_gift_ends_with_its_worker";
        let mut run = lopsided(seed, name, plan, ClusterConfig::default());
        dial(&mut run, 150);
        run.drive("gifts are on their way", |run| {
            run.cluster.connections(0) > limits::SKEW_CONNECTIONS + 5
        });
        for _ in 0..run.world().below(400) {
            run.step();
        }
        run.cluster.stop();
        run.end();
    }
}
