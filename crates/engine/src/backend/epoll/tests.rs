//! Behaviour of this back-end alone; the contract itself is tested by `tests/it/contract.rs`.

#![allow(clippy::disallowed_methods, reason = "real sockets and racing threads")]

use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Epoll, EpollGroup};
use crate::backend::{Backend, Completion, Op, RecvEnd, RunJob, Slot, Socket};
use crate::limits;

const SLOT: Slot = Slot {
    index: 1,
    generation: 1,
};
const OTHER: Slot = Slot {
    index: 2,
    generation: 1,
};

fn run_job() -> RunJob {
    Arc::new(|job| {
        job();
        Ok(())
    })
}

fn pair_of_workers() -> [Epoll; 2] {
    let group = EpollGroup::new(2).expect("eventfds");
    [0, 1].map(|index| group.worker(index, run_job()).expect("an epoll instance"))
}

fn one_worker() -> Epoll {
    let [worker, _] = pair_of_workers();
    worker
}

/// A connected pair of TCP sockets: ours, adopted, and the peer's.
fn connection(worker: &mut Epoll) -> (Socket, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("a backlog");
    let (own, _) = listener.accept().expect("a connection");
    (worker.adopt(OwnedFd::from(own)).expect("adopted"), peer)
}

/// A completion without its bytes, in words.
type Said = String;

/// The next completion, waiting for it; lent bytes come back as text.
fn next(worker: &mut Epoll) -> (Said, String) {
    for _ in 0..1000 {
        if let Some(completion) = worker.next() {
            return split(worker, completion);
        }
        worker.wait(Some(Duration::from_millis(10))).expect("epoll works");
    }
    panic!("nothing came");
}

fn split(worker: &mut Epoll, completion: Completion) -> (Said, String) {
    match completion {
        Completion::Received { slot, mut data, more } => {
            assert!(more, "this back-end keeps a receive armed");
            let text = String::from_utf8_lossy(data.bytes_mut()).into_owned();
            worker.give_back(data);
            (format!("received {}", slot.index), text)
        }
        Completion::RecvEnded { slot, end } => (format!("ended {} {end:?}", slot.index), String::new()),
        other => (format!("{other:?}"), String::new()),
    }
}

/// Receives until `count` bytes are there.
fn text(worker: &mut Epoll, count: usize) -> String {
    let mut all = String::new();
    while all.len() < count {
        let (what, bytes) = next(worker);
        assert_eq!(what, "received 1", "after {all:?}");
        all += &bytes;
    }
    all
}

#[test]
fn urgent_data_does_not_hide_what_is_behind_it() {
    let mut worker = one_worker();
    let (socket, mut peer) = connection(&mut worker);
    worker.recv(SLOT, socket, false);
    worker.wait(Some(Duration::ZERO)).expect("epoll works");
    peer.write_all(b"before").expect("connected");
    rustix::net::send(&peer, b"!", SendFlags::OOB).expect("connected");
    peer.write_all(b"behind").expect("connected");
    assert_eq!(text(&mut worker, 12), "beforebehind");
}

#[test]
fn passed_descriptors_do_not_hide_what_is_behind_them() {
    let mut worker = one_worker();
    let (own, peer) = UnixStream::pair().expect("a pair");
    let socket = worker.adopt(OwnedFd::from(own)).expect("adopted");
    worker.recv(SLOT, socket, false);
    worker.wait(Some(Duration::ZERO)).expect("epoll works");
    for piece in [&b"one"[..], b"two"] {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [peer.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let sent = rustix::net::sendmsg(&peer, &[IoSlice::new(piece)], &mut ancillary, SendFlags::empty());
        assert_eq!(sent, Ok(3));
    }
    assert_eq!(text(&mut worker, 6), "onetwo");
}

#[test]
fn unix_connections_are_accepted_and_unnamed() {
    let path = std::env::temp_dir().join(format!("ringmain-epoll-{}.sock", std::process::id()));
    let mut worker = one_worker();
    let listener = UnixListener::bind(&path).expect("a free path");
    let listener = worker.adopt(OwnedFd::from(listener)).expect("adopted");
    worker.accept(OTHER, listener);
    let mut peer = UnixStream::connect(&path).expect("a backlog");
    std::fs::remove_file(&path).expect("just made");
    let socket = loop {
        worker.wait(None).expect("epoll works");
        if let Some(Completion::Accepted { socket, .. }) = worker.next() {
            break socket;
        }
    };
    assert_eq!(worker.peer_addr(socket).expect("connected"), None);
    worker.recv(SLOT, socket, false);
    peer.write_all(b"over the local socket").expect("connected");
    assert_eq!(text(&mut worker, 21), "over the local socket");
    drop(peer);
    assert_eq!(next(&mut worker).0, "ended 1 Eof");
}

#[test]
fn a_socket_with_a_full_buffer_yields_to_the_next() {
    let mut worker = one_worker();
    let (flooded, mut flood) = connection(&mut worker);
    let (calm, mut other) = connection(&mut worker);
    worker
        .set_option(flooded, crate::backend::SocketOption::ReceiveBuffer(1 << 20))
        .expect("set");
    flood.set_nonblocking(true).expect("a socket");
    let block = vec![b'x'; limits::EPOLL_BUFFER_BYTES];
    let mut queued = 0;
    while queued < 2 * limits::EPOLL_BUFFER_BYTES {
        queued += flood.write(&block).expect("the receive buffer is large enough");
    }
    other.write_all(b"calm").expect("connected");
    worker.recv(SLOT, flooded, false);
    worker.recv(OTHER, calm, false);
    worker.wait(None).expect("epoll works");
    let turn: Vec<_> = std::iter::from_fn(|| {
        let completion = worker.next()?;
        Some(split(&mut worker, completion))
    })
    .collect();
    let order: Vec<_> = turn
        .iter()
        .map(|(what, bytes)| (what.as_str(), bytes.len()))
        .collect();
    assert_eq!(
        order,
        [("received 1", limits::EPOLL_BUFFER_BYTES), ("received 2", 4)]
    );
    worker
        .wait(None)
        .expect("does not block: the first socket has more");
    assert_eq!(next(&mut worker).0, "received 1");
}

#[test]
fn a_turn_ends_even_if_each_completion_makes_another() {
    let mut worker = one_worker();
    let (socket, mut peer) = connection(&mut worker);
    let reader = std::thread::spawn(move || {
        let mut sink = [0; 4096];
        while peer.read(&mut sink).is_ok_and(|count| count > 0) {}
    });
    worker.wait(Some(Duration::ZERO)).expect("epoll works");
    let send = |worker: &mut Epoll| {
        // SAFETY: the memory is static.
        unsafe { worker.send(SLOT, socket, &[IoSlice::new(b"chain")]) };
    };
    send(&mut worker);
    let mut count = 0;
    while let Some(completion) = worker.next() {
        assert!(
            matches!(completion, Completion::Sent { result: Ok(5), .. }),
            "{completion:?}"
        );
        count += 1;
        assert!(count <= limits::COMPLETIONS_PER_TURN, "the turn never ends");
        send(&mut worker);
    }
    assert!(count > 0);
    drop(worker);
    reader.join().expect("the reader saw the end");
}

#[test]
fn queued_completions_do_not_keep_the_kernel_waiting() {
    let mut worker = one_worker();
    let (busy, _busy_peer) = connection(&mut worker);
    let (socket, mut peer) = connection(&mut worker);
    worker.recv(OTHER, socket, false);
    peer.write_all(b"here").expect("connected");
    for _ in 0..limits::EPOLL_SKIPS + 2 {
        // SAFETY: the memory is static.
        unsafe { worker.send(SLOT, busy, &[IoSlice::new(b"x")]) };
        worker.wait(None).expect("does not block: a completion is there");
        while let Some(completion) = worker.next() {
            if split(&mut worker, completion).0 == "received 2" {
                return;
            }
        }
    }
    panic!("never asked the kernel");
}

#[test]
fn a_wait_never_blocks_while_a_completion_is_queued() {
    let mut worker = one_worker();
    let (busy, _peer) = connection(&mut worker);
    let start = worker.now();
    for _ in 0..3 * limits::EPOLL_SKIPS {
        // SAFETY: the memory is static.
        unsafe { worker.send(SLOT, busy, &[IoSlice::new(b"x")]) };
        worker.wait(Some(Duration::from_secs(5))).expect("epoll works");
        assert!(worker.now().since(start) < Duration::from_secs(5), "it blocked");
        assert!(matches!(worker.next(), Some(Completion::Sent { .. })));
    }
}

#[test]
fn a_given_connection_no_longer_reports_to_the_giver() {
    let [mut worker, mut other] = pair_of_workers();
    let (socket, mut peer) = connection(&mut worker);
    worker.recv(SLOT, socket, false);
    worker.cancel(Op::Recv, SLOT);
    worker.wait(Some(Duration::ZERO)).expect("epoll works");
    while worker.next().is_some() {}
    worker.give(SLOT, socket, 1, 0);
    assert!(matches!(
        worker.next(),
        Some(Completion::Given { result: Ok(()), .. })
    ));
    other.wait(None).expect("epoll works");
    assert!(matches!(other.next(), Some(Completion::Adopted { .. })));
    peer.write_all(b"for the other").expect("connected");
    assert_eq!(worker.poller.wait(Some(Duration::ZERO)).expect("epoll works"), 0);
}

#[test]
fn full_mail_refuses_and_the_connection_stays() {
    let [mut worker, _other] = pair_of_workers();
    let (socket, mut peer) = connection(&mut worker);
    for _ in 0..limits::GIFTS_IN_FLIGHT {
        // Any descriptor will do: the mailbox does not look at it.
        let fd = rustix::io::dup(&peer).expect("a descriptor");
        let parcel = super::mail::Parcel {
            fd,
            tag: 0,
            probe: false,
        };
        assert!(worker.group.mailbox(1).put(parcel).is_ok(), "there is room");
    }
    // Watched before, so that the refusal has to make up for it.
    worker.recv(SLOT, socket, false);
    worker.cancel(Op::Recv, SLOT);
    assert!(matches!(
        worker.next(),
        Some(Completion::RecvEnded {
            end: RecvEnd::Cancelled,
            ..
        })
    ));
    worker.give(SLOT, socket, 1, 3);
    let given = worker.next();
    assert!(
        matches!(given, Some(Completion::Given { result: Err(_), .. })),
        "{given:?}"
    );
    peer.write_all(b"still here").expect("connected");
    worker.recv(SLOT, socket, false);
    assert_eq!(text(&mut worker, 10), "still here");
}

#[test]
fn giving_to_a_worker_that_has_ended_fails() {
    let [mut worker, ended] = pair_of_workers();
    let (socket, _peer) = connection(&mut worker);
    drop(ended);
    worker.give(SLOT, socket, 1, 0);
    let given = worker.next();
    assert!(
        matches!(given, Some(Completion::Given { result: Err(_), .. })),
        "{given:?}"
    );
}

#[test]
fn connections_on_their_way_to_a_worker_that_ends_are_closed() {
    let [mut worker, ending] = pair_of_workers();
    let (socket, mut peer) = connection(&mut worker);
    worker.give(SLOT, socket, 1, 0);
    assert!(matches!(
        worker.next(),
        Some(Completion::Given { result: Ok(()), .. })
    ));
    drop(ending);
    assert_eq!(peer.read(&mut [0; 8]).expect("closed in order"), 0);
}

#[test]
fn no_wake_is_lost_between_racing_threads() {
    const WAKES: u32 = 20_000;
    let mut worker = one_worker();
    let counts: Vec<_> = (0..2).map(|_| Arc::new(AtomicU32::new(0))).collect();
    let threads: Vec<_> = counts
        .iter()
        .map(|count| {
            let (waker, count) = (worker.waker(), Arc::clone(count));
            std::thread::spawn(move || {
                for _ in 0..WAKES {
                    count.fetch_add(1, Ordering::Relaxed);
                    waker.wake_by_ref();
                }
            })
        })
        .collect();
    while counts.iter().any(|count| count.load(Ordering::Relaxed) < WAKES) {
        // A lost wake would let this wait for ever.
        worker.wait(None).expect("epoll works");
    }
    for thread in threads {
        thread.join().expect("it only counts");
    }
}

#[test]
#[should_panic(expected = "was not given back")]
fn a_lent_buffer_must_come_back_before_the_next_completion() {
    let mut worker = one_worker();
    let (socket, mut peer) = connection(&mut worker);
    peer.write_all(b"bytes").expect("connected");
    worker.recv(SLOT, socket, false);
    worker.wait(None).expect("epoll works");
    let kept = worker.next();
    assert!(matches!(kept, Some(Completion::Received { .. })), "{kept:?}");
    worker.next();
}

#[test]
fn operations_on_a_closed_name_fail_by_completion() {
    let mut worker = one_worker();
    let (socket, _peer) = connection(&mut worker);
    worker.close(SLOT, socket);
    assert!(matches!(worker.next(), Some(Completion::Closed { .. })));
    worker.recv(SLOT, socket, false);
    let ended = worker.next();
    assert!(
        matches!(
            ended,
            Some(Completion::RecvEnded {
                end: RecvEnd::Failed(_),
                ..
            })
        ),
        "{ended:?}"
    );
    assert!(worker.peer_addr(socket).is_err());
}

/// Runs in a process of its own, because the descriptor limit is the process's.
#[test]
fn a_full_descriptor_table_ends_accepting_until_asked_again() {
    const CHILD: &str = "RINGMAIN_TEST_FULL_TABLE";
    if std::env::var_os(CHILD).is_some() {
        return full_table();
    }
    let name = "backend::epoll::tests::a_full_descriptor_table_ends_accepting_until_asked_again";
    let output = std::process::Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("the test binary runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{:?}",
        output.stderr
    );
}

fn full_table() {
    let mut worker = one_worker();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = listener.local_addr().expect("bound");
    let listener = worker.adopt(OwnedFd::from(listener)).expect("adopted");
    let peers: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(at).expect("a backlog"))
        .collect();
    let next_free = rustix::io::dup(&peers[0]).expect("a descriptor");
    let used = std::os::fd::AsRawFd::as_raw_fd(&next_free) as u64;
    drop(next_free);
    let normal = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(used + 1),
            ..normal
        },
    )
    .expect("lowered");
    worker.accept(SLOT, listener);
    worker.wait(None).expect("epoll works");
    assert!(
        matches!(worker.next(), Some(Completion::Accepted { .. })),
        "one descriptor was left"
    );
    let end = worker.next();
    let Some(Completion::AcceptEnded {
        error: Some(error), ..
    }) = end
    else {
        panic!("{end:?}")
    };
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    // It does not try again by itself, nor keep waking the worker.
    assert_eq!(worker.poller.wait(Some(Duration::ZERO)).expect("epoll works"), 0);
    worker.wait(Some(Duration::from_millis(5))).expect("epoll works");
    assert!(worker.next().is_none());
    setrlimit(Resource::Nofile, normal).expect("raised");
    worker.accept(SLOT, listener);
    worker.wait(None).expect("epoll works");
    for _ in 0..2 {
        assert!(
            matches!(worker.next(), Some(Completion::Accepted { .. })),
            "nobody was lost"
        );
    }
}
