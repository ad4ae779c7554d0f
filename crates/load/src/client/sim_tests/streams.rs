//! The server's end of a simulated HTTP/2 connection: requests as wholes, answers as bytes. Knows no manners.

use std::time::Duration;

use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{Budgets, Connection, ErrorCode, Event, HeadBuffer, Limits, Rate, Role, Stream};

const ANY: Rate = Rate {
    most: u32::MAX,
    per_second: u32::MAX,
};

/// SETTINGS that allow one stream at once from now on (RFC 9113 §6.5.2); more may be open.
pub(super) const FEWER: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1];

/// A request as it has come so far.
#[derive(Debug)]
struct Begun {
    stream: Stream,
    target: String,
}

#[derive(Debug)]
pub(super) struct Streams {
    connection: Connection,
    heads: HeadBuffer,
    begun: Vec<Begun>,
}

impl Streams {
    /// One that takes some streams at once and has windows of some size, with what it says first.
    pub(super) fn open(random: &mut fastrand::Rng) -> (Streams, Vec<u8>) {
        let limits = Limits {
            streams: [1, 3, 100][random.usize(..3)],
            stream_window: random.u32(1..100_000),
            connection_window: random.u32(65_535..200_000),
            budgets: Budgets {
                resets: ANY,
                control: ANY,
                window_updates: ANY,
                empty: ANY,
                small: ANY,
            },
            ..Limits::INTERNET
        };
        let mut first = Vec::new();
        let connection = Connection::new(Role::Server, &limits, Duration::ZERO, &mut first);
        let streams = Streams {
            connection,
            heads: HeadBuffer::new(&limits),
            begun: Vec::new(),
        };
        (streams, first)
    }

    /// Requests that are whole now, and what is to be said besides.
    pub(super) fn read(&mut self, kept: &mut Vec<u8>) -> (Vec<(Stream, String)>, Vec<u8>) {
        let (mut whole, mut out, mut at) = (Vec::new(), Vec::new(), 0);
        loop {
            let (input, heads) = (&kept[at..], &mut self.heads);
            let step = self.connection.receive(input, Duration::ZERO, heads, &mut out);
            let step = step.expect("the client keeps the rules");
            at += step.consumed;
            let ended = match step.event {
                Event::NeedMore => break,
                Event::Request { stream, head, end } => {
                    self.begun.push(Begun {
                        stream,
                        target: head.target_text.to_owned(),
                    });
                    end.then_some(stream)
                }
                Event::Data { stream, data, end } => {
                    assert!(data.iter().all(|byte| *byte == b'u'), "as it was sent");
                    self.connection.consume(stream, data.len(), &mut out);
                    end.then_some(stream)
                }
                Event::Reset { stream, .. } => {
                    self.begun.retain(|begun| begun.stream != stream);
                    None
                }
                Event::Broken { fault, .. } => panic!("the client keeps the rules: {fault}"),
                _ => None,
            };
            if let Some(at) = self.begun.iter().position(|begun| Some(begun.stream) == ended) {
                let begun = self.begun.swap_remove(at);
                whole.push((begun.stream, begun.target));
            }
        }
        kept.drain(..at);
        (whole, out)
    }

    /// An answer, unless the client has given its stream up.
    pub(super) fn answer(&mut self, stream: Stream, body: &str, trailers: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let Ok(mut head) = self.connection.respond(stream, 200, &mut out) else {
            return out;
        };
        if !trailers {
            head.length(body.len() as u64);
        }
        head.finish(false);
        let (data, end) = (body.as_bytes(), !trailers);
        let sent = self.connection.data(stream, data, end, &mut out);
        assert_eq!(sent, Ok(data.len()), "the client's windows are wide");
        if trailers {
            let mut fields = FieldBlock::new();
            fields.push("T", b"1").expect("a field");
            let ended = self.connection.trailers(stream, &fields, &mut out);
            ended.expect("it is open");
        }
        out
    }

    pub(super) fn interim(&mut self, stream: Stream) -> Vec<u8> {
        let mut out = Vec::new();
        if let Ok(head) = self.connection.respond(stream, 103, &mut out) {
            head.finish(false);
        }
        out
    }

    pub(super) fn refuse(&mut self, stream: Stream) -> Vec<u8> {
        let mut out = Vec::new();
        self.connection.reset(stream, ErrorCode::REFUSED_STREAM, &mut out);
        out
    }

    /// Takes no more requests than have come.
    pub(super) fn go_away(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.connection.go_away(&mut out);
        out
    }

    /// Wants no more of it.
    pub(super) fn abandon(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.connection.abandon(ErrorCode::ENHANCE_YOUR_CALM, &mut out);
        out
    }
}
