//! Calls between nodes: round trips, and lists that exceed one result.

use super::*;
use crate::worker::user_commands::UserAction;

fn round_trip(call: &NodeCall) {
    let decoded = NodeCall::decode(&call.encode()).expect("a valid call");
    assert_eq!(format!("{decoded:?}"), format!("{call:?}"));
}

#[test]
fn calls_are_decoded_as_they_were_encoded() {
    round_trip(&NodeCall::Command(ConnectionCommand::for_user(
        "user",
        UserAction::Expire,
    )));
    for text in [None, Some("a:*\n\"".to_owned())] {
        round_trip(&NodeCall::Channels {
            pattern: text.clone(),
            after: text,
        });
    }
    round_trip(&NodeCall::Info);
    for (format, data) in [
        (Format::Json, &b"{\"id\":1}\n{\"id\":2}"[..]),
        (Format::Protobuf, &[10, 0, 255][..]),
        (Format::Json, &[]),
    ] {
        round_trip(&NodeCall::Emulate {
            node: "node".to_owned(),
            worker: 7,
            message: EmulatedMessage {
                secret: u128::MAX - 1,
                format,
                data: Bytes::copy_from_slice(data),
            },
        });
    }
}

#[test]
fn other_calls_are_rejected() {
    for payload in ["", "{}", r#"{"later":{}}"#, r#"{"emulate":{"node":"a"}}"#] {
        assert!(
            NodeCall::decode(&Bytes::from(payload.to_owned())).is_none(),
            "{payload}"
        );
    }
}

#[test]
fn a_long_list_is_sent_in_parts_of_a_bounded_size() {
    // The longest names, of characters that JSON escapes.
    let name = |number: usize| format!("{number:05}{}", "\"".repeat(250));
    let all: BTreeMap<String, u32> = (0..limits::LISTED_CHANNELS)
        .map(|number| (name(number), u32::MAX))
        .collect();
    let (mut received, mut after, mut pages) = (BTreeMap::new(), None::<String>, 0);
    loop {
        let encoded = ChannelList::page(all.clone(), after.as_deref()).encode();
        assert!(encoded.len() <= limits::CLUSTER_CALL_BYTES, "{}", encoded.len());
        let Some(ChannelList::Page { channels, has_more }) = ChannelList::decode(&encoded) else {
            panic!("expected a page");
        };
        pages += 1;
        after = channels.last().map(|(name, _)| name.clone());
        received.extend(channels);
        if !has_more {
            break;
        }
    }
    assert_eq!(received, all);
    assert!(pages > 1, "the list has only one part");
}

#[test]
fn results_are_decoded_as_they_were_encoded() {
    for outcome in [Emulated::NotHere, Emulated::Passed, Emulated::Busy] {
        assert_eq!(Emulated::decode(&outcome.encode()), Some(outcome));
    }
    assert_eq!(decode_count(&encode_count(70_000)), Some(70_000));
    assert_eq!(decode_count(b"+"), None, "a result of another call");
    for list in [ChannelList::TooMany {}, ChannelList::Busy {}] {
        assert_eq!(ChannelList::decode(&list.encode()), Some(list));
    }
}
