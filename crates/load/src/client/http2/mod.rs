//! HTTP/2, the client's side: which stream answers what, bodies under flow control, what a stream or a connection ends by.
//!
//! What is to be written collects in [`Http2::out`], one connection at a time; who calls writes it. Once buffers are warm a request
//! allocates nothing, and one without tokens is not encoded again. Knows neither schedules nor figures.

mod call;
mod ends;
mod session;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_wire::h1::{self, FieldTable, Fields, HeadScanner, Method, Parsed, parse_response};
use ringmain_wire::h2::{
    Budgets, Connection, ErrorCode, Event, FRAME_BYTES, HeadBuffer, Limits, Rate, Request, Role, Stream,
};

use self::call::Call;
pub(crate) use self::session::Session;
use self::session::{Asked, Kept};
use super::link::{InFlight, Lane};
use super::speak::Draws;
use super::websocket::Opened;
use super::{Answer, Heard, Message};
use crate::limits;
use crate::plan::Grpc;
use crate::traffic::{Filled, Filling, Step, Traffic};

/// Whatever a server does is measured, not warded off.
const ANY: Rate = Rate {
    most: u32::MAX,
    per_second: u32::MAX,
};

/// What a server may send; it is under test, not attacking.
const LIMITS: Limits = Limits {
    continuations: 1_000,
    stream_window: limits::HTTP2_WINDOW,
    connection_window: limits::HTTP2_WINDOW,
    budgets: Budgets {
        resets: ANY,
        control: ANY,
        window_updates: ANY,
        empty: ANY,
        small: ANY,
    },
    ..Limits::INTERNET
};

/// What is counted of a server that does not keep the protocol's rules.
const BROKE: &str = "HTTP/2: broke the protocol";

/// What all connections of a worker share.
#[derive(Debug)]
pub(crate) struct Http2 {
    scheme: &'static str,
    /// Requests are calls of gRPC.
    grpc: Option<Grpc>,
    /// Messages of calls that were not told of yet.
    messages: Vec<Message>,
    heads: HeadBuffer,
    /// What is to be written on the connection at hand.
    pub(crate) out: Vec<u8>,
    filled: Filled,
    /// For heads that were kept.
    table: FieldTable,
    /// Those that no answer needs at the time.
    spare: Vec<Kept>,
    /// What was found of the last fault, until it is asked for.
    said: Option<String>,
}

impl Http2 {
    pub(crate) fn new(secured: bool, grpc: Option<Grpc>) -> Http2 {
        Http2 {
            scheme: if secured { "https" } else { "http" },
            grpc,
            messages: Vec::new(),
            heads: HeadBuffer::new(&LIMITS),
            out: Vec::new(),
            filled: Filled::default(),
            table: FieldTable::new(&h1::Limits::INTERNET),
            spare: Vec::new(),
            said: None,
        }
    }

    /// Whether every request can be sent so; of the first that cannot, why.
    pub(crate) fn check(traffic: &Traffic) -> Result<(), String> {
        let (mut http2, mut session) = (Http2::new(false, None), Session::default());
        http2.open(&mut session, Time(0));
        let mut random = fastrand::Rng::with_seed(0);
        let mut sequence = crate::traffic::Sequence::new(0, 1);
        let lane = Lane::default();
        for (flow, steps) in traffic.flows().iter().enumerate() {
            for (number, step) in steps.steps.iter().enumerate() {
                let request = InFlight {
                    flow: flow as u32,
                    step: number as u32,
                    ..InFlight::default()
                };
                let mut draws = Draws {
                    random: &mut random,
                    sequence: &mut sequence,
                    scratch: &mut Vec::new(),
                };
                let written = http2.write(&mut session, &lane, traffic, request, &mut draws);
                if let Err(why) = written {
                    return Err(format!("`{}`: {why}", step.name()));
                }
                http2.out.clear();
            }
        }
        Ok(())
    }

    /// Begins a connection: leaves what is said first in `out`.
    pub(crate) fn open(&mut self, session: &mut Session, now: Time) {
        self.out.clear();
        session.connection = Some(Connection::new(Role::Client, &LIMITS, since(now), &mut self.out));
    }

    /// Reads the settings that a server sends first. Returns the number of bytes consumed, and the outcome.
    pub(crate) fn opened(&mut self, session: &mut Session, now: Time, input: &[u8]) -> (usize, Opened) {
        const OLDER: &[u8] = b"HTTP/1.";
        if input.starts_with(OLDER) || OLDER.starts_with(input) {
            if input.len() < OLDER.len() {
                return (0, Opened::More);
            }
            let said = "the server responds in HTTP/1.1 to a request over HTTP/2: enable HTTP/2 there, or drop --http2";
            return (input.len(), Opened::Refused("HTTP/2: not supported", said.into()));
        }
        let Some(connection) = &mut session.connection else {
            return (0, Opened::More);
        };
        let mut at = 0;
        loop {
            let received = connection.receive(&input[at..], since(now), &mut self.heads, &mut self.out);
            let step = match received {
                Ok(step) => step,
                Err(fault) => {
                    let said = format!("the first bytes from the server are not HTTP/2: {fault}");
                    return (at, Opened::Refused(BROKE, said));
                }
            };
            at += step.consumed;
            match step.event {
                Event::NeedMore => return (at, Opened::More),
                Event::Settings => return (at, Opened::Open { deflated: false }),
                Event::GoAway { code, .. } => {
                    let said = format!("the server sent GOAWAY at once ({code})");
                    return (at, Opened::Refused(ends::retreat(code), said));
                }
                _ => {}
            }
        }
    }

    /// Appends the request to `out`; why it cannot be sent, if so.
    pub(crate) fn write(
        &mut self,
        session: &mut Session,
        lane: &Lane,
        traffic: &Traffic,
        request: InFlight,
        draws: &mut Draws<'_>,
    ) -> Result<(), String> {
        let Session {
            connection: Some(connection),
            repeated,
            ..
        } = session
        else {
            return Err("there is no connection".into());
        };
        let step = step(traffic, request);
        let mut filling = Filling {
            values: &lane.values,
            random: draws.random,
            sequence: draws.sequence,
        };
        let (asked, content) = step.parts().fill(&mut self.filled, &mut filling);
        let body = content.as_bytes();
        let head = Request {
            method: step.method(),
            scheme: self.scheme,
            authority: asked.authority,
            path: asked.path,
            protocol: None,
        };
        let (length, end) = (asked.length, body.is_empty());
        let known = asked
            .constant
            .then(|| repeated.of(request.flow, request.step))
            .flatten();
        let opened = match known {
            Some(known) => connection.request_again(known, &head, asked.fields, length, end, &mut self.out),
            None => connection.request(&head, asked.fields, length, end, &mut self.out),
        };
        let stream = opened.map_err(|misuse| misuse.to_string())?;
        let mut sent = 0;
        if !end && body.len() <= FRAME_BYTES {
            let begun = connection.data(stream, body, true, &mut self.out);
            sent = begun.map_err(|misuse| misuse.to_string())?;
        }
        let rest = (sent < body.len()).then(|| content.rest(sent));
        let call = self.grpc.map(|_| Call::new(request.sent));
        session.begin(stream, request, call, rest);
        Ok(())
    }

    /// Appends to `out` what may leave of bodies, up to about `room` bytes in all.
    pub(crate) fn send_bodies(&mut self, session: &mut Session, room: usize) {
        session.send_bodies(room, &mut self.out);
    }

    /// Reads bytes of responses. Returns the number of bytes consumed, and the outcome.
    pub(crate) fn read(
        &mut self,
        session: &mut Session,
        lanes: &mut [Lane],
        traffic: &Traffic,
        now: Time,
        input: &[u8],
    ) -> (usize, Heard) {
        let mut at = 0;
        loop {
            let Some(connection) = &mut session.connection else {
                return (input.len(), Heard::More);
            };
            let received = connection.receive(&input[at..], since(now), &mut self.heads, &mut self.out);
            let received = match received {
                Ok(received) => received,
                Err(fault) => {
                    self.said = Some(fault.to_string());
                    return (at, Heard::Closing(BROKE));
                }
            };
            at += received.consumed;
            let ended = match received.event {
                Event::NeedMore => return (at, Heard::More),
                Event::Response { stream, head, end } if !head.is_interim() => {
                    if let Some((asked, values)) = find(&mut session.asked, stream, lanes) {
                        let step = step(traffic, asked.request);
                        asked.head(step, head.status, &head.fields, end, values, &mut self.spare);
                        if let Some(call) = &mut asked.call {
                            call.fields(&head.fields);
                        }
                    }
                    end.then_some(stream)
                }
                Event::Data { stream, data, end } => {
                    connection.consume(stream, data.len(), &mut self.out);
                    if let Some((asked, values)) = find(&mut session.asked, stream, lanes) {
                        let step = step(traffic, asked.request);
                        if let Some(call) = &mut asked.call {
                            call.data(data, now, &mut self.messages);
                        }
                        if let Some(kept) = &mut asked.kept {
                            kept.take(data);
                            if end {
                                asked.right = kept.judge(step, asked.status, values, &mut self.table);
                            }
                        }
                    }
                    end.then_some(stream)
                }
                Event::Trailers { stream, fields } => {
                    if let Some((asked, values)) = find(&mut session.asked, stream, lanes) {
                        asked.trailers(&fields, traffic, values, &mut self.table);
                    }
                    Some(stream)
                }
                other => match session.told(other, &mut self.said) {
                    Some(heard) => return (at, heard),
                    None => continue,
                },
            };
            session.heard = now;
            if let Some(heard) = ended.and_then(|stream| self.answer(session, stream)) {
                return (at, heard);
            }
        }
    }

    /// The answer on a stream is whole.
    fn answer(&mut self, session: &mut Session, stream: Stream) -> Option<Heard> {
        let mut asked = session.end(stream)?;
        if let Some(mut kept) = asked.kept.take() {
            kept.clear();
            self.spare.push(kept);
        }
        if asked.upload.is_some()
            && let Some(connection) = &mut session.connection
        {
            // Answered before all of the body was there: nobody wants the rest (RFC 9113 §8.1).
            connection.reset(stream, ErrorCode::CANCEL, &mut self.out);
        }
        let is_streaming = self.grpc == Some(Grpc::ServerStreaming);
        let called = asked.call.map(|call| call.end(asked.status, is_streaming));
        let answer = Answer {
            status: asked.status,
            right: asked.right && called.is_none_or(|called| called.right),
            last: session.is_over(),
            code: called.map(|called| called.code),
        };
        Some(Heard::Answer(asked.request, answer))
    }

    /// Gives up what was sent before that moment; [`Session::take_lost`] gives it back.
    pub(crate) fn give_up(&mut self, session: &mut Session, sent_until: Time) {
        session.give_up(sent_until, &mut self.out);
    }

    /// Leaves a goodbye in the scratch, behind what has not left yet.
    pub(crate) fn close(&mut self, session: &mut Session, draws: &mut Draws<'_>) -> bool {
        let Some(connection) = &mut session.connection else {
            return false;
        };
        connection.abandon(ErrorCode::NO_ERROR, &mut self.out);
        draws.scratch.clear();
        draws.scratch.append(&mut self.out);
        true
    }

    /// Messages of calls that have come since this was asked last.
    pub(crate) fn messages(&mut self) -> impl Iterator<Item = Message> {
        self.messages.drain(..)
    }

    /// What was found of the last fault.
    pub(crate) fn take_said(&mut self) -> Option<String> {
        self.said.take()
    }
}

fn since(now: Time) -> Duration {
    Duration::from_nanos(now.0)
}

fn step(traffic: &Traffic, request: InFlight) -> &Step {
    &traffic.flows()[request.flow as usize].steps[request.step as usize]
}

/// What was asked on a stream, with what its flow has captured.
fn find<'a>(
    asked: &'a mut [Option<Asked>],
    stream: Stream,
    lanes: &'a mut [Lane],
) -> Option<(&'a mut Asked, &'a mut crate::traffic::Values)> {
    let asked = asked.get_mut(stream.slot())?.as_mut()?;
    let values = &mut lanes[asked.request.lane as usize].values;
    (asked.stream == stream).then_some((asked, values))
}

impl Asked {
    /// What stands behind the body has come: the answer is whole.
    fn trailers(
        &mut self,
        fields: &Fields<'_>,
        traffic: &Traffic,
        values: &mut crate::traffic::Values,
        table: &mut FieldTable,
    ) {
        if let Some(call) = &mut self.call {
            call.fields(fields);
        }
        if let Some(kept) = &mut self.kept {
            self.right = kept.judge(step(traffic, self.request), self.status, values, table);
        }
    }

    /// The head of the answer has come.
    #[inline]
    fn head(
        &mut self,
        step: &Step,
        status: u16,
        fields: &Fields<'_>,
        end: bool,
        values: &mut crate::traffic::Values,
        spare: &mut Vec<Kept>,
    ) {
        self.status = status;
        if end || !step.needs_body() {
            self.right = step.judge(status, fields, b"", values).is_ok();
            return;
        }
        let mut kept = spare.pop().unwrap_or_default();
        if step.needs_fields() {
            for field in fields.iter() {
                for part in [field.name, b": ", field.value, b"\r\n"] {
                    kept.head.extend_from_slice(part);
                }
            }
        }
        self.kept = Some(kept);
    }
}

impl Kept {
    fn take(&mut self, data: &[u8]) {
        let room = limits::CHECKED_BODY_BYTES - self.body.len();
        self.cut |= data.len() > room;
        self.body.extend_from_slice(&data[..data.len().min(room)]);
    }

    fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.cut = false;
    }

    /// Whether the answer is what was expected. Its fields lay in bytes that are gone: they are read once more.
    fn judge(
        &mut self,
        step: &Step,
        status: u16,
        values: &mut crate::traffic::Values,
        table: &mut FieldTable,
    ) -> bool {
        const START: &[u8] = b"HTTP/1.1 200 \r\n";
        self.head.splice(..0, START.iter().copied());
        self.head.extend_from_slice(b"\r\n");
        let limits = &h1::Limits::INTERNET;
        let parsed = parse_response(&self.head, Method::Get, limits, &mut HeadScanner::new(), table);
        match parsed {
            Ok(Parsed::Complete { head, .. }) if !self.cut => {
                step.judge(status, &head.fields, &self.body, values).is_ok()
            }
            _ => false,
        }
    }
}
