//! WebSockets of upstreams in a graceful shutdown: closed at an even rate, with a frame that no other one is cut by.

use std::time::Duration;

use ringmain_gateway::model::Config;
use ringmain_sim::{ClusterConfig, Peer};

use crate::origin::to;
use crate::stream_drain::assert_cut_in_the_last_window;
use crate::virtual_gateway::{ORIGIN, Scene, write};

/// The opening handshake of RFC 6455 §1.3.
const OPENING: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const ACCEPTANCE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A Close frame with 1012, and the same of a client, with a mask of zeros.
const CLOSE: [u8; 4] = [0x88, 2, 0x03, 0xF4];
const REPLY: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xF4];

/// The start of the spread, and the network's own time.
const START: Duration = Duration::from_millis(150);

fn config() -> Config {
    to(&[ORIGIN], |_, _| {})
}

/// Opens a tunnel: the client's connection and the origin's.
fn open(scene: &mut Scene) -> (Peer, Peer) {
    let client = scene.dial();
    write(&client, OPENING);
    let origin = scene.accept();
    scene.read_to(&origin, "\r\n\r\n");
    write(&origin, ACCEPTANCE);
    scene.read_to(&client, "\r\n\r\n");
    (client, origin)
}

#[test]
fn a_websocket_is_closed_between_two_frames() {
    let mut scene = Scene::new(config(), |_| {});
    let (client, origin) = open(&mut scene);
    write(&origin, [0x81, 5, b'h', b'e']);
    scene.pass(Duration::from_millis(20));
    assert_eq!(client.read(usize::MAX), [0x81, 5, b'h', b'e']);
    scene.shut_down();
    scene.pass(START);
    assert_eq!(client.read(usize::MAX), [0_u8; 0], "the frame is not complete");
    // The rest of the frame, and another one, which the client does not receive.
    write(&origin, [b'l', b'l', b'o', 0x81, 1, b'x']);
    scene.pass(Duration::from_millis(20));
    assert_eq!(client.read(usize::MAX), [&b"llo"[..], &CLOSE].concat());
    assert!(!client.eof());

    // The client's reply notifies the upstream, which closes.
    write(&client, REPLY);
    scene.pass(Duration::from_millis(20));
    assert_eq!(origin.read(usize::MAX), REPLY);
    write(&origin, CLOSE);
    origin.close();
    scene.pass(Duration::from_millis(20));
    assert_eq!(client.read(usize::MAX), [0_u8; 0], "one Close frame only");
    assert!(client.eof());
    client.close();
    scene.stop();
}

#[test]
fn a_client_that_does_not_reply_is_closed_after_a_while() {
    let mut scene = Scene::new(config(), |_| {});
    let (client, origin) = open(&mut scene);
    scene.shut_down();
    scene.pass(START);
    assert_eq!(client.read(usize::MAX), CLOSE);
    scene.pass(ClusterConfig::default().grace);
    assert!(client.eof() || client.failed());
    assert!(origin.eof() || origin.failed());
    scene.stop();
}

#[test]
fn no_frame_follows_the_close_frame_of_the_upstream() {
    let mut scene = Scene::new(config(), |_| {});
    let (client, origin) = open(&mut scene);
    let normal = [0x88, 2, 0x03, 0xE8];
    write(&origin, normal);
    scene.pass(Duration::from_millis(20));
    assert_eq!(client.read(usize::MAX), normal);
    scene.shut_down();
    scene.pass(START);
    assert_eq!(client.read(usize::MAX), [0_u8; 0]);
    drop((client, origin));
    scene.stop();
}

#[test]
fn many_websockets_are_closed_at_an_even_rate() {
    let mut scene = Scene::new(config(), |_| {});
    let count = 200;
    let mut tunnels: Vec<_> = (0..count).map(|_| open(&mut scene)).collect();
    scene.shut_down();
    scene.pass(ringmain_engine::limits::DRAIN_SPREAD_START);
    let spread = ClusterConfig::default().drain_spread;
    let parts = 5;
    for part in 1..=parts {
        scene.pass(spread / parts);
        let before = tunnels.len();
        tunnels.retain(|(client, _)| client.read(usize::MAX) != CLOSE);
        let closed = before - tunnels.len();
        let even = count / parts as usize;
        assert!(
            (even * 8 / 10..=even * 12 / 10).contains(&closed),
            "{closed} closed in part {part}, expected about {even}"
        );
    }
    scene.pass(spread / parts);
    tunnels.retain(|(client, _)| client.read(usize::MAX) != CLOSE);
    assert_eq!(tunnels.len(), 0);
    scene.stop();
}

/// An upgrade to another protocol, whose bytes the gateway cannot interpret.
const OTHER: &str = "GET /shell HTTP/1.1\r\nHost: a\r\nUpgrade: shell\r\nConnection: Upgrade\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: shell\r\nConnection: Upgrade\r\n\r\n";

#[test]
fn tunnels_of_other_protocols_are_cut_at_the_end() {
    let config = to(&[ORIGIN], |forward, _| forward.upgrades = vec!["shell".into()]);
    let mut scene = Scene::new(config, |_| {});
    let tunnels: Vec<_> = (0..50)
        .map(|_| {
            let client = scene.dial();
            write(&client, OTHER);
            let origin = scene.accept();
            scene.read_to(&origin, "\r\n\r\n");
            write(&origin, SWITCHED);
            scene.pass(Duration::from_millis(20));
            assert!(client.read(usize::MAX).starts_with(b"HTTP/1.1 101 "));
            (client, origin)
        })
        .collect();
    scene.shut_down();
    assert_cut_in_the_last_window(&mut scene, tunnels);
    scene.stop();
}
