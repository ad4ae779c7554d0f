//! Measures the CPU time of a publication that crosses from its owner to mirrors at other nodes, in the state machine and the frame codec
//! alone: `cargo run --release -p ringmain-cluster --example crossing`.
//!
//! Each publication is handled by its owner, encoded for each other node, decoded and delivered there. Prints the nanoseconds for
//! one publication and one other node.

#![allow(clippy::print_stdout, reason = "the result")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{ChannelSettings, FrameDecoder, Publish, VERSION};
use ringmain_cluster::limits;
use ringmain_cluster::member::{Member, Role, Uid};
use ringmain_cluster::node::{Hello, LinkId, Node, NodeRequest};
use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::PublishOptions;
use ringmain_hub::protocol::Published;

const PUBLICATIONS: u64 = 400_000;
/// The publications of one turn, whose frames leave together.
const TURN: u64 = 100;
const BYTES: usize = 210;

fn member(uid: u64) -> Member {
    Member {
        uid: Uid(uid),
        name: format!("n{uid}").into(),
        zone: "".into(),
        role: Role::All,
        weight: 1,
    }
}

/// One owner and others with mirrors.
struct Star {
    owner: Node,
    others: Vec<(Node, FrameDecoder, FrameDecoder)>,
    now: Duration,
}

impl Star {
    fn new(others: u64) -> Star {
        let now = Duration::from_secs(1);
        // The uids are such that the first node owns the channel, see `main`.
        let mut owner = Node::new(member(1), 1, now);
        let hello = |node: &Node| Hello {
            member: node.member().clone(),
            version: VERSION,
        };
        let mut nodes = Vec::new();
        for uid in 2..2 + others {
            let mut node = Node::new(
                Member {
                    role: Role::Gateway,
                    ..member(uid)
                },
                uid,
                now,
            );
            node.link_up(LinkId(uid), hello(&owner), true, now);
            owner.link_up(LinkId(uid), hello(&node), false, now);
            nodes.push((node, FrameDecoder::default(), FrameDecoder::default()));
        }
        let mut star = Star {
            owner,
            others: nodes,
            now,
        };
        for _ in 0..80 {
            star.now += limits::TICK_INTERVAL;
            star.owner.tick(star.now);
            for (node, ..) in &mut star.others {
                node.tick(star.now);
            }
            star.exchange();
        }
        star
    }

    /// Carries frames as bytes until there are none. Returns the number of events at the other nodes.
    fn exchange(&mut self) -> u64 {
        let mut delivered = 0;
        loop {
            let mut is_quiet = true;
            for (node, inbound, outbound) in &mut self.others {
                let link = LinkId(node.member().uid.0);
                is_quiet &= carry(&mut self.owner, node, inbound, link, self.now);
                is_quiet &= carry(node, &mut self.owner, outbound, link, self.now);
                while node.poll_event().is_some() {
                    delivered += 1;
                }
            }
            while self.owner.poll_event().is_some() {}
            if is_quiet {
                return delivered;
            }
        }
    }
}

/// Carries all frames of one direction. Returns whether there were none.
fn carry(from: &mut Node, to: &mut Node, decoder: &mut FrameDecoder, link: LinkId, now: Duration) -> bool {
    let mut bytes = Vec::new();
    from.encode_frames(link, &mut bytes);
    decoder.feed(&bytes);
    while let Some(frame) = decoder.next_frame().expect("valid frames") {
        to.receive(link, frame, now);
    }
    bytes.is_empty()
}

fn main() {
    for others in [1, 3, 8] {
        for history in [false, true] {
            let settings = ChannelSettings {
                history: history.then_some(HistoryOptions {
                    publications: 100,
                    bytes: 1 << 20,
                    ttl: Duration::from_secs(300),
                }),
                position_ttl: Duration::from_secs(300),
                members: false,
            };
            let nanoseconds = measure(others, settings);
            println!("{others} other nodes, history: {history}: {nanoseconds} ns a publication and node");
        }
    }
}

fn measure(others: u64, settings: ChannelSettings) -> u64 {
    let mut star = Star::new(others);
    let channels: Vec<Arc<str>> = (0..100).map(|number| format!("prices:{number}").into()).collect();
    let now = star.now;
    for channel in &channels {
        for (node, ..) in &mut star.others {
            let channel = Arc::clone(channel);
            node.handle(
                NodeRequest::Interested {
                    channel,
                    settings,
                    needs_state: false,
                },
                now,
            );
        }
    }
    star.exchange();
    let data = Bytes::from(vec![b'1'; BYTES]);
    let start = cpu_time();
    let mut delivered = 0;
    for request in 0..PUBLICATIONS {
        let publish = Publish {
            channel: Arc::clone(&channels[request as usize % channels.len()]),
            settings,
            published: Arc::new(Published {
                data: data.clone(),
                ..Published::default()
            }),
            options: PublishOptions::default(),
        };
        star.owner.handle(NodeRequest::Publish { request, publish }, now);
        if request % TURN == TURN - 1 {
            delivered += star.exchange();
        }
    }
    let elapsed = cpu_time() - start;
    assert_eq!(
        delivered,
        PUBLICATIONS * others,
        "each publication reaches each node once"
    );
    elapsed / (PUBLICATIONS * others)
}

/// Returns the CPU time of this thread, in nanoseconds: others may use the machine.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let time = text.split(' ').next().and_then(|text| text.parse().ok());
    time.expect("nanoseconds")
}
