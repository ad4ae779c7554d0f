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

use crate::client::{Asked, Kind, Seat, answer, disconnect_for, failed};
use crate::limits;
use crate::worker::Desk;

/// Publications that a client recovers, each with its offset.
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
fn answer_weight(told: &QueryResult) -> usize {
    match told {
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
fn split(channel: &Arc<str>, missed: Option<&mut Missed>, room: usize) -> (usize, ReplyQueue) {
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

impl Seat {
    /// Whether a reply has to wait.
    fn is_backlogged(&self) -> bool {
        self.pending.has_queued() || self.outlet.borrow().is_full()
    }

    /// Sends a reply, or queues it behind those that the client has not taken yet. A client for whom more than
    /// [`limits::QUEUED_BYTES`] would wait is disconnected ([`Disconnect::SLOW`]).
    pub(crate) fn say(&self, reply: Reply) {
        if self.is_backlogged() {
            return self.queue(Queued::Reply(Box::new(reply)));
        }
        let mut out = Vec::new();
        self.write(reply, &mut out);
        self.send(&out);
    }

    /// Sends replies that were written to `out`, or queues them.
    pub(crate) fn flush(&self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        match self.is_backlogged() {
            true => self.queue(Queued::Message(std::mem::take(out))),
            false => self.send(out),
        }
        out.clear();
    }

    fn queue(&self, queued: Queued) {
        if self.pending.queued_bytes() + queued.weight() > limits::QUEUED_BYTES {
            return self.disconnect(Disconnect::SLOW);
        }
        self.pending.queue(queued);
    }

    /// Sends queued replies as far as the client takes them. Returns whether none is left.
    pub(crate) fn send_queued(&self) -> bool {
        let mut out = Vec::new();
        while !self.outlet.borrow().is_full()
            && let Some(queued) = self.pending.next_queued()
        {
            match queued {
                Queued::Message(message) => self.send(&message),
                Queued::Reply(reply) => {
                    self.write(*reply, &mut out);
                    self.send(&out);
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
                    if self.encode(&reply, &mut out).is_err() {
                        // As with a publication that is new.
                        self.disconnect(Disconnect::INAPPROPRIATE_PROTOCOL);
                    }
                    self.send(&out);
                }
            }
            out.clear();
        }
        !self.pending.has_queued()
    }

    /// Sends the answer to a question; one that is too large is error 106 ([`limits::ANSWER_TO_CLIENT_BYTES`]).
    pub(crate) fn say_answer(&self, number: u32, told: QueryResult) {
        let weight = answer_weight(&told);
        let is_small = weight <= limits::ANSWER_TO_CLIENT_BYTES;
        match is_small && self.pending.queued_bytes() + weight <= limits::QUEUED_BYTES {
            true => self.say(answer(number, told)),
            false => self.say(failed(number, Fault::LIMIT_EXCEEDED)),
        }
    }

    /// A channel has answered that the client is subscribed.
    pub(crate) fn subscribed(
        &self,
        desk: &Desk,
        conn: ConnId,
        channel: &Arc<str>,
        (place, missed): (Option<StreamPosition>, Option<Missed>),
    ) {
        let Some(asked) = self.pending.answered(channel) else {
            return;
        };
        let weight: usize = missed
            .iter()
            .flatten()
            .map(|(_, published)| publication_weight(published))
            .sum();
        // With more than may wait for it the client is told that it is not recovered: asked again, it would be as much.
        let mut missed = missed.filter(|_| self.pending.queued_bytes() + weight <= limits::RECOVERED_BYTES);
        if asked.recovers {
            self.counts.recovered(missed.is_some());
        }
        if asked.recovers && asked.wants_all && missed.is_none() {
            return self.unsubscribe_with(desk, conn, &asked, Fault::UNRECOVERABLE_POSITION);
        }
        let first = missed.iter().flatten().next().map(|(offset, _)| *offset);
        let room = self.pending.joining(|joining| joining.room);
        let (bytes, mut rest) = split(
            channel,
            missed.as_mut(),
            room.unwrap_or(limits::RECOVERED_WITH_REPLY_BYTES),
        );
        let result = asked.result(desk.cx.wall(), place, first, missed);
        if asked.kind == Kind::Own {
            let reply = Reply {
                id: asked.number,
                subscribe: Some(result),
                ..Reply::default()
            };
            let mut out = Vec::new();
            if self.encode(&reply, &mut out).is_err() {
                return self.unsubscribe_with(desk, conn, &asked, Fault::NOT_AVAILABLE);
            }
            self.flush(&mut out);
            self.pending.queue_all(&mut rest);
            self.send_queued();
            return;
        }
        self.pending
            .joining(|joining| joining.room -= bytes.min(joining.room));
        if let Some(result) = self.pending.joins(channel, result, &mut rest) {
            self.push_subscribed(channel, result, &mut rest);
        }
        if asked.kind == Kind::Connecting {
            self.joined(desk, conn);
        }
    }

    /// Answers a `subscribe` by an error, and ends the subscription.
    fn unsubscribe_with(&self, desk: &Desk, conn: ConnId, asked: &Asked, fault: Fault) {
        desk.local.borrow_mut().unsubscribe_silently(conn, &asked.channel);
        self.ungrant(desk, conn, &asked.channel);
        match asked.kind {
            Kind::Own => self.say(failed(asked.number, fault)),
            Kind::Connecting | Kind::Pushed => self.disconnect(disconnect_for(fault)),
        }
    }

    /// The server has subscribed it: sends a push, and behind it the publications that a reply would have.
    fn push_subscribed(&self, channel: &Arc<str>, result: SubscribeResult, rest: &mut ReplyQueue) {
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
            self.say(Reply {
                push: Some(push),
                ..Reply::default()
            });
        }
        self.pending.queue_all(rest);
        self.send_queued();
    }
}

#[cfg(test)]
mod tests;
