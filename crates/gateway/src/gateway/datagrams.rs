//! The UDP addresses of a gateway: bound before the engine starts, or by its workers.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::Gateway;
use crate::listeners::datagrams::DatagramWorkers;
use crate::table::Problem;

impl Gateway {
    /// Binds the UDP addresses of the configuration for an engine with so many workers, before it starts; else
    /// [`Gateway::manage_listeners`] does so. `joins_predecessor`: another process of this user hands over to this one, and has the addresses
    /// open. Returns the addresses.
    ///
    /// # Errors
    /// The addresses that cannot be bound.
    pub fn bind_datagrams(
        &self,
        workers: usize,
        joins_predecessor: bool,
    ) -> Result<Vec<SocketAddr>, Vec<Problem>> {
        let problems = self.open_datagrams(DatagramWorkers::Bound(workers), joins_predecessor);
        if problems.is_empty() {
            Ok(self.datagram_addrs())
        } else {
            Err(problems)
        }
    }

    /// Leaves the sockets of UDP addresses to the workers, for an engine without descriptors, such as a simulation.
    pub fn leave_datagrams_to_workers(&self) {
        self.open_datagrams(DatagramWorkers::ByThemselves, false);
    }

    /// Returns the UDP addresses that datagrams are received on, with the ports that the kernel has chosen.
    #[must_use]
    pub fn datagram_addrs(&self) -> Vec<SocketAddr> {
        self.lock_listeners().datagram_addrs()
    }

    pub(super) fn open_datagrams(&self, workers: DatagramWorkers, joins_predecessor: bool) -> Vec<Problem> {
        let mut controller = self.lock_listeners();
        let mut state = self.lock_state();
        controller.datagrams.joins_predecessor = joins_predecessor;
        let problems = controller.bind_datagrams(&state.table, workers);
        controller.datagrams.joins_predecessor = false;
        state.problems.extend(problems.iter().cloned());
        self.lock_published().datagrams = controller.datagrams.published();
        self.0.generation.fetch_add(1, Ordering::Release);
        self.0.changes.notify();
        problems
    }
}
