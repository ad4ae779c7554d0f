//! Sessions over HTTP streaming and server-sent events: the bytes on the wire, and the end of streams.

use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::HistoryOptions;
use ringmain_hub::protocol::{
    Command, ConnectRequest, EmulationRequest, Format, PingRequest, Replies, Reply, SubscribeRequest,
};
use ringmain_hub::subscribers::SubscriberLimits as Limits;
use ringmain_push::limits::{PING_INTERVAL, PONG_TIMEOUT, QUEUED_BYTES, STREAM_BYTES};
use ringmain_push::{Namespace, Options};
use ringmain_web::App;
use ringmain_web::testing::{Fault, Plan, Setup, TestClient};

use crate::support::{CONNECT, Stream, masked, options, serve, with_query};

#[test]
fn a_line_stream_carries_replies_to_emulated_commands() {
    let mut client = serve(options());
    let mut stream = Stream::lines(&mut client);
    let head = stream.reply.head();
    assert_eq!(head.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(head.header("cache-control"), Some("no-store"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    let commands = "{\"id\":2,\"subscribe\":{\"channel\":\"kept:a\"}}\n{\"id\":3,\"ping\":{}}";
    assert_eq!(stream.send_commands(&mut client, commands), 204);
    let mut told = [masked(&stream.line()), masked(&stream.line())];
    told.sort();
    let subscribed = r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"EPOCH","positioned":true}}"#;
    assert_eq!(told, [subscribed, r#"{"id":3,"ping":{}}"#]);
    let publish = "{\"id\":4,\"publish\":{\"channel\":\"kept:a\",\"data\":[1,\n\"a b\"]}}";
    assert_eq!(stream.send_commands(&mut client, publish), 204);
    let mut told = [masked(&stream.line()), masked(&stream.line())];
    told.sort();
    let push = r#"{"push":{"channel":"kept:a","pub":{"data":[1,"a b"],"info":{"user":"","client":"CLIENT"},"offset":1}}}"#;
    assert_eq!(told, [r#"{"id":4,"publish":{}}"#, push]);
    drop(stream);
    client.finish().expect("it ends");
}

#[test]
fn an_event_stream_is_readable_by_pages() {
    let mut client = serve(options());
    let mut stream = Stream::events(&mut client);
    let head = stream.reply.head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    let commands = "{\"id\":2,\"ping\":{}}\n{\"id\":3,\"ping\":{}}";
    assert_eq!(stream.send_commands(&mut client, commands), 204);
    assert_eq!(
        stream.event(),
        r#"{"id":2,"ping":{}}"#,
        "each is an event of its own"
    );
    assert_eq!(stream.event(), r#"{"id":3,"ping":{}}"#);
    drop(stream);
    // Commands that do not fit into a query are posted.
    let mut posted = Stream::open(client.post("/connection/sse").body(CONNECT));
    assert!(posted.event().starts_with(r#"{"id":1,"connect":{"#));
    drop(posted);
    client.advance(Duration::from_secs(1));
    let head = client.head(&with_query("/connection/sse", CONNECT)).send();
    assert_eq!(
        (head.status(), client.running()),
        (200, 0),
        "no client is connected"
    );
    client.finish().expect("it ends");
}

/// Encodes commands as a client of the binary format.
fn encode_commands(commands: &[Command]) -> Vec<u8> {
    let mut out = Vec::new();
    for command in commands {
        Format::Protobuf.write(command, &mut out).expect("bytes");
    }
    out
}

#[test]
fn the_binary_format_is_length_prefixed() {
    let mut client = serve(options());
    let connect = encode_commands(&[Command {
        id: 1,
        connect: Some(ConnectRequest::default()),
        ..Command::default()
    }]);
    let request = client.post("/connection/http_stream").body(connect);
    let mut reply = request
        .header("Content-Type", "application/octet-stream")
        .open()
        .expect("an answer");
    assert_eq!(
        reply.head().header("content-type"),
        Some("application/octet-stream")
    );
    let mut replies = |count: usize| {
        let mut bytes = Vec::new();
        loop {
            bytes.extend(reply.piece().expect("a piece").expect("no end"));
            let parts: Vec<Reply> = Replies::new(Format::Protobuf, Bytes::from(bytes.clone()))
                .map_while(Result::ok)
                .collect();
            if parts.len() == count {
                return parts;
            }
        }
    };
    let connected = replies(1).remove(0).connect.expect("it is connected");
    let data = encode_commands(&[
        Command {
            id: 2,
            ping: Some(PingRequest {}),
            ..Command::default()
        },
        Command {
            id: 3,
            subscribe: Some(SubscribeRequest {
                channel: "news".to_owned(),
                ..SubscribeRequest::default()
            }),
            ..Command::default()
        },
    ]);
    let mut framed = Vec::new();
    let emulated = EmulationRequest {
        node: connected.node,
        session: connected.session,
        data: data.into(),
    };
    Format::Protobuf.write(&emulated, &mut framed).expect("bytes");
    // A request has one message: its length is that of the body.
    let before = framed.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    let answer = client
        .post("/emulation")
        .header("Content-Type", "application/octet-stream")
        .body(&framed[before..])
        .send();
    assert_eq!(answer.status(), 204, "{}", answer.text());
    let told = replies(2);
    assert!(told[0].ping.is_some() && told[1].subscribe.is_some(), "{told:?}");
    client.finish().expect("it ends");
}

#[test]
fn malformed_requests_name_the_expected_input() {
    let mut client = serve(options());
    let long = "x".repeat(70_000);
    for (path, body, status, says) in [
        (
            "http_stream",
            "",
            400,
            "expected a connect command, found nothing",
        ),
        (
            "http_stream",
            "nothing",
            400,
            "expected a command in JSON as number 1",
        ),
        (
            "http_stream",
            r#"{"id":1,"subscribe":{"channel":"a"}}"#,
            400,
            "expected a connect command",
        ),
        (
            "http_stream",
            r#"{"connect":{}}"#,
            400,
            "expected a connect command with an `id` first",
        ),
        ("http_stream", &long, 413, ""),
        ("sse", "[7]", 400, "expected a connect command"),
        (
            "uni_sse",
            "[7",
            400,
            "expected a connect request: expected one message in Json",
        ),
        ("uni_http_stream", "", 400, "expected a connect request"),
        (
            "uni_http_stream",
            r#"{"subs":7}"#,
            400,
            "expected a connect request",
        ),
    ] {
        let reply = client.post(&format!("/connection/{path}")).body(body).send();
        assert_eq!(reply.status(), status, "{path} {body:.60}: {}", reply.text());
        assert!(reply.text().contains(says), "{path} {body:.60}: {}", reply.text());
        assert!(
            reply.text().len() < 600,
            "what was found is not repeated at any length"
        );
    }
    let none = client.get("/connection/sse").send();
    assert_eq!((none.status(), none.text().contains("cf_connect")), (400, true));
    assert_eq!(client.get("/connection/http_stream").send().status(), 405);
    assert_eq!(
        client
            .get(&with_query("/connection/uni_sse", "{"))
            .send()
            .status(),
        400
    );
    assert_eq!(client.running(), 0);
    client.finish().expect("it ends");
}

#[test]
fn a_refused_client_receives_the_error_and_the_stream_ends() {
    let mut client = serve(Options {
        anonymous: false,
        ..options()
    });
    let request = client.post("/connection/http_stream").body(CONNECT);
    let mut stream = Stream::open(request);
    assert_eq!(
        stream.line(),
        r#"{"id":1,"error":{"code":101,"message":"unauthorized"}}"#
    );
    assert_eq!(stream.try_line(), None);
    let body = r#"{"id":1,"connect":{"token":"x"}}"#;
    let mut stream = Stream::open(client.post("/connection/http_stream").body(body));
    assert_eq!(
        stream.line(),
        r#"{"push":{"disconnect":{"code":3500,"reason":"invalid token"}}}"#
    );
    assert_eq!(stream.try_line(), None);
    client.finish().expect("it ends");
}

#[test]
fn pages_of_other_origins_need_permission() {
    let mut client = serve(Options {
        origins: vec!["https://app.example".to_owned()],
        ..options()
    });
    let sse = with_query("/connection/sse", CONNECT);
    let uni = "/connection/uni_sse";
    for target in [&*sse, uni] {
        let foreign = client.get(target).header("origin", "https://evil.example").send();
        assert_eq!(foreign.status(), 403, "{target}");
        assert_eq!(foreign.header("access-control-allow-origin"), None);
        let own = client.get(target).header("origin", "http://localhost").open();
        assert_eq!(own.expect("an answer").status(), 200);
        let listed = client.get(target).header("origin", "https://app.example").open();
        let listed = listed.expect("an answer");
        assert_eq!(listed.status(), 200);
        let allowed = listed.head().header("access-control-allow-origin");
        assert_eq!(allowed, Some("https://app.example"));
        assert_eq!(listed.head().header("vary"), Some("Origin"));
    }
    for path in ["/emulation", "/connection/http_stream"] {
        let foreign = client
            .post(path)
            .header("origin", "https://evil.example")
            .body("{}");
        assert_eq!(foreign.send().status(), 403, "{path}");
        let asks = client
            .request("OPTIONS", path)
            .header("origin", "https://app.example");
        let may = asks.send();
        assert_eq!(
            (may.status(), may.header("access-control-max-age")),
            (204, Some("300"))
        );
        assert_eq!(
            may.header("access-control-allow-origin"),
            Some("https://app.example")
        );
        let asks = client
            .request("OPTIONS", path)
            .header("origin", "https://evil.example");
        assert_eq!(asks.send().status(), 403, "{path}");
        // An error is readable, too.
        let asks = client
            .post(path)
            .header("origin", "https://app.example")
            .body("?");
        let wrong = asks.send();
        assert_eq!(wrong.status(), 400);
        assert_eq!(
            wrong.header("access-control-allow-origin"),
            Some("https://app.example")
        );
    }
    client.finish().expect("it ends");
}

#[test]
fn pings_are_answered_beside_the_stream() {
    let mut client = serve(options());
    let (mut lively, mut dead) = (Stream::lines(&mut client), Stream::events(&mut client));
    client.advance(PING_INTERVAL + Duration::from_secs(1));
    assert_eq!((&*lively.line(), &*dead.event()), ("{}", "{}"), "pings");
    assert_eq!(lively.send_commands(&mut client, "{}"), 204);
    client.advance(PONG_TIMEOUT + Duration::from_secs(1));
    let last = r#"{"push":{"disconnect":{"code":3012,"reason":"no pong","reconnect":true}}}"#;
    assert_eq!(dead.event(), last);
    assert_eq!(dead.reply.event().expect("it ends in order"), None);
    assert_eq!(
        dead.send_commands(&mut client, r#"{"id":2,"ping":{}}"#),
        204,
        "no client receives it"
    );
    assert_eq!(lively.send_commands(&mut client, r#"{"id":2,"ping":{}}"#), 204);
    assert_eq!(lively.line(), r#"{"id":2,"ping":{}}"#);
    client.finish().expect("it ends");
}

#[test]
fn a_malformed_command_closes_the_stream_behind_the_replies() {
    let mut client = serve(options());
    let mut stream = Stream::lines(&mut client);
    let commands = "{\"id\":2,\"ping\":{}}\nnothing";
    assert_eq!(stream.send_commands(&mut client, commands), 204);
    assert_eq!(stream.line(), r#"{"id":2,"ping":{}}"#);
    assert_eq!(
        stream.line(),
        r#"{"push":{"disconnect":{"code":3501,"reason":"bad request"}}}"#
    );
    assert_eq!(stream.try_line(), None);
    client.finish().expect("it ends");
}

/// Returns the number of subscribers of `kept:a`, by another client.
#[track_caller]
fn present(client: &mut TestClient, asks: &mut Stream) -> String {
    let ask = r#"{"id":9,"presence_stats":{"channel":"kept:a"}}"#;
    assert_eq!(asks.send_commands(client, ask), 204);
    asks.line()
}

#[test]
fn a_client_that_leaves_is_removed_from_its_channels() {
    let mut client = serve(options());
    let mut stays = Stream::lines(&mut client);
    let subscribe = r#"{"id":2,"subscribe":{"channel":"kept:a"}}"#;
    for ends_in_order in [true, false] {
        let mut leaves = Stream::lines(&mut client);
        assert_eq!(leaves.send_commands(&mut client, subscribe), 204);
        leaves.line();
        let one = r#"{"id":9,"presence_stats":{"num_clients":1,"num_users":1}}"#;
        assert_eq!(present(&mut client, &mut stays), one);
        if ends_in_order {
            leaves.reply.connection().end()
        } else {
            leaves.reply.connection().reset()
        }
        client.advance(Duration::from_secs(1));
        let none = r#"{"id":9,"presence_stats":{"num_clients":0,"num_users":0}}"#;
        assert_eq!(present(&mut client, &mut stays), none);
    }
    // An incomplete body connects no client.
    let mut cut = client.raw();
    cut.send("POST /connection/http_stream HTTP/1.1\r\nHost: a\r\nContent-Length: 21\r\n\r\n{\"id\":1,");
    client.advance(Duration::from_secs(1));
    assert_eq!(client.running(), 2);
    cut.close();
    client.advance(Duration::from_secs(1));
    assert_eq!(client.running(), 1);
    drop(stays);
    client.finish().expect("it ends");
}

#[test]
fn a_client_that_reads_nothing_is_disconnected_alone() {
    let mut client = serve(Options {
        limits: Limits {
            subscriptions: 8,
            queued_bytes: 100_000,
        },
        ..options()
    });
    let (mut slow, mut quick) = (Stream::lines(&mut client), Stream::lines(&mut client));
    for stream in [&mut slow, &mut quick] {
        stream.send_commands(&mut client, r#"{"id":2,"subscribe":{"channel":"news"}}"#);
        assert_eq!(stream.line(), r#"{"id":2,"subscribe":{}}"#);
    }
    for number in 0..40 {
        publish_long(&mut client, number..number + 1);
        assert!(quick.line().contains(&format!("\"{number}x")));
    }
    // Earlier messages arrive first: pushes in order, without a gap.
    let mut lines = Vec::new();
    while let Some(line) = slow.try_line() {
        lines.push(line);
    }
    let last = lines.pop().expect("a last line");
    assert_eq!(
        last,
        r#"{"push":{"disconnect":{"code":3008,"reason":"slow","reconnect":true}}}"#
    );
    assert!(lines.len() < 30, "{} were held", lines.len());
    for (number, line) in lines.iter().enumerate() {
        assert!(line.contains(&format!("\"{number}x")), "{number}");
    }
    client.finish().expect("it ends");
}

/// Publishes long texts, each with its number before it.
fn publish_long(client: &mut TestClient, numbers: std::ops::Range<usize>) {
    let data = "x".repeat(50_000);
    for number in numbers {
        let reply = client.post("/api/publish").header("x-api-key", "key");
        let body = format!(r#"{{"channel":"news","data":"{number}{data}"}}"#);
        let reply = reply.header("content-type", "application/json").body(body).send();
        assert_eq!(reply.status(), 200);
    }
}

#[test]
fn a_client_that_reads_late_receives_everything() {
    let mut client = serve(options());
    let (mut talks, mut events) = (Stream::lines(&mut client), Stream::events(&mut client));
    let connect = r#"{"subs":{"news":{}}}"#;
    let mut listens = Stream::open(client.post("/connection/uni_http_stream").body(connect));
    listens.line();
    for stream in [&talks, &events] {
        stream.send_commands(&mut client, r#"{"id":2,"subscribe":{"channel":"news"}}"#);
    }
    talks.line();
    events.event();
    for round in 0..3 {
        let numbers = 20 * round..20 * (round + 1);
        publish_long(&mut client, numbers.clone());
        for number in numbers {
            let marked = format!("\"{number}x");
            for line in [talks.line(), listens.line(), events.event()] {
                assert!(line.contains(&marked), "{number}: {line:.100}");
            }
        }
    }
    drop((talks, listens, events));
    client.finish().expect("it ends");
}

#[test]
fn network_delays_and_cuts_change_no_outcome() {
    for seed in 0..30 {
        let faults = [
            Fault::CutRead,
            Fault::ReceiveStops,
            Fault::ShortSend,
            Fault::HeldSend,
            Fault::LateCompletion,
        ];
        let plan = faults
            .into_iter()
            .fold(Plan::calm(), |plan, fault| plan.with(fault, 200));
        let setup = Setup {
            seed,
            plan,
            workers: 3,
            ..Setup::default()
        };
        let app = ringmain_push::serve(App::new(), options());
        let mut client = TestClient::with(app, setup).expect("an application");
        let mut stream = Stream::lines(&mut client);
        let mut listens =
            Stream::open(client.get(&with_query("/connection/uni_sse", r#"{"subs":{"kept:a":{}}}"#)));
        listens.event();
        stream.send_commands(&mut client, r#"{"id":2,"subscribe":{"channel":"kept:a"}}"#);
        stream.line();
        for number in 0..30 {
            let data = "y".repeat(number * number);
            let publish = format!(
                r#"{{"id":{},"publish":{{"channel":"kept:a","data":"{number}{data}"}}}}"#,
                number + 3
            );
            assert_eq!(stream.send_commands(&mut client, &publish), 204, "seed {seed}");
        }
        let (mut told, mut pushed) = (0, 0);
        while told < 30 || pushed < 30 {
            let line = stream.line();
            if line.starts_with(r#"{"push""#) {
                assert!(
                    line.contains(&format!("\"data\":\"{pushed}")),
                    "seed {seed}: {line:.100}"
                );
                pushed += 1;
            } else {
                assert!(line.contains("\"publish\":{}"), "seed {seed}: {line:.100}");
                told += 1;
            }
        }
        for number in 0..30 {
            let event = listens.event();
            assert!(
                event.contains(&format!("\"data\":\"{number}")),
                "seed {seed}: {event:.100}"
            );
        }
        drop((stream, listens));
        client
            .finish()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn unread_replies_are_bounded() {
    let mut kept = Namespace {
        publish: true,
        history: true,
        ..Namespace::default()
    };
    kept.channel_options.history = Some(HistoryOptions {
        publications: 10,
        bytes: 1 << 20,
        ttl: Duration::from_secs(60),
    });
    let mut client = serve(Options {
        namespaces: [("kept".to_owned(), kept)].into(),
        ..options()
    });
    let mut stream = Stream::lines(&mut client);
    let data = "x".repeat(60_000);
    for number in 0..4 {
        let publish = format!(
            r#"{{"id":{},"publish":{{"channel":"kept:a","data":"{data}"}}}}"#,
            number + 2
        );
        assert_eq!(stream.send_commands(&mut client, &publish), 204);
        stream.line();
    }
    let ask = r#"{"id":9,"history":{"channel":"kept:a","limit":10}}"#;
    let asks = vec![ask; 60].join("\n");
    assert_eq!(stream.send_commands(&mut client, &asks), 204);
    // All receive a reply: those without room an error, and the connection remains open.
    let (mut bytes, mut refused) = (0, 0);
    for _ in 0..60 {
        let line = stream.line();
        assert!(line.starts_with(r#"{"id":9,"#), "{line:.100}");
        bytes += line.len();
        refused += usize::from(line.contains(r#""error":{"code":106"#));
    }
    assert!(
        refused > 0 && bytes < QUEUED_BYTES + STREAM_BYTES,
        "{refused} refused, {bytes} bytes"
    );
    assert_eq!(stream.send_commands(&mut client, r#"{"id":10,"ping":{}}"#), 204);
    assert_eq!(stream.line(), r#"{"id":10,"ping":{}}"#);
    client.finish().expect("it ends");
}

#[test]
fn streams_close_gracefully_when_the_process_drains() {
    let mut client = serve(options());
    let (mut lines, mut events) = (Stream::lines(&mut client), Stream::events(&mut client));
    client.shut_down();
    let disconnect = r#"{"push":{"disconnect":{"code":3001,"reason":"shutdown","reconnect":true}}}"#;
    assert_eq!(lines.line(), disconnect);
    assert_eq!(lines.try_line(), None);
    assert_eq!(events.event(), disconnect);
    assert_eq!(events.reply.event().expect("it ends in order"), None);
    client.finish().expect("it ends");
}
