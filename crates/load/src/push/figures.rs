//! What was counted and timed of a fan-out: by one thread of clients, by the one that publishes, and merged of all.
//!
//! Knows nothing of sockets; whoever records here has decided what counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::figures::Latency;
use crate::limits;

/// What clients have heard. Merging those of threads gives those of the whole, without loss.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// What was counted.
    pub counts: Counts,
    /// From the moment at which a publication was due to its being read by a client, of those that read as fast as they can.
    pub fast: Latency,
    /// The same of those that read slowly.
    pub slow: Latency,
    /// From asking for a connection to standing with all subscriptions.
    pub ready: Latency,
    /// From asking for a connection to having it, without handshakes.
    pub connect: Latency,
    /// From having a connection to having it secured; empty without TLS.
    pub handshake: Latency,
    /// How long bytes that were there had waited until this program looked at them, at least.
    pub behind: Latency,
    /// How far the newest value that clients have was behind the newest published one, looked at evenly over time and
    /// subscriptions; only where values are conflated.
    pub fresh: Latency,
    /// The same of clients that read slowly.
    pub fresh_slow: Latency,
    /// From the moment at which a publication was due to its being read by a client that had missed it and came back; those are
    /// neither in `fast` nor in `slow`.
    pub recovered: Latency,
    /// From all clients' being cut off to one's standing again with all subscriptions.
    pub back: Latency,
    /// Each time at which all clients were cut off, or the time at which a server was killed.
    pub outages: Vec<Outage>,
    /// Clients by node, in the order of the plan.
    pub nodes: Vec<NodeCounts>,
}

/// Clients of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Clients whose first session was there.
    pub joined: u64,
    /// Sessions there that ended without being cut off on purpose.
    pub ended: u64,
    /// Of those, after [`super::Plan::kill_server`].
    pub ended_by_kill: u64,
    /// Clients with a session there at the end.
    pub at_end: u64,
}

impl NodeCounts {
    fn merge(&mut self, other: &NodeCounts) {
        self.joined += other.joined;
        self.ended += other.ended;
        self.ended_by_kill += other.ended_by_kill;
        self.at_end += other.at_end;
    }
}

/// One time at which all clients were cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outage {
    /// Clients that stood, and were cut off.
    pub cut: u64,
    /// Of those, that stand again.
    pub back: u64,
    /// Until the last of those stood.
    pub took: Duration,
    /// The share of a CPU that the busiest thread of clients used until all of its own stood again, 0 to 1.
    pub busy: f64,
    /// CPU time of the server until all stood again; `None` if not all do, or it is not watched.
    pub server_cpu: Option<Duration>,
}

impl Outage {
    /// Whether all that were cut off stand again.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.back == self.cut
    }

    fn merge(&mut self, other: &Outage) {
        self.cut += other.cut;
        self.back += other.back;
        self.took = self.took.max(other.took);
        self.busy = self.busy.max(other.busy);
    }
}

/// Counts of clients. Of publications only those that count are counted here, not those of the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries to clients that read as fast as they can, each counted once.
    pub delivered: u64,
    /// The same to clients that read slowly.
    pub delivered_slow: u64,
    /// Deliveries that had been there before.
    pub doubled: u64,
    /// Deliveries that came behind a later one of their channel.
    pub reordered: u64,
    /// Deliveries so late that they may be reordered or doubled.
    pub old: u64,
    /// Publications of channels that a client had not subscribed to.
    pub misdelivered: u64,
    /// Publications that were not as they had been published.
    pub changed: u64,
    /// Subscriptions of clients that read as fast as they can that did not have the last publication of their channel at the
    /// end.
    pub behind_at_end: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Messages received, of whatever kind.
    pub messages: u64,
    /// Pings received.
    pub pings: u64,
    /// Sessions that came to stand again after the server, or what is between, had ended them.
    pub reconnects: u64,
    /// Subscriptions taken up again that got all that they had missed, as the server has it.
    pub recoveries: u64,
    /// Subscriptions taken up again of which the server says that it does not have all that they have missed.
    pub unrecovered: u64,
    /// Subscriptions taken up again of which nobody knew where they had stood: the server had not said it.
    pub unplaced: u64,
    /// Of `recoveries`, those after which a publication is missing nevertheless.
    pub falsely_recovered: u64,
    /// Positions (epoch and offset of a channel) under which clients received different publications.
    pub conflicting: u64,
    /// Positions that clients of at least two nodes received.
    pub compared: u64,
    /// Receipts whose positions were not compared (see [`limits::AUDITED_BLOCKS`]).
    pub not_compared: u64,
    /// Deliveries that count and came with the answer to a subscription.
    pub by_recovery: u64,
    /// Clients that do not come back: the server has told them so.
    pub gone: u64,
    /// Attempts to connect that failed, by what happened.
    pub connect_errors: BTreeMap<String, u64>,
    /// Sessions that ended after they had stood.
    pub disconnects: Disconnects,
    /// Subscriptions that the server ended.
    pub unsubscribes: Disconnects,
    /// TLS handshakes that came to their end, by version and suite (`TLSv1.3 TLS13_AES_256_GCM_SHA384`).
    pub tls: BTreeMap<String, u64>,
    /// Of those, that resumed a session.
    pub tls_resumed: u64,
}

/// How often something ended, by how: a code and a reason, or what happened. Beyond [`limits::PUSH_REASONS`] kinds the
/// rest is counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disconnects(BTreeMap<String, u64>);

impl Disconnects {
    /// One more.
    pub(super) fn add(&mut self, how: String) {
        self.add_many(how, 1);
    }

    fn add_many(&mut self, how: String, count: u64) {
        let known = self.0.contains_key(&how) || self.0.len() < limits::PUSH_REASONS;
        *self
            .0
            .entry(if known { how } else { "others".into() })
            .or_default() += count;
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each with how often it was, sorted by how.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(how, count)| (how.as_str(), *count))
    }

    fn merge(&mut self, other: &Disconnects) {
        for (how, count) in other.iter() {
            self.add_many(how.to_owned(), count);
        }
    }
}

impl Heard {
    /// The counts of a node.
    pub(super) fn node(&mut self, node: usize) -> &mut NodeCounts {
        if self.nodes.len() <= node {
            self.nodes.resize(node + 1, NodeCounts::default());
        }
        &mut self.nodes[node]
    }

    /// What of it is about joining.
    pub(super) fn joining(&self) -> Heard {
        Heard {
            counts: Counts {
                tls: self.counts.tls.clone(),
                tls_resumed: self.counts.tls_resumed,
                ..Counts::default()
            },
            nodes: self
                .nodes
                .iter()
                .map(|node| NodeCounts {
                    joined: node.joined,
                    ..NodeCounts::default()
                })
                .collect(),
            ready: self.ready.clone(),
            connect: self.connect.clone(),
            handshake: self.handshake.clone(),
            ..Heard::default()
        }
    }

    /// Adds another thread's.
    pub(super) fn merge(&mut self, other: &Heard) {
        self.counts.merge(&other.counts);
        let outages = self.outages.len().max(other.outages.len());
        self.outages.resize(outages, Outage::default());
        for (into, from) in self.outages.iter_mut().zip(&other.outages) {
            into.merge(from);
        }
        let nodes = self.nodes.len().max(other.nodes.len());
        self.nodes.resize(nodes, NodeCounts::default());
        for (into, from) in self.nodes.iter_mut().zip(&other.nodes) {
            into.merge(from);
        }
        let latencies = [
            (&mut self.fast, &other.fast),
            (&mut self.slow, &other.slow),
            (&mut self.ready, &other.ready),
            (&mut self.connect, &other.connect),
            (&mut self.handshake, &other.handshake),
            (&mut self.behind, &other.behind),
            (&mut self.fresh, &other.fresh),
            (&mut self.fresh_slow, &other.fresh_slow),
            (&mut self.recovered, &other.recovered),
            (&mut self.back, &other.back),
        ];
        for (into, from) in latencies {
            into.merge(from);
        }
    }
}

impl Counts {
    fn merge(&mut self, other: &Counts) {
        let counts = [
            (&mut self.delivered, other.delivered),
            (&mut self.delivered_slow, other.delivered_slow),
            (&mut self.doubled, other.doubled),
            (&mut self.reordered, other.reordered),
            (&mut self.old, other.old),
            (&mut self.misdelivered, other.misdelivered),
            (&mut self.changed, other.changed),
            (&mut self.behind_at_end, other.behind_at_end),
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.messages, other.messages),
            (&mut self.pings, other.pings),
            (&mut self.reconnects, other.reconnects),
            (&mut self.recoveries, other.recoveries),
            (&mut self.unrecovered, other.unrecovered),
            (&mut self.unplaced, other.unplaced),
            (&mut self.falsely_recovered, other.falsely_recovered),
            (&mut self.conflicting, other.conflicting),
            (&mut self.compared, other.compared),
            (&mut self.not_compared, other.not_compared),
            (&mut self.by_recovery, other.by_recovery),
            (&mut self.gone, other.gone),
            (&mut self.tls_resumed, other.tls_resumed),
        ];
        for (into, from) in counts {
            *into += from;
        }
        for (what, count) in &other.connect_errors {
            *self.connect_errors.entry(what.clone()).or_default() += count;
        }
        for (agreed, count) in &other.tls {
            *self.tls.entry(agreed.clone()).or_default() += count;
        }
        self.disconnects.merge(&other.disconnects);
        self.unsubscribes.merge(&other.unsubscribes);
    }
}

/// What came of publishing.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Publications that count, as the schedule has them.
    pub due: u64,
    /// Of those, accepted by the server.
    pub accepted: u64,
    /// Of those, refused, by what the server said.
    pub refused: Disconnects,
    /// Of those, sent without an answer in time.
    pub unanswered: u64,
    /// Of those, never sent: no connection, or too many waited already.
    pub unsent: u64,
    /// Connections for publishing that broke.
    pub broken: u64,
    /// From a publication's moment to its being sent: what this program was late, or held back by the server.
    pub lag: Latency,
    /// From its being sent to the server's answer.
    pub answer: Latency,
    /// Bytes sent.
    pub bytes_sent: u64,
}

/// How far a publication has come with the clients of one thread that read as fast as they can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    /// When the last of them had it, microseconds after it was due.
    pub(super) last_us: u32,
    /// How many have it.
    pub(super) count: u32,
}

impl Spread {
    #[inline]
    pub(super) fn take(&mut self, span: Duration) {
        self.last_us = self
            .last_us
            .max(u32::try_from(span.as_micros()).unwrap_or(u32::MAX));
        self.count += 1;
    }

    pub(super) fn merge(&mut self, other: Spread) {
        self.last_us = self.last_us.max(other.last_us);
        self.count += other.count;
    }
}
