//! Worlds whose channels are in a log.

use std::rc::Rc;
use std::time::Duration;

use ringmain_cluster::node::{LogOptions, Mutation};

use super::{ALL, World};
use crate::simulation::clients::AHEAD;
use crate::simulation::log::{LogFaults, MemoryLog};

impl World {
    /// Creates a world whose channels are in a log.
    pub(in crate::simulation) fn with_log(seed: u64, mutation: Option<Mutation>, faults: LogFaults) -> World {
        let mut world = World::empty(seed, mutation, &[3]);
        let partitions = world.draw(1, 6) as u16;
        let log = MemoryLog::new(seed, partitions, faults);
        world.log_options = LogOptions {
            partitions,
            takeover_time: Duration::from_millis(world.draw(0, 3000)),
            takeover_bytes: match world.draw(0, 2) {
                0 => world.draw(0, 1 << 14) as usize,
                _ => ALL,
            },
        };
        world.oracle.log = Some(Rc::clone(&log.fold));
        world.log = Some(log);
        World::populated(world)
    }

    /// Lets clients begin again without positions.
    pub(in crate::simulation) fn forget_positions(&mut self) {
        self.clients.iter_mut().for_each(|client| client.position = None);
    }

    /// Ends the wait of clients for publications that their node does not have.
    pub(super) fn release_ahead(&mut self, host: usize) -> Result<(), String> {
        let now = self.now;
        for client in self.clients.iter_mut().filter(|client| client.node == Some(host)) {
            let is_late = client.ahead_since.is_some_and(|since| now >= since + AHEAD);
            if let Some(shard) = self.hosts[host].shards.get_mut(&client.channel)
                && is_late
            {
                client.subscribe(shard, &mut self.oracle, now)?;
            }
        }
        Ok(())
    }
}
