//! Connections that programs renew or close.

use ringmain_hub::protocol::Format;
use ringmain_web::testing::TestClient;
use serde_json::{Value, json};

use crate::api::{call, fault};
use crate::support::{Stream, with_query};
use crate::token_signing::{FORMATS, LEEWAY, WsClient, guarded, now, serve_guarded, token};

fn reached_response(connections: usize) -> Value {
    json!({ "result": { "num_clients": connections } })
}

/// Connects a client of a user, whose token expires after so many seconds.
fn connect_user(client: &mut TestClient, user: &str, format: Format, seconds: u64) -> (WsClient, String) {
    let expires = now(client) + seconds;
    let (ws, told) = WsClient::connected(client, format, &token(json!({ "sub": user, "exp": expires })));
    (ws, told.connect.expect("connected").client)
}

#[test]
fn a_refresh_extends_a_connection() {
    for format in FORMATS {
        let mut client = serve_guarded(3, guarded());
        let (mut theirs, _) = connect_user(&mut client, "7", format, 20);
        let (mut other, _) = connect_user(&mut client, "8", format, 20);
        let until = now(&mut client) + 100;
        let body = json!({ "user": "7", "expire_at": until });
        assert_eq!(call(&mut client, "refresh", &body), reached_response(1));
        let told = theirs.push().refresh.expect("it is told");
        assert!(told.expires && (99..=100).contains(&told.ttl), "{told:?}");
        for _ in 0..20 + LEEWAY + 25 - 2 {
            theirs.wait(&mut client, 1);
            other.receive_all();
        }
        theirs.wait(&mut client, 4);
        assert_eq!(other.socket.closed().0, 3005);
        theirs.wait(&mut client, 40);
        assert_eq!(
            call(&mut client, "refresh", &json!({ "user": "7" })),
            reached_response(1)
        );
        let told = theirs.push().refresh.expect("it is told");
        assert!(!told.expires, "{told:?}");
        theirs.wait(&mut client, 100);
        drop((theirs, other));
        client.finish().expect("it ends");
    }
}

#[test]
fn an_expired_refresh_closes_the_connection() {
    let mut client = serve_guarded(3, guarded());
    let past = now(&mut client) - LEEWAY - 1;
    for body in [
        json!({ "user": "7", "expired": true }),
        json!({ "user": "7", "expire_at": past }),
    ] {
        let (mut theirs, name) = connect_user(&mut client, "7", Format::Json, 1000);
        let (mut second, _) = connect_user(&mut client, "7", Format::Json, 1000);
        let (mut other, _) = connect_user(&mut client, "8", Format::Json, 1000);
        let mut one = body.clone();
        one["client"] = json!(name);
        assert_eq!(call(&mut client, "refresh", &one), reached_response(1));
        assert_eq!(theirs.socket.closed().0, 3005, "{body}");
        second.receive_all();
        let mut all = body.clone();
        all["client"] = json!("");
        assert_eq!(call(&mut client, "refresh", &all), reached_response(1));
        assert_eq!(second.socket.closed().0, 3005, "{body}");
        other.receive_all();
        assert!(other.is_quiet());
    }
    let listens = token(json!({ "sub": "7", "channels": ["news"] }));
    let connect = json!({ "token": listens }).to_string();
    let mut stream = Stream::open(client.get(&with_query("/connection/uni_sse", &connect)));
    stream.event();
    let until = now(&mut client) + 5;
    call(
        &mut client,
        "refresh",
        &json!({ "user": "7", "expire_at": until }),
    );
    let told: Value = serde_json::from_str(&stream.event()).expect("JSON");
    assert_eq!(told["refresh"]["expires"], json!(true), "{told}");
    let last = loop {
        let told: Value = serde_json::from_str(&stream.event()).expect("JSON");
        if told["disconnect"].is_object() {
            break told;
        }
    };
    assert_eq!(last["disconnect"]["code"], json!(3005));
    client.finish().expect("it ends");
}

#[test]
fn a_refresh_changes_the_info_for_other_clients() {
    let mut client = serve_guarded(2, guarded());
    let (mut theirs, _) = connect_user(&mut client, "7", Format::Json, 1000);
    call(
        &mut client,
        "refresh",
        &json!({ "user": "7", "info": { "name": "seven" } }),
    );
    assert!(theirs.push().refresh.is_some());
    let publish = ringmain_hub::protocol::Command {
        publish: Some(ringmain_hub::protocol::PublishRequest {
            channel: "users:a".to_owned(),
            data: "1".into(),
        }),
        ..ringmain_hub::protocol::Command::default()
    };
    assert!(theirs.request(publish).publish.is_some());
    let told = call(
        &mut client,
        "history",
        &json!({ "channel": "users:a", "limit": 1 }),
    );
    let info = &told["result"]["publications"][0]["info"];
    assert_eq!(
        (&info["user"], &info["conn_info"]["name"]),
        (&json!("7"), &json!("seven"))
    );
    drop(theirs);
    client.finish().expect("it ends");
}

#[test]
fn unsupported_user_commands_are_rejected() {
    let mut client = serve_guarded(2, guarded());
    let (mut theirs, name) = connect_user(&mut client, "7", Format::Json, 1000);
    let (mut second, _) = connect_user(&mut client, "7", Format::Json, 1000);
    for (method, body, expected) in [
        ("refresh", json!({ "user": "" }), 107),
        ("refresh", json!({ "user": "7", "expire_at": -1 }), 107),
        ("refresh", json!({ "user": "7", "session": "s" }), 108),
        ("disconnect", json!({ "user": "7", "session": "s" }), 108),
        (
            "disconnect",
            json!({ "user": "7", "disconnect": { "code": 4000, "reason": "r" } }),
            108,
        ),
        (
            "disconnect",
            json!({ "user": "7", "whitelist": vec!["x"; 257] }),
            106,
        ),
        (
            "subscribe",
            json!({ "user": "7", "channel": "news", "expire_at": 7 }),
            108,
        ),
        (
            "subscribe",
            json!({ "user": "7", "channel": "news", "recover_since": { "offset": 1 } }),
            108,
        ),
        (
            "subscribe",
            json!({ "user": "7", "channel": "news", "override": { "presence": { "value": true } } }),
            108,
        ),
        ("subscribe", json!({ "user": "7", "channel": "no:where" }), 102),
        ("unsubscribe", json!({ "user": "", "channel": "news" }), 107),
    ] {
        assert_eq!(fault(&mut client, method, &body), expected, "{method} {body}");
    }
    let other_client = json!({ "user": "7", "client": "another", "session": "", "whitelist": [] });
    assert_eq!(
        call(&mut client, "disconnect", &other_client),
        reached_response(0)
    );
    client.advance(std::time::Duration::from_secs(1));
    theirs.receive_all();
    second.receive_all();
    assert!(theirs.is_quiet() && second.is_quiet());
    let but_one = json!({ "user": "7", "client": "", "whitelist": [name], "disconnect": { "code": 3503 } });
    assert_eq!(call(&mut client, "disconnect", &but_one), reached_response(1));
    assert_eq!(second.socket.closed().0, 3503);
    theirs.receive_all();
    let body = json!({ "user": "7", "channel": "news", "client": "", "b64info": "", "b64data": "e30=" });
    assert_eq!(call(&mut client, "subscribe", &body), reached_response(1));
    let told = theirs.push().subscribe.expect("it is subscribed");
    assert_eq!(&*told.data, b"{}");
    drop(theirs);
    client.finish().expect("it ends");
}
