//! The nodes, their links, and the events that happen to them.

mod checks;
mod events;
mod logged;
mod network;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{Answer, ChannelSettings, FrameDecoder, Publish};
use ringmain_cluster::member::{Member, Role, Uid};
use ringmain_cluster::node::{Event, LinkId, LogOptions, Mutation, Node, NodeRequest};
use ringmain_hub::history::{HistoryOptions, StreamPosition};
use ringmain_hub::mail::{Idempotency, PublishOptions};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::clients::{Client, Oracle, Shard};
use super::log::MemoryLog;

pub(super) const HISTORY: HistoryOptions = HistoryOptions {
    publications: 8,
    bytes: 1 << 30,
    ttl: Duration::from_secs(40),
};

const SETTINGS: ChannelSettings = ChannelSettings {
    history: Some(HISTORY),
    position_ttl: Duration::from_secs(50),
    members: true,
};

pub(super) const CHANNELS: usize = 3;
/// The time for which idempotency keys are remembered.
const KEY_WINDOW: Duration = Duration::from_secs(3600);
/// More bytes than a log has.
const ALL: usize = 1 << 40;
const CLIENTS: usize = 8;
const STEP: Duration = Duration::from_millis(20);
/// The step of runs of at least [`LONG`], in which nothing but time happens.
const LONG_STEP: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(60);
/// The size of a publication: a few use up the credit of a link.
const LARGE: usize = 600 << 10;

/// One direction of a link.
struct Pipe {
    bytes: VecDeque<(Duration, Vec<u8>)>,
    decoder: FrameDecoder,
}

struct Link {
    /// The node that has opened it, and the other.
    ends: [usize; 2],
    pipes: [Pipe; 2],
    /// The link is up at each end.
    is_up: [bool; 2],
    is_open: bool,
}

#[derive(Default)]
pub(super) struct Host {
    pub(super) node: Option<Node>,
    /// It leaves since then.
    pub(super) leaving_since: Option<Duration>,
    /// The members that its workers know by presence events.
    joined: BTreeSet<(Arc<str>, String)>,
    paused_until: Duration,
    shards: BTreeMap<Arc<str>, Shard>,
    /// The workers take events slowly: so many a step.
    events_per_step: usize,
}

impl Host {
    fn new(node: Node) -> Host {
        Host {
            node: Some(node),
            events_per_step: usize::MAX,
            ..Host::default()
        }
    }

    /// Returns whether clients may connect.
    pub(super) fn accepts_clients(&self) -> bool {
        let node = self.node.as_ref();
        node.is_some_and(|node| node.member().role != Role::Server) && self.leaving_since.is_none()
    }

    pub(super) fn is_running(&self) -> bool {
        self.node.is_some() && self.leaving_since.is_none()
    }
}

/// A publication that was requested.
struct Requested {
    at: Duration,
    channel: Arc<str>,
    data: Vec<u8>,
    key: Option<String>,
}

/// See the module.
pub(super) struct World {
    random: fastrand::Rng,
    pub(super) now: Duration,
    pub(super) hosts: Vec<Host>,
    links: BTreeMap<usize, Link>,
    last_link: usize,
    /// Pairs of nodes that cannot reach each other.
    cut: BTreeSet<(usize, usize)>,
    pub(super) clients: Vec<Client>,
    oracle: Oracle,
    pub(super) published: u64,
    requested: BTreeMap<u64, Requested>,
    /// The positions of acknowledged idempotency keys.
    keys: BTreeMap<(Arc<str>, String), StreamPosition>,
    /// Planned moves alone happen: nothing is lost, and no member leaves and joins again.
    pub(super) is_planned: bool,
    /// The longest time until a publication was acknowledged, and until it was delivered.
    pub(super) longest: [Duration; 2],
    /// The times at which publications were requested while moves are planned, and whether they have no offset.
    published_at: BTreeMap<u64, (Duration, bool)>,
    /// A broken promise that was found outside of an event.
    broken: Option<String>,
    /// The versions of nodes that start.
    pub(super) versions: &'static [u16],
    uids: u64,
    mutation: Option<Mutation>,
    answers: BTreeMap<u64, Answer>,
    requests: u64,
    names: u64,
    pub(super) log: Option<MemoryLog>,
    log_options: LogOptions,
    /// The time of the last end or pause of a node.
    pub(super) disturbed_at: Duration,
    /// Until then no node ends or pauses, so that one notices that the log has lost records.
    pub(super) calm_until: Duration,
}

/// Returns the number of a publication.
pub(super) fn number_of(data: &[u8]) -> Option<u64> {
    let digits = data.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the name of a channel. The one after [`CHANNELS`] has no history.
pub(super) fn channel(number: usize) -> Arc<str> {
    match number {
        CHANNELS => "plain".into(),
        _ => format!("c:{number}").into(),
    }
}

fn settings(channel: &str) -> ChannelSettings {
    ChannelSettings {
        history: SETTINGS.history.filter(|_| channel != "plain"),
        ..SETTINGS
    }
}

impl World {
    pub(super) fn new(seed: u64, mutation: Option<Mutation>, versions: &'static [u16]) -> World {
        World::populated(World::empty(seed, mutation, versions))
    }

    fn populated(mut world: World) -> World {
        let count = world.draw(2, 7);
        world.add_hosts(count);
        for number in 0..CLIENTS {
            world.add_client(channel(number % CHANNELS));
        }
        world
    }

    fn empty(seed: u64, mutation: Option<Mutation>, versions: &'static [u16]) -> World {
        World {
            random: fastrand::Rng::with_seed(seed),
            now: Duration::from_secs(1),
            hosts: Vec::new(),
            links: BTreeMap::new(),
            last_link: 0,
            cut: BTreeSet::new(),
            clients: Vec::new(),
            oracle: Oracle::default(),
            published: 0,
            requested: BTreeMap::new(),
            keys: BTreeMap::new(),
            is_planned: false,
            longest: [Duration::ZERO; 2],
            published_at: BTreeMap::new(),
            broken: None,
            versions,
            uids: 0,
            mutation,
            answers: BTreeMap::new(),
            requests: 0,
            names: 0,
            log: None,
            log_options: LogOptions {
                partitions: 1,
                takeover_time: Duration::ZERO,
                takeover_bytes: 0,
            },
            disturbed_at: Duration::ZERO,
            calm_until: Duration::ZERO,
        }
    }

    /// Creates a world without clients.
    pub(super) fn with_hosts(seed: u64, count: u64) -> World {
        let mut world = World::empty(seed, None, &[2]);
        world.add_hosts(count);
        world
    }

    fn add_hosts(&mut self, count: u64) {
        for number in 0..count {
            // There is always a node of both tasks at first.
            let role = if number == 0 { Role::All } else { self.draw_role() };
            self.add_host(role);
        }
    }

    pub(super) fn add_client(&mut self, channel: Arc<str>) {
        self.clients.push(Client::new(channel));
    }

    /// Forgets the publications that were checked, so that a long run needs no memory.
    pub(super) fn forget_history(&mut self) {
        self.oracle = Oracle::default();
        self.oracle.log = self.log.as_ref().map(|log| Rc::clone(&log.fold));
        if let Some(log) = &self.log {
            log.fold.borrow_mut().clear();
        }
        self.requested.clear();
        self.answers.clear();
        self.keys.clear();
    }

    pub(super) fn draw_role(&mut self) -> Role {
        match self.draw(0, 10) {
            0 | 1 => Role::Gateway,
            2 | 3 => Role::Server,
            _ => Role::All,
        }
    }

    pub(super) fn draw(&mut self, from: u64, to: u64) -> u64 {
        self.random.u64(from..to)
    }

    pub(super) fn pick(&mut self, count: usize) -> usize {
        self.random.usize(0..count)
    }

    pub(super) fn start(&mut self, role: Role) -> Node {
        self.uids += 1;
        let member = Member {
            uid: Uid(self.random.u64(..)),
            name: format!("n{}", self.uids).into(),
            zone: "".into(),
            role,
            weight: self.random.u16(1..4),
        };
        let mut node = Node::new(member, self.random.u64(..), self.now);
        node.limit_version(self.versions[self.random.usize(..self.versions.len())]);
        if let Some(mutation) = self.mutation {
            node.plant(mutation);
        }
        if self.log.is_some() {
            node.set_log(self.log_options);
        }
        node
    }

    /// Connects a client to a node, or disconnects it.
    fn toggle(&mut self, host: usize) {
        let index = self.pick(self.clients.len());
        match self.clients[index].node {
            Some(_) => self.disconnect(index),
            None => self.connect(index, host),
        }
    }

    pub(super) fn connect(&mut self, index: usize, host: usize) {
        if !self.hosts[host].accepts_clients() || self.hosts[host].paused_until > self.now {
            return;
        }
        self.names += 1;
        let name: Arc<str> = format!("client-{}", self.names).into();
        let client = &mut self.clients[index];
        let channel = Arc::clone(&client.channel);
        client.name = Arc::clone(&name);
        client.node = Some(host);
        client.is_waiting = true;
        client.ahead_since = None;
        let info = Arc::new(ClientInfo {
            user: format!("u{index}"),
            client: name.to_string(),
            ..ClientInfo::default()
        });
        let now = self.now;
        let Some(node) = &mut self.hosts[host].node else {
            return;
        };
        node.handle(
            NodeRequest::Interested {
                channel: Arc::clone(&channel),
                settings: settings(&channel),
                needs_state: false,
            },
            now,
        );
        node.handle(NodeRequest::Joined { channel, info }, now);
    }

    fn disconnect(&mut self, index: usize) {
        // Those of the last second may be on their way.
        let until = self.now.saturating_sub(Duration::from_secs(1));
        if let Err(broken) = self.check_plain(index, until) {
            self.broken = Some(broken);
        }
        self.clients[index].live_since = None;
        self.clients[index].arrived.clear();
        self.clients[index].noted = 0;
        let client = &mut self.clients[index];
        let (channel, name) = (Arc::clone(&client.channel), Arc::clone(&client.name));
        client.is_waiting = false;
        client.ahead_since = None;
        let Some(host) = client.node.take() else { return };
        let now = self.now;
        let has_others = self
            .clients
            .iter()
            .any(|other| other.node == Some(host) && other.channel == channel);
        let Some(node) = &mut self.hosts[host].node else {
            return;
        };
        node.handle(
            NodeRequest::Left {
                channel: Arc::clone(&channel),
                client: name,
            },
            now,
        );
        if !has_others {
            node.handle(NodeRequest::Uninterested { channel }, now);
        }
    }

    pub(super) fn publish(&mut self, host: usize, number: usize, size: usize) {
        // Some keys are used again: the second publication must not be one.
        let key = match self.draw(0, 4) {
            0 => Some(format!("key-{}", self.draw(0, 30))),
            _ => None,
        };
        let (now, name) = (self.now, channel(number));
        let is_paused = self.hosts[host].paused_until > now;
        let Some(node) = self.hosts[host].node.as_mut().filter(|_| !is_paused) else {
            return;
        };
        self.published += 1;
        let request = self.published;
        let mut data = format!("{request}:").into_bytes();
        data.resize(data.len() + size, b'x');
        let is_plain = number >= CHANNELS;
        // An owner that reads a part of the log only does not know older keys.
        let knows_keys = self.log.is_none() || self.log_options.takeover_bytes == ALL;
        let key = key.filter(|_| !is_plain && knows_keys);
        if self.is_planned {
            self.published_at.insert(request, (now, is_plain));
        }
        let requested = Requested {
            at: now,
            channel: Arc::clone(&name),
            data: data.clone(),
            key: key.clone(),
        };
        self.requested.insert(request, requested);
        let publish = Publish {
            settings: settings(&name),
            channel: name,
            published: Arc::new(Published {
                data: Bytes::from(data),
                ..Published::default()
            }),
            options: PublishOptions {
                idempotency: key.map(|key| Idempotency {
                    key: key.into(),
                    window: KEY_WINDOW,
                }),
                ..PublishOptions::default()
            },
        };
        node.handle(NodeRequest::Publish { request, publish }, now);
    }

    pub(super) fn publish_everywhere(&mut self) {
        let host = self.hosts.iter().position(Host::is_running);
        for number in 0..CHANNELS {
            self.publish(host.expect("a node is left"), number, 8);
        }
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
        for host in &mut self.hosts {
            host.paused_until = Duration::ZERO;
            host.events_per_step = usize::MAX;
        }
        self.connect_all();
    }

    /// Connects all clients that are not connected.
    pub(super) fn connect_all(&mut self) {
        for index in 0..self.clients.len() {
            let accepting = (0..self.hosts.len()).filter(|host| self.hosts[*host].accepts_clients());
            let accepting: Vec<usize> = accepting.collect();
            let host = accepting[self.pick(accepting.len())];
            if self.clients[index].node.is_none() {
                self.connect(index, host);
            }
        }
    }

    pub(super) fn disconnect_all(&mut self) {
        for index in 0..self.clients.len() {
            self.disconnect(index);
        }
    }

    /// Runs for a time.
    pub(super) fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let end = self.now + time;
        let step = if time >= LONG { LONG_STEP } else { STEP };
        while self.now < end {
            self.now += step;
            self.open_links();
            let ids: Vec<usize> = self.links.keys().copied().collect();
            for id in ids {
                self.carry(id);
            }
            for host in 0..self.hosts.len() {
                self.run_host(host)?;
            }
            self.end_nodes()?;
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
        }
        Ok(())
    }

    fn run_host(&mut self, host: usize) -> Result<(), String> {
        if self.hosts[host].paused_until > self.now {
            return Ok(());
        }
        let now = self.now;
        let Some(node) = &mut self.hosts[host].node else {
            return Ok(());
        };
        if let Some(log) = &mut self.log {
            for event in log.poll(host, now) {
                node.receive_log(event, now);
            }
        }
        node.tick(now);
        if let Some(log) = &mut self.log {
            log.submit(host, node.take_log_requests(), now);
        }
        for _ in 0..self.hosts[host].events_per_step {
            let node = self.hosts[host].node.as_mut();
            let Some(event) = node.and_then(Node::poll_event) else {
                break;
            };
            self.handle_event(host, event)?;
            self.note_arrivals();
        }
        self.release_ahead(host)?;
        let Some(node) = &mut self.hosts[host].node else {
            return Ok(());
        };
        for (id, link) in &mut self.links {
            let id = *id;
            let Some(end) = link.ends.iter().position(|end| *end == host) else {
                continue;
            };
            let mut bytes = Vec::new();
            while let Some(frame) = node.poll_send(LinkId(id as u64)) {
                frame.encode(&mut bytes);
            }
            if !bytes.is_empty() {
                let delay = Duration::from_millis(self.random.u64(0..80));
                let pipe = &mut link.pipes[end];
                let at = pipe.bytes.back().map_or(now, |(at, _)| *at).max(now + delay);
                pipe.bytes.push_back((at, bytes));
            }
        }
        Ok(())
    }

    /// Notes the time that publications have taken.
    fn note_arrivals(&mut self) {
        for client in &mut self.clients {
            if self.is_planned && client.reported_gaps > 0 {
                let Client { name, channel, .. } = client;
                self.broken = Some(format!("client {name} of {channel} had a gap at {:?}", self.now));
            }
            let arrived = &client.arrived[client.noted..];
            for number in arrived {
                client.delivered_at = self.now;
                if let Some((at, _)) = self.published_at.get(number) {
                    self.longest[1] = self.longest[1].max(self.now - *at);
                }
            }
            client.noted = client.arrived.len();
            if client.live_since.is_none() {
                client.arrived.clear();
                client.noted = 0;
            }
        }
    }

    fn handle_event(&mut self, host: usize, event: Event) -> Result<(), String> {
        let (now, oracle) = (self.now, &mut self.oracle);
        let clients = self.clients.iter_mut();
        let here = |channel: &Arc<str>| -> Vec<&mut Client> {
            let is_here = |client: &&mut Client| client.node == Some(host) && client.channel == *channel;
            clients.filter(is_here).collect()
        };
        let shards = &mut self.hosts[host].shards;
        match event {
            Event::Synced { channel, .. } if &*channel == "plain" => {
                for client in here(&channel) {
                    client.is_waiting = false;
                    client.live_since.get_or_insert(now);
                }
            }
            Event::Synced { channel, state, kind } => {
                let shard = shards.entry(Arc::clone(&channel)).or_insert_with(Shard::new);
                shard.sync(state, kind, &mut here(&channel), oracle, now)?;
                if std::mem::take(&mut shard.needs_state)
                    && let Some(node) = &mut self.hosts[host].node
                {
                    let interested = NodeRequest::Interested {
                        settings: settings(&channel),
                        channel,
                        needs_state: true,
                    };
                    node.handle(interested, now);
                }
            }
            Event::Publication {
                channel,
                offset: 0,
                published,
            } => {
                for client in here(&channel).into_iter().filter(|client| !client.is_waiting) {
                    client.arrived.extend(number_of(&published.data));
                }
            }
            Event::Publication {
                channel,
                offset,
                published,
            } => {
                let shard = shards.get_mut(&channel).filter(|shard| shard.is_synced());
                let shard = shard.ok_or("a publication arrived before a state")?;
                shard.publish(offset, &published, &mut here(&channel), oracle, now)?;
            }
            Event::Lost { channel } => {
                for client in here(&channel) {
                    client.is_waiting = true;
                }
            }
            Event::Published { request, outcome } => self.check_published(request, outcome)?,
            Event::Presence {
                channel,
                info,
                is_join,
            } => self.check_presence(host, channel, &info.client, is_join)?,
            Event::Answer { request, answer } => drop(self.answers.insert(request, answer)),
            Event::Close(id) => self.close(id.0 as usize),
            Event::Call { .. } | Event::CallFinished { .. } => {}
        }
        Ok(())
    }
}
