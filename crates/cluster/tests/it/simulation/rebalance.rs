//! Clients that nodes send away, with the loads that nodes report to each other: 2 nodes become 4, and 2 again.

use std::time::Duration;

use ringmain_cluster::member::{Phase, Role};
use ringmain_cluster::node::{Load, Node, Rebalance};

use super::world::World;

const CLIENTS: u32 = 20_000;

struct Balance {
    world: World,
    /// The clients of each host.
    clients: Vec<u32>,
}

impl Balance {
    fn node(&mut self, host: usize) -> Option<&mut Node> {
        self.world.hosts[host].node.as_mut()
    }

    fn weight(&self, host: usize) -> u32 {
        let node = self.world.hosts[host].node.as_ref();
        node.map_or(1, |node| u32::from(node.member().weight))
    }

    /// Returns the active node with the fewest clients by weight, but not this one.
    fn least_loaded(&self, except: Option<usize>) -> usize {
        let is_active = |host: &usize| {
            let node = self.world.hosts[*host].node.as_ref();
            Some(*host) != except && node.is_some_and(|node| node.status().phase == Phase::Active)
        };
        let active = (0..self.clients.len()).filter(is_active);
        active
            .min_by_key(|host| u64::from(self.clients[*host]) * 1000 / u64::from(self.weight(*host)))
            .expect("an active node")
    }

    /// Runs for a time, and returns the number of clients that have moved.
    fn run(&mut self, seconds: u32) -> u32 {
        let mut moved = 0;
        for _ in 0..seconds {
            self.world
                .run_for(Duration::from_secs(1))
                .expect("no broken promise");
            for host in 0..self.clients.len() {
                let clients = self.clients[host];
                let Some(node) = self.node(host) else {
                    for _ in 0..std::mem::take(&mut self.clients[host]) {
                        let other = self.least_loaded(None);
                        self.clients[other] += 1;
                    }
                    continue;
                };
                node.set_load(Load { clients });
                let away = node.take_clients_to_move();
                for _ in 0..away {
                    let other = self.least_loaded(Some(host));
                    self.clients[host] -= 1;
                    self.clients[other] += 1;
                }
                moved += away;
            }
        }
        moved
    }

    fn check(&self) {
        let active: Vec<usize> = (0..self.clients.len())
            .filter(|host| self.world.hosts[*host].is_running())
            .collect();
        let weights: u32 = active.iter().map(|host| self.weight(*host)).sum();
        assert_eq!(self.clients.iter().sum::<u32>(), CLIENTS);
        for host in active {
            let share = f64::from(CLIENTS) * f64::from(self.weight(host)) / f64::from(weights);
            let load = f64::from(self.clients[host]) / share;
            assert!(
                (0.6..=1.15).contains(&load),
                "host {host} has {load} of its share: {:?}",
                self.clients
            );
        }
    }

    fn add(&mut self) {
        self.world.add_host(Role::All);
        let options = Some(Rebalance::default());
        if let Some(node) = self.world.hosts.last_mut().and_then(|host| host.node.as_mut()) {
            node.set_rebalance(options);
        }
        self.clients.push(0);
    }
}

#[test]
fn clients_follow_the_number_of_nodes_and_come_to_rest() {
    for seed in 0..3 {
        let mut balance = Balance {
            world: World::with_hosts(seed, 0),
            clients: Vec::new(),
        };
        balance.add();
        balance.add();
        balance.run(3);
        balance.clients[0] = CLIENTS;
        balance.run(600);
        balance.check();
        balance.add();
        balance.add();
        let moved = balance.run(900);
        balance.check();
        assert!(
            (1000..CLIENTS).contains(&moved),
            "seed {seed}: {moved} have moved"
        );
        assert_eq!(
            balance.run(300),
            0,
            "seed {seed}: no client moves without a reason"
        );
        for host in [0, 2] {
            balance.world.leave(host);
        }
        balance.run(600);
        balance.check();
        assert_eq!(
            balance.run(300),
            0,
            "seed {seed}: no client moves without a reason"
        );
    }
}
