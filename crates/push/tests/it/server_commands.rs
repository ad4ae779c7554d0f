//! Actions of the server on clients: subscriptions on connect, unsubscribes and disconnects.

use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_hub::protocol::{Command, ConnectRequest, Format, PingRequest, SubscribeRequest};
use ringmain_push::Options;
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::{Value, json};

use crate::support::{Stream, with_query};
use crate::token_signing::{FORMATS, WsClient, code, connect, guarded, serve_guarded, subscribe, token};

fn call(client: &mut TestClient, method: &str, body: &Value) -> (u16, String) {
    let request = client.post(&format!("/api/{method}")).header("x-api-key", "key");
    let reply = request.json(body).send();
    (reply.status(), reply.text().to_owned())
}

/// Returns the response of a call that has reached so many connections.
fn reached_response(connections: usize) -> String {
    format!(r#"{{"result":{{"num_clients":{connections}}}}}"#)
}

#[track_caller]
fn publish(client: &mut TestClient, channel: &str, data: &Value) {
    let (status, told) = call(client, "publish", &json!({ "channel": channel, "data": data }));
    assert!(status == 200 && told.starts_with(r#"{"result":{"#), "{told}");
}

fn ping() -> Command {
    Command {
        ping: Some(PingRequest {}),
        ..Command::default()
    }
}

#[test]
fn channels_of_a_token_are_part_of_the_connect_reply() {
    let claims = json!({
        "sub": "7",
        "channels": ["news", "closed:a"],
        "subs": { "$kept:b": { "data": { "hello": 1 }, "override": { "force_recovery": { "value": false } } } },
    });
    for format in FORMATS {
        let mut client = serve_guarded(3, guarded());
        let (mut ws, told) = WsClient::connected(&mut client, format, &token(claims.clone()));
        let subs = told.connect.expect("connected").subs;
        let named: Vec<_> = subs
            .iter()
            .map(|(name, sub)| (&**name, sub.recoverable, &*sub.data))
            .collect();
        let expected = [
            ("$kept:b", false, &br#"{"hello":1}"#[..]),
            ("closed:a", true, b""),
            ("news", false, b""),
        ];
        assert_eq!(named, expected);
        assert_eq!(code(&ws.request(subscribe("news", ""))), 105, "it is subscribed");
        for (number, channel) in ["news", "closed:a", "$kept:b"].into_iter().enumerate() {
            publish(&mut client, channel, &json!(number));
            let push = ws.push();
            let data = push.pub_.expect("a publication").data;
            assert_eq!((&*push.channel, &*data), (channel, number.to_string().as_bytes()));
        }
        drop(ws);
        client.finish().expect("it ends");
    }
}

#[test]
fn commands_behind_a_proxied_one_wait_for_it() {
    // Whatever the delays between workers.
    for seed in 0..20 {
        let setup = Setup {
            seed,
            workers: 3,
            ..Setup::default()
        };
        let app = ringmain_push::serve(App::new(), guarded());
        let mut client = TestClient::with(app, setup).expect("an application");
        let channels: Vec<String> = (0..6).map(|number| format!("closed:{number}")).collect();
        let all = token(json!({ "sub": "7", "channels": channels }));
        let mut ws = WsClient::open(&mut client, Format::Json);
        ws.send([connect(&all), subscribe("news", ""), ping()]);
        ws.send([subscribe("closed:0", "")]);
        let first = ws.socket.text();
        assert!(
            first.starts_with(r#"{"id":1,"connect":{"#),
            "seed {seed}: {first}"
        );
        ws.take(first.as_bytes());
        assert_eq!(code(&ws.reply(2)), 0, "seed {seed}");
        assert_eq!(code(&ws.reply(3)), 0, "seed {seed}");
        assert_eq!(code(&ws.reply(4)), 105, "seed {seed}");
        drop(ws);
        client
            .finish()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn server_subscriptions_are_recovered() {
    let token = token(json!({ "sub": "7", "channels": ["closed:a", "closed:b"] }));
    for format in FORMATS {
        let mut client = serve_guarded(2, guarded());
        let (first, told) = WsClient::connected(&mut client, format, &token);
        let stood = told.connect.expect("connected").subs;
        drop(first);
        for number in [1, 2] {
            publish(&mut client, "closed:a", &json!(number));
        }
        for number in [1, 2, 3] {
            publish(&mut client, "closed:b", &json!(number));
        }
        let subs = stood.iter().map(|(channel, stood)| {
            let request = SubscribeRequest {
                recover: true,
                epoch: stood.epoch.clone(),
                offset: stood.offset,
                ..SubscribeRequest::default()
            };
            (channel.clone(), request)
        });
        // A client cannot request a channel that its token does not name.
        let stranger = ("closed:c".to_owned(), SubscribeRequest::default());
        let again = Command {
            connect: Some(ConnectRequest {
                token: token.clone(),
                subs: subs.chain([stranger]).collect(),
                ..ConnectRequest::default()
            }),
            ..Command::default()
        };
        let mut second = WsClient::open(&mut client, format);
        let subs = second.request(again).connect.expect("connected").subs;
        assert_eq!(subs.len(), 2, "{subs:?}");
        let offsets = |channel: &str| -> Vec<u64> {
            subs[channel]
                .publications
                .iter()
                .map(|publication| publication.offset)
                .collect()
        };
        assert_eq!(
            (offsets("closed:a"), subs["closed:a"].recovered),
            (vec![1, 2], true)
        );
        // Two of three are retained.
        let b = &subs["closed:b"];
        assert_eq!(
            (offsets("closed:b"), b.recovered, b.was_recovering),
            (vec![], false, true)
        );
        drop(second);
        client.finish().expect("it ends");
    }
}

#[test]
fn server_subscriptions_end_with_a_reconnect() {
    for format in FORMATS {
        let mut options = guarded();
        options.limits.queued_bytes = 50_000;
        let closed = options.namespaces.get_mut("closed").expect("it is there");
        closed.channel_options.slow_consumer = SlowConsumerPolicy::Resync;
        let mut client = serve_guarded(2, options);
        let by_server = token(json!({ "sub": "7", "channels": ["closed:a"] }));
        let (mut servers, _) = WsClient::connected(&mut client, format, &by_server);
        let (mut own, _) = WsClient::connected(&mut client, format, &token(json!({ "sub": "7" })));
        let channel = token(json!({ "sub": "7", "channel": "closed:a" }));
        assert_eq!(code(&own.request(subscribe("closed:a", &channel))), 0);
        for _ in 0..40 {
            publish(&mut client, "closed:a", &json!("x".repeat(20_000)));
        }
        assert_eq!(servers.socket.closed(), (3010, "insufficient state".to_owned()));
        let told = loop {
            let push = own.push();
            if let Some(told) = push.unsubscribe {
                break told;
            }
            assert!(push.pub_.is_some(), "{push:?}");
        };
        assert_eq!(told.code, 2500);
        drop((servers, own));
        client.finish().expect("it ends");
    }
}

#[test]
fn users_are_subscribed_to_their_own_channels() {
    let options = Options {
        user_channel: Some("closed".to_owned()),
        anonymous: true,
        ..guarded()
    };
    let mut client = serve_guarded(2, options);
    let mut ws_clients: Vec<WsClient> = ["7", "8"]
        .into_iter()
        .map(|user| {
            let (ws, told) = WsClient::connected(&mut client, Format::Json, &token(json!({ "sub": user })));
            let subs = told.connect.expect("connected").subs;
            assert_eq!(subs.keys().collect::<Vec<_>>(), [&format!("closed:#{user}")]);
            ws
        })
        .collect();
    assert_eq!(code(&ws_clients[0].request(subscribe("closed:#8", ""))), 103);
    publish(&mut client, "closed:#8", &json!("for 8"));
    publish(&mut client, "closed:#7", &json!("for 7"));
    for (ws, user) in ws_clients.iter_mut().zip(["7", "8"]) {
        let data = ws.push().pub_.expect("a publication").data;
        assert_eq!(&*data, format!("\"for {user}\"").as_bytes());
    }
    // A name that would be two users, or no part of a channel's name.
    for user in ["7,8", "ü", &"x".repeat(300)] {
        let mut ws = WsClient::open(&mut client, Format::Json);
        assert_eq!(
            code(&ws.request(connect(&token(json!({ "sub": user }))))),
            107,
            "{user}"
        );
    }
    let (_, told) = WsClient::connected(&mut client, Format::Json, "");
    assert!(
        told.connect.expect("connected").subs.is_empty(),
        "a client without a user has no server-side subscriptions"
    );
    drop(ws_clients);
    client.finish().expect("it ends");
}

#[test]
fn channels_beyond_the_limit_are_rejected() {
    let mut options = guarded();
    options.limits.subscriptions = 2;
    let mut client = serve_guarded(1, options);
    let mut ws = WsClient::open(&mut client, Format::Json);
    ws.send([connect(&token(
        json!({ "sub": "7", "channels": ["a", "b", "c"] }),
    ))]);
    assert_eq!(ws.socket.closed().0, 3505);
    client.finish().expect("it ends");
}

#[test]
fn connections_of_a_user_are_limited() {
    let options = Options {
        connections_per_user: 3,
        anonymous: true,
        ..guarded()
    };
    let mut client = serve_guarded(3, options);
    let seven = token(json!({ "sub": "7" }));
    let mut theirs: Vec<WsClient> = (0..3)
        .map(|_| WsClient::connected(&mut client, Format::Json, &seven).0)
        .collect();
    for _ in 0..2 {
        let mut ws = WsClient::open(&mut client, Format::Json);
        ws.send([connect(&seven)]);
        assert_eq!(ws.socket.closed(), (3504, "connection limit".to_owned()));
    }
    let request = json!({ "token": seven }).to_string();
    assert_eq!(
        client.post("/connection/uni_sse").body(request).send().status(),
        400
    );
    // Other users are not affected, and anonymous clients are not counted.
    let others: Vec<WsClient> = [&*token(json!({ "sub": "8" })), "", "", "", ""]
        .map(|token| WsClient::connected(&mut client, Format::Json, token).0)
        .into();
    let mut first = theirs.remove(0);
    first.socket.close(1000, "");
    first.socket.closed();
    let (again, _) = WsClient::connected(&mut client, Format::Json, &seven);
    drop((theirs, others, first, again));
    client.finish().expect("it ends");
}

#[test]
fn disconnect_reaches_every_worker_and_transport() {
    let mut client = serve_guarded(3, guarded());
    let seven = token(json!({ "sub": "7" }));
    let request = json!({ "token": seven }).to_string();
    let mut theirs: Vec<WsClient> = (0..9)
        .map(|number| WsClient::connected(&mut client, FORMATS[number % 2], &seven).0)
        .collect();
    let mut events = Stream::open(client.get(&with_query("/connection/uni_sse", &request)));
    events.event();
    let (mut other, _) = WsClient::connected(&mut client, Format::Json, &token(json!({ "sub": "77" })));
    for (body, expected) in [
        (
            json!({ "user": "" }),
            r#"{"error":{"code":107,"message":"bad request"}}"#.to_owned(),
        ),
        (json!({ "user": "nobody" }), reached_response(0)),
        (
            json!({ "user": "7", "client": "none of them" }),
            reached_response(0),
        ),
    ] {
        assert_eq!(call(&mut client, "disconnect", &body), (200, expected), "{body}");
    }
    // Unsupported fields are rejected.
    let (status, _) = call(&mut client, "disconnect", &json!({ "user": "7", "keeps": ["x"] }));
    assert_eq!(status, 400);
    for ws in &mut theirs {
        assert_eq!(code(&ws.request(ping())), 0, "it is still there");
    }
    let told = call(&mut client, "disconnect", &json!({ "user": "7" }));
    assert_eq!(told, (200, reached_response(theirs.len() + 1)));
    for ws in &mut theirs {
        assert_eq!(ws.socket.closed(), (3503, "force disconnect".to_owned()));
    }
    let over = r#"{"disconnect":{"code":3503,"reason":"force disconnect"}}"#;
    assert_eq!(events.event(), over);
    assert_eq!(code(&other.request(ping())), 0);
    drop((theirs, events, other));
    client.finish().expect("it ends");
}

#[test]
fn subscribe_adds_subscriptions_of_connected_users() {
    for format in FORMATS {
        let mut options = guarded();
        options.limits.subscriptions = 2;
        let kept = options.namespaces.get_mut("kept").expect("it is there");
        kept.channel_options.cache_recovery = true;
        let mut client = serve_guarded(3, options);
        publish(&mut client, "kept:a", &json!("last"));
        let mut theirs: Vec<WsClient> = (0..4)
            .map(|_| WsClient::connected(&mut client, format, &token(json!({ "sub": "7" }))).0)
            .collect();
        let (mut full, _) = WsClient::connected(
            &mut client,
            format,
            &token(json!({ "sub": "7", "channels": ["a", "b"] })),
        );
        let (mut other, _) = WsClient::connected(&mut client, format, &token(json!({ "sub": "8" })));
        for (body, expected) in [
            (
                json!({ "user": "7", "channel": "no:where" }),
                r#"{"error":{"code":102,"message":"unknown channel"}}"#.to_owned(),
            ),
            (
                json!({ "user": "7", "channel": "closed:a", "data": { "a": 1 }, "info": "x" }),
                reached_response(4),
            ),
            (json!({ "user": "7", "channel": "kept:a" }), reached_response(4)),
            // A subscriber is not notified again.
            (
                json!({ "user": "7", "channel": "closed:a", "data": 2 }),
                reached_response(0),
            ),
        ] {
            assert_eq!(call(&mut client, "subscribe", &body), (200, expected), "{body}");
        }
        for ws in &mut theirs {
            let mut pushes = [ws.push(), ws.push(), ws.push()];
            pushes.sort_by_key(|push| (push.channel.clone(), push.pub_.is_some()));
            let [closed, kept, last] = pushes;
            let told = closed.subscribe.expect("it is subscribed");
            assert_eq!((&*closed.channel, &*told.data), ("closed:a", &br#"{"a":1}"#[..]));
            assert!(told.recoverable && !told.epoch.is_empty());
            assert_eq!(
                (&*kept.channel, kept.subscribe.expect("it is subscribed").offset),
                ("kept:a", 1)
            );
            assert_eq!(&*last.pub_.expect("the last one").data, b"\"last\"");
            assert_eq!(
                code(&ws.request(subscribe("closed:a", ""))),
                105,
                "it is subscribed"
            );
        }
        publish(&mut client, "closed:a", &json!(3));
        for ws in &mut theirs {
            assert_eq!(&*ws.push().pub_.expect("a publication").data, b"3");
        }
        for ws in [&mut full, &mut other] {
            assert_eq!(code(&ws.request(ping())), 0);
            ws.receive_all();
            assert!(ws.is_quiet(), "nobody told it anything");
        }
        drop((theirs, full, other));
        client.finish().expect("it ends");
    }
}

#[test]
fn unsubscribe_ends_only_the_users_subscriptions() {
    let mut client = serve_guarded(3, guarded());
    let named = |user: &str| token(json!({ "sub": user, "channels": ["closed:a"] }));
    let mut theirs: Vec<WsClient> = (0..6)
        .map(|_| WsClient::connected(&mut client, Format::Json, &named("7")).0)
        .collect();
    let (mut other, _) = WsClient::connected(&mut client, Format::Json, &named("8"));
    for (body, expected) in [
        (
            json!({ "user": "7", "channel": "no:where" }),
            r#"{"error":{"code":102,"message":"unknown channel"}}"#.to_owned(),
        ),
        (json!({ "user": "7", "channel": "kept:a" }), reached_response(0)),
        (json!({ "user": "7", "channel": "closed:a" }), reached_response(6)),
    ] {
        assert_eq!(
            call(&mut client, "unsubscribe", &body),
            (200, expected.to_owned()),
            "{body}"
        );
    }
    for ws in &mut theirs {
        let push = ws.push();
        let told = push.unsubscribe.expect("it is over");
        assert_eq!((&*push.channel, told.code), ("closed:a", 2000));
        assert_eq!(
            code(&ws.request(subscribe("closed:a", ""))),
            103,
            "what it was granted is gone"
        );
    }
    publish(&mut client, "closed:a", &json!(1));
    assert!(other.push().pub_.is_some());
    drop((theirs, other));
    client.finish().expect("it ends");
}
