//! Single rules of the simulated kernel, each over a few seeds.

use std::cell::Cell;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Backend, Completion, Op, RecvEnd, Slot, Socket, SocketOption};

use super::super::{Fault, Peer, Plan, Sim, Step, World};
use super::single;

const LISTENER: Slot = Slot {
    index: 0,
    generation: 1,
};
const SLOT: Slot = Slot {
    index: 1,
    generation: 1,
};

fn addr() -> Addr {
    Addr::Unix("/run/test.sock".into())
}

fn accepted(seed: u64, plan: Plan) -> (World, Sim, Socket, Peer) {
    let world = single(seed, plan, 2);
    let mut backend = world.backend(0);
    let listener = world.listen(0, &addr());
    backend.accept(LISTENER, listener);
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

fn settle(world: &World) {
    while world.advance() {}
}

#[test]
fn a_send_waits_until_the_peer_reads() {
    for seed in 0..20 {
        let mut plan = Plan::calm();
        (plan.send_bytes, plan.receive_bytes) = (100, 100);
        let (world, mut backend, socket, peer) = accepted(seed, plan);
        let bytes = [7; 200];
        let mut sent = 0;
        while sent < 200 {
            // SAFETY: the array lives until the send has ended.
            unsafe { backend.send(SLOT, socket, &[IoSlice::new(&bytes[sent..])]) };
            let Completion::Sent { result, .. } = next(&mut backend) else {
                panic!("a send")
            };
            sent += result.expect("the peer is there");
            settle(&world);
        }
        // Both queues are full now: nothing more is taken until the peer reads.
        // SAFETY: as above.
        unsafe { backend.send(SLOT, socket, &[IoSlice::new(&bytes[..50])]) };
        settle(&world);
        backend
            .wait(Some(Duration::ZERO))
            .expect("the simulation goes on");
        assert!(backend.next().is_none(), "seed {seed}: the send must wait");
        assert_eq!(peer.read(80).len(), 80);
        let Completion::Sent { result, .. } = next(&mut backend) else {
            panic!("a send")
        };
        assert!((1..=50).contains(&result.expect("the peer is there")));
        assert!(world.count(Fault::PendingSend) > 0);
    }
}

#[test]
fn a_cancelled_receive_ends_once() {
    for seed in 0..20 {
        let (world, mut backend, socket, peer) = accepted(seed, Plan::calm());
        backend.recv(SLOT, socket, true);
        assert_eq!(peer.write(b"late").expect("there is room"), 4);
        backend.cancel(Op::Recv, SLOT);
        backend.cancel(Op::Recv, SLOT);
        let mut bytes = 0;
        loop {
            match next(&mut backend) {
                Completion::Received { data, more, .. } => {
                    bytes += data.len();
                    assert!(more);
                    backend.give_back(data);
                }
                Completion::RecvEnded {
                    end: RecvEnd::Cancelled,
                    ..
                } => break,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(bytes == 0 || bytes == 4);
        settle(&world);
        assert!(backend.next().is_none(), "seed {seed}: one final completion");
        backend.close(SLOT, socket);
        assert!(matches!(next(&mut backend), Completion::Closed { .. }));
        settle(&world);
        assert_eq!(
            peer.failed(),
            bytes == 0,
            "seed {seed}: unread bytes make a close a reset"
        );
        assert_eq!(peer.eof(), bytes == 4);
    }
}

#[test]
fn a_reset_lets_received_bytes_be_read_first() {
    for seed in 0..20 {
        let (world, mut backend, socket, peer) = accepted(seed, Plan::calm());
        assert_eq!(peer.write(b"last words").expect("there is room"), 10);
        settle(&world);
        peer.reset();
        settle(&world);
        backend.recv(SLOT, socket, false);
        let Completion::Received { data, .. } = next(&mut backend) else {
            panic!("bytes first")
        };
        assert_eq!(data.len(), 10);
        backend.give_back(data);
        let Completion::RecvEnded {
            end: RecvEnd::Failed(error),
            ..
        } = next(&mut backend)
        else {
            panic!("seed {seed}: then the error")
        };
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        backend.recv(SLOT, socket, false);
        let end = next(&mut backend);
        assert!(
            matches!(
                end,
                Completion::RecvEnded {
                    end: RecvEnd::Eof,
                    ..
                }
            ),
            "{end:?}"
        );
        // SAFETY: the memory is static.
        unsafe { backend.send(SLOT, socket, &[IoSlice::new(b"x")]) };
        let Completion::Sent { result, .. } = next(&mut backend) else {
            panic!("a send")
        };
        assert_eq!(result.expect_err("it is gone").raw_os_error(), Some(libc::EPIPE));
    }
}

#[test]
fn reset_on_close_loses_what_is_unsent() {
    let (world, mut backend, socket, peer) = accepted(5, Plan::calm());
    backend
        .set_option(socket, SocketOption::ResetOnClose)
        .expect("the socket is open");
    backend.close(SLOT, socket);
    assert!(matches!(next(&mut backend), Completion::Closed { .. }));
    settle(&world);
    assert!(peer.failed() && !peer.eof());
    assert!(peer.write(b"x").is_err());
}

#[test]
fn lack_of_buffers_depends_on_polling_first() {
    for seed in 0..20 {
        let mut plan = Plan::calm();
        plan.buffers = 1;
        let (world, mut backend, first, peer) = accepted(seed, plan);
        let _other = world.connect(&addr()).expect("somebody listens");
        let Completion::Accepted { socket: second, .. } = next(&mut backend) else {
            panic!("a connection")
        };
        let other = Slot {
            index: 2,
            generation: 1,
        };
        backend.recv(SLOT, first, true);
        peer.write(b"x").expect("there is room");
        settle(&world);
        assert_eq!(backend.buffers_free(), 0);
        backend.recv(other, second, seed % 2 == 0);
        settle(&world);
        let Completion::Received { data, .. } = next(&mut backend) else {
            panic!("bytes")
        };
        backend.give_back(data);
        assert_eq!(backend.buffers_free(), 1);
        backend
            .wait(Some(Duration::ZERO))
            .expect("the simulation goes on");
        match backend.next() {
            None => assert_eq!(seed % 2, 0, "told to poll first, it stays armed"),
            Some(Completion::RecvEnded {
                slot,
                end: RecvEnd::NoBuffers,
            }) => {
                assert_eq!((slot, seed % 2), (other, 1));
            }
            Some(other) => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn a_full_table_refuses_and_keeps_the_connection_waiting() {
    let mut plan = Plan::calm();
    plan.sockets = 2;
    let (world, mut backend, socket, _peer) = accepted(2, plan);
    let second = world.connect(&addr()).expect("somebody listens");
    let Completion::AcceptEnded {
        error: Some(error), ..
    } = next(&mut backend)
    else {
        panic!("accepting must end")
    };
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    backend.close(SLOT, socket);
    assert!(matches!(next(&mut backend), Completion::Closed { .. }));
    backend.accept(LISTENER, Socket::from_number(0));
    assert!(matches!(next(&mut backend), Completion::Accepted { .. }));
    assert!(!second.failed());
    assert_eq!(world.leaks().len(), 3, "{:?}", world.leaks());
}

#[test]
fn a_wake_ends_one_wait_and_is_never_lost() {
    for seed in 0..50 {
        let world = World::new(seed, Plan::calm().with(Fault::LateWake, 500), 2);
        let (mut first, mut second) = (world.backend(0), world.backend(1));
        let turn = |backend: &mut Sim| backend.wait(None).expect("the simulation goes on");
        turn(&mut first);
        turn(&mut second);
        assert_eq!(world.step(), Step::Quiet);
        let waker = first.waker();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake_by_ref());
        });
        second.wake_peer(0);
        assert!(matches!(world.step(), Step::Moved | Step::Turn(0)));
        settle(&world);
        assert!(!world.worker_idle(0) && world.worker_idle(1), "seed {seed}");
        turn(&mut first);
        turn(&mut first);
        assert!(world.worker_idle(0), "seed {seed}: one wait, not two");
        assert!(world.count(Fault::MergedWakes) > 0);
    }
}

#[test]
fn time_moves_to_the_end_of_a_wait() {
    let world = World::new(1, Plan::calm(), 1);
    let mut backend = world.backend(0);
    backend
        .wait(Some(Duration::from_millis(5)))
        .expect("the simulation goes on");
    assert!(world.worker_idle(0));
    assert_eq!(world.step(), Step::Moved);
    assert_eq!(world.step(), Step::Turn(0));
    let wall = backend.wall();
    world.jump_wall(-3600);
    backend.wait(None).expect("the simulation goes on");
    assert_eq!(backend.now().0, 5_000_000);
    assert!(backend.wall() < wall, "the wall clock may go back");
    world.jump(Duration::from_secs(86_400));
    backend.wait(None).expect("the simulation goes on");
    assert_eq!(backend.now().0, 5_000_000 + 86_400 * 1_000_000_000);
}

#[test]
fn jobs_run_apart_from_their_worker() {
    let mut plan = Plan::calm();
    plan.jobs = 1;
    let world = single(4, plan, 1);
    let mut backend = world.backend(0);
    let done = Arc::new(AtomicBool::new(false));
    let (seen, waker) = (Arc::clone(&done), backend.waker());
    let job = Box::new(move || {
        seen.store(true, Ordering::Relaxed);
        waker.wake();
    });
    backend.run_blocking(job).expect("the queue is empty");
    assert!(!done.load(Ordering::Relaxed));
    let ran = Arc::new(AtomicBool::new(false));
    let again = Arc::clone(&ran);
    let refused = backend.run_blocking(Box::new(move || again.store(true, Ordering::Relaxed)));
    (refused.expect_err("the queue is full").0)();
    assert!(ran.load(Ordering::Relaxed), "the job comes back whole");
    assert_eq!(world.leaks(), ["1 jobs have not run"]);
    backend.wait(None).expect("the simulation goes on");
    assert!(done.load(Ordering::Relaxed));
    assert_eq!(world.leaks(), Vec::<String>::new());
}

#[test]
fn connecting_to_nobody() {
    let world = single(6, Plan::calm(), 1);
    let mut backend = world.backend(0);
    let nobody = Addr::Inet(std::net::SocketAddr::from(([127, 0, 0, 1], 9)));
    for (to, expected) in [(nobody, libc::ECONNREFUSED), (addr(), libc::ENOENT)] {
        let socket = backend.open_stream(&to, None).expect("there is room");
        backend.connect(SLOT, socket, &to);
        let Completion::Connected { result, .. } = next(&mut backend) else {
            panic!("an outcome")
        };
        assert_eq!(result.expect_err("nobody").raw_os_error(), Some(expected));
        backend.close(SLOT, socket);
        assert!(matches!(next(&mut backend), Completion::Closed { .. }));
    }
    assert_eq!(world.leaks(), Vec::<String>::new());
}

#[test]
fn shutdown_ends_what_is_in_flight() {
    for seed in 0..20 {
        let (world, mut backend, socket, peer) = accepted(seed, Plan::calm());
        backend.recv(SLOT, socket, true);
        backend.shutdown_both(socket);
        backend.shutdown_both(Socket::from_number(0));
        let ends = Rc::new(Cell::new(0));
        for _ in 0..2 {
            match next(&mut backend) {
                Completion::RecvEnded {
                    end: RecvEnd::Eof, ..
                } => ends.set(ends.get() + 1),
                Completion::AcceptEnded { error: Some(_), .. } => ends.set(ends.get() + 10),
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert_eq!(ends.get(), 11);
        settle(&world);
        assert!(peer.eof());
        assert_eq!(
            world.connect(&addr()).expect_err("it is shut").kind(),
            std::io::ErrorKind::NotFound
        );
    }
}
