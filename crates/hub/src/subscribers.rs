//! Subscribers of one worker: which connections listen to which channels, and what waits for each.
//!
//! ```text
//! push ─▶ topic ─▶ its subscribers, one after the other ─▶ what waits for a connection ─▶ (its budget) ─▶ taken when it can write
//! ```
//!
//! A connection that nothing waits for holds no buffer. What a connection is told apart from pushes ([`Event`]) does not wait
//! behind them; so what waits of a channel goes with its subscription.

mod conflated;
mod conflation_schedule;
mod conn;
mod delivery;
mod event;
mod push_queue;
mod requests;
mod subscriptions;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::mail::{Rules, Since, Slow, Subscribed, Subscribing, ToHome, ToWorker, TopicKey, WorkerId};
use crate::protocol::{ClientInfo, Fault, Unsubscribed, Variant};
use crate::shard::mix;
use conflated::Show;
use conflation_schedule::Moments;
use conn::Conn;
use delivery::Victim;
pub use event::{Answer, ConnId, Event};
use push_queue::Table;
use requests::Asked;
use subscriptions::Stage;

/// The connections of one worker.
#[derive(Debug)]
pub struct Local {
    workers: u16,
    limits: Limits,
    conns: Vec<Slot>,
    free_conns: Vec<u32>,
    topics: Vec<Topic>,
    free_topics: Vec<u32>,
    names: BTreeMap<Arc<str>, u32>,
    asked: Vec<Option<Asked>>,
    free_asked: Vec<u32>,
    /// By home.
    to_homes: Vec<VecDeque<ToHome>>,
    events: VecDeque<Event>,
    answers: VecDeque<(u64, Answer)>,
    ready: VecDeque<ConnId>,
    waiting: Table,
    moments: Moments,
    /// Why subscriptions end that wait for their answer ([`Stage::Ending`]).
    endings: BTreeMap<(ConnId, u32), Unsubscribed>,
    /// Kept for the memory alone.
    victims: Vec<(u32, Victim)>,
    counts: Counts,
}

/// What has been done since the worker began, and what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Subscriptions now.
    pub subscriptions: usize,
    /// Publications, comings and goings that were put among what waits for a connection, each connection counted.
    pub deliveries: u64,
    /// Those that connections were too slow for, by what became of them, in the order of [`Slow::ALL`]. A state that such a
    /// connection was not given at its moment is one, also if it is given the same later.
    pub slow: [u64; Slow::ALL.len()],
    /// How often subscribers missed something since a queue between workers was full.
    pub lost: u64,
}

/// How much one connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Subscriptions; more are refused.
    pub subscriptions: usize,
    /// Bytes that wait for it; see [`Slow`].
    pub waiting_bytes: usize,
}

/// A cache line: a push to many looks at one of each.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    generation: u32,
    conn: Option<Conn>,
}

const _: () = assert!(
    size_of::<Slot>() == 64,
    "an idle client is this, beside what push and web keep of it"
);

/// A channel with subscribers here, or with some that wait for their answer.
#[derive(Debug)]
struct Topic {
    name: Arc<str>,
    generation: u32,
    rules: Rules,
    subscribers: Vec<u32>,
    waiting: u32,
    show: Show,
}

impl Local {
    /// From now on these hold, for connections that are there too; what they have already stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// For one of so many workers.
    #[must_use]
    pub fn new(workers: u16, limits: Limits) -> Local {
        Local {
            workers,
            limits,
            conns: Vec::new(),
            free_conns: Vec::new(),
            topics: Vec::new(),
            free_topics: Vec::new(),
            names: BTreeMap::new(),
            asked: Vec::new(),
            free_asked: Vec::new(),
            to_homes: (0..workers).map(|_| VecDeque::new()).collect(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
            ready: VecDeque::new(),
            waiting: Table::new(),
            moments: Moments::default(),
            endings: BTreeMap::new(),
            victims: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// A connection begins. `info` is who it is, for channels that tell.
    pub fn open(&mut self, variant: Variant, info: Option<Arc<ClientInfo>>) -> ConnId {
        let conn = Some(Conn::new(variant, info));
        let index = self.free_conns.pop().unwrap_or_else(|| {
            let (generation, conn) = (0, None);
            self.conns.push(Slot { generation, conn });
            (self.conns.len() - 1) as u32
        });
        let slot = &mut self.conns[index as usize];
        slot.conn = conn;
        let generation = slot.generation;
        ConnId { index, generation }
    }

    /// A connection ends, with all its subscriptions. One that is not there any more is none.
    pub fn close(&mut self, id: ConnId) {
        while let Some(subscription) = self.conn(id).and_then(Conn::last_subscription) {
            self.end_subscription(id, subscription);
        }
        let Some(slot) = self.conns.get_mut(id.index as usize) else {
            return;
        };
        if slot.generation == id.generation && slot.conn.take().is_some() {
            slot.generation = slot.generation.wrapping_add(1);
            self.free_conns.push(id.index);
        }
    }

    /// A connection wants to listen. [`Event::Subscribed`] or [`Event::Refused`] follows.
    ///
    /// # Errors
    /// It does already, or waits to; or it listens to as many channels as it may.
    pub fn subscribe(
        &mut self,
        id: ConnId,
        channel: &Arc<str>,
        rules: Rules,
        since: Option<Since>,
    ) -> Result<(), Fault> {
        let info = self.slot(id).and_then(|conn| conn.info.clone());
        self.subscribe_as(id, channel, rules, since, info)
    }

    /// The same, as somebody else to the others in this channel; as nobody without an `info`. It is for the same client.
    ///
    /// # Errors
    /// As [`Local::subscribe`].
    pub fn subscribe_as(
        &mut self,
        id: ConnId,
        channel: &Arc<str>,
        rules: Rules,
        since: Option<Since>,
        info: Option<Arc<ClientInfo>>,
    ) -> Result<(), Fault> {
        let most = self.limits.subscriptions;
        let known = self.names.get(channel).copied();
        let Some(conn) = self.conn(id) else {
            return Err(Fault::BAD_REQUEST);
        };
        if known.is_some_and(|topic| conn.has(topic)) {
            return Err(Fault::ALREADY_SUBSCRIBED);
        }
        if conn.subscriptions() >= most {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        let variant = conn.variant;
        let topic = known.unwrap_or_else(|| self.topic(channel, rules));
        self.topics[topic as usize].rules = rules;
        self.topics[topic as usize].waiting += 1;
        let info = info.filter(|_| rules.presence || rules.join_leave);
        if let Some(conn) = self.conn(id) {
            conn.add(topic);
            if conn.info.is_none() {
                conn.info.clone_from(&info);
            }
        }
        let ask = self.ask(Asked::Subscribe {
            conn: id,
            topic,
            variant,
            client: info.as_ref().map(|info| Arc::from(&*info.client)),
        });
        let (index, generation) = (topic, self.topics[topic as usize].generation);
        let subscribing = Subscribing {
            channel: Arc::clone(channel),
            rules,
            key: TopicKey { index, generation },
            ask,
            variant,
            since,
            info,
        };
        self.send(channel, ToHome::Subscribe(Box::new(subscribing)));
        Ok(())
    }

    /// A connection listens no longer. Returns whether it did, or waited to; who waits is told that it is subscribed, and then that
    /// it is not.
    pub fn unsubscribe(&mut self, id: ConnId, channel: &str, why: Unsubscribed) -> bool {
        let Some(&topic) = self.names.get(channel) else {
            return false;
        };
        match self.conn(id).and_then(|conn| conn.stage(topic)) {
            None => false,
            Some(Stage::Listens { .. }) => {
                self.tell_unsubscribed(id, topic, why);
                true
            }
            Some(stage) => {
                *stage = Stage::Ending;
                self.endings.insert((id, topic), why);
                true
            }
        }
    }

    /// The same at a connection's own wish: it knows, and is not told.
    pub fn leave(&mut self, id: ConnId, channel: &str) {
        let Some(&topic) = self.names.get(channel) else {
            return;
        };
        match self.conn(id).and_then(|conn| conn.stage(topic)) {
            None => {}
            Some(Stage::Listens { .. }) => self.end_subscription(id, topic),
            Some(stage) => {
                *stage = Stage::Ending;
                self.endings.insert((id, topic), Unsubscribed::SERVER);
            }
        }
    }

    /// Whether a connection is subscribed to a channel, or is about to be.
    #[must_use]
    pub fn is_subscribed(&self, id: ConnId, channel: &str) -> bool {
        let topic = self.names.get(channel);
        topic.is_some_and(|topic| self.slot(id).is_some_and(|conn| conn.has(*topic)))
    }

    /// Takes what a home says.
    pub fn handle(&mut self, message: ToWorker) {
        match message {
            ToWorker::Push { key, frames, course } => self.deliver(key, &frames, course),
            ToWorker::Lost { key } => self.lost(key),
            ToWorker::Subscribed(subscribed) => self.subscribed(*subscribed),
            ToWorker::Refused { ask } => self.refused(ask, Fault::LIMIT_EXCEEDED),
            ToWorker::Behind { ask } => self.refused(ask, Fault::INTERNAL),
            ToWorker::Published { ask, place } => self.published(ask, place),
            ToWorker::Told { ask, told } => self.told(ask, told),
        }
    }

    /// What is to go to a home next. In order.
    pub fn poll_home(&mut self, home: WorkerId) -> Option<ToHome> {
        self.to_homes[usize::from(home.0)].pop_front()
    }

    /// Whether something is to go to a home.
    #[must_use]
    pub fn has_mail(&self, home: WorkerId) -> bool {
        !self.to_homes[usize::from(home.0)].is_empty()
    }

    /// How much is to go to homes.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.to_homes.iter().map(VecDeque::len).sum()
    }

    /// What is to be told next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A connection that something waits for, each once.
    pub fn poll_ready(&mut self) -> Option<ConnId> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(conn) = self.conn(id) {
                conn.is_ready = false;
                return Some(id);
            }
        }
        None
    }

    /// The next push for a connection.
    pub fn take(&mut self, id: ConnId) -> Option<Bytes> {
        let (waiting, slot) = (&mut self.waiting, self.conns.get_mut(id.index as usize)?);
        let conn = slot.conn.as_mut().filter(|_| slot.generation == id.generation);
        conn?.take(waiting)
    }

    /// Bytes that wait for a connection.
    #[must_use]
    pub fn waiting_bytes(&self, id: ConnId) -> usize {
        self.slot(id).map_or(0, Conn::waiting_bytes)
    }

    /// Pushes that a connection did not get since it was too slow.
    #[must_use]
    pub fn dropped(&self, id: ConnId) -> u64 {
        self.slot(id).map_or(0, |conn| conn.dropped)
    }

    /// What has been done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Channels with subscribers here.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.names.len()
    }

    fn slot(&self, id: ConnId) -> Option<&Conn> {
        let slot = self.conns.get(id.index as usize)?;
        slot.conn.as_ref().filter(|_| slot.generation == id.generation)
    }

    fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = self.conns.get_mut(id.index as usize)?;
        slot.conn.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// Takes a subscription of a connection out, with what waits of it.
    fn take_out(&mut self, id: ConnId, topic: u32) -> Option<Stage> {
        let (waiting, slot) = (&mut self.waiting, self.conns.get_mut(id.index as usize)?);
        let conn = slot.conn.as_mut().filter(|_| slot.generation == id.generation);
        let stage = conn?.remove(topic, waiting)?;
        if stage == Stage::Ending {
            self.endings.remove(&(id, topic));
        }
        Some(stage)
    }

    fn id(&self, index: u32) -> ConnId {
        let generation = self.conns[index as usize].generation;
        ConnId { index, generation }
    }

    fn topic(&mut self, channel: &Arc<str>, rules: Rules) -> u32 {
        let index = self.free_topics.pop().unwrap_or_else(|| {
            self.topics.push(Topic {
                name: Arc::clone(channel),
                generation: 0,
                rules,
                subscribers: Vec::new(),
                waiting: 0,
                show: Show::default(),
            });
            (self.topics.len() - 1) as u32
        });
        self.topics[index as usize].name = Arc::clone(channel);
        self.names.insert(Arc::clone(channel), index);
        index
    }

    /// If nobody needs it.
    fn free_topic(&mut self, index: u32) {
        let topic = &mut self.topics[index as usize];
        if topic.subscribers.is_empty() && topic.waiting == 0 {
            // What is under way for it finds another generation.
            topic.generation = topic.generation.wrapping_add(1);
            topic.subscribers = Vec::new();
            topic.show = Show::default();
            self.names.remove(&topic.name);
            self.free_topics.push(index);
        }
    }

    fn send(&mut self, channel: &str, message: ToHome) {
        let home = home_of(channel, self.workers);
        self.to_homes[usize::from(home.0)].push_back(message);
    }

    fn subscribed(&mut self, subscribed: Subscribed) {
        let Some(Asked::Subscribe {
            conn: id,
            topic,
            variant,
            client,
        }) = self.answered(subscribed.ask)
        else {
            return;
        };
        self.topics[topic as usize].waiting -= 1;
        let at = self.topics[topic as usize].subscribers.len() as u32;
        let waits = |stage: &&mut Stage| !matches!(stage, Stage::Listens { .. });
        let ends = match self.conn(id).and_then(|conn| conn.stage(topic)).filter(waits) {
            Some(stage) => match std::mem::replace(stage, Stage::Listens { at }) {
                Stage::Ending => self.endings.remove(&(id, topic)),
                Stage::Waiting | Stage::Listens { .. } => None,
            },
            // The connection has gone meanwhile.
            None => {
                let channel = Arc::clone(&self.topics[topic as usize].name);
                self.end_at_home(&channel, variant, client);
                return self.free_topic(topic);
            }
        };
        self.topics[topic as usize].subscribers.push(id.index);
        self.watch(id.index, topic);
        self.counts.subscriptions += 1;
        self.events.push_back(Event::Subscribed {
            conn: id,
            channel: Arc::clone(&self.topics[topic as usize].name),
            place: subscribed.place,
            missed: subscribed.missed,
        });
        if let Some(why) = ends {
            self.tell_unsubscribed(id, topic, why);
        }
    }

    fn tell_unsubscribed(&mut self, id: ConnId, topic: u32, why: Unsubscribed) {
        let channel = Arc::clone(&self.topics[topic as usize].name);
        self.end_subscription(id, topic);
        self.events.push_back(Event::Unsubscribed {
            conn: id,
            channel,
            why,
        });
    }

    /// Takes a subscription out everywhere. The home of one that waits for its answer hears of it when that has come: it may be
    /// a refusal, after which there is nothing to end.
    fn end_subscription(&mut self, id: ConnId, topic: u32) {
        let Some(conn) = self.conn(id) else {
            return;
        };
        let (variant, info) = (conn.variant, conn.info.clone());
        let Some(stage) = self.take_out(id, topic) else {
            return;
        };
        let Stage::Listens { at } = stage else {
            return;
        };
        self.unwatch(id.index, topic);
        let place = &mut self.topics[topic as usize];
        let channel = Arc::clone(&place.name);
        let rules = place.rules;
        place.subscribers.swap_remove(at as usize);
        self.counts.subscriptions -= 1;
        if let Some(&moved) = place.subscribers.get(at as usize) {
            let moved = self.id(moved);
            if let Some(Stage::Listens { at: place }) = self.conn(moved).and_then(|conn| conn.stage(topic)) {
                *place = at;
            }
        }
        let client = info.filter(|_| rules.presence || rules.join_leave);
        let client = client.map(|info| Arc::from(&*info.client));
        self.end_at_home(&channel, variant, client);
        self.free_topic(topic);
    }

    fn end_at_home(&mut self, channel: &Arc<str>, variant: Variant, client: Option<Arc<str>>) {
        let message = ToHome::Unsubscribe {
            channel: Arc::clone(channel),
            variant,
            client,
        };
        self.send(channel, message);
    }

    /// Whether a key is of this topic's life.
    fn is_current(&self, key: TopicKey) -> bool {
        let topic = self.topics.get(key.index as usize);
        topic.is_some_and(|topic| topic.generation == key.generation)
    }
}

/// The worker where a channel is at home.
#[must_use]
pub fn home_of(channel: &str, workers: u16) -> WorkerId {
    // FNV-1a: which worker it is need not be a secret, and all of them must agree.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in channel.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let workers = u64::from(workers.max(1));
    WorkerId((((mix(hash) >> 32) * workers) >> 32) as u16)
}
