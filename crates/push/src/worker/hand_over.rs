//! A worker's part in a hand-over: restores the channels of a predecessor, saves its own for a successor, and disconnects its clients.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::backend::Time;
use ringmain_engine::limits::DRAIN_SPREAD_START;
use ringmain_hub::protocol::Disconnect;

use super::PushWorker;
use crate::client::Client;
use crate::hand_over::HandOver;
use crate::limits;
use crate::publish::inbound_queue::InboundQueue;
use crate::transport::Transport;

/// The progress of one worker.
pub(super) struct HandOverProgress {
    /// A predecessor's state has not been restored yet.
    is_holding: Cell<bool>,
    /// The channels here were saved for a successor.
    is_saved: Cell<bool>,
}

impl HandOverProgress {
    pub(super) fn new(hand_over: &HandOver) -> HandOverProgress {
        HandOverProgress {
            is_holding: Cell::new(hand_over.has_incoming()),
            is_saved: Cell::new(false),
        }
    }
}

impl PushWorker {
    /// Returns whether requests to channels here have to wait for a predecessor's state.
    pub(super) fn is_holding(&self) -> bool {
        self.0.hand_over.is_holding.get()
    }

    /// Returns whether a successor numbers publications now.
    pub(crate) fn is_frozen(&self) -> bool {
        self.0.settings.hand_over.is_frozen()
    }

    /// Restores a predecessor's channels once they have arrived, and saves those here for a successor once.
    pub(super) fn advance_hand_over(&self, queues: &Arc<[InboundQueue]>) {
        let hand_over = &self.0.settings.hand_over;
        if self.is_holding() && !hand_over.is_awaited() {
            self.restore_channels();
        }
        if hand_over.is_frozen() && !self.0.hand_over.is_saved.replace(true) {
            self.drain_before_save(queues);
            self.save_channels();
        }
    }

    fn restore_channels(&self) {
        let cx = &self.0.cx;
        let workers = u16::try_from(cx.workers()).unwrap_or(u16::MAX);
        let (records, elapsed) = self.0.settings.hand_over.take_records(cx.worker(), workers);
        self.0.hand_over.is_holding.set(false);
        let now = cx.now().since(Time(0));
        let options = self.options();
        let channel_options = |channel: &str| {
            let namespace = options.namespace(channel).ok();
            namespace.map(|namespace| namespace.channel_options)
        };
        let count = records.len();
        let mut shard = self.0.shard.borrow_mut();
        let restored = shard.restore(records, now, elapsed, options.idempotency_window, channel_options);
        log::debug!("push: {restored} channels restored from {count} records");
    }

    fn save_channels(&self) {
        let with_members = self.0.settings.hand_over.includes_members();
        let disconnected_within = DRAIN_SPREAD_START + self.0.cx.drain_spread();
        let present = with_members.then(|| disconnected_within + limits::PRESENCE_GRACE);
        let section = {
            let mut shard = self.0.shard.borrow_mut();
            shard.freeze();
            shard.save(self.0.cx.now().since(Time(0)), present)
        };
        self.0.settings.hand_over.send_section(section);
    }

    /// Disconnects all clients once the process drains, at an even rate so that they do not reconnect all at once.
    pub(super) async fn disconnect_on_drain(&self) {
        let connected = || {
            let mut clients = self.all_clients();
            clients.retain(|client| !matches!(*client.transport.borrow(), Transport::None));
            clients
        };
        // SDKs reconnect by themselves.
        let disconnect = |client: Rc<Client>| client.disconnect(Disconnect::SHUTDOWN);
        self.0.cx.end_in_turns(connected, disconnect).await;
    }
}
