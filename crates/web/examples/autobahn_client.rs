//! Autobahn's view of the codec as a client: runs all cases that `wstest -m fuzzingserver` offers, one connection each, and
//! has it write its report. `tests/autobahn/run.sh client` starts both.
//!
//! `autobahn_client ADDR`: the fuzzing server's address.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program reports its progress"
)]

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringmain_engine::{Addr, Config, Conn, Cx, Engine, Handler, Reason, Start, Via};
use ringmain_wire::h1::{
    self, FieldTable, Framing, HeadScanner, Method, Parsed, RequestEncoder, parse_response,
};
use ringmain_wire::ws::{
    Close, Decoder, Deflater, Deflation, Encoder, Event, Inflater, Kind, Limits, Mask, Message, Opening,
    PeerFault, Role,
};

/// The name of the tested client in reports.
const AGENT: &str = "ringmain";

/// Larger than the largest message of a case.
const LIMITS: Limits = Limits {
    frame_bytes: 32 * 1024 * 1024,
    message_bytes: 32 * 1024 * 1024,
    control_frames: 10_000,
};

/// The steps of a run: the count of cases, each case, the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Count,
    Case(u32),
    Report,
}

struct Client {
    addr: Addr,
    cx: Cx,
    step: Step,
    cases: u32,
    /// A connection failed: the report is incomplete.
    failed: Arc<AtomicBool>,
}

/// One connection: the handshake, then an echo of each message.
struct Link {
    socket: Option<Socket>,
    nonce: [u8; 16],
}

struct Socket {
    decoder: Decoder,
    encoder: Encoder,
    deflation: Option<Deflation>,
    inflater: Inflater,
    deflater: Deflater,
    message: Vec<u8>,
    /// Bytes that the engine has no room for yet.
    backlog: Vec<u8>,
    /// The server violated the protocol: the client disconnects after the Close.
    leaves: bool,
}

impl Client {
    fn new(start: Start<Infallible>, addr: Addr, failed: Arc<AtomicBool>) -> Client {
        let client = Client {
            addr,
            cx: start.cx,
            step: Step::Count,
            cases: 0,
            failed,
        };
        client.connect();
        client
    }

    fn connect(&self) {
        if let Err(error) = self.cx.connect(&self.addr, None) {
            eprintln!("cannot connect to {}: {error}", self.addr);
            self.cx.shut_down();
        }
    }

    fn target(&self) -> String {
        match self.step {
            Step::Count => "/getCaseCount".into(),
            Step::Case(case) => format!("/runCase?case={case}&agent={AGENT}"),
            Step::Report => format!("/updateReports?agent={AGENT}"),
        }
    }

    fn next(&mut self) {
        self.step = match self.step {
            Step::Count if self.cases == 0 => return self.cx.shut_down(),
            Step::Count => Step::Case(1),
            Step::Case(case) if case < self.cases => Step::Case(case + 1),
            Step::Case(_) => Step::Report,
            Step::Report => {
                println!("{} cases were run", self.cases);
                return self.cx.shut_down();
            }
        };
        self.connect();
    }

    /// Parses the head; the remaining bytes are frames.
    fn handshake(&mut self, link: &mut Link, bytes: &[u8]) -> Result<usize, String> {
        let limits = h1::Limits::INTERNET;
        let mut table = FieldTable::new(&limits);
        let parsed = parse_response(bytes, Method::Get, &limits, &mut HeadScanner::new(), &mut table);
        let (head, consumed) = match parsed.map_err(|fault| fault.to_string())? {
            Parsed::Complete { head, bytes } => (head, bytes),
            Parsed::Partial => return Ok(0),
        };
        let opened = opening(link.nonce)
            .conclude(&head)
            .map_err(|fault| fault.to_string())?;
        let window = opened
            .deflation
            .map_or(Deflation::SHARED, |deflation| deflation)
            .own_window;
        link.socket = Some(Socket {
            decoder: Decoder::new(Role::Client, &LIMITS, opened.deflation),
            encoder: Encoder::new(Role::Client, opened.deflation, usize::MAX),
            deflation: opened.deflation,
            inflater: Inflater::new(64 * 1024),
            deflater: Deflater::new(window, 6),
            message: Vec::new(),
            backlog: Vec::new(),
            leaves: false,
        });
        Ok(consumed)
    }
}

fn opening(nonce: [u8; 16]) -> Opening<'static> {
    Opening::new(nonce, &[], Some(Deflation::CONTEXT)).expect("no subprotocols")
}

impl Socket {
    /// Consumes all of `input`; appends replies to the backlog.
    fn receive(&mut self, cx: &Cx, input: &mut [u8], count: &mut Option<u32>) -> Result<usize, PeerFault> {
        let mut at = 0;
        loop {
            let step = self.decoder.decode(&mut input[at..], Some(&mut self.inflater))?;
            at += step.consumed;
            let mut key = || (cx.random() as u32).to_be_bytes();
            let mask = Mask::Keys(&mut key);
            let out = &mut self.backlog;
            // Fails only after a Close: no reply is needed then.
            let _ = match step.event {
                Event::NeedMore | Event::NeedInflater => return Ok(at),
                Event::Ping(data) => self.encoder.pong(out, data, mask),
                Event::Pong(_) => Ok(()),
                Event::Close(close) => {
                    let close = close.map(|close| Close { reason: "", ..close });
                    self.encoder.close_received();
                    self.encoder.close(out, close, mask)
                }
                Event::Piece(piece) => {
                    self.message.extend_from_slice(piece.data);
                    if !piece.last {
                        continue;
                    }
                    let bytes = std::mem::take(&mut self.message);
                    let message = match piece.kind {
                        Kind::Text => Message::Text(str::from_utf8(&bytes).expect("checked by the decoder")),
                        Kind::Binary => Message::Binary(&bytes),
                    };
                    if let Some(count) = count {
                        *count = str::from_utf8(&bytes)
                            .ok()
                            .and_then(|text| text.parse().ok())
                            .unwrap_or(0);
                        continue;
                    }
                    match self.deflation {
                        Some(_) => self.encoder.deflated(out, message, &mut self.deflater, mask),
                        None => self.encoder.message(out, message, mask),
                    }
                }
            };
        }
    }

    /// Hands the engine as much as it has room for.
    fn send(&mut self, conn: Conn<'_>) {
        const ROOM: usize = ringmain_engine::limits::WRITE_LIMIT / 2;
        let share = self.backlog.len().min(ROOM.saturating_sub(conn.unsent()));
        if share > 0 && conn.write(&self.backlog[..share]).is_ok() {
            self.backlog.drain(..share);
        }
        if self.leaves && self.backlog.is_empty() {
            conn.close();
        }
    }
}

impl Handler for Client {
    type Conn = Link;
    type Mail = Infallible;

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<Link> {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.cx.random().to_ne_bytes());
        nonce[8..].copy_from_slice(&self.cx.random().to_ne_bytes());
        let mut out = Vec::new();
        let (target, host) = (self.target(), self.addr.to_string());
        let mut head = RequestEncoder::new(&mut out, Method::Get, &target, &host).expect("a target");
        opening(nonce).write_fields(&mut head).expect("checked fields");
        let _without_body = head
            .finish_with_upgrade(Framing::None, b"websocket")
            .expect("no body");
        let _ = conn.write(&out);
        Some(Link { socket: None, nonce })
    }

    fn data(&mut self, conn: Conn<'_>, link: &mut Link, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        if link.socket.is_none() {
            match self.handshake(link, bytes) {
                Ok(consumed) => at = consumed,
                Err(what) => {
                    eprintln!("{:?}: the handshake failed: {what}", self.step);
                    self.failed.store(true, Ordering::Relaxed);
                    conn.abort();
                    return bytes.len();
                }
            }
        }
        let Some(socket) = &mut link.socket else {
            return at;
        };
        let mut count = (self.step == Step::Count).then_some(0);
        match socket.receive(&self.cx, &mut bytes[at..], &mut count) {
            Ok(consumed) => at += consumed,
            Err(fault) => {
                let mut key = || [1, 2, 3, 4];
                let close = fault.close_code().map(|code| Close { code, reason: "" });
                let _ = socket
                    .encoder
                    .close(&mut socket.backlog, close, Mask::Keys(&mut key));
                socket.leaves = true;
                at = bytes.len();
            }
        }
        self.cases = count.filter(|count| *count > 0).unwrap_or(self.cases);
        socket.send(conn);
        at
    }

    fn drained(&mut self, conn: Conn<'_>, link: &mut Link) {
        if let Some(socket) = &mut link.socket {
            socket.send(conn);
        }
    }

    fn closed(&mut self, _cx: &Cx, _link: Link, _reason: Reason) {
        self.next();
    }

    fn not_connected(&mut self, cx: &Cx, _conn: ringmain_engine::ConnId, reason: Reason) {
        eprintln!("cannot connect to {}: {reason:?}", self.addr);
        self.failed.store(true, Ordering::Relaxed);
        cx.shut_down();
    }
}

fn main() -> ExitCode {
    let Some(addr) = std::env::args().nth(1).and_then(|addr| addr.parse().ok()) else {
        eprintln!("usage: autobahn_client ADDR");
        return ExitCode::FAILURE;
    };
    let config = Config {
        workers: Some(1),
        pin: false,
        clients_only: true,
        ..Config::default()
    };
    let failed = Arc::<AtomicBool>::default();
    let told = Arc::clone(&failed);
    let run = Engine::new(config).and_then(|engine| {
        let addr: Addr = addr;
        let client = move |start| Client::new(start, addr.clone(), Arc::clone(&failed));
        engine.start(client)?.join()
    });
    match run {
        Ok(_) if told.load(Ordering::Relaxed) => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
