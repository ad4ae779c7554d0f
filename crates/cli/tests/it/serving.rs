//! The binary serves: every kind of address on both engines, its end, its successor.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::common::{Directory, Server, check_echo, connect, echo, engines, exchange, try_connect};
use ringmain_testkit::port::own_host;
use ringmain_testkit::wait::until;
use rustix::process::{Signal, kill_process};

#[test]
fn every_kind_of_address_on_both_engines() {
    for engine in engines() {
        let directory = Directory::new();
        let path = format!("unix:{}", directory.join("socket").display());
        let name = format!("@ringmain-test-{engine}-{}", std::process::id());
        let listen = ["127.0.0.1:0", "[::1]:0", ":0", &path, &name];
        let mut args = vec!["--engine", engine, "--workers", "2"];
        args.extend(listen.iter().flat_map(|addr| ["--listen", addr]));
        let (server, addrs) = Server::start(&mut echo(&args), listen.len());
        assert!(
            server
                .said
                .iter()
                .any(|line| line.contains(&format!("engine {engine}")))
        );
        assert!(addrs.iter().all(|addr| !addr.ends_with(":0")), "{addrs:?}");
        for addr in [&addrs[0], &addrs[1], &addrs[3], &addrs[4]] {
            check_echo(addr);
        }
        let dual = addrs[2].strip_prefix("[::]:").expect("a wildcard address");
        check_echo(&format!("127.0.0.1:{dual}"));
        check_echo(&format!("[::1]:{dual}"));
        let said = server.terminate();
        let last = said
            .iter()
            .rfind(|line| line.contains("accepted="))
            .expect("the last counters");
        assert!(last.contains("connections=0 accepted=6 closed=6"), "{last}");
        assert!(!directory.join("socket").exists(), "the socket file stays");
    }
}

#[test]
fn ipv6_only_refuses_ipv4() {
    let (server, addrs) = Server::start(&mut echo(&["--listen", ":0", "--ipv6-only"]), 1);
    let port = addrs[0].strip_prefix("[::]:").unwrap();
    check_echo(&format!("[::1]:{port}"));
    // Another test may have the port at 127.0.0.1.
    let host = own_host();
    let error = try_connect(&format!("{host}:{port}")).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    server.terminate();
}

#[test]
fn a_unix_socket_has_the_requested_mode() {
    let directory = Directory::new();
    let file = directory.join("s");
    let path = file.display().to_string();
    let (server, _) = Server::start(&mut echo(&["--listen", &path, "--unix-mode", "640"]), 1);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    server.terminate();
}

#[test]
fn counters_are_logged_at_the_interval() {
    let (mut server, addrs) = Server::start(&mut echo(&["--listen", "127.0.0.1:0", "--stats", "1s"]), 1);
    let mut stream = connect(&addrs[0]);
    exchange(&mut *stream, b"count me").unwrap();
    server.wait_for("connections=1 accepted=1 closed=0 messages=1 received_bytes=8 sent_bytes=8");
    drop(stream);
    server.terminate();
}

#[test]
fn sigterm_lets_open_connections_finish() {
    for engine in engines() {
        // Nothing else listens there once it has ended.
        let listen = format!("{}:0", own_host());
        let args = ["--engine", engine, "--listen", &listen];
        let (mut server, addrs) = Server::start(&mut echo(&args), 1);
        let mut stream = connect(&addrs[0]);
        exchange(&mut *stream, b"before").unwrap();
        server.signal(Signal::TERM);
        server.wait_for("shutting down, 1 still open");
        exchange(&mut *stream, &[7; 100_000]).unwrap();
        stream.finish();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
        let (status, said) = server.finish();
        assert_eq!(status.code(), Some(0), "{said:#?}");
        assert!(
            said.iter()
                .any(|line| line.contains("all connections are closed"))
        );
        assert!(try_connect(&addrs[0]).is_err(), "somebody still listens");
    }
}

#[test]
fn connections_that_do_not_finish_end_with_the_grace_time_or_a_second_signal() {
    let (server, addrs) = Server::start(&mut echo(&["--listen", "127.0.0.1:0", "--grace", "1s"]), 1);
    let mut stream = connect(&addrs[0]);
    exchange(&mut *stream, b"x").unwrap();
    server.terminate();
    let (mut server, addrs) = Server::start(&mut echo(&["--listen", "127.0.0.1:0", "--grace", "1h"]), 1);
    let mut stream = connect(&addrs[0]);
    exchange(&mut *stream, b"x").unwrap();
    server.signal(Signal::TERM);
    server.wait_for("shutting down, 1 still open");
    server.terminate();
}

#[test]
fn sighup_is_ignored() {
    let (server, addrs) = Server::start(&mut echo(&["--listen", "127.0.0.1:0"]), 1);
    server.signal(Signal::HUP);
    check_echo(&addrs[0]);
    server.terminate();
}

#[test]
fn sigquit_exits_immediately() {
    let (server, addrs) = Server::start(&mut echo(&["--listen", "127.0.0.1:0"]), 1);
    let mut stream = connect(&addrs[0]);
    exchange(&mut *stream, b"x").unwrap();
    server.signal(Signal::QUIT);
    let (status, said) = server.finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
}

/// Connects, echoes and hangs up without end, until told to stop. Any failure is a panic of the thread.
fn load(addr: &str, stop: &Arc<AtomicBool>, done: &Arc<AtomicU32>) -> std::thread::JoinHandle<()> {
    let (addr, stop, done) = (addr.to_owned(), Arc::clone(stop), Arc::clone(done));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let mut stream = connect(&addr);
            exchange(&mut *stream, b"still there?").unwrap_or_else(|error| panic!("{addr}: {error}"));
            done.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Waits until the clients have made `more` exchanges from now on.
fn progress(done: &AtomicU32, more: u32, clients: &[std::thread::JoinHandle<()>]) {
    let target = done.load(Ordering::Relaxed) + more;
    until("exchanges", || {
        assert!(
            clients.iter().all(|client| !client.is_finished()),
            "a client has failed"
        );
        done.load(Ordering::Relaxed) >= target
    });
}

#[test]
fn a_handover_under_load_fails_no_request() {
    for engine in engines() {
        let directory = Directory::new();
        let path = format!("unix:{}", directory.join("ü: s").display());
        let args = [
            "--engine",
            engine,
            "--workers",
            "2",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            &path,
        ];
        let (mut server, addrs) = Server::start(&mut echo(&args), 2);
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let clients: Vec<_> = addrs
            .iter()
            .cycle()
            .take(4)
            .map(|addr| load(addr, &stop, &done))
            .collect();
        progress(&done, 50, &clients);
        // One hand-over and one more: the successor can be replaced too.
        let mut pid = server.pid();
        for _ in 0..2 {
            kill_process(pid, Signal::USR2).unwrap();
            let (first, second) = (
                format!("listening on {}", addrs[0]),
                format!("listening on {}", addrs[1]),
            );
            let lines = server.wait_for_each(&[" serves now", &first, &second, "all connections are closed"]);
            let number = lines[0]
                .split("process ")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap();
            pid = rustix::process::Pid::from_raw(number.parse().unwrap()).unwrap();
            progress(&done, 50, &clients);
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
        assert!(
            directory.join("ü: s").exists(),
            "a predecessor has removed the socket file"
        );
        kill_process(pid, Signal::TERM).unwrap();
        server.wait_for("all connections are closed");
        let (status, said) = server.finish();
        assert_eq!(status.code(), Some(0), "{said:#?}");
        assert!(!directory.join("ü: s").exists(), "the socket file stays");
    }
}
