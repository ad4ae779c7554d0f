//! The application's side of a test: workers in a simulated world, and the progress of its time.
//!
//! Knows no HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_sim::{ClusterConfig, Peer, SimCluster, World};

use super::server_state::ServerInternals;
use super::{Setup, TestError};
use crate::CompiledApp;
use crate::Server;

/// Steps after which a wait is aborted: some code keeps the world busy without end.
const STEPS: usize = 20_000_000;

pub(super) struct Simulation {
    world: World,
    cluster: SimCluster<Server>,
    app: Arc<CompiledApp>,
    inside: Vec<ServerInternals>,
    setup: Setup,
    address: Addr,
}

impl Simulation {
    pub(super) fn new(app: Arc<CompiledApp>, setup: Setup) -> Simulation {
        let world = World::new(setup.seed, setup.plan.clone(), setup.workers);
        let address = Addr::Inet(SocketAddr::from(([127, 0, 0, 1], 80)));
        let config = ClusterConfig {
            workers: setup.workers,
            grace: setup.grace,
            drain_spread: setup.drain_spread,
            ..ClusterConfig::default()
        };
        let listeners: Vec<_> = (0..setup.workers)
            .map(|worker| (worker, address.clone(), 0))
            .collect();
        let mut inside = Vec::new();
        let cluster = SimCluster::new(&world, config, &listeners, |start| {
            let server = app.server(start);
            inside.push(ServerInternals::new(&server));
            server
        });
        Simulation {
            world,
            cluster,
            app,
            inside,
            setup,
            address,
        }
    }

    pub(super) fn app(&self) -> &Arc<CompiledApp> {
        &self.app
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.world.now().since(Time(0))
    }

    pub(super) fn connect(&self, from: Option<SocketAddr>) -> Result<Peer, TestError> {
        let peer = match from {
            Some(from) => self.world.connect_from(&self.address, from),
            None => self.world.connect(&self.address),
        };
        peer.map_err(|error| TestError(format!("cannot connect to the application: {error}")))
    }

    pub(super) fn connections(&self) -> u32 {
        (0..self.setup.workers)
            .map(|worker| self.cluster.connections(worker))
            .sum()
    }

    pub(super) fn running(&self) -> usize {
        self.inside.iter().map(ServerInternals::running).sum()
    }

    #[cfg(test)]
    pub(super) fn idle_tasks(&self) -> usize {
        self.inside.iter().map(ServerInternals::idle_tasks).sum()
    }

    pub(super) fn begin_drain_delay(&self) {
        self.cluster.begin_drain_delay();
    }

    pub(super) fn shut_down(&self) {
        self.cluster.shut_down();
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.cluster.is_done()
    }

    /// Executes everything that is due within `span`.
    pub(super) fn advance(&mut self, span: Duration) {
        let deadline = self.world.now().after(span);
        while self.step_before(deadline) {}
        self.world.jump(deadline.since(self.world.now()));
    }

    /// Runs the world until `poll` returns a value.
    pub(super) fn wait<T>(
        &mut self,
        event: &str,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Result<T, TestError> {
        let deadline = self.world.now().after(self.setup.timeout);
        for _ in 0..STEPS {
            if let Some(found) = poll() {
                return Ok(found);
            }
            if !self.step_before(deadline) {
                break;
            }
        }
        let (timeout, seed) = (self.setup.timeout, self.setup.seed);
        Err(TestError(format!(
            "expected {event} within {timeout:?} of virtual time (`Setup::timeout`), found none at {:?}; \
             {} requests of asynchronous handlers run, seed {seed}",
            self.elapsed(),
            self.running(),
        )))
    }

    /// Executes one step, unless it is later than `deadline`.
    fn step_before(&mut self, deadline: Time) -> bool {
        let busy = (0..self.setup.workers).any(|worker| !self.world.worker_idle(worker));
        if !busy && self.world.next_event_time().is_none_or(|at| at > deadline) {
            return false;
        }
        self.cluster.step();
        true
    }

    pub(super) fn finish(&mut self) -> Result<(), TestError> {
        self.shut_down();
        let span = self.setup.grace + self.setup.timeout;
        let deadline = self.world.now().after(span);
        while !self.is_shut_down() && self.step_before(deadline) {}
        if !self.is_shut_down() {
            return Err(TestError(format!(
                "expected the end of the shutdown within {span:?}, found {} connections",
                self.connections()
            )));
        }
        // Bytes that the network still carries.
        while self.step_before(deadline) {}
        let mut held = self.world.leaks();
        let addresses = super::counted_addresses(&self.app);
        if addresses > 0 {
            held.push(format!("{addresses} addresses that are counted"));
        }
        if held.is_empty() {
            Ok(())
        } else {
            Err(TestError(format!("held after the end: {}", held.join(", "))))
        }
    }
}
