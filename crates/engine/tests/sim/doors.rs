//! Listeners that are opened and closed while connections come and go.

use std::sync::mpsc::TryRecvError;

use ringmain_sim::{ClusterConfig, Fault, Plan, World};

use crate::clients::{Client, Manner};
use crate::courier::{HANDLER, STREAM, Way};
use crate::run::{Run, addr};
use ringmain_sim::seeds;

const ROUNDS: usize = 12;
const WORKERS: usize = 3;

/// The worlds of these tests: what is late or happens at once must not matter.
fn plan(seed: u64) -> Plan {
    let mut plan = match seed % 3 {
        0 => Plan::calm(),
        1 => Plan::calm().with(Fault::LateCompletion, 400),
        _ => Plan::calm()
            .with(Fault::AtOnce, 300)
            .with(Fault::GiveRefused, 200),
    };
    plan.backlog = 64;
    plan
}

fn dial(run: &mut Run, count: usize) {
    let world = run.world();
    for _ in 0..count {
        let Ok(peer) = world.connect(&addr(HANDLER)) else {
            return;
        };
        let key = run.clients.len() as u64 + 1;
        let client = Client::new(&world, peer, key, HANDLER, Way::Write, 100 + 10 * key as usize);
        run.clients.push(client.patient(Manner::Steady, 0));
    }
}

#[test]
fn who_has_come_stays_when_the_listener_goes() {
    for seed in seeds::some(60) {
        let world = World::new(seed, plan(seed), WORKERS);
        let config = ClusterConfig {
            workers: WORKERS,
            ..ClusterConfig::default()
        };
        let name = "who_has_come_stays_when_the_listener_goes";
        let mut run = Run::with(seed, name, world, config, &[(0, addr(STREAM), STREAM)]);
        for _ in 0..ROUNDS {
            assert!(
                run.world().connect(&addr(HANDLER)).is_err(),
                "nobody listens there"
            );
            // On one worker, or on all of them.
            let owners = 1 + run.world().below(WORKERS);
            (0..owners).for_each(|worker| run.cluster.open(worker, &addr(HANDLER), HANDLER));
            let count = run.world().below(8);
            dial(&mut run, count);
            for _ in 0..run.world().below(60) {
                run.step();
            }
            let count = run.world().below(8);
            dial(&mut run, count);
            // Some of them wait in the queue, some are on their way to another worker, some have not even an owner yet.
            let closed = run.cluster.close(HANDLER);
            run.drive("the listener is closed", |_| {
                closed.try_recv() == Err(TryRecvError::Disconnected)
            });
        }
        run.drive("all come back", |run| {
            run.clients.iter().all(|client| client.done)
        });
        assert!(run.clients.iter().all(Client::is_whole), "every byte came back");
        run.end();
    }
}

#[test]
fn a_shutdown_does_not_mind_what_is_opening_or_closing() {
    for seed in seeds::some(60) {
        let world = World::new(seed, plan(seed), WORKERS);
        let config = ClusterConfig {
            workers: WORKERS,
            ..ClusterConfig::default()
        };
        let name = "a_shutdown_does_not_mind_what_is_opening_or_closing";
        let mut run = Run::with(seed, name, world, config, &[(0, addr(STREAM), STREAM)]);
        (0..WORKERS).for_each(|worker| run.cluster.open(worker, &addr(HANDLER), HANDLER));
        for _ in 0..run.world().below(40) {
            run.step();
        }
        dial(&mut run, 5);
        let closed = [HANDLER, STREAM].map(|tag| run.cluster.close(tag));
        for _ in 0..run.world().below(6) {
            run.step();
        }
        run.end();
        drop(closed);
    }
}
