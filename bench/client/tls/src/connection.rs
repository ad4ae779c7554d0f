//! One connection: dial, handshake, request, answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::{ClientConnection, HandshakeKind};

use crate::options::{Mode, Options};
use crate::session::Sessions;

/// Bytes taken from a socket at once.
const RECEIVED: usize = 16 * 1024;
/// One answer in this many is compared byte by byte.
const VERIFIED: u64 = 16;
/// Of a Date's 29 characters the ones that may differ: all but " GMT".
const DATE_CHANGES: usize = 25;

/// What every answer must be: the first one, but for its date.
#[derive(Debug)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    /// Where the value of Date begins; the length if there is none.
    date: usize,
}

impl Answer {
    fn new(bytes: Vec<u8>) -> Self {
        let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let date = head.find("\r\ndate: ").map_or(bytes.len(), |at| at + 8);
        Self { bytes, date }
    }

    fn is(&self, found: &[u8], all: bool) -> bool {
        if found.len() != self.bytes.len() {
            return false;
        }
        if !all {
            return found.starts_with(b"HTTP/1.1 200") && found.last() == self.bytes.last();
        }
        let after = (self.date + DATE_CHANGES).min(found.len());
        found[..self.date] == self.bytes[..self.date] && found[after..] == self.bytes[after..]
    }
}

/// What came of letting a connection go on.
pub(crate) enum Outcome {
    Waiting,
    /// The answer is whole and right; what it took since the request or the dial.
    Answered(Duration),
    Wrong,
    Lost,
    /// The dial failed.
    Refused,
}

pub(crate) struct Connection {
    stream: TcpStream,
    tls: ClientConnection,
    connected: bool,
    /// Records that the socket has not taken yet.
    unsent: Vec<u8>,
    answer: Vec<u8>,
    asked: Instant,
    answers: u64,
}

impl Connection {
    pub(crate) fn open(
        to: SocketAddr,
        from: Option<SocketAddr>,
        sessions: &Sessions,
        request: &[u8],
    ) -> io::Result<Self> {
        let stream = match from {
            None => TcpStream::connect(to)?,
            Some(from) => dial_from(from, to)?,
        };
        let _ = stream.set_nodelay(true);
        let mut connection = Self {
            stream,
            tls: sessions.start(),
            connected: false,
            unsent: Vec::new(),
            answer: Vec::with_capacity(512),
            asked: Instant::now(),
            answers: 0,
        };
        // rustls keeps it until the handshake allows it, and sends it with its last flight.
        connection.tls.writer().write_all(request)?;
        Ok(connection)
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Since when its answer is waited for.
    pub(crate) fn waited(&self) -> Duration {
        self.asked.elapsed()
    }

    /// The next request on a connection that is kept.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.answer.clear();
        self.asked = Instant::now();
        self.tls.writer().write_all(request)?;
        self.flush()
    }

    /// Sends and receives what can be. `keep`: the answer ends by its length, else with the connection. `ended`: the
    /// peer is known to have ended.
    pub(crate) fn advance(&mut self, right: &Answer, keep: bool, ended: bool) -> Outcome {
        if !self.connected {
            match self.stream.peer_addr() {
                Ok(_) => self.connected = true,
                Err(_) => {
                    return match self.stream.take_error() {
                        Ok(None) => Outcome::Waiting,
                        _ => Outcome::Refused,
                    };
                }
            }
        }
        let outcome = self.flush().and_then(|()| self.receive(ended));
        let ended = match outcome {
            Ok(ended) => ended,
            Err(error) if error.kind() == ErrorKind::InvalidData => return Outcome::Wrong,
            Err(_) => return Outcome::Lost,
        };
        let whole = if keep {
            self.answer.len() >= right.bytes.len()
        } else {
            ended
        };
        if !whole {
            return if ended { Outcome::Lost } else { Outcome::Waiting };
        }
        self.answers += 1;
        if right.is(&self.answer, self.answers % VERIFIED == 1) {
            Outcome::Answered(self.asked.elapsed())
        } else {
            Outcome::Wrong
        }
    }

    /// Whether the peer has ended.
    fn receive(&mut self, ended: bool) -> io::Result<bool> {
        let mut received = [0; RECEIVED];
        loop {
            let n = match self.stream.read(&mut received) {
                Ok(0) => return Ok(true),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut records = &received[..n];
            let mut closed = false;
            while !records.is_empty() {
                self.tls.read_tls(&mut records)?;
                let state = self
                    .tls
                    .process_new_packets()
                    .map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
                closed = state.peer_has_closed();
                let plain = state.plaintext_bytes_to_read();
                let at = self.answer.len();
                self.answer.resize(at + plain, 0);
                self.tls.reader().read_exact(&mut self.answer[at..])?;
            }
            self.flush()?;
            if closed {
                return Ok(true);
            }
            // A short read has emptied the socket, and the next edge is told; an end that was told is not told again.
            if n < RECEIVED && !ended {
                return Ok(false);
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.unsent)?;
        }
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..sent);
        Ok(())
    }
}

/// A dial from an address of this host.
fn dial_from(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(
        socket2::Domain::IPV4,
        socket2::Type::STREAM.nonblocking().cloexec(),
        None,
    )?;
    socket.bind(&from.into())?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

/// Linux's number of "under way".
const EINPROGRESS: i32 = 115;

/// Asks once on a connection of its own. Anything but a 200 with a right length is an error.
pub(crate) fn learn(options: &Options, within: Duration) -> io::Result<Answer> {
    let stream = std::net::TcpStream::connect(("127.0.0.1", options.port))?;
    stream.set_read_timeout(Some(within))?;
    let mut stream = rustls::StreamOwned::new(Sessions::new(Mode::Full).start(), stream);
    stream.write_all(&options.request)?;
    let mut found = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(length) = whole_length(&found)
            && found.len() >= length
        {
            break;
        }
        match stream.read(&mut piece)? {
            0 => break,
            n => found.extend_from_slice(&piece[..n]),
        }
    }
    if !found.starts_with(b"HTTP/1.1 200") || whole_length(&found) != Some(found.len()) {
        let text: String = String::from_utf8_lossy(&found).chars().take(200).collect();
        return Err(io::Error::other(format!(
            "first answer: expected status 200, a Content-Length and that many bytes, found {text:?}"
        )));
    }
    Ok(Answer::new(found))
}

/// Bytes of the whole answer, once its head is there.
fn whole_length(found: &[u8]) -> Option<usize> {
    let head = found.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&found[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))?;
    Some(head + length.trim().parse::<usize>().ok()?)
}
