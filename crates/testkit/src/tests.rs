//! Shells as programs, ports that are reserved, folders, waits.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::Signal;

use crate::folder::Folder;
use crate::port::{Reserved, unused};
use crate::program::Program;
use crate::wait;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn lines_are_found_in_any_order() {
    let mut program = Program::spawn(&mut shell(
        "for line in one two three four; do echo $line >&2; done",
    ));
    assert_eq!(program.wait_for_each(&["three", "one"]), ["three", "one"]);
    let (status, said) = program.finish();
    assert_eq!(
        (status.code(), said),
        (
            Some(0),
            ["one", "two", "three", "four"].map(str::to_owned).to_vec()
        )
    );
}

#[test]
fn a_program_is_started_listens_and_is_terminated() {
    let script = "echo listening on 127.0.0.1:7 >&2; echo listening on [::1]:7 >&2; \
                  trap 'echo bye >&2; exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done";
    let (mut program, addrs) = Program::start(&mut shell(script), 2);
    assert_eq!(addrs, ["127.0.0.1:7", "[::1]:7"]);
    program.wait_for("ready");
    assert_eq!(program.terminate().last().map(String::as_str), Some("bye"));
}

#[test]
fn a_dropped_program_has_ended() {
    let mut program = Program::spawn(&mut shell("echo on >&2; exec sleep 1000"));
    program.wait_for("on");
    let pid = program.pid();
    drop(program);
    assert!(rustix::process::kill_process(pid, Signal::TERM).is_err());
}

#[test]
fn a_reserved_port_is_refused_until_a_server_takes_it() {
    let reserved = Reserved::new();
    let connect = || {
        TcpStream::connect(reserved.addr())
            .map(drop)
            .map_err(|error| error.kind())
    };
    for _ in 0..3 {
        // A child that another test starts holds a copy of the listener until its exec.
        wait::until("a refusal", || connect() == Err(ErrorKind::ConnectionRefused));
        let listener = TcpListener::bind(reserved.addr()).expect("it is reserved for this");
        assert_eq!(connect(), Ok(()));
        drop(listener);
    }
    let others: Vec<Reserved> = (0..100).map(|_| Reserved::new()).collect();
    assert!(others.iter().all(|other| other.port() != reserved.port()));
    assert_ne!(unused().ip(), unused().ip());
}

#[test]
fn folders_are_apart_and_go() {
    let (one, other) = (Folder::new(), Folder::new());
    let file = one.file("a", "text");
    assert!(!other.join("a").exists() && file.is_file());
    drop(one);
    assert!(!file.exists() && other.path().is_dir());
}

#[test]
fn a_wait_ends_with_what_it_waits_for() {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || sender.send(7));
    assert_eq!(wait::find("a number", || receiver.try_recv().ok()), 7);
    wait::until("the thread", || thread.is_finished());
    let mut looks = 0;
    wait::until("the third look", || {
        looks += 1;
        looks == 3
    });
    assert_eq!(looks, 3);
    let checked = wait::until_ok("the fifth look", || {
        looks += 1;
        if looks == 5 { Ok(looks) } else { Err(looks) }
    });
    assert_eq!(checked, 5);
    let patience = wait::Patience::new();
    assert!(!patience.is_over() && patience.left() <= crate::PATIENCE);
}

#[test]
fn work_takes_as_long_as_it_must() {
    let span = Duration::from_millis(5);
    assert_eq!(
        wait::at_least(span, || {
            wait::pause(span);
            7
        }),
        7
    );
    let quick = std::panic::catch_unwind(|| wait::at_least(crate::PATIENCE, || ()));
    let text = quick.expect_err("it is quicker");
    let text = text.downcast_ref::<String>().expect("a message");
    assert!(text.starts_with("expected 60s or longer, found "), "{text}");
}
