//! What a channel keeps of its publications, and whether somebody who was away can have all that was missed.
//!
//! ```text
//! offset   1 2 3 4 5 6 7 8          place: offset 8 in this epoch
//! kept           4 5 6 7 8          who has 3 or more gets the rest; who has 2 has a gap, and is told so
//! ```
//!
//! Offsets belong to an epoch: one life of a channel's memory. A place of another epoch says nothing about this one's offsets.
//! Offsets that a log assigned may leave numbers out: those of records for other channels.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// One life of a channel's offsets. Two are the same only if they are the same life, since it is drawn by lot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    /// By a random number.
    #[must_use]
    pub const fn new(random: u64) -> Epoch {
        Epoch(random)
    }

    /// The number that it was made of.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// As a client says it. `None`: it is none of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Epoch> {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let ours = text.len() == 16 && text.bytes().all(digits);
        ours.then(|| u64::from_str_radix(text, 16).ok().map(Epoch))
            .flatten()
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A place in a channel's history: behind the publication of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 0 is before the first.
    pub offset: u64,
    /// Of the offset.
    pub epoch: Epoch,
}

/// How much is kept. What exceeds any of the three goes, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Publications.
    pub publications: usize,
    /// Bytes of them, as [`History::publish`] is told.
    pub bytes: usize,
    /// Since they were published.
    pub time: Duration,
}

/// What was published in a channel.
#[derive(Debug)]
pub struct History<T> {
    epoch: Epoch,
    top: u64,
    /// The newest publication that is not retained any more, or the position at which this epoch began: a client behind it has
    /// missed publications that cannot be recovered.
    floor: u64,
    keep: Keep,
    bytes: usize,
    kept: VecDeque<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    number: u64,
    item: T,
    bytes: usize,
    at: Duration,
}

/// What somebody who was away gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Recovered<'h, T> {
    /// All that was missed, the oldest first, each with its offset.
    All(Vec<(u64, &'h T)>),
    /// Something of it is not there any more, or is more than was asked for, or belongs to another epoch.
    Gap,
}

/// Which publications are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Those behind this; those before it if reversed. `None`: from the end that it begins with.
    pub since: Option<u64>,
    /// At most so many.
    pub limit: usize,
    /// The newest first.
    pub reverse: bool,
}

impl<T> History<T> {
    /// Of a channel in which nothing was published in this epoch.
    #[must_use]
    pub fn new(epoch: Epoch, keep: Keep) -> History<T> {
        History {
            epoch,
            top: 0,
            floor: 0,
            keep,
            bytes: 0,
            kept: VecDeque::new(),
        }
    }

    /// As a predecessor left it at this place. What it kept is [added](History::add_kept) in order.
    #[must_use]
    pub fn restored(place: Place, floor: u64, keep: Keep) -> History<T> {
        History {
            top: place.offset,
            floor,
            ..History::new(place.epoch, keep)
        }
    }

    /// Adds a retained publication of a restored history, with its offset. The oldest is added first.
    pub fn add_kept(&mut self, number: u64, item: T, bytes: usize, at: Duration) {
        self.bytes += bytes;
        self.kept.push_back(Kept {
            number,
            item,
            bytes,
            at,
        });
    }

    /// Returns the retained publications, the oldest first, each with its offset and the time at which it was published.
    pub fn all_kept(&self) -> impl Iterator<Item = (u64, &T, Duration)> {
        self.kept.iter().map(|kept| (kept.number, &kept.item, kept.at))
    }

    /// The position at which the epoch began.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Behind the last publication.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            offset: self.top,
            epoch: self.epoch,
        }
    }

    /// Adds a publication of so many bytes. Returns its offset. `now` never goes back.
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
        self.add_kept(number, item, bytes, now);
        self.expire(now);
        true
    }

    /// Continues in the epoch of a log, without publications. Clients at `position` or above it have missed no record.
    pub fn enter_log(&mut self, epoch: Epoch, position: u64) {
        self.clear();
        self.epoch = epoch;
        self.top = position;
        self.floor = position;
    }

    /// Raises the floor: publications below it may be missing.
    pub fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        self.top = self.top.max(floor);
    }

    /// Raises the position: no publication is between the current one and this one.
    pub fn advance(&mut self, position: u64) {
        self.top = self.top.max(position);
    }

    /// Clients below `floor` do not recover, not even those that received all publications so far.
    pub fn exclude_below(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// Keeps another amount from now on.
    pub fn set_keep(&mut self, keep: Keep, now: Duration) {
        self.keep = keep;
        self.expire(now);
    }

    /// Lets go of what is kept no longer. Returns when there will be something again.
    pub fn expire(&mut self, now: Duration) -> Option<Duration> {
        while let Some(first) = self.kept.front() {
            let end = first.at + self.keep.time;
            if self.kept.len() <= self.keep.publications && self.bytes <= self.keep.bytes && now < end {
                return Some(end);
            }
            self.bytes -= first.bytes;
            self.floor = self.floor.max(first.number);
            self.kept.pop_front();
        }
        None
    }

    /// When the last publication that is kept expires; `None`: nothing is kept.
    #[must_use]
    pub fn kept_until(&self) -> Option<Duration> {
        self.kept.back().map(|last| last.at + self.keep.time)
    }

    /// Forgets all; offsets go on.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
        self.floor = self.top;
    }

    /// Starts a new epoch at the current position, because publications may be missing there. What is kept stays and can be
    /// queried, and offsets continue; nothing recovers across this position.
    pub fn renew(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.floor = self.top;
    }

    /// What was published behind an offset of an epoch, if that is at most `limit` and all of it is there. `epoch` is `None` for
    /// a client that has none: it takes this one's for its own.
    pub fn recover(
        &mut self,
        offset: u64,
        epoch: Option<Epoch>,
        limit: usize,
        now: Duration,
    ) -> Recovered<'_, T> {
        self.expire(now);
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Recovered::Gap;
        }
        // Beyond the newest, or below the floor: a position of another epoch, whatever the client claims.
        if offset > self.top || offset < self.floor {
            return Recovered::Gap;
        }
        let first = self.kept.partition_point(|kept| kept.number <= offset);
        if self.kept.len() - first > limit {
            return Recovered::Gap;
        }
        let items = self.kept.range(first..).map(|kept| (kept.number, &kept.item));
        Recovered::All(items.collect())
    }

    /// What is kept, in order, each with its offset.
    pub fn query(&mut self, query: Query, now: Duration) -> Vec<(u64, &T)> {
        self.expire(now);
        let all = self.kept.iter().map(|kept| (kept.number, &kept.item));
        let wanted = |(offset, _): &(u64, &T)| match query.since {
            Some(since) if query.reverse => *offset < since,
            Some(since) => *offset > since,
            None => true,
        };
        if query.reverse {
            let mut found: Vec<_> = all.filter(wanted).collect();
            found.reverse();
            found.truncate(query.limit);
            found
        } else {
            all.filter(wanted).take(query.limit).collect()
        }
    }

    /// The last publication that is kept, with its offset: what a channel in cache mode shows.
    pub fn last(&mut self, now: Duration) -> Option<(u64, &T)> {
        self.expire(now);
        self.kept.back().map(|kept| (kept.number, &kept.item))
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Bytes of what is kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
