//! Connecting.

use std::io;

use ringmain_engine::backend::{Backend, Op, RecvEnd};

use crate::conformance::{Driver, FarState, Harness};

/// Rule N1: `Connected(Ok)`, then the socket behaves like an accepted one.
pub fn connects_and_carries_both_ways<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let (mut far, to) = driver.harness.far_listen();
    let socket = driver.harness.worker(0).open_stream(&to, None).expect("a socket");
    let slot = driver.slot();
    driver.connect(0, slot, socket, &to);
    driver.connected(0, slot).expect("somebody listens");
    let mut peer = None;
    driver.until("the far side to accept", |driver| {
        peer = driver.harness.far_accept(&mut far);
        peer.is_some()
    });
    let mut peer = peer.expect("just found");
    driver.recv(0, slot, socket);
    driver.send_all(0, slot, socket, b"ping");
    assert_eq!(driver.peer_read(&mut peer, 4), (b"ping".to_vec(), FarState::Open));
    driver.peer_write(&mut peer, b"pong");
    assert_eq!(driver.received(0, slot, socket, 4), b"pong");
    driver.harness.peer_shutdown(&mut peer);
    let end = driver.recv_ended(0, slot);
    assert!(matches!(end, RecvEnd::Eof), "{end:?}");
    driver.closed(0, slot, socket);
    driver.finish();
}

/// Rule N2: where nobody listens the attempt fails as refused.
pub fn refused_connection_fails<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let to = driver.harness.refusing_addr();
    let socket = driver.harness.worker(0).open_stream(&to, None).expect("a socket");
    let slot = driver.slot();
    driver.connect(0, slot, socket, &to);
    let error = driver.connected(0, slot).expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    driver.closed(0, slot, socket);
    driver.finish();
}

/// Rule N3: a cancelled attempt ends with an error.
pub fn cancel_ends_connecting<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let to = driver.harness.silent_addr();
    let socket = driver.harness.worker(0).open_stream(&to, None).expect("a socket");
    let slot = driver.slot();
    driver.connect(0, slot, socket, &to);
    driver.quiet();
    driver.cancel(0, Op::Connect, slot);
    let error = driver.connected(0, slot).expect_err("nobody answered");
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED), "{error}");
    driver.closed(0, slot, socket);
    driver.finish();
}

/// Rule H2: a shut down attempt ends with an error, without cancel.
pub fn shutdown_both_ends_connecting<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let to = driver.harness.silent_addr();
    let socket = driver.harness.worker(0).open_stream(&to, None).expect("a socket");
    let slot = driver.slot();
    driver.connect(0, slot, socket, &to);
    driver.quiet();
    driver.harness.worker(0).shutdown_both(socket);
    driver.connected(0, slot).expect_err("nobody answered");
    driver.closed(0, slot, socket);
    driver.finish();
}

/// Rule N2: the socket of a failed attempt holds its name until it is closed.
pub fn failed_connect_leaves_a_socket_to_close<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let refusing = driver.harness.refusing_addr();
    let (_far, to) = driver.harness.far_listen();
    let failed = driver
        .harness
        .worker(0)
        .open_stream(&refusing, None)
        .expect("a socket");
    let slot = driver.slot();
    driver.connect(0, slot, failed, &refusing);
    driver.connected(0, slot).expect_err("nobody listens");
    let second = driver.harness.worker(0).open_stream(&to, None).expect("a socket");
    assert_ne!(failed, second, "the failed socket is still open");
    let other = driver.slot();
    driver.connect(0, other, second, &to);
    driver.connected(0, other).expect("somebody listens");
    driver.closed(0, slot, failed);
    driver.closed(0, other, second);
    driver.finish();
}
