//! Channels at home: each has its numbers, what it keeps, who is there, and which workers want its publications.
//!
//! Whoever subscribes is answered through the queue that publications come by, so that nothing is missed and nothing doubled
//! between the answer and the first push. A worker whose queue is full loses nothing by it at first: the channel is marked with
//! the first number that did not go, and sends it again from its history.

mod channel;
mod eviction;
mod expected_logs;
mod idempotency;
mod interruption;
mod log;
mod predecessor_members;
mod state;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::history::{Epoch, Place};
use crate::limits;
use crate::mail::{Course, Manner, Origin, Rules, Subscribed, Subscribing, ToHome, ToWorker, Told, WorkerId};
use crate::protocol::{Published, Push, Variant};
use channel::{Channel, Goes};
use eviction::Unused;
use expected_logs::Expected;
use idempotency::{Key, Keys};
use log::Logs;
pub use log::{LogEvent, LogId, Numbered};
use predecessor_members::Moving;
pub use state::{Record, Saved, Unreadable};
use writer::Writer;

/// The channels that are at home at one worker.
#[derive(Debug)]
pub struct Home {
    names: BTreeMap<Arc<str>, u32>,
    channels: Vec<Option<Channel>>,
    free: Vec<u32>,
    most: usize,
    outboxes: Vec<Outbox>,
    /// Channels that hold a publication, by when it goes: one entry each, and none of others.
    paced: BTreeSet<(Duration, u32)>,
    /// Epochs are drawn from it.
    seed: u64,
    drawn: u64,
    /// Where the next sweep begins.
    swept: usize,
    /// Channels without subscribers, by when they may be removed for others.
    unused: Unused,
    keys: Keys,
    logs: Logs,
    expected: Expected,
    moving: Moving,
    writer: Writer,
    counts: Counts,
    /// No publication is numbered any more ([`Home::freeze`]).
    is_frozen: bool,
}

/// What has been done since the worker began, and what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Publications, whether or not anybody listened.
    pub publications: u64,
    /// Those that were not published, since another one of the same key was.
    pub repeated: u64,
    /// Keys that were forgotten before their time was over ([`limits::KEYS`]).
    pub forgotten_keys: u64,
    /// Pushes that were written: for each once by every variant that somebody listens by.
    pub written: u64,
    /// Channels that somebody listens to now.
    pub heard: usize,
    /// Channels that were removed before their time, to make room for others ([`limits::CHANNELS_A_WORKER`]).
    pub evicted: u64,
}

/// What waits for one worker.
#[derive(Debug, Default)]
struct Outbox {
    queue: VecDeque<ToWorker>,
    /// Of `queue`, those that are pushes.
    pushes: usize,
    /// Channels with pushes that found no room.
    marked: VecDeque<u32>,
}

impl Home {
    /// For so many workers, without channels; with at most so many of them ([`limits::CHANNELS_A_WORKER`]). `seed` is random.
    #[must_use]
    pub fn new(workers: u16, most: usize, seed: u64) -> Home {
        Home {
            names: BTreeMap::new(),
            channels: Vec::new(),
            free: Vec::new(),
            most,
            outboxes: (0..workers).map(|_| Outbox::default()).collect(),
            paced: BTreeSet::new(),
            seed,
            drawn: 0,
            swept: 0,
            unused: Unused::default(),
            keys: Keys::default(),
            logs: Logs::default(),
            expected: Expected::default(),
            moving: Moving::default(),
            writer: Writer::default(),
            counts: Counts::default(),
            is_frozen: false,
        }
    }

    /// From now on new channels fit while there are fewer than so many; those that are there stay.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Takes what a worker says.
    pub fn handle(&mut self, from: WorkerId, message: ToHome, now: Duration) {
        match message {
            ToHome::Subscribe(subscribing) => self.subscribe(from, *subscribing, now),
            ToHome::Unsubscribe {
                channel,
                variant,
                client,
            } => self.unsubscribe(from, &channel, variant, client.as_deref(), now),
            ToHome::Publish {
                rules, manner, ask, ..
            } if self.is_frozen && (rules.keep.is_some() || manner.is_some()) => {
                if let Some(ask) = ask {
                    let told = Box::new(Told::Draining);
                    self.answer(from, ToWorker::Told { ask, told });
                }
            }
            ToHome::Publish {
                channel,
                rules,
                published,
                manner,
                origin,
                ask,
            } => {
                let done = self.publish_as(&channel, rules, published, (manner, origin), now);
                if let Some(ask) = ask {
                    let answer = match done {
                        Some(place) => ToWorker::Published { ask, place },
                        None => ToWorker::Refused { ask },
                    };
                    self.answer(from, answer);
                }
            }
            ToHome::Question {
                channel,
                rules,
                question,
                ask,
            } => {
                let index = self.channel(&channel, rules, now);
                let channel = index.and_then(|index| self.channels[index as usize].as_mut());
                let told = channel.map_or(Told::NotAvailable, |channel| channel.told_of(question, now));
                let told = Box::new(told);
                self.answer(from, ToWorker::Told { ask, told });
            }
        }
    }

    /// What is next for a worker. In order.
    pub fn poll(&mut self, worker: WorkerId, now: Duration) -> Option<ToWorker> {
        let outbox = &mut self.outboxes[usize::from(worker.0)];
        if outbox.queue.is_empty() {
            let marked = outbox.marked.pop_front()?;
            self.send_again(marked, worker, now);
        }
        let outbox = &mut self.outboxes[usize::from(worker.0)];
        let next = outbox.queue.pop_front()?;
        if matches!(next, ToWorker::Push { .. }) {
            outbox.pushes -= 1;
        }
        Some(next)
    }

    /// Whether something is next for a worker.
    #[must_use]
    pub fn has_mail(&self, worker: WorkerId) -> bool {
        let outbox = &self.outboxes[usize::from(worker.0)];
        !outbox.queue.is_empty() || !outbox.marked.is_empty()
    }

    /// When the next publication that is held goes: [`Home::release`] is to be called then.
    #[must_use]
    pub fn next_release(&self) -> Option<Duration> {
        self.paced.first().map(|(at, _)| *at)
    }

    /// Hands on what was held until now ([`limits::PASSED_AN_INTERVAL`]).
    pub fn release(&mut self, now: Duration) {
        while let Some(&(at, index)) = self.paced.first()
            && at <= now
        {
            self.paced.pop_first();
            let held = self.channels[index as usize]
                .as_mut()
                .and_then(|channel| channel.release(now));
            if let Some((offset, published)) = held {
                self.send(index, offset, &published);
            }
        }
    }

    /// Forgets channels that nobody needs any more, [`limits::CHANNELS_A_SWEEP`] of them at most; to be called now and then.
    pub fn sweep(&mut self, now: Duration) {
        self.keys.expire(now);
        self.logs.expire(now);
        self.expire_moving(now);
        self.writer.tidy();
        for _ in 0..limits::CHANNELS_A_SWEEP.min(self.channels.len()) {
            self.swept = (self.swept + 1) % self.channels.len();
            let index = self.swept as u32;
            let Some(channel) = &mut self.channels[self.swept] else {
                continue;
            };
            if channel.is_expired(now) {
                self.remove(index);
            } else if channel.unused.is_some() {
                // Its entry may be older than its last use.
                self.unused.put(index, channel);
            }
        }
    }

    /// What has been done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            forgotten_keys: self.keys.forgotten,
            written: self.writer.written,
            ..self.counts
        }
    }

    /// Looks at the next `most` channels behind a name, in order, and tells of `each` that somebody listens to by how many
    /// connections do. Returns where to go on; `None`: there are no more.
    pub fn heard(
        &self,
        after: Option<&str>,
        most: usize,
        mut each: impl FnMut(&Arc<str>, u32),
    ) -> Option<Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = self.names.range::<str, _>((from, Bound::Unbounded));
        let mut last = None;
        for (name, &index) in names.by_ref().take(most) {
            let channel = self.channels[index as usize].as_ref();
            let subscribers = channel.map_or(0, Channel::subscribers);
            if subscribers > 0 {
                each(name, subscribers);
            }
            last = Some(name);
        }
        names.next().and(last).map(Arc::clone)
    }

    /// How many channels there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no channel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The channel of a name; made if there is room for it.
    fn channel(&mut self, name: &Arc<str>, rules: Rules, now: Duration) -> Option<u32> {
        if let Some(&index) = self.names.get(name) {
            let channel = self.channels[index as usize].as_mut();
            if channel.is_some_and(|channel| channel.follow(rules, now)) {
                self.renew(index);
            }
            return Some(index);
        }
        if self.names.len() >= self.most && !self.evict(now) {
            return None;
        }
        let epoch = self.draw_epoch();
        let channel = Channel::new(Arc::clone(name), rules, epoch, now);
        Some(self.add(Arc::clone(name), channel))
    }

    fn add(&mut self, name: Arc<str>, channel: Channel) -> u32 {
        let index = match self.free.pop() {
            Some(index) => {
                self.channels[index as usize] = Some(channel);
                index
            }
            None => {
                self.channels.push(Some(channel));
                (self.channels.len() - 1) as u32
            }
        };
        if let Some(channel) = &mut self.channels[index as usize] {
            self.unused.put(index, channel);
        }
        self.names.insert(name, index);
        index
    }

    fn subscribe(&mut self, from: WorkerId, subscribing: Subscribing, now: Duration) {
        let ask = subscribing.ask;
        let (channel, since) = (&subscribing.channel, subscribing.since);
        let is_early = || self.is_behind(channel, since) || self.expects_log(channel, since);
        if subscribing.rules.keep.is_some() && is_early() {
            return self.answer(from, ToWorker::Behind { ask });
        }
        let Some(index) = self.channel(&subscribing.channel, subscribing.rules, now) else {
            return self.answer(from, ToWorker::Refused { ask });
        };
        // What this worker has not had yet goes before the answer, or it would come behind it.
        self.send_again(index, from, now);
        self.adopt_position(index, subscribing.since);
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let (place, missed) = channel.stand(subscribing.since, now);
        self.counts.heard += usize::from(!channel.is_heard());
        self.unused.take(index, channel);
        channel.enter(from, subscribing.key, subscribing.variant);
        self.answer(
            from,
            ToWorker::Subscribed(Box::new(Subscribed { ask, place, missed })),
        );
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let Some(info) = subscribing.info else {
            return;
        };
        let replaced = channel.replace_moving(&info.user);
        let joined = channel.came(info);
        if let Some((info, leave)) = replaced {
            self.tell(index, channel::leaving(info), leave);
        }
        if let Some((info, join)) = joined {
            self.tell(index, channel::joining(info), join);
        }
    }

    fn unsubscribe(
        &mut self,
        from: WorkerId,
        channel: &str,
        variant: Variant,
        client: Option<&str>,
        now: Duration,
    ) {
        let Some(&index) = self.names.get(channel) else {
            return;
        };
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let was_heard = channel.is_heard();
        channel.leave(from, variant, now);
        self.counts.heard -= usize::from(was_heard && !channel.is_heard());
        if !channel.is_heard() {
            self.unused.put(index, channel);
        }
        if let Some((info, leave)) = client.and_then(|client| channel.gone(client)) {
            self.tell(index, channel::leaving(info), leave);
        }
    }

    /// Publishes, unless another one by the same key was published. Returns where the channel stood behind the first; `None`:
    /// there is no room for the channel.
    fn publish_as(
        &mut self,
        channel: &Arc<str>,
        rules: Rules,
        published: Arc<Published>,
        (manner, origin): (Option<Box<Manner>>, Origin),
        now: Duration,
    ) -> Option<Option<Place>> {
        let Manner { unkept, once } = manner.map(|manner| *manner).unwrap_or_default();
        let key = once.map(|once| (Key::new(Arc::clone(channel), once.key), once.window));
        if let Some((key, window)) = &key
            && let Some(place) = self.keys.first(key, *window, now)
        {
            self.counts.repeated += 1;
            return Some(place);
        }
        let index = self.channel(channel, rules, now)?;
        self.counts.publications += 1;
        if let Some(channel) = &mut self.channels[index as usize] {
            channel.note_origin(origin);
        }
        let place = match self.channels[index as usize].as_ref() {
            Some(channel) if unkept && channel.keeps() => {
                self.tell(index, published_push(&published, 0), true);
                None
            }
            _ => {
                self.publish(index, published, now);
                self.channels[index as usize].as_ref().and_then(Channel::place)
            }
        };
        if let Some((key, _)) = key {
            self.keys.remember(key, place, now);
        }
        Some(place)
    }

    fn publish(&mut self, index: u32, published: Arc<Published>, now: Duration) {
        self.leave_log(index);
        self.publish_record(index, published, (None, true), now);
    }

    /// Publishes under the offset of a log, or under the channel's next one. A record that is not live is retained for recovery alone.
    fn publish_record(
        &mut self,
        index: u32,
        published: Arc<Published>,
        (offset, is_live): (Option<u64>, bool),
        now: Duration,
    ) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let offset = match offset {
            Some(offset) => channel.publish_at(offset, Arc::clone(&published), now),
            None => channel.publish(Arc::clone(&published), now),
        };
        // All subscribers receive the newest state; positions do not exceed that of the last one sent.
        if is_live || channel.keeps() && !channel.relies_on_positions() {
            self.pass(index, offset, &published, now);
        } else if channel.withhold() {
            self.notify_lost(index);
        }
    }

    /// Sends a publication now, or later in a channel that is conflated.
    fn pass(&mut self, index: u32, offset: u64, published: &Arc<Published>, now: Duration) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let due = channel.due();
        match channel.goes(offset, published, now) {
            Goes::Now => {
                // What was held has been overtaken.
                if let Some(due) = due {
                    self.paced.remove(&(due, index));
                }
                self.send(index, offset, published);
            }
            Goes::At(at) => drop(self.paced.insert((at, index))),
            Goes::InPlace => {}
        }
    }

    /// Sends a publication to all that listen.
    fn send(&mut self, index: u32, offset: u64, published: &Arc<Published>) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        if channel.is_heard() {
            let push = published_push(published, offset);
            let course = channel.course();
            let frames = self.writer.write(&channel.name, channel.heard(), push, course);
            for interest in channel.interests() {
                let outbox = &mut self.outboxes[usize::from(interest.worker.0)];
                // Behind a gap nothing goes: it will come with what is missing.
                if interest.marked.is_some() || outbox.pushes >= limits::PUSHES_WAITING {
                    if interest.marked.is_none() {
                        interest.marked = Some(offset);
                        outbox.marked.push_back(index);
                    }
                    continue;
                }
                outbox.pushes += 1;
                outbox.queue.push_back(ToWorker::Push {
                    key: interest.key,
                    frames: Arc::clone(&frames),
                    course,
                });
            }
        }
    }

    /// Sends what has no number to all that listen, if it is `wanted`. Who has no room goes without.
    fn tell(&mut self, index: u32, push: Push, wanted: bool) {
        let Some(channel) = self.channels[index as usize].as_mut().filter(|_| wanted) else {
            return;
        };
        let course = Course::Beside;
        let frames = self.writer.write(&channel.name, channel.heard(), push, course);
        for interest in channel.interests() {
            let outbox = &mut self.outboxes[usize::from(interest.worker.0)];
            if interest.marked.is_none() && outbox.pushes < limits::PUSHES_WAITING {
                outbox.pushes += 1;
                outbox.queue.push_back(ToWorker::Push {
                    key: interest.key,
                    frames: Arc::clone(&frames),
                    course,
                });
            }
        }
    }

    /// Sends a worker what it has missed of a channel, or word that it is lost.
    fn send_again(&mut self, index: u32, worker: WorkerId, now: Duration) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let Some((key, missed)) = channel.missed(worker, now) else {
            return;
        };
        let outbox = &mut self.outboxes[usize::from(worker.0)];
        outbox.marked.retain(|&marked| marked != index);
        match missed {
            Some(missed) => {
                let course = channel.course();
                for (offset, published) in missed {
                    let push = published_push(&published, offset);
                    let frames = self.writer.write(&channel.name, channel.heard(), push, course);
                    outbox.pushes += 1;
                    outbox.queue.push_back(ToWorker::Push { key, frames, course });
                }
            }
            None => outbox.queue.push_back(ToWorker::Lost { key }),
        }
    }

    /// Answers are never left out: there are no more than questions, which whoever asks bounds.
    fn answer(&mut self, to: WorkerId, answer: ToWorker) {
        self.outboxes[usize::from(to.0)].queue.push_back(answer);
    }
}

/// What is told of a publication, to those who listen by its channel.
fn published_push(published: &Published, offset: u64) -> Push {
    Push {
        pub_: Some(published.numbered(offset)),
        ..Push::default()
    }
}

/// The epoch of this number: no two are alike, and without the seed none can be told.
fn epoch(seed: u64, number: u64) -> Epoch {
    Epoch::new(mix(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
}

/// The last step of SplitMix64 (Steele, Lea and Flood, 2014): to each number another one, in which every bit counts.
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
