//! Streams that last: both ways at once, clients that pause, that leave, that do not read.

use std::time::Duration;

use crate::grpc::support::{Answer, WEB, body, client, text};

/// Bytes in one chunk.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

fn head(method: &str) -> String {
    format!(
        "POST /test.Service/{method} HTTP/1.1\r\nHost: a\r\nContent-Type: {WEB}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
}

#[test]
fn a_client_that_pauses_is_not_taken_for_a_slow_one() {
    let mut client = client();
    let mut raw = client.raw();
    raw.send(head("Sum"));
    for number in 0..3 {
        raw.advance(Duration::from_secs(3600));
        raw.send(chunk(&body(WEB, &[text("a", number)])));
    }
    raw.advance(Duration::from_secs(3600));
    raw.send("0\r\n\r\n");
    let reply = raw.try_reply("POST").unwrap();
    Answer::read(WEB, &reply).gives(&[text("aaa", 3)]);
    assert!(!reply.closes());
    // The next request on it is measured again.
    raw.send(head("Count"));
    raw.send(chunk(&body(WEB, &[text("a", 1)])[..3]));
    let reply = raw.try_reply("POST").unwrap();
    let answer = Answer::read(WEB, &reply);
    answer.fails(
        ringmain_web::grpc::Code::DeadlineExceeded,
        "request body too slow: expected 240 bytes per second",
    );
    drop(raw);
    client.finish().unwrap();
}

#[test]
fn a_client_that_leaves_ends_its_handler() {
    let mut client = client();
    let mut raw = client.raw();
    raw.send(head("Talk"));
    raw.send(chunk(&body(WEB, &[text("a", 1)])));
    raw.advance(Duration::from_secs(1));
    assert_eq!(client.running(), 1);
    raw.reset();
    client.advance(Duration::from_secs(1));
    assert_eq!((client.running(), client.connections()), (0, 0));
    client.finish().unwrap();
}

#[test]
fn an_aborted_body_is_an_error_of_its_call() {
    let mut client = client();
    let mut raw = client.raw();
    raw.send(head("Sum"));
    raw.send(chunk(&body(WEB, &[text("a", 1)])));
    raw.send("zz\r\n");
    let reply = raw.try_reply("POST").unwrap();
    let answer = Answer::read(WEB, &reply);
    answer.fails(
        ringmain_web::grpc::Code::InvalidArgument,
        "expected 1 to 16 hexadecimal digits",
    );
    assert!(reply.closes());
    drop(raw);
    client.finish().unwrap();
}

#[test]
fn both_ways_at_once() {
    let mut client = client();
    let mut raw = client.raw();
    raw.send(head("Talk"));
    raw.advance(Duration::from_secs(1));
    let mut received = raw.received();
    assert!(
        received.ends_with(b"\r\n\r\n"),
        "the head comes first: {}",
        received.escape_ascii()
    );
    for number in 1..4 {
        raw.send(chunk(&body(WEB, &[text("a", number)])));
        raw.advance(Duration::from_secs(1));
        let reply = chunk(&body(WEB, &[text("A", number)]));
        received = raw.received();
        assert_eq!(received, reply, "{number}: {}", received.escape_ascii());
    }
    raw.send("0\r\n\r\n");
    let (rest, _) = raw.read_to_end().unwrap();
    assert!(
        rest.ends_with(b"grpc-status: 0\r\n\r\n0\r\n\r\n"),
        "{}",
        rest.escape_ascii()
    );
    drop(raw);
    client.finish().unwrap();
}
