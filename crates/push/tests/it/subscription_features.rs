//! Filters by tags, and numbers in place of channel names.

use ringmain_push::Options;
use ringmain_web::testing::{TestClient, TestEvent, TestSocket};
use serde_json::{Value, json};

use crate::api::fault;
use crate::support::{Stream, options, serve, with_query};
use crate::token_signing::{guarded, serve_guarded, token};

fn with_features() -> Options {
    let mut options = options();
    let kept = options.namespaces.get_mut("kept").expect("a namespace");
    kept.channel_options.tags_filter = true;
    kept.channel_options.compaction = true;
    options
}

fn publish(client: &mut TestClient, channel: &str, data: u64, ticker: &str) {
    let body = json!({ "channel": channel, "data": data, "tags": { "ticker": ticker } });
    assert_eq!(fault(client, "publish", &body), 0);
}

fn subscribe(client: &mut TestClient, subscribe: &Value) -> (TestSocket, Value) {
    let mut socket = client.ws("/connection/websocket").open();
    let commands = [
        json!({ "id": 1, "connect": {} }),
        json!({ "id": 2, "subscribe": subscribe }),
    ];
    socket.send_text(commands.map(|command| command.to_string()).join("\n"));
    let mut lines = Vec::new();
    while lines.len() < 2 {
        lines.extend(lines_of(&mut socket));
    }
    (socket, lines.remove(1))
}

fn lines_of(socket: &mut TestSocket) -> Vec<Value> {
    let text = socket.text();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn filter(ticker: &str) -> Value {
    json!({ "key": "ticker", "cmp": "eq", "val": ticker })
}

#[test]
fn a_filter_selects_publications_by_their_tags() {
    let mut client = serve(with_features());
    let request = json!({ "channel": "kept:a", "tf": filter("X"), "recoverable": true });
    let (mut socket, reply) = subscribe(&mut client, &request);
    let epoch = reply["subscribe"]["epoch"].clone();
    for (data, ticker) in [(1, "X"), (2, "Y"), (3, "X")] {
        publish(&mut client, "kept:a", data, ticker);
    }
    let mut received = Vec::new();
    while received.len() < 2 {
        received.extend(lines_of(&mut socket));
    }
    let offsets: Vec<&Value> = received
        .iter()
        .map(|line| &line["push"]["pub"]["offset"])
        .collect();
    assert_eq!(offsets, [1, 3]);
    // The namespace retains two.
    let request = json!({
        "channel": "kept:a", "tf": filter("Y"), "recover": true, "offset": 1, "epoch": epoch,
    });
    let (_, reply) = subscribe(&mut client, &request);
    let publications = reply["subscribe"]["publications"].as_array().expect("one");
    assert_eq!((publications.len(), &publications[0]["offset"]), (1, &json!(2)));
    assert_eq!(reply["subscribe"]["recovered"], true);
}

#[test]
fn a_filter_that_is_invalid_or_not_permitted_is_rejected() {
    let mut client = serve(with_features());
    for (channel, filter) in [
        ("kept:a", json!({ "op": "and" })),
        ("kept:a", json!({ "key": "a", "cmp": "like", "val": "b" })),
        ("kept:a", json!({})),
        ("a", filter("X")),
    ] {
        let (mut socket, reply) = subscribe(&mut client, &json!({ "channel": channel, "tf": filter }));
        assert_eq!(reply["error"]["code"], 107, "{channel} {filter}");
        // The client is not subscribed.
        socket.send_text(json!({ "id": 3, "subscribe": { "channel": channel } }).to_string());
        assert!(lines_of(&mut socket)[0]["subscribe"].is_object());
    }
}

#[test]
fn a_client_may_receive_numbers_in_place_of_names() {
    let mut client = serve(with_features());
    for (channel, flag, is_number) in [("kept:a", 1, true), ("kept:a", 0, false), ("b", 1, false)] {
        let (mut socket, reply) = subscribe(&mut client, &json!({ "channel": channel, "flag": flag }));
        let number = &reply["subscribe"]["id"];
        assert_eq!(number.is_number(), is_number, "{reply}");
        publish(&mut client, channel, 1, "X");
        let push = &lines_of(&mut socket)[0]["push"];
        if is_number {
            assert_eq!((&push["id"], &push["channel"]), (number, &Value::Null));
        } else {
            assert_eq!((&push["id"], &push["channel"]), (&Value::Null, &json!(channel)));
        }
        assert_eq!(push["pub"]["data"], 1);
    }
}

/// Over HTTP streams pushes have numbers too, whether the client subscribes by a command or in its connect request.
#[test]
fn pushes_of_http_streams_have_numbers() {
    let mut client = serve(with_features());
    let command = r#"{"id":2,"subscribe":{"channel":"kept:a","flag":1}}"#;
    let (mut lines, mut events) = (Stream::lines(&mut client), Stream::events(&mut client));
    for stream in [&lines, &events] {
        assert_eq!(stream.send_commands(&mut client, command), 204);
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let numbers = [lines.line(), events.event()].map(|reply| parse(&reply)["subscribe"]["id"].clone());
    let connect = json!({ "subs": { "kept:a": { "flag": 1 } } }).to_string();
    let mut unidirectional = Stream::open(client.get(&with_query("/connection/uni_sse", &connect)));
    let connected = parse(&unidirectional.event());
    let number = connected["connect"]["subs"]["kept:a"]["id"].clone();
    publish(&mut client, "kept:a", 1, "X");
    let pushes = [lines.line(), events.event()].map(|push| parse(&push)["push"].clone());
    let pushes = pushes.into_iter().chain([parse(&unidirectional.event())]);
    for (push, number) in pushes.zip(numbers.into_iter().chain([number])) {
        assert!(number.is_number(), "{push}");
        assert_eq!((&push["id"], &push["channel"]), (&number, &Value::Null), "{push}");
        assert_eq!(push["pub"]["data"], 1);
    }
}

/// The server subscribes a client, which requests features for these channels in its connect request.
#[test]
fn features_of_channels_of_the_server_are_requested_on_connect() {
    let mut options = guarded();
    let closed = options.namespaces.get_mut("closed").expect("a namespace");
    closed.channel_options.tags_filter = true;
    closed.channel_options.compaction = true;
    closed.channel_options.delta = true;
    let mut client = serve_guarded(1, options);
    let token = token(json!({ "sub": "7", "channels": ["closed:a"] }));
    let subs = json!({ "closed:a": { "tf": filter("X"), "flag": 1, "delta": "fossil" } });
    let connect = json!({ "id": 1, "connect": { "token": token, "subs": subs } }).to_string();
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(connect);
    let reply = lines_of(&mut socket).remove(0);
    let subscribed = &reply["connect"]["subs"]["closed:a"];
    assert_eq!(subscribed["delta"], true, "{reply}");
    assert!(subscribed["id"].is_number(), "{reply}");
    for (data, ticker) in [(1, "Y"), (2, "X"), (3, "Y"), (4, "X")] {
        publish(&mut client, "closed:a", data, ticker);
    }
    let mut pushes = Vec::new();
    while pushes.len() < 2 {
        pushes.extend(lines_of(&mut socket));
    }
    let received: Vec<_> = pushes.iter().map(|line| &line["push"]).collect();
    assert_eq!(received.len(), 2);
    for (push, data) in received.iter().zip(["2", "4"]) {
        assert_eq!(
            (&push["id"], &push["pub"]["data"]),
            (&subscribed["id"], &json!(data))
        );
    }
    // An invalid filter must not be ignored.
    let subs = json!({ "closed:a": { "tf": { "op": "and" } } });
    let connect = json!({ "id": 1, "connect": { "token": token, "subs": subs } }).to_string();
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(connect);
    let event = socket.event();
    assert!(matches!(&event, Ok(TestEvent::Close(3501, _))), "{event:?}");
}
