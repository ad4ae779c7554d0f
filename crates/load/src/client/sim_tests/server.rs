//! A simulated server with a manner of its own on each connection. It knows what it was asked and what it has answered.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_sim::{Peer, PeerListener, World};

use super::socket::{Said, Socket};
use super::streams::{self, Streams};
use crate::plan::Protocol;

/// How the server behaves on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Steady,
    /// Answers in pieces of a few bytes.
    Pieces,
    /// Takes its time for each answer.
    Slow,
    Chunked,
    /// An interim answer before each one.
    Interim,
    /// Says with an answer that it is the last, after so many.
    Last(u32),
    /// Ends its side without a word, so long after an answer.
    EndsIdle(Duration),
    /// Its answers end with the connection.
    UntilClose,
    /// From here on, nothing that a good server does.
    ClosesAfter(u32),
    ResetsAfter(u32),
    HalfAnswers(u32),
    Garbage(u32),
    Twice(u32),
    Mute(u32),
    /// Does not even read.
    Deaf,
    /// Closes what it has just accepted.
    Leaves,
}

impl Manner {
    fn draw(random: &mut fastrand::Rng, bad: bool) -> Manner {
        let after = random.u32(0..4);
        if bad && random.u32(0..5) < 2 {
            return match random.u32(0..8) {
                0 => Manner::ClosesAfter(after),
                1 => Manner::ResetsAfter(after),
                2 => Manner::HalfAnswers(after),
                3 => Manner::Garbage(after),
                4 => Manner::Twice(after),
                5 => Manner::Mute(after),
                6 => Manner::Deaf,
                _ => Manner::Leaves,
            };
        }
        match random.u32(0..10) {
            0 => Manner::Pieces,
            1 => Manner::Slow,
            2 => Manner::Chunked,
            3 => Manner::Interim,
            4 => Manner::Last(after),
            5 => Manner::EndsIdle(Duration::from_micros(random.u64(0..3_000))),
            6 => Manner::UntilClose,
            _ => Manner::Steady,
        }
    }
}

/// What is done when bytes have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Go,
    Close,
    Reset,
}

#[derive(Debug)]
struct Guest {
    peer: Peer,
    manner: Manner,
    kept: Vec<u8>,
    /// What speaks WebSocket, once the connection does.
    socket: Option<Socket>,
    /// What speaks HTTP/2, where that is spoken.
    streams: Option<Streams>,
    out: VecDeque<(Time, Vec<u8>, Then)>,
    answers: u32,
    /// There was no room for its bytes when it was looked at last.
    stuck: bool,
    done: bool,
}

/// What the server has seen and done.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) connections: u64,
    pub(super) requests: u64,
    /// Right answers that were given to the network as a whole.
    pub(super) answers: u64,
    pub(super) bytes: u64,
    tokens: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct Server {
    world: World,
    listener: PeerListener,
    random: fastrand::Rng,
    protocol: Protocol,
    bad: bool,
    guests: Vec<Guest>,
    pub(super) seen: Seen,
}

impl Server {
    pub(super) fn new(
        world: &World,
        listener: PeerListener,
        seed: u64,
        protocol: Protocol,
        bad: bool,
    ) -> Server {
        Server {
            world: world.clone(),
            listener,
            random: fastrand::Rng::with_seed(seed),
            protocol,
            bad,
            guests: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// When it does something unasked.
    pub(super) fn due(&self) -> Option<Time> {
        self.guests
            .iter()
            .filter_map(|guest| guest.due(self.world.now()))
            .min()
    }

    /// Ends all connections; those who still dial are let in.
    pub(super) fn close_all(&mut self) {
        for guest in &mut self.guests {
            guest.close();
        }
    }

    /// Does what is to be done now.
    pub(super) fn act(&mut self) {
        while let Some(peer) = self.listener.accept() {
            self.seen.connections += 1;
            let manner = if matches!(self.protocol, Protocol::Echo { .. }) && !self.bad {
                Manner::Steady
            } else {
                Manner::draw(&mut self.random, self.bad)
            };
            self.guests.push(Guest {
                peer,
                manner,
                kept: Vec::new(),
                socket: None,
                streams: None,
                out: VecDeque::new(),
                answers: 0,
                stuck: false,
                done: false,
            });
        }
        let now = self.world.now();
        for guest in &mut self.guests {
            guest.act(now, self.protocol, &mut self.random, &mut self.seen);
        }
        self.guests.retain(|guest| !guest.done);
    }
}

impl Guest {
    fn due(&self, now: Time) -> Option<Time> {
        if self.reads() && self.peer.readable() > 0 || self.peer.eof() || self.peer.failed() {
            return Some(now);
        }
        let (at, ..) = self.out.front()?;
        (!self.stuck).then_some(*at)
    }

    fn reads(&self) -> bool {
        self.manner != Manner::Deaf
    }

    fn close(&mut self) {
        self.peer.close();
        self.done = true;
    }

    fn act(&mut self, now: Time, protocol: Protocol, random: &mut fastrand::Rng, seen: &mut Seen) {
        if self.manner == Manner::Leaves || self.peer.failed() {
            return self.close();
        }
        if self.reads() {
            let bytes = self.peer.read(usize::MAX);
            self.kept.extend_from_slice(&bytes);
        }
        match protocol {
            Protocol::Echo { .. } => self.echo(now, random),
            Protocol::WebSocket(_) => self.web_socket(now, random, seen),
            Protocol::Http2 | Protocol::Grpc(_) => self.http2(now, random, seen),
            Protocol::Http1 => {
                while let Some(target) = self.request() {
                    seen.requests += 1;
                    self.answer(&target, now, random, seen);
                }
            }
        }
        self.write(now, seen);
        if !self.done && self.peer.eof() {
            self.close();
        }
    }

    fn echo(&mut self, now: Time, random: &mut fastrand::Rng) {
        if self.kept.is_empty() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.kept);
        self.answers += 1;
        let then = match self.manner {
            Manner::ResetsAfter(most) if self.answers > most => Then::Reset,
            Manner::ClosesAfter(most) if self.answers > most => Then::Close,
            Manner::Garbage(most) if self.answers > most => {
                bytes[0] ^= 0x80;
                Then::Go
            }
            _ => Then::Go,
        };
        let late = if self.manner == Manner::Slow {
            random.u64(10..8_000)
        } else {
            random.u64(10..40)
        };
        self.out
            .push_back((now.after(Duration::from_micros(late)), bytes, then));
    }

    /// The handshake, then messages that go back.
    fn web_socket(&mut self, now: Time, random: &mut fastrand::Rng, seen: &mut Seen) {
        let Some(socket) = &mut self.socket else {
            let end = self.kept.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = end {
                let head: Vec<u8> = self.kept.drain(..end + 4).collect();
                let refuses = matches!(self.manner, Manner::HalfAnswers(0) | Manner::Garbage(0));
                let (socket, mut answer) = Socket::open(&head);
                if refuses {
                    answer = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec();
                }
                self.socket = Some(socket);
                let at = now.after(Duration::from_micros(random.u64(10..40)));
                self.out.push_back((at, answer, Then::Go));
            }
            return;
        };
        for said in socket.read(&mut self.kept) {
            match said {
                Said::Message(plain) => {
                    seen.requests += 1;
                    self.answer_message(plain, now, random, seen);
                }
                Said::Close(goodbye) => {
                    let at = now.after(Duration::from_micros(random.u64(10..40)));
                    self.out.push_back((at, goodbye, Then::Close));
                }
            }
        }
    }

    /// Requests on streams, answered in whatever order.
    fn http2(&mut self, now: Time, random: &mut fastrand::Rng, seen: &mut Seen) {
        if self.streams.is_none() {
            let (streams, first) = Streams::open(random);
            self.streams = Some(streams);
            let at = now.after(Duration::from_micros(random.u64(10..40)));
            self.out.push_back((at, first, Then::Go));
        }
        let mut streams = self.streams.take().expect("it was opened");
        let (mut whole, said) = streams.read(&mut self.kept);
        random.shuffle(&mut whole);
        if !said.is_empty() {
            self.out.push_back((now, said, Then::Go));
        }
        for (stream, target) in whole {
            seen.requests += 1;
            let body = Guest::body(&target, seen);
            let over = |most: u32| self.answers >= most;
            let mut plain = |trailers| streams.answer(stream, &body, trailers);
            let (bytes, then) = match self.manner {
                Manner::Chunked => (plain(true), Then::Go),
                Manner::Interim => {
                    let interim = streams.interim(stream);
                    let answer = streams.answer(stream, &body, false);
                    ([&interim[..], streams::FEWER, &answer].concat(), Then::Go)
                }
                Manner::Last(most) if over(most) => {
                    let answer = plain(false);
                    ([streams.go_away(), answer].concat(), Then::Go)
                }
                Manner::UntilClose => {
                    let answer = plain(false);
                    ([answer, streams.abandon()].concat(), Then::Close)
                }
                Manner::ClosesAfter(most) if over(most) => (Vec::new(), Then::Close),
                Manner::ResetsAfter(most) if over(most) => {
                    let mut answer = plain(false);
                    answer.truncate(random.usize(..=answer.len()));
                    (answer, Then::Reset)
                }
                Manner::HalfAnswers(most) if over(most) => {
                    let mut answer = plain(false);
                    answer.truncate(random.usize(..=answer.len()));
                    (answer, Then::Close)
                }
                Manner::Garbage(most) if over(most) => (vec![0xFF; 9], Then::Go),
                Manner::Twice(most) if over(most) => (streams.refuse(stream), Then::Go),
                Manner::Mute(most) if over(most) => continue,
                _ => (plain(false), Then::Go),
            };
            seen.answers += 1;
            self.later(bytes, then, now, random);
        }
        self.streams = Some(streams);
    }

    /// `plain` is a message as it goes back.
    fn answer_message(&mut self, plain: Vec<u8>, now: Time, random: &mut fastrand::Rng, seen: &mut Seen) {
        let over = |most: u32| self.answers >= most;
        let (bytes, then) = match self.manner {
            Manner::Interim => ([&[0x89, 2, b'h', b'i'], &plain[..]].concat(), Then::Go),
            Manner::Last(most) if over(most) => ([&plain[..], &[0x88, 2, 0x03, 0xE9]].concat(), Then::Go),
            Manner::ClosesAfter(most) if over(most) => (Vec::new(), Then::Close),
            Manner::ResetsAfter(most) if over(most) => {
                (plain[..random.usize(..plain.len())].to_vec(), Then::Reset)
            }
            Manner::HalfAnswers(most) if over(most) => {
                (plain[..random.usize(..plain.len())].to_vec(), Then::Close)
            }
            Manner::Garbage(most) if over(most) => (vec![0xFF; 9], Then::Go),
            Manner::Twice(most) if over(most) => (plain.repeat(2), Then::Go),
            Manner::Mute(most) if over(most) => return,
            _ => (plain, Then::Go),
        };
        seen.answers += 1 + u64::from(matches!(self.manner, Manner::Twice(_)));
        self.later(bytes, then, now, random);
    }

    /// The target of the next request that is here as a whole.
    fn request(&mut self) -> Option<String> {
        let end = self.kept.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let head = str::from_utf8(&self.kept[..end]).expect("a head in ASCII");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |value| value.parse().expect("a length"));
        let target = head.split(' ').nth(1).expect("a target").to_owned();
        if self.kept.len() < end + length {
            return None;
        }
        let body = &self.kept[end..end + length];
        assert!(body.iter().all(|byte| *byte == b'u'), "as it was sent");
        self.kept.drain(..end + length);
        Some(target)
    }

    fn body(target: &str, seen: &mut Seen) -> String {
        if let Some(token) = target.strip_prefix("/show/") {
            assert!(seen.tokens.contains(token), "`{token}` was never given");
        }
        if target != "/login" {
            return "ok".to_owned();
        }
        let token = format!("t{}", seen.tokens.len());
        seen.tokens.insert(token.clone());
        format!("{{\"token\":\"{token}\"}}")
    }

    fn answer(&mut self, target: &str, now: Time, random: &mut fastrand::Rng, seen: &mut Seen) {
        let body = Guest::body(target, seen);
        let length = body.len();
        let plain = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        let over = |most: u32| self.answers >= most;
        let (text, then) = match self.manner {
            Manner::Chunked => {
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                (
                    format!("{head}{length:x}\r\n{body}\r\n0\r\nT: 1\r\n\r\n"),
                    Then::Go,
                )
            }
            Manner::Interim => (format!("HTTP/1.1 103 Early\r\nA: b\r\n\r\n{plain}"), Then::Go),
            Manner::Last(most) if over(most) => {
                let last = plain.replacen("OK\r\n", "OK\r\nConnection: close\r\n", 1);
                (last, Then::Close)
            }
            Manner::UntilClose => (format!("HTTP/1.1 200 OK\r\n\r\n{body}"), Then::Close),
            Manner::ClosesAfter(most) if over(most) => (String::new(), Then::Close),
            Manner::ResetsAfter(most) if over(most) => {
                (plain[..random.usize(..plain.len())].to_owned(), Then::Reset)
            }
            Manner::HalfAnswers(most) if over(most) => {
                (plain[..random.usize(..plain.len())].to_owned(), Then::Close)
            }
            Manner::Garbage(most) if over(most) => ("what?\r\n\r\n".to_owned(), Then::Go),
            Manner::Twice(most) if over(most) => (plain.repeat(2), Then::Go),
            Manner::Mute(most) if over(most) => return,
            _ => (plain, Then::Go),
        };
        seen.answers += 1 + u64::from(matches!(self.manner, Manner::Twice(_)));
        self.later(text.into_bytes(), then, now, random);
    }

    /// Sends an answer when the manner says so.
    fn later(&mut self, bytes: Vec<u8>, then: Then, now: Time, random: &mut fastrand::Rng) {
        // Never in no time: without the network's delays none would pass.
        let late = match self.manner {
            Manner::Slow => random.u64(10..20_000),
            _ => random.u64(10..40),
        };
        let at = now.after(Duration::from_micros(late));
        self.answers += 1;
        if self.manner == Manner::Pieces {
            for (number, piece) in bytes.chunks(random.usize(1..20)).enumerate() {
                let at = at.after(Duration::from_micros(number as u64));
                self.out.push_back((at, piece.to_vec(), Then::Go));
            }
        } else {
            self.out.push_back((at, bytes, then));
        }
        if let Manner::EndsIdle(idle) = self.manner {
            self.out.push_back((at.after(idle), Vec::new(), Then::Close));
        }
    }

    fn write(&mut self, now: Time, seen: &mut Seen) {
        self.stuck = false;
        while let Some((at, bytes, then)) = self.out.front_mut() {
            if *at > now {
                return;
            }
            let Ok(count) = self.peer.write(bytes) else {
                return self.close();
            };
            seen.bytes += count as u64;
            bytes.drain(..count);
            if !bytes.is_empty() {
                self.stuck = true;
                return;
            }
            match then {
                Then::Go => {}
                Then::Close => return self.close(),
                Then::Reset => {
                    self.peer.reset();
                    return self.close();
                }
            }
            self.out.pop_front();
        }
    }
}
