//! A node with a log, whose adapter is the test.

mod lives;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{ChannelSettings, ChannelState, Frame, Publish, PublishOutcome};
use ringmain_cluster::limits::{LOG_SILENT_AFTER, REQUEST_TIMEOUT, TICK_INTERVAL};
use ringmain_cluster::log::{
    Append, AppendOutcome, Binding, Entry, EntryId, FollowFrom, Health, Life, LifeEntry, LogEvent,
    LogRequest, Opened, Partition, Record,
};
use ringmain_cluster::member::{Member, Phase, Role, Status, Uid};
use ringmain_cluster::node::{Event, Hello, LinkId, LogOptions, Node, NodeRequest, SyncKind};
use ringmain_hub::history::{Epoch, HistoryOptions, StreamPosition};
use ringmain_hub::mail::{Idempotency, PublishOptions};
use ringmain_hub::protocol::Published;

pub(super) const PARTITION: Partition = Partition(0);

const SETTINGS: ChannelSettings = ChannelSettings {
    history: Some(HistoryOptions {
        publications: 10,
        bytes: 1 << 20,
        ttl: Duration::from_secs(60),
    }),
    position_ttl: Duration::from_secs(600),
    members: false,
};

/// A node, and the records of its one partition.
pub(super) struct Rig {
    pub(super) node: Node,
    now: Duration,
    pub(super) records: Vec<(u64, Bytes)>,
    pub(super) requests: VecDeque<LogRequest>,
    pub(super) binding: Binding,
}

impl Rig {
    pub(super) fn new() -> Rig {
        let member = Member {
            uid: Uid(7),
            name: "a".into(),
            zone: "".into(),
            role: Role::All,
            weight: 1,
        };
        let now = Duration::from_secs(1);
        let mut node = Node::new(member, 1, now);
        node.set_log(LogOptions {
            partitions: 1,
            takeover_time: Duration::from_secs(2),
            takeover_bytes: 1 << 20,
        });
        Rig {
            node,
            now,
            records: Vec::new(),
            requests: VecDeque::new(),
            binding: Binding(1),
        }
    }

    /// Returns a rig that reads the partition in its first life.
    pub(super) fn live() -> Rig {
        let mut rig = Rig::new();
        rig.run_for(Duration::from_secs(2));
        rig.open();
        rig.append_all();
        rig
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK_INTERVAL;
            self.node.tick(self.now);
            self.requests.extend(self.node.take_log_requests());
        }
    }

    pub(super) fn receive(&mut self, event: LogEvent) {
        self.node.receive_log(event, self.now);
        self.requests.extend(self.node.take_log_requests());
    }

    fn set_connected(&mut self, is_connected: bool) {
        self.receive(LogEvent::Health(Health {
            is_connected,
            reason: "".into(),
        }));
    }

    /// Answers the last request to follow.
    pub(super) fn open(&mut self) -> FollowFrom {
        self.run_for(TICK_INTERVAL * 3);
        let follows = self.requests.iter().filter_map(|request| match request {
            LogRequest::Follow { from, .. } => Some(*from),
            _ => None,
        });
        let from = follows.last().expect("the partition is followed");
        self.requests
            .retain(|request| !matches!(request, LogRequest::Follow { .. }));
        let end = self.records.last().map_or(0, |(number, _)| *number);
        let start = match from {
            FollowFrom::Number(number) => number,
            FollowFrom::Recent(_) => 1,
        };
        self.receive(LogEvent::Opened(Opened {
            partition: PARTITION,
            binding: self.binding,
            first: 1,
            end,
            from: start,
        }));
        let records: Vec<_> = self
            .records
            .iter()
            .filter(|(number, _)| *number >= start)
            .cloned()
            .collect();
        for (number, bytes) in records {
            self.deliver(number, &bytes);
        }
        from
    }

    fn deliver(&mut self, number: u64, bytes: &[u8]) {
        self.receive(LogEvent::Records {
            partition: PARTITION,
            records: vec![Record::read(number, 1000, bytes)],
            now_ms: 1000,
        });
    }

    /// Returns the appends that the node has requested.
    pub(super) fn take_appends(&mut self) -> Vec<Append> {
        self.run_for(TICK_INTERVAL);
        let requests = std::mem::take(&mut self.requests);
        let appends = requests.into_iter().filter_map(|request| match request {
            LogRequest::Append(append) => Some(append),
            _ => None,
        });
        appends.collect()
    }

    fn append(&mut self, append: &Append) -> u64 {
        let number = self.records.last().map_or(0, |(number, _)| *number) + 1;
        self.records.push((number, append.entry.clone()));
        let outcome = AppendOutcome::Appended(number);
        self.receive(LogEvent::Appended {
            id: append.id,
            outcome,
        });
        number
    }

    /// Appends all that the node has requested, and lets it read that.
    pub(super) fn append_all(&mut self) {
        for append in self.take_appends() {
            let number = self.append(&append);
            self.deliver(number, &append.entry);
        }
    }

    pub(super) fn publish(&mut self, request: u64, key: Option<&str>) {
        let publish = Publish {
            channel: "news".into(),
            settings: SETTINGS,
            published: Arc::new(Published {
                data: Bytes::from(format!("{request}")),
                ..Published::default()
            }),
            options: PublishOptions {
                transient: false,
                idempotency: key.map(|key| Idempotency {
                    key: key.into(),
                    window: Duration::from_secs(300),
                }),
            },
        };
        self.node
            .handle(NodeRequest::Publish { request, publish }, self.now);
        self.requests.extend(self.node.take_log_requests());
    }

    pub(super) fn subscribe(&mut self) {
        let interested = NodeRequest::Interested {
            channel: "news".into(),
            settings: SETTINGS,
            needs_state: false,
        };
        self.node.handle(interested, self.now);
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.node.poll_event()).collect()
    }

    /// Returns the outcomes of publications.
    fn outcomes(&mut self) -> Vec<(u64, PublishOutcome)> {
        let events = self.events().into_iter().filter_map(|event| match event {
            Event::Published { request, outcome } => Some((request, outcome)),
            _ => None,
        });
        events.collect()
    }

    /// Returns the states of mirrors: their relation and position.
    /// Returns the epoch of the channel, as a state for a new subscriber has it.
    pub(super) fn epoch(&mut self) -> Option<Epoch> {
        self.events();
        self.subscribe();
        self.states().last().and_then(|(_, at)| *at).map(|at| at.epoch)
    }

    fn states(&mut self) -> Vec<(SyncKind, Option<StreamPosition>)> {
        let events = self.events().into_iter().filter_map(|event| match event {
            Event::Synced { state, kind, .. } => Some((kind, state.position)),
            _ => None,
        });
        events.collect()
    }
}

fn is_life(append: &Append) -> bool {
    matches!(Entry::decode(&append.entry), Ok(Entry::Life { .. }))
}

fn position(outcome: PublishOutcome) -> StreamPosition {
    match outcome {
        PublishOutcome::Published(Some(position)) => position,
        other => panic!("expected a position, found {other:?}"),
    }
}

#[test]
fn a_publication_is_acknowledged_once_it_was_read() {
    let mut rig = Rig::live();
    rig.take_appends();
    rig.publish(1, None);
    let appends = rig.take_appends();
    assert_eq!(rig.outcomes(), [], "not appended");
    let number = rig.append(&appends[0]);
    assert_eq!(rig.outcomes(), [], "not read");
    rig.deliver(number, &appends[0].entry);
    let outcomes = rig.outcomes();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(position(outcomes[0].1).offset, number);
}

/// A broker that waits for its replicas delivers the entry before.
#[test]
fn a_publication_that_was_read_is_not_acknowledged_before_the_broker_has() {
    let outcomes = [
        AppendOutcome::Appended(0),
        AppendOutcome::Unknown,
        AppendOutcome::Refused,
    ];
    for outcome in outcomes {
        let mut rig = Rig::live();
        rig.take_appends();
        rig.publish(1, None);
        let append = rig.take_appends().remove(0);
        let number = rig.records.last().map_or(0, |(number, _)| *number) + 1;
        rig.deliver(number, &append.entry);
        assert_eq!(rig.outcomes(), [], "not acknowledged");
        rig.receive(LogEvent::Appended {
            id: append.id,
            outcome,
        });
        let (_, published) = rig.outcomes()[0];
        match outcome {
            AppendOutcome::Appended(_) => assert_eq!(position(published).offset, number),
            // It was read, so it was not refused.
            _ => assert_eq!(published, PublishOutcome::Unknown),
        }
    }
}

#[test]
fn a_key_is_published_once() {
    let mut rig = Rig::live();
    rig.publish(1, Some("k"));
    rig.publish(2, Some("k"));
    rig.append_all();
    rig.publish(3, Some("k"));
    // Its outcome is that of an append, too: the first one may have been read without having been acknowledged.
    rig.append_all();
    let outcomes = rig.outcomes();
    let positions: Vec<_> = outcomes.iter().map(|(_, outcome)| position(*outcome)).collect();
    assert_eq!(positions.len(), 3, "{outcomes:?}");
    assert!(
        positions.iter().all(|other| *other == positions[0]),
        "{positions:?}"
    );
}

#[test]
fn publications_wait_for_a_log_that_is_away_and_are_refused_then() {
    let mut rig = Rig::live();
    rig.receive(LogEvent::Closed { partition: PARTITION });
    rig.publish(1, None);
    rig.run_for(REQUEST_TIMEOUT - Duration::from_millis(200));
    assert_eq!(rig.outcomes(), []);
    rig.run_for(Duration::from_millis(400));
    assert_eq!(rig.outcomes(), [(1, PublishOutcome::Refused)]);
}

/// Beats show that the log delivers; a connection alone does not.
#[test]
fn a_node_is_ready_while_its_beats_arrive() {
    let mut rig = Rig::new();
    let is_ready = |rig: &Rig| rig.node.log_report(rig.now).expect("a log").is_ready;
    assert!(!is_ready(&rig), "not connected");
    rig.set_connected(true);
    rig.run_for(Duration::from_secs(2));
    rig.open();
    rig.append_all();
    assert!(!is_ready(&rig), "no beat");
    rig.run_for(Duration::from_secs(2));
    rig.append_all();
    rig.run_for(TICK_INTERVAL);
    assert!(is_ready(&rig));

    rig.run_for(LOG_SILENT_AFTER + Duration::from_secs(1));
    assert!(!is_ready(&rig), "silent");
    rig.append_all();
    assert!(is_ready(&rig));

    // A beat that was appended before the loss proves nothing.
    rig.run_for(Duration::from_secs(2));
    rig.set_connected(false);
    assert!(!is_ready(&rig), "lost");
    rig.set_connected(true);
    rig.append_all();
    rig.run_for(TICK_INTERVAL);
    assert!(!is_ready(&rig), "no beat since then");
    rig.run_for(Duration::from_secs(2));
    rig.append_all();
    rig.run_for(TICK_INTERVAL);
    assert!(is_ready(&rig));
}

/// Retention was configured after a node has subscribed.
#[test]
fn a_channel_that_enters_the_log_reaches_its_subscribers() {
    let mut rig = Rig::live();
    let settings = ChannelSettings {
        history: None,
        ..SETTINGS
    };
    let interested = NodeRequest::Interested {
        channel: "news".into(),
        settings,
        needs_state: false,
    };
    rig.node.handle(interested, rig.now);
    rig.events();
    rig.publish(1, None);
    rig.append_all();
    let published = rig.events().into_iter().filter_map(|event| match event {
        Event::Publication { offset, .. } => Some(offset),
        _ => None,
    });
    let published: Vec<_> = published.collect();
    let records = rig.records.iter().filter_map(|(number, bytes)| {
        let entry = Entry::decode(bytes).expect("an entry");
        matches!(entry, Entry::Publication { .. }).then_some(*number)
    });
    assert_eq!(published, records.collect::<Vec<_>>());
    assert_eq!(published.len(), 1);
}

/// The broker has the publication of an earlier life, which is in no history.
#[test]
fn a_repetition_of_a_publication_in_no_life_is_not_acknowledged() {
    let mut rig = Rig::live();
    rig.take_appends();
    rig.publish(1, Some("k"));
    let append = rig.take_appends().remove(0);
    let other = Entry::Life {
        id: EntryId {
            writer: Uid(9),
            append: 1,
        },
        life: LifeEntry {
            life: Life(99),
            binding: rig.binding,
        },
    };
    rig.deliver(5, &other.encode());
    rig.receive(LogEvent::Appended {
        id: append.id,
        outcome: AppendOutcome::Repeated(1),
    });
    rig.run_for(TICK_INTERVAL);
    assert_eq!(rig.outcomes(), [(1, PublishOutcome::Unknown)]);
}

/// A push gateway, whose channels another node owns.
fn gateway_and_owner(now: Duration) -> [Node; 2] {
    [(7, Role::Gateway), (8, Role::Server)].map(|(uid, role)| {
        let member = Member {
            uid: Uid(uid),
            name: "n".into(),
            zone: "".into(),
            role,
            weight: 1,
        };
        let mut node = Node::new(member, uid, now);
        node.set_log(LogOptions {
            partitions: 1,
            takeover_time: Duration::from_secs(2),
            takeover_bytes: 1 << 20,
        });
        node
    })
}

/// Links a node to an owner, and returns the number and the position of its next subscription.
fn subscription(node: &mut Node, owner: &Node, link: LinkId, now: Duration) -> (u32, Option<u64>) {
    let Frame::Hello { member, version, .. } = owner.hello() else {
        panic!("expected a hello");
    };
    assert!(node.link_up(link, Hello { member, version }, true, now));
    let phase = Phase::Active;
    node.receive(
        link,
        Frame::Status(Status {
            serial: 2,
            phase,
            clients: 0,
        }),
        now,
    );
    let frames: Vec<Frame> = std::iter::from_fn(|| node.poll_send(link)).collect();
    let found = frames.into_iter().rev().find_map(|frame| match frame {
        Frame::Subscribe { number, position, .. } => Some((number, position.map(|position| position.offset))),
        _ => None,
    });
    found.expect("a subscription")
}

/// The owner's progress raises the position that a mirror asks from, but not the one that the workers have: they continue from their own.
#[test]
fn workers_continue_from_their_own_position_after_progress() {
    let now = Duration::from_secs(1);
    let [mut node, owner] = gateway_and_owner(now);
    let channel: Arc<str> = "c".into();
    let epoch = Epoch::new(77);
    let published = || Arc::new(Published::default());
    let state = |offset, floor, publications| ChannelState {
        position: Some(StreamPosition { offset, epoch }),
        floor,
        publications,
    };
    node.handle(
        NodeRequest::Interested {
            channel,
            settings: SETTINGS,
            needs_state: false,
        },
        now,
    );
    let (number, position) = subscription(&mut node, &owner, LinkId(1), now);
    assert_eq!(position, None);
    node.receive(
        LinkId(1),
        Frame::State {
            number,
            state: state(5, 0, Vec::new()),
        },
        now,
    );
    let publication = Frame::Publication {
        number,
        offset: 6,
        published: published(),
    };
    node.receive(LinkId(1), publication, now);
    let progress = Frame::Progress {
        partition: 0,
        epoch,
        number: 9,
    };
    node.receive(LinkId(1), progress, now);
    node.link_down(LinkId(1), now);
    while node.poll_event().is_some() {}

    let (number, position) = subscription(&mut node, &owner, LinkId(2), now);
    assert_eq!(position, Some(9));
    let missed = state(12, 9, vec![(11, published())]);
    node.receive(
        LinkId(2),
        Frame::State {
            number,
            state: missed,
        },
        now,
    );
    let synced = std::iter::from_fn(|| node.poll_event()).find_map(|event| match event {
        Event::Synced { state, kind, .. } => Some((state, kind)),
        _ => None,
    });
    let expected = state(12, 6, vec![(11, published())]);
    assert_eq!(synced, Some((expected, SyncKind::Continued)));
}
