//! A client that relies on its replies, and checks them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::{EpochFilter, RecoverFrom};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent};

use super::Occurred;
use super::nodes::{Node, WORKERS, options, shard_index};
use super::reference_logs::{CHANNELS, ReferenceLogs, keeps};
use super::reports::{Received, RecordGap, record_id};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Off,
    Requested,
    Subscribed,
}

/// The state of a channel at a client.
#[derive(Debug, Default)]
struct View {
    state: State,
    /// Its position, which it keeps while it is not subscribed.
    position: Option<StreamPosition>,
    /// The process and the time of the last subscription.
    subscribed: (u64, u64),
    /// The position from which it requested recovery.
    recovers_from: Option<StreamPosition>,
    /// True if a gap was reported while it was subscribed: it must be notified.
    must_notice: bool,
    /// The process that reported a gap after its position: the position must not recover there.
    lost_at: Option<u64>,
    received: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) node: usize,
    pub(super) worker: usize,
    pub(super) conn: Option<ConnId>,
    views: BTreeMap<&'static str, View>,
}

/// The facts against which a client is checked.
pub(super) struct Context<'a> {
    pub(super) seed: u64,
    pub(super) clock: u64,
    pub(super) reference: &'a mut ReferenceLogs,
    pub(super) node: &'a Node,
    pub(super) occurred: &'a mut Occurred,
}

impl Client {
    pub(super) fn new(node: usize) -> Client {
        Client {
            node,
            worker: 0,
            conn: None,
            views: BTreeMap::new(),
        }
    }

    pub(super) fn subscribe(
        &mut self,
        channel: &'static str,
        forgets: bool,
        node: &mut Node,
        random: &mut fastrand::Rng,
    ) {
        let view = self.views.entry(channel).or_default();
        if view.state != State::Off {
            return;
        }
        let conn = match self.conn {
            Some(conn) => conn,
            None => {
                self.worker = random.usize(0..WORKERS);
                node.open(self.worker)
            }
        };
        self.conn = Some(conn);
        view.recovers_from = view.position.filter(|_| !forgets);
        view.state = State::Requested;
        let since = view.recovers_from.map(|position| RecoverFrom {
            offset: position.offset,
            epoch: EpochFilter::Exact(position.epoch),
        });
        let subscribed =
            node.table(self.worker)
                .subscribe(conn, &Arc::from(channel), options(channel), since);
        subscribed.expect("few channels");
    }

    pub(super) fn unsubscribe(&mut self, channel: &'static str, node: &mut Node) {
        let view = self.views.entry(channel).or_default();
        if let (Some(conn), State::Subscribed) = (self.conn, view.state) {
            node.table(self.worker).unsubscribe_silently(conn, channel);
            view.end();
        }
    }

    pub(super) fn disconnect(&mut self, node: &mut Node) {
        if let Some(conn) = self.conn {
            node.table(self.worker).close(conn);
        }
        self.connection_lost();
    }

    pub(super) fn connection_lost(&mut self) {
        self.conn = None;
        self.views.values_mut().for_each(View::end);
    }

    /// Records missing records that a shard of its node has reported.
    pub(super) fn must_notice(
        &mut self,
        shard: usize,
        gap: &RecordGap,
        reference: &ReferenceLogs,
        node: &Node,
    ) {
        for (channel, view) in &mut self.views {
            let is_concerned =
                keeps(channel) && shard_index(channel) == shard && reference.log_of(channel) == gap.log;
            let (Some(position), State::Subscribed) = (view.position, view.state) else {
                continue;
            };
            // A channel in which only other programs have published is not one of the log's.
            let mut processed = node.processed(channel, view.subscribed.1);
            let is_fed = processed.any(|record| record.epoch == gap.epoch);
            let relies = position.epoch == gap.epoch
                || !reference.is_of_log(position.epoch)
                    && (position.offset == 0 && !node.is_shared || is_fed);
            let is_missing = gap
                .missing
                .is_none_or(|(above, up_to)| !reference.between(gap.epoch, channel, above, up_to).is_empty());
            if is_concerned && relies && is_missing {
                view.must_notice = true;
                view.lost_at = Some(node.epoch);
            }
        }
    }

    pub(super) fn receive(&mut self, received: Received, context: Context<'_>) {
        match received {
            Received::Event(SubscriberEvent::Subscribed {
                channel,
                position,
                missed,
                ..
            }) => {
                let channel = named(&channel);
                let missed = missed.map(|missed| {
                    let all = missed.iter();
                    all.map(|(offset, published)| (*offset, record_id(&published.data)))
                        .collect()
                });
                let view = self.views.get_mut(channel).expect("a channel that it requested");
                view.subscribed(channel, position, missed, context);
            }
            Received::Event(SubscriberEvent::Unsubscribed { channel, .. }) => {
                let view = self.views.get_mut(named(&channel)).expect("a channel");
                view.end();
                context.occurred.notified += 1;
            }
            Received::Event(SubscriberEvent::Rejected { channel, fault, .. }) => {
                let view = self.views.get_mut(named(&channel)).expect("a channel");
                view.end();
                if fault.code == 100 {
                    assert!(fault.temporary, "seed {}", context.seed);
                    context.occurred.behind += 1;
                }
            }
            Received::Push { channel, offset, id } => {
                let channel = named(&channel);
                let view = self.views.get_mut(channel).expect("a channel");
                view.push(channel, offset, id, context);
            }
            Received::Event(event) => panic!("seed {}: {event:?}", context.seed),
        }
    }

    /// Checks, once nothing arrives any more, that it has all publications of its node since it subscribed.
    pub(super) fn has_all(&self, reference: &ReferenceLogs, node: &Node, seed: u64) {
        for (channel, view) in &self.views {
            assert_eq!(view.state, State::Subscribed, "seed {seed}: {channel}");
            assert!(
                !view.must_notice,
                "seed {seed}: {channel}: a hole was not reported"
            );
            let processed = node.processed(channel, view.subscribed.1);
            // Earlier records are retained if the channel has a history, and not sent.
            let mut sent = processed.filter(|record| record.is_live || keeps(channel));
            if let Some(last) = sent.next_back() {
                assert!(
                    view.received.contains(&last.id),
                    "seed {seed}: {channel}: {last:?} is missing"
                );
            }
            let Some(position) = view.position else { continue };
            let log = &reference.logs[reference.log_of(channel)];
            if position.epoch == log.epoch {
                let more = reference.between(position.epoch, channel, position.offset, u64::MAX);
                assert!(
                    more.is_empty(),
                    "seed {seed}: {channel}: {more:?} behind {position:?}"
                );
            }
        }
    }
}

fn named(channel: &str) -> &'static str {
    CHANNELS
        .into_iter()
        .find(|name| *name == channel)
        .expect("a channel")
}

impl View {
    fn end(&mut self) {
        self.state = State::Off;
        self.must_notice = false;
    }

    fn subscribed(
        &mut self,
        channel: &'static str,
        position: Option<StreamPosition>,
        missed: Option<Vec<(u64, u64)>>,
        context: Context<'_>,
    ) {
        let Context {
            seed,
            clock,
            reference,
            node,
            occurred,
        } = context;
        assert_eq!(self.state, State::Requested, "seed {seed}: {channel}");
        self.state = State::Subscribed;
        let before = std::mem::replace(&mut self.subscribed, (node.epoch, clock));
        assert_eq!(position.is_some(), keeps(channel), "seed {seed}: {channel}");
        let Some(position) = position else { return };
        let from = self.recovers_from.take();
        let text = format!("seed {seed}: {channel} from {from:?} to {position:?}: {missed:?}");
        occurred.gaps += u64::from(from.is_some() && missed.is_none());
        if let Some(missed) = missed {
            let from = from.expect("it asked for recovery");
            let is_lost = self.lost_at.is_some_and(|epoch| node.continues(epoch));
            assert!(!is_lost, "{text}: across a hole");
            for &(offset, id) in &missed {
                reference.check_name(channel, position.epoch, offset, id, seed);
            }
            let offsets: Vec<u64> = missed.iter().map(|(offset, _)| *offset).collect();
            let expected: Vec<u64> = if from.epoch != position.epoch {
                // The client subscribed before the channel's first record.
                assert!(
                    reference.is_of_log(position.epoch) && !reference.is_of_log(from.epoch),
                    "{text}"
                );
                assert!(from.offset == 0 && node.continues(before.0), "{text}");
                let all = reference.between(position.epoch, channel, 0, position.offset);
                let is_before = |id: u64| all.iter().any(|record| record.id == id);
                let ids: BTreeSet<u64> = missed.iter().map(|(_, id)| *id).collect();
                for record in node
                    .processed(channel, before.1)
                    .filter(|record| is_before(record.id))
                {
                    assert!(ids.contains(&record.id), "{text} without {record:?}");
                }
                let all: Vec<u64> = all.iter().map(|record| record.offset).collect();
                all[all.len() - offsets.len().min(all.len())..].to_vec()
            } else if reference.is_of_log(position.epoch) {
                let all = reference.between(position.epoch, channel, from.offset, position.offset);
                all.iter().map(|record| record.offset).collect()
            } else {
                (from.offset + 1..=position.offset).collect()
            };
            assert_eq!(offsets, expected, "{text}");
            assert!(
                from.offset <= position.offset || from.epoch != position.epoch,
                "{text}"
            );
            self.received.extend(missed.iter().map(|(_, id)| *id));
            occurred.recovered += u64::from(!missed.is_empty());
            occurred.moved += u64::from(before.0 != node.epoch && before.0 != 0);
        }
        self.position = Some(position);
        self.lost_at = None;
    }

    fn push(&mut self, channel: &'static str, offset: u64, id: u64, context: Context<'_>) {
        let Context { seed, reference, .. } = context;
        assert_eq!(self.state, State::Subscribed, "seed {seed}: {channel} {offset}");
        self.received.insert(id);
        let Some(position) = &mut self.position else {
            assert_eq!(offset, 0, "seed {seed}: {channel}");
            return;
        };
        let text = format!("seed {seed}: {channel} {offset} behind {position:?}");
        reference.check_name(channel, position.epoch, offset, id, seed);
        if reference.is_of_log(position.epoch) {
            let records = reference.between(position.epoch, channel, position.offset, offset);
            let records: Vec<u64> = records.iter().map(|record| record.offset).collect();
            assert_eq!(records, [offset], "{text}");
        } else {
            assert_eq!(offset, position.offset + 1, "{text}");
        }
        position.offset = offset;
    }
}
