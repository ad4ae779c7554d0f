//! The binary under test: starting it, reading what it says, ending it. Every wait has an end.

#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// How long anything may take before a test fails. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ringmain"))
}

/// `ringmain run --echo` and these arguments.
pub(crate) fn echo(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["run", "--echo"]).args(args);
    command
}

/// `wrapper… ringmain run --echo` and these arguments.
pub(crate) fn wrapped(wrapper: &[&str], program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .arg(program)
        .args(["run", "--echo"])
        .args(args);
    command
}

/// A server at work, or about to be. Dropping it ends it.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    /// All that it has said so far.
    pub(crate) said: Vec<String>,
}

impl Server {
    /// Starts it and does not wait.
    pub(crate) fn spawn(command: &mut Command) -> Server {
        Server::spawn_with(command, Stdio::null())
    }

    fn spawn_with(command: &mut Command, stdout: Stdio) -> Server {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // A test that is over hears nothing more.
                let _ = sender.send(line);
            }
        });
        Server {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Starts it and waits until it listens; returns the addresses too, in the order in which it says them.
    pub(crate) fn start(command: &mut Command, count: usize) -> (Server, Vec<String>) {
        let server = Server::spawn(command);
        server.until_listening(count)
    }

    /// As [`Server::start`]; its standard output goes to a file.
    pub(crate) fn start_with(command: &mut Command, stdout: fs::File, count: usize) -> (Server, Vec<String>) {
        let server = Server::spawn_with(command, stdout.into());
        server.until_listening(count)
    }

    fn until_listening(mut self, count: usize) -> (Server, Vec<String>) {
        let addrs = (0..count).map(|_| self.listening()).collect();
        (self, addrs)
    }

    /// Waits for the next `listening on ADDR`.
    pub(crate) fn listening(&mut self) -> String {
        let line = self.wait_for("listening on ");
        line.split_once("listening on ").unwrap().1.to_owned()
    }

    /// Waits for the next line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        self.wait_for_each(&[text]).remove(0)
    }

    /// Waits until each of these texts has been in a new line, in any order; returns the lines.
    pub(crate) fn wait_for_each(&mut self, texts: &[&str]) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        let mut found = vec![None; texts.len()];
        while let Some(missing) = found.iter().position(Option::is_none) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("`{}` was never said: {:#?}", texts[missing], self.said);
            };
            let place = texts
                .iter()
                .zip(&mut found)
                .find(|(text, place)| place.is_none() && line.contains(*text));
            if let Some((_, place)) = place {
                *place = Some(line.clone());
            }
            self.said.push(line);
        }
        found.into_iter().flatten().collect()
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end; returns how it ended and all that it said.
    pub(crate) fn finish(mut self) -> (ExitStatus, Vec<String>) {
        let end = Instant::now() + PATIENCE;
        // Standard error ends with the process (and its successors, which a test ends first).
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.said),
            }
        }
        let status = self.child.wait().unwrap();
        (status, std::mem::take(&mut self.said))
    }

    /// SIGTERM, then [`Server::finish`]; asserts exit code 0.
    pub(crate) fn terminate(self) -> Vec<String> {
        self.signal(Signal::TERM);
        let (status, said) = self.finish();
        assert_eq!(status.code(), Some(0), "{said:#?}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `finish` there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Expects the program to end by itself with this code and one line of error, which is returned.
pub(crate) fn fails(command: &mut Command, code: i32) -> String {
    fails_with(Server::spawn(command), code)
}

/// As [`fails`], for one that is started already.
pub(crate) fn fails_with(server: Server, code: i32) -> String {
    let (status, said) = server.finish();
    assert_eq!(status.code(), Some(code), "{said:#?}");
    let errors: Vec<&String> = said.iter().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "expected one line of error: {said:#?}");
    assert!(
        !said
            .iter()
            .any(|line| line.contains("panic") || line.contains("RUST_BACKTRACE")),
        "{said:#?}"
    );
    errors[0].clone()
}

/// A connected stream of any family.
pub(crate) trait Stream: Read + Write + Send {
    /// No more will be written.
    fn finish(&self);
}

impl Stream for TcpStream {
    fn finish(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

impl Stream for UnixStream {
    fn finish(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// Connects to an address as the program says it; an error if nobody listens.
pub(crate) fn try_connect(addr: &str) -> std::io::Result<Box<dyn Stream>> {
    if let Some(name) = addr.strip_prefix("unix:") {
        let stream = match name.strip_prefix('@') {
            Some(name) => UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?)?,
            None => UnixStream::connect(name)?,
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        return Ok(Box::new(stream));
    }
    let addr: SocketAddr = addr.parse().unwrap();
    let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(Box::new(stream))
}

/// As [`try_connect`], where somebody must listen.
pub(crate) fn connect(addr: &str) -> Box<dyn Stream> {
    try_connect(addr).unwrap_or_else(|error| panic!("{addr}: {error}"))
}

/// Sends a message and reads it back.
pub(crate) fn exchange(stream: &mut dyn Stream, message: &[u8]) -> std::io::Result<()> {
    stream.write_all(message)?;
    let mut back = vec![0; message.len()];
    stream.read_exact(&mut back)?;
    assert!(back == message, "other bytes came back");
    Ok(())
}

/// One connection: a short and a long message, then the end from both sides.
pub(crate) fn check_echo(addr: &str) {
    let mut stream = connect(addr);
    exchange(&mut *stream, b"hello").unwrap();
    let long: Vec<u8> = (0..40_000u32).map(|n| (n * 7 % 251) as u8).collect();
    exchange(&mut *stream, &long).unwrap();
    stream.finish();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "more came back than was sent");
}

/// A directory of this test's own that everybody may search, removed at the end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringmain-cli-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's cleaning of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Both back-ends by their names; `uring` only where it is to be had, which is said loudly.
pub(crate) fn engines() -> Vec<&'static str> {
    if ringmain_engine::probe::probe(&ringmain_engine::Config::default()).is_ok_and(|found| found.uring) {
        return vec!["uring", "epoll"];
    }
    skipped("no io_uring here, so only epoll is tested");
    vec!["epoll"]
}

/// Waits for the end of a process that was started without [`Server`].
pub(crate) fn wait_end(child: &mut Child) -> ExitStatus {
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&patience)).unwrap();
    if ended == 0 {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    assert_eq!(ended, 1, "it does not end");
    status
}

/// Says that something was not tested here. Past the test runner, which shows nothing of a test that passes.
pub(crate) fn skipped(what: &str) {
    let line = format!("SKIPPED: {what}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
