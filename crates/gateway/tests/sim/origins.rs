//! Simulated origins with a behavior of their own on each connection, some of which have outages. They record requests.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_sim::{Peer, PeerListener, World};
use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, FieldTable, Framing, HeadScanner, Limits, Method, Parsed, parse_request,
};

use crate::fingerprint;
use crate::h2_origin::{Framed, is_framed};
use crate::policy_services::Asked as Policies;

/// The behavior of an origin on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Steady,
    /// Answers in pieces of a few bytes.
    Pieces,
    /// Takes its time for each answer.
    Slow,
    Chunked,
    /// Interim answers before each one.
    Interim,
    /// Says with an answer that it is the last, after so many.
    Last(u32),
    /// Ends its side without a word, so long after an answer.
    EndsIdle(Duration),
    /// Its answers end with the connection.
    UntilClose,
    /// Refuses a request with a body when it has the head, with a response that may take a while, reads nothing more, and closes
    /// long after.
    Refuses,
    /// From here on, nothing that a good origin does.
    ClosesAfter(u32),
    ResetsAfter(u32),
    HalfAnswers(u32),
    Garbage(u32),
    Mute(u32),
    /// Does not even read.
    Deaf,
    /// Closes the connection after accepting it.
    Leaves,
    /// Refuses with an answer before it has read the body, and closes.
    Early,
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
                4 => Manner::Mute(after),
                5 => Manner::Deaf,
                6 => Manner::Early,
                _ => Manner::Leaves,
            };
        }
        match random.u32(0..11) {
            0 => Manner::Pieces,
            1 => Manner::Slow,
            2 => Manner::Chunked,
            3 => Manner::Interim,
            4 => Manner::Last(after),
            5 if bad => Manner::EndsIdle(Duration::from_micros(random.u64(0..3_000))),
            6 => Manner::UntilClose,
            7 => Manner::Refuses,
            _ => Manner::Steady,
        }
    }
}

/// The action after bytes were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Go,
    Close,
    Reset,
}

/// A request that is here as a whole.
struct Asked {
    id: u64,
    length: usize,
    is_head: bool,
    body: Vec<u8>,
}

#[derive(Debug)]
struct Guest {
    peer: Peer,
    manner: Manner,
    bad: bool,
    /// It speaks HTTP/2.
    framed: Option<Box<Framed>>,
    kept: Vec<u8>,
    out: VecDeque<(Time, Vec<u8>, Then)>,
    answers: u32,
    /// There was no room for its bytes when it was looked at last.
    stuck: bool,
    done: bool,
}

/// Milliseconds between two pieces of a refusal, fewer than the shortest idle time.
pub(crate) const REFUSAL_GAP_MS: u64 = 600;

/// Bytes that both sockets of a connection of a calm world hold at most: those that have left the gateway though no origin reads.
const SOCKETS_HOLD: u64 = 2 * 64 * 1024;

/// The most outages of an origin.
const FLAPS: u32 = 12;

/// One origin.
pub(crate) struct Origin {
    world: World,
    addr: Addr,
    /// `None` while it is gone.
    listener: Option<PeerListener>,
    /// The instant at which the next outage begins or ends, and the number left; after the last one it is available.
    flap: Option<(Time, u32)>,
    random: fastrand::Rng,
    bad: bool,
    guests: Vec<Guest>,
    policies: Policies,
}

impl Origin {
    pub(crate) fn new(world: &World, addr: Addr, seed: u64, bad: bool, policies: &Policies) -> Origin {
        let mut random = fastrand::Rng::with_seed(seed);
        let flaps = bad && random.u32(0..3) == 0;
        let first = world.now().after(flap_span(&mut random));
        Origin {
            world: world.clone(),
            listener: Some(world.peer_listen(&addr)),
            addr,
            flap: flaps.then_some((first, FLAPS)),
            random,
            bad,
            guests: Vec::new(),
            policies: policies.clone(),
        }
    }

    /// Returns whether it acts before time advances.
    pub(crate) fn is_busy(&self) -> bool {
        let now = self.world.now();
        self.due().is_some_and(|at| at <= now)
    }

    /// Returns the instant of its next action.
    pub(crate) fn due(&self) -> Option<Time> {
        let now = self.world.now();
        let guests = self.guests.iter().filter_map(|guest| guest.due(now));
        guests.chain(self.flap.map(|(at, _)| at)).min()
    }

    /// Whose doing it is that it is busy.
    pub(crate) fn told(&self) -> String {
        let now = self.world.now();
        let guests = self.guests.iter();
        let busy = guests.filter(|guest| guest.due(now).is_some_and(|at| at <= now));
        let told: Vec<_> = busy
            .map(|guest| format!("{guest:?}, eof: {}", guest.peer.eof()))
            .collect();
        format!("{:?}: {}", self.addr, told.join("; "))
    }

    /// Ends all connections.
    pub(crate) fn close_all(&mut self) {
        self.flap = None;
        self.act();
        for guest in &mut self.guests {
            guest.close();
        }
        self.guests.clear();
    }

    /// Performs all actions that are due.
    pub(crate) fn act(&mut self) {
        self.come_or_go();
        while let Some(peer) = self.listener.as_ref().and_then(PeerListener::accept) {
            self.guests.push(Guest {
                peer,
                manner: Manner::draw(&mut self.random, self.bad),
                bad: self.bad,
                framed: None,
                kept: Vec::new(),
                out: VecDeque::new(),
                answers: 0,
                stuck: false,
                done: false,
            });
        }
        let now = self.world.now();
        for guest in &mut self.guests {
            guest.act(now, &mut self.random, &self.policies);
        }
        self.guests.retain(|guest| !guest.done);
    }

    /// Goes down, with its connections or for new ones only, or recovers.
    fn come_or_go(&mut self) {
        let now = self.world.now();
        let Some((_, left)) = self.flap.filter(|(at, _)| *at <= now) else {
            return;
        };
        let next = now.after(flap_span(&mut self.random));
        self.flap = (left > 1).then_some((next, left - 1));
        let Some(listener) = self.listener.take() else {
            self.listener = Some(self.world.peer_listen(&self.addr));
            return;
        };
        listener.close();
        let how = self.random.u32(0..3);
        if how == 2 {
            return;
        }
        for guest in self.guests.drain(..) {
            // An answer that ends with its connection would be whole to everybody.
            if how == 0 || guest.manner == Manner::UntilClose {
                guest.peer.reset();
            } else {
                guest.peer.close();
            }
        }
    }
}

/// Draws the duration of an outage or of the time between two.
fn flap_span(random: &mut fastrand::Rng) -> Duration {
    Duration::from_micros(random.u64(10..50_000))
}

impl Guest {
    fn due(&self, now: Time) -> Option<Time> {
        let reads = self.framed.is_some() || self.manner != Manner::Deaf;
        if reads && (self.peer.readable() > 0 || self.peer.eof()) || self.peer.failed() {
            return Some(now);
        }
        if let Some(framed) = &self.framed {
            return framed.due(now);
        }
        let (at, ..) = self.out.front()?;
        (!self.stuck).then_some(*at)
    }

    fn close(&mut self) {
        self.peer.close();
        self.done = true;
    }

    fn act(&mut self, now: Time, random: &mut fastrand::Rng, policies: &Policies) {
        if self.framed.is_none() && self.manner == Manner::Leaves || self.peer.failed() {
            return self.close();
        }
        if self.is_framed(now, random) == Some(true) {
            let bytes = self.peer.read(usize::MAX);
            let framed = self.framed.as_mut().expect("it was made before");
            if !framed.act(&self.peer, &bytes, now, random, policies) {
                self.close();
            }
            return;
        }
        if self.manner != Manner::Deaf {
            let bytes = self.peer.read(usize::MAX);
            self.kept.extend_from_slice(&bytes);
        }
        if self.manner == Manner::Early && self.kept.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            let at = now.after(Duration::from_micros(random.u64(10..40)));
            let answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec();
            self.out.push_back((at, answer, Then::Close));
            self.kept.clear();
            // The rest of the body is ignored.
            self.manner = Manner::Deaf;
        }
        if self.manner == Manner::Refuses {
            self.refuse(now, random, policies);
        }
        let is_unknown = self.answers == 0 && self.out.is_empty() && is_framed(&self.kept).is_none();
        if is_unknown && !self.peer.eof() {
            return;
        }
        while let Some(asked) = self.request(policies) {
            self.answer(&asked, now, random);
        }
        self.write(now);
        if !self.done && self.peer.eof() && self.manner != Manner::Deaf {
            self.close();
        }
    }

    /// Returns whether the gateway speaks HTTP/2; `None`: not known yet.
    fn is_framed(&mut self, now: Time, random: &mut fastrand::Rng) -> Option<bool> {
        if self.framed.is_some() {
            return Some(true);
        }
        if self.answers > 0 || self.manner == Manner::Deaf {
            return Some(false);
        }
        let bytes = self.peer.read(usize::MAX);
        self.kept.extend_from_slice(&bytes);
        let is_framed = is_framed(&self.kept)?;
        if is_framed {
            let mut framed = Framed::new(random, self.bad, now);
            framed.take(std::mem::take(&mut self.kept));
            self.framed = Some(Box::new(framed));
        }
        Some(is_framed)
    }

    /// Answers a request with a body as soon as its head is here, and is deaf from then on.
    fn refuse(&mut self, now: Time, random: &mut fastrand::Rng, policies: &Policies) {
        let mut table = FieldTable::new(&Limits::INTERNET);
        let parsed = parse_request(&self.kept, &Limits::INTERNET, &mut HeadScanner::new(), &mut table);
        let Ok(Parsed::Complete { head, bytes }) = parsed else {
            return;
        };
        let here = (self.kept.len() - bytes) as u64;
        let can_be_sent = match head.framing {
            Framing::None | Framing::Length(0) => return,
            Framing::Length(length) => length.saturating_sub(here) <= SOCKETS_HOLD,
            _ => true,
        };
        let id = head.fields.get("X-Id").expect("each has one");
        let id = String::from_utf8_lossy(id).parse().expect("a number");
        policies.arrive(id, |name| {
            let value = head.fields.get(name)?;
            Some(String::from_utf8_lossy(value).into_owned())
        });
        let body = fingerprint::refusal(id);
        let mut at = now.after(Duration::from_micros(random.u64(10..40)));
        let is_chunked = random.bool();
        let framing = if is_chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {}", body.len())
        };
        // A good origin announces that it reads nothing more, unless the rest of the request has no room on the connection: a client
        // that has sent a request as a whole may send the next one there.
        let announces = random.bool() || !self.bad && can_be_sent;
        let close = if announces { "Connection: close\r\n" } else { "" };
        let head = format!("HTTP/1.1 413 Content Too Large\r\nX-Proof: {id}\r\n{close}{framing}\r\n\r\n");
        self.out.push_back((at, head.into_bytes(), Then::Go));
        let gap = Duration::from_millis(random.u64(0..REFUSAL_GAP_MS));
        for piece in body.chunks(1 + random.usize(body.len() / 10..body.len())) {
            let mut bytes = piece.to_vec();
            if is_chunked {
                bytes = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            }
            self.out.push_back((at, bytes, Then::Go));
            at = at.after(gap);
        }
        if is_chunked {
            self.out.push_back((at, b"0\r\n\r\n".to_vec(), Then::Go));
        }
        self.out
            .push_back((at.after(Duration::from_secs(1)), Vec::new(), Then::Close));
        self.kept.clear();
        self.manner = Manner::Deaf;
    }

    /// Returns the next complete request. The gateway's output must be valid.
    fn request(&mut self, policies: &Policies) -> Option<Asked> {
        let mut table = FieldTable::new(&Limits::INTERNET);
        let parsed = parse_request(&self.kept, &Limits::INTERNET, &mut HeadScanner::new(), &mut table);
        let (head, mut at) = match parsed.expect("the gateway writes what is right") {
            Parsed::Complete { head, bytes } => (head, bytes),
            Parsed::Partial => return None,
        };
        let id = head
            .target
            .path()
            .strip_prefix("/r/")
            .expect("a request's id")
            .parse()
            .expect("a number");
        let length = head
            .target
            .query()
            .and_then(|query| query.strip_prefix("n="))
            .expect("a length");
        let length = length.parse().expect("a number");
        assert_eq!(
            head.fields.get("X-Id").map(|value| value.to_vec()),
            Some(format!("{id}").into_bytes())
        );
        policies.arrive(id, |name| {
            let value = head.fields.get(name)?;
            Some(String::from_utf8_lossy(value).into_owned())
        });
        let is_head = head.method == Method::Head;
        let mut decoder = BodyDecoder::new(head.framing, &Limits::INTERNET).expect("without a limit all fit");
        let mut body = Vec::new();
        loop {
            let step = decoder
                .decode(&self.kept[at..])
                .expect("the gateway writes what is right");
            at += step.consumed;
            match step.event {
                BodyEvent::Data(data) => body.extend_from_slice(data),
                BodyEvent::Trailers(_) => {}
                BodyEvent::End => break,
                BodyEvent::NeedMore if decoder.is_over() => break,
                BodyEvent::NeedMore => return None,
            }
        }
        self.kept.drain(..at);
        Some(Asked {
            id,
            length,
            is_head,
            body,
        })
    }

    fn answer(&mut self, asked: &Asked, now: Time, random: &mut fastrand::Rng) {
        let body = fingerprint::answer(asked.id, &asked.body, asked.length);
        let length = body.len();
        let head =
            |framing: &str| format!("HTTP/1.1 200 OK\r\nX-Proof: {}\r\n{framing}\r\n", asked.id).into_bytes();
        let body = if asked.is_head { Vec::new() } else { body };
        let plain = [head(&format!("Content-Length: {length}\r\n")), body.clone()].concat();
        let over = |most: u32| self.answers >= most;
        let part = random.usize(..plain.len());
        let (text, then) = match self.manner {
            Manner::Chunked if !asked.is_head => {
                let mut text = head("Transfer-Encoding: chunked\r\n");
                for chunk in body.chunks(random.usize(1..2000)) {
                    text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    text.extend_from_slice(chunk);
                    text.extend_from_slice(b"\r\n");
                }
                text.extend_from_slice(b"0\r\nT: 1\r\n\r\n");
                (text, Then::Go)
            }
            Manner::Interim => (
                [b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", &*plain].concat(),
                Then::Go,
            ),
            Manner::Last(most) if over(most) => (
                [
                    head(&format!("Connection: close\r\nContent-Length: {length}\r\n")),
                    body,
                ]
                .concat(),
                Then::Close,
            ),
            Manner::UntilClose => ([head("Connection: close\r\n"), body].concat(), Then::Close),
            Manner::ClosesAfter(most) if over(most) => (Vec::new(), Then::Close),
            Manner::ResetsAfter(most) if over(most) => (plain[..part].to_vec(), Then::Reset),
            Manner::HalfAnswers(most) if over(most) => (plain[..part].to_vec(), Then::Close),
            Manner::Garbage(most) if over(most) => (b"what?\r\n\r\n".to_vec(), Then::Go),
            Manner::Mute(most) if over(most) => return,
            _ => (plain, Then::Go),
        };
        // Never in no time: without the network's delays none would pass.
        let late = match self.manner {
            Manner::Slow => random.u64(10..20_000),
            _ => random.u64(10..40),
        };
        let at = now.after(Duration::from_micros(late));
        self.answers += 1;
        if self.manner == Manner::Pieces {
            for (number, piece) in text.chunks(random.usize(1..200)).enumerate() {
                let at = at.after(Duration::from_micros(number as u64));
                self.out.push_back((at, piece.to_vec(), Then::Go));
            }
        } else {
            self.out.push_back((at, text, then));
        }
        if let Manner::EndsIdle(idle) = self.manner {
            self.out.push_back((at.after(idle), Vec::new(), Then::Close));
        }
    }

    fn write(&mut self, now: Time) {
        self.stuck = false;
        while let Some((at, bytes, then)) = self.out.front_mut() {
            if *at > now {
                return;
            }
            let Ok(count) = self.peer.write(bytes) else {
                return self.close();
            };
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
