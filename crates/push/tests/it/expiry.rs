//! Expiry and renewal of connections and subscriptions, in virtual time.

use std::time::Duration;

use ringmain_hub::protocol::{Command, Format, PingRequest, UnsubscribeRequest};
use ringmain_push::limits::REFRESH_GRACE;
use ringmain_web::testing::{TestClient, TestEvent};
use serde_json::{Value, json};

use crate::support::{Stream, with_query};
use crate::token_signing::{
    FORMATS, LEEWAY, SECRET, WsClient, code, connect, guarded, now, refresh, serve_guarded, signed_by,
    sub_refresh, subscribe, token,
};

/// The time until a token's grant ends after its expiry, in seconds.
const GRACE: u64 = LEEWAY + REFRESH_GRACE.as_secs();

fn ping() -> Command {
    Command {
        ping: Some(PingRequest {}),
        ..Command::default()
    }
}

fn user_until(exp: u64) -> String {
    token(json!({ "sub": "7", "exp": exp }))
}

#[test]
fn a_connection_expires_without_another_token() {
    for format in FORMATS {
        let mut client = serve_guarded(2, guarded());
        let now = now(&mut client);
        let (mut idle, told) = WsClient::connected(&mut client, format, &user_until(now + 60));
        let told = told.connect.expect("connected");
        assert!(told.expires && (59..=60).contains(&told.ttl), "{told:?}");
        let (mut lasting, _) = WsClient::connected(&mut client, format, &token(json!({ "sub": "7" })));
        let (mut fresh, _) = WsClient::connected(&mut client, format, &user_until(now + 60));
        let reply = fresh.request(refresh(&user_until(now + 600)));
        let told = reply.refresh.expect("it goes on");
        assert!(told.expires && (590..=600).contains(&told.ttl), "{told:?}");
        let mut all = [&mut idle, &mut lasting, &mut fresh];
        for _ in 0..60 + GRACE - 3 {
            client.advance(Duration::from_secs(1));
            for ws in &mut all {
                ws.receive_all();
            }
        }
        assert_eq!(code(&idle.request(ping())), 0, "it is waited for");
        client.advance(Duration::from_secs(5));
        assert_eq!(idle.socket.closed(), (3005, "connection expired".to_owned()));
        for ws in [&mut lasting, &mut fresh] {
            assert_eq!(code(&ws.request(ping())), 0, "they go on");
        }
        drop((idle, lasting, fresh));
        client.finish().expect("it ends");
    }
}

#[test]
fn an_invalid_refresh_disconnects() {
    let mut client = serve_guarded(1, guarded());
    let now = now(&mut client);
    let stranger = b"another one of two and thirty by";
    let of = |claims: Value| token(claims);
    for (what, with, expected) in [
        ("expired", user_until(now - 100), 3005),
        ("not yet", of(json!({ "sub": "7", "nbf": now + 100 })), 3005),
        (
            "over",
            of(json!({ "sub": "7", "exp": now + 9, "expire_at": 1 })),
            3005,
        ),
        ("of another user", of(json!({ "sub": "8" })), 3500),
        ("of nobody", of(json!({})), 3500),
        (
            "for a subscription",
            of(json!({ "sub": "7", "channel": "news" })),
            3500,
        ),
        (
            "forged",
            signed_by(stranger, &json!({ "alg": "HS256" }), &json!({ "sub": "7" })),
            3500,
        ),
        ("nothing", String::new(), 3501),
    ] {
        for format in FORMATS {
            let (mut ws, _) = WsClient::connected(&mut client, format, &user_until(now + 1000));
            ws.send([refresh(&with)]);
            assert_eq!(ws.socket.closed().0, expected, "{what}");
        }
    }
    client.finish().expect("it ends");
    // Without tokens none can be renewed.
    let options = ringmain_push::Options {
        anonymous: true,
        tokens: None,
        ..guarded()
    };
    let mut client = serve_guarded(1, options);
    let (mut ws, _) = WsClient::connected(&mut client, Format::Json, "");
    assert_eq!(code(&ws.request(refresh("x"))), 108);
    assert_eq!(SECRET.len(), 32);
}

#[test]
fn a_new_token_replaces_the_permissions_of_the_first() {
    let mut client = serve_guarded(1, guarded());
    let with = |allow: Value| {
        let caps = json!([{ "channels": ["closed:a"], "allow": allow }]);
        token(json!({ "sub": "7", "caps": caps }))
    };
    let (mut ws, _) = WsClient::connected(&mut client, Format::Json, &with(json!([])));
    assert_eq!(code(&ws.request(subscribe("closed:a", ""))), 103);
    let told = ws
        .request(refresh(&with(json!(["sub"]))))
        .refresh
        .expect("refreshed");
    assert!(!told.expires, "{told:?}");
    assert_eq!(code(&ws.request(subscribe("closed:a", ""))), 0);
    drop(ws);
    client.finish().expect("it ends");
}

/// The client reconnects, and is subscribed to the channels of its new token.
#[test]
fn a_token_with_other_channels_closes_the_connection() {
    for format in FORMATS {
        let mut options = guarded();
        options.user_channel = Some("users".to_owned());
        let mut client = serve_guarded(2, options);
        let with = |channels: &[&str]| {
            let subs: std::collections::BTreeMap<&str, Value> =
                channels.iter().map(|name| (*name, json!({}))).collect();
            // `channels` and `subs` are equivalent.
            [
                token(json!({ "sub": "7", "channels": channels })),
                token(json!({ "sub": "7", "subs": subs })),
            ]
        };
        for (first, second, goes_on) in [
            (&["closed:a"][..], &["closed:a"][..], true),
            (&[], &[], true),
            (&["closed:a"], &[], false),
            (&["closed:a", "closed:b"], &["closed:b"], false),
            (&["closed:a"], &["closed:a", "closed:b"], false),
            // The user's own channel is not the token's, and a channel that the client has subscribed to is not a new one.
            (&[], &["users:#7"], true),
            (&["closed:a"], &["closed:a", "kept:own"], true),
        ] {
            for (first, second) in with(first).iter().zip(with(second).iter().rev()) {
                let (mut ws, _) = WsClient::connected(&mut client, format, first);
                assert_eq!(code(&ws.request(subscribe("kept:own", ""))), 0);
                ws.send([refresh(second)]);
                if goes_on {
                    assert!(ws.reply(3).refresh.is_some())
                } else {
                    assert_eq!(ws.socket.closed().0, 3010, "{first} {second}")
                }
            }
        }
        client.finish().expect("it ends");
    }
}

#[test]
fn a_subscription_expires_without_another_token() {
    for format in FORMATS {
        let mut client = serve_guarded(2, guarded());
        let now = now(&mut client);
        let until = |channel: &str, exp: u64| token(json!({ "sub": "7", "channel": channel, "exp": exp }));
        let (mut ws, _) = WsClient::connected(&mut client, format, &token(json!({ "sub": "7" })));
        for channel in ["closed:a", "closed:b"] {
            let told = ws.request(subscribe(channel, &until(channel, now + 30)));
            let told = told.subscribe.expect("subscribed");
            assert!(told.expires && (29..=30).contains(&told.ttl), "{told:?}");
        }
        assert_eq!(code(&ws.request(subscribe("kept:free", ""))), 0);
        let told = ws.request(sub_refresh("closed:b", &until("closed:b", now + 600)));
        let told = told.sub_refresh.expect("it goes on");
        assert!(told.expires && (590..=600).contains(&told.ttl), "{told:?}");
        for (channel, with, expected) in [
            ("closed:b", until("closed:a", now + 600), 103),
            ("closed:b", until("closed:b", now - 100), 109),
            ("closed:b", "x".to_owned(), 103),
            ("closed:b", String::new(), 107),
            ("closed:c", until("closed:c", now + 600), 103),
            ("kept:free", until("kept:free", now + 600), 103),
            ("no:where", until("no:where", now + 600), 102),
        ] {
            let reply = ws.request(sub_refresh(channel, &with));
            assert_eq!(code(&reply), expected, "{channel}");
        }
        ws.wait(&mut client, 30 + GRACE - 3);
        ws.wait(&mut client, 5);
        let push = ws.push();
        let told = push.unsubscribe.expect("it is over");
        assert_eq!(
            (&*push.channel, told.code, &*told.reason),
            ("closed:a", 2501, "subscription expired")
        );
        // It may reconnect with another one.
        assert_eq!(
            code(&ws.request(subscribe("closed:a", &until("closed:a", now + 30)))),
            109
        );
        assert_eq!(
            code(&ws.request(subscribe("closed:a", &until("closed:a", now + 600)))),
            0
        );
        drop(ws);
        client.finish().expect("it ends");
    }
}

#[test]
fn a_unidirectional_client_has_no_grace_period() {
    let mut client = serve_guarded(2, guarded());
    let now = now(&mut client);
    let request = |exp: u64| json!({ "token": user_until(exp) }).to_string();
    let (short, long) = (request(now + 20), request(now + 500));
    let mut events = Stream::open(client.get(&with_query("/connection/uni_sse", &short)));
    let mut lines = Stream::open(client.post("/connection/uni_http_stream").body(&*short));
    let mut stays = Stream::open(client.post("/connection/uni_http_stream").body(&*long));
    let mut socket = client.ws("/connection/uni_websocket").open();
    socket.send_text(&short);
    for told in [events.event(), lines.line(), stays.line(), socket.text()] {
        assert!(told.contains(r#""expires":true,"ttl":"#), "{told}");
    }
    client.advance(Duration::from_secs(20 + LEEWAY + 2));
    let over = r#"{"disconnect":{"code":3005,"reason":"connection expired","reconnect":true}}"#;
    let after_pings = |mut next: Box<dyn FnMut() -> String + '_>| loop {
        match next() {
            ping if ping == "{}" => {}
            told => break told,
        }
    };
    assert_eq!(after_pings(Box::new(|| events.event())), over);
    assert_eq!(after_pings(Box::new(|| lines.line())), over);
    assert_eq!(lines.try_line(), None, "the body ends");
    assert_eq!(socket.closed().0, 3005);
    assert_eq!(stays.line(), "{}", "a ping");
    // A subscription with a token of its own, too: a client that cannot subscribe again reconnects.
    let own = token(json!({ "sub": "7", "channel": "closed:a", "exp": now + 60 }));
    let request = json!({ "token": user_until(now + 500), "subs": { "closed:a": { "token": own } } });
    let mut lines = Stream::open(
        client
            .post("/connection/uni_http_stream")
            .body(request.to_string()),
    );
    assert!(lines.line().contains(r#""closed:a":{"expires":true"#));
    client.advance(Duration::from_secs(40));
    let told = after_pings(Box::new(|| lines.line()));
    assert!(told.contains(r#""code":3006"#), "{told}");
    drop((events, lines, stays, socket));
    client.finish().expect("it ends");
}

#[test]
fn the_deadline_of_a_closed_connection_affects_no_other() {
    // A connection in the slot of one that had a deadline remains open, and so do its subscriptions.
    let mut client = serve_guarded(1, guarded());
    let now = now(&mut client);
    let channel = token(json!({ "sub": "7", "channel": "closed:a", "exp": now + 10 }));
    let (mut first, _) = WsClient::connected(&mut client, Format::Json, &user_until(now + 10));
    assert_eq!(code(&first.request(subscribe("closed:a", &channel))), 0);
    first.socket.close(1000, "");
    first.socket.closed();
    let (mut second, _) = WsClient::connected(&mut client, Format::Json, &token(json!({ "sub": "7" })));
    let lasting = token(json!({ "sub": "7", "channel": "closed:a" }));
    assert_eq!(code(&second.request(subscribe("closed:a", &lasting))), 0);
    second.wait(&mut client, 10 + GRACE + 20);
    assert_eq!(code(&second.request(ping())), 0);
    assert_eq!(
        code(&second.request(subscribe("closed:a", &lasting))),
        105,
        "it is subscribed"
    );
    drop((first, second));
    client.finish().expect("it ends");
}

#[test]
fn the_deadline_of_an_ended_subscription_does_not_end_the_next() {
    let mut client = serve_guarded(1, guarded());
    let now = now(&mut client);
    let of = |more: Value| {
        let mut claims = json!({ "sub": "7", "channel": "closed:a" });
        claims
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("one").clone());
        subscribe("closed:a", &token(claims))
    };
    let (mut ws, _) = WsClient::connected(&mut client, Format::Json, &token(json!({ "sub": "7" })));
    assert_eq!(code(&ws.request(of(json!({ "exp": now + 10 })))), 0);
    let unsubscribe = Command {
        unsubscribe: Some(UnsubscribeRequest {
            channel: "closed:a".to_owned(),
        }),
        ..Command::default()
    };
    assert_eq!(code(&ws.request(unsubscribe)), 0);
    assert_eq!(code(&ws.request(of(json!({})))), 0);
    ws.wait(&mut client, 10 + GRACE + 20);
    assert_eq!(code(&ws.request(of(json!({})))), 105, "it is subscribed");
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn an_expired_token_is_rejected_on_every_transport() {
    let mut client: TestClient = serve_guarded(1, guarded());
    let now = now(&mut client);
    let old = user_until(now - 100);
    for format in FORMATS {
        let mut ws = WsClient::open(&mut client, format);
        assert_eq!(code(&ws.request(connect(&old))), 109);
        // It may send another one.
        assert!(ws.request(connect(&user_until(now + 100))).connect.is_some());
    }
    let command = json!({ "id": 1, "connect": { "token": old } }).to_string();
    let mut lines = Stream::open(client.post("/connection/http_stream").body(&*command));
    assert!(lines.line().contains(r#""code":109"#));
    assert_eq!(lines.try_line(), None);
    let mut socket = client.ws("/connection/uni_websocket").open();
    socket.send_text(json!({ "token": old }).to_string());
    assert!(matches!(socket.event(), Ok(TestEvent::Close(3005, _))));
    drop((lines, socket));
    client.finish().expect("it ends");
}

/// Tokens of four seconds, as some applications sign them: connection and subscription remain as long as others arrive in time.
#[test]
fn short_tokens_are_refreshed_many_times() {
    for format in FORMATS {
        let mut client = serve_guarded(2, guarded());
        let began = now(&mut client);
        let until = |exp: u64| token(json!({ "sub": "7", "exp": exp }));
        let of_channel = |exp: u64| token(json!({ "sub": "7", "channel": "closed:a", "exp": exp }));
        let (mut ws, _) = WsClient::connected(&mut client, format, &until(began + 4));
        assert_eq!(
            code(&ws.request(subscribe("closed:a", &of_channel(began + 4)))),
            0
        );
        let mut refreshes = 0;
        while refreshes < 23 {
            ws.wait(&mut client, 3);
            let at = now(&mut client);
            let told = ws.request(refresh(&until(at + 4))).refresh.expect("it goes on");
            assert!(told.expires && told.ttl <= 4, "{told:?}");
            assert_eq!(code(&ws.request(sub_refresh("closed:a", &of_channel(at + 4)))), 0);
            refreshes += 1;
        }
        assert!(now(&mut client) - began >= 69, "more than a minute");
        assert!(ws.is_quiet(), "neither unsubscribed nor disconnected");
        // Without another one it expires.
        ws.wait(&mut client, 4 + GRACE - 3);
        client.advance(Duration::from_secs(5));
        assert_eq!(ws.socket.closed().0, 3005);
        client.finish().expect("it ends");
    }
}
