//! Cases of `epoll` alone that need the conformance driver. The others are unit tests of the back-end.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use ringmain_engine::backend::{Backend, Op};
use ringmain_sim::conformance::{Driver, Harness};

use crate::contract;

/// A descriptor that another process holds too is still reported after close (epoll(7), questions and answers).
#[test]
fn events_of_a_former_socket_do_not_reach_the_next_of_its_name() {
    let mut driver = Driver::new(contract::epoll());
    let (slot, other) = (driver.slot(), driver.slot());
    let silent = driver.harness.silent_addr();
    let worker = driver.harness.worker(0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("a backlog");
    let (shared, _) = listener.accept().expect("a connection");
    let former = worker
        .adopt(OwnedFd::from(shared.try_clone().expect("a descriptor")))
        .expect("adopted");
    driver.recv(0, slot, former);
    driver.cancel(0, Op::Recv, slot);
    driver.recv_ended(0, slot);
    driver.closed(0, slot, former);
    let next = driver
        .harness
        .worker(0)
        .open_stream(&silent, None)
        .expect("a socket");
    assert_eq!(next, former, "the name is reused, else this test shows nothing");
    driver.connect(0, other, next, &silent);
    driver.harness.peer_reset(peer);
    driver.quiet();
    driver.cancel(0, Op::Connect, other);
    driver.connected(0, other).expect_err("cancelled");
    driver.closed(0, other, next);
    driver.finish();
}
