//! Ownership, calls, and membership of nodes without faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{ChannelSettings, Frame, Publish, VERSION};
use ringmain_cluster::limits;
use ringmain_cluster::member::{Member, Role, Uid, owner};
use ringmain_cluster::node::{Event, Hello, LinkId, Node, NodeRequest};
use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::PublishOptions;
use ringmain_hub::protocol::Published;

fn member(uid: u64, role: Role, weight: u16) -> Member {
    Member {
        uid: Uid(uid),
        name: format!("n{uid}").into(),
        zone: "".into(),
        role,
        weight,
    }
}

fn count_owned(members: &[Member]) -> BTreeMap<Uid, usize> {
    let mut counts = BTreeMap::new();
    for number in 0..8000 {
        let owner = owner(&format!("c:{number}"), members.iter()).expect("an owner");
        *counts.entry(owner).or_default() += 1;
    }
    counts
}

#[test]
fn channels_are_shared_by_weight() {
    let members = [
        member(1, Role::All, 1),
        member(2, Role::Server, 3),
        member(3, Role::Gateway, 9),
    ];
    let counts = count_owned(&members);
    let shares = [counts[&Uid(1)], counts[&Uid(2)]];
    assert_eq!(counts.get(&Uid(3)), None, "a gateway owns nothing");
    assert!((1800..2200).contains(&shares[0]), "{shares:?}");
}

#[test]
fn a_node_that_joins_takes_its_share_only() {
    let members: Vec<Member> = (1..=4).map(|uid| member(uid, Role::All, 1)).collect();
    let mut moved = 0;
    for number in 0..4000 {
        let channel = format!("c:{number}");
        let before = owner(&channel, members[..3].iter());
        let after = owner(&channel, members.iter());
        if before != after {
            assert_eq!(after, Some(Uid(4)));
            moved += 1;
        }
    }
    assert!((850..1150).contains(&moved), "{moved} of 4000");
}

#[test]
fn a_channel_without_a_server_has_no_owner() {
    let members = [member(1, Role::Gateway, 1)];
    assert_eq!(owner("c", members.iter()), None);
}

fn hello(node: &Node) -> Hello {
    Hello {
        member: node.member().clone(),
        version: VERSION,
    }
}

/// Two nodes, and the link between them.
struct Pair([Node; 2]);

const LINK: LinkId = LinkId(1);

impl Pair {
    fn new(now: Duration) -> Pair {
        let mut nodes = [1, 2].map(|uid| Node::new(member(uid, Role::All, 1), uid, now));
        let hellos = [hello(&nodes[0]), hello(&nodes[1])];
        assert!(nodes[0].link_up(LINK, hellos[1].clone(), true, now));
        assert!(nodes[1].link_up(LINK, hellos[0].clone(), false, now));
        Pair(nodes)
    }

    /// Exchanges frames until there are none.
    fn exchange(&mut self, now: Duration) {
        loop {
            let mut is_quiet = true;
            for from in 0..2 {
                while let Some(frame) = self.0[from].poll_send(LINK) {
                    self.0[1 - from].receive(LINK, frame, now);
                    is_quiet = false;
                }
            }
            if is_quiet {
                return;
            }
        }
    }
}

#[test]
fn a_call_reports_the_nodes_that_have_run_it() {
    let now = Duration::from_secs(1);
    let mut pair = Pair::new(now);
    let payload = Bytes::from_static(b"disconnect");
    let call = |request| NodeRequest::Call {
        request,
        payload: Bytes::from_static(b"disconnect"),
    };
    pair.0[0].handle(call(5), now);
    pair.exchange(now);
    let Some(Event::Call {
        from,
        call: number,
        payload: received,
    }) = pair.0[1].poll_event()
    else {
        panic!("no call");
    };
    assert_eq!((from, received), (Uid(1), payload));
    pair.0[1].handle(
        NodeRequest::CallResult {
            from,
            call: number,
            payload: Bytes::from_static(b"1"),
        },
        now,
    );
    pair.exchange(now);
    let results = vec![(Uid(2), Some(Bytes::from_static(b"1")))];
    assert_eq!(
        pair.0[0].poll_event(),
        Some(Event::CallFinished { request: 5, results })
    );

    // A node that does not respond is reported as such.
    pair.0[0].handle(call(6), now);
    pair.0[0].tick(now + limits::REQUEST_TIMEOUT);
    let results = vec![(Uid(2), None)];
    let events: Vec<_> = std::iter::from_fn(|| pair.0[0].poll_event()).collect();
    assert!(
        events.contains(&Event::CallFinished { request: 6, results }),
        "{events:?}"
    );
}

#[test]
fn a_silent_node_is_removed_after_the_limit() {
    let start = Duration::from_secs(1);
    let mut pair = Pair::new(start);
    let mut now = start;
    while now < start + limits::GONE_AFTER {
        assert_eq!(pair.0[0].counts().nodes, 1, "{now:?}");
        now += limits::BEAT_INTERVAL;
        pair.0[0].tick(now);
    }
    assert_eq!(pair.0[0].counts().nodes, 0);
    assert_eq!(pair.0[0].poll_event(), Some(Event::Close(LINK)));
}

#[test]
fn of_two_links_both_nodes_keep_the_same() {
    let now = Duration::from_secs(1);
    // The node with the smaller identity has opened the first one, and then the second one.
    for first_dialed in [true, false] {
        let mut nodes = [1, 2].map(|uid| Node::new(member(uid, Role::All, 1), uid, now));
        let hellos = [hello(&nodes[0]), hello(&nodes[1])];
        let mut kept = Vec::new();
        for (index, node) in nodes.iter_mut().enumerate() {
            let other = &hellos[1 - index];
            let is_dialed = first_dialed == (index == 0);
            assert!(node.link_up(LinkId(1), other.clone(), is_dialed, now));
            let is_second = node.link_up(LinkId(2), other.clone(), !is_dialed, now);
            kept.push(if is_second { 2 } else { 1 });
        }
        let expected = if first_dialed { 1 } else { 2 };
        assert_eq!(kept, [expected; 2]);
    }
}

/// A pair whose nodes own channels, and the time.
fn active_pair() -> (Pair, Duration) {
    let mut now = Duration::from_secs(1);
    let mut pair = Pair::new(now);
    for _ in 0..100 {
        now += Duration::from_millis(100);
        pair.0.iter_mut().for_each(|node| node.tick(now));
        pair.exchange(now);
    }
    (pair, now)
}

/// Channels whose owner is the first node of a pair, with so many publications of a size, and a mirror at the second one.
fn publish_large(
    pair: &mut Pair,
    channels: usize,
    publications: u64,
    bytes: usize,
    now: Duration,
) -> Vec<Arc<str>> {
    let settings = ChannelSettings {
        history: Some(HistoryOptions {
            publications: 1000,
            bytes: 1 << 30,
            ttl: Duration::from_secs(3600),
        }),
        position_ttl: Duration::from_secs(3600),
        members: false,
    };
    let names = (0..1000).map(|number| Arc::from(format!("c:{number}")));
    let owned = |name: &Arc<str>| pair.0[0].owner_of(name) == Some(Uid(1));
    let names: Vec<Arc<str>> = names.filter(owned).take(channels).collect();
    assert_eq!(names.len(), channels);
    for name in &names {
        for request in 0..publications {
            let publish = Publish {
                channel: Arc::clone(name),
                settings,
                published: Arc::new(Published {
                    data: vec![b'x'; bytes].into(),
                    info: None,
                    tags: BTreeMap::new(),
                    time: 0,
                    ..Published::default()
                }),
                options: PublishOptions::default(),
            };
            pair.0[0].handle(NodeRequest::Publish { request, publish }, now);
        }
    }
    for name in &names {
        let interested = NodeRequest::Interested {
            channel: Arc::clone(name),
            settings,
            needs_state: false,
        };
        pair.0[1].handle(interested, now);
    }
    names
}

/// Returns the channels whose state the second node has, and grants their credit.
fn synced(pair: &mut Pair) -> usize {
    let mut count = 0;
    while let Some(event) = pair.0[1].poll_event() {
        count += usize::from(matches!(event, Event::Synced { .. }));
    }
    count
}

#[test]
fn states_of_many_channels_wait_for_credit() {
    let (mut pair, mut now) = active_pair();
    let channels = 20;
    publish_large(&mut pair, channels, 10, 100 << 10, now);
    // Subscriptions arrive; the states leave as a slow link takes them.
    while let Some(frame) = pair.0[1].poll_send(LINK) {
        pair.0[0].receive(LINK, frame, now);
    }
    let mut waiting = 0;
    let mut states = Vec::new();
    while let Some(frame) = pair.0[0].poll_send(LINK) {
        if let Frame::State { state, .. } = &frame {
            waiting += state.cost();
        }
        states.push(frame);
    }
    let allowed = limits::WINDOW_BYTES + (1 << 20) + 10 * limits::PUBLICATION_OVERHEAD;
    assert!(waiting <= allowed, "{waiting} bytes on the link");
    for frame in states {
        pair.0[1].receive(LINK, frame, now);
    }
    let mut count = synced(&mut pair);
    for _ in 0..channels {
        now += Duration::from_millis(100);
        pair.exchange(now);
        count += synced(&mut pair);
    }
    assert_eq!(count, channels);
}

#[test]
fn a_node_whose_frame_arrives_slowly_is_not_silent() {
    let (mut pair, mut now) = active_pair();
    publish_large(&mut pair, 8, 10, 100 << 10, now);
    while let Some(frame) = pair.0[1].poll_send(LINK) {
        pair.0[0].receive(LINK, frame, now);
    }
    let frames: Vec<Frame> = std::iter::from_fn(|| pair.0[0].poll_send(LINK)).collect();
    // Parts of the first frame arrive for a minute; beats of the owner wait behind it.
    for _ in 0..600 {
        now += Duration::from_millis(100);
        pair.0[1].note_bytes(LINK, now);
        for node in &mut pair.0 {
            node.tick(now);
        }
        while let Some(frame) = pair.0[1].poll_send(LINK) {
            pair.0[0].receive(LINK, frame, now);
        }
        while pair.0[0].poll_send(LINK).is_some() {}
    }
    assert!(pair.0[0].is_linked(Uid(2)) && pair.0[1].is_linked(Uid(1)));
    for frame in frames {
        pair.0[1].receive(LINK, frame, now);
    }
    pair.exchange(now);
    assert!(synced(&mut pair) > 0);
}

#[test]
fn only_a_node_that_has_not_left_counts_as_removed() {
    for (leaves, removed) in [(true, 0), (false, 1)] {
        let (mut pair, mut now) = active_pair();
        if leaves {
            pair.0[1].leave(now);
            pair.exchange(now);
        }
        while pair.0[0].peers().count() > 0 {
            now += Duration::from_millis(100);
            pair.0[0].tick(now);
        }
        assert_eq!(pair.0[0].counts().removed, removed);
    }
}
