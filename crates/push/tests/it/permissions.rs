//! Permissions in channels: by namespaces, by channel tokens, by capabilities.

use ringmain_hub::protocol::{
    Command, Format, HistoryRequest, PresenceRequest, PresenceStatsRequest, PublishRequest,
    UnsubscribeRequest,
};
use serde_json::{Value, json};

use crate::token_signing::{
    FORMATS, LEEWAY, SECRET, WsClient, code, guarded, now, serve_guarded, signed_by, subscribe, token,
};

fn publish(channel: &str) -> Command {
    Command {
        publish: Some(PublishRequest {
            channel: channel.to_owned(),
            data: "1".into(),
        }),
        ..Command::default()
    }
}

fn history(channel: &str) -> Command {
    Command {
        history: Some(HistoryRequest {
            channel: channel.to_owned(),
            limit: 10,
            ..HistoryRequest::default()
        }),
        ..Command::default()
    }
}

fn presence(channel: &str) -> Command {
    let channel = channel.to_owned();
    Command {
        presence: Some(PresenceRequest { channel }),
        ..Command::default()
    }
}

fn presence_stats(channel: &str) -> Command {
    let channel = channel.to_owned();
    Command {
        presence_stats: Some(PresenceStatsRequest { channel }),
        ..Command::default()
    }
}

fn unsubscribe(channel: &str) -> Command {
    let channel = channel.to_owned();
    Command {
        unsubscribe: Some(UnsubscribeRequest { channel }),
        ..Command::default()
    }
}

/// Returns the permissions of user 7 in a channel to subscribe, publish, query history and presence, as the codes of errors. It subscribes
/// last.
fn permission_codes(ws: &mut WsClient, channel: &str) -> [u32; 4] {
    let others = [publish(channel), history(channel), presence(channel)].map(|one| code(&ws.request(one)));
    assert_eq!(code(&ws.request(presence_stats(channel))), others[2]);
    let listens = code(&ws.request(subscribe(channel, "")));
    if listens == 0 {
        assert_eq!(code(&ws.request(unsubscribe(channel))), 0);
    }
    [listens, others[0], others[1], others[2]]
}

const ALL: [u32; 4] = [0; 4];
const NOTHING: [u32; 4] = [103; 4];

#[test]
fn namespaces_grant_permissions() {
    let mut client = serve_guarded(1, guarded());
    for format in FORMATS {
        for (user, table) in [
            (
                "7",
                [
                    ("news", [0, 103, 108, 108]),
                    ("kept:a", ALL),
                    ("users:a", ALL),
                    ("closed:a", NOTHING),
                    ("$kept:a", NOTHING),
                    ("kept:a#7", ALL),
                    ("kept:a#6,7", ALL),
                    ("kept:a#6", NOTHING),
                    ("kept:a#77", NOTHING),
                    ("kept:a#", NOTHING),
                    ("users:#7", ALL),
                ],
            ),
            (
                "",
                [
                    ("news", [0, 103, 108, 108]),
                    ("kept:a", ALL),
                    ("users:a", NOTHING),
                    ("closed:a", NOTHING),
                    ("$kept:a", NOTHING),
                    ("kept:a#7", NOTHING),
                    ("kept:a#6,7", NOTHING),
                    ("kept:a#6", NOTHING),
                    ("kept:a#77", NOTHING),
                    ("kept:a#", NOTHING),
                    ("users:#7", NOTHING),
                ],
            ),
        ] {
            let (mut ws, _) = WsClient::connected(&mut client, format, &token(json!({ "sub": user })));
            for (channel, expected) in table {
                assert_eq!(permission_codes(&mut ws, channel), expected, "{user:?} {channel}");
            }
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn capabilities_extend_permissions() {
    let mut client = serve_guarded(1, guarded());
    let caps = json!([
        { "channels": ["closed:one", "closed:two"], "allow": ["sub"] },
        { "channels": ["closed:w*", "closed:*z*"], "match": "wildcard", "allow": ["pub", "hst"] },
        { "channels": ["closed:wp"], "allow": ["prs"] },
        { "channels": ["closed:p*"], "allow": ["sub", "pub", "prs", "hst"] },
        { "channels": ["news", "kept:a"], "allow": ["pub"] },
        { "channels": ["*"], "match": "wildcard", "allow": ["prs"] },
    ]);
    let claims = json!({ "sub": "7", "caps": caps });
    for format in FORMATS {
        let (mut ws, _) = WsClient::connected(&mut client, format, &token(claims.clone()));
        for (channel, expected) in [
            ("closed:one", [0, 103, 103, 103]),
            ("closed:two", [0, 103, 103, 103]),
            // The first for a channel takes precedence.
            ("closed:w", [103, 0, 0, 103]),
            ("closed:wp", [103, 0, 0, 103]),
            ("closed:az", [103, 0, 0, 103]),
            // Without wildcards a star is literal.
            ("closed:p", [103, 103, 103, 0]),
            ("closed:p*", ALL),
            ("closed:other", [103, 103, 103, 0]),
            // The permissions that every client has remain.
            ("news", [0, 0, 108, 108]),
            ("kept:a", ALL),
            ("kept:b", ALL),
            // Names that are reserved for others, or require a token, do.
            ("kept:a#6", NOTHING),
            ("$closed:one", NOTHING),
        ] {
            assert_eq!(permission_codes(&mut ws, channel), expected, "{channel}");
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn a_token_is_for_one_channel_and_one_user() {
    let mut client = serve_guarded(2, guarded());
    let now = now(&mut client);
    for format in FORMATS {
        let (mut ws, connected) = WsClient::connected(&mut client, format, &token(json!({ "sub": "7" })));
        let own = connected.connect.expect("connected").client;
        let of = |channel: &str, more: Value| {
            let mut claims = json!({ "sub": "7", "channel": channel, "exp": now + 100 });
            claims
                .as_object_mut()
                .expect("an object")
                .extend(more.as_object().expect("an object").clone());
            claims
        };
        let good = of("$kept:a", json!({}));
        let stranger = b"another one of two and thirty by";
        for (channel, claims, expected) in [
            ("$kept:a", good.clone(), 0),
            ("closed:a", of("closed:a", json!({ "client": own })), 0),
            ("kept:a", of("kept:a", json!({})), 0),
            ("users:a#7", of("users:a#7", json!({})), 0),
            ("$kept:b", good.clone(), 103),
            ("closed:b", of("closed:b", json!({ "sub": "8" })), 103),
            ("closed:b", of("closed:b", json!({ "client": "another" })), 103),
            ("closed:b", of("closed:b", json!({ "exp": now - LEEWAY })), 109),
            ("closed:b", of("closed:b", json!({ "nbf": now + 100 })), 109),
            ("closed:b", of("closed:b", json!({ "expire_at": 1 })), 110),
            ("closed:b", of("closed:b", json!({ "channel": "" })), 103),
            ("closed:b", json!({ "sub": "7" }), 103),
            ("kept:a#6", of("kept:a#6", json!({})), 103),
            ("no:where", of("no:where", json!({})), 102),
            // An invalid token is rejected where none would be needed.
            ("kept:b", good.clone(), 103),
            (
                "kept:b",
                of("kept:b", json!({ "override": { "other": { "value": true } } })),
                103,
            ),
            (
                "news",
                of(
                    "news",
                    json!({ "override": { "force_recovery": { "value": true } } }),
                ),
                108,
            ),
        ] {
            let reply = ws.request(subscribe(channel, &token(claims.clone())));
            assert_eq!(code(&reply), expected, "{channel} by {claims}");
        }
        let forged = signed_by(
            stranger,
            &json!({ "alg": "HS256" }),
            &of("closed:b", json!({ "exp": 1 })),
        );
        assert_eq!(code(&ws.request(subscribe("closed:b", &forged))), 103);
        assert_eq!(code(&ws.request(subscribe("closed:b", "nothing"))), 103);
        // A token of the other kind connects no client.
        let mut other = WsClient::open(&mut client, format);
        other.send([crate::token_signing::connect(&token(good))]);
        assert_eq!(other.socket.closed().0, 3500);
    }
    client.finish().expect("it ends");
    assert_eq!(SECRET.len(), 32);
}

#[test]
fn a_channel_token_grants_permissions_while_subscribed() {
    let mut client = serve_guarded(2, guarded());
    let (mut ws, _) = WsClient::connected(&mut client, Format::Json, &token(json!({ "sub": "7" })));
    let claims = json!({ "sub": "7", "channel": "$kept:a", "info": { "seat": 4 } });
    assert_eq!(code(&ws.request(history("$kept:a"))), 103);
    let reply = ws.request(subscribe("$kept:a", &token(claims.clone())));
    assert!(reply.subscribe.expect("subscribed").recoverable);
    for command in [publish("$kept:a"), history("$kept:a")] {
        assert_eq!(code(&ws.request(command)), 0);
    }
    // Other clients receive the info of the token.
    let info = ws
        .push()
        .pub_
        .expect("its own publication")
        .info
        .expect("its own");
    assert_eq!((&*info.user, &*info.chan_info), ("7", &br#"{"seat":4}"#[..]));
    let present = ws
        .request(presence("$kept:a"))
        .presence
        .expect("presence")
        .presence;
    let info = present.values().next().expect("it is there");
    assert_eq!((&*info.user, &*info.chan_info), ("7", &br#"{"seat":4}"#[..]));
    assert_eq!(code(&ws.request(unsubscribe("$kept:a"))), 0);
    for command in [publish("$kept:a"), history("$kept:a"), subscribe("$kept:a", "")] {
        assert_eq!(code(&ws.request(command)), 103, "it listens no longer");
    }
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn a_hidden_subscription_is_not_present() {
    let mut client = serve_guarded(2, guarded());
    let claims = json!({
        "sub": "7",
        "info": { "name": "Ann" },
        "subs": { "kept:a": { "override": { "presence": { "value": false } } }, "kept:b": { "b64info": "eyJhIjoxfQ==" } },
    });
    let (mut ws, _) = WsClient::connected(&mut client, Format::Protobuf, &token(claims));
    let present = ws
        .request(presence("kept:a"))
        .presence
        .expect("presence")
        .presence;
    assert!(present.is_empty(), "{present:?}");
    let present = ws
        .request(presence("kept:b"))
        .presence
        .expect("presence")
        .presence;
    let info = present.values().next().expect("it is there");
    assert_eq!(
        (&*info.conn_info, &*info.chan_info),
        (&br#"{"name":"Ann"}"#[..], &br#"{"a":1}"#[..])
    );
    // No leave is reported without a join.
    assert_eq!(code(&ws.request(unsubscribe("kept:a"))), 0);
    let counted = ws
        .request(presence_stats("kept:a"))
        .presence_stats
        .expect("counts");
    assert_eq!(counted.num_clients, 0);
    drop(ws);
    client.finish().expect("it ends");
}
