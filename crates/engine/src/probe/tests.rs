//! The self-tests themselves, where io_uring is there.

use super::*;

/// The thread has 16 places: more rings than that, one after the other, find one only if each gives it back.
#[test]
fn a_ring_gives_its_registration_back() {
    if nop().is_err() {
        println!("SKIPPED: no io_uring here");
        return;
    }
    for _ in 0..40 {
        registered_ring().expect("the place of the ring before is free");
    }
}

/// The kernel takes rings down later, and interrupts the thread that had them.
#[test]
fn whoever_chooses_is_not_interrupted() {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let moment = Duration::from_millis(20);
    socket
        .set_read_timeout(Some(moment))
        .expect("a socket takes a timeout");
    for _ in 0..20 {
        probe(&Config::default()).expect("some back-end works here");
        let error = socket.recv(&mut [0; 1]).expect_err("nobody sends to it");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
