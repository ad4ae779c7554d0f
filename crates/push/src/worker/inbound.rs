//! Publishes the entries that other threads have queued for this worker.

use std::sync::Arc;

use ringmain_engine::backend::Time;
use ringmain_hub::mail::WorkerId;

use super::PushWorker;
use super::user_commands::CommandProgress;
use crate::limits;
use crate::publish::inbound_queue::{Inbound, InboundQueue};

impl PushWorker {
    /// Publishes queued entries of other threads, up to the limit of a turn. Returns whether entries remain.
    pub(super) fn drain_inbound(&self, queues: &[InboundQueue]) -> bool {
        let queue = &queues[self.0.cx.worker()];
        // Before the queue is read: a thread that adds to it from now on wakes the worker again.
        queue.allow_wake();
        if self.is_holding() && queue.has_shard_entries() {
            // The predecessor's state is restored first.
            return false;
        }
        let (mut subscribers, mut pool) = (self.0.subscribers.borrow_mut(), self.0.pool.borrow_mut());
        let mut shard = self.0.shard.borrow_mut();
        let now = self.0.cx.now().since(Time(0));
        let worker_id = WorkerId(self.0.cx.worker() as u16);
        let mut processed = 0;
        while processed < limits::MESSAGES_PER_TURN && subscribers.backlog() <= limits::BACKLOG {
            let Some(inbound) = queue.pop() else {
                break;
            };
            processed += inbound.count();
            match inbound {
                Inbound::Publication {
                    channel,
                    channel_options,
                    data,
                    origin,
                } => {
                    let published = pool.acquire_with_data(&channel_options, data);
                    subscribers.publish_from_source(&channel, channel_options, published, origin);
                }
                Inbound::Records(records) => {
                    // Publications that were queued before them go first.
                    while let Some(message) = subscribers.poll_request(worker_id) {
                        shard.handle(worker_id, message, now);
                    }
                    records.publish(&mut shard, now);
                }
                Inbound::Cluster(event) => self.apply_cluster_event(&mut shard, *event, now),
                Inbound::Move(count) => self.send_clients_away(count),
                Inbound::Log(id, event) => shard.handle_log_event(id, event),
                Inbound::LogEnded(id) => shard.end_log(id.epoch),
                Inbound::Expected(prefixes) => shard.expect_logs(prefixes),
                Inbound::Command(inbound) => {
                    let (mut command, receipt) = *inbound;
                    let progress = CommandProgress::with_receipt(self.0.cx.workers(), Some(receipt));
                    command.progress = Some(progress);
                    self.0.source_commands.borrow_mut().push_back(command);
                }
            }
        }
        queue.finish_turn(processed)
    }

    /// Applies interruptions that are due, a limited number of channels a turn. Returns whether there is more to do at once.
    pub(super) fn apply_interruptions(&self, queue: &InboundQueue) -> bool {
        let now = self.0.cx.now().since(Time(0));
        let active = &mut *self.0.interruptions.borrow_mut();
        active.apply(
            queue.interruptions(),
            queue.is_empty(),
            &mut self.0.shard.borrow_mut(),
            now,
        )
    }

    /// Publishes all that is queued for this worker, with the requests of its own clients, before its channels are saved.
    pub(super) fn drain_before_save(&self, queues: &Arc<[InboundQueue]>) {
        let worker_id = WorkerId(self.0.cx.worker() as u16);
        // Publications that were taken from a source may be in no other process.
        loop {
            let has_more = self.drain_inbound(queues);
            let (mut subscribers, mut shard) = (self.0.subscribers.borrow_mut(), self.0.shard.borrow_mut());
            let now = self.0.cx.now().since(Time(0));
            while let Some(message) = subscribers.poll_request(worker_id) {
                shard.handle(worker_id, message, now);
            }
            if !has_more {
                break;
            }
        }
    }
}
