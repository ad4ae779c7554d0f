//! Clients that are requested to reconnect, so that they reach less loaded nodes of a cluster.

use std::time::Duration;

use ringmain_hub::protocol::Disconnect;

use super::PushWorker;
use crate::limits;

impl PushWorker {
    /// Disconnects so many random clients over a second. SDKs reconnect at once.
    pub(super) fn send_clients_away(&self, count: u32) {
        let worker = self.clone();
        let spawned = self.0.cx.spawn(async move {
            let slices = count.min(limits::MOVE_SLICES);
            for slice in 0..slices {
                let clients = count / slices + u32::from(slice < count % slices);
                for _ in 0..clients {
                    if worker.0.cx.is_draining() {
                        // All clients are disconnected by then.
                        return;
                    }
                    worker.send_one_away();
                }
                worker.0.cx.sleep(Duration::from_secs(1) / slices).await;
            }
        });
        if spawned.is_err() {
            log::debug!("push: no capacity to move clients to other nodes; retrying a second later");
        }
    }

    fn send_one_away(&self) {
        let random = self.0.cx.random();
        if let Some(client) = self.0.clients.pick(random, limits::MOVE_PROBES) {
            client.disconnect(Disconnect::FORCE_RECONNECT);
        }
    }
}
