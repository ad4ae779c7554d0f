//! Pushes to the workers with subscribers. If the queue of one is full, the channel is marked, and the pushes are sent again later.

use std::sync::Arc;
use std::time::Duration;

use super::ChannelShard;
use super::channel::Channel;
use crate::limits;
use crate::mail::{DeliveryMode, PushSource, ShardEvent, WorkerId};
use crate::protocol::{Published, PushMessage};

impl ChannelShard {
    /// Sends a publication to all subscribers.
    pub(super) fn send(&mut self, index: u32, offset: u64, published: &Arc<Published>) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        if channel.has_subscribers() {
            let push = published_push(published, offset);
            let source = publication_source(channel, offset, published);
            let mode = channel.mode();
            let encoded = self.writer.write(
                &channel.name,
                channel.subscribers_by_variant(),
                push,
                source,
                mode,
            );
            for interest in channel.interests() {
                let outbox = &mut self.outboxes[usize::from(interest.worker.0)];
                // After a gap nothing is sent: this publication follows with the missing ones.
                if interest.marked.is_some() || outbox.pushes >= limits::QUEUED_PUSHES_PER_WORKER {
                    if interest.marked.is_none() {
                        interest.marked = Some(offset);
                        outbox.marked.push_back(index);
                    }
                    continue;
                }
                outbox.pushes += 1;
                outbox.queue.push_back(ShardEvent::Push {
                    key: interest.key,
                    encoded: Arc::clone(&encoded),
                    mode,
                });
            }
        }
    }

    /// Sends a push without an offset to all subscribers if `is_enabled`. Workers whose queue is full do not receive it.
    pub(super) fn send_out_of_band(&mut self, index: u32, push: PushMessage, is_enabled: bool) {
        if is_enabled {
            self.send_with_source(index, push, |channel, push| {
                channel.has_features().then(|| PushSource::from_push(push))
            });
        }
    }

    fn send_with_source(
        &mut self,
        index: u32,
        push: PushMessage,
        source: impl FnOnce(&Channel, &PushMessage) -> Option<PushSource>,
    ) {
        let Some(channel) = self.channels[index as usize].as_mut() else {
            return;
        };
        let mode = DeliveryMode::OutOfBand;
        let source = source(channel, &push);
        let encoded = self.writer.write(
            &channel.name,
            channel.subscribers_by_variant(),
            push,
            source,
            mode,
        );
        for interest in channel.interests() {
            let outbox = &mut self.outboxes[usize::from(interest.worker.0)];
            if interest.marked.is_none() && outbox.pushes < limits::QUEUED_PUSHES_PER_WORKER {
                outbox.pushes += 1;
                outbox.queue.push_back(ShardEvent::Push {
                    key: interest.key,
                    encoded: Arc::clone(&encoded),
                    mode,
                });
            }
        }
    }

    /// Sends a worker the pushes that did not fit into its queue, or reports them as lost.
    pub(super) fn resend(&mut self, index: u32, worker: WorkerId, now: Duration) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let Some((key, missed)) = channel.take_missed(worker, now) else {
            return;
        };
        let outbox = &mut self.outboxes[usize::from(worker.0)];
        outbox.marked.retain(|&marked| marked != index);
        match missed {
            Some(missed) => {
                let mode = channel.mode();
                for (offset, published) in missed {
                    let push = published_push(&published, offset);
                    let source = publication_source(channel, offset, &published);
                    let encoded = self.writer.write(
                        &channel.name,
                        channel.subscribers_by_variant(),
                        push,
                        source,
                        mode,
                    );
                    outbox.pushes += 1;
                    outbox.queue.push_back(ShardEvent::Push { key, encoded, mode });
                }
            }
            None => outbox.queue.push_back(ShardEvent::Lost { key }),
        }
    }

    /// Sends a publication that is neither numbered nor retained.
    pub(super) fn send_transient(&mut self, index: u32, published: &Arc<Published>) {
        self.send_with_source(index, published_push(published, 0), |channel, _| {
            publication_source(channel, 0, published)
        });
    }
}

/// Returns the content of a publication's push, if subscriptions with features may need it.
fn publication_source(channel: &Channel, offset: u64, published: &Arc<Published>) -> Option<PushSource> {
    channel
        .has_features()
        .then(|| PushSource::Publication(offset, Arc::clone(published)))
}

/// Returns the push of a publication.
fn published_push(published: &Published, offset: u64) -> PushMessage {
    PushMessage {
        pub_: Some(published.numbered(offset)),
        ..PushMessage::default()
    }
}
