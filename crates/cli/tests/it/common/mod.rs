//! The binary under test: starts it, reads its output, ends it. Every wait is bounded.

#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::path::Path;
use std::process::Command;

pub(crate) use ringmain_testkit::folder::Folder as Directory;
pub(crate) use ringmain_testkit::program::{Program as Server, wait_end};
pub(crate) use ringmain_testkit::{PATIENCE, skipped};

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

/// Connects to an address as the program prints it. Returns an error if no listener has it.
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

/// As [`try_connect`], and panics if no listener has the address.
pub(crate) fn connect(addr: &str) -> Box<dyn Stream> {
    try_connect(addr).unwrap_or_else(|error| panic!("{addr}: {error}"))
}

/// Sends a message and reads it back.
pub(crate) fn exchange(stream: &mut dyn Stream, message: &[u8]) -> std::io::Result<()> {
    stream.write_all(message)?;
    let mut back = vec![0; message.len()];
    stream.read_exact(&mut back)?;
    assert!(back == message, "other bytes were received");
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
    assert!(rest.is_empty(), "more bytes were received than sent");
}

/// Both back-ends by their names; `uring` only where it is to be had, which is said loudly.
pub(crate) fn engines() -> Vec<&'static str> {
    if ringmain_engine::probe::probe(&ringmain_engine::Config::default()).is_ok_and(|found| found.uring) {
        return vec!["uring", "epoll"];
    }
    skipped("no io_uring here, so only epoll is tested");
    vec!["epoll"]
}
