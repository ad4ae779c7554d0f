//! Publications of programs: the forms of Centrifugo's API, idempotency keys, batches, and never a partial execution.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_hub::limits::KEY_BYTES;
use ringmain_hub::protocol::Format;
use ringmain_hub::subscribers::shard_of;
use ringmain_push::limits::{BATCH_COMMANDS, BROADCAST_CHANNELS};
use ringmain_push::{DataFormat, Options, Push};
use ringmain_web::App;
use ringmain_web::testing::{RawConnection, Setup, TestClient};
use serde_json::{Value, json};
use std::time::Duration;

use crate::support::{options, serve, serve_by};
use crate::token_signing::{WsClient, code, subscribe};

/// Calls a method. Returns the response.
#[track_caller]
pub(crate) fn call(client: &mut TestClient, method: &str, body: &Value) -> Value {
    let request = client.post(&format!("/api/{method}")).header("x-api-key", "key");
    let reply = request.body(body.to_string()).send();
    assert_eq!(reply.status(), 200, "{}", reply.text());
    reply.json()
}

/// Returns the code of the error; 0 without one.
#[track_caller]
pub(crate) fn fault(client: &mut TestClient, method: &str, body: &Value) -> u64 {
    let told = call(client, method, body);
    told["error"]["code"].as_u64().unwrap_or_default()
}

/// Returns the offsets and data of the history.
#[track_caller]
fn kept(client: &mut TestClient, channel: &str) -> Vec<(u64, Value)> {
    let told = call(client, "history", &json!({ "channel": channel, "limit": -1 }));
    let publications = told["result"]["publications"].as_array().expect("publications");
    publications
        .iter()
        .map(|one| (one["offset"].as_u64().unwrap_or_default(), one["data"].clone()))
        .collect()
}

#[test]
fn the_api_requires_the_key() {
    let mut client = serve(options());
    let body = r#"{"channel":"news","data":1}"#;
    for (name, value, expected) in [
        ("x-api-key", "key", 200),
        ("authorization", "apikey key", 200),
        ("authorization", "ApiKey  key", 200),
        ("x-api-key", "kex", 401),
        ("x-api-key", "", 401),
        ("x-api-key", "apikey key", 401),
        ("authorization", "key", 401),
        ("authorization", "apikey", 401),
        ("authorization", "apikey kex", 401),
        ("authorization", "Bearer key", 401),
        ("cookie", "key", 401),
    ] {
        for method in ["publish", "info", "batch"] {
            let body = match method {
                "publish" => body,
                "batch" => r#"{"commands":[]}"#,
                _ => "{}",
            };
            let request = client.post(&format!("/api/{method}")).header(name, value);
            assert_eq!(request.body(body).send().status(), expected, "{name}: {value}");
        }
    }
    let both = client.post("/api/publish").header("x-api-key", "kex");
    let both = both.header("authorization", "apikey key").body(body).send();
    assert_eq!(both.status(), 401, "one that is wrong is wrong");
    client.finish().expect("it ends");
    let mut closed = serve(Options::default());
    let request = closed.post("/api/info").header("x-api-key", "").body("{}");
    assert_eq!(request.send().status(), 404);
    closed.finish().expect("it ends");
}

#[test]
fn malformed_requests_are_rejected() {
    let mut client = serve(options());
    for (method, body) in [
        ("publish", ""),
        ("publish", "[]"),
        ("publish", r#"{"channel":"news","data":1"#),
        ("publish", r#"{"channel":7,"data":1}"#),
        ("publish", r#"{"data":1}"#),
        ("publish", r#"{"channel":"news","data":1,"skip_histroy":true}"#),
        ("publish", r#"{"channel":"news","data":1} {}"#),
        ("history", r#"{"channel":"kept:a","since":{"offset":-1}}"#),
        ("presence", r#"{"channel":"kept:a","user":"7"}"#),
        ("info", ""),
        ("", "nonsense"),
        ("", ""),
        ("", r#"{"params":{}}"#),
        ("batch", r#"{"commands":{}}"#),
    ] {
        let request = client.post(&format!("/api/{method}")).header("x-api-key", "key");
        let reply = request.body(body).send();
        assert_eq!(reply.status(), 400, "{method} {body}: {}", reply.text());
        assert!(reply.text().len() < 2000);
    }
    for (method, body, expected) in [
        ("publish", json!({ "channel": "", "data": 1 }), 107),
        ("publish", json!({ "channel": "no:where", "data": 1 }), 102),
        ("publish", json!({ "channel": "news" }), 107),
        ("publish", json!({ "channel": "news", "b64data": "*" }), 107),
        (
            "publish",
            json!({ "channel": "news", "data": 1, "version": 2 }),
            108,
        ),
        (
            "publish",
            json!({ "channel": "news", "data": 1, "idempotency_key": "x".repeat(KEY_BYTES + 1) }),
            107,
        ),
        ("broadcast", json!({ "channels": [], "data": 1 }), 107),
        (
            "broadcast",
            json!({ "channels": vec!["news"; BROADCAST_CHANNELS + 1], "data": 1 }),
            106,
        ),
        ("broadcast", json!({ "channels": ["news"] }), 107),
    ] {
        assert_eq!(fault(&mut client, method, &body), expected, "{method}");
    }
    // As sent by libraries that omit nothing.
    let unset = json!({
        "channel": "news", "data": 1, "b64data": "", "skip_history": false, "tags": null, "idempotency_key": "",
        "delta": false, "version": 0, "version_epoch": "",
    });
    assert_eq!(call(&mut client, "publish", &unset), json!({ "result": {} }));
    client.finish().expect("it ends");
}

#[test]
fn faults_are_statuses_in_transport_mode() {
    let mut client = serve(options());
    for (method, body, expected) in [
        ("publish", r#"{"channel":"no:where","data":1}"#, 404),
        ("publish", r#"{"channel":"news"}"#, 400),
        ("presence", r#"{"channel":"news"}"#, 400),
        (
            "history",
            r#"{"channel":"kept:a","limit":1,"since":{"offset":1,"epoch":"x"}}"#,
            416,
        ),
    ] {
        let request = client.post(&format!("/api/{method}")).header("x-api-key", "key");
        let reply = request
            .header("x-centrifugo-error-mode", "transport")
            .body(body)
            .send();
        let told: Value = reply.json();
        assert_eq!(reply.status(), expected, "{told}");
        assert!(told["code"].is_u64() && told["message"].is_string(), "{told}");
    }
    client.finish().expect("it ends");
}

#[test]
fn publication_options_are_applied() {
    let mut options = options();
    options
        .namespaces
        .get_mut("kept")
        .expect("it is there")
        .data_format = DataFormat::Binary;
    let mut client = serve_by(3, options);
    let mut ws = WsClient::open(&mut client, Format::Protobuf);
    assert!(ws.request(crate::token_signing::connect("")).connect.is_some());
    assert_eq!(code(&ws.request(subscribe("kept:a", ""))), 0);
    let mut epoch = None;
    for (more, data, offset) in [
        (json!({ "data": { "a": [1, 2] } }), &br#"{"a":[1,2]}"#[..], 1),
        (json!({ "data": 2, "skip_history": true }), b"2", 0),
        (
            json!({ "data": 3, "b64data": STANDARD.encode(b"\0\xff") }),
            b"\0\xff",
            2,
        ),
        (json!({ "data": null, "tags": { "a": "b" } }), b"null", 3),
    ] {
        let mut body = more;
        body["channel"] = json!("kept:a");
        let told = call(&mut client, "publish", &body);
        let result = told["result"].as_object().expect("a result");
        if offset > 0 {
            assert_eq!(result["offset"], json!(offset));
            assert_eq!(*epoch.get_or_insert(result["epoch"].clone()), result["epoch"]);
        } else {
            assert!(result.is_empty(), "{result:?}");
        }
        let publication = ws.push().pub_.expect("a publication");
        assert_eq!((&*publication.data, publication.offset), (data, offset));
        assert_eq!(publication.tags.is_empty(), body["tags"].is_null());
    }
    let told = call(
        &mut client,
        "history",
        &json!({ "channel": "kept:a", "limit": 10 }),
    );
    let [binary, tagged] = &told["result"]["publications"].as_array().expect("two")[..] else {
        panic!("two are kept: {told}");
    };
    assert_eq!(
        *binary,
        json!({ "b64data": STANDARD.encode(b"\0\xff"), "offset": 2 })
    );
    assert_eq!(
        *tagged,
        json!({ "data": null, "offset": 3, "tags": { "a": "b" } })
    );
    drop(ws);
    client.finish().expect("it ends");
}

#[test]
fn each_channel_of_a_broadcast_has_a_response() {
    let mut client = serve_by(3, options());
    let body = json!({ "channels": ["kept:a", "news", "no:where", "", "kept:a", "kept:b"], "data": 1 });
    let told = call(&mut client, "broadcast", &body);
    let offsets: Vec<Value> = told["result"]["responses"]
        .as_array()
        .expect("responses")
        .iter()
        .map(|one| {
            one.get("error")
                .map_or(one["result"]["offset"].clone(), |why| why["code"].clone())
        })
        .collect();
    assert_eq!(json!(offsets), json!([1, null, 102, 107, 2, 1]));
    client.finish().expect("it ends");
}

#[test]
fn a_conflated_channel_rejects_transient_publications() {
    let mut options = options();
    let kept = options.namespaces.get_mut("kept").expect("it is there");
    kept.channel_options.conflation_interval = Some(Duration::from_millis(200));
    let mut client = serve(options);
    let body = |skip| json!({ "channel": "kept:a", "data": 1, "skip_history": skip });
    assert_eq!(fault(&mut client, "publish", &body(true)), 108);
    assert_eq!(fault(&mut client, "publish", &body(false)), 0);
    client.finish().expect("it ends");
}

#[test]
fn an_idempotency_key_is_published_once_on_any_worker() {
    let mut client = serve_by(3, options());
    let publish = |client: &mut TestClient, channel: &str, value: u32, key: &str| {
        let body = json!({ "channel": channel, "data": value, "idempotency_key": key });
        call(client, "publish", &body)["result"].clone()
    };
    let first = publish(&mut client, "kept:a", 1, "x");
    for _ in 0..9 {
        assert_eq!(publish(&mut client, "kept:a", 2, "x"), first);
    }
    assert_eq!(publish(&mut client, "kept:a", 3, "y")["offset"], json!(2));
    assert_eq!(
        publish(&mut client, "kept:b", 4, "x")["offset"],
        json!(1),
        "another channel"
    );
    let body = json!({ "channels": ["kept:a", "kept:c"], "data": 5, "idempotency_key": "x" });
    let told = call(&mut client, "broadcast", &body);
    assert_eq!(told["result"]["responses"][0]["result"], first);
    assert_eq!(kept(&mut client, "kept:a"), [(1, json!(1)), (2, json!(3))]);
    // A channel without retention.
    let mut ws = WsClient::open(&mut client, Format::Json);
    ws.request(crate::token_signing::connect(""));
    assert_eq!(code(&ws.request(subscribe("news", ""))), 0);
    for (value, key) in [(1, "x"), (2, "x"), (3, "")] {
        assert_eq!(publish(&mut client, "news", value, key), json!({}));
    }
    for expected in [&b"1"[..], b"3"] {
        assert_eq!(&*ws.push().pub_.expect("a publication").data, expected);
    }
    drop(ws);
    client.advance(Duration::from_secs(300));
    assert_eq!(
        publish(&mut client, "kept:b", 6, "x")["offset"],
        json!(2),
        "the window is over"
    );
    client.finish().expect("it ends");
}

/// Sends a request without waiting for its response.
fn send(connection: &mut RawConnection, method: &str, body: &Value) {
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "POST /api/{method} HTTP/1.1\r\nHost: a\r\nX-API-Key: key\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut left = head.as_bytes();
    while !left.is_empty() {
        let sent = connection.send(left);
        left = &left[sent..];
        if !left.is_empty() {
            connection.advance(Duration::from_millis(1));
        }
    }
}

#[test]
fn full_queues_cause_no_duplicates() {
    // More for each worker than a queue holds, from several at once.
    let channels: Vec<String> = (0..BROADCAST_CHANNELS)
        .map(|number| format!("kept:{number}"))
        .collect();
    for seed in 0..3 {
        let setup = Setup {
            seed,
            workers: 3,
            ..Setup::default()
        };
        let push = Push::new();
        push.replace(options()).expect("they can be");
        let mut client = TestClient::with(push.serve(App::new()), setup).expect("an application");
        let mut programs: Vec<RawConnection> = (0..4).map(|_| client.raw()).collect();
        let body = json!({ "channels": channels, "data": seed, "idempotency_key": "x" });
        for program in &mut programs {
            send(program, "broadcast", &body);
        }
        let mut answers = Vec::new();
        for program in &mut programs {
            let reply = program.reply();
            match reply.status() {
                200 => answers.push(reply.json::<Value>()),
                503 => {}
                status => panic!("seed {seed}: {status}"),
            }
        }
        let first = answers.first().expect("one at least");
        assert!(answers.iter().all(|answer| answer == first), "seed {seed}");
        let report = push.report();
        assert_eq!(report.publications, channels.len() as u64, "seed {seed}");
        assert_eq!(
            report.duplicates,
            (channels.len() * (answers.len() - 1)) as u64,
            "seed {seed}"
        );
        for channel in ["kept:0", "kept:4095"] {
            assert_eq!(kept(&mut client, channel), [(1, json!(seed))], "seed {seed}");
        }
        drop(programs);
        client.finish().expect("it ends");
    }
}

#[test]
fn an_overload_is_reported_and_nothing_is_executed() {
    // All for the other worker, whichever has the connection.
    let far = |home: u16| -> Vec<String> {
        let names = (0..).map(|number| format!("{number}"));
        names
            .filter(|name| shard_of(name, 2).0 == home)
            .take(BROADCAST_CHANNELS)
            .collect()
    };
    let push = Push::new();
    push.replace(options()).expect("they can be");
    let app = push.serve(App::new()).get("/worker", |request, reply| {
        reply.text(request.cx().worker().to_string())
    });
    let setup = Setup {
        workers: 2,
        ..Setup::default()
    };
    let mut client = TestClient::with(app, setup).expect("an application");
    let mut program = client.raw();
    program.send("GET /worker HTTP/1.1\r\nHost: a\r\n\r\n");
    let worker: u16 = program.reply().text().parse().expect("a number");
    let body = json!({ "channels": far(1 - worker), "data": 1 });
    let mut others: Vec<RawConnection> = (0..30).map(|_| client.raw()).collect();
    for other in &mut others {
        send(other, "broadcast", &body);
    }
    let (mut done, mut refused) = (0, 0);
    for other in &mut others {
        let reply = other.reply();
        match reply.status() {
            200 => done += 1,
            503 => {
                assert_eq!(reply.header("retry-after"), Some("1"));
                refused += 1;
            }
            status => panic!("{status}"),
        }
    }
    client.advance(Duration::from_secs(1));
    assert_eq!(push.report().publications, (done * BROADCAST_CHANNELS) as u64);
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    drop((program, others));
    client.finish().expect("it ends");
}

#[test]
fn commands_of_a_batch_are_executed_in_order() {
    let mut client = serve_by(3, options());
    for parallel in [json!(null), json!(false), json!(true)] {
        let body = json!({
            "commands": [
                { "publish": { "channel": "kept:a", "data": 1, "idempotency_key": "x" } },
                { "publish": { "channel": "no:where", "data": 1 } },
                { "history": { "channel": "kept:a" } },
                { "broadcast": { "channels": ["news"], "data": 1 } },
                { "presence_stats": { "channel": "kept:a" } },
                { "history_remove": { "channel": "news" } },
                { "disconnect": { "user": "7" } },
                { "channels": {} },
            ],
            "parallel": parallel,
        });
        let told = call(&mut client, "batch", &body);
        let mut replies = told["replies"].as_array().expect("replies").clone();
        for reply in [0, 2] {
            let method = ["publish", "", "history"][reply];
            replies[reply][method]["epoch"] = json!("e");
        }
        let expected = json!([
            { "publish": { "offset": 1, "epoch": "e" } },
            { "error": { "code": 102, "message": "unknown channel" } },
            { "history": { "publications": [], "epoch": "e", "offset": 1 } },
            { "broadcast": { "responses": [{ "result": {} }] } },
            { "presence_stats": { "num_clients": 0, "num_users": 0 } },
            { "error": { "code": 108, "message": "not available" } },
            { "disconnect": { "num_clients": 0 } },
            { "channels": { "channels": {} } },
        ]);
        assert_eq!(json!(replies), expected);
    }
    let many = |count| json!({ "commands": vec![json!({ "info": {} }); count] });
    // An unknown command, or one with invalid parameters, fails alone.
    let body = json!({ "commands": [
        { "publish": { "channel": "news", "data": 1 } }, { "unheard": {} }, {}, { "publish": { "channel": 7 } },
        { "publish": {}, "info": {} }, { "presence_stats": { "channel": "kept:a" } },
    ] });
    let told = call(&mut client, "batch", &body);
    let replies = told["replies"].as_array().expect("replies");
    let codes: Vec<_> = replies
        .iter()
        .map(|reply| reply["error"]["code"].as_u64())
        .collect();
    assert_eq!(codes, [None, Some(104), Some(104), Some(107), Some(107), None]);
    assert!(replies[5]["presence_stats"].is_object());
    let told = call(&mut client, "batch", &many(BATCH_COMMANDS));
    assert_eq!(told["replies"].as_array().map(Vec::len), Some(BATCH_COMMANDS));
    assert_eq!(call(&mut client, "batch", &many(0)), json!({ "replies": [] }));
    let request = client.post("/api/batch").header("x-api-key", "key");
    let reply = request.body(many(BATCH_COMMANDS + 1).to_string()).send();
    assert_eq!(reply.status(), 413);
    client.finish().expect("it ends");
}

/// Calls by `method` and `params`, a command a line. Returns the responses.
fn call_by_method(client: &mut TestClient, body: &str) -> Vec<Value> {
    let reply = client.post("/api").header("x-api-key", "key").body(body).send();
    assert_eq!(reply.status(), 200, "{}", reply.text());
    let lines = reply.text().lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn commands_with_method_and_params_receive_a_line_each() {
    let mut client = serve_by(2, options());
    let one = call_by_method(
        &mut client,
        r#"{"method":"publish","params":{"channel":"kept:a","data":{"x":1}}}"#,
    );
    assert_eq!((one.len(), &one[0]["result"]["offset"]), (1, &json!(1)));
    let many = [
        r#"{"method":"publish","params":{"channel":"kept:a","data":2}}"#,
        r#"{"method":"unheard","params":{}}"#,
        r#"{"method":"history","params":{"channel":"kept:a","limit":-1}} {"method":"info"}"#,
        r#"{"id":7,"method":"publish","params":{"channel":7}}"#,
    ];
    let answers = call_by_method(&mut client, &many.join("\n"));
    assert_eq!(answers.len(), 5);
    assert_eq!(answers[0]["result"]["offset"], 2);
    assert_eq!(answers[1]["error"]["code"], 104);
    assert_eq!(
        answers[2]["result"]["publications"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(answers[3]["result"]["nodes"].is_array());
    assert_eq!(answers[4]["error"]["code"], 107);
    let wrong = client
        .post("/api")
        .header("x-api-key", "other")
        .body(many[0])
        .send();
    assert_eq!(wrong.status(), 401);
    client.finish().expect("it ends");
}

#[test]
fn api_bodies_are_limited() {
    let mut client = serve(Options {
        api_body_bytes: 2000,
        ..options()
    });
    for (length, status) in [(1900, 200), (2000, 413), (100_000, 413)] {
        let body = json!({ "channel": "news", "data": "x".repeat(length) }).to_string();
        for (path, body) in [
            ("/api/publish", body.clone()),
            ("/api", format!(r#"{{"method":"publish","params":{body}}}"#)),
        ] {
            let expected = if path == "/api" && length == 1900 {
                200
            } else {
                status
            };
            let reply = client
                .post(path)
                .header("x-api-key", "key")
                .body(&body[..])
                .send();
            assert_eq!(reply.status(), expected, "{path} {length}");
        }
    }
    client.finish().expect("it ends");
}
