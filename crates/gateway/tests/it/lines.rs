//! Framing of a body without a minimum rate that arrives a byte at a time: chunk extensions and trailers.

use std::time::{Duration, Instant};

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;

use crate::origin::{Origin, edge_within, to};
use crate::support::PATIENCE;

on_every_backend! {
    a_line_that_drips_is_cut,
    lines_that_are_whole_may_pause,
}

/// The time limit of a line.
const HEADER: Duration = Duration::from_millis(300);

/// Between two bytes.
const GAP: Duration = Duration::from_millis(20);

/// Responds to the whole request alone.
fn whole() -> Origin {
    Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let length = seen.body.len().to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", length.len());
            peer.send([head, length].concat());
        }
    })
}

const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn a_line_that_drips_is_cut(engine: Config) {
    let origin = whole();
    for begins in ["5;", "1\r\nx\r\n2;a", "1\r\nx\r\n0\r\nX-Last: "] {
        let config = to(&[origin.addr], |_, _| {});
        let edge = edge_within(engine.clone(), config, |limits| limits.header_timeout = HEADER);
        let mut client = edge.server.client();
        client.send(HEAD);
        client.send(begins);
        let begun = Instant::now();
        let count = || {
            let faults = edge.gateway.faults();
            let found = faults.iter().find(|(fault, _)| *fault == Fault::RequestTooSlow);
            found.map_or(0, |(_, count)| *count)
        };
        while count() == 0 {
            assert!(begun.elapsed() < PATIENCE, "{begins:?} is waited for");
            ringmain_testkit::wait::pause(GAP);
            // It may be closed by now.
            let _ = client.send_behind(b"x".to_vec()).join();
        }
        assert!(begun.elapsed() >= HEADER, "{begins:?} is cut too early");
        assert_eq!(client.answer().status, 408, "{begins:?}");
        drop(client);
        edge.server.shut_down();
    }
}

/// Each line has its own time, the wait for its first byte has none, and data may arrive as slowly as its sender likes.
fn lines_that_are_whole_may_pause(engine: Config) {
    let origin = whole();
    let config = to(&[origin.addr], |_, _| {});
    let edge = edge_within(engine, config, |limits| limits.header_timeout = 10 * HEADER);
    let mut client = edge.server.client();
    client.send(HEAD);
    let pieces = [
        "3;",
        "a\r\n",
        "x",
        "y",
        "z",
        "\r\n",
        "1",
        ";b\r\n",
        "x\r\n",
        "0\r\n",
        "X-Last: 1\r\n\r\n",
    ];
    for piece in pieces {
        // All of them take longer than one may.
        ringmain_testkit::wait::pause(HEADER);
        client.send(piece);
    }
    client.answer().expect(200, "4");
    drop(client);
    edge.server.shut_down();
}
