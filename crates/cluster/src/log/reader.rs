//! The reader of one partition: its life, and the histories of its channels.
//!
//! ```text
//! Closed ── follow ──▶ Requested ── Opened ──▶ Reading ── end reached, life known and bound ──▶ attached: the node serves the channels
//!    ▲                                            │
//!    └──────────────── Closed ────────────────────┘   attached readers remain so, and serve what they have
//! ```
//!
//! A reader that finds another record in place of the one that it has read last detaches and begins again. The life is known from a
//! [`LifeEntry`], or from a [`Beat`] whose writer had read up to where this reader begins. Older parts are filled in after that.
//!
//! All decisions depend on records alone, so readers of the same records agree on lives, offsets and repetitions.

mod floor;
mod older;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{Epoch, History, HistoryOptions, StreamPosition};
use ringmain_hub::mail::Idempotency;
use ringmain_hub::protocol::Published;

use super::{Beat, Binding, Entry, EntryId, Life, LifeEntry, Opened, Record};
use crate::frame::{ChannelSettings, Publish};
use crate::limits;
use crate::node::idempotency::IdempotencyKeys;
pub(crate) use floor::FloorMark;
pub(crate) use older::OlderPublication;

/// The state of the subscription at the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// The partition is not read.
    Closed,
    /// It was requested.
    Requested,
    /// Records arrive. Those up to `end` were in the log when it was opened.
    Reading { end: u64 },
}

/// The history of a channel that the node does not serve at the moment.
#[derive(Debug)]
pub(crate) struct LoggedHistory {
    pub(crate) history: History<Arc<Published>>,
    pub(crate) mark: FloorMark,
    position_ttl: Duration,
    last_used: Duration,
}

/// The part of the log that was appended before the reader began, and is read later.
#[derive(Clone, Copy, Debug)]
struct Fill {
    is_requested: bool,
    is_done: bool,
    bytes_left: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reader {
    state: ReaderState,
    binding: Binding,
    life: Option<(Life, Binding)>,
    /// A beat that proves the life once its writer's position was read.
    unproven: Option<Beat>,
    has_begun: bool,
    /// The number of the last record.
    position: u64,
    /// Its digest, if it was read.
    digest: Option<u64>,
    /// The next record must be the last one again.
    must_verify: bool,
    /// All records of this life above this number were read.
    floor: u64,
    /// The number of the entry that began this life, if it was read; otherwise 0.
    life_start: u64,
    /// The last publication of the channels that were forgotten.
    forgotten: u64,
    is_attached: bool,
    channels: BTreeMap<Arc<str>, LoggedHistory>,
    /// The channel at which the last expiry stopped.
    expired_to: Option<Arc<str>>,
    /// The channels that the node serves.
    serving: BTreeSet<Arc<str>>,
    keys: IdempotencyKeys,
    /// The time of the log, and of the oldest record that was read.
    now_ms: i64,
    oldest_ms: Option<i64>,
    fill: Fill,
    fill_bytes: usize,
    opened_at: Duration,
}

/// The meaning of a record.
#[derive(Debug)]
pub(crate) enum Read {
    /// It changes nothing.
    Nothing,
    /// A publication.
    Publication {
        id: EntryId,
        publish: Publish,
        age: Duration,
        /// Its key was used before: the position of the first publication. This one has no place in the channel.
        first: Option<Option<StreamPosition>>,
    },
    /// A beat.
    Beat { id: EntryId },
    /// A new life has begun.
    LifeStarted { id: EntryId },
    /// The record that was read last is gone, or is another one.
    RolledBack,
}

impl Reader {
    /// Creates a reader that fills in up to so many bytes of older records.
    pub(crate) fn new(fill_bytes: usize, now: Duration) -> Reader {
        Reader {
            state: ReaderState::Closed,
            binding: Binding(0),
            life: None,
            unproven: None,
            has_begun: false,
            position: 0,
            digest: None,
            must_verify: false,
            floor: 0,
            life_start: 0,
            forgotten: 0,
            is_attached: false,
            channels: BTreeMap::new(),
            expired_to: None,
            serving: BTreeSet::new(),
            keys: IdempotencyKeys::default(),
            now_ms: 0,
            oldest_ms: None,
            fill: Fill {
                is_requested: false,
                is_done: false,
                bytes_left: fill_bytes,
            },
            fill_bytes,
            opened_at: now,
        }
    }

    pub(crate) fn state(&self) -> ReaderState {
        self.state
    }

    pub(crate) fn set_requested(&mut self) {
        self.state = ReaderState::Requested;
    }

    /// Returns whether the node serves the channels.
    pub(crate) fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Returns whether appended records will be read, in the current life.
    pub(crate) fn is_live(&self) -> bool {
        self.is_attached && self.is_caught_up() && self.is_bound()
    }

    /// Returns whether the current life is one of the broker that is read. Records before another one begins are in no life: the
    /// broker may have used the numbers before.
    pub(crate) fn is_bound(&self) -> bool {
        self.life.is_some_and(|(_, binding)| binding == self.binding)
    }

    fn is_caught_up(&self) -> bool {
        matches!(self.state, ReaderState::Reading { end } if self.position >= end && !self.must_verify)
    }

    /// Returns the number from which the reader continues: the last record, which it recognizes, or the one above. `None`: it begins.
    pub(crate) fn continues_at(&self) -> Option<u64> {
        let next = match self.digest {
            Some(_) => self.position,
            None => self.position + 1,
        };
        self.has_begun.then_some(next)
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns a number at or below which this life has no publications; 0 if its start was not read.
    pub(crate) fn life_start(&self) -> u64 {
        self.life_start
    }

    pub(crate) fn life(&self) -> Option<Life> {
        self.life.map(|(life, _)| life)
    }

    /// Returns the binding of the broker that is read.
    pub(crate) fn binding(&self) -> Binding {
        self.binding
    }

    pub(crate) fn opened_at(&self) -> Duration {
        self.opened_at
    }

    /// Returns whether older records are still being filled in.
    pub(crate) fn is_filling(&self) -> bool {
        !self.fill.is_done
    }

    /// Returns the position after a record of this life.
    pub(crate) fn position_at(&self, number: u64) -> Option<StreamPosition> {
        let (life, _) = self.life.filter(|_| number > self.floor && self.is_bound())?;
        Some(StreamPosition {
            offset: number,
            epoch: life.epoch(),
        })
    }

    /// Returns the position of a record of the current life, which may be below the floor: its history may have dropped it.
    pub(crate) fn position_in_life(&self, number: u64) -> Option<StreamPosition> {
        let (life, _) = self.life.filter(|_| self.is_bound())?;
        Some(StreamPosition {
            offset: number,
            epoch: life.epoch(),
        })
    }

    /// Returns the content of a beat.
    pub(crate) fn beat(&self) -> Option<Beat> {
        let (life, binding) = self.life?;
        Some(Beat {
            life,
            binding,
            seen: self.position,
        })
    }

    /// Handles the start of reading.
    pub(crate) fn open(&mut self, opened: &Opened, now: Duration) -> Opening {
        self.state = ReaderState::Reading { end: opened.end };
        self.binding = opened.binding;
        let Some(next) = self.continues_at() else {
            self.has_begun = true;
            self.opened_at = now;
            self.position = opened.from.saturating_sub(1);
            self.floor = self.position;
            self.fill.is_done = opened.from <= opened.first.max(1);
            return Opening::Started;
        };
        if self.digest.is_some() && opened.end < self.position {
            return Opening::RolledBack;
        }
        if opened.from > next {
            // The retention has passed meanwhile.
            self.trim(opened.from);
            return Opening::Trimmed;
        }
        self.must_verify = self.digest.is_some();
        Opening::Continued
    }

    pub(crate) fn close(&mut self) {
        self.state = ReaderState::Closed;
        self.must_verify = false;
        self.fill.is_requested = false;
    }

    /// Begins again, after records that were read have gone. Channels that the node serves keep their histories until the reader is attached again.
    pub(crate) fn restart(&mut self, now: Duration) {
        let (serving, fill_bytes) = (std::mem::take(&mut self.serving), self.fill_bytes);
        *self = Reader::new(fill_bytes, now);
        self.serving = serving;
    }

    fn raise_floor(&mut self, floor: u64) {
        self.floor = floor;
        // Older records have no part in it.
        self.fill.is_done = true;
        for logged in self.channels.values_mut() {
            logged.mark.raise(&mut logged.history, floor);
        }
    }

    /// Handles the next record.
    pub(crate) fn read(&mut self, record: Record, now_ms: i64) -> Read {
        let Record {
            number,
            time_ms,
            digest,
            entry,
        } = record;
        self.now_ms = self.now_ms.max(now_ms);
        if self.must_verify && number >= self.position {
            self.must_verify = false;
            return match number == self.position && Some(digest) == self.digest {
                true => Read::Nothing,
                false => Read::RolledBack,
            };
        }
        if number <= self.position {
            // An adapter does not repeat records.
            return Read::Nothing;
        }
        self.position = number;
        self.digest = Some(digest);
        self.oldest_ms.get_or_insert(time_ms);
        match entry {
            Ok(Entry::Publication { id, publish }) => self.read_publication(number, time_ms, id, publish),
            Ok(Entry::Beat { id, beat }) => {
                // The life at the begin is known to those that have read up to there.
                if self.life.is_none() && beat.seen >= self.floor {
                    self.life = Some((beat.life, beat.binding));
                } else {
                    self.unproven.get_or_insert(beat);
                }
                Read::Beat { id }
            }
            Ok(Entry::Life { id, life }) => {
                self.start_life(number, life);
                Read::LifeStarted { id }
            }
            Err(_) => Read::Nothing,
        }
    }

    fn read_publication(&mut self, number: u64, time_ms: i64, id: EntryId, publish: Publish) -> Read {
        let at = Duration::from_millis(time_ms.max(0) as u64);
        let first = publish.options.idempotency.as_ref().and_then(|idempotency| {
            let first = self.keys.find(&publish.channel, idempotency, at);
            if first.is_none() {
                self.keys
                    .add(&publish.channel, idempotency.clone(), numbered(number), at);
            }
            Some(self.position_in_life(first??.offset))
        });
        let age = Duration::from_millis(self.now_ms.saturating_sub(time_ms).max(0) as u64);
        Read::Publication {
            id,
            publish,
            age,
            first,
        }
    }

    fn start_life(&mut self, number: u64, life: LifeEntry) {
        if self.life() != Some(life.life) {
            self.life_start = number;
        }
        self.life = Some((life.life, life.binding));
        // A reader that begins in this life does not know those of the lives before.
        self.keys = IdempotencyKeys::default();
        self.raise_floor(number);
        for logged in self.channels.values_mut() {
            logged.history.start_epoch(life.life.epoch());
        }
    }

    /// Returns whether the node must append a new life before the channels can be served: there is none, or it is bound to another state
    /// of the broker.
    pub(crate) fn needs_life(&self) -> bool {
        // Without a beat in the part that was read, an older part may have one.
        let is_unknown = self.life.is_none() && !self.fill.is_done;
        self.is_caught_up() && !self.is_bound() && !is_unknown
    }

    /// Returns whether a life that is appended will be read.
    pub(crate) fn can_append_life(&self) -> bool {
        self.is_caught_up()
    }

    /// Attaches the reader if it has reached the end. Returns whether it was not attached before.
    pub(crate) fn try_attach(&mut self) -> bool {
        let Some(life) = self.life() else {
            return false;
        };
        if self.is_attached || !self.is_caught_up() || !self.is_bound() {
            return false;
        }
        self.is_attached = true;
        for logged in self.channels.values_mut() {
            logged.history.set_epoch(life.epoch());
        }
        true
    }

    /// Returns the number below which older records are needed next, with their bytes, and notes that they are requested.
    pub(crate) fn next_fill(&mut self) -> Option<(u64, usize)> {
        let may_fill = self.is_attached || self.life.is_none();
        if !self.is_caught_up() || !may_fill || self.fill.is_done || self.fill.is_requested {
            return None;
        }
        self.fill.is_requested = true;
        Some((self.floor + 1, limits::LOG_TAIL_BYTES))
    }

    /// Returns the position of the first publication of a key.
    pub(crate) fn find_key(
        &self,
        channel: &Arc<str>,
        idempotency: &Idempotency,
    ) -> Option<Option<StreamPosition>> {
        let now = Duration::from_millis(self.now_ms.max(0) as u64);
        let first = self.keys.find(channel, idempotency, now)??;
        Some(self.position_in_life(first.offset))
    }

    /// Returns whether all records of the last `window` were read, or as many as are read at all.
    pub(crate) fn covers(&self, window: Duration) -> bool {
        let age = self
            .oldest_ms
            .map_or(0, |oldest| self.now_ms.saturating_sub(oldest));
        self.fill.is_done || age >= window.as_millis() as i64
    }

    /// Retains a publication of a channel that the node does not serve.
    pub(crate) fn retain(&mut self, number: u64, publish: Publish, age: Duration, now: Duration) {
        let Some(options) = publish.settings.history else {
            return;
        };
        let Some(logged) = self.channel(&publish.channel, options, publish.settings, now) else {
            self.forgotten = self.forgotten.max(number);
            return;
        };
        let bytes = publish.published.data.len();
        let at = now.saturating_sub(age);
        logged.last_used = now;
        logged.history.set_options(options, at);
        logged.history.publish_at(number, publish.published, bytes, at);
    }

    fn channel(
        &mut self,
        channel: &Arc<str>,
        options: HistoryOptions,
        settings: ChannelSettings,
        now: Duration,
    ) -> Option<&mut LoggedHistory> {
        if !self.channels.contains_key(channel) {
            if self.channels.len() >= limits::CHANNELS {
                return None;
            }
            let logged = self.new_channel(options, settings, now);
            self.channels.insert(Arc::clone(channel), logged);
        }
        self.channels.get_mut(channel)
    }

    fn new_channel(
        &self,
        options: HistoryOptions,
        settings: ChannelSettings,
        now: Duration,
    ) -> LoggedHistory {
        let epoch = self.life.map_or(Life(0), |(life, _)| life).epoch();
        let mut history = History::new(epoch, options);
        history.raise_floor(self.floor.max(self.forgotten));
        LoggedHistory {
            mark: FloorMark {
                floor: history.floor(),
                // It may have been known, and have had newer publications.
                is_clipped: self.forgotten > self.floor,
            },
            history,
            position_ttl: settings.position_ttl,
            last_used: now,
        }
    }

    /// Returns the history of a channel that the node serves from now on.
    pub(crate) fn take(
        &mut self,
        channel: &Arc<str>,
        options: HistoryOptions,
        settings: ChannelSettings,
        now: Duration,
    ) -> LoggedHistory {
        let logged = self.channels.remove(channel);
        let mut logged = logged.unwrap_or_else(|| self.new_channel(options, settings, now));
        logged.history.set_options(options, now);
        logged.history.set_epoch_start(self.life_start);
        self.serving.insert(Arc::clone(channel));
        logged
    }

    /// Retains the history of a channel that the node has served.
    pub(crate) fn put_back(
        &mut self,
        channel: &Arc<str>,
        history: History<Arc<Published>>,
        mark: FloorMark,
        position_ttl: Duration,
        now: Duration,
    ) {
        self.serving.remove(channel);
        if !self.is_attached || Some(history.position().epoch) != self.life().map(Life::epoch) {
            // It is of the life before.
            return;
        }
        let logged = LoggedHistory {
            history,
            mark,
            position_ttl,
            last_used: now,
        };
        self.channels.insert(Arc::clone(channel), logged);
    }

    /// Brings position and floor of a history up to those of the reader.
    pub(crate) fn refresh(&self, history: &mut History<Arc<Published>>, mark: &mut FloorMark) {
        history.advance(self.position);
        history.set_epoch_start(self.life_start);
        if mark.is_unclipped(history) {
            history.lower_floor(self.floor);
            mark.floor = self.floor;
        }
    }

    /// Forgets channels that are not used any more, of up to [`limits::CHANNELS_PER_TICK`] that are checked.
    pub(crate) fn expire(&mut self, now: Duration) {
        use std::ops::Bound::{Excluded, Unbounded};
        let time = Duration::from_millis(self.now_ms.max(0) as u64);
        self.keys.expire(time);
        let from = self.expired_to.take();
        let from = from.as_deref().map_or(Unbounded, Excluded);
        let mut unused = Vec::new();
        let checked = self.channels.range_mut::<str, _>((from, Unbounded));
        for (name, logged) in checked.take(limits::CHANNELS_PER_TICK) {
            logged.history.expire(now);
            if logged.history.is_empty() && now >= logged.last_used + logged.position_ttl {
                if !logged.mark.is_unclipped(&logged.history) {
                    self.forgotten = self.forgotten.max(logged.history.floor());
                }
                unused.push(Arc::clone(name));
            }
            self.expired_to = Some(Arc::clone(name));
        }
        if self.channels.last_key_value().map(|(name, _)| name) == self.expired_to.as_ref() {
            self.expired_to = None;
        }
        for name in unused {
            self.channels.remove(&name);
        }
    }

    /// Returns the channels that the node serves.
    pub(crate) fn served(&self) -> &BTreeSet<Arc<str>> {
        &self.serving
    }

    /// The node drops the history of a channel that it has served.
    pub(crate) fn drop_served(&mut self, channel: &str) {
        self.serving.remove(channel);
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels.len()
    }
}

/// The outcome of [`Reader::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The reader begins.
    Started,
    /// It continues where it was.
    Continued,
    /// Records were deleted before they were read.
    Trimmed,
    /// The last record is gone.
    RolledBack,
}

/// Returns the position of a record as it is kept with its key: the life may not be known yet, and all keys are of the current one.
fn numbered(number: u64) -> Option<StreamPosition> {
    let epoch = Epoch::new(0);
    Some(StreamPosition {
        offset: number,
        epoch,
    })
}
