//! Listeners handed from process to process: this binary starts itself, and shells that misbehave.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::common::{self, Directory};
use ringmain_sys::addr::Addr;
use ringmain_sys::inherit::{Successor, ready, spawn_with, state, take};
use ringmain_sys::listen::{ListenOptions, listen};
use ringmain_sys::signal::{Signal, Signals};
use ringmain_sys::socket;
use ringmain_testkit::program;
use rustix::event::{PollFd, PollFlags, poll};

fn open(addr: &Addr) -> OwnedFd {
    listen(addr, &ListenOptions::default()).unwrap()
}

fn any_port() -> OwnedFd {
    open(&"127.0.0.1:0".parse().unwrap())
}

/// Whether the listeners in the environment are for this process.
fn is_successor() -> bool {
    std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string())
}

fn spawn(listeners: &[OwnedFd], path: &Path, args: &[&str]) -> std::io::Result<Successor> {
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    let listeners: Vec<_> = listeners.iter().map(AsFd::as_fd).zip(names).collect();
    let args: Vec<_> = args.iter().map(OsString::from).collect();
    let _starting = program::starts_process();
    spawn_with(&listeners, path, &args)
}

fn spawn_test(listeners: &[OwnedFd], test: &str) -> Successor {
    let program = std::env::current_exe().unwrap();
    spawn(listeners, &program, &["--exact", test, "--nocapture"]).unwrap()
}

fn spawn_shell(listeners: &[OwnedFd], script: &str) -> Successor {
    spawn(listeners, Path::new("/bin/sh"), &["-c", script]).unwrap()
}

#[test]
fn a_successor_takes_over_and_serves() {
    if is_successor() {
        return serve_one_each();
    }
    let directory = Directory::new();
    let path = directory.join("s");
    // What this process blocks must not stay blocked in the next one.
    let _signals = Signals::block(&[Signal::User1]).unwrap();
    let listeners = [any_port(), open(&Addr::Unix(path.clone()))];
    let Some(Addr::Inet(addr)) = socket::local_addr(&listeners[0]).unwrap() else {
        panic!()
    };
    let mut successor = spawn_test(&listeners, "inherit::a_successor_takes_over_and_serves");
    successor.wait_ready(Some(Duration::from_secs(30))).unwrap();
    drop(listeners);
    check_answer(TcpStream::connect(addr).unwrap(), "one");
    check_answer(UnixStream::connect(&path).unwrap(), "two");
    assert!(successor.process.wait().unwrap().success());
}

fn check_answer(mut stream: impl Read, expect: &str) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, expect);
}

/// The successor: answers one connection on each listener with the listener's name.
fn serve_one_each() {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
    let inherited = take().unwrap();
    assert!(take().unwrap().is_empty());
    let names: Vec<_> = inherited.iter().map(|listener| listener.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert!(matches!(inherited[0].addr, Addr::Inet(addr) if addr.port() != 0));
    assert!(matches!(&inherited[1].addr, Addr::Unix(path) if path.ends_with("s")));
    for listener in &inherited {
        assert_eq!(
            socket::accept(&listener.fd).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        let flags = rustix::io::fcntl_getfd(&listener.fd).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    assert!(ready());
    assert!(!ready());
    for listener in inherited {
        poll(&mut [PollFd::new(&listener.fd, PollFlags::IN)], None).unwrap();
        let connection = socket::accept(&listener.fd).unwrap();
        UnixStream::from(connection)
            .write_all(listener.name.as_bytes())
            .unwrap();
    }
}

/// More than a pipe holds.
const STATE: usize = 3 << 20;

#[test]
fn a_successor_receives_state() {
    if is_successor() {
        take().unwrap();
        let pipe = state().unwrap();
        assert!(state().is_none(), "a second time");
        assert!(ready());
        let received = pipe.receive(STATE, Duration::from_secs(30)).unwrap();
        assert_eq!(received.len(), STATE);
        assert!((0u8..=255).cycle().zip(&received).all(|(a, b)| a == *b));
        return;
    }
    let bytes: Vec<u8> = (0..=255).cycle().take(STATE).collect();
    let mut successor = spawn_test(&[any_port()], "inherit::a_successor_receives_state");
    successor.wait_ready(Some(Duration::from_secs(30))).unwrap();
    let pipe = successor.take_state().unwrap();
    pipe.send(bytes.chunks(1 << 20), Duration::from_secs(30)).unwrap();
    assert!(successor.process.wait().unwrap().success());
}

#[test]
fn state_that_is_not_taken_does_not_wait_for_longer_than_it_may() {
    let mut successor = spawn_shell(&[any_port()], "exec sleep 1000");
    let pipe = successor.take_state().unwrap();
    let sent = pipe.send([&[0; STATE][..]], Duration::from_millis(20));
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::TimedOut);
    successor.process.kill().unwrap();
    successor.process.wait().unwrap();
}

#[test]
fn a_successor_refuses_what_does_not_listen() {
    if is_successor() {
        let error = take().unwrap_err().to_string();
        let expect = std::env::args().nth(4).unwrap();
        return assert!(error.contains(&expect), "{error}");
    }
    let program = std::env::current_exe().unwrap();
    let datagram = ringmain_sys::datagram::open("127.0.0.1:0".parse().unwrap(), Default::default()).unwrap();
    let stream = socket::stream(&"127.0.0.1:1".parse().unwrap(), None).unwrap();
    let cases = [
        (datagram, "found a datagram socket"),
        (stream, "found a stream socket that does not listen"),
    ];
    for (socket, expect) in cases {
        let test = "inherit::a_successor_refuses_what_does_not_listen";
        let args = ["--exact", test, "--nocapture", expect];
        let mut successor = spawn(&[socket], &program, &args).unwrap();
        assert!(successor.process.wait().unwrap().success(), "{expect}");
    }
}

#[test]
fn a_successor_that_dies_is_an_error() {
    let mut successor = spawn_shell(&[any_port()], "exit 3");
    let error = successor.wait_ready(None).unwrap_err().to_string();
    assert_eq!(error, "the new process ended before it was ready: exit status: 3");
}

#[test]
fn a_successor_that_never_will_be_ready_is_ended() {
    // With one listener the pipe is descriptor 4.
    let mut successor = spawn_shell(&[any_port()], "exec 4>&-; exec sleep 1000");
    let error = successor.wait_ready(None).unwrap_err().to_string();
    assert!(error.contains("signal: 9"), "{error}");
}

#[test]
fn a_successor_that_is_slow_lives_on() {
    let mut successor = spawn_shell(&[any_port()], "exec sleep 1000");
    let error = successor.wait_ready(Some(Duration::from_millis(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(successor.process.try_wait().unwrap().is_none());
    successor.process.kill().unwrap();
    successor.process.wait().unwrap();
}

#[test]
fn a_program_that_is_not_there_says_so() {
    // More listeners than there are low descriptors free, so that the error has to find its way past them.
    let listeners: Vec<_> = (0..8).map(|_| any_port()).collect();
    let error = spawn(&listeners, Path::new("/nonexistent"), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn names_that_the_protocol_cannot_carry_are_refused() {
    let listener = any_port();
    for name in ["", "a:b", "a\nb", "ü", &"x".repeat(256)] {
        let error = spawn_with(&[(listener.as_fd(), name)], Path::new("/bin/true"), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
    }
}

/// Starts this binary by a shell with the given redirections and variables; checks what [`take`] says.
fn check_take(redirections: &str, variables: &str, expect: &str) {
    let script = format!("{redirections} {variables} exec \"$@\"");
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap());
    command.args(["--exact", "inherit::what_take_says", "--nocapture"]);
    let output = program::output(command.env("RINGMAIN_TEST_CHILD", "1")).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(expect), "{script}\n{text}");
}

#[test]
fn what_take_says() {
    if common::is_child() {
        let said = take().map(|all| all.len());
        return match said {
            Ok(count) => println!("took {count}"),
            Err(error) => println!("error: {error}"),
        };
    }
    check_take("", "", "took 0");
    check_take("", "LISTEN_PID=1 LISTEN_FDS=1", "took 0");
    check_take("", "LISTEN_PID=$$ LISTEN_FDS=0", "took 0");
    check_take(
        "",
        "LISTEN_PID=x LISTEN_FDS=1",
        "expected a number in the environment variable LISTEN_PID; found `x`",
    );
    check_take(
        "",
        "LISTEN_PID=$$ LISTEN_FDS=-1",
        "environment variable LISTEN_FDS; found `-1`",
    );
    check_take(
        "",
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=a:b",
        "expected 1 names in LISTEN_FDNAMES",
    );
    let closed = "found no open descriptor";
    check_take(
        "exec 3>&-;",
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web",
        closed,
    );
    check_take(
        "exec 3>&-;",
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web",
        "expected descriptor 3 (web)",
    );
    let file = "found something that is not a socket";
    check_take("exec 3</dev/null;", "LISTEN_PID=$$ LISTEN_FDS=1", file);
    check_take(
        "exec 3</dev/null;",
        "LISTEN_PID=$$ LISTEN_FDS=1",
        "expected descriptor 3 (unknown)",
    );
}
