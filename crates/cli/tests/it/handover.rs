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
use crate::proxy::get;
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

#[test]
fn sockets_of_a_service_manager_are_matched_to_the_listeners_of_a_file() {
    let directory = Directory::new();
    let path = directory.join("s");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let addr = tcp.local_addr().unwrap();
    let file = directory.join("gateway.yaml");
    let write = |listen: &str| {
        let text = format!("listen: {listen}\nroutes: {{r: {{rules: [{{respond: {{body: here}}}}]}}}}\n");
        fs::write(&file, text).unwrap();
    };
    let args = ["run".into(), file.clone().into_os_string(), "-q".into()];
    let listeners = [(unix.as_fd(), "local"), (tcp.as_fd(), "web")];
    // In another order than they are handed over, and with one that is opened.
    write(&format!("['127.0.0.1:0', '{addr}', 'unix:{}']", path.display()));
    let mut server = spawn_with(&listeners, program(), &args).unwrap();
    server.wait_ready(Some(PATIENCE)).unwrap();
    for addr in [addr.to_string(), format!("unix:{}", path.display())] {
        let response = get(&addr, "a", "/");
        assert_eq!((response.status, &*response.body), (200, "here"), "{addr}");
    }
    kill_process(Pid::from_child(&server.process), Signal::TERM).unwrap();
    assert_eq!(wait_end(&mut server.process).code(), Some(0));
    assert!(path.exists(), "the service manager's socket file was removed");

    // The address is in use by a socket of the service manager that has another one.
    write(&format!("0.0.0.0:{}", addr.port()));
    let log = fs::File::create(directory.join("log")).unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args([
        "-c",
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web exec \"$@\" 3<&0",
        "sh",
    ]);
    shell.arg(program()).args(&args);
    shell
        .stdin(tcp.try_clone().map(std::os::fd::OwnedFd::from).unwrap())
        .stderr(log);
    assert_eq!(
        ringmain_testkit::program::spawn(&mut shell)
            .unwrap()
            .wait()
            .unwrap()
            .code(),
        Some(1)
    );
    let log = fs::read_to_string(directory.join("log")).unwrap();
    let expected =
        format!("; inherited listeners with other addresses than those of the configuration: {addr} (web)");
    assert!(log.contains(&expected), "{log}");
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
