//! A service manager's socket (`sd_notify(3)`): the messages of `ringmain run` in their order, and their senders.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::io::{BufRead, BufReader, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringmain_testkit::skipped;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Directory, PATIENCE, Server, check_echo, echo, program};
use crate::proxy::get;

/// A service manager, as far as a service sees one.
struct Manager {
    _folder: Directory,
    socket: UnixDatagram,
    /// The value of `NOTIFY_SOCKET`.
    address: String,
}

/// A message of a service.
#[derive(Debug)]
struct Message {
    sender: i32,
    lines: Vec<String>,
}

impl Message {
    fn value(&self, name: &str) -> Option<&str> {
        let mut values = self.lines.iter().filter_map(|line| line.split_once('='));
        values.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    #[track_caller]
    fn expect(&self, name: &str) -> &str {
        self.value(name)
            .unwrap_or_else(|| panic!("expected {name}, found {self:?}"))
    }
}

impl Manager {
    fn at_path() -> Manager {
        let folder = Directory::new();
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        Manager::new(folder, socket, path.display().to_string())
    }

    fn at_abstract_name() -> Manager {
        let folder = Directory::new();
        // As unique as the folder.
        let name = folder.join("notify").display().to_string();
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        Manager::new(folder, socket, format!("@{name}"))
    }

    fn new(folder: Directory, socket: UnixDatagram, address: String) -> Manager {
        sockopt::set_socket_passcred(&socket, true).expect("a socket");
        Manager {
            _folder: folder,
            socket,
            address,
        }
    }

    /// Returns the next message within this time.
    fn receive(&self, within: Duration) -> Option<Message> {
        self.socket.set_read_timeout(Some(within)).expect("a socket");
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut buffers = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut buffers, &mut ancillary, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                received => break received.expect("a socket").bytes,
            }
        };
        let credentials = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials),
            _ => None,
        });
        Some(Message {
            sender: Pid::as_raw(credentials.map(|credentials| credentials.pid)),
            lines: String::from_utf8_lossy(&bytes[..received])
                .split('\n')
                .map(str::to_owned)
                .collect(),
        })
    }

    #[track_caller]
    fn next(&self) -> Message {
        self.receive(PATIENCE).expect("a message of the service")
    }

    /// Receives the next message, which has `name=value`.
    #[track_caller]
    fn next_with(&self, name: &str, value: &str) -> Message {
        let message = self.next();
        assert_eq!(message.value(name), Some(value), "{message:?}");
        message
    }

    #[track_caller]
    fn next_reload(&self) -> Message {
        let message = self.next_with("RELOADING", "1");
        let since = message.expect("MONOTONIC_USEC").parse::<u64>();
        assert!(since.is_ok_and(|since| since > 0), "{message:?}");
        self.next_with("READY", "1")
    }

    fn service(&self, mut command: Command) -> Command {
        command.env("NOTIFY_SOCKET", &self.address);
        command
    }
}

fn run(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("run").args(args);
    command
}

/// Writes a file that responds with its version.
fn write_version(path: &Path, version: u32) {
    let text = format!(
        "listen: 127.0.0.1:0\nroutes:\n  all:\n    rules:\n      - respond: {{body: \"{version}\"}}\n"
    );
    fs::write(path, text).expect("written");
}

#[test]
fn the_built_in_application_reports_start_reload_and_stop() {
    for manager in [Manager::at_path(), Manager::at_abstract_name()] {
        let (server, addrs) = Server::start(
            &mut manager.service(run(&["--listen", "127.0.0.1:0", "--workers", "2"])),
            1,
        );
        let message = manager.next_with("READY", "1");
        assert_eq!(message.sender, server.pid().as_raw_nonzero().get());
        assert_eq!(message.expect("STATUS"), format!("Listening on {}", addrs[0]));
        assert_eq!(get(&addrs[0], "a", "/healthz").status, 200);
        server.signal(Signal::HUP);
        manager.next_reload();
        server.signal(Signal::TERM);
        let message = manager.next_with("STOPPING", "1");
        // The connection of the request may be among them: its end is not awaited.
        let status = message.expect("STATUS");
        assert!(
            status.starts_with("Shutting down, connections still open: "),
            "{status}"
        );
        server.finish();
        assert!(manager.receive(Duration::from_millis(1)).is_none());
    }
}

#[test]
fn a_gateway_reports_reloads_of_its_file() {
    let manager = Manager::at_path();
    let folder = Directory::new();
    let file = folder.join("gateway.yaml");
    write_version(&file, 1);
    let mut command = manager.service(run(&[&file.display().to_string()]));
    let (server, addrs) = Server::start(&mut command, 1);
    let message = manager.next_with("READY", "1");
    assert_eq!(message.expect("STATUS"), format!("Listening on {}", addrs[0]));

    write_version(&file, 2);
    let message = manager.next_reload();
    assert!(
        message.expect("STATUS").starts_with("Configuration reloaded in "),
        "{message:?}"
    );
    assert_eq!(get(&addrs[0], "a", "/").body, "2");

    server.signal(Signal::HUP);
    let message = manager.next_reload();
    assert_eq!(message.expect("STATUS"), "Configuration reloaded: unchanged");

    fs::write(&file, "listen: 127.0.0.1:0\nroutes: 7\n").expect("written");
    let message = manager.next_reload();
    let expected = format!(
        "Keeping the previous configuration: {}:2:9: expected ",
        file.display()
    );
    assert!(message.expect("STATUS").starts_with(&expected), "{message:?}");
    assert_eq!(get(&addrs[0], "a", "/").body, "2");

    server.signal(Signal::TERM);
    manager.next_with("STOPPING", "1");
    server.finish();
    assert!(manager.receive(Duration::from_millis(1)).is_none());
}

#[test]
fn a_delayed_shutdown_is_announced_when_it_is_requested() {
    let manager = Manager::at_path();
    let folder = Directory::new();
    let file = folder.join("gateway.yaml");
    write_version(&file, 1);
    let text = fs::read_to_string(&file).expect("written") + "limits: {drain_delay: 1h}\n";
    fs::write(&file, text).expect("written");
    let mut command = manager.service(run(&[&file.display().to_string()]));
    let (mut server, addrs) = Server::start(&mut command, 1);
    manager.next_with("READY", "1");
    server.signal(Signal::TERM);
    let message = manager.next_with("STOPPING", "1");
    let status = message.expect("STATUS");
    assert!(
        status.starts_with("Shutting down in 3600 s, still serving; connections open: "),
        "{status}"
    );
    server.wait_for("shutting down in 3600 s");
    assert_eq!(get(&addrs[0], "a", "/").body, "1");
    server.signal(Signal::TERM);
    let message = manager.next();
    let status = message.expect("STATUS");
    assert!(
        status.starts_with("Shutting down, connections still open: "),
        "{status}"
    );
    server.finish();
    assert!(manager.receive(Duration::from_millis(1)).is_none());
}

#[test]
fn an_upgrade_announces_the_new_process_which_sends_the_pings_from_then_on() {
    let manager = Manager::at_path();
    // The service manager names the process that it expects pings of.
    let script = "WATCHDOG_USEC=400000 WATCHDOG_PID=$$ exec \"$@\"";
    let mut command = manager.service(Command::new("/bin/sh"));
    command.args(["-c", script, "sh"]).arg(program()).args([
        "run",
        "--echo",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "2",
    ]);
    let (mut server, addrs) = Server::start(&mut command, 1);
    let old = server.pid().as_raw_nonzero().get();
    manager.next_with("READY", "1");
    assert_eq!(manager.next_with("WATCHDOG", "1").sender, old);

    server.signal(Signal::USR2);
    let announced = loop {
        let message = manager.next();
        assert_eq!(message.sender, old, "{message:?}");
        if message.value("MAINPID").is_some() {
            break message;
        }
        assert_eq!(message.lines, ["WATCHDOG=1"]);
    };
    assert_eq!(announced.expect("WATCHDOG"), "1");
    let new: i32 = announced.expect("MAINPID").parse().expect("a number");
    let message = manager.next_with("READY", "1");
    assert_eq!(message.sender, new);
    assert_eq!(message.expect("STATUS"), format!("Listening on {}", addrs[0]));
    for _ in 0..3 {
        assert_eq!(manager.next_with("WATCHDOG", "1").sender, new);
    }
    server.wait_for("all connections are closed");
    check_echo(&addrs[0]);
    kill_process(Pid::from_raw(new).expect("a process"), Signal::TERM).expect("a process");
    let stopped =
        std::iter::repeat_with(|| manager.next()).find(|message| message.value("STOPPING").is_some());
    assert_eq!(stopped.map(|message| message.sender), Some(new));
    server.finish();
}

#[test]
fn a_failed_upgrade_is_reported_by_the_process_that_still_serves() {
    let manager = Manager::at_path();
    let folder = Directory::new();
    let installed = folder.join("ringmain");
    fs::copy(program(), &installed).expect("copied");
    let mut command = manager.service(Command::new(&installed));
    command.args(["run", "--echo", "--listen", "127.0.0.1:0"]);
    let (server, addrs) = Server::start(&mut command, 1);
    manager.next_with("READY", "1");
    fs::rename(&installed, folder.join("old")).expect("renamed");
    fs::copy("/bin/false", &installed).expect("copied");
    server.signal(Signal::USR2);
    let message = manager.next();
    let status = message.expect("STATUS");
    assert!(
        status.starts_with("Upgrade failed, the previous process still serves: "),
        "{status}"
    );
    check_echo(&addrs[0]);
    server.signal(Signal::TERM);
    manager.next_with("STOPPING", "1");
    server.finish();
}

/// The thread of a process with this name.
fn thread_named(server: &Server, name: &str) -> i32 {
    let folder = format!("/proc/{}/task", server.pid().as_raw_nonzero());
    let mut threads = fs::read_dir(folder).expect("threads").flatten();
    let is_it = |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name);
    let thread = threads.find(|thread| is_it(&thread.path())).expect("a thread");
    thread.file_name().to_string_lossy().parse().expect("a number")
}

/// A debugger that holds a thread until this is dropped.
struct Held(Child);

/// Attaches to the thread in its first argument, and stops it alone (`PTRACE_SEIZE`, `PTRACE_INTERRUPT`).
const HOLD: &str = "
import ctypes, os, sys
libc, thread = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
if libc.ptrace(0x4206, thread, None, None) or libc.ptrace(0x4207, thread, None, None):
    sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(thread, 0x40000000)
print('held', flush=True)
sys.stdin.read()
";

impl Held {
    /// `None` where there is no Python, or no process may be traced.
    fn new(thread: i32) -> Option<Held> {
        let mut command = Command::new("python3");
        command.args(["-c", HOLD, &thread.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line);
        let held = Held(child);
        (read.is_ok() && line == "held\n").then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The kernel detaches it, and the thread continues.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pings_are_sent_while_all_workers_turn() {
    let manager = Manager::at_path();
    let mut command = manager.service(echo(&["--listen", "127.0.0.1:0", "--workers", "2"]));
    command.env("WATCHDOG_USEC", "200000");
    let (server, addrs) = Server::start(&mut command, 1);
    manager.next_with("READY", "1");
    for _ in 0..3 {
        manager.next_with("WATCHDOG", "1");
    }
    let Some(held) = Held::new(thread_named(&server, "ringmain-1")) else {
        return skipped("no process may be traced here");
    };
    // Pings from before, and one more: the next check sees turns from before.
    while manager.receive(Duration::from_millis(1)).is_some() {}
    let _ = manager.receive(Duration::from_millis(500));
    let message = manager.receive(Duration::from_millis(600));
    assert!(
        message.is_none(),
        "a ping while a worker does not turn: {message:?}"
    );
    drop(held);
    for _ in 0..3 {
        manager.next_with("WATCHDOG", "1");
    }
    check_echo(&addrs[0]);
    server.terminate();
}

#[test]
fn a_service_manager_that_is_absent_changes_nothing() {
    let mut command = echo(&["--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", "/nowhere/notify");
    let (mut server, addrs) = Server::start(&mut command, 1);
    let line = server.line_with("cannot notify the service manager");
    assert!(line.contains("No such file or directory"), "{line}");
    check_echo(&addrs[0]);
    server.terminate();
}
