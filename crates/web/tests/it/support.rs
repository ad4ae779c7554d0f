//! A server on a port chosen by the kernel, with or without TLS, and a client that parses responses by RFC 9112 and fails rather
//! than hang. Knows no single case.

#[path = "support/tls.rs"]
pub(crate) mod tls;

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, Choice, Config, Engine, ListenOptions, Running};
use ringmain_tls::{Connector, PeerName};
use ringmain_web::{App, CompiledApp, ListenerProtocol};

use self::tls::Secure;

/// The time limit on waits: a guard against hanging, never a measure.
pub(crate) const PATIENCE: Duration = ringmain_testkit::PATIENCE;

/// Bytes of a socket's buffers in these tests: small, so that a peer that does not read has an early effect.
const SOCKET_BUFFER: usize = 32 * 1024;

/// Runs each case on each back-end; reports where io_uring is unavailable.
#[allow(unused_macros, reason = "each test binary uses its own part")]
macro_rules! on_every_backend {
    ($($case:ident),+ $(,)?) => {
        mod uring { $(#[test] fn $case() { crate::support::on_uring(stringify!($case), super::$case) })+ }
        mod epoll { $(#[test] fn $case() { super::$case(crate::support::config(crate::support::EPOLL)) })+ }
    };
}

/// Runs each case over TLS. A case receives its [`Setting`](crate::support::Setting).
#[allow(unused_macros, reason = "each test binary uses its own part")]
macro_rules! by_tls {
    ($($case:ident),+ $(,)?) => {
        mod uring_tls {
            $(#[test] fn $case() {
                crate::support::on_uring(stringify!($case), |engine| super::$case(crate::support::Setting::tls(engine)))
            })+
        }
        mod epoll_tls {
            $(#[test] fn $case() {
                super::$case(crate::support::Setting::tls(crate::support::config(crate::support::EPOLL)))
            })+
        }
    };
}

/// Runs each case with and without TLS.
#[allow(unused_macros, reason = "each test binary uses its own part")]
macro_rules! in_every_way {
    ($($case:ident),+ $(,)?) => {
        mod uring { $(#[test] fn $case() { crate::support::on_uring(stringify!($case), |engine| super::$case(engine.into())) })+ }
        mod epoll { $(#[test] fn $case() { super::$case(crate::support::config(crate::support::EPOLL).into()) })+ }
        by_tls!($($case),+);
    };
}

pub(crate) const EPOLL: Choice = Choice::Epoll;

/// Returns the configuration of one worker on this back-end.
pub(crate) fn config(engine: Choice) -> Config {
    Config {
        engine,
        workers: Some(1),
        pin: false,
        ..Config::default()
    }
}

/// The environment of a case.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) engine: Config,
    /// True if the listener requires TLS.
    pub(crate) tls: bool,
}

impl From<Config> for Setting {
    fn from(engine: Config) -> Setting {
        Setting { engine, tls: false }
    }
}

impl Setting {
    pub(crate) fn tls(engine: Config) -> Setting {
        Setting { engine, tls: true }
    }

    pub(crate) fn grace(mut self, grace: Duration) -> Setting {
        self.engine.grace = grace;
        self
    }

    pub(crate) fn workers(mut self, workers: usize) -> Setting {
        self.engine.workers = Some(workers);
        self
    }
}

/// Runs a case on io_uring. Without it the case is skipped, which is reported on standard error past the test harness, which would
/// hide it.
pub(crate) fn on_uring(name: &str, case: fn(Config)) {
    let config = config(Choice::Uring);
    match Engine::new(config.clone()) {
        Ok(_) => case(config),
        Err(error) => {
            let line = format!("SKIPPED {name} on io_uring: {error}\n");
            std::io::stderr()
                .write_all(line.as_bytes())
                .expect("standard error");
        }
    }
}

/// A running application.
pub(crate) struct Server {
    pub(crate) running: Running<std::convert::Infallible>,
    pub(crate) app: Arc<CompiledApp>,
    pub(crate) addr: SocketAddr,
    /// The connector of its clients, if it requires TLS.
    connector: Option<Connector>,
}

pub(crate) fn serve(setting: impl Into<Setting>, app: App) -> Server {
    let setting = setting.into();
    if setting.tls {
        let (acceptor, connector) = (tls::acceptor(), tls::connector());
        let app = app.listener(0, ListenerProtocol::https(&acceptor));
        return serve_at(setting.engine, app, Some(connector));
    }
    serve_at(setting.engine, app, None)
}

/// Serves with listener protocols that the application has chosen.
pub(crate) fn serve_at(config: Config, app: App, connector: Option<Connector>) -> Server {
    let app = app.build().expect("an application");
    let mut engine = Engine::new(config).expect("the back-end is there");
    let options = ListenOptions {
        send_buffer: Some(SOCKET_BUFFER as u32),
        receive_buffer: Some(SOCKET_BUFFER as u32),
        ..ListenOptions::default()
    };
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let Addr::Inet(addr) = engine.listen(&any, &options).expect("a free port") else {
        panic!("an internet address was asked for");
    };
    let served = Arc::clone(&app);
    let running = engine
        .start(move |start| served.server(start))
        .expect("the workers start");
    Server {
        running,
        app,
        addr,
        connector,
    }
}

impl Server {
    pub(crate) fn client(&self) -> Client {
        self.speaking_to(Client::new(self.addr))
    }

    /// Opens a client with a small receive buffer, so that unread bytes remain with the server.
    pub(crate) fn slow_client(&self) -> Client {
        let client = Client::new(self.addr);
        rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, SOCKET_BUFFER).expect("a socket");
        self.speaking_to(client)
    }

    fn speaking_to(&self, client: Client) -> Client {
        match &self.connector {
            Some(connector) => client.secure(connector, &tls::localhost()).expect("a handshake"),
            None => client,
        }
    }

    /// Sends one request on a separate connection; returns the response.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.client();
        client.send(request.as_ref());
        client.answer_to(method_of(request.as_ref()))
    }

    /// Sends a GET request.
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.ask(get(target))
    }

    /// Shuts down gracefully and waits for the end.
    pub(crate) fn shut_down(self) {
        self.running.shut_down();
        self.running.join().expect("an orderly end");
    }

    pub(crate) fn connections(&self) -> u32 {
        self.running.report().workers[0].connections
    }
}

/// Returns a request without a body.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")
}

/// Returns a request with a body of known length.
pub(crate) fn post(target: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {target} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Returns a body in chunks of at most `size` bytes.
pub(crate) fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// Returns bytes whose value reveals their position.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn method_of(request: &[u8]) -> &str {
    let end = request.iter().position(|&byte| byte == b' ').unwrap_or(0);
    str::from_utf8(&request[..end]).unwrap_or_default()
}

/// A response as received.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the only value of the field; panics if there are several.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(found, _)| found == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "one field {name} in {self:?}");
        value
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }

    /// Returns the detail of an error response.
    pub(crate) fn detail(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/problem+json"));
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("problem details");
        assert_eq!(problem["status"], self.status);
        problem["detail"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub(crate) fn expect(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.text()), (status, body), "{:?}", self.fields);
    }
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Orderly,
    Reset,
    /// Without the close_notify of TLS.
    Cut,
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) tls: Option<Secure>,
    /// Bytes received and not yet taken.
    kept: Vec<u8>,
}

impl Client {
    pub(crate) fn new(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Client {
            stream,
            tls: None,
            kept: Vec::new(),
        }
    }

    /// Runs the TLS handshake with a server of this name.
    pub(crate) fn secure(mut self, connector: &Connector, name: &PeerName) -> std::io::Result<Client> {
        self.tls = Some(Secure::new(&mut self.stream, connector, name)?);
        Ok(self)
    }

    /// Returns the received bytes that were not taken.
    pub(crate) fn kept(&mut self) -> &mut Vec<u8> {
        &mut self.kept
    }

    /// Returns the bytes on the wire for `bytes`.
    pub(crate) fn sealed(&mut self, bytes: &[u8]) -> Vec<u8> {
        match &mut self.tls {
            Some(tls) => tls.seal(bytes),
            None => bytes.to_vec(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let wire = self.sealed(bytes.as_ref());
        self.stream.write_all(&wire).expect("the server takes it");
    }

    /// Sends on a separate thread, so that a server that does not read cannot block the test. Ignores failures caused by the
    /// server's close.
    #[allow(clippy::disallowed_methods, reason = "a client of a test is a real thread")]
    pub(crate) fn send_behind(&mut self, bytes: Vec<u8>) -> std::thread::JoinHandle<std::io::Result<()>> {
        let wire = self.sealed(&bytes);
        let mut stream = self.stream.try_clone().expect("a descriptor");
        std::thread::spawn(move || stream.write_all(&wire))
    }

    /// Shuts down the client's side.
    pub(crate) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            let wire = tls.close();
            self.stream.write_all(&wire).expect("the server takes it");
        }
        self.stream.shutdown(Shutdown::Write).expect("open so far");
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).expect("a socket");
    }

    /// Reads the next response, to a request of any method but HEAD.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    #[track_caller]
    pub(crate) fn answer_to(&mut self, method: &str) -> Answer {
        let mut answer = self.head();
        if method == "HEAD" || matches!(answer.status, 100..200 | 204 | 304) {
            return answer;
        }
        if answer.field("transfer-encoding") == Some("chunked") {
            assert_eq!(answer.field("content-length"), None);
            while let Some(chunk) = self.chunk() {
                answer.body.extend_from_slice(&chunk);
            }
        } else if let Some(length) = answer.field("content-length") {
            answer.body = self.take(length.parse().expect("a number"));
        } else {
            let (rest, end) = self.rest();
            assert_eq!(end, End::Orderly);
            answer.body = rest;
        }
        answer
    }

    /// Reads a response's head.
    #[track_caller]
    pub(crate) fn head(&mut self) -> Answer {
        let status_line = self.line();
        let (version, rest) = status_line.split_once(' ').expect("a status line");
        assert_eq!(version, "HTTP/1.1", "{status_line}");
        let mut answer = Answer {
            status: rest[..3].parse().expect("three digits"),
            ..Answer::default()
        };
        loop {
            let line = self.line();
            if line.is_empty() {
                return answer;
            }
            let (name, value) = line.split_once(": ").expect("a field");
            answer.fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// Reads a chunk of a chunked body; `None`: the last chunk.
    #[track_caller]
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.line();
        let length = usize::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("a chunk size: {line}"));
        let data = self.take(length);
        assert_eq!(self.line(), "", "the chunk's end");
        (length > 0).then_some(data)
    }

    #[track_caller]
    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.kept.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8(self.kept[..end].to_vec()).expect("ASCII");
                self.kept.drain(..end + 2);
                return line;
            }
            assert!(
                self.more(),
                "the end after {:?}",
                self.kept.escape_ascii().to_string()
            );
        }
    }

    /// Reads this number of bytes.
    #[track_caller]
    pub(crate) fn take(&mut self, length: usize) -> Vec<u8> {
        while self.kept.len() < length {
            assert!(self.more(), "{} of {length} bytes, then the end", self.kept.len());
        }
        let rest = self.kept.split_off(length);
        std::mem::replace(&mut self.kept, rest)
    }

    /// Receives more; `false`: the end.
    #[track_caller]
    fn more(&mut self) -> bool {
        self.receive().expect("bytes or the end") > 0
    }

    /// Receives more, retrying where necessary; 0: the end.
    pub(crate) fn receive(&mut self) -> std::io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls.receive(&mut self.stream, &mut self.kept);
        }
        let mut buffer = vec![0; 64 * 1024];
        let length = tls::read(&mut self.stream, &mut buffer)?;
        self.kept.extend_from_slice(&buffer[..length]);
        Ok(length)
    }

    /// Reads all further bytes, and the kind of end.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, End) {
        let end = loop {
            match self.receive() {
                Ok(0) if self.tls.as_ref().is_some_and(|tls| !tls.ended) => break End::Cut,
                Ok(0) => break End::Orderly,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break End::Reset,
                Err(error) => panic!("expected the end, found {error} after {} bytes", self.kept.len()),
            }
        };
        (std::mem::take(&mut self.kept), end)
    }

    /// Asserts that nothing more arrives and the server has closed properly.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let (rest, end) = self.rest();
        assert_eq!(
            (rest.escape_ascii().to_string(), end),
            (String::new(), End::Orderly)
        );
    }

    /// Asserts that the connection still serves requests.
    #[track_caller]
    pub(crate) fn expect_alive(&mut self, target: &str) {
        self.send(get(target));
        assert_eq!(self.answer().status, 200);
    }
}
