//! A process of real workers in a simulated world: [`SimCluster`].
//!
//! Runs each worker's turn when the world's scheduler selects it. Knows nothing of handlers and clients.

use std::sync::mpsc;

use ringmain_engine::mail::Inbox;
use ringmain_engine::testing::{Cluster, ClusterConfig};
use ringmain_engine::{Addr, Counters, Handler, Start};

use crate::{Step, World};

/// The workers of one simulated process.
pub struct SimCluster<H: Handler> {
    world: World,
    cluster: Cluster<H>,
}

impl<H: Handler> SimCluster<H> {
    /// Makes the workers in `world`, which must have as many. `listeners` are (worker, address, number); all
    /// are open before the first worker takes a turn.
    ///
    /// # Panics
    /// If a listener cannot be opened.
    pub fn new(
        world: &World,
        config: ClusterConfig,
        listeners: &[(usize, Addr, u32)],
        mut make: impl FnMut(Start<H::Mail>) -> H,
    ) -> SimCluster<H> {
        let mut cluster = Cluster::new(config);
        for index in 0..config.workers {
            cluster.add(Box::new(world.backend(index)), &mut make);
            for (_, addr, number) in listeners.iter().filter(|(owner, ..)| *owner == index) {
                let opened = cluster.listen(index, world.listen(index, addr), *number);
                opened.expect("a fresh worker has room");
            }
            cluster.begin_wait(index).expect("a simulated wait never fails");
        }
        SimCluster {
            world: world.clone(),
            cluster,
        }
    }

    /// Takes one step of the world, and the worker's turn if that is the step.
    pub fn step(&mut self) -> Step {
        let step = self.world.step();
        if let Step::Turn(worker) = step {
            self.world.end_wait(worker);
            self.cluster.turn(worker).expect("a simulated wait never fails");
        }
        step
    }

    /// Opens a listener on a worker; `addr` is no open listener's.
    pub fn open(&self, worker: usize, addr: &Addr, number: u32) {
        self.cluster.open(worker, self.world.listen(worker, addr), number);
    }

    /// Closes the listeners of a number on all workers; see [`Cluster::close`].
    #[must_use]
    pub fn close(&self, number: u32) -> mpsc::Receiver<()> {
        self.cluster.close(number)
    }

    /// Announces a graceful shutdown; see [`Cluster::begin_drain_delay`].
    pub fn begin_drain_delay(&self) {
        self.cluster.begin_drain_delay();
    }

    /// Begins a graceful shutdown; see [`Cluster::shut_down`].
    pub fn shut_down(&self) {
        self.cluster.shut_down();
    }

    /// Closes all connections at once; see [`Cluster::stop`].
    pub fn stop(&self) {
        self.cluster.stop();
    }

    /// Returns whether every worker has shut down.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.cluster.is_done()
    }

    /// Returns the connections of a worker; see [`Cluster::connections`].
    #[must_use]
    pub fn connections(&self, worker: usize) -> u32 {
        self.cluster.connections(worker)
    }

    /// Returns the bytes that a worker holds for slow readers; see [`Cluster::held`].
    #[must_use]
    pub fn held(&self, worker: usize) -> usize {
        self.cluster.held(worker)
    }

    /// Returns the unfinished tasks of a worker; see [`Cluster::tasks`].
    #[must_use]
    pub fn tasks(&self, worker: usize) -> u32 {
        self.cluster.tasks(worker)
    }

    /// Returns the counters of a worker; they outlive it.
    #[must_use]
    pub fn counters(&self, worker: usize) -> &Counters {
        self.cluster.counters(worker)
    }

    /// Returns the inbox by which other threads send mail to a worker.
    #[must_use]
    pub fn inbox(&self, worker: usize) -> Inbox<H::Mail> {
        self.cluster.inbox(worker)
    }
}

impl<H: Handler> std::fmt::Debug for SimCluster<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} in {:?}", self.cluster, self.world)
    }
}
