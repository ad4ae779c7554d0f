//! Replies and recovered publications that are queued until a client has received the previous ones.
//!
//! ```text
//! reply ─▶ (the transport is full, or others are queued) ─▶ queue, bounded ─▶ one after the other, as the client receives them ─▶ pushes
//! subscribe ─▶ reply with the first of the recovered publications ─▶ the others as pushes behind it
//! ```
//!
//! While something is queued no command of the client is executed, so that the queue holds no more than the replies to the commands that
//! were in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::QueryResult;
use ringmain_hub::protocol::{
    ClientInfo, DataForm, Disconnect, Fault, Format, Publication, Published, PushMessage, Reply, Subscribe,
    SubscribeResult, encoded_bytes,
};
use ringmain_hub::subscribers::ConnId;

use crate::client::{Client, PendingSubscribe, SubscribeReply, disconnect_for, error_reply, query_reply};
use crate::limits;
use crate::worker::PushWorker;

/// Publications that a client recovers, each with its offset.
pub(crate) type Missed = Vec<(u64, Arc<Published>)>;

/// A queued message.
pub(crate) enum Queued {
    /// An encoded message.
    Message(Vec<u8>),
    Reply(Box<Reply>),
    /// A recovered publication of a channel, with its offset.
    Publication(Arc<str>, u64, Arc<Published>, RecoveredForm),
}

/// The form of a recovered publication: in a subscription with deltas the first is complete, and each further one a delta.
#[derive(Clone)]
pub(crate) enum RecoveredForm {
    Plain,
    Whole,
    Delta(Arc<Published>),
}

impl RecoveredForm {
    /// Returns the forms of publications, in their order.
    pub(crate) fn sequence(
        has_delta: bool,
        publications: &[(u64, Arc<Published>)],
    ) -> impl Iterator<Item = RecoveredForm> {
        let first = if has_delta {
            RecoveredForm::Whole
        } else {
            RecoveredForm::Plain
        };
        let further = publications.iter().map(move |(_, base)| {
            if has_delta {
                RecoveredForm::Delta(Arc::clone(base))
            } else {
                RecoveredForm::Plain
            }
        });
        [first].into_iter().chain(further)
    }

    /// Returns a publication with its offset in this form; complete if there is no shorter delta.
    pub(crate) fn publication(&self, published: &Published, offset: u64, format: Format) -> Publication {
        let delta = match self {
            RecoveredForm::Plain => return published.in_form(offset, format, DataForm::Plain),
            RecoveredForm::Whole => None,
            RecoveredForm::Delta(base) => published.delta_from(base),
        };
        let form = delta.as_ref().map_or(DataForm::Whole, DataForm::Delta);
        published.in_form(offset, format, form)
    }
}

impl Queued {
    /// Returns the approximate number of bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        let bytes = match self {
            Queued::Message(message) => message.len(),
            Queued::Reply(reply) => encoded_bytes(&**reply),
            Queued::Publication(_, _, published, _) => return publication_weight(published),
        };
        bytes + limits::REPLY_OVERHEAD_BYTES
    }
}

/// The queued replies of one client, in order.
#[derive(Default)]
pub(crate) struct ReplyQueue {
    queued: VecDeque<Queued>,
    bytes: usize,
}

impl ReplyQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Returns the bytes, as counted by [`Queued::weight`].
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, queued: Queued) {
        self.bytes += queued.weight();
        self.queued.push_back(queued);
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let queued = self.queued.pop_front()?;
        self.bytes -= queued.weight();
        if self.queued.is_empty() {
            self.queued = VecDeque::new();
        }
        Some(queued)
    }

    /// Appends another queue, which is empty afterwards.
    pub(crate) fn append(&mut self, other: &mut ReplyQueue) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.queued.append(&mut other.queued);
    }

    /// Removes the publications of a channel.
    pub(crate) fn remove(&mut self, channel: &str) {
        let bytes = &mut self.bytes;
        self.queued.retain(|queued| {
            let is_other_channel = !matches!(queued, Queued::Publication(of, ..) if &**of == channel);
            if !is_other_channel {
                *bytes -= queued.weight();
            }
            is_other_channel
        });
    }
}

/// Returns an upper bound of the bytes of a text in JSON.
fn text_weight(text: &str) -> usize {
    6 * text.len()
}

fn info_weight(info: &ClientInfo) -> usize {
    let texts = text_weight(&info.user) + info.client.len();
    texts + info.conn_info.len() + info.chan_info.len() + limits::REPLY_OVERHEAD_BYTES
}

/// Returns the approximate maximum size of a publication in a message.
pub(crate) fn publication_weight(published: &Published) -> usize {
    let tags = published.tags.iter();
    let tags: usize = tags
        .map(|(name, value)| text_weight(name) + text_weight(value) + 6)
        .sum();
    let info = published.info.as_ref().map_or(0, info_weight);
    published.data.len() + tags + info + limits::REPLY_OVERHEAD_BYTES
}

/// Returns the approximate maximum size of a reply to a query.
fn query_weight(result: &QueryResult) -> usize {
    match result {
        QueryResult::History { publications, .. } => publications
            .iter()
            .map(|(_, published)| publication_weight(published))
            .sum(),
        // The client's ID is the key, and part of the value.
        QueryResult::Presence(present) => present
            .iter()
            .map(|info| info_weight(info) + info.client.len())
            .sum(),
        _ => 0,
    }
}

/// Moves the recovered publications that do not fit into a reply to the returned queue, in their order. Returns the bytes of those that
/// remain, too.
fn split_recovered(
    channel: &Arc<str>,
    missed: Option<&mut Missed>,
    capacity: usize,
    has_delta: bool,
) -> (usize, ReplyQueue) {
    let mut rest = ReplyQueue::default();
    let Some(missed) = missed else { return (0, rest) };
    let (mut bytes, mut count) = (0, 0);
    for (_, published) in &*missed {
        let weight = publication_weight(published);
        if bytes + weight > capacity {
            break;
        }
        (bytes, count) = (bytes + weight, count + 1);
    }
    let forms: Vec<_> = RecoveredForm::sequence(has_delta, missed).skip(count).collect();
    for ((offset, published), form) in missed.drain(count..).zip(forms) {
        rest.push(Queued::Publication(Arc::clone(channel), offset, published, form));
    }
    (bytes, rest)
}

impl Client {
    /// Returns whether a reply has to wait.
    fn is_backlogged(&self) -> bool {
        self.pending.has_replies() || self.transport.borrow().is_full()
    }

    /// Sends a reply, or queues it behind those that the client has not received yet. A client that would have more than
    /// [`limits::QUEUED_BYTES`] queued is disconnected ([`Disconnect::SLOW`]).
    pub(crate) fn send_reply(&self, reply: Reply) {
        if self.is_backlogged() {
            return self.queue_reply(Queued::Reply(Box::new(reply)));
        }
        let mut out = Vec::new();
        self.write_reply(reply, &mut out);
        self.send_message(&out);
    }

    /// Sends the replies that were written to `out`, or queues them.
    pub(crate) fn flush_replies(&self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        if self.is_backlogged() {
            self.queue_reply(Queued::Message(std::mem::take(out)))
        } else {
            self.send_message(out)
        }
        out.clear();
    }

    fn queue_reply(&self, queued: Queued) {
        if self.pending.queued_bytes() + queued.weight() > limits::QUEUED_BYTES {
            return self.disconnect(Disconnect::SLOW);
        }
        self.pending.push_reply(queued);
    }

    /// Sends queued replies until the transport is full. Returns whether none is left.
    pub(crate) fn send_queued_replies(&self) -> bool {
        let mut out = Vec::new();
        while !self.transport.borrow().is_full()
            && let Some(queued) = self.pending.pop_reply()
        {
            match queued {
                Queued::Message(message) => self.send_message(&message),
                Queued::Reply(reply) => {
                    self.write_reply(*reply, &mut out);
                    self.send_message(&out);
                }
                Queued::Publication(channel, offset, published, form) => {
                    let push = PushMessage {
                        channel: channel.to_string(),
                        pub_: Some(form.publication(&published, offset, self.format)),
                        ..PushMessage::default()
                    };
                    let reply = Reply {
                        push: Some(push),
                        ..Reply::default()
                    };
                    if self.encode_reply(&reply, &mut out).is_err() {
                        // As with a new publication.
                        self.disconnect(Disconnect::INAPPROPRIATE_PROTOCOL);
                    }
                    self.send_message(&out);
                }
            }
            out.clear();
        }
        !self.pending.has_replies()
    }

    /// Sends the reply to a query; one that is too large is error 106 ([`limits::CLIENT_REPLY_BYTES`]).
    pub(crate) fn send_query_result(&self, number: u32, result: QueryResult) {
        let weight = query_weight(&result);
        let is_small = weight <= limits::CLIENT_REPLY_BYTES;
        if is_small && self.pending.queued_bytes() + weight <= limits::QUEUED_BYTES {
            self.send_reply(query_reply(number, result))
        } else {
            self.send_reply(error_reply(number, Fault::LIMIT_EXCEEDED))
        }
    }

    /// Confirms a subscription.
    pub(crate) fn on_subscribed(
        &self,
        worker: &PushWorker,
        conn: ConnId,
        channel: &Arc<str>,
        position: Option<StreamPosition>,
        missed: Option<Missed>,
    ) {
        let Some(subscribe) = self.pending.take_subscribe(channel) else {
            return;
        };
        let weight: usize = missed
            .iter()
            .flatten()
            .map(|(_, published)| publication_weight(published))
            .sum();
        // A client that would have more queued is reported as not recovered: a second attempt would be as large.
        let mut missed = missed.filter(|_| self.pending.queued_bytes() + weight <= limits::RECOVERED_BYTES);
        if missed.is_none() && subscribe.has_delta {
            worker.forget_delta_base(conn, channel);
        }
        if subscribe.is_recovering {
            self.metrics.count_recovery(missed.is_some());
        }
        if subscribe.is_recovering && subscribe.rejects_unrecovered && missed.is_none() {
            return self.reject_subscription(worker, conn, &subscribe, Fault::UNRECOVERABLE_POSITION);
        }
        let first = missed.iter().flatten().next().map(|(offset, _)| *offset);
        let capacity = self.pending.with_connect(|connect| connect.room_bytes);
        let (bytes, mut rest) = split_recovered(
            channel,
            missed.as_mut(),
            capacity.unwrap_or(limits::RECOVERED_WITH_REPLY_BYTES),
            subscribe.has_delta,
        );
        let mut result = subscribe.subscribe_result(worker.wall_time(), self.format, position, first, missed);
        if subscribe.is_compacted {
            result.id = worker.channel_number(channel).unwrap_or_default();
        }
        if subscribe.kind == SubscribeReply::Command {
            let reply = Reply {
                id: subscribe.number,
                subscribe: Some(result),
                ..Reply::default()
            };
            let mut out = Vec::new();
            if self.encode_reply(&reply, &mut out).is_err() {
                return self.reject_subscription(worker, conn, &subscribe, Fault::NOT_AVAILABLE);
            }
            self.flush_replies(&mut out);
            self.pending.append_replies(&mut rest);
            self.send_queued_replies();
            return;
        }
        self.pending
            .with_connect(|connect| connect.room_bytes -= bytes.min(connect.room_bytes));
        if let Some(result) = self.pending.add_subscription(channel, result, &mut rest) {
            self.push_subscription(channel, result, &mut rest);
        }
        if subscribe.kind == SubscribeReply::Connect {
            self.on_channel_joined(worker, conn);
        }
    }

    /// Replies to a `subscribe` with an error, and ends the subscription.
    fn reject_subscription(
        &self,
        worker: &PushWorker,
        conn: ConnId,
        subscribe: &PendingSubscribe,
        fault: Fault,
    ) {
        worker.unsubscribe_silently(conn, &subscribe.channel);
        self.remove_grant(worker, conn, &subscribe.channel);
        match subscribe.kind {
            SubscribeReply::Command => self.send_reply(error_reply(subscribe.number, fault)),
            SubscribeReply::Connect | SubscribeReply::Push => self.disconnect(disconnect_for(fault)),
        }
    }

    /// Sends a push for a subscription by the server, and behind it the publications that a reply would have.
    fn push_subscription(&self, channel: &Arc<str>, result: SubscribeResult, rest: &mut ReplyQueue) {
        let subscribe = PushMessage {
            channel: channel.to_string(),
            subscribe: Some(Subscribe {
                recoverable: result.recoverable,
                epoch: result.epoch,
                offset: result.offset,
                positioned: result.positioned,
                data: result.data,
            }),
            ..PushMessage::default()
        };
        let publications = result.publications.into_iter().map(|publication| PushMessage {
            channel: channel.to_string(),
            pub_: Some(publication),
            ..PushMessage::default()
        });
        for push in [subscribe].into_iter().chain(publications) {
            self.send_reply(Reply {
                push: Some(push),
                ..Reply::default()
            });
        }
        self.pending.append_replies(rest);
        self.send_queued_replies();
    }
}

#[cfg(test)]
mod tests;
