//! Whom the application lets in, and how it is asked about that, on every transport.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::protocol::{Command, ConnectRequest, Format, RpcRequest};
use ringmain_push::limits::{
    EMULATED_HEADER_BYTES, PROXY_REQUESTS_PER_CLIENT, PROXY_REQUESTS_PER_WORKER, PROXY_RESPONSE_BYTES,
    PROXY_TIMEOUT_MAX,
};
use ringmain_push::{Event, Options, Proxy};
use serde_json::{Value, json};

use crate::app_backend::{Answer, asking, serve_asked};
use crate::support::{CONNECT, Stream, masked, with_query};
use crate::token_signing::{FORMATS, Talker, code, connect, subscribe, token, tokens};

fn said(answer: Value) -> impl Fn(Event, &Value) -> Answer + Send + Sync {
    move |_, _| Answer::In(5, answer.clone())
}

fn seven(_: Event, _: &Value) -> Answer {
    Answer::In(5, json!({"result": {"user": "7"}}))
}

/// What is told first.
fn welcome(what: &str, before: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(r#"{{{what}"connect":{{"client":"CLIENT","version":"ringmain {version}",{before}"ping":25"#)
}

#[test]
fn it_says_who_a_client_is_on_every_transport() {
    let answer = json!({"result": {"user": "7", "data": {"a": [1]}, "channels": ["news"]}});
    let (mut client, log) = serve_asked(asking(), said(answer));
    let told = r#""data":{"a":[1]},"subs":{"news":{}},"#;
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(CONNECT);
    let mut uni_socket = client.ws("/connection/uni_websocket").open();
    uni_socket.send_text("{}");
    let mut lines = Stream::open(client.post("/connection/http_stream").body(CONNECT));
    let mut events = Stream::open(client.get(&with_query("/connection/sse", CONNECT)));
    let mut uni_lines = Stream::open(client.post("/connection/uni_http_stream").body("{}"));
    let mut uni_events = Stream::open(client.get("/connection/uni_sse"));
    let answered = [socket.text(), lines.line(), events.event()];
    for reply in answered {
        let reply = masked(&reply);
        assert!(reply.starts_with(&welcome(r#""id":1,"#, told)), "{reply}");
    }
    let pushed = [uni_socket.text(), uni_lines.line(), uni_events.event()];
    for push in pushed {
        assert_eq!(masked(&push), format!("{}}}}}", welcome("", told)));
    }
    let mut names: Vec<String> = Vec::new();
    for asked in log.take() {
        assert_eq!(asked.event, Event::Connect);
        let Value::Object(mut body) = asked.body else {
            panic!("{:?}", asked.body);
        };
        names.push(body.remove("transport").expect("one").to_string());
        assert_eq!(
            body.remove("client").expect("one").as_str().map(str::len),
            Some(36)
        );
        assert_eq!(
            Value::Object(body),
            json!({"protocol": "json", "encoding": "json"})
        );
    }
    names.sort();
    let expected = [
        "http_stream",
        "sse",
        "uni_http_stream",
        "uni_sse",
        "uni_websocket",
        "websocket",
    ];
    assert_eq!(names, expected.map(|name| format!("\"{name}\"")));
    drop((socket, uni_socket, lines, events, uni_lines, uni_events));
    client.finish().expect("it ends");
}

#[test]
fn it_is_told_what_the_client_says() {
    for binary in [false, true] {
        let mut options = asking();
        options.proxy.binary = binary;
        options.proxy.emulated = vec!["authorization".to_owned()];
        let (mut client, log) = serve_asked(options, seven);
        let mut talker = Talker::open(&mut client, Format::Protobuf);
        let reply = talker.ask(Command {
            connect: Some(ConnectRequest {
                data: "[1]".into(),
                name: "js".to_owned(),
                version: "5".to_owned(),
                subs: [("news".to_owned(), Default::default())].into(),
                headers: [("Authorization", "me"), ("X-User", "you")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                ..ConnectRequest::default()
            }),
            ..Command::default()
        });
        let named = reply.connect.expect("an answer").client;
        let asked = log.only();
        let mut expected = json!({
            "client": named, "transport": "websocket", "protocol": "protobuf", "encoding": "json",
            "name": "js", "version": "5", "channels": ["news"], "data": [1],
        });
        if binary {
            expected["encoding"] = "binary".into();
            expected.as_object_mut().expect("one").remove("data");
            expected["b64data"] = "WzFd".into();
        }
        assert_eq!(asked.body, expected);
        let emulated: BTreeMap<_, _> = [("Authorization".to_owned(), "me".to_owned())].into();
        assert_eq!(asked.emulated, emulated);
        drop(talker);
        client.finish().expect("it ends");
    }
}

#[test]
fn what_it_says_holds() {
    let answer = json!({"result": {
        "user": "7", "b64info": "eyJuIjoxfQ==", "meta": {"m": 1},
        "subs": {"news": {"data": {"d": 1}, "info": {"i": 1}, "override": {"presence": {"value": false}}}},
        "caps": [{"channels": ["asked:c"], "allow": ["sub"]}],
        "b64data": "",
    }});
    let (mut client, log) = serve_asked(asking(), said(answer));
    for format in FORMATS {
        let (mut talker, reply) = Talker::connected(&mut client, format, "");
        let told = reply.connect.expect("an answer");
        assert_eq!((told.expires, told.ttl), (false, 0));
        assert_eq!(&*told.subs["news"].data, br#"{"d":1}"#);
        assert_eq!(log.only().event, Event::Connect);
        // A capability is enough.
        assert_eq!(code(&talker.ask(subscribe("asked:c", ""))), 0);
        assert_eq!(log.take(), []);
        talker.ask(Command {
            rpc: Some(RpcRequest::default()),
            ..Command::default()
        });
        let asked = log.only();
        assert_eq!(
            (&asked.body["user"], &asked.body["meta"]),
            (&json!("7"), &json!({"m": 1}))
        );
        drop(talker);
    }
    client.finish().expect("it ends");
}

#[test]
fn who_shows_a_token_is_not_asked_about() {
    let mut options = asking();
    options.tokens = Some(tokens());
    let (mut client, log) = serve_asked(options, seven);
    let shown = token(json!({ "sub": "8" }));
    let (talker, _) = Talker::connected(&mut client, Format::Json, &shown);
    let mut forged = Talker::open(&mut client, Format::Json);
    forged.send([connect("no.token.it")]);
    assert_eq!(forged.socket.closed().0, 3500);
    assert_eq!(log.take(), []);
    drop((talker, forged));
    client.finish().expect("it ends");
}

#[test]
fn whom_it_refuses_does_not_come_in() {
    let error = json!({"error": {"code": 1000, "message": "not you", "temporary": true}});
    let (mut client, log) = serve_asked(asking(), said(error));
    let refused = r#"{"id":1,"error":{"code":1000,"message":"not you","temporary":true}}"#;
    let mut socket = client.ws("/connection/websocket").open();
    for _ in 0..2 {
        // It may try again.
        socket.send_text(CONNECT);
        assert_eq!(socket.text(), refused);
    }
    let mut stream = Stream::open(client.post("/connection/http_stream").body(CONNECT));
    assert_eq!((stream.line(), stream.try_line()), (refused.to_owned(), None));
    let mut uni = client.ws("/connection/uni_websocket").open();
    uni.send_text("{}");
    assert_eq!(uni.closed().0, 3004);
    assert_eq!(log.take().len(), 4);
    drop((socket, stream, uni));
    client.finish().expect("it ends");
}

#[test]
fn whom_it_sends_away_is_told_why() {
    let away = json!({"disconnect": {"code": 4501, "reason": "go away"}});
    let (mut client, _) = serve_asked(asking(), said(away));
    for path in ["/connection/websocket", "/connection/uni_websocket"] {
        let mut socket = client.ws(path).open();
        socket.send_text(CONNECT);
        assert_eq!(socket.closed(), (4501, "go away".to_owned()));
    }
    let mut stream = Stream::open(client.post("/connection/http_stream").body(CONNECT));
    let told = r#"{"push":{"disconnect":{"code":4501,"reason":"go away"}}}"#;
    assert_eq!((stream.line(), stream.try_line()), (told.to_owned(), None));
    let refused = client.get("/connection/uni_sse").send();
    assert_eq!(refused.status(), 400);
    assert!(refused.text().contains("4501"), "{}", refused.text());
    drop(stream);
    client.finish().expect("it ends");
}

#[test]
fn an_answer_that_is_none_lets_nobody_in() {
    let broken: [&[u8]; 13] = [
        b"",
        b"{}",
        b"[]",
        b"{\"result\":null}",
        b"{\"result\":{\"user\":7}}",
        b"{\"result\":{\"user\":\"7\",\"b64info\":\"!\"}}",
        b"{\"result\":{\"user\":\"7\",\"channels\":[1]}}",
        b"{\"result\":{\"user\":\"7\",\"subs\":{\"news\":{\"expire_at\":9}}}}",
        b"{\"result\":{\"user\":\"7\",\"subs\":{\"news\":{\"override\":{\"other\":{\"value\":true}}}}}}",
        b"{\"error\":{\"code\":0}}",
        b"{\"disconnect\":{\"code\":2999}}",
        b"{\"disconnect\":{\"code\":5000}}",
        b"{\"result\":{\"user\":\"7\"}} ",
    ];
    for (number, bytes) in broken.into_iter().enumerate() {
        let (mut client, _) = serve_asked(asking(), move |_, _| Answer::Bytes(bytes.to_vec()));
        let mut talker = Talker::open(&mut client, Format::Json);
        let reply = talker.ask(connect(""));
        // What is white space behind is no matter.
        let expected = if number + 1 == broken.len() { 0 } else { 100 };
        assert_eq!(code(&reply), expected, "{}", bytes.escape_ascii());
        assert_eq!(
            reply.error.map_or(0, |error| u32::from(error.temporary)),
            expected / 100
        );
        drop(talker);
        client.finish().expect("it ends");
    }
}

#[test]
fn an_answer_is_waited_for_no_longer_and_no_further() {
    let mut long = json!({"result": {"user": "7"}}).to_string().into_bytes();
    long.resize(PROXY_RESPONSE_BYTES, b' ');
    let within = long.clone();
    long.push(b' ');
    type Make = Box<dyn Fn() -> Answer + Send + Sync>;
    let cases: [(Make, u32); 6] = [
        (Box::new(|| Answer::Fails), 100),
        (Box::new(|| Answer::Never), 100),
        (Box::new(move || Answer::Bytes(long.clone())), 100),
        (Box::new(move || Answer::Bytes(within.clone())), 0),
        (Box::new(|| Answer::In(999, json!({"result": {}}))), 0),
        (Box::new(|| Answer::In(1001, json!({"result": {}}))), 100),
    ];
    for (answer, expected) in cases {
        let (mut client, _) = serve_asked(asking(), move |_, _| answer());
        let mut talker = Talker::open(&mut client, Format::Json);
        assert_eq!(code(&talker.ask(connect(""))), expected);
        drop(talker);
        client.finish().expect("it ends");
    }
}

#[test]
fn what_is_said_behind_a_connect_waits_for_it() {
    let (mut client, log) = serve_asked(asking(), |_, _| Answer::In(500, json!({"result": {"user": "7"}})));
    let mut talker = Talker::open(&mut client, Format::Json);
    talker.send([connect(""), subscribe("news", "")]);
    client.advance(Duration::from_millis(300));
    talker.send([subscribe("news", "")]);
    assert!(talker.reply(1).connect.is_some());
    assert_eq!([2, 3].map(|number| code(&talker.reply(number))), [0, 105]);
    assert_eq!(log.take().len(), 1);
    // Another one is one too many, as ever.
    talker.send([connect("")]);
    assert_eq!(talker.socket.closed().0, 3501);
    // Of one that is refused nothing is carried out, and it is not sent away for it.
    let refusing = |_, _: &Value| Answer::In(500, json!({"error": {"code": 400}}));
    let (mut other, log) = serve_asked(asking(), refusing);
    let mut talker = Talker::open(&mut other, Format::Json);
    talker.send([connect(""), subscribe("news", "")]);
    assert_eq!(code(&talker.reply(1)), 400);
    assert_eq!(code(&talker.ask(connect(""))), 400);
    assert_eq!((talker.is_quiet(), log.take().len()), (true, 2));
    drop(talker);
    client.finish().expect("it ends");
    other.finish().expect("it ends");
}

#[test]
fn who_leaves_meanwhile_is_forgotten() {
    let (mut client, log) = serve_asked(asking(), |_, _| Answer::Never);
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(CONNECT);
    client.advance(Duration::from_millis(10));
    let mut stream = client.raw();
    stream.send("GET /connection/uni_sse HTTP/1.1\r\nHost: a\r\n\r\n");
    client.advance(Duration::from_millis(10));
    assert_eq!((log.take().len(), log.forgotten()), (2, 0));
    drop(socket);
    stream.reset();
    client.advance(Duration::from_millis(10));
    assert_eq!(log.forgotten(), 2);
    client.finish().expect("it ends");
}

#[test]
fn more_than_a_worker_may_ask_is_not_asked() {
    let mut options = asking();
    options.proxy.events.insert(Event::Rpc, PROXY_TIMEOUT_MAX);
    let (mut client, log) = serve_asked(options, |event, _| match event {
        Event::Rpc => Answer::In(15_000, json!({"result": {}})),
        _ => Answer::In(0, json!({"result": {"user": ""}})),
    });
    let call = || Command {
        rpc: Some(RpcRequest::default()),
        ..Command::default()
    };
    let clients = PROXY_REQUESTS_PER_WORKER as usize / PROXY_REQUESTS_PER_CLIENT;
    let all: Vec<Talker> = (0..clients)
        .map(|_| {
            let (mut talker, _) = Talker::connected(&mut client, Format::Json, "");
            talker.send((0..PROXY_REQUESTS_PER_CLIENT).map(|_| call()));
            talker
        })
        .collect();
    client.advance(Duration::from_millis(100));
    assert_eq!(log.take().len(), PROXY_REQUESTS_PER_WORKER as usize + clients);
    let mut more = Talker::open(&mut client, Format::Json);
    let refused = more.ask(connect(""));
    assert_eq!((code(&refused), log.take()), (111, Vec::new()));
    assert!(refused.error.is_some_and(|error| error.temporary));
    client.advance(Duration::from_secs(16));
    assert!(more.ask(connect("")).connect.is_some());
    drop((all, more));
    client.finish().expect("it ends");
}

#[test]
fn headers_that_are_too_long_are_not_kept() {
    let mut options = asking();
    options.proxy.emulated = vec!["a".to_owned()];
    let (mut client, _) = serve_asked(options, seven);
    for (value, expected) in [
        (EMULATED_HEADER_BYTES - 1, None),
        (EMULATED_HEADER_BYTES, Some(3501)),
    ] {
        let mut talker = Talker::open(&mut client, Format::Json);
        let headers = [("A", "x".repeat(value)), ("B", "x".repeat(20_000))];
        talker.send([Command {
            connect: Some(ConnectRequest {
                headers: headers.map(|(name, value)| (name.to_owned(), value)).into(),
                ..ConnectRequest::default()
            }),
            ..Command::default()
        }]);
        match expected {
            None => assert!(talker.reply(1).connect.is_some()),
            Some(code) => assert_eq!(talker.socket.closed().0, code),
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn who_has_nobody_to_ask_is_told_so() {
    let mut options = asking();
    options.anonymous = true;
    let mut client = crate::support::serve(options);
    let (mut talker, _) = Talker::connected(&mut client, Format::Json, "");
    assert_eq!(code(&talker.ask(subscribe("asked:a", ""))), 108);
    drop(talker);
    client.finish().expect("it ends");
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let check = |change: &dyn Fn(&mut Options), expected: &str| {
        let mut options = asking();
        change(&mut options);
        let error = options.check().expect_err("a mistake").to_string();
        assert_eq!(error, format!("push: {expected}"));
    };
    let within = |time| {
        move |options: &mut Options| {
            options.proxy.events.insert(Event::Rpc, time);
        }
    };
    check(
        &within(Duration::ZERO),
        "expected a time for answers to `rpc` of more than nothing and at most 20s, found 0ns",
    );
    check(
        &within(Duration::from_millis(20_001)),
        "expected a time for answers to `rpc` of more than nothing and at most 20s, found 20.001s",
    );
    check(
        &|options| options.proxy = Proxy::default(),
        "expected an application that is asked about `subscribe`, as `asked` wants it, found none",
    );
}
