//! Damaged state is an error, and never used.

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::{ChannelOptions, Idempotency, Origin, PublishOptions, ShardRequest, WorkerId};
use ringmain_hub::protocol::Published;
use ringmain_hub::shard::ChannelShard;

use super::{HandOverState, StateError};
use crate::Namespace;

const NOW: Duration = Duration::from_secs(1000);

fn channel_options() -> ChannelOptions {
    ChannelOptions {
        history: Some(HistoryOptions {
            publications: 10,
            bytes: 1 << 20,
            ttl: Duration::from_secs(60),
        }),
        ..Namespace::default().channel_options
    }
}

fn written() -> Vec<u8> {
    let mut shard = ChannelShard::new(1, 100, 7);
    for (number, channel) in ["a", "b", "a"].iter().enumerate() {
        let once = Idempotency {
            key: number.to_string().into(),
            window: Duration::from_secs(60),
        };
        let publish = ShardRequest::Publish {
            channel: Arc::from(*channel),
            options: channel_options(),
            published: Arc::new(Published {
                data: number.to_string().into(),
                ..Published::default()
            }),
            publish_options: Some(Box::new(PublishOptions {
                transient: false,
                idempotency: Some(once),
            })),
            origin: Origin::PROGRAM,
            request: None,
        };
        shard.handle(WorkerId(0), publish, NOW);
    }
    let mut state = HandOverState::new(NOW);
    state.add(shard.save(NOW, None).section);
    state.add(Vec::new());
    state.chunks().flatten().copied().collect()
}

#[test]
fn saved_state_is_restored() {
    let (records, at) = HandOverState::read(&written()).expect("state");
    assert_eq!(at, NOW);
    let mut channels: Vec<&str> = records.iter().filter_map(|record| record.channel()).collect();
    channels.sort_unstable();
    assert_eq!(channels, ["a", "a", "a", "b", "b"], "two channels, three keys");
    let mut empty = HandOverState::new(NOW);
    empty.add(Vec::new());
    let bytes: Vec<u8> = empty.chunks().flatten().copied().collect();
    assert_eq!(
        HandOverState::read(&bytes).map(|(records, _)| records.len()),
        Ok(0)
    );
}

#[test]
fn damaged_state_is_rejected() {
    let written = written();
    for length in 0..written.len() {
        assert!(
            HandOverState::read(&written[..length]).is_err(),
            "cut off at {length}"
        );
    }
    for at in (0..written.len()).filter(|at| !(12..20).contains(at)) {
        let mut damaged = written.clone();
        damaged[at] ^= 0x10;
        assert!(HandOverState::read(&damaged).is_err(), "changed at {at}");
    }
    let mut longer = written.clone();
    longer.push(0);
    assert!(HandOverState::read(&longer).is_err());
    let mut newer = written;
    newer[8] = 9;
    assert_eq!(HandOverState::read(&newer), Err(StateError::Version(9)));
    assert_eq!(HandOverState::read(b""), Err(StateError::Foreign));
}
