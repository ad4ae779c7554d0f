//! What clients that are connected have the application asked: calls, publications, subscriptions, and whether they stay.

use std::time::Duration;

use ringmain_hub::protocol::{Command, Format, PublishRequest, Push, Reply, RpcRequest, SubscribeRequest};
use ringmain_push::Event;
use ringmain_push::limits::{PROXY_REQUESTS_PER_CLIENT, REFRESH_RETRY};
use ringmain_web::testing::TestClient;
use serde_json::{Value, json};

use crate::app_backend::{Answer, Log, asking, serve_asked};
use crate::token_signing::{FORMATS, Talker, code, now, subscribe, token, tokens};

/// What comes of everything but connecting, whose client is of the user 7.
fn serve_seven(answers: impl Fn(Event, &Value) -> Answer + Send + Sync + 'static) -> (TestClient, Log) {
    serve_asked(asking(), move |event, body| match event {
        Event::Connect => Answer::In(0, json!({"result": {"user": "7", "info": {"n": 1}}})),
        event => answers(event, body),
    })
}

fn come(client: &mut TestClient, log: &Log, format: Format) -> Talker {
    let (talker, _) = Talker::connected(client, format, "");
    assert_eq!(log.only().event, Event::Connect);
    talker
}

fn publish(channel: &str, data: &str) -> Command {
    Command {
        publish: Some(PublishRequest {
            channel: channel.to_owned(),
            data: data.to_owned().into(),
        }),
        ..Command::default()
    }
}

fn rpc(method: &str, data: &str) -> Command {
    Command {
        rpc: Some(RpcRequest {
            method: method.to_owned(),
            data: data.to_owned().into(),
        }),
        ..Command::default()
    }
}

#[track_caller]
fn publication(push: Push) -> (String, String) {
    let publication = push.pub_.expect("a publication");
    let data = String::from_utf8(publication.data.to_vec()).expect("a text");
    (push.channel, data)
}

fn returned(reply: &Reply) -> String {
    let data = reply.rpc.as_ref().map(|rpc| rpc.data.to_vec());
    String::from_utf8(data.unwrap_or_default()).expect("a text")
}

#[test]
fn it_is_called() {
    let (mut client, log) =
        serve_seven(|_, body| Answer::In(5, json!({"result": {"data": {"to": body["method"]}}})));
    for format in FORMATS {
        let mut talker = come(&mut client, &log, format);
        assert_eq!(returned(&talker.ask(rpc("price", "[1]"))), r#"{"to":"price"}"#);
        let mut body = log.only().body;
        assert!(body["client"].take().is_string());
        let protocol = if format == Format::Json {
            "json"
        } else {
            "protobuf"
        };
        let expected = json!({
            "client": null, "transport": "websocket", "protocol": protocol, "encoding": "json",
            "user": "7", "method": "price", "data": [1],
        });
        assert_eq!(body, expected);
        assert_eq!(returned(&talker.ask(rpc("", ""))), r#"{"to":null}"#);
        let body = log.only().body;
        assert!(body.get("method").is_none() && body.get("data").is_none());
        drop(talker);
    }
    client.finish().expect("it ends");
}

#[test]
fn bytes_are_told_and_returned_in_base64() {
    let mut options = asking();
    options.anonymous = true;
    options.proxy.events.remove(&Event::Connect);
    for binary in [true, false] {
        options.proxy.binary = binary;
        let (mut client, log) = serve_asked(options.clone(), |_, _| {
            Answer::In(0, json!({"result": {"b64data": "AP8="}}))
        });
        let (mut talker, _) = Talker::connected(&mut client, Format::Protobuf, "");
        let call = Command {
            rpc: Some(RpcRequest {
                data: b"\0\xff".as_slice().into(),
                ..RpcRequest::default()
            }),
            ..Command::default()
        };
        let reply = talker.ask(call);
        match binary {
            true => {
                assert_eq!(&*reply.rpc.expect("an answer").data, b"\0\xff");
                assert_eq!(log.only().body["b64data"], "AP8=");
            }
            // It could not be told.
            false => assert_eq!((code(&reply), log.take()), (107, Vec::new())),
        }
        // Nor could a client of the JSON format be.
        let (mut other, _) = Talker::connected(&mut client, Format::Json, "");
        assert_eq!(code(&other.ask(rpc("", "1"))), 100);
        drop((talker, other));
        client.finish().expect("it ends");
    }
}

#[test]
fn calls_do_not_wait_for_each_other() {
    let (mut client, log) = serve_seven(|_, body| {
        let after = if body["method"] == "slow" { 500 } else { 5 };
        Answer::In(after, json!({"result": {"data": body["method"]}}))
    });
    let mut talker = come(&mut client, &log, Format::Json);
    let last = talker.send([rpc("slow", ""), rpc("fast", ""), subscribe("news", "")]);
    assert_eq!(code(&talker.reply(last)), 0);
    assert_eq!(returned(&talker.reply(last - 1)), "\"fast\"");
    assert!(
        client.elapsed() < Duration::from_millis(400),
        "{:?}",
        client.elapsed()
    );
    assert_eq!(returned(&talker.reply(last - 2)), "\"slow\"");
    drop(talker);
    client.finish().expect("it ends");
}

#[test]
fn commands_about_a_channel_are_carried_out_in_their_order() {
    // Later ones are answered sooner.
    let (mut client, log) = serve_seven(|event, body| match event {
        Event::Publish => Answer::In(100 - body["data"].as_u64().unwrap_or(0), json!({"result": {}})),
        _ => Answer::In(50, json!({"result": {}})),
    });
    let mut talker = come(&mut client, &log, Format::Json);
    let publications = (0..10).map(|number| publish("asked:a", &number.to_string()));
    talker.send([subscribe("asked:a", "")].into_iter().chain(publications));
    for number in 0..10 {
        assert_eq!(
            publication(talker.push()),
            ("asked:a".to_owned(), number.to_string())
        );
    }
    let events = log.take().into_iter().map(|asked| asked.event);
    let expected = [Event::Subscribe].into_iter().chain([Event::Publish; 10]);
    assert!(events.eq(expected));
    // Another channel's do not wait for them.
    let last = talker.send([
        publish("asked:a", "0"),
        publish("asked:b", "90"),
        publish("asked:a", "1"),
    ]);
    let begun = client.elapsed();
    assert_eq!(code(&talker.reply(last - 1)), 0);
    assert!(client.elapsed() - begun < Duration::from_millis(60));
    assert_eq!([last - 2, last].map(|number| code(&talker.reply(number))), [0, 0]);
    assert!(client.elapsed() - begun > Duration::from_millis(190));
    drop(talker);
    client.finish().expect("it ends");
}

#[test]
fn a_client_has_so_many_questions_and_no_more() {
    let (mut client, log) = serve_seven(|_, _| Answer::In(500, json!({"result": {}})));
    let mut talker = come(&mut client, &log, Format::Json);
    let most = u32::try_from(PROXY_REQUESTS_PER_CLIENT).expect("few");
    // Half of them wait for the answers to others.
    let half = PROXY_REQUESTS_PER_CLIENT / 2;
    let first = talker.send((0..half).map(|_| rpc("", "1"))) + 1;
    talker.send((0..half).map(|_| publish("asked:a", "1")));
    let last = talker.send([rpc("", ""), publish("asked:a", "1"), subscribe("news", "")]);
    assert_eq!(
        [2, 1, 0].map(|back| code(&talker.reply(last - back))),
        [111, 111, 0]
    );
    assert_eq!(last - first + 1, most / 2 + 3);
    assert_eq!(log.take().len(), half + 1);
    for number in first..first + most / 2 {
        assert_eq!(code(&talker.reply(number)), 0);
    }
    assert_eq!(code(&talker.ask(rpc("", ""))), 0);
    // Who leaves leaves nothing.
    talker.send([rpc("", ""), publish("asked:a", "1"), publish("asked:a", "1")]);
    client.advance(Duration::from_millis(10));
    let before = log.forgotten();
    drop(talker);
    client.advance(Duration::from_millis(10));
    assert_eq!(log.forgotten() - before, 2);
    client.finish().expect("it ends");
}

#[test]
fn it_says_who_listens() {
    let (mut client, log) = serve_seven(|_, body| match body["channel"].as_str() {
        Some("asked:yes") => Answer::In(5, json!({"result": {"data": {"d": 1}, "info": {"c": 1}}})),
        Some("asked:later") => Answer::In(5, json!({"result": {"expire_at": 99_999_999_999_u64}})),
        Some("asked:over") => Answer::In(5, json!({"result": {"expire_at": 1}})),
        Some("asked:override") => Answer::In(
            5,
            json!({"result": {"override": {"force_recovery": {"value": true}}}}),
        ),
        Some("asked:no") => Answer::In(5, json!({"error": {"code": 403, "message": "no"}})),
        _ => Answer::Fails,
    });
    let mut talker = come(&mut client, &log, Format::Json);
    let reply = talker.ask(Command {
        subscribe: Some(SubscribeRequest {
            channel: "asked:yes".to_owned(),
            data: "[1]".into(),
            ..SubscribeRequest::default()
        }),
        ..Command::default()
    });
    assert_eq!(&*reply.subscribe.expect("an answer").data, br#"{"d":1}"#);
    let asked = log.only();
    assert_eq!(
        (&asked.body["channel"], &asked.body["data"], &asked.body["user"]),
        (&json!("asked:yes"), &json!([1]), &json!("7"))
    );
    // It is told nothing of the end: the application is asked.
    let reply = talker
        .ask(subscribe("asked:later", ""))
        .subscribe
        .expect("an answer");
    assert_eq!((reply.expires, reply.ttl), (false, 0));
    for (channel, expected) in [
        ("asked:over", 110),
        ("asked:override", 108),
        ("asked:no", 403),
        ("asked:down", 100),
    ] {
        let reply = talker.ask(subscribe(channel, ""));
        assert_eq!(code(&reply), expected, "{channel}");
    }
    assert_eq!(log.take().len(), 5);
    // It is not asked about what is not its to say, or was said.
    for (channel, expected) in [
        ("news", 0),
        ("asked:yes", 105),
        ("asked:a#8", 103),
        ("asked:a#7", 0),
        ("$asked:a", 103),
        ("nowhere:a", 102),
    ] {
        assert_eq!(code(&talker.ask(subscribe(channel, ""))), expected, "{channel}");
    }
    assert_eq!(log.take(), []);
    // Others know what it is there.
    let (mut other, _) = Talker::connected(&mut client, Format::Json, "");
    assert_eq!(code(&other.ask(subscribe("asked:yes", ""))), 0);
    assert_eq!(code(&talker.ask(publish("asked:yes", "1"))), 0);
    let told = talker.push().pub_.expect("a publication").info.expect("somebody");
    assert_eq!(&*told.chan_info, br#"{"c":1}"#);
    drop((talker, other));
    client.finish().expect("it ends");
}

#[test]
fn a_token_for_a_channel_is_enough() {
    let mut options = asking();
    options.tokens = Some(tokens());
    let (mut client, log) = serve_asked(options, |_, _| Answer::Fails);
    let (mut talker, _) = Talker::connected(&mut client, Format::Json, &token(json!({"sub": "7"})));
    let shown = token(json!({"sub": "7", "channel": "asked:a"}));
    assert_eq!(code(&talker.ask(subscribe("asked:a", &shown))), 0);
    assert_eq!(log.take(), []);
    drop(talker);
    client.finish().expect("it ends");
}

#[test]
fn it_says_what_is_published() {
    let (mut client, log) = serve_seven(|event, body| match body["data"].as_str() {
        _ if event == Event::Subscribe => Answer::In(0, json!({"result": {}})),
        Some("other") => Answer::In(5, json!({"result": {"data": {"by": "it"}, "tags": {"t": "1"}}})),
        Some("no") => Answer::In(5, json!({"error": {"code": 1000, "message": "no"}})),
        Some("away") => Answer::In(5, json!({"disconnect": {"code": 4000, "reason": "back later"}})),
        Some("skip") => Answer::In(5, json!({"result": {"skip_history": true}})),
        _ => Answer::In(5, json!({"result": {}})),
    });
    let mut talker = come(&mut client, &log, Format::Json);
    assert_eq!(code(&talker.ask(subscribe("asked:a", ""))), 0);
    for (data, expected) in [("\"same\"", "\"same\""), ("\"other\"", r#"{"by":"it"}"#)] {
        assert_eq!(code(&talker.ask(publish("asked:a", data))), 0);
        let push = talker.push();
        let told = push.pub_.clone().expect("a publication");
        let by = told.info.expect("somebody");
        assert_eq!((&*by.user, &*by.conn_info), ("7", &br#"{"n":1}"#[..]));
        assert_eq!(told.tags.len(), usize::from(data == "\"other\""));
        assert_eq!(publication(push).1, expected);
    }
    for (channel, data, expected) in [
        ("asked:a", "\"no\"", 1000),
        ("asked:a", "\"skip\"", 100),
        ("$asked:a", "1", 103),
        ("asked:a#8", "1", 103),
        ("asked:a", "", 107),
        ("nowhere:a", "1", 102),
        // The namespace alone says.
        ("news", "1", 103),
    ] {
        assert_eq!(
            code(&talker.ask(publish(channel, data))),
            expected,
            "{channel} {data}"
        );
    }
    assert_eq!(log.take().len(), 5);
    assert!(talker.is_quiet());
    talker.send([publish("asked:a", "\"away\"")]);
    assert_eq!(talker.socket.closed(), (4000, "back later".to_owned()));
    drop(talker);
    client.finish().expect("it ends");
}

/// What it says later, by when the test began.
type Later = fn(u64) -> Answer;

/// When the time of a test begins, in seconds since 1970.
fn the_beginning() -> u64 {
    let (mut client, _) = serve_asked(asking(), |_, _| Answer::Fails);
    let begun = now(&mut client);
    client.finish().expect("it ends");
    begun
}

/// An application that lets in for ten seconds, and says so of what it is asked about later.
fn ten_seconds(answer: Later) -> (TestClient, Log) {
    let begun = the_beginning();
    serve_asked(asking(), move |event, _| match event {
        Event::Connect => Answer::In(0, json!({"result": {"user": "7", "expire_at": begun + 10}})),
        _ => answer(begun),
    })
}

#[test]
fn it_says_whether_a_connection_goes_on() {
    let (mut client, log) = ten_seconds(|begun| {
        Answer::In(
            5,
            json!({"result": {"expire_at": begun + 20, "info": {"n": 2}, "meta": [2]}}),
        )
    });
    let mut talker = come(&mut client, &log, Format::Json);
    talker.wait(&mut client, 8);
    assert_eq!(log.take(), []);
    talker.wait(&mut client, 4);
    let asked = log.only();
    assert_eq!((asked.event, &asked.body["user"]), (Event::Refresh, &json!("7")));
    talker.wait(&mut client, 5);
    talker.send([rpc("", "")]);
    assert_eq!(log.take(), []);
    client.advance(Duration::from_millis(10));
    assert_eq!(log.only().body["meta"], json!([2]));
    // It says the same of what is over then.
    talker.look();
    client.advance(Duration::from_secs(5));
    assert_eq!(talker.socket.closed().0, 3005);
    assert_eq!(log.only().event, Event::Refresh);
    drop(talker);
    client.finish().expect("it ends");
}

#[test]
fn it_says_that_a_connection_ends() {
    let cases: [(Later, u16); 2] = [
        (|_| Answer::In(5, json!({"result": {"expired": true}})), 3005),
        (
            |_| Answer::In(5, json!({"disconnect": {"code": 4501, "reason": "enough"}})),
            4501,
        ),
    ];
    for (answer, expected) in cases {
        let (mut client, log) = ten_seconds(answer);
        let mut talker = come(&mut client, &log, Format::Json);
        talker.wait(&mut client, 8);
        client.advance(Duration::from_secs(4));
        assert_eq!(talker.socket.closed().0, expected);
        assert_eq!(log.only().event, Event::Refresh);
        drop(talker);
        client.finish().expect("it ends");
    }
}

#[test]
fn a_connection_goes_on_while_nothing_is_said() {
    let (mut client, log) = ten_seconds(|_| Answer::Fails);
    let mut talker = come(&mut client, &log, Format::Json);
    let again = REFRESH_RETRY.as_secs();
    talker.wait(&mut client, 10 + again * 3);
    let asked = log.take();
    assert!((3..=7).contains(&asked.len()), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.event == Event::Refresh));
    assert_eq!(code(&talker.ask(subscribe("news", ""))), 0);
    drop(talker);
    client.finish().expect("it ends");
}

#[test]
fn it_says_whether_a_subscription_goes_on() {
    let cases: [(Later, bool); 3] = [
        (
            |begun| Answer::In(5, json!({"result": {"expire_at": begun + 1000}})),
            true,
        ),
        (|_| Answer::Fails, true),
        (|_| Answer::In(5, json!({"result": {"expired": true}})), false),
    ];
    for (answer, goes_on) in cases {
        let begun = the_beginning();
        let (mut client, log) = serve_seven(move |event, _| match event {
            Event::Subscribe => Answer::In(0, json!({"result": {"expire_at": begun + 10}})),
            _ => answer(begun),
        });
        let mut talker = come(&mut client, &log, Format::Json);
        assert_eq!(code(&talker.ask(subscribe("asked:a", ""))), 0);
        log.take();
        talker.wait(&mut client, 8);
        assert_eq!(log.take(), []);
        talker.wait(&mut client, 4);
        let asked = log.only();
        assert_eq!(
            (asked.event, &asked.body["channel"]),
            (Event::SubRefresh, &json!("asked:a"))
        );
        match goes_on {
            true => assert!(talker.is_quiet()),
            false => {
                let push = talker.push();
                assert_eq!(push.unsubscribe.map(|why| why.code), Some(2501));
            }
        }
        drop(talker);
        client.finish().expect("it ends");
    }
}
