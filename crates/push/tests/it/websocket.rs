//! Behaviour that is the same on every transport, over a WebSocket to one worker.

use std::time::Duration;

use ringmain_hub::limits::MESSAGE_BYTES;
use ringmain_push::Options;
use ringmain_push::limits::{COMMANDS_IN_FLIGHT, CONNECT_TIMEOUT, PING_BATCH, PING_INTERVAL, PONG_TIMEOUT};
use ringmain_web::testing::{TestClient, TestEvent, TestSocket};

use crate::support::{masked, options, serve};

const PATH: &str = "/connection/websocket";

/// Opens a connected socket.
fn connect(client: &mut TestClient) -> TestSocket {
    let mut socket = client.ws(PATH).open();
    socket.send_text(r#"{"id":1,"connect":{}}"#);
    let reply = socket.text();
    assert!(reply.starts_with(r#"{"id":1,"connect":{"client":""#), "{reply}");
    assert!(reply.ends_with(r#","ping":25,"pong":true}}"#), "{reply}");
    socket
}

#[track_caller]
fn check(socket: &mut TestSocket, command: &str, reply: &str) {
    socket.send_text(command);
    assert_eq!(masked(&socket.text()), reply, "{command}");
}

#[test]
fn replies_have_the_numbers_of_their_commands() {
    let mut client = serve(options());
    let mut socket = connect(&mut client);
    for (command, reply) in [
        (
            r#"{"id":2,"subscribe":{"channel":"news"}}"#,
            r#"{"id":2,"subscribe":{}}"#,
        ),
        (
            r#"{"id":3,"subscribe":{"channel":"news"}}"#,
            r#"{"id":3,"error":{"code":105,"message":"already subscribed"}}"#,
        ),
        (
            r#"{"id":4,"subscribe":{"channel":"nowhere:news"}}"#,
            r#"{"id":4,"error":{"code":102,"message":"unknown channel"}}"#,
        ),
        (
            r#"{"id":5,"subscribe":{"channel":"news#7"}}"#,
            r#"{"id":5,"error":{"code":103,"message":"permission denied"}}"#,
        ),
        (
            r#"{"id":6,"subscribe":{"channel":""}}"#,
            r#"{"id":6,"error":{"code":107,"message":"bad request"}}"#,
        ),
        (
            r#"{"id":7,"publish":{"channel":"news","data":1}}"#,
            r#"{"id":7,"error":{"code":103,"message":"permission denied"}}"#,
        ),
        (
            r#"{"id":8,"history":{"channel":"news"}}"#,
            r#"{"id":8,"error":{"code":108,"message":"not available"}}"#,
        ),
        (
            r#"{"id":9,"rpc":{"method":"x"}}"#,
            r#"{"id":9,"error":{"code":108,"message":"not available"}}"#,
        ),
        (
            r#"{"id":10}"#,
            r#"{"id":10,"error":{"code":104,"message":"method not found"}}"#,
        ),
        (r#"{"id":11,"ping":{}}"#, r#"{"id":11,"ping":{}}"#),
        (
            r#"{"id":12,"unsubscribe":{"channel":"news"}}"#,
            r#"{"id":12,"unsubscribe":{}}"#,
        ),
        (
            r#"{"id":13,"unsubscribe":{"channel":"news"}}"#,
            r#"{"id":13,"unsubscribe":{}}"#,
        ),
    ] {
        check(&mut socket, command, reply);
    }
    drop(socket);
    client.finish().expect("it ends");
}

#[test]
fn publications_reach_subscribers() {
    let mut client = serve(options());
    let (mut one, mut two) = (connect(&mut client), connect(&mut client));
    let subscribed = r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"EPOCH","positioned":true}}"#;
    for socket in [&mut one, &mut two] {
        check(socket, r#"{"id":2,"subscribe":{"channel":"kept:a"}}"#, subscribed);
    }
    one.send_text(r#"{"id":3,"publish":{"channel":"kept:a","data":{"a": 1}}}"#);
    let push = r#"{"push":{"channel":"kept:a","pub":{"data":{"a": 1},"info":{"user":"","client":"CLIENT"},"offset":1}}}"#;
    assert_eq!(masked(&two.text()), push);
    let mut both = [masked(&one.text()), masked(&one.text())];
    both.sort();
    assert_eq!(both, [r#"{"id":3,"publish":{}}"#, push]);
    check(
        &mut one,
        r#"{"id":4,"history":{"channel":"kept:a","limit":10}}"#,
        r#"{"id":4,"history":{"publications":[{"data":{"a": 1},"info":{"user":"","client":"CLIENT"},"offset":1}],"epoch":"EPOCH","offset":1}}"#,
    );
    check(
        &mut one,
        r#"{"id":5,"presence_stats":{"channel":"kept:a"}}"#,
        r#"{"id":5,"presence_stats":{"num_clients":2,"num_users":1}}"#,
    );
    two.close(1000, "");
    two.closed();
    check(
        &mut one,
        r#"{"id":6,"presence_stats":{"channel":"kept:a"}}"#,
        r#"{"id":6,"presence_stats":{"num_clients":1,"num_users":1}}"#,
    );
    drop((one, two));
    client.finish().expect("it ends");
}

#[test]
fn programs_publish_over_http() {
    let mut client = serve(options());
    let mut socket = connect(&mut client);
    for (number, channel) in [(2, "news"), (3, "sport")] {
        socket.send_text(format!(
            r#"{{"id":{number},"subscribe":{{"channel":"{channel}"}}}}"#
        ));
        socket.text();
    }
    let json = |request: ringmain_web::testing::TestRequest<'_>, body: &str| {
        let request = request.header("content-type", "application/json");
        let reply = request.header("x-api-key", "key").body(body).send();
        (reply.status(), reply.text().to_owned())
    };
    let done = (200, r#"{"result":{}}"#.to_owned());
    let publish = json(
        client.post("/api/publish"),
        "{\"channel\":\"news\",\"data\":[1,\n2]}",
    );
    assert_eq!(publish, done);
    assert_eq!(
        socket.text(),
        r#"{"push":{"channel":"news","pub":{"data":[1,2]}}}"#
    );
    let broadcast = r#"{"channels":["news","sport"],"data":"x"}"#;
    let each = r#"{"result":{"responses":[{"result":{}},{"result":{}}]}}"#;
    assert_eq!(
        json(client.post("/api/broadcast"), broadcast),
        (200, each.to_owned())
    );
    let mut pushes = [socket.text(), socket.text()];
    pushes.sort();
    assert!(
        pushes[0].contains("news") && pushes[1].contains("sport"),
        "{pushes:?}"
    );
    let nowhere = r#"{"channels":["news","no:where"],"data":"x"}"#;
    let refused =
        r#"{"result":{"responses":[{"result":{}},{"error":{"code":102,"message":"unknown channel"}}]}}"#;
    assert_eq!(
        json(client.post("/api/broadcast"), nowhere),
        (200, refused.to_owned()),
        "the others get it"
    );
    assert_eq!(socket.text(), r#"{"push":{"channel":"news","pub":{"data":"x"}}}"#);
    let unkeyed = client
        .post("/api/publish")
        .header("x-api-key", "kex")
        .body("{}")
        .send();
    assert_eq!(unkeyed.status(), 401);
    drop(socket);
    client.finish().expect("it ends");
}

#[test]
fn a_reconnected_client_recovers_or_is_notified() {
    let mut client = serve(options());
    let mut socket = connect(&mut client);
    for number in 2..6 {
        check(
            &mut socket,
            &format!(r#"{{"id":{number},"publish":{{"channel":"kept:a","data":{number}}}}}"#),
            &format!(r#"{{"id":{number},"publish":{{}}}}"#),
        );
    }
    socket.send_text(r#"{"id":6,"history":{"channel":"kept:a"}}"#);
    let stands: serde_json::Value = serde_json::from_str(&socket.text()).expect("JSON");
    let epoch = stands["history"]["epoch"].as_str().expect("an epoch").to_owned();
    let since = |number: u32, offset: u64, more: &str| {
        format!(
            r#"{{"id":{number},"subscribe":{{"channel":"kept:a","recover":true,"epoch":"{epoch}","offset":{offset}{more}}}}}"#
        )
    };
    socket.send_text(since(6, 2, ""));
    let recovered = masked(&socket.text());
    // The position that it recovers from: the publications continue there.
    assert!(
        recovered.contains(r#""recovered":true,"offset":2,"#),
        "{recovered}"
    );
    assert!(
        recovered.contains(r#""offset":3}"#) && recovered.contains(r#""offset":4}"#),
        "{recovered}"
    );
    check(
        &mut socket,
        r#"{"id":7,"unsubscribe":{"channel":"kept:a"}}"#,
        r#"{"id":7,"unsubscribe":{}}"#,
    );
    check(
        &mut socket,
        &since(8, 1, r#","flag":2"#),
        r#"{"id":8,"error":{"code":112,"message":"unrecoverable position"}}"#,
    );
    check(
        &mut socket,
        &since(9, 1, ""),
        r#"{"id":9,"subscribe":{"recoverable":true,"epoch":"EPOCH","offset":4,"positioned":true,"was_recovering":true}}"#,
    );
    drop(socket);
    client.finish().expect("it ends");
}

#[test]
fn malformed_messages_disconnect() {
    for (sent, code) in [
        ("nothing", 3501),
        (r#"{"id":1,"subscribe":{"channel":"news"}}"#, 3501),
        (r#"{"connect":{}}"#, 3501),
        (r#"{"id":1,"connect":{"token":"x"}}"#, 3500),
        (r#"{"id":1,"connect":{"name":"more than sixteen"}}"#, 3501),
    ] {
        let mut client = serve(options());
        let mut socket = client.ws(PATH).open();
        socket.send_text(sent);
        assert_eq!(socket.closed().0, code, "{sent}");
        drop(socket);
        client.finish().expect("it ends");
    }
    let mut client = serve(Options {
        anonymous: false,
        ..options()
    });
    let mut socket = client.ws(PATH).open();
    check(
        &mut socket,
        r#"{"id":1,"connect":{}}"#,
        r#"{"id":1,"error":{"code":101,"message":"unauthorized"}}"#,
    );
}

#[test]
fn commands_beyond_the_limit_are_held_and_a_long_message_disconnects() {
    let mut client = serve(options());
    let mut socket = connect(&mut client);
    let most = COMMANDS_IN_FLIGHT as usize;
    let ask = |number: usize| format!(r#"{{"id":{number},"history":{{"channel":"kept:a"}}}}"#);
    let asked = |count: usize| (1..=count).map(ask).collect::<Vec<_>>().join("\n");
    socket.send_text(asked(most));
    for _ in 0..most {
        assert!(
            socket.text().contains("history"),
            "as many as may be are answered"
        );
    }
    // More wait for the replies to those before them.
    socket.send_text(asked(most + 100));
    for number in 1..=most + 100 {
        let reply = socket.text();
        assert!(
            reply.starts_with(&format!(r#"{{"id":{number},"history""#)),
            "{reply}"
        );
    }
    let mut large = connect(&mut client);
    large.send_text(format!(
        r#"{{"id":2,"rpc":{{"data":"{}"}}}}"#,
        "x".repeat(MESSAGE_BYTES)
    ));
    assert_eq!(large.closed().0, 1009);
}

/// Answers the received pings, and returns their number. WebSocket's own are answered by the client.
fn answer_pings(socket: &mut TestSocket) -> usize {
    let mut count = 0;
    while let Some(event) = socket.event_now().expect("the protocol") {
        if matches!(event, TestEvent::Ping(_)) {
            continue;
        }
        assert!(matches!(event, TestEvent::Message(_)), "{event:?}");
        count += 1;
        socket.send_text("{}");
    }
    count
}

/// Otherwise a worker would be busy with pings alone for a moment, however long the interval is, and publications would wait.
#[test]
fn pings_of_simultaneous_clients_are_spread() {
    // More than are pinged in a turn, each second; fewer than the limit of connections per address.
    const CLIENTS: usize = 13 * (PING_BATCH + 6);
    const STEPS: u32 = 20;
    let mut client = serve(options());
    let mut sockets: Vec<TestSocket> = (0..CLIENTS).map(|_| connect(&mut client)).collect();
    let mut pings = vec![0; CLIENTS];
    let mut together = Vec::new();
    for _ in 0..PING_INTERVAL.as_secs() as u32 * STEPS {
        client.advance(Duration::from_secs(1) / STEPS);
        let mut count = 0;
        for (socket, pings) in sockets.iter_mut().zip(&mut pings) {
            let came = answer_pings(socket);
            (count, *pings) = (count + came, *pings + came);
        }
        together.push(count);
    }
    assert!(
        pings.iter().all(|pings| *pings == 1),
        "each once in an interval: {pings:?}"
    );
    let most = together.iter().max();
    assert!(most.is_some_and(|most| *most <= PING_BATCH), "{together:?}");
    let busy = together
        .chunks(STEPS as usize)
        .map(|second| second.iter().sum::<usize>());
    let most = busy.max().unwrap_or_default();
    assert!(most <= CLIENTS / 13 + 1, "{most} in a second");
}

#[test]
fn a_client_without_a_pong_is_disconnected() {
    let mut client = serve(options());
    let (mut lively, mut dead) = (connect(&mut client), connect(&mut client));
    client.advance(PING_INTERVAL + Duration::from_secs(1));
    for socket in [&mut lively, &mut dead] {
        assert_eq!(socket.text(), "{}", "a ping");
    }
    lively.send_text("{}");
    client.advance(PONG_TIMEOUT + Duration::from_secs(1));
    assert_eq!(dead.closed(), (3012, "no pong".to_owned()));
    check(&mut lively, r#"{"id":2,"ping":{}}"#, r#"{"id":2,"ping":{}}"#);
}

/// Behind unread messages: a client cannot answer a ping that has not arrived.
#[test]
fn a_slow_client_is_not_disconnected_for_a_missing_pong() {
    let mut client = serve(options());
    let mut socket = connect(&mut client);
    check(
        &mut socket,
        r#"{"id":2,"subscribe":{"channel":"news"}}"#,
        r#"{"id":2,"subscribe":{}}"#,
    );
    let data = "x".repeat(10_000);
    for _ in 0..80 {
        let body = format!(r#"{{"channel":"news","data":"{data}"}}"#);
        let publish = client.post("/api/publish").header("x-api-key", "key").body(body);
        assert_eq!(publish.send().status(), 200);
    }
    let mut taken = Vec::new();
    for _ in 0..(2 * PING_INTERVAL + PONG_TIMEOUT).as_secs() {
        client.advance(Duration::from_secs(1));
        taken.extend(socket.connection().take(4_000));
    }
    assert!(taken.len() > 200_000, "{} bytes", taken.len());
    socket.send_text(r#"{"id":3,"ping":{}}"#);
    while !taken.ends_with(br#"{"id":3,"ping":{}}"#) {
        let more = socket.connection().take(100_000);
        assert!(
            !more.is_empty() || socket.connection().ending().is_none(),
            "it was sent away"
        );
        taken.extend(more);
        client.advance(Duration::from_millis(10));
    }
}

#[test]
fn a_client_that_does_not_connect_in_time_is_disconnected() {
    let mut client = serve(options());
    let mut socket = client.ws(PATH).open();
    client.advance(CONNECT_TIMEOUT + Duration::from_secs(2));
    assert_eq!(socket.closed(), (3502, "stale".to_owned()));
}
