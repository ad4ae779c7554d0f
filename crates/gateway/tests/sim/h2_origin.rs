//! An HTTP/2 connection of a simulated origin, with a behavior of its own. The gateway's output must be valid.

use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_sim::Peer;
use ringmain_wire::h1::{FieldBlock, Method};
use ringmain_wire::h2::{Connection, ErrorCode, Event, HeadBuffer, Limits, PREFACE, Role, Stream};

use crate::fingerprint;
use crate::origins::REFUSAL_GAP_MS;
use crate::policy_services::Asked as Policies;

/// The behavior of an origin on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Steady,
    /// Takes its time for each answer, so that they overtake each other.
    Slow,
    /// Interim answers before each one, trailers behind it.
    Talks,
    /// Takes two requests at once, and small pieces of their bodies.
    Narrow,
    /// Sends GOAWAY after this many responses, and finishes those in progress.
    GoesAway(u32),
    /// Refuses every third request, which is to be asked again.
    Refuses,
    /// Responds to a request with a body when it has the head, piece by piece, and reads nothing of the body before it is done.
    Declines,
    /// From here on, nothing that a good origin does.
    ClosesAfter(u32),
    ResetsAfter(u32),
    /// Breaks single streams off, before an answer or within it.
    BreaksOff(u32),
    Garbage(u32),
    Mute(u32),
    /// Never reads any of a body.
    Full,
    /// Responds before it has read the body, and discards the rest.
    Early,
}

impl Manner {
    fn draw(random: &mut fastrand::Rng, bad: bool) -> Manner {
        let after = random.u32(0..4);
        if bad && random.u32(0..5) < 2 {
            return match random.u32(0..8) {
                0 => Manner::ClosesAfter(after),
                1 => Manner::ResetsAfter(after),
                2 | 3 => Manner::BreaksOff(after),
                4 => Manner::Garbage(after),
                5 => Manner::Mute(after),
                6 => Manner::Full,
                _ => Manner::Refuses,
            };
        }
        match random.u32(0..12) {
            10 | 11 => Manner::Declines,
            0 | 1 => Manner::Slow,
            2 => Manner::Talks,
            3 => Manner::Narrow,
            4 => Manner::GoesAway(after),
            5 if bad => Manner::Early,
            _ => Manner::Steady,
        }
    }

    fn limits(self) -> Limits {
        match self {
            Manner::Narrow => Limits {
                streams: 2,
                stream_window: 100,
                ..Limits::INTERNET
            },
            _ => Limits::INTERNET,
        }
    }
}

/// A request that is not answered to its end.
#[derive(Debug)]
struct Open {
    stream: Stream,
    id: u64,
    length: usize,
    is_head: bool,
    body: Vec<u8>,
    /// Received bytes of the body that were not read.
    unread: usize,
    /// The request is complete.
    whole: bool,
    answer: Option<Answer>,
}

impl Open {
    /// Returns whether its response was written in full.
    fn is_answered(&self) -> bool {
        let answer = self.answer.as_ref();
        answer.is_some_and(|answer| answer.begun && answer.sent == answer.body.len())
    }
}

#[derive(Debug)]
struct Answer {
    /// The instant of its start.
    at: Time,
    begun: bool,
    body: Vec<u8>,
    sent: usize,
    /// Bytes after which it breaks off.
    breaks: Option<usize>,
    /// It does not wait for the rest of the body, and was decided on without it.
    early: bool,
    /// It declines the request, in pieces of so many bytes with such pauses; and whether it says behind them that it wants no more
    /// of the request.
    declines: Option<(usize, Duration, bool)>,
}

impl Answer {
    /// Returns the instant at which it continues by itself.
    fn due(&self) -> Option<Time> {
        let continues = self.declines.is_some() && self.sent < self.body.len();
        (!self.begun || continues).then_some(self.at)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Framed {
    manner: Manner,
    connection: Connection,
    heads: HeadBuffer,
    kept: Vec<u8>,
    out: Vec<u8>,
    open: Vec<Open>,
    answers: u32,
    asked: u32,
    going: bool,
    /// There was no room for its bytes when it was looked at last.
    stuck: bool,
    /// The instant at which the connection is cut, and whether by a reset.
    end: Option<(Time, bool)>,
}

/// Returns whether these bytes begin an HTTP/2 connection; `None`: undecided.
pub(crate) fn is_framed(bytes: &[u8]) -> Option<bool> {
    let length = bytes.len().min(PREFACE.len());
    let is_like = bytes[..length] == PREFACE[..length];
    (!is_like || length == PREFACE.len()).then_some(is_like)
}

impl Framed {
    pub(crate) fn new(random: &mut fastrand::Rng, bad: bool, now: Time) -> Framed {
        let manner = Manner::draw(random, bad);
        let mut out = Vec::new();
        let limits = manner.limits();
        let connection = Connection::new(Role::Server, &limits, Duration::from_nanos(now.0), &mut out);
        Framed {
            manner,
            connection,
            heads: HeadBuffer::new(&limits),
            kept: Vec::new(),
            out,
            open: Vec::new(),
            answers: 0,
            asked: 0,
            going: false,
            stuck: false,
            end: None,
        }
    }

    /// Sets the bytes that were read before the protocol was known.
    pub(crate) fn take(&mut self, bytes: Vec<u8>) {
        self.kept = bytes;
    }

    /// Returns the instant of its next action.
    pub(crate) fn due(&self, now: Time) -> Option<Time> {
        if !self.out.is_empty() && !self.stuck {
            return Some(now);
        }
        let answers = self.open.iter().filter_map(|open| open.answer.as_ref());
        answers
            .filter_map(Answer::due)
            .chain(self.end.map(|(at, _)| at))
            .min()
    }

    /// Processes received bytes and performs all actions that are due. Returns `false` if the connection must be closed.
    pub(crate) fn act(
        &mut self,
        peer: &Peer,
        bytes: &[u8],
        now: Time,
        random: &mut fastrand::Rng,
        policies: &Policies,
    ) -> bool {
        self.kept.extend_from_slice(bytes);
        self.hear(now, random, policies);
        for number in 0..self.open.len() {
            self.answer(number, now);
        }
        let (connection, out) = (&mut self.connection, &mut self.out);
        self.open.retain(|open| {
            let is_open = connection.is_open(open.stream);
            if !is_open {
                // The connection's window is for other streams.
                connection.consume(open.stream, open.unread, out);
            }
            is_open
        });
        if let Some((at, by_reset)) = self.end
            && at <= now
        {
            if by_reset {
                peer.reset();
            }
            return false;
        }
        let Ok(count) = peer.write(&self.out) else {
            return false;
        };
        self.out.drain(..count);
        self.stuck = !self.out.is_empty();
        // It asks nothing any more, and reads nothing.
        !peer.eof()
    }

    fn hear(&mut self, now: Time, random: &mut fastrand::Rng, policies: &Policies) {
        let input = std::mem::take(&mut self.kept);
        let mut at = 0;
        loop {
            let time = Duration::from_nanos(now.0);
            let step = self
                .connection
                .receive(&input[at..], time, &mut self.heads, &mut self.out)
                .expect("the gateway writes what is right");
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::Request { stream, head, end } => {
                    let path = head.target.path().strip_prefix("/r/").expect("a request's id");
                    let id: u64 = path.parse().expect("a number");
                    let query = head.target.query().and_then(|query| query.strip_prefix("n="));
                    let length = query.expect("a length").parse().expect("a number");
                    let said = head.fields.get("x-id").map(|value| value.to_vec());
                    assert_eq!(said, Some(id.to_string().into_bytes()));
                    policies.arrive(id, |name| {
                        let value = head.fields.get(name)?;
                        Some(String::from_utf8_lossy(value).into_owned())
                    });
                    let open = Open {
                        stream,
                        id,
                        length,
                        is_head: head.method == Method::Head,
                        body: Vec::new(),
                        unread: 0,
                        whole: end,
                        answer: None,
                    };
                    self.open.push(open);
                    self.asked += 1;
                    self.came(self.open.len() - 1, now, random);
                }
                Event::Data { stream, data, end } => {
                    let place = self.open.iter().position(|open| open.stream == stream);
                    match (self.manner, place) {
                        (Manner::Full, _) => {}
                        (Manner::Declines, Some(place)) if !self.open[place].is_answered() => {
                            self.open[place].unread += data.len();
                        }
                        _ => self.connection.consume(stream, data.len(), &mut self.out),
                    }
                    if let Some(place) = place {
                        self.open[place].body.extend_from_slice(data);
                        self.open[place].whole |= end;
                        self.came(place, now, random);
                    }
                }
                Event::Trailers { stream, .. } => {
                    if let Some(place) = self.open.iter().position(|open| open.stream == stream) {
                        self.open[place].whole = true;
                        self.came(place, now, random);
                    }
                }
                Event::Broken { fault, .. } => panic!("the gateway broke a rule: {fault}"),
                _ => {}
            }
        }
        self.kept = input[at..].to_vec();
    }

    /// Handles a further part of a request: decides the action.
    fn came(&mut self, place: usize, now: Time, random: &mut fastrand::Rng) {
        let open = &mut self.open[place];
        let stream = open.stream;
        if open.answer.is_some() || !self.connection.is_open(stream) {
            return;
        }
        if self.manner == Manner::Refuses && self.asked.is_multiple_of(3) {
            return self
                .connection
                .reset(stream, ErrorCode::REFUSED_STREAM, &mut self.out);
        }
        let is_early = self.manner == Manner::Early && !open.whole;
        if self.manner == Manner::Declines && !open.whole {
            return self.decline(place, now, random);
        }
        if !open.whole && !is_early {
            return;
        }
        let over = |most: u32| self.answers >= most;
        // Never in no time: without the network's delays none would pass.
        let late = match self.manner {
            Manner::Slow => random.u64(10..20_000),
            _ => random.u64(10..40),
        };
        let at = now.after(Duration::from_micros(late));
        let mut breaks = None;
        let body = fingerprint::answer(open.id, &open.body, open.length);
        match self.manner {
            Manner::Mute(most) if over(most) => return,
            Manner::Garbage(most) if over(most) => {
                self.out.extend_from_slice(b"what?\r\n\r\n and more of that");
                return;
            }
            Manner::ClosesAfter(most) if over(most) => {
                self.end = Some((at, false));
                return;
            }
            Manner::ResetsAfter(most) if over(most) => self.end = Some((at, true)),
            Manner::BreaksOff(most) if over(most) => breaks = Some(random.usize(..body.len())),
            _ => {}
        }
        self.answers += 1;
        self.open[place].answer = Some(Answer {
            at,
            begun: false,
            body,
            sent: 0,
            breaks,
            early: is_early,
            declines: None,
        });
        if matches!(self.manner, Manner::GoesAway(most) if self.answers > most) && !self.going {
            self.going = true;
            self.connection.announce_end(&mut self.out);
        }
    }

    /// Declines a request whose body is not read.
    fn decline(&mut self, place: usize, now: Time, random: &mut fastrand::Rng) {
        let open = &mut self.open[place];
        let body = fingerprint::refusal(open.id);
        let piece = 1 + random.usize(body.len() / 10..body.len());
        let gap = Duration::from_millis(random.u64(1..REFUSAL_GAP_MS));
        self.answers += 1;
        open.answer = Some(Answer {
            at: now.after(Duration::from_micros(random.u64(10..40))),
            begun: false,
            body,
            sent: 0,
            breaks: None,
            early: false,
            declines: Some((piece, gap, random.bool())),
        });
    }

    /// Continues with the response that declines a request.
    fn continue_declining(&mut self, place: usize, now: Time) {
        let open = &mut self.open[place];
        let (connection, out, stream) = (&mut self.connection, &mut self.out, open.stream);
        let Some(answer) = &mut open.answer else { return };
        let Some((piece, gap, resets)) = answer.declines else {
            return;
        };
        if !answer.begun {
            answer.begun = true;
            let mut head = connection.respond(stream, 413, out).expect("an open stream");
            head.field("X-Proof", open.id.to_string().as_bytes())
                .expect("a field");
            head.finish(false);
        }
        let rest = &answer.body[answer.sent..];
        let is_last = rest.len() <= piece;
        let sent = connection.data(stream, &rest[..rest.len().min(piece)], is_last, out);
        answer.sent += sent.unwrap_or(rest.len());
        answer.at = now.after(gap);
        if answer.sent < answer.body.len() {
            return;
        }
        // The received body is discarded, and its window returned for other streams.
        connection.consume(stream, std::mem::take(&mut open.unread), out);
        self.stop_rest(place, resets);
    }

    /// Says that the rest of a request is not wanted (RFC 9113 §8.1), or reads it and drops it.
    fn stop_rest(&mut self, place: usize, resets: bool) {
        let open = &self.open[place];
        if resets && !open.whole && self.connection.is_open(open.stream) {
            self.connection
                .reset(open.stream, ErrorCode::NO_ERROR, &mut self.out);
        }
    }

    /// Goes on with an answer, as far as the gateway takes it.
    fn answer(&mut self, place: usize, now: Time) {
        let open = &mut self.open[place];
        let stream = open.stream;
        let Some(answer) = open.answer.as_mut().filter(|answer| answer.at <= now) else {
            return;
        };
        if !self.connection.is_open(stream) {
            return;
        }
        if answer.declines.is_some() {
            return self.continue_declining(place, now);
        }
        let (connection, out) = (&mut self.connection, &mut self.out);
        if answer.early {
            let refused = connection.respond(stream, 403, out).expect("an open stream");
            refused.finish(true);
            if !open.whole {
                connection.reset(stream, ErrorCode::NO_ERROR, out);
            }
            return;
        }
        if !answer.begun {
            answer.begun = true;
            if answer.breaks == Some(0) {
                return connection.reset(stream, ErrorCode::INTERNAL_ERROR, out);
            }
            if self.manner == Manner::Talks {
                let mut hints = connection.respond(stream, 103, out).expect("an open stream");
                hints.field("a", b"b").expect("a field");
                hints.finish(false);
            }
            let mut head = connection.respond(stream, 200, out).expect("an open stream");
            head.field("X-Proof", open.id.to_string().as_bytes())
                .expect("a field");
            if open.id.is_multiple_of(2) {
                head.length(answer.body.len() as u64);
            }
            head.finish(open.is_head);
            if open.is_head {
                return;
            }
        }
        let most = answer.breaks.unwrap_or(answer.body.len());
        let talks = self.manner == Manner::Talks;
        let ends = answer.breaks.is_none() && !talks;
        let rest = &answer.body[answer.sent..most];
        answer.sent += connection.data(stream, rest, ends, out).unwrap_or(rest.len());
        if answer.sent < most {
            return;
        }
        if answer.breaks.is_some() {
            connection.reset(stream, ErrorCode::CANCEL, out);
        } else if talks {
            let mut fields = FieldBlock::new();
            fields.push("t", b"1").expect("a field");
            connection.trailers(stream, &fields, out).expect("an open stream");
        }
    }
}
