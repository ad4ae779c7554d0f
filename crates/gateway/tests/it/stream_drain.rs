//! Connections and responses that last, in a graceful shutdown: event streams of upstreams end at an even rate as complete responses,
//! forwarded connections are cut at an even rate at the end.

use std::net::SocketAddr;
use std::time::Duration;

use ringmain_engine::limits::DRAIN_SPREAD_START;
use ringmain_gateway::limits::EVENT_END_WAIT;
use ringmain_gateway::model::{Config, Protocol};
use ringmain_gateway::stats::ConnectionEnd;
use ringmain_sim::{ClusterConfig, Peer};

use crate::l4_rig;
use crate::origin::to;
use crate::virtual_gateway::{ORIGIN, Scene, write};

const GET: &str = "GET /events HTTP/1.1\r\nHost: a\r\n\r\n";
const STEP: Duration = Duration::from_millis(20);
/// The start of the spread, and the network's own time.
const START: Duration = Duration::from_millis(150);

/// Parts of a window in which ends are counted.
const PARTS: u32 = 5;

fn config() -> Config {
    to(&[ORIGIN], |_, _| {})
}

/// Returns the content of a chunk of HTTP/1.1.
fn chunk(content: &str) -> String {
    format!("{:x}\r\n{content}\r\n", content.len())
}

/// Opens a response of this type: the client's connection and the origin's.
fn open(scene: &mut Scene, content_type: &str) -> (Peer, Peer) {
    let client = scene.dial();
    write(&client, GET);
    let origin = scene.accept();
    scene.read_to(&origin, "\r\n\r\n");
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n");
    write(&origin, head + &chunk("data: 1\n\n"));
    scene.pass(STEP);
    // In one chunk or several.
    assert!(client.read(usize::MAX).ends_with(b"\n\n\r\n"));
    (client, origin)
}

/// Passes one part of a window after the other, and checks that `is_over` becomes true for equal numbers in each.
#[track_caller]
fn assert_even<T>(scene: &mut Scene, mut all: Vec<T>, is_over: impl Fn(&T) -> bool) {
    let even = all.len() / PARTS as usize;
    for part in 1..=PARTS {
        scene.pass(ClusterConfig::default().drain_spread / PARTS);
        let before = all.len();
        all.retain(|one| !is_over(one));
        let ended = before - all.len();
        assert!(
            (even * 8 / 10..=even * 12 / 10).contains(&ended),
            "{ended} ended in part {part}, expected about {even}"
        );
    }
}

/// Checks that none of these connections is cut before the last window of a shutdown that has just begun, and all in it, evenly.
#[track_caller]
pub(crate) fn assert_cut_in_the_last_window(scene: &mut Scene, pairs: Vec<(Peer, Peer)>) {
    let ClusterConfig {
        grace, drain_spread, ..
    } = ClusterConfig::default();
    scene.pass(grace - drain_spread - 2 * STEP);
    for (client, origin) in &pairs {
        write(client, "still");
        write(origin, "open");
    }
    scene.pass(STEP);
    for (client, origin) in &pairs {
        assert_eq!(client.read(usize::MAX), b"open");
        assert_eq!(origin.read(usize::MAX), b"still");
    }
    assert_even(scene, pairs, |(client, origin)| {
        let is_cut = client.failed() || client.eof();
        assert_eq!(is_cut, origin.failed() || origin.eof(), "both sides");
        is_cut
    });
}

#[test]
fn event_streams_end_at_an_even_rate() {
    let mut scene = Scene::new(config(), |_| {});
    let streams: Vec<_> = (0..100).map(|_| open(&mut scene, "text/event-stream")).collect();
    scene.shut_down();
    scene.pass(DRAIN_SPREAD_START);
    assert_even(&mut scene, streams, |(client, origin)| {
        let has_ended = client.read(usize::MAX) == b"0\r\n\r\n";
        if has_ended {
            assert!(client.eof() && !client.failed());
            assert!(
                origin.eof() || origin.failed(),
                "the connection to the origin is closed"
            );
        }
        has_ended
    });
    assert_eq!(scene.faults(), 0);
    scene.stop();
}

#[test]
fn an_event_stream_ends_between_two_events() {
    let mut scene = Scene::new(config(), |_| {});
    let (client, origin) = open(&mut scene, "Text/Event-Stream; charset=utf-8");
    write(&origin, chunk("data: 2"));
    scene.read_to(&client, "data: 2\r\n");
    scene.shut_down();
    scene.pass(START);
    assert_eq!(client.read(usize::MAX), [0_u8; 0], "the event is not complete");
    write(&origin, chunk("\r\n\r\n"));
    scene.pass(STEP);
    let rest = chunk("\r\n\r\n") + "0\r\n\r\n";
    assert_eq!(client.read(usize::MAX), rest.as_bytes());
    assert!(client.eof() && !client.failed());
    scene.stop();
}

#[test]
fn an_event_that_remains_incomplete_delays_the_end_for_a_while() {
    let mut scene = Scene::new(config(), |_| {});
    let (client, origin) = open(&mut scene, "text/event-stream");
    write(&origin, chunk("data: 2"));
    scene.read_to(&client, "data: 2\r\n");
    scene.shut_down();
    scene.pass(START + EVENT_END_WAIT);
    assert_eq!(client.read(usize::MAX), b"0\r\n\r\n");
    scene.stop();
}

#[test]
fn other_responses_may_finish_until_the_deadline() {
    let mut scene = Scene::new(config(), |_| {});
    let (client, origin) = open(&mut scene, "text/plain");
    let (encoded, _origin) = open(&mut scene, "application/x-ndjson");
    scene.shut_down();
    scene.pass(ClusterConfig::default().grace - START);
    assert_eq!(client.read(usize::MAX), [0_u8; 0]);
    write(&origin, "0\r\n\r\n");
    scene.pass(STEP);
    assert_eq!(client.read(usize::MAX), b"0\r\n\r\n");
    scene.pass(2 * START);
    assert_eq!(encoded.read(usize::MAX), [0_u8; 0], "not a complete response");
    assert!(encoded.failed() || encoded.eof());
    scene.stop();
}

#[test]
fn forwarded_connections_are_cut_at_the_end() {
    let origin: SocketAddr = ORIGIN;
    let config = l4_rig::to(Protocol::Tcp, &[origin], |_, _, _| {});
    let mut scene = Scene::new(config, |_| {});
    let connections: Vec<_> = (0..100)
        .map(|_| {
            let client = scene.dial();
            write(&client, "first");
            let origin = scene.accept();
            scene.read_to(&origin, "first");
            (client, origin)
        })
        .collect();
    scene.shut_down();
    assert_cut_in_the_last_window(&mut scene, connections);
    let reports = scene.gateway.stream_reports();
    let report = reports.iter().find(|report| &*report.name == "all");
    let ended = report.expect("connections with a route").ended;
    assert_eq!(ended[ConnectionEnd::Shutdown as usize], 100);
    scene.stop();
}

#[test]
fn a_forwarded_connection_may_finish_until_its_turn() {
    let config = l4_rig::to(Protocol::Tcp, &[ORIGIN], |_, _, _| {});
    let mut scene = Scene::new(config, |_| {});
    let client = scene.dial();
    write(&client, "question");
    let origin = scene.accept();
    scene.read_to(&origin, "question");
    scene.shut_down();
    scene.pass(Duration::from_secs(1));
    write(&origin, "response");
    origin.close();
    scene.pass(STEP);
    assert_eq!(client.read(usize::MAX), b"response");
    assert!(client.eof());
    client.close();
    scene.find("the end of the worker", |scene| {
        let reports = scene.gateway.stream_reports();
        (reports[0].open_connections() == 0).then_some(())
    });
    scene.stop();
}
