//! The nodes, their links, and the events that happen to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{Answer, ChannelSettings, Frame, FrameDecoder, Publish, PublishOutcome};
use ringmain_cluster::member::{Member, Role, Uid};
use ringmain_cluster::node::{Event, Hello, LinkId, Mutation, Node, NodeRequest};
use ringmain_hub::history::{HistoryOptions, StreamPosition};
use ringmain_hub::mail::{ChannelQuery, Idempotency, PublishOptions};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::clients::{Client, Oracle, Shard};

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
        let mut world = World::empty(seed, mutation, versions);
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
        self.requested.clear();
        self.answers.clear();
        self.keys.clear();
    }

    /// Checks that a client has received each publication without an offset once that was requested while it was subscribed.
    pub(super) fn check_plain(&self, index: usize, until: Duration) -> Result<(), String> {
        let client = &self.clients[index];
        let Some(since) = client.live_since else {
            return Ok(());
        };
        let mut seen = BTreeSet::new();
        for number in &client.arrived {
            if !seen.insert(*number) {
                return Err(format!("client {} received {number} twice", client.name));
            }
        }
        let mut due = self
            .published_at
            .iter()
            .filter(|(_, (at, is_plain))| *is_plain && *at >= since && *at <= until);
        match due.find(|(number, _)| !seen.contains(number)) {
            Some((number, (at, _))) => Err(format!(
                "client {} missed {number}, requested at {at:?}, subscribed since {since:?}",
                client.name
            )),
            None => Ok(()),
        }
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
        node
    }

    /// Lets something happen.
    pub(super) fn step(&mut self) {
        let host = self.pick(self.hosts.len());
        match self.draw(0, 34) {
            0 => self.kill(host),
            1 => {
                let pause = Duration::from_millis(self.draw(100, 8000));
                self.hosts[host].paused_until = self.now + pause;
            }
            2 | 3 => {
                let other = self.pick(self.hosts.len());
                self.cut.insert((host.min(other), host.max(other)));
                self.drop_links(|ends| ends == [host, other] || ends == [other, host]);
            }
            4 | 5 => self.cut.clear(),
            6 => {
                let other = self.pick(self.hosts.len());
                self.drop_links(|ends| ends == [host, other] || ends == [other, host]);
            }
            7 | 8 => {
                let slow = [0, 1, 2, usize::MAX];
                self.hosts[host].events_per_step = slow[self.random.usize(..slow.len())];
            }
            9 | 10 => self.join(host),
            11 | 12 => self.leave(host),
            13..=17 => self.toggle(host),
            18 | 19 => {
                for _ in 0..self.draw(1, 20) {
                    let channel = self.pick(CHANNELS);
                    self.publish(host, channel, LARGE);
                }
            }
            _ => {
                for _ in 0..self.draw(1, 6) {
                    let channel = self.pick(CHANNELS);
                    self.publish(host, channel, 8);
                }
            }
        }
    }

    /// Starts a node in place of one that has ended.
    pub(super) fn join(&mut self, host: usize) {
        if self.hosts[host].node.is_none() {
            let role = self.draw_role();
            let node = self.start(role);
            self.hosts[host] = Host::new(node);
        }
    }

    /// Adds a node.
    pub(super) fn add_host(&mut self, role: Role) {
        let node = self.start(role);
        self.hosts.push(Host::new(node));
    }

    /// Starts the planned end of a node, unless it is the last one with both tasks.
    pub(super) fn leave(&mut self, host: usize) {
        let is_needed = |host: &Host| {
            let node = host.node.as_ref();
            host.is_running() && node.is_some_and(|node| node.member().role == Role::All)
        };
        let now = self.now;
        if self.hosts.iter().filter(|host| is_needed(host)).count() < 2
            || self.hosts[host].leaving_since.is_some()
            || self.hosts[host].paused_until > now
        {
            return;
        }
        if let Some(node) = &mut self.hosts[host].node {
            node.leave(now);
            self.hosts[host].leaving_since = Some(now);
        }
    }

    /// Ends nodes that have left: their clients connect elsewhere.
    fn end_nodes(&mut self) -> Result<(), String> {
        for host in 0..self.hosts.len() {
            let Some(since) = self.hosts[host].leaving_since else {
                continue;
            };
            let has_left = self.hosts[host].node.as_ref().is_some_and(Node::has_left);
            let is_late = self.now - since > Duration::from_secs(12);
            if self.is_planned && self.now - since > Duration::from_secs(2) && !has_left {
                return Err(format!("host {host} has not left within 2 s"));
            }
            if !has_left && !is_late {
                continue;
            }
            let here: Vec<usize> = (0..self.clients.len())
                .filter(|index| self.clients[*index].node == Some(host))
                .collect();
            for index in here {
                self.disconnect(index);
                let other = (0..self.hosts.len()).find(|other| self.hosts[*other].accepts_clients());
                if let Some(other) = other {
                    self.connect(index, other);
                }
            }
            // Its last frames are sent.
            if self.hosts[host].node.as_ref().is_some_and(Node::has_left) || is_late {
                self.end(host);
            }
        }
        Ok(())
    }

    fn drop_links(&mut self, is_selected: impl Fn([usize; 2]) -> bool) {
        let links = self.links.iter().filter(|(_, link)| is_selected(link.ends));
        let ids: Vec<usize> = links.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.close(id));
    }

    /// Closes a link: both ends notice, and bytes in flight are lost.
    fn close(&mut self, id: usize) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        for (end, host) in link.ends.into_iter().enumerate() {
            let now = self.now;
            if let Some(node) = &mut self.hosts[host].node
                && link.is_up[end]
            {
                node.link_down(LinkId(id as u64), now);
            }
        }
    }

    /// Ends a node without notice, unless it is the last one with both tasks.
    pub(super) fn kill(&mut self, host: usize) {
        let is_needed = |(index, other): &(usize, &Host)| {
            let node = other.node.as_ref();
            *index != host && other.is_running() && node.is_some_and(|node| node.member().role == Role::All)
        };
        if self.hosts.iter().enumerate().any(|other| is_needed(&other)) {
            self.end(host);
        }
    }

    fn end(&mut self, host: usize) {
        self.hosts[host] = Host {
            events_per_step: usize::MAX,
            ..Host::default()
        };
        self.drop_links(|ends| ends.contains(&host));
        for client in self.clients.iter_mut().filter(|client| client.node == Some(host)) {
            client.node = None;
            client.is_waiting = false;
        }
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
        let key = key.filter(|_| !is_plain);
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

    /// Checks the outcome of a publication.
    fn check_published(&mut self, request: u64, outcome: PublishOutcome) -> Result<(), String> {
        let requested = self.requested.remove(&request).ok_or("an outcome twice")?;
        let waited = self.now - requested.at;
        self.longest[0] = self.longest[0].max(waited);
        let PublishOutcome::Published(position) = outcome else {
            return match self.is_planned {
                true => Err(format!("a publication was {outcome:?} after {waited:?}")),
                false => Ok(()),
            };
        };
        let Some(position) = position else { return Ok(()) };
        let (channel, epoch) = (&*requested.channel, position.epoch);
        let Some(key) = requested.key else {
            return self
                .oracle
                .check(channel, epoch, position.offset, &requested.data);
        };
        let first = self
            .keys
            .entry((Arc::clone(&requested.channel), key.clone()))
            .or_insert(position);
        // Another owner has another epoch, and does not know the keys.
        if first.epoch == epoch && *first != position {
            return Err(format!("{key} was published at {first:?} and {position:?}"));
        }
        *first = position;
        Ok(())
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

    /// Opens links that are missing: either node may be the first.
    fn open_links(&mut self) {
        for from in 0..self.hosts.len() {
            for to in 0..self.hosts.len() {
                let is_active = |host: &Host| host.node.is_some() && host.paused_until <= self.now;
                let is_dialed = |link: &Link| link.ends == [from, to];
                if from == to
                    || self.cut.contains(&(from.min(to), from.max(to)))
                    || !is_active(&self.hosts[from])
                    || self.hosts[to].node.is_none()
                    || self.links.values().any(is_dialed)
                {
                    continue;
                }
                let (Some(node), Some(peer)) = (&self.hosts[from].node, &self.hosts[to].node) else {
                    continue;
                };
                if node.is_linked(peer.member().uid) || self.random.u8(..) > 60 {
                    continue;
                }
                let pipe = || Pipe {
                    bytes: VecDeque::new(),
                    decoder: FrameDecoder::default(),
                };
                let mut link = Link {
                    ends: [from, to],
                    pipes: [pipe(), pipe()],
                    is_up: [false; 2],
                    is_open: true,
                };
                for (end, node) in [node, peer].into_iter().enumerate() {
                    let mut bytes = Vec::new();
                    node.hello().encode(&mut bytes);
                    link.pipes[end].bytes.push_back((self.now, bytes));
                }
                self.last_link += 1;
                self.links.insert(self.last_link, link);
            }
        }
    }

    /// Delivers the bytes that have arrived, unless the receiver is paused.
    fn carry(&mut self, id: usize) {
        let now = self.now;
        for end in 0..2 {
            let Some(link) = self.links.get_mut(&id) else {
                return;
            };
            let host = &mut self.hosts[link.ends[1 - end]];
            if host.paused_until > now {
                continue;
            }
            let Some(node) = &mut host.node else { return };
            let pipe = &mut link.pipes[end];
            while let Some((at, _)) = pipe.bytes.front()
                && *at <= now
                && let Some((_, bytes)) = pipe.bytes.pop_front()
            {
                let cut = self.random.usize(0..=bytes.len());
                pipe.decoder.feed(&bytes[..cut]);
                pipe.decoder.feed(&bytes[cut..]);
                while let Some(frame) = pipe.decoder.next_frame().expect("valid frames") {
                    if let Frame::Hello { member, version, .. } = frame {
                        let hello = Hello { member, version };
                        let is_up = node.link_up(LinkId(id as u64), hello, end == 1, now);
                        link.is_up[1 - end] = is_up;
                        link.is_open &= is_up;
                    } else {
                        node.receive(LinkId(id as u64), frame, now);
                    }
                }
            }
            if !link.is_open {
                return self.close(id);
            }
        }
    }

    fn run_host(&mut self, host: usize) -> Result<(), String> {
        if self.hosts[host].paused_until > self.now {
            return Ok(());
        }
        let now = self.now;
        let Some(node) = &mut self.hosts[host].node else {
            return Ok(());
        };
        node.tick(now);
        for _ in 0..self.hosts[host].events_per_step {
            let node = self.hosts[host].node.as_mut();
            let Some(event) = node.and_then(Node::poll_event) else {
                break;
            };
            self.handle_event(host, event)?;
            self.note_arrivals();
        }
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

    /// Checks that a member neither joins twice nor leaves while it is connected.
    fn check_presence(
        &mut self,
        host: usize,
        channel: Arc<str>,
        name: &str,
        is_join: bool,
    ) -> Result<(), String> {
        let is_connected = self
            .clients
            .iter()
            .any(|client| &*client.name == name && client.node.is_some());
        let joined = &mut self.hosts[host].joined;
        let is_new = match is_join {
            true => joined.insert((channel, name.to_owned())),
            false => {
                joined.remove(&(channel, name.to_owned()));
                !is_connected
            }
        };
        if self.is_planned && !is_new {
            return Err(format!(
                "host {host}: {name} was reported, joined: {is_join}, again"
            ));
        }
        Ok(())
    }

    /// Checks the promises that hold after quiet.
    pub(super) fn check_quiet(&mut self) -> Result<(), String> {
        for client in self.clients.iter().filter(|client| client.node.is_some()) {
            if client.is_waiting {
                return Err(format!("client {} of {} waits", client.name, client.channel));
            }
        }
        for number in 0..CHANNELS {
            self.check_channel(number)?;
        }
        Ok(())
    }

    /// Checks that the presence of all channels is right at a node, which responds within a time.
    pub(super) fn check_all_presence(&mut self, host: usize, within: Duration) -> Result<(), String> {
        let now = self.now;
        let first = self.requests + 1;
        for number in 0..CHANNELS {
            self.requests += 1;
            let request = self.requests;
            let channel = channel(number);
            if let Some(node) = &mut self.hosts[host].node {
                let (settings, query) = (settings(&channel), ChannelQuery::Presence);
                node.handle(
                    NodeRequest::Query {
                        request,
                        channel,
                        settings,
                        query,
                    },
                    now,
                );
            }
        }
        self.run_for(within)?;
        for number in 0..CHANNELS {
            self.check_members(&channel(number), first + number as u64)?;
        }
        Ok(())
    }

    fn check_members(&mut self, name: &Arc<str>, request: u64) -> Result<(), String> {
        let Some(Answer::Presence(members)) = self.answers.remove(&request) else {
            return Err(format!("presence of {name} was not answered"));
        };
        let present: BTreeSet<String> = members.iter().map(|info| info.client.clone()).collect();
        let connected = self.clients.iter().filter(|client| client.channel == *name);
        let connected: BTreeSet<String> = connected
            .filter(|client| client.node.is_some())
            .map(|client| client.name.to_string())
            .collect();
        match present == connected {
            true => Ok(()),
            false => Err(format!(
                "presence of {name} is {present:?}, connected are {connected:?}"
            )),
        }
    }

    fn check_channel(&mut self, number: usize) -> Result<(), String> {
        let name = channel(number);
        let host = self.hosts.iter().position(Host::is_running);
        let host = host.ok_or("no node is left")?;
        let mut requests = Vec::new();
        for query in [
            ChannelQuery::Presence,
            ChannelQuery::History {
                query: ringmain_hub::history::HistoryQuery {
                    since: None,
                    limit: 1,
                    reverse: true,
                },
                epoch: ringmain_hub::mail::EpochFilter::Any,
            },
        ] {
            self.requests += 1;
            let (request, now) = (self.requests, self.now);
            requests.push(request);
            let node = self.hosts[host].node.as_mut().ok_or("no node is left")?;
            node.handle(
                NodeRequest::Query {
                    request,
                    channel: Arc::clone(&name),
                    settings: settings(&name),
                    query,
                },
                now,
            );
        }
        self.run_for(Duration::from_secs(2))?;
        self.check_members(&name, requests[0])?;
        let Some(Answer::History {
            publications,
            position,
        }) = self.answers.remove(&requests[1])
        else {
            return Err(format!("history of {name} was not answered"));
        };
        for client in &self.clients {
            if client.channel == name && client.node.is_some() && client.position != Some(position) {
                return Err(format!(
                    "client {} of {name} has {:?}, the channel {position:?} ({} retained)",
                    client.name,
                    client.position,
                    publications.len()
                ));
            }
        }
        Ok(())
    }

    /// Checks that nothing is retained without clients.
    pub(super) fn check_empty(&self) -> Result<(), String> {
        for node in self.hosts.iter().filter_map(|host| host.node.as_ref()) {
            let counts = node.counts();
            if counts.mirrors + counts.owned + counts.requests > 0 {
                return Err(format!("{} retains {counts:?}", node.member().name));
            }
        }
        Ok(())
    }
}
