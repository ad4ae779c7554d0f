//! Inherited listeners: from a service manager, from a previous instance, and after a failed upgrade.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::common::{Directory, PATIENCE, Server, check_echo, program, wait_end};
use ringmain_sys::inherit::spawn_with;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn sockets_of_a_service_manager_are_served_and_stay_its_own() {
    let directory = Directory::new();
    let path = directory.join("s");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let addr = tcp.local_addr().unwrap().to_string();
    let listeners = [(tcp.as_fd(), "web"), (unix.as_fd(), "local")];
    // The address is among those handed over: opening it a second time would fail.
    let args = ["run", "--echo", "-q", "--workers", "2", "--listen", &addr].map(OsString::from);
    let mut server = spawn_with(&listeners, program(), &args).unwrap();
    server.wait_ready(Some(PATIENCE)).unwrap();
    check_echo(&addr);
    check_echo(&format!("unix:{}", path.display()));
    kill_process(Pid::from_child(&server.process), Signal::TERM).unwrap();
    assert_eq!(wait_end(&mut server.process).code(), Some(0));
    assert!(path.exists(), "the service manager's socket file was removed");
}

/// Puts a program at `path`, which may be running: a new file takes the name.
fn install(from: &Path, path: &Path) {
    let new = path.with_extension("new");
    fs::copy(from, &new).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn an_upgrade_starts_the_new_file_and_a_broken_one_changes_nothing() {
    let directory = Directory::new();
    let (installed, socket) = (directory.join("ringmain"), directory.join("s"));
    install(program(), &installed);
    let listen = format!("unix:{}", socket.display());
    let mut command = Command::new(&installed);
    command.args(["run", "--echo", "--listen", &listen, "--listen", "127.0.0.1:0"]);
    let (mut server, addrs) = Server::start(&mut command, 2);

    install(Path::new("/bin/false"), &installed);
    server.signal(Signal::USR2);
    let line = server.wait_for("the new instance did not come up, this one goes on serving");
    assert!(
        line.contains("ended before it was ready: exit status: 1"),
        "{line}"
    );
    assert!(
        socket.exists(),
        "a successor that failed has removed the socket file"
    );
    addrs.iter().for_each(|addr| check_echo(addr));

    install(program(), &installed);
    server.signal(Signal::USR2);
    let lines = server.wait_for_each(&[" serves now", "all connections are closed"]);
    let number = lines[0]
        .split("process ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let exe = fs::read_link(format!("/proc/{number}/exe")).unwrap();
    assert_eq!(exe, fs::canonicalize(&installed).unwrap());
    addrs.iter().for_each(|addr| check_echo(addr));
    kill_process(Pid::from_raw(number.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    server.wait_for("all connections are closed");
    server.finish();
    assert!(!socket.exists(), "the socket file stays");
}
