//! Planned moves of channels between a few nodes without faults, frame by frame.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{Answer, ChannelSettings, Frame, HandoverPart, Publish, PublishOutcome};
use ringmain_cluster::limits;
use ringmain_cluster::member::{Member, Phase, Role, Uid};
use ringmain_cluster::node::{Event, Hello, LinkId, Node, NodeRequest, SyncKind};
use ringmain_hub::history::{HistoryOptions, HistoryQuery};
use ringmain_hub::mail::{ChannelQuery, EpochFilter, Idempotency, PublishOptions};
use ringmain_hub::protocol::{ClientInfo, Published};

const SETTINGS: ChannelSettings = ChannelSettings {
    history: Some(HistoryOptions {
        publications: 10,
        bytes: 1 << 20,
        ttl: Duration::from_secs(60),
    }),
    position_ttl: Duration::from_secs(60),
    members: true,
};

/// Nodes with a link between each two, on which frames arrive at once.
struct Mesh {
    nodes: Vec<Node>,
    versions: Vec<u16>,
    now: Duration,
    events: Vec<(usize, Event)>,
    /// The kinds of frames that each node has received.
    received: BTreeMap<usize, Vec<u8>>,
    requests: u64,
}

fn link(a: usize, b: usize) -> LinkId {
    LinkId((a.min(b) * 16 + a.max(b)) as u64 + 1)
}

impl Mesh {
    /// Creates nodes of these roles and versions, and lets them join.
    fn new(nodes: &[(Role, u16)]) -> Mesh {
        let mut mesh = Mesh {
            nodes: Vec::new(),
            versions: Vec::new(),
            now: Duration::from_secs(1),
            events: Vec::new(),
            received: BTreeMap::new(),
            requests: 0,
        };
        for (role, version) in nodes {
            mesh.add(*role, *version);
        }
        mesh.run_for(limits::STARTUP_GRACE + limits::BEAT_INTERVAL);
        mesh
    }

    fn add(&mut self, role: Role, version: u16) -> usize {
        let index = self.nodes.len();
        let member = Member {
            uid: Uid(index as u64 + 1),
            name: format!("n{index}").into(),
            zone: "".into(),
            role,
            weight: 1,
        };
        let mut node = Node::new(member, index as u64, self.now);
        node.limit_version(version);
        for other in 0..index {
            let hello = |node: &Node, version| Hello {
                member: node.member().clone(),
                version,
            };
            let (own, others) = (
                hello(&node, version),
                hello(&self.nodes[other], self.versions[other]),
            );
            assert!(node.link_up(link(index, other), others, true, self.now));
            assert!(self.nodes[other].link_up(link(index, other), own, false, self.now));
        }
        self.nodes.push(node);
        self.versions.push(version);
        self.exchange();
        index
    }

    /// Exchanges frames and takes events until there are none.
    fn exchange(&mut self) {
        loop {
            let mut is_quiet = true;
            for from in 0..self.nodes.len() {
                for to in 0..self.nodes.len() {
                    while let Some(frame) = self.nodes[from].poll_send(link(from, to)) {
                        self.received.entry(to).or_default().push(frame.kind());
                        self.nodes[to].receive(link(from, to), frame, self.now);
                        is_quiet = false;
                    }
                }
                while let Some(event) = self.nodes[from].poll_event() {
                    self.events.push((from, event));
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += limits::TICK_INTERVAL;
            for index in 0..self.nodes.len() {
                self.nodes[index].tick(self.now);
            }
            self.exchange();
        }
    }

    fn handle(&mut self, node: usize, request: NodeRequest) {
        self.nodes[node].handle(request, self.now);
        self.exchange();
    }

    /// Returns a channel that a node owns in the view of another one.
    fn channel_of(&self, owner: usize, viewer: usize) -> Arc<str> {
        let uid = self.nodes[owner].member().uid;
        let mut names = (0..).map(|number| format!("c{number}"));
        let name = names.find(|name| self.nodes[viewer].owner_of(name) == Some(uid));
        name.expect("a channel").into()
    }

    fn publish(
        &mut self,
        node: usize,
        channel: &Arc<str>,
        data: &'static str,
        key: Option<&str>,
    ) -> PublishOutcome {
        self.requests += 1;
        let request = self.requests;
        let publish = Publish {
            channel: Arc::clone(channel),
            settings: SETTINGS,
            published: Arc::new(Published {
                data: Bytes::from_static(data.as_bytes()),
                ..Published::default()
            }),
            options: PublishOptions {
                idempotency: key.map(|key| Idempotency {
                    key: key.into(),
                    window: Duration::from_secs(60),
                }),
                ..PublishOptions::default()
            },
        };
        self.handle(node, NodeRequest::Publish { request, publish });
        let outcome = self.events.iter().find_map(|(_, event)| match event {
            Event::Published { request: of, outcome } if *of == request => Some(*outcome),
            _ => None,
        });
        outcome.expect("an outcome")
    }

    fn query(&mut self, node: usize, channel: &Arc<str>, query: ChannelQuery) -> Answer {
        self.requests += 1;
        let request = self.requests;
        let channel = Arc::clone(channel);
        let settings = SETTINGS;
        self.handle(
            node,
            NodeRequest::Query {
                request,
                channel,
                settings,
                query,
            },
        );
        let answer = self.events.iter().find_map(|(_, event)| match event {
            Event::Answer { request: of, answer } if *of == request => Some(answer.clone()),
            _ => None,
        });
        answer.expect("an answer")
    }

    fn subscribe(&mut self, node: usize, channel: &Arc<str>, client: &str) {
        self.handle(
            node,
            NodeRequest::Interested {
                channel: Arc::clone(channel),
                settings: SETTINGS,
                needs_state: false,
            },
        );
        let info = Arc::new(ClientInfo {
            client: client.into(),
            ..ClientInfo::default()
        });
        let channel = Arc::clone(channel);
        self.handle(node, NodeRequest::Joined { channel, info });
    }

    /// Lets a node end, as its peers see it.
    fn end(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            self.nodes[other].link_down(link(node, other), self.now);
        }
        self.exchange();
    }
}

fn history() -> ChannelQuery {
    ChannelQuery::History {
        query: HistoryQuery {
            since: None,
            limit: 100,
            reverse: false,
        },
        epoch: EpochFilter::Any,
    }
}

#[test]
fn a_leaving_node_hands_over_everything_that_it_knows_of_a_channel() {
    let mut mesh = Mesh::new(&[(Role::All, 2); 3]);
    let channel = mesh.channel_of(0, 1);
    mesh.subscribe(1, &channel, "one");
    mesh.subscribe(2, &channel, "two");
    let PublishOutcome::Published(Some(first)) = mesh.publish(1, &channel, "a", Some("key")) else {
        panic!("not published");
    };
    let retained = mesh.query(1, &channel, history());
    mesh.events.clear();
    mesh.nodes[0].leave(mesh.now);
    mesh.exchange();
    mesh.run_for(limits::LEAVE_QUIET + limits::TICK_INTERVAL);
    assert!(mesh.nodes[0].has_left());
    mesh.end(0);

    assert_eq!(mesh.query(2, &channel, history()), retained);
    let Answer::Presence(members) = mesh.query(1, &channel, ChannelQuery::Presence) else {
        panic!("no presence");
    };
    let names: Vec<&str> = members.iter().map(|info| &*info.client).collect();
    assert_eq!(names, ["one", "two"]);
    // The key is remembered, and offsets continue.
    let repeated = mesh.publish(2, &channel, "a", Some("key"));
    assert_eq!(repeated, PublishOutcome::Published(Some(first)));
    let Some(PublishOutcome::Published(Some(second))) = Some(mesh.publish(2, &channel, "b", None)) else {
        panic!("not published");
    };
    assert_eq!((second.epoch, second.offset), (first.epoch, first.offset + 1));
    for (node, event) in &mesh.events {
        match event {
            Event::Synced { kind, .. } => assert_eq!(*kind, SyncKind::Continued, "{node}"),
            Event::Presence { info, is_join, .. } => panic!("{node}: {} joined: {is_join}", info.client),
            Event::Lost { .. } => panic!("{node} has lost the channel"),
            _ => {}
        }
    }
}

#[test]
fn a_mirror_does_not_wait_for_a_named_owner_that_was_killed() {
    let mut mesh = Mesh::new(&[(Role::All, 2); 3]);
    let channel = mesh.channel_of(0, 2);
    mesh.nodes[2].handle(
        NodeRequest::Interested {
            channel: Arc::clone(&channel),
            settings: SETTINGS,
            needs_state: false,
        },
        mesh.now,
    );
    let sent = std::iter::from_fn(|| mesh.nodes[2].poll_send(link(2, 0)));
    let sent: Vec<Frame> = sent.collect();
    let number = sent.iter().find_map(|frame| match frame {
        Frame::Subscribe { number, .. } => Some(*number),
        _ => None,
    });
    let number = number.expect("a subscription");
    for frame in sent {
        mesh.nodes[0].receive(link(2, 0), frame, mesh.now);
    }
    mesh.exchange();
    // The owner names another one, which ends before it receives the subscription.
    let named = mesh.nodes[1].member().uid;
    let moved = Frame::Moved { number, to: named };
    mesh.nodes[2].receive(link(2, 0), moved, mesh.now);
    while mesh.nodes[2].poll_send(link(2, 1)).is_some() {}
    mesh.end(1);
    mesh.events.clear();
    mesh.run_for(limits::REFUSED_AFTER);
    for node in [0, 2] {
        mesh.nodes[node].note_refused(named, mesh.now);
    }
    mesh.run_for(limits::GONE_AFTER + limits::HOLD_TIME + limits::RETRY_INTERVAL);
    let is_synced = |(node, event): &(usize, Event)| *node == 2 && matches!(event, Event::Synced { .. });
    assert!(mesh.events.iter().any(is_synced), "{:?}", mesh.events);
}

#[test]
fn a_joining_node_receives_channels_without_subscribers_too() {
    let mut mesh = Mesh::new(&[(Role::All, 2)]);
    let names: Vec<Arc<str>> = (0..40).map(|number| format!("c{number}").into()).collect();
    let mut before = Vec::new();
    for name in &names {
        before.push(mesh.publish(0, name, "a", None));
    }
    mesh.add(Role::Server, 2);
    mesh.run_for(limits::STARTUP_GRACE + limits::BEAT_INTERVAL);
    assert_eq!(mesh.nodes[1].status().phase, Phase::Active);
    let moved = mesh.nodes[1].counts().owned;
    assert!((8..32).contains(&moved), "{moved}");
    assert_eq!(mesh.nodes[0].counts().owned + moved, names.len());
    for (name, before) in names.iter().zip(before) {
        let PublishOutcome::Published(Some(before)) = before else {
            panic!("not published");
        };
        let Answer::History {
            publications,
            position,
        } = mesh.query(0, name, history())
        else {
            panic!("no history of {name}");
        };
        assert_eq!((publications.len(), position), (1, before), "{name}");
    }
}

#[test]
fn a_node_of_version_1_works_with_newer_ones_and_receives_none_of_their_frames() {
    let mut mesh = Mesh::new(&[(Role::All, 2), (Role::All, 1), (Role::All, 2)]);
    for owner in 0..3 {
        let channel = mesh.channel_of(owner, 0);
        for node in 0..3 {
            assert_eq!(
                mesh.nodes[node].owner_of(&channel),
                mesh.nodes[0].owner_of(&channel)
            );
            mesh.subscribe(node, &channel, &format!("client-{node}"));
        }
        mesh.events.clear();
        let outcome = mesh.publish((owner + 1) % 3, &channel, "a", None);
        assert!(
            matches!(outcome, PublishOutcome::Published(Some(_))),
            "{outcome:?}"
        );
        let delivered = mesh.events.iter();
        let delivered = delivered.filter(|(_, event)| matches!(event, Event::Publication { .. }));
        assert_eq!(delivered.count(), 3, "owner {owner}");
    }
    // A newer one that leaves moves its channels; the older one follows when the link is gone.
    let channel = mesh.channel_of(0, 2);
    mesh.nodes[0].leave(mesh.now);
    mesh.exchange();
    mesh.run_for(limits::LEAVE_QUIET + limits::TICK_INTERVAL);
    assert!(mesh.nodes[0].has_left());
    mesh.end(0);
    mesh.run_for(limits::GONE_AFTER + limits::BEAT_INTERVAL);
    let outcome = mesh.publish(1, &channel, "b", None);
    let PublishOutcome::Published(Some(position)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(position.offset >= 1);
    let newest = Frame::Resumed.kind();
    let kinds = mesh.received.get(&1).expect("frames");
    assert!(kinds.iter().all(|kind| *kind <= newest), "{kinds:?}");
}

#[test]
fn gateways_without_a_server_refuse_at_once() {
    let mut mesh = Mesh::new(&[(Role::Gateway, 2); 2]);
    let channel: Arc<str> = "c".into();
    assert_eq!(mesh.publish(0, &channel, "a", None), PublishOutcome::Refused);
    assert_eq!(
        mesh.query(1, &channel, ChannelQuery::Presence),
        Answer::Unreachable
    );
    assert_eq!(mesh.nodes[0].counts().owned, 0);
    // A server that joins serves them.
    mesh.add(Role::Server, 2);
    mesh.run_for(limits::STARTUP_GRACE + limits::BEAT_INTERVAL);
    let outcome = mesh.publish(0, &channel, "a", None);
    assert!(
        matches!(outcome, PublishOutcome::Published(Some(_))),
        "{outcome:?}"
    );
    assert_eq!(mesh.nodes[2].counts().owned, 1);
}

#[test]
fn a_request_that_no_owner_takes_is_refused_after_the_limit() {
    let mut mesh = Mesh::new(&[(Role::Gateway, 2), (Role::Server, 2)]);
    let channel: Arc<str> = "c".into();
    mesh.end(1);
    let publish = Publish {
        channel,
        settings: SETTINGS,
        published: Arc::default(),
        options: PublishOptions::default(),
    };
    let start = mesh.now;
    mesh.nodes[0].handle(NodeRequest::Publish { request: 7, publish }, start);
    // The server is removed after its silence; then there is none.
    while !mesh
        .events
        .iter()
        .any(|(_, event)| matches!(event, Event::Published { .. }))
    {
        assert!(mesh.now - start <= limits::REQUEST_TIMEOUT, "no outcome");
        mesh.now += limits::TICK_INTERVAL;
        mesh.nodes[0].tick(mesh.now);
        mesh.exchange();
    }
    assert!(
        mesh.now - start >= Duration::from_secs(2),
        "it has waited for the server"
    );
    let refused = Event::Published {
        request: 7,
        outcome: PublishOutcome::Refused,
    };
    assert!(mesh.events.iter().any(|(_, event)| *event == refused));
}

#[test]
fn a_channel_that_exceeds_the_limit_of_a_move_closes_the_link() {
    let mut mesh = Mesh::new(&[(Role::All, 2), (Role::All, 2)]);
    let published = Arc::new(Published {
        data: vec![b'x'; 1 << 20].into(),
        info: None,
        tags: BTreeMap::new(),
        time: 0,
        ..Published::default()
    });
    let channel: Arc<str> = "large".into();
    let mut parts = 0;
    while mesh.nodes[0].is_linked(Uid(2)) {
        parts += 1;
        let part = HandoverPart::Publications(vec![(parts, Duration::ZERO, Arc::clone(&published))]);
        let frame = Frame::Handover {
            channel: Arc::clone(&channel),
            part,
            is_last: false,
        };
        mesh.nodes[0].receive(link(0, 1), frame, mesh.now);
    }
    let bytes = parts << 20;
    assert!(
        bytes <= limits::HANDOVER_RECEIVED_BYTES + (1 << 20),
        "{bytes} bytes"
    );
    assert_eq!(mesh.nodes[0].poll_event(), Some(Event::Close(link(0, 1))));
}
