//! The client protocol in both formats: messages survive a round trip, and the bytes are those of other implementations.

use bytes::Bytes;
use ringmain_hub::limits;
use ringmain_hub::protocol::{
    ClientInfo, Command, Commands, Disconnect, Error, Fault, Format, MessageError, NotJson, Publication,
    Published, PushMessage, Replies, Reply, SubscribeResult, Variant, compact,
};

fn commands(format: Format, message: &[u8]) -> Vec<Result<Command, MessageError>> {
    Commands::new(format, Bytes::copy_from_slice(message)).collect()
}

fn json(message: &str) -> Vec<Command> {
    let found: Result<_, _> = commands(Format::Json, message.as_bytes()).into_iter().collect();
    found.expect("commands")
}

#[test]
fn a_frame_may_contain_connect_and_subscribe() {
    let sent = concat!(
        r#"{"connect":{"token":"t","name":"js","data":{"a": [1, 2]},"flag":4,"new":{"of":"tomorrow"}},"id":1}"#,
        "\n",
        r#"{"subscribe":{"channel":"news","flag":1,"recover":true,"epoch":"x","offset":18446744073709551615},"id":2}"#,
    );
    let found = json(sent);
    let connect = found[0].connect.as_ref().expect("a connect");
    assert_eq!((found[0].id, &*connect.token, &*connect.name), (1, "t", "js"));
    assert_eq!(connect.data, r#"{"a": [1, 2]}"#, "raw JSON as it was");
    let subscribe = found[1].subscribe.as_ref().expect("a subscribe");
    assert_eq!(
        (&*subscribe.channel, subscribe.recover, subscribe.offset),
        ("news", true, u64::MAX)
    );
}

#[test]
fn missing_and_null_fields_are_unset() {
    assert_eq!(json(""), []);
    assert_eq!(json(" \n\n"), []);
    assert_eq!(json("{}"), [Command::default()], "a pong");
    assert_eq!(json("{}\n{}\n").len(), 2, "a break at the end");
    let found = json(r#"{"id":3,"rpc":{"method":null,"data":null},"publish":null}"#);
    assert_eq!(found[0].publish, None);
    let rpc = found[0].rpc.as_ref().expect("an rpc");
    assert_eq!((&*rpc.method, &rpc.data), ("", &Bytes::new()));
}

#[test]
fn parts_before_an_error_are_returned() {
    for (format, message) in [
        (Format::Json, b"{\"id\":1}\n{\"id\":true}\n{\"id\":3}".as_slice()),
        (Format::Protobuf, b"\x02\x08\x01\x02\x0a\x01\x02\x08\x03"),
    ] {
        let found = commands(format, message);
        assert_eq!(found.len(), 2, "{format:?}: {found:?}");
        assert_eq!(found[0].as_ref().map(|command| command.id), Ok(1));
        let texts = found[1].as_ref().expect_err("the second is broken").to_string();
        assert!(texts.contains("number 2"), "{texts}");
    }
}

#[test]
fn the_number_of_commands_is_limited() {
    let limit = limits::COMMANDS_PER_MESSAGE;
    assert_eq!(json(&"{}".repeat(limit)).len(), limit);
    let found = commands(Format::Json, "{}".repeat(limit + 1).as_bytes());
    assert_eq!(found.last(), Some(&Err(MessageError::TooMany)));
    assert_eq!(found.len(), limit + 1);
}

#[test]
fn deep_nesting_is_allowed_in_data_and_rejected_in_filters() {
    for depth in [200, 30_000] {
        let data = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let found = json(&format!("{{\"send\":{{\"data\":{data}}}}}"));
        assert_eq!(
            found[0].send.as_ref().map(|send| &send.data[..]),
            Some(data.as_bytes())
        );
        let nodes = r#"{"nodes":["#.repeat(depth) + &"]}".repeat(depth);
        let filter = format!("{{\"subscribe\":{{\"tf\":{nodes}}}}}");
        assert!(
            commands(Format::Json, filter.as_bytes())[0].is_err(),
            "the depth of a filter is limited"
        );
    }
}

#[test]
fn protobuf_fields_are_read_by_number() {
    // id 2, subscribe {channel "ab", offset 300}, and an unknown field 99.
    let message = b"\x0f\x08\x02\x2a\x07\x0a\x02ab\x38\xac\x02\x98\x06\x01";
    let found = commands(Format::Protobuf, message);
    let command = found[0].as_ref().expect_err("the length says one more");
    assert!(command.to_string().contains("number 1"));
    let message = b"\x0e\x08\x02\x2a\x07\x0a\x02ab\x38\xac\x02\x98\x06\x01";
    let found = commands(Format::Protobuf, message);
    let command = found[0].as_ref().expect("a command");
    let subscribe = command.subscribe.as_ref().expect("a subscribe");
    assert_eq!(
        (command.id, &*subscribe.channel, subscribe.offset),
        (2, "ab", 300)
    );
}

#[test]
fn replies_omit_unset_fields() {
    let check = |reply: &Reply, expected: &str| {
        let mut out = Vec::new();
        Format::Json.write(reply, &mut out).expect("JSON");
        assert_eq!(String::from_utf8_lossy(&out), expected);
    };
    check(&Reply::default(), "{}");
    let error = Error::from(Fault::INTERNAL);
    let failed = Reply {
        id: 7,
        error: Some(error),
        ..Reply::default()
    };
    check(
        &failed,
        r#"{"id":7,"error":{"code":100,"message":"internal server error","temporary":true}}"#,
    );
    let empty = Reply {
        id: 1,
        subscribe: Some(SubscribeResult::default()),
        ..Reply::default()
    };
    check(&empty, r#"{"id":1,"subscribe":{}}"#);
}

fn published(data: &'static str) -> Published {
    Published {
        data: Bytes::from_static(data.as_bytes()),
        info: Some(ClientInfo {
            user: "u".to_owned(),
            client: "c".to_owned(),
            ..ClientInfo::default()
        }),
        tags: [("k".to_owned(), "v".to_owned())].into(),
        time: 5,
        ..Published::default()
    }
}

#[test]
fn a_publication_is_the_same_in_every_variant() {
    for variant in Variant::ALL.into_iter().filter(|variant| !variant.framed) {
        let mut out = Vec::new();
        for offset in [1, 2] {
            let publication = published(r#"{"price": 1.5}"#).numbered(offset);
            variant.publication("news", publication, &mut out).expect("JSON");
        }
        let pushes: Vec<PushMessage> = if variant.unidirectional {
            let parts = ringmain_hub::protocol::MessageParts::<PushMessage>::new(variant.format, out.into());
            parts.collect::<Result<_, _>>().expect("pushes")
        } else {
            let replies: Result<Vec<_>, _> = Replies::new(variant.format, out.into()).collect();
            replies
                .expect("replies")
                .into_iter()
                .map(|reply| reply.push.expect("a push"))
                .collect()
        };
        for (offset, push) in (1..).zip(&pushes) {
            assert_eq!(push.channel, "news");
            assert_eq!(push.pub_, Some(published(r#"{"price": 1.5}"#).numbered(offset)));
        }
        assert_eq!(pushes.len(), 2);
    }
}

#[test]
fn a_framed_variant_adds_a_frame_header() {
    for variant in Variant::ALL.into_iter().filter(|variant| variant.framed) {
        for data in [r#""short""#.to_owned(), format!("\"{}\"", "x".repeat(200))] {
            let publication = Published {
                data: data.into(),
                ..Published::default()
            };
            let (mut message, mut frame) = (Vec::new(), b"before".to_vec());
            let unframed = Variant {
                framed: false,
                ..variant
            };
            for (variant, out) in [(unframed, &mut message), (variant, &mut frame)] {
                variant
                    .publication("a", publication.numbered(1), out)
                    .expect("JSON");
            }
            // RFC 6455 §5.2.
            let first = match variant.format {
                Format::Json => 0x81,
                Format::Protobuf => 0x82,
            };
            let mut expected = b"before".to_vec();
            match message.len() as u8 {
                short @ ..126 if message.len() < 126 => expected.extend([first, short]),
                _ => {
                    expected.extend([first, 126]);
                    expected.extend((message.len() as u16).to_be_bytes());
                }
            }
            expected.extend(&message);
            assert_eq!(frame, expected, "{variant:?}");
        }
    }
}

#[test]
fn a_publication_is_encoded_as_expected_json() {
    let mut out = Vec::new();
    let publication = published("[1,\n 2]").numbered(9);
    Variant::ALL[0]
        .publication("a", publication, &mut out)
        .expect("JSON");
    let expected = r#"{"push":{"channel":"a","pub":{"data":[1,2],"info":{"user":"u","client":"c"},"offset":9,"tags":{"k":"v"},"time":5}}}"#;
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

/// The handwritten JSON encoder produces the same bytes as the serializer, for every combination of fields.
#[test]
fn the_handwritten_json_equals_the_serialized_message() {
    let whole = published(" {\"a\":\t[1,\n{\"b\":\"\\n\"}]} ").numbered(9);
    for fields in 0..1 << 7 {
        let has = |field: u32| fields & (1 << field) != 0;
        let publication = Publication {
            data: if has(0) { whole.data.clone() } else { Bytes::new() },
            info: whole.info.clone().filter(|_| has(1)),
            offset: if has(2) { u64::MAX } else { 0 },
            tags: if has(3) {
                whole.tags.clone()
            } else {
                Default::default()
            },
            delta: has(4),
            time: if has(5) { i64::MIN } else { 0 },
        };
        let channel = if has(6) { "a \"quoted\" \u{1f600}\n" } else { "" };
        let push = PushMessage {
            channel: channel.to_owned(),
            pub_: Some(publication.clone()),
            ..PushMessage::default()
        };
        let reply = Reply {
            push: Some(push.clone()),
            ..Reply::default()
        };
        for (number, variant) in Variant::ALL.into_iter().take(2).enumerate() {
            let (mut written, mut expected) = (b"{}".to_vec(), b"{}".to_vec());
            variant
                .publication(channel, publication.clone(), &mut written)
                .expect("JSON");
            match number {
                0 => Format::Json.write(&reply, &mut expected),
                _ => Format::Json.write(&push, &mut expected),
            }
            .expect("JSON");
            assert_eq!(
                String::from_utf8_lossy(&written),
                String::from_utf8_lossy(&expected),
                "{variant:?}, {fields:b}"
            );
        }
    }
}

#[test]
fn publisher_info_that_is_not_json_is_omitted() {
    let mut publication = published("1").numbered(1);
    let info = publication.info.as_mut().expect("a publisher");
    info.conn_info = Bytes::from_static(b"{");
    info.chan_info = Bytes::from_static(b"[1]");
    for variant in Variant::ALL.into_iter().filter(|variant| !variant.framed) {
        let mut out = Vec::new();
        let written = variant.publication("a", publication.clone(), &mut out);
        assert_eq!(written, Ok(()));
        let text = String::from_utf8_lossy(&out);
        let expected = r#""client":"c","chan_info":[1]}"#;
        match variant.format {
            Format::Json => assert!(text.contains(expected), "{text}"),
            Format::Protobuf => assert!(text.contains('{'), "{text}"),
        }
    }
}

#[test]
fn data_that_is_not_json_is_rejected_in_json() {
    let mut out = b"before".to_vec();
    for data in ["", "{", "1 2", "\u{0}"] {
        let unidirectional = Published {
            data: Bytes::from_static(data.as_bytes()),
            ..Published::default()
        };
        let result = Variant::ALL[0].publication("a", unidirectional.numbered(1), &mut out);
        // A publication may have no data.
        assert_eq!(
            result,
            if data.is_empty() { Ok(()) } else { Err(NotJson) },
            "{data:?}"
        );
        if !data.is_empty() {
            assert!(out.ends_with(b"}"), "nothing is appended");
        }
    }
}

#[test]
fn line_breaks_are_removed_outside_strings() {
    let check = |given: &'static str, expected: Result<&str, NotJson>| {
        let found = compact(&Bytes::from_static(given.as_bytes()));
        assert_eq!(
            found.as_deref(),
            expected.map(str::as_bytes).as_deref(),
            "{given}"
        );
    };
    check("{\"a\": 1}", Ok("{\"a\": 1}"));
    check(
        "{\n  \"a b\": \"c \\\" d\\\\\",\r\n  \"e\": [1, 2]\n}",
        Ok("{\"a b\":\"c \\\" d\\\\\",\"e\":[1,2]}"),
    );
    check("1\n", Ok("1"));
    check("\"a\nb\"", Err(NotJson));
    check("", Err(NotJson));
    check("{\"a\":}", Err(NotJson));
    check("[1] [2]", Err(NotJson));
}

#[test]
fn the_disconnect_code_decides_on_reconnecting() {
    for (reason, comes_back) in [
        (Disconnect::SHUTDOWN, true),
        (Disconnect::SLOW, true),
        (Disconnect::INVALID_TOKEN, false),
        (Disconnect::FORCED, false),
        (
            Disconnect {
                code: 4000,
                reason: "application",
            },
            true,
        ),
        (
            Disconnect {
                code: 4500,
                reason: "application",
            },
            false,
        ),
        (
            Disconnect {
                code: 1000,
                reason: "closed",
            },
            false,
        ),
    ] {
        assert_eq!(reason.should_reconnect(), comes_back, "{reason:?}");
        assert!(reason.reason.len() <= 32);
    }
}

/// Arbitrary bytes: no panic, and a parsed message survives a round trip.
#[test]
fn arbitrary_bytes_are_rejected_or_survive_a_round_trip() {
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut message =
            br#"{"id":1,"subscribe":{"channel":"a","data":[1],"tf":{"op":"and","nodes":[{"key":"k"}]}}}"#
                .to_vec();
        let format = if random.bool() {
            Format::Json
        } else {
            Format::Protobuf
        };
        if format == Format::Protobuf {
            let command: Command = json(std::str::from_utf8(&message).expect("text")).remove(0);
            message.clear();
            format.write(&command, &mut message).expect("Protobuf");
        }
        for _ in 0..random.usize(0..4) {
            let position = random.usize(..message.len());
            match random.u8(0..3) {
                0 => message[position] = random.u8(..),
                1 => message.truncate(position.max(1)),
                _ => message.insert(position, random.u8(..)),
            }
        }
        for command in commands(format, &message).into_iter().flatten() {
            let mut again = Vec::new();
            if format.write(&command, &mut again).is_ok() {
                let read = commands(format, &again);
                assert_eq!(read, [Ok(command)], "seed {seed}");
            }
        }
    }
}
