//! What the server does to clients unasked: subscribes them when they connect, ends their subscriptions and connections.

use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_hub::protocol::{Command, ConnectRequest, Format, PingRequest, SubscribeRequest};
use ringmain_push::Options;
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::{Value, json};

use crate::support::{Stream, with_query};
use crate::token_signing::{FORMATS, Talker, code, connect, guarded, serve_guarded, subscribe, token};

fn call(client: &mut TestClient, method: &str, body: &Value) -> (u16, String) {
    let request = client.post(&format!("/api/{method}")).header("x-api-key", "key");
    let reply = request.json(body).send();
    (reply.status(), reply.text().to_owned())
}

/// The answer of a call that has reached so many connections.
fn reached(connections: usize) -> String {
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
fn a_token_names_channels_that_come_with_the_connection() {
    let claims = json!({
        "sub": "7",
        "channels": ["news", "closed:a"],
        "subs": { "$kept:b": { "data": { "hello": 1 }, "override": { "force_recovery": { "value": false } } } },
    });
    for format in FORMATS {
        let mut client = serve_guarded(3, guarded());
        let (mut talker, told) = Talker::connected(&mut client, format, &token(claims.clone()));
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
        assert_eq!(code(&talker.ask(subscribe("news", ""))), 105, "it is subscribed");
        for (number, channel) in ["news", "closed:a", "$kept:b"].into_iter().enumerate() {
            publish(&mut client, channel, &json!(number));
            let push = talker.push();
            let data = push.pub_.expect("a publication").data;
            assert_eq!((&*push.channel, &*data), (channel, number.to_string().as_bytes()));
        }
        drop(talker);
        client.finish().expect("it ends");
    }
}

#[test]
fn commands_behind_it_are_answered_behind_it() {
    // Whatever way answers take between workers.
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
        let mut talker = Talker::open(&mut client, Format::Json);
        talker.send([connect(&all), subscribe("news", ""), ping()]);
        talker.send([subscribe("closed:0", "")]);
        let first = talker.socket.text();
        assert!(
            first.starts_with(r#"{"id":1,"connect":{"#),
            "seed {seed}: {first}"
        );
        talker.take(first.as_bytes());
        assert_eq!(code(&talker.reply(2)), 0, "seed {seed}");
        assert_eq!(code(&talker.reply(3)), 0, "seed {seed}");
        assert_eq!(code(&talker.reply(4)), 105, "seed {seed}");
        drop(talker);
        client
            .finish()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn who_comes_back_recovers_what_the_server_subscribed_it_to() {
    let token = token(json!({ "sub": "7", "channels": ["closed:a", "closed:b"] }));
    for format in FORMATS {
        let mut client = serve_guarded(2, guarded());
        let (first, told) = Talker::connected(&mut client, format, &token);
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
        // One that the token does not name is nobody's to ask for so.
        let stranger = ("closed:c".to_owned(), SubscribeRequest::default());
        let again = Command {
            connect: Some(ConnectRequest {
                token: token.clone(),
                subs: subs.chain([stranger]).collect(),
                ..ConnectRequest::default()
            }),
            ..Command::default()
        };
        let mut second = Talker::open(&mut client, format);
        let subs = second.ask(again).connect.expect("connected").subs;
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
        // Two of three are kept.
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
fn who_cannot_subscribe_again_connects_again() {
    for format in FORMATS {
        let mut options = guarded();
        options.limits.queued_bytes = 50_000;
        let closed = options.namespaces.get_mut("closed").expect("it is there");
        closed.channel_options.slow_consumer = SlowConsumerPolicy::Resync;
        let mut client = serve_guarded(2, options);
        let by_server = token(json!({ "sub": "7", "channels": ["closed:a"] }));
        let (mut servers, _) = Talker::connected(&mut client, format, &by_server);
        let (mut own, _) = Talker::connected(&mut client, format, &token(json!({ "sub": "7" })));
        let channel = token(json!({ "sub": "7", "channel": "closed:a" }));
        assert_eq!(code(&own.ask(subscribe("closed:a", &channel))), 0);
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
fn users_have_channels_of_their_own() {
    let options = Options {
        user_channel: Some("closed".to_owned()),
        anonymous: true,
        ..guarded()
    };
    let mut client = serve_guarded(2, options);
    let mut talkers: Vec<Talker> = ["7", "8"]
        .into_iter()
        .map(|user| {
            let (talker, told) = Talker::connected(&mut client, Format::Json, &token(json!({ "sub": user })));
            let subs = told.connect.expect("connected").subs;
            assert_eq!(subs.keys().collect::<Vec<_>>(), [&format!("closed:#{user}")]);
            talker
        })
        .collect();
    assert_eq!(code(&talkers[0].ask(subscribe("closed:#8", ""))), 103);
    publish(&mut client, "closed:#8", &json!("for 8"));
    publish(&mut client, "closed:#7", &json!("for 7"));
    for (talker, user) in talkers.iter_mut().zip(["7", "8"]) {
        let data = talker.push().pub_.expect("a publication").data;
        assert_eq!(&*data, format!("\"for {user}\"").as_bytes());
    }
    // A name that would be two users', or no part of a channel's.
    for user in ["7,8", "ü", &"x".repeat(300)] {
        let mut talker = Talker::open(&mut client, Format::Json);
        assert_eq!(
            code(&talker.ask(connect(&token(json!({ "sub": user }))))),
            107,
            "{user}"
        );
    }
    let (_, told) = Talker::connected(&mut client, Format::Json, "");
    assert!(
        told.connect.expect("connected").subs.is_empty(),
        "nobody has none"
    );
    drop(talkers);
    client.finish().expect("it ends");
}

#[test]
fn more_channels_than_may_be_are_refused() {
    let mut options = guarded();
    options.limits.subscriptions = 2;
    let mut client = serve_guarded(1, options);
    let mut talker = Talker::open(&mut client, Format::Json);
    talker.send([connect(&token(
        json!({ "sub": "7", "channels": ["a", "b", "c"] }),
    ))]);
    assert_eq!(talker.socket.closed().0, 3505);
    client.finish().expect("it ends");
}

#[test]
fn a_user_has_as_many_connections_as_may_be() {
    let options = Options {
        connections_per_user: 3,
        anonymous: true,
        ..guarded()
    };
    let mut client = serve_guarded(3, options);
    let seven = token(json!({ "sub": "7" }));
    let mut theirs: Vec<Talker> = (0..3)
        .map(|_| Talker::connected(&mut client, Format::Json, &seven).0)
        .collect();
    for _ in 0..2 {
        let mut talker = Talker::open(&mut client, Format::Json);
        talker.send([connect(&seven)]);
        assert_eq!(talker.socket.closed(), (3504, "connection limit".to_owned()));
    }
    let request = json!({ "token": seven }).to_string();
    assert_eq!(
        client.post("/connection/uni_sse").body(request).send().status(),
        400
    );
    // Others are others, and those whom nobody knows are not counted.
    let others: Vec<Talker> = [&*token(json!({ "sub": "8" })), "", "", "", ""]
        .map(|token| Talker::connected(&mut client, Format::Json, token).0)
        .into();
    let mut first = theirs.remove(0);
    first.socket.close(1000, "");
    first.socket.closed();
    let (again, _) = Talker::connected(&mut client, Format::Json, &seven);
    drop((theirs, others, first, again));
    client.finish().expect("it ends");
}

#[test]
fn a_user_is_disconnected_on_every_worker_and_transport() {
    let mut client = serve_guarded(3, guarded());
    let seven = token(json!({ "sub": "7" }));
    let request = json!({ "token": seven }).to_string();
    let mut theirs: Vec<Talker> = (0..9)
        .map(|number| Talker::connected(&mut client, FORMATS[number % 2], &seven).0)
        .collect();
    let mut events = Stream::open(client.get(&with_query("/connection/uni_sse", &request)));
    events.event();
    let (mut other, _) = Talker::connected(&mut client, Format::Json, &token(json!({ "sub": "77" })));
    for (body, expected) in [
        (
            json!({ "user": "" }),
            r#"{"error":{"code":107,"message":"bad request"}}"#.to_owned(),
        ),
        (json!({ "user": "nobody" }), reached(0)),
        (json!({ "user": "7", "client": "none of them" }), reached(0)),
    ] {
        assert_eq!(call(&mut client, "disconnect", &body), (200, expected), "{body}");
    }
    // What would not be done is not taken.
    let (status, _) = call(&mut client, "disconnect", &json!({ "user": "7", "keeps": ["x"] }));
    assert_eq!(status, 400);
    for talker in &mut theirs {
        assert_eq!(code(&talker.ask(ping())), 0, "it is still there");
    }
    let told = call(&mut client, "disconnect", &json!({ "user": "7" }));
    assert_eq!(told, (200, reached(theirs.len() + 1)));
    for talker in &mut theirs {
        assert_eq!(talker.socket.closed(), (3503, "force disconnect".to_owned()));
    }
    let over = r#"{"disconnect":{"code":3503,"reason":"force disconnect"}}"#;
    assert_eq!(events.event(), over);
    assert_eq!(code(&other.ask(ping())), 0);
    drop((theirs, events, other));
    client.finish().expect("it ends");
}

#[test]
fn a_user_is_subscribed_while_it_is_connected() {
    for format in FORMATS {
        let mut options = guarded();
        options.limits.subscriptions = 2;
        let kept = options.namespaces.get_mut("kept").expect("it is there");
        kept.channel_options.cache_recovery = true;
        let mut client = serve_guarded(3, options);
        publish(&mut client, "kept:a", &json!("last"));
        let mut theirs: Vec<Talker> = (0..4)
            .map(|_| Talker::connected(&mut client, format, &token(json!({ "sub": "7" }))).0)
            .collect();
        let (mut full, _) = Talker::connected(
            &mut client,
            format,
            &token(json!({ "sub": "7", "channels": ["a", "b"] })),
        );
        let (mut other, _) = Talker::connected(&mut client, format, &token(json!({ "sub": "8" })));
        for (body, expected) in [
            (
                json!({ "user": "7", "channel": "no:where" }),
                r#"{"error":{"code":102,"message":"unknown channel"}}"#.to_owned(),
            ),
            (
                json!({ "user": "7", "channel": "closed:a", "data": { "a": 1 }, "info": "x" }),
                reached(4),
            ),
            (json!({ "user": "7", "channel": "kept:a" }), reached(4)),
            // Whoever is subscribed is not told again.
            (
                json!({ "user": "7", "channel": "closed:a", "data": 2 }),
                reached(0),
            ),
        ] {
            assert_eq!(call(&mut client, "subscribe", &body), (200, expected), "{body}");
        }
        for talker in &mut theirs {
            let mut pushes = [talker.push(), talker.push(), talker.push()];
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
                code(&talker.ask(subscribe("closed:a", ""))),
                105,
                "it is subscribed"
            );
        }
        publish(&mut client, "closed:a", &json!(3));
        for talker in &mut theirs {
            assert_eq!(&*talker.push().pub_.expect("a publication").data, b"3");
        }
        for talker in [&mut full, &mut other] {
            assert_eq!(code(&talker.ask(ping())), 0);
            talker.look();
            assert!(talker.is_quiet(), "nobody told it anything");
        }
        drop((theirs, full, other));
        client.finish().expect("it ends");
    }
}

#[test]
fn a_users_subscriptions_end_and_nobody_elses() {
    let mut client = serve_guarded(3, guarded());
    let named = |user: &str| token(json!({ "sub": user, "channels": ["closed:a"] }));
    let mut theirs: Vec<Talker> = (0..6)
        .map(|_| Talker::connected(&mut client, Format::Json, &named("7")).0)
        .collect();
    let (mut other, _) = Talker::connected(&mut client, Format::Json, &named("8"));
    for (body, expected) in [
        (
            json!({ "user": "7", "channel": "no:where" }),
            r#"{"error":{"code":102,"message":"unknown channel"}}"#.to_owned(),
        ),
        (json!({ "user": "7", "channel": "kept:a" }), reached(0)),
        (json!({ "user": "7", "channel": "closed:a" }), reached(6)),
    ] {
        assert_eq!(
            call(&mut client, "unsubscribe", &body),
            (200, expected.to_owned()),
            "{body}"
        );
    }
    for talker in &mut theirs {
        let push = talker.push();
        let told = push.unsubscribe.expect("it is over");
        assert_eq!((&*push.channel, told.code), ("closed:a", 2000));
        assert_eq!(
            code(&talker.ask(subscribe("closed:a", ""))),
            103,
            "what it was granted is gone"
        );
    }
    publish(&mut client, "closed:a", &json!(1));
    assert!(other.push().pub_.is_some());
    drop((theirs, other));
    client.finish().expect("it ends");
}
