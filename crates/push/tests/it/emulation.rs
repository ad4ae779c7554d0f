//! Commands beside a stream: they reach their session on any worker, or receive a status.

use std::time::Duration;

use ringmain_push::limits::{EMULATED_MESSAGES, EMULATION_BYTES};
use ringmain_web::testing::{RawConnection, TestClient};
use serde_json::json;

use crate::support::{Stream, emulate, masked, options, serve, serve_by};

const WORKERS: usize = 3;

/// Opens a connection to each worker.
fn connect_to_each(client: &mut TestClient) -> Vec<RawConnection> {
    let mut found: Vec<Option<RawConnection>> = (0..WORKERS).map(|_| None).collect();
    // The network decides which one a connection reaches.
    for _ in 0..1000 {
        if found.iter().all(Option::is_some) {
            break;
        }
        let mut connection = client.raw();
        connection.send("GET /worker HTTP/1.1\r\nHost: a\r\n\r\n");
        let worker: usize = connection.reply().text().parse().expect("a number");
        found[worker] = Some(connection);
    }
    found
        .into_iter()
        .map(|one| one.expect("a connection to each"))
        .collect()
}

#[test]
fn commands_reach_the_session_by_any_worker() {
    let mut client = serve_by(WORKERS, options());
    let mut connections = connect_to_each(&mut client);
    let mut stream = Stream::lines(&mut client);
    for (worker, connection) in connections.iter_mut().enumerate() {
        let id = 10 * (worker + 1);
        let commands = format!(
            "{{\"id\":{},\"subscribe\":{{\"channel\":\"kept:{worker}\"}}}}\n{{\"id\":{},\"ping\":{{}}}}",
            id,
            id + 1
        );
        assert_eq!(stream.send_commands_over(connection, &commands), 204);
        let mut told = [masked(&stream.line()), masked(&stream.line())];
        told.sort();
        assert!(
            told[0].starts_with(&format!("{{\"id\":{id},\"subscribe\":")),
            "{told:?}"
        );
        assert_eq!(told[1], format!("{{\"id\":{},\"ping\":{{}}}}", id + 1));
    }
    drop((stream, connections));
    client.finish().expect("it ends");
}

#[test]
fn a_stream_may_close_with_commands_in_flight() {
    for at in 0..40 {
        let mut client = serve_by(WORKERS, options());
        let mut connections = connect_to_each(&mut client);
        let mut watcher = Stream::lines(&mut client);
        let mut stream = Stream::lines(&mut client);
        for (worker, connection) in connections.iter_mut().enumerate() {
            let commands = format!(
                "{{\"id\":2,\"subscribe\":{{\"channel\":\"kept:{worker}\"}}}}\n\
                 {{\"id\":3,\"publish\":{{\"channel\":\"kept:{worker}\",\"data\":1}}}}"
            );
            let body = json!({ "session": stream.session, "node": stream.node, "data": commands });
            let (body, length) = (body.to_string(), body.to_string().len());
            connection.send(format!(
                "POST /emulation HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        }
        client.advance(Duration::from_micros(10 * at));
        stream.reply.connection().reset();
        for connection in &mut connections {
            let status = connection.try_reply("POST").expect("an answer").status();
            assert_eq!(status, 204);
        }
        client.advance(Duration::from_secs(1));
        for worker in 0..WORKERS {
            let ask = format!(r#"{{"id":9,"presence_stats":{{"channel":"kept:{worker}"}}}}"#);
            assert_eq!(watcher.send_commands(&mut client, &ask), 204);
            assert_eq!(
                watcher.line(),
                r#"{"id":9,"presence_stats":{"num_clients":0,"num_users":0}}"#,
                "ended after {at}0 us"
            );
        }
        drop((watcher, stream, connections));
        client.finish().expect("it ends");
    }
}

#[test]
fn commands_without_a_session_receive_a_status() {
    let mut client = serve_by(WORKERS, options());
    let stream = Stream::lines(&mut client);
    let (session, node) = (stream.session.clone(), stream.node.clone());
    let ping = r#"{"id":2,"ping":{}}"#;
    let unknown = format!("1.{}", "0".repeat(32));
    for (session, node, status) in [
        // A guess reveals nothing.
        (&*unknown, &*node, 204),
        (&*format!("ffff.{}", "0".repeat(32)), &*node, 204),
        (&*session, "another", 404),
        (&*session, "", 404),
        ("", &*node, 400),
        ("1", &*node, 400),
        ("1.+0000000000000000000000000000001", &*node, 400),
        ("1.2.3", &*node, 400),
        (&*session, &*node, 204),
    ] {
        assert_eq!(
            emulate(&mut client, session, node, ping),
            status,
            "{session} {node}"
        );
    }
    drop(stream);
    client.advance(Duration::from_secs(1));
    assert_eq!(emulate(&mut client, &session, &node, ping), 204, "it is gone");
    client.finish().expect("it ends");
}

#[test]
fn an_invalid_connect_request_receives_a_response() {
    let mut client = serve(options());
    let mut stream = Stream::lines(&mut client);
    let whole = |data: serde_json::Value| {
        json!({ "session": stream.session, "node": stream.node, "data": data }).to_string()
    };
    let long = "x".repeat(EMULATION_BYTES as usize);
    for (body, status) in [
        ("", 400),
        ("{}", 404),
        ("[", 400),
        (r#"{"session":1}"#, 400),
        (&*whole(json!({ "id": 2, "ping": {} })), 400),
        (&*whole(json!(null)), 400),
        (&*whole(json!(" ".repeat(65_537))), 413),
        (&*whole(json!(long)), 413),
    ] {
        let reply = client.post("/emulation").body(body).send();
        assert_eq!(reply.status(), status, "{body:.100}: {}", reply.text());
    }
    assert_eq!(client.get("/emulation").send().status(), 405);
    assert_eq!(stream.send_commands(&mut client, r#"{"id":2,"ping":{}}"#), 204);
    assert_eq!(
        stream.line(),
        r#"{"id":2,"ping":{}}"#,
        "none of that has harmed it"
    );
    // A client of the JSON format receives a message in Protobuf.
    let answer = client
        .post("/emulation")
        .header("content-type", "application/octet-stream")
        .body(encode_fields(&[
            (1, &stream.node),
            (2, &stream.session),
            (3, "x"),
        ]))
        .send();
    assert_eq!(answer.status(), 204);
    assert!(stream.line().contains(r#""code":3501"#));
    assert_eq!(stream.try_line(), None);
    client.finish().expect("it ends");
}

/// Encodes texts as fields of Protobuf.
fn encode_fields(fields: &[(u8, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, text) in fields {
        out.extend_from_slice(&[number << 3 | 2, text.len() as u8]);
        out.extend_from_slice(text.as_bytes());
    }
    out
}

#[test]
fn concurrent_broadcasts_all_receive_responses() {
    let mut client = serve_by(2, options());
    let mut stream = Stream::lines(&mut client);
    // All at once, about half of these to the worker with the session and half to the other one.
    let count = 5 * EMULATED_MESSAGES;
    let mut connections: Vec<RawConnection> = (0..count).map(|_| client.raw()).collect();
    client.advance(Duration::from_secs(1));
    for (number, connection) in connections.iter_mut().enumerate() {
        let ping = format!(r#"{{"id":{},"ping":{{}}}}"#, number + 1);
        let body = json!({ "session": stream.session, "node": stream.node, "data": ping }).to_string();
        let length = body.len();
        connection.send(format!(
            "POST /emulation HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
    }
    let mut taken = Vec::new();
    for (number, connection) in connections.iter_mut().enumerate() {
        let reply = connection.try_reply("POST").expect("an answer");
        match reply.status() {
            204 => taken.push(format!(r#"{{"id":{},"ping":{{}}}}"#, number + 1)),
            // The network decides whether the queue is ever full.
            503 => assert_eq!(reply.header("retry-after"), Some("1")),
            status => panic!("{status}: {}", reply.text()),
        }
    }
    let mut told: Vec<String> = taken.iter().map(|_| stream.line()).collect();
    told.sort();
    taken.sort();
    assert_eq!(told, taken, "what was taken is answered, once");
    drop((stream, connections));
    client.finish().expect("it ends");
}
