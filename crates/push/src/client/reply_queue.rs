//! Replies and recovered publications that wait until a client has taken what was sent before.
//!
//! ```text
//! reply ─▶ (the transport is full, or others wait) ─▶ queue, bounded ─▶ one after the other, as the client takes them ─▶ pushes
//! subscribe ─▶ reply with the first of the recovered publications ─▶ the others as pushes behind it
//! ```
//!
//! While something waits here no command of the client is carried out, so that the queue holds no more than the answers to the
//! commands that were in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::QueryResult;
use ringmain_hub::protocol::{
    ClientInfo, Disconnect, Fault, Published, Push, Reply, Subscribe, SubscribeResult, encoded_bytes,
};
use ringmain_hub::subscribers::ConnId;

use crate::client::{Client, PendingSubscribe, SubscribeReply, disconnect_for, error_reply, query_reply};
use crate::limits;
use crate::worker::PushWorker;

/// Publications that a client is_recovering, each with its offset.
pub(crate) type Missed = Vec<(u64, Arc<Published>)>;

/// A message that waits.
pub(crate) enum Queued {
    /// Encoded already.
    Message(Vec<u8>),
    Reply(Box<Reply>),
    /// A recovered publication of a channel, with its offset.
    Publication(Arc<str>, u64, Arc<Published>),
}

impl Queued {
    /// About how many bytes it holds.
    pub(crate) fn weight(&self) -> usize {
        let bytes = match self {
            Queued::Message(message) => message.len(),
            Queued::Reply(reply) => encoded_bytes(&**reply),
            Queued::Publication(_, _, published) => return publication_weight(published),
        };
        bytes + limits::REPLY_OVERHEAD_BYTES
    }
}

/// The replies that wait for one client, in order.
#[derive(Default)]
pub(crate) struct ReplyQueue {
    queued: VecDeque<Queued>,
    bytes: usize,
}

impl ReplyQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// As [`Queued::weight`] counts.
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

    /// Moves all of another queue behind this one's.
    pub(crate) fn append(&mut self, other: &mut ReplyQueue) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.queued.append(&mut other.queued);
    }

    /// Removes the publications of a channel.
    pub(crate) fn remove(&mut self, channel: &str) {
        let bytes = &mut self.bytes;
        self.queued.retain(|queued| {
            let is_other = !matches!(queued, Queued::Publication(of, ..) if &**of == channel);
            if !is_other {
                *bytes -= queued.weight();
            }
            is_other
        });
    }
}

/// At most about how many bytes a text is in JSON.
fn text_weight(text: &str) -> usize {
    6 * text.len()
}

fn info_weight(info: &ClientInfo) -> usize {
    let texts = text_weight(&info.user) + info.client.len();
    texts + info.conn_info.len() + info.chan_info.len() + limits::REPLY_OVERHEAD_BYTES
}

/// At most about how many bytes a publication is in a message.
pub(crate) fn publication_weight(published: &Published) -> usize {
    let tags = published.tags.iter();
    let tags: usize = tags
        .map(|(name, value)| text_weight(name) + text_weight(value) + 6)
        .sum();
    let info = published.info.as_ref().map_or(0, info_weight);
    published.data.len() + tags + info + limits::REPLY_OVERHEAD_BYTES
}

/// At most about how many bytes an answer to a question is.
fn query_weight(result: &QueryResult) -> usize {
    match result {
        QueryResult::History { publications, .. } => publications
            .iter()
            .map(|(_, published)| publication_weight(published))
            .sum(),
        // By the connection's number, and with it.
        QueryResult::Presence(present) => present
            .iter()
            .map(|info| info_weight(info) + info.client.len())
            .sum(),
        _ => 0,
    }
}

/// Splits recovered publications: those that have room in a reply stay, and the others are returned in their order. Returns the
/// bytes of the former, too.
fn split_recovered(channel: &Arc<str>, missed: Option<&mut Missed>, room: usize) -> (usize, ReplyQueue) {
    let mut rest = ReplyQueue::default();
    let Some(missed) = missed else { return (0, rest) };
    let (mut bytes, mut count) = (0, 0);
    for (_, published) in &*missed {
        let weight = publication_weight(published);
        if bytes + weight > room {
            break;
        }
        (bytes, count) = (bytes + weight, count + 1);
    }
    for (offset, published) in missed.drain(count..) {
        rest.push(Queued::Publication(Arc::clone(channel), offset, published));
    }
    (bytes, rest)
}

impl Client {
    /// Whether a reply has to wait.
    fn is_backlogged(&self) -> bool {
        self.pending.has_replies() || self.transport.borrow().is_full()
    }

    /// Sends a reply, or queues it behind those that the client has not taken yet. A client for whom more than
    /// [`limits::QUEUED_BYTES`] would wait is disconnected ([`Disconnect::SLOW`]).
    pub(crate) fn send_reply(&self, reply: Reply) {
        if self.is_backlogged() {
            return self.queue_reply(Queued::Reply(Box::new(reply)));
        }
        let mut out = Vec::new();
        self.write_reply(reply, &mut out);
        self.send_message(&out);
    }

    /// Sends replies that were written to `out`, or queues them.
    pub(crate) fn flush_replies(&self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        match self.is_backlogged() {
            true => self.queue_reply(Queued::Message(std::mem::take(out))),
            false => self.send_message(out),
        }
        out.clear();
    }

    fn queue_reply(&self, queued: Queued) {
        if self.pending.queued_bytes() + queued.weight() > limits::QUEUED_BYTES {
            return self.disconnect(Disconnect::SLOW);
        }
        self.pending.push_reply(queued);
    }

    /// Sends queued replies as far as the client takes them. Returns whether none is left.
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
                Queued::Publication(channel, offset, published) => {
                    let push = Push {
                        channel: channel.to_string(),
                        pub_: Some(published.numbered(offset)),
                        ..Push::default()
                    };
                    let reply = Reply {
                        push: Some(push),
                        ..Reply::default()
                    };
                    if self.encode_reply(&reply, &mut out).is_err() {
                        // As with a publication that is new.
                        self.disconnect(Disconnect::INAPPROPRIATE_PROTOCOL);
                    }
                    self.send_message(&out);
                }
            }
            out.clear();
        }
        !self.pending.has_replies()
    }

    /// Sends the answer to a question; one that is too large is error 106 ([`limits::CLIENT_REPLY_BYTES`]).
    pub(crate) fn send_query_result(&self, number: u32, result: QueryResult) {
        let weight = query_weight(&result);
        let is_small = weight <= limits::CLIENT_REPLY_BYTES;
        match is_small && self.pending.queued_bytes() + weight <= limits::QUEUED_BYTES {
            true => self.send_reply(query_reply(number, result)),
            false => self.send_reply(error_reply(number, Fault::LIMIT_EXCEEDED)),
        }
    }

    /// A channel has answered that the client is subscribed.
    pub(crate) fn on_subscribed(
        &self,
        worker: &PushWorker,
        conn: ConnId,
        channel: &Arc<str>,
        (place, missed): (Option<StreamPosition>, Option<Missed>),
    ) {
        let Some(asked) = self.pending.take_subscribe(channel) else {
            return;
        };
        let weight: usize = missed
            .iter()
            .flatten()
            .map(|(_, published)| publication_weight(published))
            .sum();
        // With more than may wait for it the client is result that it is not recovered: asked again, it would be as much.
        let mut missed = missed.filter(|_| self.pending.queued_bytes() + weight <= limits::RECOVERED_BYTES);
        if asked.is_recovering {
            self.metrics.count_recovery(missed.is_some());
        }
        if asked.is_recovering && asked.rejects_unrecovered && missed.is_none() {
            return self.reject_subscription(worker, conn, &asked, Fault::UNRECOVERABLE_POSITION);
        }
        let first = missed.iter().flatten().next().map(|(offset, _)| *offset);
        let room = self.pending.with_connect(|connect| connect.room_bytes);
        let (bytes, mut rest) = split_recovered(
            channel,
            missed.as_mut(),
            room.unwrap_or(limits::RECOVERED_WITH_REPLY_BYTES),
        );
        let result = asked.subscribe_result(worker.wall_time(), place, first, missed);
        if asked.kind == SubscribeReply::Command {
            let reply = Reply {
                id: asked.number,
                subscribe: Some(result),
                ..Reply::default()
            };
            let mut out = Vec::new();
            if self.encode_reply(&reply, &mut out).is_err() {
                return self.reject_subscription(worker, conn, &asked, Fault::NOT_AVAILABLE);
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
        if asked.kind == SubscribeReply::Connect {
            self.on_channel_joined(worker, conn);
        }
    }

    /// Answers a `subscribe` by an error, and ends the subscription.
    fn reject_subscription(&self, worker: &PushWorker, conn: ConnId, asked: &PendingSubscribe, fault: Fault) {
        worker.unsubscribe_silently(conn, &asked.channel);
        self.remove_grant(worker, conn, &asked.channel);
        match asked.kind {
            SubscribeReply::Command => self.send_reply(error_reply(asked.number, fault)),
            SubscribeReply::Connect | SubscribeReply::Push => self.disconnect(disconnect_for(fault)),
        }
    }

    /// The server has subscribed it: sends a push, and behind it the publications that a reply would have.
    fn push_subscription(&self, channel: &Arc<str>, result: SubscribeResult, rest: &mut ReplyQueue) {
        let subscribe = Push {
            channel: channel.to_string(),
            subscribe: Some(Subscribe {
                recoverable: result.recoverable,
                epoch: result.epoch,
                offset: result.offset,
                positioned: result.positioned,
                data: result.data,
            }),
            ..Push::default()
        };
        let publications = result.publications.into_iter().map(|publication| Push {
            channel: channel.to_string(),
            pub_: Some(publication),
            ..Push::default()
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
