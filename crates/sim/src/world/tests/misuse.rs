//! Each way to break the contract is caught, with a message that names it.

use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringmain_engine::Addr;
use ringmain_engine::backend::{Backend, Completion, DatagramOptions, Lent, Op, Slot, Socket};

use super::super::{Fault, Peer, Plan, Sim, World};
use super::single;

const SLOT: Slot = Slot {
    index: 1,
    generation: 1,
};
const OTHER: Slot = Slot {
    index: 2,
    generation: 1,
};

fn addr() -> Addr {
    Addr::Abstract(b"misuse".to_vec())
}

/// A worker with one accepted connection, and its peer.
fn connected() -> (World, Sim, Socket, Peer) {
    let world = single(1, Plan::calm(), 2);
    let mut backend = world.backend(0);
    let listener = world.listen(0, &addr());
    let slot = Slot {
        index: 0,
        generation: 1,
    };
    backend.accept(slot, listener);
    let peer = world.connect(&addr()).expect("somebody listens");
    let socket = match next(&mut backend) {
        Completion::Accepted { socket, .. } => socket,
        other => panic!("expected a connection, found {other:?}"),
    };
    (world, backend, socket, peer)
}

fn next(backend: &mut Sim) -> Completion {
    loop {
        if let Some(completion) = backend.next() {
            return completion;
        }
        backend.wait(None).expect("the simulation goes on");
    }
}

fn received(backend: &mut Sim) -> Lent {
    match next(backend) {
        Completion::Received { data, .. } => data,
        other => panic!("expected bytes, found {other:?}"),
    }
}

/// Runs `act` on a fresh connection and expects it to be stopped with these words.
fn check(words: &str, act: impl FnOnce(&World, &mut Sim, Socket, &Peer)) {
    let (world, mut backend, socket, peer) = connected();
    let caught = catch_unwind(AssertUnwindSafe(|| act(&world, &mut backend, socket, &peer)));
    let message = *caught
        .expect_err(words)
        .downcast::<String>()
        .expect("a formatted panic");
    assert!(message.contains(words), "expected {words:?}, found {message}");
    assert!(
        message.contains("contract broken by worker 0 (seed 1,"),
        "{message}"
    );
}

#[test]
fn two_operations_of_a_kind() {
    check("a second recv() in flight for", |_, backend, socket, _| {
        backend.recv(SLOT, socket, false);
        backend.recv(SLOT, socket, false);
    });
    check("in use by Slot { index: 1", |_, backend, socket, _| {
        backend.recv(SLOT, socket, false);
        backend.recv(OTHER, socket, false);
    });
    check("on socket 2, not its 1", |world, backend, socket, _| {
        backend.recv(SLOT, socket, false);
        let _second = world.connect(&addr()).expect("somebody listens");
        let Completion::Accepted { socket, .. } = next(backend) else {
            panic!("a connection")
        };
        assert_eq!(socket, Socket::from_number(2));
        // SAFETY: the memory is static.
        unsafe { backend.send(SLOT, socket, &[IoSlice::new(b"x")]) };
    });
    check(
        "while an operation of generation 1 is in flight",
        |_, backend, socket, _| {
            backend.recv(SLOT, socket, false);
            let late = Slot {
                generation: 2,
                ..SLOT
            };
            // SAFETY: the memory is static.
            unsafe { backend.send(late, socket, &[IoSlice::new(b"x")]) };
        },
    );
}

#[test]
fn close_and_what_comes_after() {
    check("[\"recv\"] in flight", |_, backend, socket, _| {
        backend.recv(SLOT, socket, true);
        backend.close(SLOT, socket);
    });
    check("in flight", |_, backend, socket, _| {
        backend.recv(SLOT, socket, true);
        // The cancel has ended it, but the worker has not taken the completion yet.
        backend.cancel(Op::Recv, SLOT);
        backend.wait(None).expect("the simulation goes on");
        backend.close(SLOT, socket);
    });
    check("after close() or give()", |_, backend, socket, _| {
        backend.close(SLOT, socket);
        backend.shutdown_write(socket);
    });
    check("which is not open here", |_, backend, socket, _| {
        backend.close(SLOT, socket);
        assert!(matches!(next(backend), Completion::Closed { slot: SLOT }));
        backend.recv(SLOT, socket, false);
    });
    check("a Datagram", |_, backend, _, _| {
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = backend
            .open_datagram(local, DatagramOptions::default())
            .expect("there is room");
        backend.recv(SLOT, socket, false);
    });
}

#[test]
fn lent_buffers() {
    check(
        "next() while a lent buffer has not been given back",
        |_, backend, socket, peer| {
            backend.recv(SLOT, socket, false);
            assert_eq!(peer.write(b"abc").expect("there is room"), 3);
            let _kept = received(backend);
            backend.next();
        },
    );
    check(
        "wait() while a lent buffer has not been given back",
        |_, backend, socket, peer| {
            backend.recv(SLOT, socket, false);
            assert_eq!(peer.write(b"abc").expect("there is room"), 3);
            drop(received(backend));
            backend.wait(None).expect("never reached");
        },
    );
    let (world, mut first, socket, peer) = connected();
    let mut second = world.backend(1);
    first.recv(SLOT, socket, false);
    assert_eq!(peer.write(b"abc").expect("there is room"), 3);
    let data = received(&mut first);
    let caught = catch_unwind(AssertUnwindSafe(|| second.give_back(data)));
    let message = *caught
        .expect_err("foreign buffer")
        .downcast::<String>()
        .expect("formatted");
    assert!(
        message.contains("a buffer of worker 0 was given back to worker 1"),
        "{message}"
    );
}

#[test]
fn send_memory() {
    check("the memory of the send for Slot", |_, backend, socket, _| {
        let mut bytes = *b"to be changed";
        // SAFETY: the memory stays valid; that it changes is what is tested.
        unsafe { backend.send(SLOT, socket, &[IoSlice::new(&bytes)]) };
        bytes[0] = b'X';
        next(backend);
        assert_eq!(bytes[0], b'X');
    });
    check("send() of nothing", |_, backend, socket, _| {
        // SAFETY: there is no memory.
        unsafe { backend.send(SLOT, socket, &[IoSlice::new(b"")]) };
    });
    check("send() with 9 pieces; at most 8", |_, backend, socket, _| {
        // SAFETY: the memory is static.
        unsafe { backend.send(SLOT, socket, &[IoSlice::new(b"piece"); 9]) };
    });
}

#[test]
fn held_memory_counts_until_it_is_released() {
    let world = single(3, Plan::calm().with(Fault::HeldSend, 1000), 1);
    let mut backend = world.backend(0);
    let upstream = world.peer_listen(&addr());
    let socket = backend.open_stream(&addr(), None).expect("there is room");
    backend.connect(SLOT, socket, &upstream.addr());
    assert!(matches!(
        next(&mut backend),
        Completion::Connected { result: Ok(()), .. }
    ));
    let mut bytes = *b"held";
    // SAFETY: the memory stays valid; that it changes is what is tested.
    unsafe { backend.send(SLOT, socket, &[IoSlice::new(&bytes)]) };
    assert!(matches!(
        next(&mut backend),
        Completion::Sent {
            result: Ok(4),
            held: true,
            ..
        }
    ));
    bytes[0] = b'X';
    let caught = catch_unwind(AssertUnwindSafe(|| next(&mut backend)));
    let message = *caught
        .expect_err("changed while held")
        .downcast::<String>()
        .expect("formatted");
    assert!(
        message.contains("changed before its final completion"),
        "{message}"
    );
    assert_eq!(bytes[0], b'X');
}

#[test]
fn a_wait_that_could_never_end() {
    check(
        "without a timeout while nothing is on its way",
        |_, backend, _, _| {
            backend.wait(None).expect("never reached");
        },
    );
}
