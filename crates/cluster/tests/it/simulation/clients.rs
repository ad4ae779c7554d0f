//! The shard of a channel at one node, as the workers have it, and its clients.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_cluster::frame::ChannelState;
use ringmain_cluster::node::SyncKind;
use ringmain_hub::history::{Epoch, History, HistoryOptions, Recovery, StreamPosition};
use ringmain_hub::protocol::Published;

use super::log::Fold;
use super::world::{HISTORY, number_of};

/// The data of each (channel, epoch, offset), for all clients.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    data: BTreeMap<(String, Epoch, u64), Vec<u8>>,
    /// The publications of the log, if there is one.
    pub(super) log: Option<Rc<RefCell<Fold>>>,
}

impl Oracle {
    /// Returns a publication that a client at a position has not received before one with this offset.
    fn missed(&self, channel: &Arc<str>, from: StreamPosition, offset: u64) -> Option<u64> {
        match &self.log {
            Some(log) => log.borrow().between(channel, from, offset),
            None => (from.offset + 1 != offset).then_some(from.offset + 1),
        }
    }

    /// Checks that a client at a position has received all publications up to another one.
    pub(super) fn check_complete(
        &self,
        channel: &Arc<str>,
        at: Option<StreamPosition>,
        top: StreamPosition,
    ) -> Result<(), String> {
        let is_complete = match (&self.log, at) {
            (None, at) => at == Some(top),
            (Some(_), None) => false,
            (Some(log), Some(at)) => {
                at.epoch == top.epoch && log.borrow().between(channel, at, top.offset + 1).is_none()
            }
        };
        match is_complete {
            true => Ok(()),
            false => Err(format!("a client of {channel} has {at:?}, the channel {top:?}")),
        }
    }

    /// Checks a publication against the log.
    fn check_log(&self, channel: &str, epoch: Epoch, offset: u64, data: &[u8]) -> Result<(), String> {
        let Some(log) = &self.log else { return Ok(()) };
        let position = StreamPosition { offset, epoch };
        match log.borrow().data(&channel.into(), position) {
            Some(stored) if stored == data => Ok(()),
            Some(_) => Err(format!(
                "{channel} {epoch} {offset} is another publication in the log"
            )),
            None => Err(format!("{channel} {epoch} {offset} is not in the log")),
        }
    }

    pub(super) fn check(
        &mut self,
        channel: &str,
        epoch: Epoch,
        offset: u64,
        data: &[u8],
    ) -> Result<(), String> {
        self.check_log(channel, epoch, offset, data)?;
        // The number of the publication; the rest only has a size.
        let data = data.split(|byte| *byte == b':').next().unwrap_or_default();
        let key = (channel.to_owned(), epoch, offset);
        let known = self.data.entry(key).or_insert_with(|| data.to_vec());
        if known == data {
            return Ok(());
        }
        Err(format!("{channel} {epoch} {offset} is two publications"))
    }
}

/// A client with one subscription, which lasts over connections.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) name: Arc<str>,
    pub(super) channel: Arc<str>,
    /// The last publication that it has received, or the position that was reported to it.
    pub(super) position: Option<StreamPosition>,
    /// The node that it is connected to.
    pub(super) node: Option<usize>,
    /// It waits for a state of the channel.
    pub(super) is_waiting: bool,
    /// The numbers of publications that it has received since `live_since`, for channels without offsets; otherwise since the last event.
    pub(super) arrived: Vec<u64>,
    pub(super) noted: usize,
    /// The time since which it receives publications without offsets.
    pub(super) live_since: Option<Duration>,
    /// The time of the last delivery.
    pub(super) delivered_at: Duration,
    pub(super) reported_gaps: u64,
    /// It has received publications at another node that its node does not have, since then.
    pub(super) ahead_since: Option<Duration>,
}

/// The time for which a client waits for publications that it has received at another node.
pub(super) const AHEAD: Duration = Duration::from_secs(5);

impl Client {
    pub(super) fn new(channel: Arc<str>) -> Client {
        Client {
            name: "".into(),
            channel,
            position: None,
            node: None,
            is_waiting: false,
            reported_gaps: 0,
            ahead_since: None,
            arrived: Vec::new(),
            noted: 0,
            live_since: None,
            delivered_at: Duration::ZERO,
        }
    }

    fn deliver(
        &mut self,
        oracle: &mut Oracle,
        epoch: Epoch,
        offset: u64,
        published: &Published,
    ) -> Result<(), String> {
        oracle.check(&self.channel, epoch, offset, &published.data)?;
        if let Some(position) = &self.position
            && position.epoch == epoch
            && (offset <= position.offset || oracle.missed(&self.channel, *position, offset).is_some())
        {
            return Err(format!(
                "client {} of {} received {offset} after {} of {epoch} without a report of the gap",
                self.name, self.channel, position.offset
            ));
        }
        if self.position.is_some_and(|position| position.epoch != epoch) {
            return Err(format!(
                "client {} was not notified of the epoch {epoch}",
                self.name
            ));
        }
        self.position = Some(StreamPosition { offset, epoch });
        self.arrived.extend(number_of(&published.data));
        Ok(())
    }

    /// Subscribes at a channel that has a state.
    pub(super) fn subscribe(
        &mut self,
        shard: &mut Shard,
        oracle: &mut Oracle,
        now: Duration,
    ) -> Result<(), String> {
        let top = shard.history.position();
        let is_ahead = |before: StreamPosition| before.epoch == top.epoch && before.offset > top.offset;
        if self.position.is_some_and(is_ahead) && self.is_waiting {
            let since = *self.ahead_since.get_or_insert(now);
            if oracle.log.is_some() && now.saturating_sub(since) < AHEAD {
                // Its node before was faster: this one will have the publications, too.
                return Ok(());
            }
            // Without a log this one requests the state of the owner.
            shard.needs_state = oracle.log.is_none();
            if shard.needs_state {
                return Ok(());
            }
        }
        self.ahead_since = None;
        self.is_waiting = false;
        shard.check_from_zero(&self.channel, oracle, now)?;
        let Some(before) = self.position else {
            self.position = Some(top);
            return Ok(());
        };
        let missed: Option<Vec<_>> = match shard
            .history
            .recover(before.offset, Some(before.epoch), 1000, now)
        {
            Recovery::All(items) => Some(
                items
                    .into_iter()
                    .map(|(at, item)| (at, Arc::clone(item)))
                    .collect(),
            ),
            Recovery::Gap => None,
        };
        match missed {
            Some(missed) => {
                for (offset, published) in missed {
                    self.deliver(oracle, top.epoch, offset, &published)?;
                }
            }
            None => {
                self.reported_gaps += 1;
                self.position = Some(top);
            }
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) history: History<Arc<Published>>,
    is_synced: bool,
    /// A client knows more than the node.
    pub(super) needs_state: bool,
}

impl Shard {
    pub(super) fn new() -> Shard {
        Shard {
            history: History::new(Epoch::new(0), HISTORY),
            is_synced: false,
            needs_state: false,
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Checks that a client at offset 0 of the epoch recovers only if it has all publications of the epoch then.
    fn check_from_zero(&mut self, channel: &Arc<str>, oracle: &Oracle, now: Duration) -> Result<(), String> {
        let StreamPosition { offset: top, epoch } = self.history.position();
        let Recovery::All(items) = self.history.recover(0, Some(epoch), 1000, now) else {
            return Ok(());
        };
        let mut before = StreamPosition { offset: 0, epoch };
        let offsets = items.into_iter().map(|(offset, _)| offset);
        for offset in offsets.chain([top + 1]) {
            if let Some(missed) = oracle.missed(channel, before, offset) {
                let after = before.offset;
                return Err(format!(
                    "a client of {channel} at 0 recovered {offset} after {after} of {epoch} without {missed}"
                ));
            }
            before.offset = offset;
        }
        Ok(())
    }

    /// Applies a state. Clients that must be told of a gap subscribe again.
    pub(super) fn sync(
        &mut self,
        state: ChannelState,
        kind: SyncKind,
        clients: &mut [&mut Client],
        oracle: &mut Oracle,
        now: Duration,
    ) -> Result<(), String> {
        let position = state.position.ok_or("a channel with history has no position")?;
        if kind == SyncKind::Continued && self.is_synced {
            for (offset, published) in state.publications {
                self.publish(offset, &published, clients, oracle, now)?;
            }
            if oracle.log.is_some() {
                self.history.advance(position.offset);
            }
            if self.history.position() != position {
                return Err(format!(
                    "the node has {:?} and received a state that continues at {position:?}",
                    self.history.position()
                ));
            }
        } else {
            let options = HistoryOptions { ..HISTORY };
            self.history = History::restored(position, state.floor, options);
            for (offset, published) in state.publications {
                let bytes = published.data.len();
                self.history.push_retained(offset, published, bytes, now);
            }
            self.is_synced = true;
            for client in clients.iter_mut() {
                client.subscribe(self, oracle, now)?;
            }
        }
        for client in clients.iter_mut().filter(|client| client.is_waiting) {
            client.subscribe(self, oracle, now)?;
        }
        Ok(())
    }

    pub(super) fn publish(
        &mut self,
        offset: u64,
        published: &Arc<Published>,
        clients: &mut [&mut Client],
        oracle: &mut Oracle,
        now: Duration,
    ) -> Result<(), String> {
        let epoch = self.history.position().epoch;
        let bytes = published.data.len();
        self.history.publish_at(offset, Arc::clone(published), bytes, now);
        for client in clients.iter_mut().filter(|client| !client.is_waiting) {
            client.deliver(oracle, epoch, offset, published)?;
        }
        for client in clients.iter_mut().filter(|client| client.ahead_since.is_some()) {
            client.subscribe(self, oracle, now)?;
        }
        Ok(())
    }
}
