//! Queries of programs: presence, history, channels and the number of clients.

use std::collections::BTreeMap;

use ringmain_hub::history::HistoryOptions;
use ringmain_hub::protocol::Format;
use ringmain_push::Options;
use ringmain_push::limits::LISTED_CHANNELS;
use ringmain_web::testing::TestClient;
use serde_json::{Value, json};

use crate::api::{call, fault};
use crate::support::{Stream, options, serve_by};
use crate::token_signing::{WsClient, code, guarded, serve_guarded, subscribe, token};

/// Connects clients of these users, on any workers, each with a channel.
fn ws_clients(client: &mut TestClient, users: &[&str], channel: &str) -> Vec<WsClient> {
    let connected = users.iter().map(|user| {
        let claims = json!({ "sub": user, "info": { "name": user } });
        let (mut ws, _) = WsClient::connected(client, Format::Json, &token(claims));
        assert_eq!(code(&ws.request(subscribe(channel, ""))), 0);
        ws
    });
    connected.collect()
}

#[test]
fn presence_covers_all_workers() {
    let mut client = serve_guarded(3, guarded());
    let all = ws_clients(&mut client, &["7", "8", "7", "9", "7"], "users:a");
    let told = call(&mut client, "presence", &json!({ "channel": "users:a" }));
    let presence: BTreeMap<String, Value> =
        serde_json::from_value(told["result"]["presence"].clone()).expect("by client");
    let mut users: Vec<&str> = presence
        .iter()
        .map(|(name, info)| {
            assert_eq!(info["client"], json!(name));
            assert_eq!(info["conn_info"], json!({ "name": info["user"] }));
            assert_eq!(info.as_object().map(serde_json::Map::len), Some(3), "{info}");
            info["user"].as_str().expect("a user")
        })
        .collect();
    users.sort_unstable();
    assert_eq!(users, ["7", "7", "7", "8", "9"]);
    let stats = |client: &mut TestClient| call(client, "presence_stats", &json!({ "channel": "users:a" }));
    assert_eq!(
        stats(&mut client),
        json!({ "result": { "num_clients": 5, "num_users": 3 } })
    );
    drop(all);
    client.advance(std::time::Duration::from_secs(1));
    assert_eq!(
        stats(&mut client),
        json!({ "result": { "num_clients": 0, "num_users": 0 } })
    );
    let empty = call(&mut client, "presence", &json!({ "channel": "users:b" }));
    assert_eq!(empty, json!({ "result": { "presence": {} } }));
    for method in ["presence", "presence_stats"] {
        for (channel, expected) in [("news", 108), ("no:where", 102), ("", 107), ("a\nb", 107)] {
            let body = json!({ "channel": channel });
            assert_eq!(fault(&mut client, method, &body), expected, "{method} {channel}");
        }
    }
    client.finish().expect("it ends");
}

/// Returns the offsets in the history of a channel whose last one is 6, or the fault's code; and the epoch.
fn history_of(client: &mut TestClient, more: &Value) -> (Value, Value) {
    let mut body = more.clone();
    body["channel"] = json!("kept:a");
    let told = call(client, "history", &body);
    if told["error"].is_object() {
        return (told["error"]["code"].clone(), json!(null));
    }
    assert_eq!(told["result"]["offset"], json!(6));
    let publications = told["result"]["publications"].as_array().expect("a list");
    let offsets: Vec<&Value> = publications.iter().map(|one| &one["offset"]).collect();
    (json!(offsets), told["result"]["epoch"].clone())
}

#[test]
fn history_starts_at_the_requested_position() {
    let mut options = options();
    options
        .namespaces
        .get_mut("kept")
        .expect("it is there")
        .channel_options
        .history = Some(HistoryOptions {
        publications: 4,
        bytes: 1000,
        ttl: std::time::Duration::from_secs(60),
    });
    let mut client = serve_by(3, options);
    for number in 1..=6 {
        call(
            &mut client,
            "publish",
            &json!({ "channel": "kept:a", "data": number }),
        );
    }
    let (none, epoch) = history_of(&mut client, &json!({}));
    assert_eq!(none, json!([]), "only where it stands");
    for (more, expected) in [
        (json!({ "limit": 2 }), json!([3, 4])),
        (json!({ "limit": 2, "reverse": true }), json!([6, 5])),
        (json!({ "limit": -1 }), json!([3, 4, 5, 6])),
        (json!({ "limit": 100_000 }), json!([3, 4, 5, 6])),
        (
            json!({ "limit": 2, "since": { "offset": 4, "epoch": epoch } }),
            json!([5, 6]),
        ),
        (
            json!({ "limit": 9, "since": { "offset": 6, "epoch": epoch } }),
            json!([]),
        ),
        (
            json!({ "limit": 9, "since": { "offset": 5 }, "reverse": true }),
            json!([4, 3]),
        ),
        (json!({ "limit": 9, "since": {} }), json!([3, 4, 5, 6])),
        (json!({ "since": { "offset": 4, "epoch": epoch } }), json!([])),
        (
            json!({ "limit": 9, "since": { "offset": 4, "epoch": "another" } }),
            json!(112),
        ),
        (
            json!({ "limit": 9, "since": { "offset": 4, "epoch": "0123456789abcdef" } }),
            json!(112),
        ),
    ] {
        assert_eq!(history_of(&mut client, &more).0, expected, "{more}");
    }
    assert_eq!(
        call(&mut client, "history_remove", &json!({ "channel": "kept:a" })),
        json!({ "result": {} })
    );
    assert_eq!(
        history_of(&mut client, &json!({ "limit": -1 })),
        (json!([]), epoch.clone())
    );
    let next = call(&mut client, "publish", &json!({ "channel": "kept:a", "data": 7 }));
    assert_eq!(next["result"], json!({ "offset": 7, "epoch": epoch }));
    client.finish().expect("it ends");
}

#[test]
fn history_requires_retention() {
    let mut client = serve_by(2, options());
    for method in ["history", "history_remove"] {
        for (channel, expected) in [("news", 108), ("no:where", 102), ("", 107)] {
            let body = json!({ "channel": channel });
            assert_eq!(fault(&mut client, method, &body), expected, "{method} {channel}");
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn a_subscription_survives_history_removal() {
    let mut client = serve_by(2, options());
    let mut ws = WsClient::open(&mut client, Format::Json);
    ws.request(crate::token_signing::connect(""));
    assert_eq!(code(&ws.request(subscribe("kept:a", ""))), 0);
    for (number, removes) in [(1, true), (2, false)] {
        call(
            &mut client,
            "publish",
            &json!({ "channel": "kept:a", "data": number }),
        );
        let publication = ws.push().pub_.expect("a publication");
        assert_eq!(publication.offset, number);
        if removes {
            call(&mut client, "history_remove", &json!({ "channel": "kept:a" }));
        }
    }
    ws.receive_all();
    assert!(ws.is_quiet());
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn channels_and_clients_of_all_workers_are_listed() {
    let options = Options {
        anonymous: true,
        ..guarded()
    };
    let mut client = serve_guarded(3, options);
    let mut all = ws_clients(&mut client, &["7", "8", "7"], "users:a");
    assert_eq!(code(&all[0].request(subscribe("news", ""))), 0);
    let mut anonymous = WsClient::open(&mut client, Format::Json);
    anonymous.request(crate::token_signing::connect(""));
    assert_eq!(code(&anonymous.request(subscribe("news", ""))), 0);
    // A channel with history alone has no subscribers.
    call(&mut client, "publish", &json!({ "channel": "kept:x", "data": 1 }));
    for (body, expected) in [
        (
            json!({}),
            json!({ "news": { "num_clients": 2 }, "users:a": { "num_clients": 3 } }),
        ),
        (
            json!({ "pattern": "" }),
            json!({ "news": { "num_clients": 2 }, "users:a": { "num_clients": 3 } }),
        ),
        (
            json!({ "pattern": "users:*" }),
            json!({ "users:a": { "num_clients": 3 } }),
        ),
        (
            json!({ "pattern": "{news,other}" }),
            json!({ "news": { "num_clients": 2 } }),
        ),
        (json!({ "pattern": "other*" }), json!({})),
    ] {
        let told = call(&mut client, "channels", &body);
        assert_eq!(told, json!({ "result": { "channels": expected } }), "{body}");
    }
    for pattern in ["[", "{a", &"*".repeat(256)] {
        assert_eq!(
            fault(&mut client, "channels", &json!({ "pattern": pattern })),
            107
        );
    }
    client.advance(std::time::Duration::from_secs(3));
    for ws in &mut all {
        ws.receive_all();
    }
    let told = call(&mut client, "info", &json!({}));
    let [node] = &told["result"]["nodes"].as_array().expect("nodes")[..] else {
        panic!("one node: {told}");
    };
    let number = |name: &str| node[name].as_u64().expect("a number");
    assert_eq!((number("num_clients"), number("num_users")), (4, 2));
    assert_eq!((number("num_subs"), number("num_channels")), (5, 2));
    assert!(number("uptime") >= 3 && node["uid"].as_str().is_some_and(|uid| uid.len() == 36));
    assert_eq!(node["version"], json!(env!("CARGO_PKG_VERSION")));
    drop((all, anonymous));
    client.advance(std::time::Duration::from_secs(1));
    let told = call(&mut client, "info", &json!({}));
    let node = &told["result"]["nodes"][0];
    for name in ["num_clients", "num_users", "num_subs", "num_channels"] {
        assert_eq!(node[name], json!(0), "{name}");
    }
    client.finish().expect("it ends");
}

#[test]
fn lists_of_channels_are_limited() {
    let mut options = options();
    options.limits.subscriptions = LISTED_CHANNELS;
    let mut client = serve_by(2, options);
    let mut streams = Vec::new();
    let part = LISTED_CHANNELS / 4;
    for from in 0..4 {
        let names = (from * part..(from + 1) * part).map(|number| (format!("c{number}"), json!({})));
        let subs: serde_json::Map<String, Value> = names.collect();
        let connect = json!({ "subs": subs }).to_string();
        let mut stream = Stream::open(client.post("/connection/uni_http_stream").body(connect));
        stream.line();
        streams.push(stream);
    }
    let told = call(&mut client, "channels", &json!({}));
    let channels = told["result"]["channels"].as_object().expect("channels");
    assert_eq!(channels.len(), LISTED_CHANNELS);
    let mut one_more = Stream::open(
        client
            .post("/connection/uni_http_stream")
            .body(r#"{"subs":{"one more":{}}}"#),
    );
    one_more.line();
    assert_eq!(fault(&mut client, "channels", &json!({})), 106);
    let told = call(&mut client, "channels", &json!({ "pattern": "c1?" }));
    assert_eq!(
        told["result"]["channels"].as_object().map(serde_json::Map::len),
        Some(10)
    );
    drop((streams, one_more));
    client.finish().expect("it ends");
}
