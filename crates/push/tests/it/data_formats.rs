//! The formats of publications' data, and bytes that are not JSON for clients of the JSON format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_hub::protocol::{Command, Format, PublishRequest};
use ringmain_push::{DataFormat, Options};
use ringmain_web::testing::TestClient;
use serde_json::{Value, json};

use crate::api::{call, fault};
use crate::support::{options, serve};
use crate::token_signing::{WsClient, code, connect, guarded, serve_guarded, subscribe, token};

fn with_format(data_format: DataFormat) -> Options {
    let mut options = options();
    let kept = options.namespaces.get_mut("kept").expect("it is there");
    kept.data_format = data_format;
    kept.channel_options.join_leave = true;
    options
}

fn publish(channel: &str, data: &[u8]) -> Command {
    Command {
        publish: Some(PublishRequest {
            channel: channel.to_owned(),
            data: Bytes::copy_from_slice(data),
        }),
        ..Command::default()
    }
}

fn ws(client: &mut TestClient, format: Format) -> WsClient {
    let mut ws = WsClient::open(client, format);
    assert!(ws.request(connect("")).connect.is_some());
    ws
}

#[test]
fn data_of_another_format_is_rejected_for_every_publisher() {
    for (format, json_code, object_code, bytes_code) in [
        (DataFormat::Json, 0, 0, 107),
        (DataFormat::JsonObject, 107, 0, 107),
        (DataFormat::Binary, 0, 0, 0),
    ] {
        let mut client = serve(with_format(format));
        let mut binary = ws(&mut client, Format::Protobuf);
        let mut json = ws(&mut client, Format::Json);
        for (data, expected) in [
            (&b"[1]"[..], json_code),
            (b" {\"a\":1}", object_code),
            (b"\0\xff", bytes_code),
            (b"{\"a\":", bytes_code),
            (b"", 107),
        ] {
            assert_eq!(
                code(&binary.request(publish("kept:a", data))),
                expected,
                "{format:?} {data:?}"
            );
            let body = json!({ "channel": "kept:a", "b64data": STANDARD.encode(data) });
            assert_eq!(
                fault(&mut client, "publish", &body),
                u64::from(expected),
                "{format:?} {data:?}"
            );
            if let Ok(value) = serde_json::from_slice::<Value>(data) {
                assert_eq!(
                    code(&json.request(publish("kept:a", data))),
                    expected,
                    "{format:?}"
                );
                let body = json!({ "channels": ["kept:a", "kept:b"], "data": value });
                let told = call(&mut client, "broadcast", &body);
                for one in told["result"]["responses"].as_array().expect("two") {
                    assert_eq!(one["error"]["code"].as_u64().unwrap_or(0), u64::from(expected));
                }
            }
        }
        drop((binary, json));
        client.finish().expect("it ends");
    }
}

#[test]
fn a_subscription_that_json_cannot_carry_is_rejected() {
    let mut client = serve(with_format(DataFormat::Binary));
    let mut binary = ws(&mut client, Format::Protobuf);
    assert_eq!(code(&binary.request(publish("kept:a", b"\0\xff"))), 0);
    let mut json = ws(&mut client, Format::Json);
    let recover = || {
        let mut command = subscribe("kept:a", "");
        if let Some(request) = &mut command.subscribe {
            request.recover = true;
        }
        command
    };
    for _ in 0..2 {
        assert_eq!(code(&json.request(recover())), 108, "the same again, and not 105");
    }
    let told = call(&mut client, "presence_stats", &json!({ "channel": "kept:a" }));
    assert_eq!(told["result"]["num_clients"], 0);
    let mut history = Command {
        history: Some(Default::default()),
        ..Command::default()
    };
    if let Some(request) = &mut history.history {
        (request.channel, request.limit) = ("kept:a".to_owned(), 10);
    }
    assert_eq!(code(&json.request(history)), 108);
    // A new publication is not recovered, and is JSON.
    assert_eq!(code(&json.request(subscribe("kept:a", ""))), 0);
    drop((binary, json));
    client.finish().expect("it ends");
}

/// Bytes in the info of a client's token must not close the connections of others.
#[test]
fn an_info_that_is_not_json_is_omitted_in_json() {
    let mut options = guarded();
    let closed = options.namespaces.get_mut("users").expect("it is there");
    closed.channel_options.join_leave = true;
    let mut client = serve_guarded(2, options);
    let (mut listener, _) = WsClient::connected(&mut client, Format::Json, &token(json!({ "sub": "8" })));
    assert_eq!(code(&listener.request(subscribe("users:a", ""))), 0);
    let own = listener.push().join.and_then(|join| join.info).expect("an info");
    assert_eq!(own.user, "8");
    let claims = json!({ "sub": "7", "b64info": STANDARD.encode(b"\0\xff") });
    let (mut binary, _) = WsClient::connected(&mut client, Format::Protobuf, &token(claims));
    assert_eq!(code(&binary.request(subscribe("users:a", ""))), 0);
    let joined = listener.push().join.and_then(|join| join.info).expect("an info");
    assert_eq!((&*joined.user, joined.conn_info.is_empty()), ("7", true));
    let told = binary.push().join.and_then(|join| join.info).expect("an info");
    assert_eq!(&*told.conn_info, b"\0\xff", "Protobuf carries it");
    assert_eq!(code(&binary.request(publish("users:a", b"1"))), 0);
    let heard = listener.push().pub_.expect("a publication");
    assert_eq!(heard.info.expect("an info").user, "7");
    drop((listener, binary));
    client.finish().expect("it ends");
}
