//! The delay before a shutdown: connections are accepted and requests answered, and clients are asked to use other connections.

use std::time::Duration;

use ringmain_web::App;
use ringmain_web::testing::{RawConnection, TestClient};

const STEP: Duration = Duration::from_millis(50);

/// The start of a client's HTTP/2 connection: the preface, and SETTINGS without settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// A received frame.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn application() -> TestClient {
    let app = App::new()
        .get("/", |_, reply| reply.text("here"))
        .get_async("/slow", async |req, reply| {
            req.cx().sleep(10 * STEP).await;
            reply.text("later")
        });
    TestClient::new(app).expect("an application")
}

/// A GET of `/` over HTTP/2: indexed fields of the static table (RFC 7541 §6), and the authority `a`.
fn get(stream: u32) -> Vec<u8> {
    let block = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    let mut frame = vec![0, 0, block.len() as u8, 1, 0x5];
    frame.extend(stream.to_be_bytes());
    frame.extend(block);
    frame
}

/// Lets the network deliver, and returns the frames that were received meanwhile.
fn frames(connection: &mut RawConnection) -> Vec<Frame> {
    connection.advance(STEP);
    let bytes = connection.received();
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let [a, b, c, kind, flags, s1, s2, s3, s4, tail @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        frames.push(Frame {
            kind: *kind,
            flags: *flags,
            stream: u32::from_be_bytes([*s1, *s2, *s3, *s4]),
            payload: tail[..length].to_vec(),
        });
        rest = &tail[length..];
    }
    frames
}

/// Returns the last streams of the GOAWAY frames.
fn last_streams(frames: &[Frame]) -> Vec<u32> {
    let goaways = frames.iter().filter(|frame| frame.kind == GOAWAY);
    goaways
        .map(|frame| u32::from_be_bytes(frame.payload[..4].try_into().expect("a number")))
        .collect()
}

fn has_response(frames: &[Frame], stream: u32) -> bool {
    frames
        .iter()
        .any(|frame| (frame.kind, frame.stream, &*frame.payload) == (DATA, stream, b"here"))
}

/// Returns the payload of the PING that asks the client to confirm.
fn ping(frames: &[Frame]) -> Vec<u8> {
    let ping = frames.iter().find(|frame| (frame.kind, frame.flags) == (PING, 0));
    ping.expect("a PING").payload.clone()
}

fn confirm(connection: &mut RawConnection, payload: &[u8]) {
    let mut frame = vec![0, 0, 8, PING, 1, 0, 0, 0, 0];
    frame.extend(payload);
    connection.send(frame);
}

#[test]
fn responses_of_http1_close_their_connections_and_new_ones_are_served() {
    let mut client = application();
    let mut idle = client.raw();
    idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!idle.reply().closes());
    let mut slow = client.raw();
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    client.advance(STEP);

    client.begin_drain_delay();
    client.advance(STEP);
    assert_eq!(idle.ending(), None, "a request may be in flight");
    // The request began before.
    let reply = slow.reply();
    assert_eq!((reply.text(), reply.closes()), ("later", true));
    idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = idle.reply();
    assert_eq!((reply.text(), reply.closes()), ("here", true));
    client.advance(STEP);
    assert!(idle.ending().is_some());
    for path in ["/", "/slow"] {
        let reply = client.get(path).send();
        assert_eq!((reply.status(), reply.closes()), (200, true));
    }

    client.shut_down();
    client.advance(STEP);
    client.finish().expect("an orderly end");
}

#[test]
fn http2_clients_receive_two_goaways_and_no_request_is_refused() {
    let mut client = application();
    let mut connection = client.raw();
    connection.send([PREFACE, &get(1)].concat());
    let before = frames(&mut connection);
    assert!(has_response(&before, 1), "{before:?}");
    assert_eq!(last_streams(&before), [0_u32; 0]);

    client.begin_drain_delay();
    let announced = frames(&mut connection);
    assert_eq!(last_streams(&announced), [u32::MAX >> 1]);
    // In flight while the client confirms.
    connection.send(get(3));
    confirm(&mut connection, &ping(&announced));
    let confirmed = frames(&mut connection);
    assert!(has_response(&confirmed, 3), "{confirmed:?}");
    assert_eq!(last_streams(&confirmed), [3]);
    assert!(connection.ending().is_some(), "all streams are closed");

    let mut later = client.raw();
    later.send([PREFACE, &get(1)].concat());
    let received = frames(&mut later);
    assert!(has_response(&received, 1), "{received:?}");
    assert_eq!(last_streams(&received), [u32::MAX >> 1]);
    confirm(&mut later, &ping(&received));
    assert_eq!(last_streams(&frames(&mut later)), [1]);
    drop((connection, later));
    client.shut_down();
    client.advance(STEP);
    client.finish().expect("an orderly end");
}

#[test]
fn a_connection_without_requests_is_asked_as_well() {
    let mut client = application();
    let mut connection = client.raw();
    connection.send(PREFACE);
    client.advance(STEP);
    client.begin_drain_delay();
    let received = frames(&mut connection);
    assert_eq!(last_streams(&received), [u32::MAX >> 1]);
    confirm(&mut connection, &ping(&received));
    assert_eq!(last_streams(&frames(&mut connection)), [0]);
    assert!(connection.ending().is_some());
    client.shut_down();
    client.finish().expect("an orderly end");
}
