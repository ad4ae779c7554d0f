//! A gateway with a configuration file of the test, and origins: threads that respond with their name and the request.
#![allow(
    clippy::disallowed_methods,
    reason = "connections in a test are served by real threads"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{Directory, PATIENCE, Server, connect, program};
use ringmain_testkit::wait;

/// Responds to every request with its name and the request's target; to `/hold` only after a release. An upgraded connection
/// is an echo.
pub(crate) struct Origin {
    addr: SocketAddr,
    held: Arc<Held>,
}

/// Requests for `/hold`.
#[derive(Default)]
struct Held {
    /// Number of held requests, and whether they are released.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Held {
    fn wait(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, released)| !*released));
    }
}

impl Origin {
    pub(crate) fn named(name: &str) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let name = name.to_owned();
        let held = Arc::new(Held::default());
        let of_thread = Arc::clone(&held);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (name, held) = (name.clone(), Arc::clone(&of_thread));
                // It ends with the connection, at the latest with the test.
                std::thread::spawn(move || drop(serve(stream, &name, &held)));
            }
        });
        Origin { addr, held }
    }

    /// Waits until so many requests for `/hold` are here.
    pub(crate) fn wait_held(&self, count: usize) {
        let state = self.held.state.lock().expect("no panic");
        let waiting = |state: &mut (usize, bool)| state.0 < count;
        let (_state, waited) = self
            .held
            .changed
            .wait_timeout_while(state, PATIENCE, waiting)
            .expect("no panic");
        assert!(!waited.timed_out(), "/hold was not asked for");
    }

    /// Has them answered.
    pub(crate) fn release(&self) {
        self.held.state.lock().expect("no panic").1 = true;
        self.held.changed.notify_all();
    }

    pub(crate) fn addr(&self) -> String {
        self.addr.to_string()
    }
}

fn serve(stream: TcpStream, name: &str, held: &Held) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        if head.to_ascii_lowercase().contains("\r\nupgrade: ") {
            stream.write_all(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")?;
            let mut bytes = [0; 1024];
            loop {
                match reader.read(&mut bytes)? {
                    0 => return Ok(()),
                    count => stream.write_all(&bytes[..count])?,
                }
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.split("\r\ncontent-length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        if target == "/hold" {
            held.wait();
        }
        let answer = format!("{name} {target}");
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(text.as_bytes())?;
    }
}

/// `ringmain run FILE`.
pub(crate) struct Proxy {
    pub(crate) server: Server,
    pub(crate) addrs: Vec<String>,
    pub(crate) folder: Directory,
    pub(crate) file: PathBuf,
}

impl Proxy {
    /// With a file of one listener.
    pub(crate) fn start(text: &str, args: &[&str]) -> Proxy {
        Proxy::start_with(text, args, 1, |_| {})
    }

    /// With a file of so many listeners; `prepare` may put other files beside it.
    pub(crate) fn start_with(
        text: &str,
        args: &[&str],
        count: usize,
        prepare: impl FnOnce(&Directory),
    ) -> Proxy {
        let folder = Directory::new();
        prepare(&folder);
        let file = folder.join("proxy.yaml");
        if !file.exists() {
            fs::write(&file, text).expect("a file");
        }
        let mut command = Command::new(program());
        command.arg("run").arg(&file).args(args);
        let (server, addrs) = Server::start(&mut command, count);
        Proxy {
            server,
            addrs,
            folder,
            file,
        }
    }

    pub(crate) fn addr(&self) -> &str {
        &self.addrs[0]
    }
}

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Returns the data of a connection until its end.
    pub(crate) fn of(text: &str) -> Answer {
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no answer: {text}"));
        Answer {
            status: head
                .split(' ')
                .nth(1)
                .expect("a status")
                .parse()
                .expect("a number"),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }
}

/// One request on a connection of its own.
pub(crate) fn ask(addr: &str, method: &str, host: &str, target: &str, body: &str) -> Answer {
    let mut stream = connect(addr);
    let length = body.len();
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    Answer::of(&answer)
}

/// GET, on a connection of its own.
pub(crate) fn get(addr: &str, host: &str, target: &str) -> Answer {
    ask(addr, "GET", host, target, "")
}

/// Asks again and again until an answer is as wanted.
pub(crate) fn until(addr: &str, host: &str, target: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
    wait::until_ok("a response as wanted", || {
        let answer = get(addr, host, target);
        if wanted(&answer) { Ok(answer) } else { Err(answer) }
    })
}
