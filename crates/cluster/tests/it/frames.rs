//! Frames: round trip, cut invariance, limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{
    Answer, ChannelSettings, ChannelState, Frame, FrameDecoder, FrameError, HandoverHead, HandoverPart,
    Publish, PublishOutcome, VERSION,
};
use ringmain_cluster::limits;
use ringmain_cluster::member::{Member, Phase, Role, Status, Uid};
use ringmain_hub::history::{Epoch, HistoryOptions, HistoryQuery, StreamPosition};
use ringmain_hub::mail::{ChannelQuery, EpochFilter, Idempotency, PublishOptions};
use ringmain_hub::protocol::{ClientInfo, Published};

fn member(version: u16) -> Frame {
    Frame::Hello {
        version,
        oldest: 1,
        member: Member {
            uid: Uid(7),
            name: "a".into(),
            zone: "eu-1".into(),
            role: Role::Server,
            weight: 3,
        },
    }
}

fn settings() -> ChannelSettings {
    ChannelSettings {
        history: Some(HistoryOptions {
            publications: 10,
            bytes: 1000,
            ttl: Duration::from_secs(60),
        }),
        position_ttl: Duration::from_secs(600),
        members: true,
    }
}

fn info() -> ClientInfo {
    ClientInfo {
        user: "u".into(),
        client: "c-1".into(),
        conn_info: Bytes::from_static(b"{\"a\":1}"),
        chan_info: Bytes::new(),
    }
}

fn published() -> Arc<Published> {
    Arc::new(Published {
        data: Bytes::from_static(b"{\"x\":[1,2]}"),
        info: Some(info()),
        tags: [("k".to_owned(), "v".to_owned())].into(),
        time: -3,
        ..Published::default()
    })
}

/// Returns a frame of each kind, and of each variant of its fields.
fn all_frames() -> Vec<Frame> {
    let position = StreamPosition {
        offset: 9,
        epoch: Epoch::new(77),
    };
    let channel: Arc<str> = "news:1".into();
    let without = ChannelSettings {
        history: None,
        members: false,
        ..settings()
    };
    let mut frames = vec![
        member(1),
        Frame::Beat,
        Frame::Resumed,
        Frame::Status(Status {
            serial: 3,
            phase: Phase::Leaving,
            clients: 70_000,
        }),
        Frame::Credit(1 << 20),
        Frame::Subscribe {
            number: 1,
            channel: Arc::clone(&channel),
            settings: settings(),
            position: Some(position),
        },
        Frame::Subscribe {
            number: u32::MAX,
            channel: "x".into(),
            settings: without,
            position: None,
        },
        Frame::Unsubscribe {
            number: 1,
            channel: Arc::clone(&channel),
        },
        Frame::State {
            number: 1,
            state: ChannelState {
                position: Some(position),
                floor: 8,
                publications: vec![(9, published()), (10, Arc::default())],
            },
        },
        Frame::NotOwner { number: 3 },
        Frame::Publication {
            number: 2,
            offset: 11,
            published: published(),
        },
        Frame::Call {
            request: 6,
            payload: Bytes::from_static(b"do"),
        },
        Frame::CallResult {
            request: 6,
            payload: Bytes::from_static(b"done"),
        },
        Frame::Ended {
            channel,
            epoch: Epoch::new(1),
        },
    ];
    frames.extend(member_frames());
    frames.extend(requests());
    frames.extend(replies(position));
    frames.extend(handover_frames(position));
    frames
}

/// Returns each frame about members.
fn member_frames() -> Vec<Frame> {
    let channel: Arc<str> = "news:1".into();
    vec![
        Frame::Members {
            channel: Arc::clone(&channel),
            members: vec![Arc::new(info()), Arc::new(ClientInfo::default())],
            has_more: true,
        },
        Frame::Member {
            channel: Arc::clone(&channel),
            info: Arc::new(info()),
            is_join: true,
        },
        Frame::Presence {
            number: 5,
            info: Arc::new(info()),
            is_join: false,
        },
    ]
}

/// Returns each frame about channels that move.
fn handover_frames(position: StreamPosition) -> Vec<Frame> {
    let channel: Arc<str> = "news:1".into();
    let head = |offsets| {
        HandoverPart::Head(HandoverHead {
            settings: settings(),
            epoch: Epoch::new(4),
            replaced: vec![Epoch::new(3), Epoch::new(2)],
            offsets,
            idle: Duration::from_secs(3),
            mirrors: vec![(Uid(1), 0), (Uid(2), 3)],
        })
    };
    let parts = [
        head(Some((12, 3))),
        head(None),
        HandoverPart::Publications(vec![(4, Duration::from_millis(7), published())]),
        HandoverPart::Members(vec![(Uid(1), Arc::new(info()))]),
        HandoverPart::Keys(vec![
            ("once".into(), Duration::from_secs(5), Some(position)),
            ("twice".into(), Duration::ZERO, None),
        ]),
    ];
    let mut frames: Vec<Frame> = parts
        .into_iter()
        .map(|part| Frame::Handover {
            channel: Arc::clone(&channel),
            is_last: matches!(part, HandoverPart::Keys(_)),
            part,
        })
        .collect();
    frames.extend(move_frames());
    frames
}

/// Returns each frame about the nodes of channels that move.
fn move_frames() -> Vec<Frame> {
    let channel: Arc<str> = "news:1".into();
    let publish = Publish {
        channel: Arc::clone(&channel),
        settings: settings(),
        published: published(),
        options: PublishOptions::default(),
    };
    vec![
        Frame::Peers(vec![Uid(1), Uid(7)]),
        Frame::HandoverTaken {
            channel: Arc::clone(&channel),
        },
        Frame::HandedOver {
            sender: 1,
            receiver: 2,
        },
        Frame::Wanted {
            channel: Arc::clone(&channel),
        },
        Frame::Absent {
            channel: Arc::clone(&channel),
            passed_to: None,
        },
        Frame::Absent {
            channel: Arc::clone(&channel),
            passed_to: Some(Uid(4)),
        },
        Frame::Moved {
            number: 3,
            to: Uid(9),
        },
        Frame::RelayedPublish {
            hops: 1,
            request: 5,
            publish,
        },
        Frame::LogSettings(None),
        Frame::LogSettings(Some(u64::MAX - 1)),
        Frame::Progress {
            partition: 63,
            epoch: Epoch::new(77),
            number: 1 << 52,
        },
        Frame::RelayedQuery {
            hops: 2,
            request: 6,
            channel,
            settings: settings(),
            query: ChannelQuery::Presence,
        },
    ]
}

/// Returns each publication and query for an owner.
fn requests() -> Vec<Frame> {
    let channel: Arc<str> = "news:1".into();
    let publish = |options| Frame::Publish {
        request: 4,
        publish: Publish {
            channel: Arc::clone(&channel),
            settings: settings(),
            published: published(),
            options,
        },
    };
    let key = PublishOptions {
        transient: true,
        idempotency: Some(Idempotency {
            key: "once".into(),
            window: Duration::from_secs(5),
        }),
    };
    let query = |query| Frame::Query {
        request: 8,
        channel: Arc::clone(&channel),
        settings: settings(),
        query,
    };
    let history = |since, epoch| {
        query(ChannelQuery::History {
            query: HistoryQuery {
                since,
                limit: 5,
                reverse: since.is_none(),
            },
            epoch,
        })
    };
    vec![
        publish(PublishOptions::default()),
        publish(key),
        history(Some(3), EpochFilter::Exact(Epoch::new(5))),
        history(None, EpochFilter::Any),
        history(None, EpochFilter::Foreign),
        query(ChannelQuery::Presence),
        query(ChannelQuery::PresenceStats),
        query(ChannelQuery::ClearHistory),
    ]
}

/// Returns each reply to a publication or a query.
fn replies(position: StreamPosition) -> Vec<Frame> {
    let outcomes = [
        PublishOutcome::Published(Some(position)),
        PublishOutcome::Published(None),
        PublishOutcome::Refused,
        PublishOutcome::ChannelLimit,
        PublishOutcome::Unknown,
    ];
    let mut frames: Vec<Frame> = outcomes
        .map(|outcome| Frame::Published { request: 4, outcome })
        .into();
    let answers = [
        Answer::History {
            publications: vec![(1, published())],
            position,
        },
        Answer::Presence(vec![Arc::new(info())]),
        Answer::PresenceStats { clients: 3, users: 2 },
        Answer::HistoryCleared,
        Answer::Unrecoverable,
        Answer::NotAvailable,
        Answer::TooLarge,
        Answer::Unreachable,
    ];
    frames.extend(answers.map(|answer| Frame::Answer { request: 8, answer }));
    frames
}

fn encoded(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut out));
    out
}

fn decode(decoder: &mut FrameDecoder) -> Result<Vec<Frame>, FrameError> {
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next_frame()? {
        frames.push(frame);
    }
    Ok(frames)
}

#[test]
fn each_frame_is_decoded_as_it_was_encoded() {
    let frames = all_frames();
    let mut decoder = FrameDecoder::default();
    decoder.feed(&encoded(&frames));
    assert_eq!(decode(&mut decoder), Ok(frames));
}

#[test]
fn frames_do_not_depend_on_how_they_are_cut() {
    let frames = all_frames();
    let bytes = encoded(&frames);
    for length in [1, 2, 3, 5, 7, 64] {
        let mut decoder = FrameDecoder::default();
        let mut decoded = Vec::new();
        for part in bytes.chunks(length) {
            decoder.feed(part);
            decoded.extend(decode(&mut decoder).expect("valid frames"));
        }
        assert_eq!(decoded, frames, "cut to {length} bytes");
    }
}

#[test]
fn no_prefix_of_a_frames_fields_is_a_frame() {
    for frame in all_frames() {
        let bytes = encoded(std::slice::from_ref(&frame));
        for length in 0..bytes.len() - 4 {
            let mut short = (length as u32).to_le_bytes().to_vec();
            short.extend_from_slice(&bytes[4..4 + length]);
            let mut decoder = FrameDecoder::default();
            decoder.feed(&short);
            assert!(decoder.next_frame().is_err(), "{length} bytes of {frame:?}");
            assert!(decoder.next_frame().is_err(), "an error is final");
        }
    }
}

#[test]
fn a_frame_that_exceeds_the_limit_is_an_error_before_it_is_received() {
    let mut decoder = FrameDecoder::default();
    let length = limits::FRAME_BYTES + 1;
    decoder.feed(&(length as u32).to_le_bytes());
    assert_eq!(decoder.next_frame(), Err(FrameError::TooLong(length)));
}

#[test]
fn unknown_kinds_are_skipped_from_newer_nodes_only() {
    let unknown = [2, 0, 0, 0, 200, 1];
    for (version, is_error) in [(VERSION, true), (VERSION + 1, false)] {
        let mut decoder = FrameDecoder::default();
        decoder.feed(&encoded(&[member(version)]));
        decoder.feed(&unknown);
        decoder.feed(&encoded(&[Frame::Beat]));
        let result = decode(&mut decoder);
        match is_error {
            true => assert_eq!(result, Err(FrameError::UnknownKind(200))),
            false => assert_eq!(result, Ok(vec![member(version), Frame::Beat])),
        }
    }
}

#[test]
fn an_answer_that_exceeds_the_limit_is_replaced() {
    let large = Arc::new(Published {
        data: Bytes::from(vec![b'1'; limits::FRAME_BYTES]),
        ..Published::default()
    });
    let position = StreamPosition {
        offset: 1,
        epoch: Epoch::new(1),
    };
    let answer = Answer::History {
        publications: vec![(1, large)],
        position,
    };
    let mut decoder = FrameDecoder::default();
    decoder.feed(&encoded(&[Frame::Answer { request: 3, answer }]));
    let answer = Answer::TooLarge;
    assert_eq!(
        decode(&mut decoder),
        Ok(vec![Frame::Answer { request: 3, answer }])
    );
}
