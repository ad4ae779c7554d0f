//! The server API over gRPC: the key, methods and their results, errors, and batches. `tests/sdk` has clients generated from Centrifugo's
//! definition.

use std::collections::BTreeMap;

use prost::Message;
use ringmain_hub::history::HistoryOptions;
use ringmain_push::Options;
use ringmain_push::limits::BATCH_COMMANDS;
use ringmain_web::testing::TestClient;
use ringmain_wire::grpc::{Slot, decode_message};

use crate::support::{Http2, options, serve};

const SERVICE: &str = "/centrifugal.centrifugo.api.CentrifugoApi";

#[derive(Clone, PartialEq, Message)]
struct Failure {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct Publish {
    #[prost(string, tag = "1")]
    channel: String,
    #[prost(bytes = "vec", tag = "2")]
    data: Vec<u8>,
    #[prost(string, tag = "3")]
    b64data: String,
    #[prost(btree_map = "string, string", tag = "5")]
    tags: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    idempotency_key: String,
    #[prost(uint64, tag = "8")]
    version: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Position {
    #[prost(uint64, tag = "1")]
    offset: u64,
    #[prost(string, tag = "2")]
    epoch: String,
}

#[derive(Clone, PartialEq, Message)]
struct Published {
    #[prost(message, optional, tag = "1")]
    error: Option<Failure>,
    #[prost(message, optional, tag = "2")]
    result: Option<Position>,
}

#[derive(Clone, PartialEq, Message)]
struct History {
    #[prost(string, tag = "1")]
    channel: String,
    #[prost(int32, tag = "2")]
    limit: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Publication {
    #[prost(bytes = "vec", tag = "2")]
    data: Vec<u8>,
    #[prost(uint64, tag = "4")]
    offset: u64,
    #[prost(btree_map = "string, string", tag = "5")]
    tags: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Publications {
    #[prost(message, repeated, tag = "1")]
    publications: Vec<Publication>,
    #[prost(string, tag = "2")]
    epoch: String,
    #[prost(uint64, tag = "3")]
    offset: u64,
}

#[derive(Clone, PartialEq, Message)]
struct HistoryResponse {
    #[prost(message, optional, tag = "1")]
    error: Option<Failure>,
    #[prost(message, optional, tag = "2")]
    result: Option<Publications>,
}

#[derive(Clone, PartialEq, Message)]
struct Disconnect {
    #[prost(string, tag = "1")]
    user: String,
    #[prost(bool, tag = "7")]
    all_users: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Command {
    #[prost(message, optional, tag = "4")]
    publish: Option<Publish>,
    #[prost(message, optional, tag = "11")]
    history: Option<History>,
}

#[derive(Clone, PartialEq, Message)]
struct Batch {
    #[prost(message, repeated, tag = "1")]
    commands: Vec<Command>,
    #[prost(bool, tag = "2")]
    parallel: bool,
}

/// A batch whose commands are not messages.
#[derive(Clone, PartialEq, Message)]
struct BytesBatch {
    #[prost(bytes = "vec", repeated, tag = "1")]
    commands: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(message, optional, tag = "2")]
    error: Option<Failure>,
    #[prost(message, optional, tag = "4")]
    publish: Option<Position>,
    #[prost(message, optional, tag = "11")]
    history: Option<Publications>,
}

#[derive(Clone, PartialEq, Message)]
struct Replies {
    #[prost(message, repeated, tag = "1")]
    replies: Vec<Reply>,
}

/// Calls a method. Returns the response, or the status and its message.
fn call_with<A: Message + Default>(
    client: &mut TestClient,
    method: &str,
    fields: &[(&str, &str)],
    request: &impl Message,
) -> Result<A, (String, String)> {
    let mut body = Vec::new();
    let slot = Slot::open(&mut body);
    body.extend_from_slice(&request.encode_to_vec());
    slot.close(&mut body, false).expect("a short message");
    let mut http = Http2::new(client);
    let fields: Vec<_> = [("content-type", "application/grpc"), ("te", "trailers")]
        .iter()
        .chain(fields)
        .copied()
        .collect();
    let stream = http.request("POST", &format!("{SERVICE}/{method}"), &fields, &body);
    while !http.response(stream).end {
        http.turn();
    }
    let response = http.response(stream);
    let field = |name: &str| {
        let value = response.fields.iter().find(|(field, _)| field == name);
        value.map(|(_, value)| decode_message(value.as_bytes()).into_owned())
    };
    match field("grpc-status").as_deref() {
        Some("0") => Ok(A::decode(&response.body[5..]).expect("a response of the method")),
        status => Err((
            status.unwrap_or_default().to_owned(),
            field("grpc-message").unwrap_or_default(),
        )),
    }
}

fn call<A: Message + Default>(client: &mut TestClient, method: &str, request: &impl Message) -> A {
    let key = [("authorization", "apikey key")];
    call_with(client, method, &key, request).expect("a response")
}

fn publication(channel: &str, data: &[u8]) -> Publish {
    Publish {
        channel: channel.to_owned(),
        data: data.to_vec(),
        ..Publish::default()
    }
}

#[test]
fn a_call_requires_the_key() {
    let mut client = serve(options());
    let request = publication("kept:a", b"1");
    for (fields, status) in [
        (&[][..], "16"),
        (&[("authorization", "apikey kex")], "16"),
        (&[("authorization", "key")], "16"),
    ] {
        let response: Result<Published, _> = call_with(&mut client, "Publish", fields, &request);
        assert_eq!(response.expect_err("no key").0, status);
    }
    let published: Published = call(&mut client, "Publish", &request);
    assert_eq!(published.result.expect("a result").offset, 1);
}

#[test]
fn publications_are_those_of_the_http_api() {
    let mut client = serve(options());
    let mut tagged = publication("kept:a", br#"{ "a": 1 }"#);
    tagged.tags.insert("x".to_owned(), "y".to_owned());
    tagged.idempotency_key = "once".to_owned();
    let first: Published = call(&mut client, "Publish", &tagged);
    assert_eq!(
        call::<Published>(&mut client, "Publish", &tagged),
        first,
        "published once"
    );
    let encoded = Publish {
        b64data: "WzJd".to_owned(),
        ..publication("kept:a", b"ignored")
    };
    let second: Published = call(&mut client, "Publish", &encoded);
    assert_eq!(second.result.expect("a result").offset, 2);
    let query = History {
        channel: "kept:a".to_owned(),
        limit: -1,
    };
    let history: HistoryResponse = call(&mut client, "History", &query);
    let history = history.result.expect("a result");
    let publications: Vec<_> = history
        .publications
        .iter()
        .map(|one| {
            (
                one.offset,
                String::from_utf8_lossy(&one.data).into_owned(),
                one.tags.len(),
            )
        })
        .collect();
    assert_eq!(
        publications,
        [(1, r#"{ "a": 1 }"#.to_owned(), 1), (2, "[2]".to_owned(), 0)]
    );
    assert_eq!(
        (history.offset, history.epoch),
        (2, first.result.expect("a result").epoch)
    );
}

/// JSON with white space and line breaks is published as it is: it may be signed, or be no JSON for its publisher.
#[test]
fn data_is_published_byte_for_byte() {
    let mut options = options();
    if let Some(kept) = options.namespaces.get_mut("kept") {
        kept.channel_options.history = kept.channel_options.history.map(|history| HistoryOptions {
            publications: 10,
            ..history
        });
    }
    let mut client = serve(options);
    let all = [
        &b"{\n  \"a\":\r\n 1 }"[..],
        b" [1] ",
        b"1\n",
        b"\"a b\"",
        b"{\"b\" : 2}",
    ];
    for data in all {
        let published: Published = call(&mut client, "Publish", &publication("kept:a", data));
        assert_eq!(published.error, None, "{}", String::from_utf8_lossy(data));
    }
    let query = History {
        channel: "kept:a".to_owned(),
        limit: -1,
    };
    let history: HistoryResponse = call(&mut client, "History", &query);
    let history = history.result.expect("a result");
    let published: Vec<_> = history.publications.iter().map(|one| &one.data[..]).collect();
    assert_eq!(published, all);
}

/// The limit applies to the length before a message.
#[test]
fn messages_are_limited_before_they_are_received() {
    let mut client = serve(Options {
        api_body_bytes: 2000,
        ..options()
    });
    for method in ["Publish", "Batch"] {
        for (length, is_accepted) in [(2000_u32, true), (2001, false), (1 << 20, false)] {
            let mut http = Http2::new(&mut client);
            let fields = [
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("authorization", "apikey key"),
            ];
            let stream = http.open_request("POST", &format!("{SERVICE}/{method}"), &fields);
            // The message does not follow.
            let prefix = [&[0][..], &length.to_be_bytes()].concat();
            http.send(stream, &prefix, false);
            for _ in 0..20 {
                http.turn();
            }
            let response = http.response(stream);
            let status = response.fields.iter().find(|(name, _)| name == "grpc-status");
            let expected = (!is_accepted).then_some("8");
            assert_eq!(status.map(|(_, value)| &**value), expected, "{method} {length}");
        }
    }
}

#[test]
fn the_commands_of_a_batch_are_limited() {
    let mut client = serve(options());
    let batch = |commands: usize| Batch {
        commands: vec![Command::default(); commands],
        parallel: false,
    };
    let replies: Replies = call(&mut client, "Batch", &batch(BATCH_COMMANDS));
    assert_eq!(replies.replies.len(), BATCH_COMMANDS);
    let key = [("authorization", "apikey key")];
    let response: Result<Replies, _> = call_with(&mut client, "Batch", &key, &batch(BATCH_COMMANDS + 1));
    assert_eq!(response.expect_err("too many").0, "8");
    // A command that is no message does not affect the others.
    let publish = Command {
        publish: Some(publication("kept:a", b"1")),
        history: None,
    };
    let commands = vec![vec![0xff], publish.encode_to_vec()];
    let replies: Replies = call(&mut client, "Batch", &BytesBatch { commands });
    assert_eq!(replies.replies[0].error.as_ref().expect("an error").code, 107);
    assert_eq!(replies.replies[1].publish.as_ref().expect("a result").offset, 1);
}

#[test]
fn a_fault_is_in_the_response_or_in_the_status() {
    let mut client = serve(options());
    let unknown = publication("other:a", b"1");
    let response: Published = call(&mut client, "Publish", &unknown);
    assert_eq!(response.error.expect("an error").code, 102);
    for (request, code) in [
        (publication("kept:a", b""), 107),
        (publication("kept:a", b"not JSON"), 107),
        (
            Publish {
                version: 7,
                ..publication("kept:a", b"1")
            },
            108,
        ),
    ] {
        let response: Published = call(&mut client, "Publish", &request);
        assert_eq!(response.error.expect("an error").code, code);
        assert_eq!(response.result, None);
    }
    let fields = [
        ("authorization", "apikey key"),
        ("x-centrifugo-error-mode", "transport"),
    ];
    let response: Result<Published, _> = call_with(&mut client, "Publish", &fields, &unknown);
    assert_eq!(response, Err(("5".to_owned(), "unknown channel".to_owned())));
    let all = Disconnect {
        user: "7".to_owned(),
        all_users: true,
    };
    // A selection that is not supported must not be ignored.
    let response: Published = call(&mut client, "Disconnect", &all);
    assert_eq!(response.error.expect("an error").code, 108);
    let response: Published = call(&mut client, "RPC", &History::default());
    assert_eq!(response.error.expect("an error").code, 104);
    let key = &fields[..1];
    let response: Result<Published, _> = call_with(&mut client, "DeviceList", key, &unknown);
    assert_eq!(response.expect_err("not implemented").0, "12");
}

#[test]
fn a_batch_has_a_reply_for_each_command() {
    let mut client = serve(options());
    for parallel in [false, true] {
        let commands = vec![
            Command {
                publish: Some(publication("kept:a", b"1")),
                history: None,
            },
            Command {
                publish: Some(publication("other:a", b"1")),
                history: None,
            },
            Command {
                publish: None,
                history: Some(History {
                    channel: "kept:a".to_owned(),
                    limit: 1,
                }),
            },
            Command::default(),
        ];
        let replies: Replies = call(&mut client, "Batch", &Batch { commands, parallel });
        let [published, failed, history, empty] = &replies.replies[..] else {
            panic!("expected four replies, found {replies:?}");
        };
        assert_eq!(
            published.publish.as_ref().expect("a result").offset,
            1 + u64::from(parallel)
        );
        assert_eq!(failed.error.as_ref().expect("an error").code, 102);
        assert_eq!(history.history.as_ref().expect("a result").publications.len(), 1);
        assert_eq!(empty.error.as_ref().expect("an error").code, 104);
    }
}
