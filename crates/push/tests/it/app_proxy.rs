//! Requests to the application for connected clients: RPCs, publications, subscriptions, renewals.

use std::time::Duration;

use ringmain_hub::protocol::{
    Command, Format, PublishRequest, PushMessage, Reply, RpcRequest, SubscribeRequest,
};
use ringmain_push::ProxyEvent;
use ringmain_push::limits::{PROXY_REQUESTS_PER_CLIENT, REFRESH_RETRY};
use ringmain_web::testing::TestClient;
use serde_json::{Value, json};

use crate::app_backend::{Log, Response, proxied_options, serve_proxied};
use crate::token_signing::{FORMATS, WsClient, code, now, subscribe, token, tokens};

/// Serves clients of user 7 with these responses to all other events.
fn serve_seven(
    answers: impl Fn(ProxyEvent, &Value) -> Response + Send + Sync + 'static,
) -> (TestClient, Log) {
    serve_proxied(proxied_options(), move |event, body| match event {
        ProxyEvent::Connect => Response::After(0, json!({"result": {"user": "7", "info": {"n": 1}}})),
        event => answers(event, body),
    })
}

fn connect_client(client: &mut TestClient, log: &Log, format: Format) -> WsClient {
    let (ws, _) = WsClient::connected(client, format, "");
    assert_eq!(log.take_one().event, ProxyEvent::Connect);
    ws
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
fn publication(push: PushMessage) -> (String, String) {
    let publication = push.pub_.expect("a publication");
    let data = String::from_utf8(publication.data.to_vec()).expect("a text");
    (push.channel, data)
}

fn rpc_data(reply: &Reply) -> String {
    let data = reply.rpc.as_ref().map(|rpc| rpc.data.to_vec());
    String::from_utf8(data.unwrap_or_default()).expect("a text")
}

#[test]
fn the_application_handles_rpcs() {
    let (mut client, log) =
        serve_seven(|_, body| Response::After(5, json!({"result": {"data": {"to": body["method"]}}})));
    for format in FORMATS {
        let mut ws = connect_client(&mut client, &log, format);
        assert_eq!(rpc_data(&ws.request(rpc("price", "[1]"))), r#"{"to":"price"}"#);
        let mut body = log.take_one().body;
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
        assert_eq!(rpc_data(&ws.request(rpc("", ""))), r#"{"to":null}"#);
        let body = log.take_one().body;
        assert!(body.get("method").is_none() && body.get("data").is_none());
        drop(ws);
    }
    client.finish().expect("it ends");
}

#[test]
fn bytes_are_exchanged_in_base64() {
    let mut options = proxied_options();
    options.anonymous = true;
    options.proxy.events.remove(&ProxyEvent::Connect);
    for binary in [true, false] {
        options.proxy.binary = binary;
        let (mut client, log) = serve_proxied(options.clone(), |_, _| {
            Response::After(0, json!({"result": {"b64data": "AP8="}}))
        });
        let (mut ws, _) = WsClient::connected(&mut client, Format::Protobuf, "");
        let call = Command {
            rpc: Some(RpcRequest {
                data: b"\0\xff".as_slice().into(),
                ..RpcRequest::default()
            }),
            ..Command::default()
        };
        let reply = ws.request(call);
        if binary {
            assert_eq!(&*reply.rpc.expect("an answer").data, b"\0\xff");
            assert_eq!(log.take_one().body["b64data"], "AP8=");
        } else {
            // It cannot be encoded.
            assert_eq!((code(&reply), log.take()), (107, Vec::new()))
        }
        // Nor can that of a client of the JSON format.
        let (mut other, _) = WsClient::connected(&mut client, Format::Json, "");
        assert_eq!(code(&other.request(rpc("", "1"))), 100);
        drop((ws, other));
        client.finish().expect("it ends");
    }
}

#[test]
fn rpcs_run_concurrently() {
    let (mut client, log) = serve_seven(|_, body| {
        let after = if body["method"] == "slow" { 500 } else { 5 };
        Response::After(after, json!({"result": {"data": body["method"]}}))
    });
    let mut ws = connect_client(&mut client, &log, Format::Json);
    let last = ws.send([rpc("slow", ""), rpc("fast", ""), subscribe("news", "")]);
    assert_eq!(code(&ws.reply(last)), 0);
    assert_eq!(rpc_data(&ws.reply(last - 1)), "\"fast\"");
    assert!(
        client.elapsed() < Duration::from_millis(400),
        "{:?}",
        client.elapsed()
    );
    assert_eq!(rpc_data(&ws.reply(last - 2)), "\"slow\"");
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn commands_about_a_channel_are_executed_in_order() {
    // Later ones have faster responses.
    let (mut client, log) = serve_seven(|event, body| match event {
        ProxyEvent::Publish => {
            Response::After(100 - body["data"].as_u64().unwrap_or(0), json!({"result": {}}))
        }
        _ => Response::After(50, json!({"result": {}})),
    });
    let mut ws = connect_client(&mut client, &log, Format::Json);
    let publications = (0..10).map(|number| publish("proxied:a", &number.to_string()));
    ws.send([subscribe("proxied:a", "")].into_iter().chain(publications));
    for number in 0..10 {
        assert_eq!(
            publication(ws.push()),
            ("proxied:a".to_owned(), number.to_string())
        );
    }
    let events = log.take().into_iter().map(|asked| asked.event);
    let expected = [ProxyEvent::Subscribe]
        .into_iter()
        .chain([ProxyEvent::Publish; 10]);
    assert!(events.eq(expected));
    // Commands about another channel do not wait for them.
    let last = ws.send([
        publish("proxied:a", "0"),
        publish("proxied:b", "90"),
        publish("proxied:a", "1"),
    ]);
    let begun = client.elapsed();
    assert_eq!(code(&ws.reply(last - 1)), 0);
    assert!(client.elapsed() - begun < Duration::from_millis(60));
    assert_eq!([last - 2, last].map(|number| code(&ws.reply(number))), [0, 0]);
    assert!(client.elapsed() - begun > Duration::from_millis(190));
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn requests_of_a_client_are_limited() {
    let (mut client, log) = serve_seven(|_, _| Response::After(500, json!({"result": {}})));
    let mut ws = connect_client(&mut client, &log, Format::Json);
    let most = u32::try_from(PROXY_REQUESTS_PER_CLIENT).expect("few");
    // Half of these wait for the responses to others.
    let half = PROXY_REQUESTS_PER_CLIENT / 2;
    let first = ws.send((0..half).map(|_| rpc("", "1"))) + 1;
    ws.send((0..half).map(|_| publish("proxied:a", "1")));
    let last = ws.send([rpc("", ""), publish("proxied:a", "1"), subscribe("news", "")]);
    assert_eq!([2, 1, 0].map(|back| code(&ws.reply(last - back))), [111, 111, 0]);
    assert_eq!(last - first + 1, most / 2 + 3);
    assert_eq!(log.take().len(), half + 1);
    for number in first..first + most / 2 {
        assert_eq!(code(&ws.reply(number)), 0);
    }
    assert_eq!(code(&ws.request(rpc("", ""))), 0);
    // A client that leaves leaves no request.
    ws.send([rpc("", ""), publish("proxied:a", "1"), publish("proxied:a", "1")]);
    client.advance(Duration::from_millis(10));
    let before = log.cancelled();
    drop(ws);
    client.advance(Duration::from_millis(10));
    assert_eq!(log.cancelled() - before, 2);
    client.finish().expect("it ends");
}

#[test]
fn the_application_decides_about_subscriptions() {
    let (mut client, log) = serve_seven(|_, body| match body["channel"].as_str() {
        Some("proxied:yes") => Response::After(5, json!({"result": {"data": {"d": 1}, "info": {"c": 1}}})),
        Some("proxied:later") => Response::After(5, json!({"result": {"expire_at": 99_999_999_999_u64}})),
        Some("proxied:over") => Response::After(5, json!({"result": {"expire_at": 1}})),
        Some("proxied:override") => Response::After(
            5,
            json!({"result": {"override": {"force_recovery": {"value": true}}}}),
        ),
        Some("proxied:no") => Response::After(5, json!({"error": {"code": 403, "message": "no"}})),
        _ => Response::Fails,
    });
    let mut ws = connect_client(&mut client, &log, Format::Json);
    let reply = ws.request(Command {
        subscribe: Some(SubscribeRequest {
            channel: "proxied:yes".to_owned(),
            data: "[1]".into(),
            ..SubscribeRequest::default()
        }),
        ..Command::default()
    });
    assert_eq!(&*reply.subscribe.expect("an answer").data, br#"{"d":1}"#);
    let asked = log.take_one();
    assert_eq!(
        (&asked.body["channel"], &asked.body["data"], &asked.body["user"]),
        (&json!("proxied:yes"), &json!([1]), &json!("7"))
    );
    // It receives no expiry: the application is requested.
    let reply = ws
        .request(subscribe("proxied:later", ""))
        .subscribe
        .expect("an answer");
    assert_eq!((reply.expires, reply.ttl), (false, 0));
    for (channel, expected) in [
        ("proxied:over", 110),
        ("proxied:override", 108),
        ("proxied:no", 403),
        ("proxied:down", 100),
    ] {
        let reply = ws.request(subscribe(channel, ""));
        assert_eq!(code(&reply), expected, "{channel}");
    }
    assert_eq!(log.take().len(), 5);
    // There is no request if the decision is not the application's, or was made.
    for (channel, expected) in [
        ("news", 0),
        ("proxied:yes", 105),
        ("proxied:a#8", 103),
        ("proxied:a#7", 0),
        ("$proxied:a", 103),
        ("nowhere:a", 102),
    ] {
        assert_eq!(code(&ws.request(subscribe(channel, ""))), expected, "{channel}");
    }
    assert_eq!(log.take(), []);
    // Other clients receive the new info.
    let (mut other, _) = WsClient::connected(&mut client, Format::Json, "");
    assert_eq!(code(&other.request(subscribe("proxied:yes", ""))), 0);
    assert_eq!(code(&ws.request(publish("proxied:yes", "1"))), 0);
    let told = ws.push().pub_.expect("a publication").info.expect("client info");
    assert_eq!(&*told.chan_info, br#"{"c":1}"#);
    drop((ws, other));
    client.finish().expect("it ends");
}

#[test]
fn a_channel_token_is_sufficient() {
    let mut options = proxied_options();
    options.tokens = Some(tokens());
    let (mut client, log) = serve_proxied(options, |_, _| Response::Fails);
    let (mut ws, _) = WsClient::connected(&mut client, Format::Json, &token(json!({"sub": "7"})));
    let shown = token(json!({"sub": "7", "channel": "proxied:a"}));
    assert_eq!(code(&ws.request(subscribe("proxied:a", &shown))), 0);
    assert_eq!(log.take(), []);
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn the_application_decides_about_publications() {
    let (mut client, log) = serve_seven(|event, body| match body["data"].as_str() {
        _ if event == ProxyEvent::Subscribe => Response::After(0, json!({"result": {}})),
        Some("other") => Response::After(5, json!({"result": {"data": {"by": "it"}, "tags": {"t": "1"}}})),
        Some("no") => Response::After(5, json!({"error": {"code": 1000, "message": "no"}})),
        Some("away") => Response::After(5, json!({"disconnect": {"code": 4000, "reason": "back later"}})),
        Some("skip") => Response::After(5, json!({"result": {"skip_history": true}})),
        _ => Response::After(5, json!({"result": {}})),
    });
    let mut ws = connect_client(&mut client, &log, Format::Json);
    assert_eq!(code(&ws.request(subscribe("proxied:a", ""))), 0);
    for (data, expected) in [("\"same\"", "\"same\""), ("\"other\"", r#"{"by":"it"}"#)] {
        assert_eq!(code(&ws.request(publish("proxied:a", data))), 0);
        let push = ws.push();
        let told = push.pub_.clone().expect("a publication");
        let by = told.info.expect("client info");
        assert_eq!((&*by.user, &*by.conn_info), ("7", &br#"{"n":1}"#[..]));
        assert_eq!(told.tags.len(), usize::from(data == "\"other\""));
        assert_eq!(publication(push).1, expected);
    }
    for (channel, data, expected) in [
        ("proxied:a", "\"no\"", 1000),
        ("proxied:a", "\"skip\"", 100),
        ("$proxied:a", "1", 103),
        ("proxied:a#8", "1", 103),
        ("proxied:a", "", 107),
        ("nowhere:a", "1", 102),
        // The namespace alone decides.
        ("news", "1", 103),
    ] {
        assert_eq!(
            code(&ws.request(publish(channel, data))),
            expected,
            "{channel} {data}"
        );
    }
    assert_eq!(log.take().len(), 5);
    assert!(ws.is_quiet());
    ws.send([publish("proxied:a", "\"away\"")]);
    assert_eq!(ws.socket.closed(), (4000, "back later".to_owned()));
    drop(ws);
    client.finish().expect("it ends");
}

/// A later response, by the start of the test.
type Later = fn(u64) -> Response;

/// Returns the start of a test, in seconds since 1970.
fn start_time() -> u64 {
    let (mut client, _) = serve_proxied(proxied_options(), |_, _| Response::Fails);
    let begun = now(&mut client);
    client.finish().expect("it ends");
    begun
}

/// Serves with an application that accepts clients for ten seconds, and sends these responses later.
fn serve_ten_seconds(answer: Later) -> (TestClient, Log) {
    let begun = start_time();
    serve_proxied(proxied_options(), move |event, _| match event {
        ProxyEvent::Connect => Response::After(0, json!({"result": {"user": "7", "expire_at": begun + 10}})),
        _ => answer(begun),
    })
}

#[test]
fn the_application_renews_connections() {
    let (mut client, log) = serve_ten_seconds(|begun| {
        Response::After(
            5,
            json!({"result": {"expire_at": begun + 20, "info": {"n": 2}, "meta": [2]}}),
        )
    });
    let mut ws = connect_client(&mut client, &log, Format::Json);
    ws.wait(&mut client, 8);
    assert_eq!(log.take(), []);
    ws.wait(&mut client, 4);
    let asked = log.take_one();
    assert_eq!(
        (asked.event, &asked.body["user"]),
        (ProxyEvent::Refresh, &json!("7"))
    );
    ws.wait(&mut client, 5);
    ws.send([rpc("", "")]);
    assert_eq!(log.take(), []);
    client.advance(Duration::from_millis(10));
    assert_eq!(log.take_one().body["meta"], json!([2]));
    // The response is the same for subscriptions that have expired by then.
    ws.receive_all();
    client.advance(Duration::from_secs(5));
    assert_eq!(ws.socket.closed().0, 3005);
    assert_eq!(log.take_one().event, ProxyEvent::Refresh);
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn the_application_closes_connections() {
    let cases: [(Later, u16); 2] = [
        (|_| Response::After(5, json!({"result": {"expired": true}})), 3005),
        (
            |_| Response::After(5, json!({"disconnect": {"code": 4501, "reason": "enough"}})),
            4501,
        ),
    ];
    for (answer, expected) in cases {
        let (mut client, log) = serve_ten_seconds(answer);
        let mut ws = connect_client(&mut client, &log, Format::Json);
        ws.wait(&mut client, 8);
        client.advance(Duration::from_secs(4));
        assert_eq!(ws.socket.closed().0, expected);
        assert_eq!(log.take_one().event, ProxyEvent::Refresh);
        drop(ws);
        client.finish().expect("it ends");
    }
}

#[test]
fn a_connection_remains_open_without_a_response() {
    let (mut client, log) = serve_ten_seconds(|_| Response::Fails);
    let mut ws = connect_client(&mut client, &log, Format::Json);
    let again = REFRESH_RETRY.as_secs();
    ws.wait(&mut client, 10 + again * 3);
    let asked = log.take();
    assert!((3..=7).contains(&asked.len()), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.event == ProxyEvent::Refresh));
    assert_eq!(code(&ws.request(subscribe("news", ""))), 0);
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn the_application_renews_subscriptions() {
    let cases: [(Later, bool); 3] = [
        (
            |begun| Response::After(5, json!({"result": {"expire_at": begun + 1000}})),
            true,
        ),
        (|_| Response::Fails, true),
        (
            |_| Response::After(5, json!({"result": {"expired": true}})),
            false,
        ),
    ];
    for (answer, goes_on) in cases {
        let begun = start_time();
        let (mut client, log) = serve_seven(move |event, _| match event {
            ProxyEvent::Subscribe => Response::After(0, json!({"result": {"expire_at": begun + 10}})),
            _ => answer(begun),
        });
        let mut ws = connect_client(&mut client, &log, Format::Json);
        assert_eq!(code(&ws.request(subscribe("proxied:a", ""))), 0);
        log.take();
        ws.wait(&mut client, 8);
        assert_eq!(log.take(), []);
        ws.wait(&mut client, 4);
        let asked = log.take_one();
        assert_eq!(
            (asked.event, &asked.body["channel"]),
            (ProxyEvent::SubRefresh, &json!("proxied:a"))
        );
        if goes_on {
            assert!(ws.is_quiet())
        } else {
            let push = ws.push();
            assert_eq!(push.unsubscribe.map(|why| why.code), Some(2501));
        }
        drop(ws);
        client.finish().expect("it ends");
    }
}
