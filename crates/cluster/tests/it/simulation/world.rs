//! The nodes, their links, and the events that happen to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{Answer, ChannelSettings, Frame, FrameDecoder, Publish};
use ringmain_cluster::member::{Member, Role, Uid};
use ringmain_cluster::node::{Event, Hello, LinkId, Mutation, Node, NodeRequest};
use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::{ChannelQuery, PublishOptions};
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

const CHANNELS: usize = 3;
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

struct Host {
    node: Option<Node>,
    paused_until: Duration,
    shards: BTreeMap<Arc<str>, Shard>,
    /// The workers take events slowly: so many a step.
    events_per_step: usize,
}

/// See the module.
pub(super) struct World {
    random: fastrand::Rng,
    now: Duration,
    hosts: Vec<Host>,
    links: Vec<Option<Link>>,
    /// Pairs of nodes that cannot reach each other.
    cut: BTreeSet<(usize, usize)>,
    clients: Vec<Client>,
    oracle: Oracle,
    published: u64,
    uids: u64,
    mutation: Option<Mutation>,
    answers: BTreeMap<u64, Answer>,
    requests: u64,
    names: u64,
}

fn channel(number: usize) -> Arc<str> {
    format!("c:{number}").into()
}

impl World {
    pub(super) fn new(seed: u64, mutation: Option<Mutation>) -> World {
        let mut world = World {
            random: fastrand::Rng::with_seed(seed),
            now: Duration::from_secs(1),
            hosts: Vec::new(),
            links: Vec::new(),
            cut: BTreeSet::new(),
            clients: Vec::new(),
            oracle: Oracle::default(),
            published: 0,
            uids: 0,
            mutation,
            answers: BTreeMap::new(),
            requests: 0,
            names: 0,
        };
        for _ in 0..world.draw(2, 5) {
            let node = world.start();
            world.hosts.push(Host {
                node: Some(node),
                paused_until: Duration::ZERO,
                shards: BTreeMap::new(),
                events_per_step: usize::MAX,
            });
        }
        for number in 0..CLIENTS {
            world.clients.push(Client {
                name: "".into(),
                channel: channel(number % CHANNELS),
                position: None,
                node: None,
                is_waiting: false,
                last: Vec::new(),
                reported_gaps: 0,
            });
        }
        world
    }

    pub(super) fn draw(&mut self, from: u64, to: u64) -> u64 {
        self.random.u64(from..to)
    }

    fn pick(&mut self, count: usize) -> usize {
        self.random.usize(0..count)
    }

    fn start(&mut self) -> Node {
        self.uids += 1;
        let member = Member {
            uid: Uid(self.random.u64(..)),
            name: format!("n{}", self.uids).into(),
            zone: "".into(),
            role: Role::All,
            weight: self.random.u16(1..4),
        };
        let mut node = Node::new(member, self.random.u64(..), self.now);
        if let Some(mutation) = self.mutation {
            node.plant(mutation);
        }
        node
    }

    /// Lets something happen.
    pub(super) fn step(&mut self) {
        let host = self.pick(self.hosts.len());
        match self.draw(0, 30) {
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
            9 if self.hosts[host].node.is_none() => {
                let node = self.start();
                self.hosts[host].node = Some(node);
            }
            10..=14 => self.toggle(host),
            15 | 16 => {
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

    fn drop_links(&mut self, is_selected: impl Fn([usize; 2]) -> bool) {
        for id in 0..self.links.len() {
            if self.links[id].as_ref().is_some_and(|link| is_selected(link.ends)) {
                self.close(id);
            }
        }
    }

    /// Closes a link: both ends notice, and bytes in flight are lost.
    fn close(&mut self, id: usize) {
        let Some(link) = self.links[id].take() else { return };
        for (end, host) in link.ends.into_iter().enumerate() {
            let now = self.now;
            if let Some(node) = &mut self.hosts[host].node
                && link.is_up[end]
            {
                node.link_down(LinkId(id as u64), now);
            }
        }
    }

    fn kill(&mut self, host: usize) {
        if self.hosts.iter().filter(|host| host.node.is_some()).count() <= 1 {
            return;
        }
        self.hosts[host].node = None;
        self.hosts[host].shards.clear();
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

    fn connect(&mut self, index: usize, host: usize) {
        if self.hosts[host].node.is_none() || self.hosts[host].paused_until > self.now {
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
                settings: SETTINGS,
                needs_state: false,
            },
            now,
        );
        node.handle(NodeRequest::Joined { channel, info }, now);
    }

    fn disconnect(&mut self, index: usize) {
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

    fn publish(&mut self, host: usize, number: usize, size: usize) {
        self.published += 1;
        let mut data = format!("{}:", self.published).into_bytes();
        data.resize(data.len() + size, b'x');
        let publish = Publish {
            channel: channel(number),
            settings: SETTINGS,
            published: Arc::new(Published {
                data: Bytes::from(data),
                ..Published::default()
            }),
            options: PublishOptions::default(),
        };
        let (now, request) = (self.now, self.published);
        if self.hosts[host].paused_until > now {
            return;
        }
        if let Some(node) = &mut self.hosts[host].node {
            node.handle(NodeRequest::Publish { request, publish }, now);
        }
    }

    pub(super) fn publish_everywhere(&mut self) {
        let host = self.hosts.iter().position(|host| host.node.is_some());
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
        for index in 0..self.clients.len() {
            let host = self.pick(self.hosts.len());
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
            for id in 0..self.links.len() {
                self.carry(id);
            }
            for host in 0..self.hosts.len() {
                self.run_host(host)?;
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
                    || self.links.iter().flatten().any(is_dialed)
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
                self.links.push(Some(link));
            }
        }
    }

    /// Delivers the bytes that have arrived, unless the receiver is paused.
    fn carry(&mut self, id: usize) {
        let now = self.now;
        for end in 0..2 {
            let Some(link) = &mut self.links[id] else { return };
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
        }
        let Some(node) = &mut self.hosts[host].node else {
            return Ok(());
        };
        for (id, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
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

    fn handle_event(&mut self, host: usize, event: Event) -> Result<(), String> {
        let (now, oracle) = (self.now, &mut self.oracle);
        let clients = self.clients.iter_mut();
        let here = |channel: &Arc<str>| -> Vec<&mut Client> {
            let is_here = |client: &&mut Client| client.node == Some(host) && client.channel == *channel;
            clients.filter(is_here).collect()
        };
        let shards = &mut self.hosts[host].shards;
        match event {
            Event::Synced { channel, state, kind } => {
                let shard = shards.entry(Arc::clone(&channel)).or_insert_with(Shard::new);
                shard.sync(state, kind, &mut here(&channel), oracle, now)?;
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
            Event::Answer { request, answer } => drop(self.answers.insert(request, answer)),
            Event::Close(id) => self.close(id.0 as usize),
            Event::Call { .. }
            | Event::CallFinished { .. }
            | Event::Presence { .. }
            | Event::Published { .. } => {}
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

    fn check_channel(&mut self, number: usize) -> Result<(), String> {
        let name = channel(number);
        let host = self.hosts.iter().position(|host| host.node.is_some());
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
                    settings: SETTINGS,
                    query,
                },
                now,
            );
        }
        self.run_for(Duration::from_secs(2))?;
        let Some(Answer::Presence(members)) = self.answers.remove(&requests[0]) else {
            return Err(format!("presence of {name} was not answered"));
        };
        let present: BTreeSet<String> = members.iter().map(|info| info.client.clone()).collect();
        let connected = self.clients.iter().filter(|client| client.channel == name);
        let connected: BTreeSet<String> = connected
            .filter(|client| client.node.is_some())
            .map(|client| client.name.to_string())
            .collect();
        if present != connected {
            return Err(format!(
                "presence of {name} is {present:?}, connected are {connected:?}"
            ));
        }
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
