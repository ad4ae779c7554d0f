//! The retained publications of a channel, and whether a client that was disconnected can recover all that it missed.
//!
//! ```text
//! offset     1 2 3 4 5 6 7 8        position: offset 8 in this epoch
//! retained         4 5 6 7 8        from offset 3 or above a client recovers; from offset 2 there is a gap
//! ```
//!
//! Offsets belong to an epoch. A position of another epoch cannot be compared with this one. Offsets that a log assigned may skip numbers:
//! those of records for other channels.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// An epoch: a sequence of offsets without a gap. Epochs are random, so equal epochs denote the same sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    /// Creates an epoch from a random number.
    #[must_use]
    pub const fn new(random: u64) -> Epoch {
        Epoch(random)
    }

    /// Returns the number of the epoch.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Parses an epoch that a client reported. `None`: the text is not one of this server's.
    #[must_use]
    pub fn parse(text: &str) -> Option<Epoch> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_valid = text.len() == 16 && text.bytes().all(is_digit);
        is_valid
            .then(|| u64::from_str_radix(text, 16).ok().map(Epoch))
            .flatten()
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A position in a channel's history: after the publication with this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// The offset of the last publication; 0 before the first.
    pub offset: u64,
    /// The epoch of the offset.
    pub epoch: Epoch,
}

/// The limits of a history. If one is exceeded, the oldest publications are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// The number of publications.
    pub publications: usize,
    /// The size of the publications, in bytes, as passed to [`History::publish`].
    pub bytes: usize,
    /// The time since publication.
    pub ttl: Duration,
}

/// The retained publications of a channel.
#[derive(Debug)]
pub struct History<T> {
    epoch: Epoch,
    top: u64,
    /// The newest publication that is no longer retained, or the position at which this epoch began. A client below it has missed
    /// publications that cannot be recovered.
    floor: u64,
    /// No publication of this epoch has this offset or a lower one. Offsets of a log begin above 1.
    epoch_start: u64,
    options: HistoryOptions,
    bytes: usize,
    retained: VecDeque<Retained<T>>,
}

#[derive(Debug)]
struct Retained<T> {
    number: u64,
    item: T,
    bytes: usize,
    at: Duration,
}

/// The outcome of a recovery.
#[derive(Debug, PartialEq, Eq)]
pub enum Recovery<'h, T> {
    /// All missed publications with their offsets, the oldest first.
    All(Vec<(u64, &'h T)>),
    /// A publication is no longer retained, there are more than the limit, or the epoch is another one.
    Gap,
}

/// A selection of publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Selects publications above this offset; those below it if reversed. `None`: all.
    pub since: Option<u64>,
    /// The maximum number of publications.
    pub limit: usize,
    /// True if the newest is returned first.
    pub reverse: bool,
}

impl<T> History<T> {
    /// Creates an empty history.
    #[must_use]
    pub fn new(epoch: Epoch, options: HistoryOptions) -> History<T> {
        History {
            epoch,
            top: 0,
            floor: 0,
            epoch_start: 0,
            options,
            bytes: 0,
            retained: VecDeque::new(),
        }
    }

    /// Restores a predecessor's history at this position. The caller then [adds](History::push_retained) the retained publications in
    /// order.
    #[must_use]
    pub fn restored(position: StreamPosition, floor: u64, options: HistoryOptions) -> History<T> {
        History {
            top: position.offset,
            floor,
            ..History::new(position.epoch, options)
        }
    }

    /// Adds a retained publication to a restored history. The oldest must be added first.
    pub fn push_retained(&mut self, number: u64, item: T, bytes: usize, at: Duration) {
        self.bytes += bytes;
        self.retained.push_back(Retained {
            number,
            item,
            bytes,
            at,
        });
    }

    /// Returns the retained publications, the oldest first, each with its offset and the time at which it was published.
    pub fn retained(&self) -> impl Iterator<Item = (u64, &T, Duration)> {
        self.retained
            .iter()
            .map(|retained| (retained.number, &retained.item, retained.at))
    }

    /// Returns the limits.
    #[must_use]
    pub fn options(&self) -> HistoryOptions {
        self.options
    }

    /// Returns the position below which clients do not recover.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the lowest offset from which clients recover: 0 if all publications of this epoch are retained.
    #[must_use]
    pub fn lowest_recoverable(&self) -> u64 {
        self.without_start(self.floor)
    }

    /// Returns 0 for an offset at which this epoch has no publications yet.
    fn without_start(&self, offset: u64) -> u64 {
        if offset <= self.epoch_start { 0 } else { offset }
    }

    /// Notes that no publication of this epoch has this offset or a lower one: clients at 0 have the position of those at `offset`.
    pub fn set_epoch_start(&mut self, offset: u64) {
        self.epoch_start = offset;
    }

    /// Returns the position after the last publication.
    #[must_use]
    pub fn position(&self) -> StreamPosition {
        StreamPosition {
            offset: self.top,
            epoch: self.epoch,
        }
    }

    /// Adds a publication and returns its offset. `now` must not decrease.
    pub fn publish(&mut self, item: T, bytes: usize, now: Duration) -> u64 {
        self.publish_at(self.top + 1, item, bytes, now);
        self.top
    }

    /// Adds a publication under the offset that its log assigned. Returns whether the offset is above the current position; a
    /// publication that repeats an older one changes nothing.
    pub fn publish_at(&mut self, number: u64, item: T, bytes: usize, now: Duration) -> bool {
        if number <= self.top {
            return false;
        }
        self.top = number;
        self.push_retained(number, item, bytes, now);
        self.expire(now);
        true
    }

    /// Continues in the epoch of a log, without publications. Clients at `position` or above it have missed no record.
    pub fn enter_log(&mut self, epoch: Epoch, position: u64) {
        self.clear();
        self.set_epoch(epoch);
        self.top = position;
        self.floor = position;
    }

    /// Raises the floor: publications below it may be missing.
    pub fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        self.top = self.top.max(floor);
    }

    /// Adds a publication that is older than all retained ones. Returns whether there is room for it within the limits.
    pub fn push_older(&mut self, number: u64, item: T, bytes: usize, at: Duration, now: Duration) -> bool {
        let is_older = self.retained.front().is_none_or(|first| number < first.number);
        let has_room =
            self.retained.len() < self.options.publications && self.bytes + bytes <= self.options.bytes;
        if !is_older || !has_room || now >= at + self.options.ttl {
            return false;
        }
        self.top = self.top.max(number);
        self.bytes += bytes;
        self.retained.push_front(Retained {
            number,
            item,
            bytes,
            at,
        });
        true
    }

    /// Lowers the floor: all publications above it are retained.
    pub fn lower_floor(&mut self, floor: u64) {
        self.floor = self.floor.min(floor);
    }

    /// Returns the lowest position from which the same publications follow as from `offset`, which is not below the floor: offsets of a log have
    /// holes.
    #[must_use]
    pub fn covered_from(&self, offset: u64) -> u64 {
        let above = self
            .retained
            .partition_point(|retained| retained.number <= offset);
        let last = above.checked_sub(1).and_then(|index| self.retained.get(index));
        self.without_start(last.map_or(self.floor, |last| last.number.max(self.floor)))
    }

    /// Replaces the epoch of a history that no client has a position of.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.epoch_start = 0;
    }

    /// Raises the position: no publication is between the current one and this one.
    pub fn advance(&mut self, position: u64) {
        self.top = self.top.max(position);
    }

    /// Clients below `floor` do not recover, not even those that received all publications so far.
    pub fn exclude_below(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// Replaces the limits.
    pub fn set_options(&mut self, options: HistoryOptions, now: Duration) {
        self.options = options;
        self.expire(now);
    }

    /// Drops expired publications. Returns the time at which the next one expires.
    pub fn expire(&mut self, now: Duration) -> Option<Duration> {
        while let Some(first) = self.retained.front() {
            let end = first.at + self.options.ttl;
            if self.retained.len() <= self.options.publications
                && self.bytes <= self.options.bytes
                && now < end
            {
                return Some(end);
            }
            self.bytes -= first.bytes;
            self.floor = self.floor.max(first.number);
            self.retained.pop_front();
        }
        None
    }

    /// Returns the time at which the last retained publication expires, or `None` if the history is empty.
    #[must_use]
    pub fn last_expiry(&self) -> Option<Duration> {
        self.retained.back().map(|last| last.at + self.options.ttl)
    }

    /// Drops all publications. Offsets continue.
    pub fn clear(&mut self) {
        self.retained.clear();
        self.bytes = 0;
        self.floor = self.top;
    }

    /// Starts a new epoch at the current position, because publications may be missing there. Retained publications can still be queried,
    /// and offsets continue, but no client recovers across this position.
    pub fn start_epoch(&mut self, epoch: Epoch) {
        self.set_epoch(epoch);
        self.floor = self.top;
    }

    /// Returns the publications above an offset, if all are retained and there are at most `limit`. `epoch` is `None` if the client
    /// reported none; then any epoch matches.
    pub fn recover(
        &mut self,
        offset: u64,
        epoch: Option<Epoch>,
        limit: usize,
        now: Duration,
    ) -> Recovery<'_, T> {
        self.expire(now);
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Recovery::Gap;
        }
        let offset = match epoch {
            Some(_) => offset.max(self.epoch_start),
            None => offset,
        };
        // An offset above the newest one, or below the floor, cannot be recovered even if the epoch matches.
        if offset > self.top || offset < self.floor {
            return Recovery::Gap;
        }
        let first = self
            .retained
            .partition_point(|retained| retained.number <= offset);
        if self.retained.len() - first > limit {
            return Recovery::Gap;
        }
        let items = self
            .retained
            .range(first..)
            .map(|retained| (retained.number, &retained.item));
        Recovery::All(items.collect())
    }

    /// Returns the selected publications with their offsets.
    pub fn query(&mut self, query: HistoryQuery, now: Duration) -> Vec<(u64, &T)> {
        self.expire(now);
        let all = self
            .retained
            .iter()
            .map(|retained| (retained.number, &retained.item));
        let is_selected = |(offset, _): &(u64, &T)| match query.since {
            Some(since) if query.reverse => *offset < since,
            Some(since) => *offset > since,
            None => true,
        };
        if query.reverse {
            let mut selected: Vec<_> = all.filter(is_selected).collect();
            selected.reverse();
            selected.truncate(query.limit);
            selected
        } else {
            all.filter(is_selected).take(query.limit).collect()
        }
    }

    /// Returns the last retained publication with its offset, for cache recovery.
    pub fn last(&mut self, now: Duration) -> Option<(u64, &T)> {
        self.expire(now);
        self.retained
            .back()
            .map(|retained| (retained.number, &retained.item))
    }

    /// Returns the number of retained publications.
    #[must_use]
    pub fn len(&self) -> usize {
        self.retained.len()
    }

    /// Returns whether no publication is retained.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.retained.is_empty()
    }

    /// Returns the size of the retained publications, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
