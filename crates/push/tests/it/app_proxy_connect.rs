//! Clients that the application accepts, and the requests for them, on every transport.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::protocol::{Command, ConnectRequest, Format, RpcRequest};
use ringmain_push::limits::{
    EMULATED_HEADER_BYTES, PROXY_REQUESTS_PER_CLIENT, PROXY_REQUESTS_PER_WORKER, PROXY_RESPONSE_BYTES,
    PROXY_TIMEOUT_MAX,
};
use ringmain_push::{Options, Proxy, ProxyEvent};
use serde_json::{Value, json};

use crate::app_backend::{Response, proxied_options, serve_proxied};
use crate::support::{CONNECT, Stream, masked, with_query};
use crate::token_signing::{FORMATS, WsClient, code, connect, subscribe, token, tokens};

fn received_text(answer: Value) -> impl Fn(ProxyEvent, &Value) -> Response + Send + Sync {
    move |_, _| Response::After(5, answer.clone())
}

fn seven(_: ProxyEvent, _: &Value) -> Response {
    Response::After(5, json!({"result": {"user": "7"}}))
}

/// Returns the connect reply.
fn connect_reply(what: &str, before: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(r#"{{{what}"connect":{{"client":"CLIENT","version":"ringmain {version}",{before}"ping":25"#)
}

#[test]
fn the_application_identifies_clients_on_every_transport() {
    let answer = json!({"result": {"user": "7", "data": {"a": [1]}, "channels": ["news"]}});
    let (mut client, log) = serve_proxied(proxied_options(), received_text(answer));
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
        assert!(reply.starts_with(&connect_reply(r#""id":1,"#, told)), "{reply}");
    }
    let pushed = [uni_socket.text(), uni_lines.line(), uni_events.event()];
    for push in pushed {
        assert_eq!(masked(&push), format!("{}}}}}", connect_reply("", told)));
    }
    let mut names: Vec<String> = Vec::new();
    for asked in log.take() {
        assert_eq!(asked.event, ProxyEvent::Connect);
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
fn the_application_receives_the_clients_data() {
    for binary in [false, true] {
        let mut options = proxied_options();
        options.proxy.binary = binary;
        options.proxy.emulated = vec!["authorization".to_owned()];
        let (mut client, log) = serve_proxied(options, seven);
        let mut ws = WsClient::open(&mut client, Format::Protobuf);
        let reply = ws.request(Command {
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
        let asked = log.take_one();
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
        drop(ws);
        client.finish().expect("it ends");
    }
}

#[test]
fn the_identity_of_the_application_applies() {
    let answer = json!({"result": {
        "user": "7", "b64info": "eyJuIjoxfQ==", "meta": {"m": 1},
        "subs": {"news": {"data": {"d": 1}, "info": {"i": 1}, "override": {"presence": {"value": false}}}},
        "caps": [{"channels": ["proxied:c"], "allow": ["sub"]}],
        "b64data": "",
    }});
    let (mut client, log) = serve_proxied(proxied_options(), received_text(answer));
    for format in FORMATS {
        let (mut ws, reply) = WsClient::connected(&mut client, format, "");
        let told = reply.connect.expect("an answer");
        assert_eq!((told.expires, told.ttl), (false, 0));
        assert_eq!(&*told.subs["news"].data, br#"{"d":1}"#);
        assert_eq!(log.take_one().event, ProxyEvent::Connect);
        // A capability is sufficient.
        assert_eq!(code(&ws.request(subscribe("proxied:c", ""))), 0);
        assert_eq!(log.take(), []);
        ws.request(Command {
            rpc: Some(RpcRequest::default()),
            ..Command::default()
        });
        let asked = log.take_one();
        assert_eq!(
            (&asked.body["user"], &asked.body["meta"]),
            (&json!("7"), &json!({"m": 1}))
        );
        drop(ws);
    }
    client.finish().expect("it ends");
}

#[test]
fn a_client_with_a_token_is_not_proxied() {
    let mut options = proxied_options();
    options.tokens = Some(tokens());
    let (mut client, log) = serve_proxied(options, seven);
    let shown = token(json!({ "sub": "8" }));
    let (ws, _) = WsClient::connected(&mut client, Format::Json, &shown);
    let mut forged = WsClient::open(&mut client, Format::Json);
    forged.send([connect("no.token.it")]);
    assert_eq!(forged.socket.closed().0, 3500);
    assert_eq!(log.take(), []);
    drop((ws, forged));
    client.finish().expect("it ends");
}

#[test]
fn a_client_that_the_application_rejects_is_not_connected() {
    let error = json!({"error": {"code": 1000, "message": "not you", "temporary": true}});
    let (mut client, log) = serve_proxied(proxied_options(), received_text(error));
    let refused = r#"{"id":1,"error":{"code":1000,"message":"not you","temporary":true}}"#;
    let mut socket = client.ws("/connection/websocket").open();
    for _ in 0..2 {
        // The client may retry.
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
fn a_disconnect_of_the_application_has_its_reason() {
    let away = json!({"disconnect": {"code": 4501, "reason": "go away"}});
    let (mut client, _) = serve_proxied(proxied_options(), received_text(away));
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
fn an_invalid_response_connects_no_client() {
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
        let (mut client, _) = serve_proxied(proxied_options(), move |_, _| Response::Bytes(bytes.to_vec()));
        let mut ws = WsClient::open(&mut client, Format::Json);
        let reply = ws.request(connect(""));
        // Trailing white space is allowed.
        let expected = if number + 1 == broken.len() { 0 } else { 100 };
        assert_eq!(code(&reply), expected, "{}", bytes.escape_ascii());
        assert_eq!(
            reply.error.map_or(0, |error| u32::from(error.temporary)),
            expected / 100
        );
        drop(ws);
        client.finish().expect("it ends");
    }
}

#[test]
fn responses_have_a_timeout_and_a_limit() {
    let mut long = json!({"result": {"user": "7"}}).to_string().into_bytes();
    long.resize(PROXY_RESPONSE_BYTES, b' ');
    let within = long.clone();
    long.push(b' ');
    type Make = Box<dyn Fn() -> Response + Send + Sync>;
    let cases: [(Make, u32); 6] = [
        (Box::new(|| Response::Fails), 100),
        (Box::new(|| Response::Never), 100),
        (Box::new(move || Response::Bytes(long.clone())), 100),
        (Box::new(move || Response::Bytes(within.clone())), 0),
        (Box::new(|| Response::After(999, json!({"result": {}}))), 0),
        (Box::new(|| Response::After(1001, json!({"result": {}}))), 100),
    ];
    for (answer, expected) in cases {
        let (mut client, _) = serve_proxied(proxied_options(), move |_, _| answer());
        let mut ws = WsClient::open(&mut client, Format::Json);
        assert_eq!(code(&ws.request(connect(""))), expected);
        drop(ws);
        client.finish().expect("it ends");
    }
}

#[test]
fn commands_behind_connect_wait_for_its_reply() {
    let (mut client, log) = serve_proxied(proxied_options(), |_, _| {
        Response::After(500, json!({"result": {"user": "7"}}))
    });
    let mut ws = WsClient::open(&mut client, Format::Json);
    ws.send([connect(""), subscribe("news", "")]);
    client.advance(Duration::from_millis(300));
    ws.send([subscribe("news", "")]);
    assert!(ws.reply(1).connect.is_some());
    assert_eq!([2, 3].map(|number| code(&ws.reply(number))), [0, 105]);
    assert_eq!(log.take().len(), 1);
    // A further one is one too many, as always.
    ws.send([connect("")]);
    assert_eq!(ws.socket.closed().0, 3501);
    // A rejected client has no command executed, and is not disconnected for it.
    let refusing = |_, _: &Value| Response::After(500, json!({"error": {"code": 400}}));
    let (mut other, log) = serve_proxied(proxied_options(), refusing);
    let mut ws = WsClient::open(&mut other, Format::Json);
    ws.send([connect(""), subscribe("news", "")]);
    assert_eq!(code(&ws.reply(1)), 400);
    assert_eq!(code(&ws.request(connect(""))), 400);
    assert_eq!((ws.is_quiet(), log.take().len()), (true, 2));
    drop(ws);
    client.finish().expect("it ends");
    other.finish().expect("it ends");
}

#[test]
fn a_request_of_a_client_that_leaves_is_cancelled() {
    let (mut client, log) = serve_proxied(proxied_options(), |_, _| Response::Never);
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(CONNECT);
    client.advance(Duration::from_millis(10));
    let mut stream = client.raw();
    stream.send("GET /connection/uni_sse HTTP/1.1\r\nHost: a\r\n\r\n");
    client.advance(Duration::from_millis(10));
    assert_eq!((log.take().len(), log.cancelled()), (2, 0));
    drop(socket);
    stream.reset();
    client.advance(Duration::from_millis(10));
    assert_eq!(log.cancelled(), 2);
    client.finish().expect("it ends");
}

#[test]
fn requests_of_a_worker_are_limited() {
    let mut options = proxied_options();
    options.proxy.events.insert(ProxyEvent::Rpc, PROXY_TIMEOUT_MAX);
    let (mut client, log) = serve_proxied(options, |event, _| match event {
        ProxyEvent::Rpc => Response::After(15_000, json!({"result": {}})),
        _ => Response::After(0, json!({"result": {"user": ""}})),
    });
    let call = || Command {
        rpc: Some(RpcRequest::default()),
        ..Command::default()
    };
    let clients = PROXY_REQUESTS_PER_WORKER as usize / PROXY_REQUESTS_PER_CLIENT;
    let all: Vec<WsClient> = (0..clients)
        .map(|_| {
            let (mut ws, _) = WsClient::connected(&mut client, Format::Json, "");
            ws.send((0..PROXY_REQUESTS_PER_CLIENT).map(|_| call()));
            ws
        })
        .collect();
    client.advance(Duration::from_millis(100));
    assert_eq!(log.take().len(), PROXY_REQUESTS_PER_WORKER as usize + clients);
    let mut more = WsClient::open(&mut client, Format::Json);
    let refused = more.request(connect(""));
    assert_eq!((code(&refused), log.take()), (111, Vec::new()));
    assert!(refused.error.is_some_and(|error| error.temporary));
    client.advance(Duration::from_secs(16));
    assert!(more.request(connect("")).connect.is_some());
    drop((all, more));
    client.finish().expect("it ends");
}

#[test]
fn emulated_headers_are_limited() {
    let mut options = proxied_options();
    options.proxy.emulated = vec!["a".to_owned()];
    let (mut client, _) = serve_proxied(options, seven);
    for (value, expected) in [
        (EMULATED_HEADER_BYTES - 1, None),
        (EMULATED_HEADER_BYTES, Some(3501)),
    ] {
        let mut ws = WsClient::open(&mut client, Format::Json);
        let headers = [("A", "x".repeat(value)), ("B", "x".repeat(20_000))];
        ws.send([Command {
            connect: Some(ConnectRequest {
                headers: headers.map(|(name, value)| (name.to_owned(), value)).into(),
                ..ConnectRequest::default()
            }),
            ..Command::default()
        }]);
        match expected {
            None => assert!(ws.reply(1).connect.is_some()),
            Some(code) => assert_eq!(ws.socket.closed().0, code),
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn commands_without_an_application_are_not_available() {
    let mut options = proxied_options();
    options.anonymous = true;
    let mut client = crate::support::serve(options);
    let (mut ws, _) = WsClient::connected(&mut client, Format::Json, "");
    assert_eq!(code(&ws.request(subscribe("proxied:a", ""))), 108);
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn invalid_options_are_rejected() {
    let check = |change: &dyn Fn(&mut Options), expected: &str| {
        let mut options = proxied_options();
        change(&mut options);
        let error = options.check().expect_err("a mistake").to_string();
        assert_eq!(error, format!("push: {expected}"));
    };
    let within = |time| {
        move |options: &mut Options| {
            options.proxy.events.insert(ProxyEvent::Rpc, time);
        }
    };
    check(
        &within(Duration::ZERO),
        "expected a timeout of more than zero and at most 20s for `rpc`, found 0ns",
    );
    check(
        &within(Duration::from_millis(20_001)),
        "expected a timeout of more than zero and at most 20s for `rpc`, found 20.001s",
    );
    check(
        &|options| options.proxy = Proxy::default(),
        "expected an endpoint of the application for `subscribe`, which `kept` requires, found none",
    );
}
