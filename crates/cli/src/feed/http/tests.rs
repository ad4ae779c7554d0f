//! Responses of a push server: complete, split, late, invalid.
#![allow(
    clippy::disallowed_methods,
    reason = "a server of tests has a socket and a thread of its own"
)]

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ringmain_testkit::wait::{Patience, pause};

use super::*;
use crate::limits::FEED_POLL;

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a connection and the server's socket.
fn pair(key: Option<&str>) -> (Http, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = Addr::Inet(listener.local_addr().expect("an address"));
    let http = Http::connect(&[addr], "push.test", "/api/publish", key).expect("a connection");
    let (server, _) = listener.accept().expect("the connection");
    server.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    (http, server)
}

/// Drives the connection until the condition holds, or an error.
fn until(http: &mut Http, wanted: impl Fn(&Http) -> bool) -> Result<(), SinkError> {
    let patience = Patience::new();
    while !wanted(http) {
        http.drive()?;
        assert!(!patience.is_over(), "{} are on their way", http.unconfirmed());
        pause(FEED_POLL);
    }
    Ok(())
}

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":{}}";

#[test]
fn a_trade_is_a_post() {
    let (mut http, mut server) = pair(Some("k e\"y"));
    http.queue_trade("market:\"A", "{\"n\":1}").expect("a request");
    assert_eq!(http.unconfirmed(), 1);
    until(&mut http, |http| http.queued_bytes() == 0).expect("it is sent");
    assert_eq!(http.unconfirmed(), 1, "it has no answer");
    let expected = "POST /api/publish HTTP/1.1\r\nHost: push.test\r\nX-API-Key: k e\"y\r\nContent-Type: application/json\r\n\
                    Content-Length: 39\r\n\r\n{\"channel\":\"market:\\\"A\",\"data\":{\"n\":1}}";
    let mut said = vec![0; expected.len()];
    server.read_exact(&mut said).expect("a request");
    let said = String::from_utf8(said).expect("text");
    assert_eq!(said.to_lowercase(), expected.to_lowercase());
    server.write_all(GOOD.as_bytes()).expect("it is read");
    until(&mut http, |http| http.unconfirmed() == 0).expect("an answer");
    assert_eq!(http.take_refusals(), None);
}

#[test]
fn responses_may_be_split_anywhere() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"r\r\na\r\nesult\":{}}\r\n0\r\n\r\n";
    let refused = "HTTP/1.1 200 OK\r\nContent-Length: 53\r\n\r\n{\"error\":{\"code\":102,\"message\":\"unknown\\u0007 channel\"}}";
    let refused = refused.replace(
        "53",
        &refused.rsplit_once("\r\n").expect("a body").1.len().to_string(),
    );
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 18\r\n\r\n{\"detail\":\"later\"}";
    let all = [GOOD, chunked, &refused, busy, GOOD].concat();
    for cut in 0..all.len() {
        let (mut http, mut server) = pair(None);
        for _ in 0..5 {
            http.queue_trade("a", "1").expect("a request");
        }
        until(&mut http, |http| http.queued_bytes() == 0).expect("they are sent");
        server.write_all(&all.as_bytes()[..cut]).expect("it is read");
        http.drive().expect("nothing is wrong");
        server.write_all(&all.as_bytes()[cut..]).expect("it is read");
        until(&mut http, |http| http.unconfirmed() == 0).expect("all answers");
        let (count, what) = http.take_refusals().expect("two are refused");
        assert_eq!((count, &*what), (2, "503, later"), "at {cut}");
        assert_eq!(http.take_refusals(), None);
    }
}

#[test]
fn requests_in_flight_are_limited() {
    let (mut http, mut server) = pair(None);
    let (many, more) = (FEED_IN_FLIGHT as u64, 10);
    for _ in 0..many + more {
        http.queue_trade("a", "1").expect("a request");
    }
    until(&mut http, |http| http.in_flight == FEED_IN_FLIGHT).expect("they are sent");
    http.drive().expect("nothing is wrong");
    assert_eq!((http.in_flight as u64, http.unconfirmed()), (many, many + more));
    assert!(http.queued_bytes() > 0);
    server.write_all(GOOD.as_bytes()).expect("it is read");
    until(&mut http, |http| http.unconfirmed() == many + more - 1).expect("an answer");
    until(&mut http, |http| http.in_flight == FEED_IN_FLIGHT).expect("another is sent");
}

#[test]
fn permanent_errors_are_refusals_and_others_lost_connections() {
    for (said, is_final, expect) in [
        (
            "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n",
            true,
            "401; pass the API key with --api-key",
        ),
        (
            "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
            true,
            "404; no such endpoint",
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n", true, "does not speak HTTP/1.1"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            true,
            "does not speak HTTP/1.1",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
            false,
            "the server has closed the connection",
        ),
        ("", false, "the server has closed the connection"),
    ] {
        let (mut http, mut server) = pair(None);
        http.queue_trade("a", "1").expect("a request");
        until(&mut http, |http| http.queued_bytes() == 0).expect("it is sent");
        server.write_all(said.as_bytes()).expect("it is read");
        server.shutdown(std::net::Shutdown::Write).expect("an end");
        let found = match until(&mut http, |http| http.unconfirmed() == 0) {
            Err(SinkError::Refused(why)) if is_final => why,
            Err(SinkError::Lost(why)) if !is_final => why,
            other => panic!("{said:?}: {other:?}"),
        };
        assert!(found.contains(expect), "{said:?}: {found}");
    }
    // A response without a request.
    let (mut http, mut server) = pair(None);
    server.write_all(GOOD.as_bytes()).expect("it is read");
    let unasked = until(&mut http, |_| false);
    assert!(
        matches!(&unasked, Err(SinkError::Lost(why)) if why.contains("without a request")),
        "{unasked:?}"
    );
}

#[test]
fn an_invalid_api_key_is_refused_before_sending() {
    let (mut http, _server) = pair(Some("a\r\nX: b"));
    assert!(matches!(http.queue_trade("a", "1"), Err(SinkError::Refused(_))));
}
