//! Every transport over real sockets, on each back-end, with two workers. Commands and replies are tested in virtual time, elsewhere.

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringmain_engine::{Addr, Choice, Config, Engine, ListenOptions, Running};
use ringmain_push::{KeySet, Namespace, Options, Tokens};
use ringmain_testkit::wait::{self, Patience};
use ringmain_web::App;

const SECRET: &[u8] = b"a secret of two and thirty bytes";

/// Returns a token as signed by an application.
fn token(claims: &str) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let message = format!("{}.{}", encode(br#"{"alg":"HS256"}"#), encode(claims.as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", encode(signature.as_ref()))
}

/// The time limit of expected messages: a guard against hanging, never a measure.
const PATIENCE: Duration = ringmain_testkit::PATIENCE;

/// Runs each case on each back-end; reports the cases that are skipped without io_uring.
macro_rules! on_every_backend {
    ($($case:ident),+ $(,)?) => {
        mod uring { $(#[test] fn $case() { crate::real_sockets::run(crate::real_sockets::Choice::Uring, stringify!($case), super::$case) })+ }
        mod epoll { $(#[test] fn $case() { crate::real_sockets::run(crate::real_sockets::Choice::Epoll, stringify!($case), super::$case) })+ }
    };
}

on_every_backend!(
    commands_beside_a_stream_have_their_replies_on_it,
    publications_reach_every_transport_in_order,
    a_broken_stream_leaves_its_channels,
    a_graceful_shutdown_closes_streams,
    user_commands_run_on_every_worker,
);

fn run(engine: Choice, name: &str, case: fn(&Server)) {
    let config = Config {
        engine,
        workers: Some(2),
        pin: false,
        ..Config::default()
    };
    let mut engine = match Engine::new(config) {
        Ok(engine) => engine,
        Err(error) if engine == Choice::Uring => {
            // Past the test harness, which would hide it.
            let line = format!("SKIPPED {name} on io_uring: {error}\n");
            return std::io::stderr()
                .write_all(line.as_bytes())
                .expect("standard error");
        }
        Err(error) => panic!("{error}"),
    };
    let mut open = Namespace {
        publish: true,
        presence: true,
        ..Namespace::default()
    };
    open.channel_options.presence = true;
    let options = Options {
        namespaces: [("open".to_owned(), open)].into(),
        anonymous: true,
        tokens: Some(Tokens::new(KeySet::from_secret(SECRET).expect("a key"))),
        api_key: Some("key".to_owned()),
        ..Options::default()
    };
    let site = ringmain_push::serve(App::new(), options)
        .build()
        .expect("an application");
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let listening = engine
        .listen(&any, &ListenOptions::default())
        .expect("a free port");
    let Addr::Inet(addr) = listening else {
        panic!("an internet address was asked for");
    };
    let running = engine
        .start(move |start| site.server(start))
        .expect("the workers start");
    let server = Server { running, addr };
    case(&server);
    server.running.shut_down();
    server.running.join().expect("an orderly end");
}

struct Server {
    running: Running<Infallible>,
    addr: SocketAddr,
}

/// A connection, and its received bytes that were not searched yet.
struct Client {
    stream: TcpStream,
    came: Vec<u8>,
}

/// The session for requests beside a stream.
struct Name {
    session: String,
    node: String,
}

impl Server {
    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.addr).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client {
            stream,
            came: Vec::new(),
        }
    }

    fn get(&self, target: &str) -> Client {
        let mut client = self.client();
        client.send(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    }

    fn post(&self, target: &str, body: &str) -> Client {
        let mut client = self.client();
        client.post(target, body);
        client
    }

    /// Opens a bidirectional stream of either kind.
    fn open_stream(&self, transport: &str) -> (Client, Name) {
        let connect = r#"{"id":1,"connect":{}}"#;
        let mut client = match transport {
            "sse" => self.get("/connection/sse?cf_connect=%7B%22id%22:1,%22connect%22:%7B%7D%7D"),
            other => self.post(&format!("/connection/{other}"), connect),
        };
        client.until(r#""session":""#);
        let session = client.until("\"");
        client.until(r#""node":""#);
        let node = client.until("\"");
        client.until("\n");
        (client, Name { session, node })
    }
}

impl Client {
    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("it is open");
    }

    fn post(&mut self, target: &str, body: &str) {
        let length = body.len();
        self.send(&format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nX-Api-Key: key\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ));
    }

    /// Sends commands beside a stream, and waits for the response.
    fn send_commands(&mut self, name: &Name, commands: &str) {
        let Name { session, node } = name;
        let data = serde_json::to_string(commands).expect("a text");
        let body = format!(r#"{{"session":"{session}","node":"{node}","data":{data}}}"#);
        self.post("/emulation", &body);
        self.until("HTTP/1.1 204 ");
        self.until("\r\n\r\n");
    }

    /// Waits for a text. Returns the text before it.
    #[track_caller]
    fn until(&mut self, text: &str) -> String {
        let patience = Patience::new();
        loop {
            let found = self
                .came
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(at) = found {
                let before = String::from_utf8_lossy(&self.came[..at]).into_owned();
                self.came.drain(..at + text.len());
                return before;
            }
            let mut buffer = [0; 16 * 1024];
            let came = String::from_utf8_lossy(&self.came).into_owned();
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("expected {text:?}, found the end behind {came:?}"),
                Ok(count) => self.came.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("expected {text:?}, found {came:?}: {error}"),
            }
            assert!(!patience.is_over(), "expected {text:?}, found {came:?}");
        }
    }

    /// Opens a WebSocket on it and sends a short text.
    fn open_socket(&mut self, target: &str, text: &str) {
        self.send(&format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        self.until("\r\n\r\n");
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 126);
        // Masked with zeros: unchanged.
        let mut frame = vec![0x81, 0x80 | length.expect("a short text"), 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.stream.write_all(&frame).expect("it is open");
    }
}

fn commands_beside_a_stream_have_their_replies_on_it(server: &Server) {
    for transport in ["http_stream", "sse"] {
        let (mut stream, name) = server.open_stream(transport);
        // On whichever worker each of these is accepted.
        let mut beside: Vec<Client> = (0..8).map(|_| server.client()).collect();
        for round in 0..4 {
            for (at, connection) in beside.iter_mut().enumerate() {
                let id = 10 + 8 * round + at;
                connection.send_commands(&name, &format!(r#"{{"id":{id},"ping":{{}}}}"#));
                stream.until(&format!("{{\"id\":{id},\"ping\":{{}}}}\n"));
            }
        }
    }
}

fn publications_reach_every_transport_in_order(server: &Server) {
    let connect = r#"{"subs":{"open:a":{}}}"#;
    let subscribe = r#"{"id":2,"subscribe":{"channel":"open:a"}}"#;
    let mut listeners = Vec::new();
    for transport in ["http_stream", "sse"] {
        let (mut stream, name) = server.open_stream(transport);
        server.client().send_commands(&name, subscribe);
        stream.until(r#"{"id":2,"subscribe":{"#);
        listeners.push(stream);
    }
    for transport in ["uni_http_stream", "uni_sse"] {
        let mut stream = server.post(&format!("/connection/{transport}"), connect);
        stream.until(r#"{"connect":{"#);
        listeners.push(stream);
    }
    let mut socket = server.client();
    socket.open_socket("/connection/uni_websocket", connect);
    socket.until(r#"{"connect":{"#);
    listeners.push(socket);
    let mut socket = server.client();
    socket.open_socket(
        "/connection/websocket",
        &format!("{{\"id\":1,\"connect\":{{}}}}\n{subscribe}"),
    );
    socket.until(r#"{"id":2,"subscribe":{"#);
    listeners.push(socket);

    let mut program = server.client();
    for number in 0..200 {
        let body = format!(r#"{{"channel":"open:a","data":{number}}}"#);
        program.post("/api/publish", &body);
        program.until(r#"{"result":{}}"#);
    }
    for (at, listener) in listeners.iter_mut().enumerate() {
        for number in 0..200 {
            let before = listener.until(&format!(r#""pub":{{"data":{number}}}"#));
            assert!(!before.contains("\"pub\""), "listener {at}, {number}: {before}");
        }
    }
}

fn a_broken_stream_leaves_its_channels(server: &Server) {
    let (mut watcher, watching) = server.open_stream("http_stream");
    let mut beside = server.client();
    let mut asks = 10;
    let mut await_count = |count: &str| {
        wait::until_ok(count, || {
            asks += 1;
            let ask = format!(r#"{{"id":{asks},"presence_stats":{{"channel":"open:a"}}}}"#);
            beside.send_commands(&watching, &ask);
            watcher.until(&format!(r#"{{"id":{asks},"presence_stats":"#));
            let told = watcher.until("\n");
            if told.starts_with(count) {
                Ok(())
            } else {
                Err(told)
            }
        });
    };
    for transport in ["uni_sse", "uni_http_stream"] {
        let mut stream = server.post(&format!("/connection/{transport}"), r#"{"subs":{"open:a":{}}}"#);
        stream.until(r#"{"connect":{"#);
        await_count(r#"{"num_clients":1,"#);
        drop(stream);
        await_count(r#"{"num_clients":0,"num_users":0}"#);
    }
}

fn a_graceful_shutdown_closes_streams(server: &Server) {
    let (mut lines, _) = server.open_stream("http_stream");
    let mut events = server.get("/connection/uni_sse");
    events.until(r#"{"connect":{"#);
    server.running.shut_down();
    lines.until("\r\n0\r\n\r\n");
    events.until("\r\n0\r\n\r\n");
}

fn user_commands_run_on_every_worker(server: &Server) {
    let token = token(r#"{"sub":"7","channels":["open:a"]}"#);
    let connect = format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#);
    let listen = format!(r#"{{"token":"{token}"}}"#);
    let mut theirs: Vec<Client> = (0..16)
        .map(|number| {
            let mut client = match number % 2 {
                0 => server.post("/connection/http_stream", &connect),
                _ => server.post("/connection/uni_http_stream", &listen),
            };
            client.until(r#""subs":{"open:a":{"#);
            client
        })
        .collect();
    let (mut other, _) = server.open_stream("http_stream");
    let mut program = server.client();
    program.post("/api/unsubscribe", r#"{"user":"7","channel":"open:a"}"#);
    program.until(r#"{"result":{"num_clients":16}}"#);
    for client in &mut theirs {
        client.until(r#""unsubscribe":{"code":2000"#);
    }
    program.post("/api/disconnect", r#"{"user":"7"}"#);
    program.until(r#"{"result":{"num_clients":16}}"#);
    for client in &mut theirs {
        client.until(r#""disconnect":{"code":3503"#);
        client.until("\r\n0\r\n\r\n");
    }
    program.post("/api/publish", r#"{"channel":"open:a","data":1}"#);
    program.until(r#"{"result":{}}"#);
    server.running.shut_down();
    let before = other.until("\r\n0\r\n\r\n");
    assert!(
        before.contains(r#""code":3001"#) && !before.contains("3503"),
        "{before}"
    );
}
