//! A built example at work, and a client that speaks to it by one plain socket. Every wait has an end.

#![allow(
    clippy::disallowed_methods,
    reason = "tests of a real program have real threads and real time"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, UNIX_EPOCH};

use ringmain::engine::{Layer, LayerEvent};
use ringmain::tls::{ClientSettings, Connector, PeerName, Trust};
use ringmain_testkit::wait::Patience;
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take before a test fails. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An example of this package, not started yet.
pub(crate) fn example(name: &str) -> Command {
    // Beside this test: …/deps/it-0123456789abcdef and …/examples/NAME.
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.set_file_name("examples");
    path.push(name);
    assert!(
        is_fresh(&path),
        "expected an up-to-date example at {}: `cargo test -p ringmain` builds it, `cargo test --test …` does not",
        path.display()
    );
    Command::new(path)
}

/// Whether the program is there and younger than all of its sources, which cargo lists beside it.
fn is_fresh(program: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let Ok(sources) = std::fs::read_to_string(program.with_extension("d")) else {
        return false;
    };
    let built = modified(program);
    let sources = sources.split_once(": ").unwrap().1.split_whitespace();
    built.is_some()
        && sources
            .into_iter()
            .all(|source| modified(Path::new(source)) <= built)
}

/// Asks one thing by TLS, of anybody; returns all that comes until the end.
pub(crate) fn ask_by_tls(addr: &str, request: &str) -> String {
    let now = UNIX_EPOCH.elapsed().unwrap();
    let connector = Connector::new(&ClientSettings::new(Trust::AnybodyInsecure), now).unwrap();
    let mut tls = connector
        .handle()
        .connect(&PeerName::new("localhost").unwrap(), now);
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut wire, mut plain, mut received) = (Vec::new(), Vec::new(), Vec::new());
    tls.begin(&mut wire);
    loop {
        stream.write_all(&wire).unwrap();
        wire.clear();
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the end without its announcement behind {plain:?}");
        received.extend_from_slice(&buffer[..count]);
        loop {
            let step = tls.receive(&mut received, &mut wire);
            match step.event {
                LayerEvent::Plain(range) => plain.extend_from_slice(&received[range]),
                LayerEvent::Established => {
                    let request = format!(
                        "{request} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                    );
                    tls.send(request.as_bytes(), &mut wire).unwrap();
                }
                LayerEvent::End => return String::from_utf8(plain).unwrap(),
                LayerEvent::Failed | LayerEvent::Refused => panic!("{:?}", tls.fault()),
                LayerEvent::Nothing if step.consumed > 0 => {}
                LayerEvent::Nothing | LayerEvent::NeedMore => break,
            }
            received.drain(..step.consumed);
        }
    }
}

/// An example that listens. Dropping it ends it.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    addr: String,
}

/// An answer, its body without framing.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// Starts an example on a free port of the loopback, with further arguments.
    pub(crate) fn start(name: &str, args: &[&str]) -> Server {
        let mut server = Server::spawn(example(name).arg("127.0.0.1:0").args(args));
        let line = server.wait_for("listening on ");
        server.addr = line.split_once("listening on ").unwrap().1.to_owned();
        server
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// Waits for the next line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let patience = Patience::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(patience.left()) else {
                panic!("`{text}` was never said: {:#?}", self.said);
            };
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Has it started anew (SIGUSR2); returns the successor, at the same address, when the first process has ended.
    pub(crate) fn replace(&mut self) -> Pid {
        kill_process(Pid::from_child(&self.child), Signal::USR2).unwrap();
        let line = self.wait_for(" serves now");
        let pid = line.split_whitespace().find_map(|word| word.parse().ok());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        Pid::from_raw(pid.unwrap()).unwrap()
    }

    /// Starts it and does not wait.
    pub(crate) fn spawn(command: &mut Command) -> Server {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
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
            addr: String::new(),
        }
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// One request on a connection of its own. `fields`: lines, each with its end.
    pub(crate) fn ask(&self, request: &str, fields: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        Answer::read(stream)
    }

    /// Two requests on one connection, at once: the first answer, with the second one as its body.
    pub(crate) fn both(&self, first: &str, second: &str) -> Answer {
        let mut stream = self.connect();
        let first = format!("{first} HTTP/1.1\r\nHost: test\r\n\r\n");
        let second = format!("{second} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all((first + &second).as_bytes()).unwrap();
        Answer::read(stream)
    }

    /// Sends SIGTERM and waits for the end, which must be a success. Returns what came on standard output: little, for
    /// nobody has read it before.
    pub(crate) fn terminate(mut self) -> String {
        let mut stdout = self.child.stdout.take().unwrap();
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let (code, said) = self.finish();
        assert_eq!(code, Some(0), "{said:#?}");
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits for its end: exit code and all that it said.
    pub(crate) fn finish(mut self) -> (Option<i32>, Vec<String>) {
        let patience = Patience::new();
        // Standard error ends with the process.
        loop {
            match self.lines.recv_timeout(patience.left()) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.said),
            }
        }
        let status = self.child.wait().unwrap();
        (status.code(), std::mem::take(&mut self.said))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    /// Reads to the end of the connection.
    pub(crate) fn read(mut stream: TcpStream) -> Answer {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = bytes.split_off(end);
        let head = String::from_utf8(bytes).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body }
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
