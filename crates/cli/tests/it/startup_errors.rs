//! Bad input and a host that refuses: one clear line, exit code 2 for usage and 1 for the rest.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{
    Directory, Server, check_echo, echo, engines, fails, fails_with, program, skipped, wrapped,
};
use ringmain_sys::seccomp;

fn check(command: &mut Command, code: i32, expect: &[&str]) {
    let error = fails(command, code);
    for text in expect {
        assert!(error.contains(text), "expected `{text}` in: {error}");
    }
}

#[test]
fn a_wrong_command_line() {
    check(
        Command::new(program()).arg("serve"),
        2,
        &["unrecognized subcommand 'serve'"],
    );
    check(
        &mut echo(&["--worker", "1"]),
        2,
        &["'--worker'", "tip: ", "'--workers'"],
    );
    check(
        &mut echo(&["--workers", "0"]),
        2,
        &["'0'", "--workers", "from 1 to 1024"],
    );
    check(
        &mut echo(&["--listen", "localhost:80"]),
        2,
        &["`localhost:80`", "write 127.0.0.1:80"],
    );
    check(&mut echo(&["--listen", "127.0.0.1"]), 2, &["add a port"]);
    check(&mut echo(&["--listen", "127.0.0.1:70000"]), 2, &["0 to 65535"]);
    check(
        &mut echo(&["--engine", "epoll", "--sqpoll"]),
        2,
        &["--sqpoll is for io_uring"],
    );
}

#[test]
fn help_of_a_command_is_its_own() {
    let help = |args: &[&str]| {
        let output = Command::new(program()).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(help(&["help"]), help(&["--help"]));
    assert_eq!(help(&["help", "check"]), help(&["check", "--help"]));
    assert_eq!(
        help(&["help", "bench", "push"]),
        help(&["bench", "push", "--help"])
    );
    check(
        Command::new(program()).args(["help", "serve"]),
        2,
        &["unrecognized subcommand 'serve'"],
    );
}

#[test]
fn a_file_that_does_not_exist_can_be_written() {
    let directory = Directory::new();
    let file = directory.join("proxy.yaml");
    for command in ["run", "check"] {
        check(
            Command::new(program()).arg(command).arg(&file),
            2,
            &[
                "proxy.yaml: No such file or directory",
                "`ringmain init gateway` writes one",
            ],
        );
    }
}

#[test]
fn help_and_version_are_data() {
    for args in [
        &["--help"][..],
        &["-h"],
        &["run", "--help"],
        &["--version"],
        &["man"],
        &["completions", "fish"],
    ] {
        let output = Command::new(program()).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(
            output.stderr.is_empty() && output.stdout.ends_with(b"\n"),
            "{output:?}"
        );
    }
    let version = |flag| {
        let output = Command::new(program()).arg(flag).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let first = format!("ringmain {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version("-V"), first);
    let long = version("--version");
    let engine = if engines().contains(&"uring") {
        "uring with "
    } else {
        "epoll; "
    };
    let expect = format!("{first}engine: {engine}");
    assert!(long.starts_with(&expect), "expected {expect} in: {long}");
    assert!(long.contains("\nkernel: Linux "), "{long}");
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    for workers in ["1", "2"] {
        let args = ["--listen", &addr.to_string(), "--workers", workers];
        let expect = [
            &format!("cannot listen on {addr}: port {} is in use", addr.port())[..],
            "ss -ltnp",
        ];
        check(&mut echo(&args), 1, &expect);
    }
}

#[test]
fn a_running_instance_keeps_its_port_and_its_socket() {
    let directory = Directory::new();
    let path = format!("unix:{}", directory.join("s").display());
    let (server, addrs) = Server::start(&mut echo(&["--listen", "127.0.0.1:0", "--listen", &path]), 2);
    for addr in &addrs {
        check(&mut echo(&["--listen", addr]), 1, &["in use"]);
    }
    check_echo(&addrs[0]);
    check_echo(&addrs[1]);
    server.terminate();
}

#[test]
fn a_failed_start_leaves_no_socket_file() {
    let directory = Directory::new();
    let path = format!("unix:{}", directory.join("s").display());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    check(&mut echo(&["--listen", &path, "--listen", &addr]), 1, &["in use"]);
    assert!(!directory.join("s").exists(), "the socket file stays");
}

#[test]
fn an_address_of_no_interface() {
    // TEST-NET-1 (RFC 5737) is assigned to no host.
    check(
        &mut echo(&["--listen", "192.0.2.1:0"]),
        1,
        &["no interface", "ip -brief address"],
    );
}

fn limited(descriptors: u32, args: &[&str]) -> Command {
    let limit = format!("--nofile={descriptors}:{descriptors}");
    wrapped(&["prlimit", &limit], program(), args)
}

#[test]
fn a_low_descriptor_limit_serves() {
    for engine in engines() {
        let args = ["--engine", engine, "--listen", "127.0.0.1:0", "--workers", "2"];
        let (server, addrs) = Server::start(&mut limited(64, &args), 1);
        assert!(
            server
                .said
                .iter()
                .any(|line| line.contains("descriptors up to 64")),
            "{:#?}",
            server.said
        );
        check_echo(&addrs[0]);
        server.terminate();
    }
}

#[test]
fn a_descriptor_limit_below_the_minimum() {
    for engine in engines() {
        let args = ["--engine", engine, "--listen", "127.0.0.1:0"];
        check(
            &mut limited(40, &args),
            1,
            &["descriptor limit", "at least 64", "ulimit -n", "found 40"],
        );
    }
}

/// Not root itself, nor able to become it.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A copy of the program where everybody may run it; `None`, and a loud word, where this is not root.
fn for_nobody(directory: &Directory) -> Option<std::path::PathBuf> {
    if ringmain_sys::process::uid() != 0 {
        skipped("not root, so the program cannot be run as another user");
        return None;
    }
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = directory.join("ringmain");
    fs::copy(program(), &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    Some(copy)
}

#[test]
fn no_permission_for_a_low_port() {
    let directory = Directory::new();
    let Some(program) = for_nobody(&directory) else {
        return;
    };
    let start = ringmain_sys::sysctl::read("net.ipv4.ip_unprivileged_port_start");
    let start: u32 = start.and_then(|text| text.trim().parse().ok()).unwrap();
    if start <= 80 {
        skipped(&format!(
            "everybody may listen on port 80 here (net.ipv4.ip_unprivileged_port_start={start})"
        ));
        return;
    }
    let mut command = wrapped(&NOBODY, &program, &["--listen", "127.0.0.1:80"]);
    let expect = [
        "no permission for port 80",
        "CAP_NET_BIND_SERVICE",
        &format!("below {start}"),
    ];
    check(&mut command, 1, &expect);
}

#[test]
fn no_permission_for_a_directory() {
    let directory = Directory::new();
    let Some(program) = for_nobody(&directory) else {
        return;
    };
    let private = directory.join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    let path = private.join("s").display().to_string();
    check(
        &mut wrapped(&NOBODY, &program, &["--listen", &path]),
        1,
        &["no permission", "private"],
    );
    assert!(!private.join("s").exists());
}

/// Starts the program with a seccomp filter that fails every io_uring call with this error. A filter applies to a thread and
/// its children, so that the program has its own thread.
fn without_io_uring(errno: i32, args: &[&str]) -> Server {
    let mut command = echo(args);
    let thread = std::thread::spawn(move || {
        seccomp::deny(&seccomp::io_uring_syscalls(), errno).unwrap();
        Server::spawn(&mut command)
    });
    thread.join().unwrap()
}

#[test]
fn denied_io_uring_falls_back_to_epoll_with_a_reason() {
    let (eperm, enosys) = (1, 38);
    for (errno, reason) in [(eperm, "EPERM"), (enosys, "ENOSYS")] {
        let mut server = without_io_uring(errno, &["--listen", "127.0.0.1:0", "--sqpoll"]);
        let addr = server.listening();
        let said = server.said.join("\n");
        for text in [
            "io_uring is not available: ",
            reason,
            "seccomp",
            "docs/how-to/container.md",
            "; using epoll",
            "engine epoll",
            "--sqpoll has no effect",
        ] {
            assert!(said.contains(text), "expected `{text}` in: {said}");
        }
        check_echo(&addr);
        server.terminate();
    }
}

#[test]
fn denied_io_uring_fails_with_advice_if_forced() {
    let (eperm, enosys) = (1, 38);
    for errno in [eperm, enosys] {
        let error = fails_with(
            without_io_uring(errno, &["--listen", "127.0.0.1:0", "--engine", "uring"]),
            1,
        );
        for text in ["io_uring is not available", "seccomp", "--engine epoll"] {
            assert!(error.contains(text), "expected `{text}` in: {error}");
        }
    }
}
