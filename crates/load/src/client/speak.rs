//! The protocols behind one enum: the seam where later ones come in.
//!
//! Knows what a request's bytes are and where its answer ends; nothing of when.

use std::collections::VecDeque;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_engine::{Conn, WriteError};

use super::echo::Echo;
use super::http1::{self, Http1};
use super::http2::{Http2, Session};
use super::link::{InFlight, Lane, Link, Reading, Stage};
use super::websocket::{Awaited, Opened, WebSocket};
use super::window::Window;
use super::{Answer, Heard, Told};
use crate::plan::Protocol;
use crate::traffic::{Sequence, Socket, Traffic};

/// Requests from this size on are handed over in pieces: the engine's queue has a limit.
const LONG: usize = 256 * 1024;

/// What all connections of a worker share of a protocol.
#[derive(Debug)]
pub(super) enum Speaker {
    Http1(Http1),
    Http2(Box<Http2>),
    Echo(Echo),
    WebSocket(WebSocket),
}

/// What is drawn from while a request is put together.
pub(super) struct Draws<'a> {
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) sequence: &'a mut Sequence,
    pub(super) scratch: &'a mut Vec<u8>,
}

/// A request that is about to leave.
pub(super) struct Outgoing<'a> {
    /// The number of the connection.
    pub(super) number: u64,
    pub(super) lane: &'a Lane,
    pub(super) request: InFlight,
}

/// Bytes that have arrived on a connection.
pub(super) struct Incoming<'a> {
    /// The number of the connection.
    pub(super) number: u64,
    /// The number of the oldest requests in flight that were sent before these bytes arrived.
    pub(super) asked: usize,
    pub(super) now: Time,
    pub(super) bytes: &'a mut [u8],
}

impl Speaker {
    /// `secured`: over TLS.
    pub(super) fn new(protocol: Protocol, secured: bool) -> Speaker {
        match protocol {
            Protocol::Http1 => Speaker::Http1(Http1::new()),
            Protocol::Http2 => Speaker::Http2(Box::new(Http2::new(secured, None))),
            Protocol::Grpc(grpc) => Speaker::Http2(Box::new(Http2::new(secured, Some(grpc)))),
            Protocol::Echo { bytes } => Speaker::Echo(Echo::new(bytes)),
            Protocol::WebSocket(messages) => Speaker::WebSocket(WebSocket::new(messages.bytes)),
        }
    }

    pub(super) fn reading(&self) -> Reading {
        match self {
            Speaker::Http1(_) => Reading::Http1(http1::Reading::default()),
            Speaker::Http2(_) => Reading::Http2(Box::default()),
            Speaker::Echo(_) => Reading::Echo(0),
            Speaker::WebSocket(_) => Reading::WebSocket(Box::default()),
        }
    }

    /// Begins the protocol's own handshake on a connection, if it has one: leaves it in the scratch, and says which it is.
    pub(super) fn open(
        &mut self,
        link: &mut Link,
        traffic: &Traffic,
        draws: &mut Draws<'_>,
        now: Time,
    ) -> Option<Stage> {
        match (self, &mut link.reading) {
            (Speaker::Http2(http2), Reading::Http2(session)) => {
                http2.open(session, now);
                draws.scratch.clear();
                draws.scratch.append(&mut http2.out);
                Some(Stage::Http2)
            }
            (_, Reading::WebSocket(reading)) => {
                WebSocket::open(reading, socket(traffic), draws);
                Some(Stage::WebSocket)
            }
            _ => None,
        }
    }

    /// Reads bytes of the handshake's response. Returns the number of bytes consumed, and the outcome.
    pub(super) fn opened(
        &mut self,
        link: &mut Link,
        traffic: &Traffic,
        now: Time,
        input: &[u8],
    ) -> (usize, Opened) {
        match (self, &mut link.reading) {
            (Speaker::Http2(http2), Reading::Http2(session)) => http2.opened(session, now, input),
            (Speaker::WebSocket(websocket), Reading::WebSocket(reading)) => {
                websocket.opened(reading, socket(traffic), input)
            }
            _ => unreachable!("other protocols have no handshake"),
        }
    }

    /// Leaves a word of farewell in the scratch. `None` if the protocol has none, or cannot say it now; else whether the other
    /// end answers it.
    pub(super) fn close(&mut self, link: &mut Link, draws: &mut Draws<'_>) -> Option<bool> {
        match (self, &mut link.reading) {
            (Speaker::Http2(http2), Reading::Http2(session)) => {
                (link.unsent.is_empty() && http2.close(session, draws)).then_some(false)
            }
            (_, Reading::WebSocket(reading)) => {
                (link.unsent.is_empty() && reading.close(draws)).then_some(true)
            }
            _ => None,
        }
    }

    /// Whether the other end takes another request now.
    #[inline]
    pub(super) fn may_ask(&self, link: &Link) -> bool {
        match &link.reading {
            Reading::Http2(session) => session.may_ask(),
            _ => true,
        }
    }

    /// What is to be written to `link` beside requests and answers to handshakes; as much of bodies as there is `room` for.
    pub(super) fn gather(&mut self, link: &mut Link, room: usize) -> Option<&mut Vec<u8>> {
        match (self, &mut link.reading) {
            (Speaker::Http2(http2), Reading::Http2(session)) => {
                http2.send_bodies(session, room);
                (!http2.out.is_empty()).then_some(&mut http2.out)
            }
            _ => None,
        }
    }

    /// Forgets what was to be written to a connection that is over.
    pub(super) fn drop_unwritten(&mut self) {
        if let Speaker::Http2(http2) = self {
            http2.out.clear();
        }
    }

    /// Tells of messages that belong to answers and have come since this was asked last.
    #[inline]
    pub(super) fn tell_messages(&mut self, window: &mut Window) {
        if let Speaker::Http2(http2) = self {
            http2.messages().for_each(|message| window.message(message));
        }
    }

    /// What was found of the last fault.
    pub(super) fn take_said(&mut self) -> Option<String> {
        match self {
            Speaker::Http2(http2) => http2.take_said(),
            _ => None,
        }
    }

    /// Gives up what was sent until then, where requests can be given up one by one; they are lost then.
    pub(super) fn give_up(&mut self, link: &mut Link, sent_until: Time) {
        if let (Speaker::Http2(http2), Reading::Http2(session)) = (self, &mut link.reading) {
            http2.give_up(session, sent_until);
        }
    }

    /// Writes the request that `link` is about to take in; returns its length. A long one's rest is left in
    /// [`Link::unsent`]. HTTP/2's is left to [`Speaker::gather`], its length too.
    pub(super) fn write(
        &mut self,
        conn: Conn<'_>,
        link: &mut Link,
        traffic: &Traffic,
        Outgoing {
            number,
            lane,
            request,
        }: Outgoing<'_>,
        draws: &mut Draws<'_>,
    ) -> Result<usize, WriteError> {
        match self {
            Speaker::Echo(echo) => {
                let message = echo.message(number, link.messages);
                link.messages += 1;
                write_or_keep(conn, &mut link.unsent, message, || {
                    Bytes::copy_from_slice(message)
                })
            }
            Speaker::WebSocket(websocket) => {
                let Reading::WebSocket(reading) = &mut link.reading else {
                    unreachable!("a link reads what its worker speaks");
                };
                websocket.write(reading, socket(traffic), number, link.messages, draws);
                link.messages += 1;
                let frames = &*draws.scratch;
                write_or_keep(conn, &mut link.unsent, frames, || Bytes::copy_from_slice(frames))
            }
            Speaker::Http1(_) => {
                let step = &traffic.flows()[request.flow as usize].steps[request.step as usize];
                if let Some(bytes) = step.constant() {
                    return write_or_keep(conn, &mut link.unsent, bytes, || bytes.clone());
                }
                let scratch = &mut *draws.scratch;
                scratch.clear();
                step.write(scratch, &lane.values, draws.random, draws.sequence);
                write_or_keep(conn, &mut link.unsent, scratch, || {
                    Bytes::copy_from_slice(scratch)
                })
            }
            Speaker::Http2(http2) => {
                let session = session(&mut link.reading);
                // The plan was checked: only what a server gave to capture could do this.
                let written = http2.write(session, lane, traffic, request, draws);
                written.map(|()| 0).map_err(|_| WriteError::Closed)
            }
        }
    }

    /// Reads bytes that were received on `link`. Returns the number of bytes consumed, and the outcome.
    #[inline]
    pub(super) fn read(
        &mut self,
        link: &mut Link,
        lanes: &mut [Lane],
        traffic: &Traffic,
        incoming: Incoming<'_>,
        draws: &mut Draws<'_>,
    ) -> (usize, Heard) {
        let Incoming {
            number,
            asked,
            now,
            bytes: input,
        } = incoming;
        if let (Speaker::Http2(http2), Reading::Http2(session)) = (&mut *self, &mut link.reading) {
            return http2.read(session, lanes, traffic, now, input);
        }
        // Of the others only WebSocket has words that nobody asks for.
        let request = match (&self, link.in_flight.front()) {
            (Speaker::WebSocket(_), _) => None,
            (_, Some(request)) if asked > 0 => Some(request),
            _ => return (0, Heard::Broken("sent data without a request")),
        };
        let oldest = link.messages.saturating_sub(link.in_flight.len() as u64);
        let (taken, heard) = match (self, &mut link.reading, request) {
            (Speaker::Http1(http1), Reading::Http1(reading), Some(request)) => {
                let step = &traffic.flows()[request.flow as usize].steps[request.step as usize];
                http1.read(reading, step, &mut lanes[request.lane as usize].values, input)
            }
            (Speaker::Echo(echo), Reading::Echo(received), _) => echo.read(number, oldest, received, input),
            (Speaker::WebSocket(websocket), Reading::WebSocket(reading), _) => {
                let awaited = Awaited {
                    connection: number,
                    oldest,
                    asked,
                };
                websocket.read(reading, socket(traffic), awaited, input, draws)
            }
            _ => unreachable!("a link reads what its worker speaks"),
        };
        (taken, of_the_oldest(link, heard))
    }

    /// The server has sent its last byte while requests are in flight on `link`.
    pub(super) fn end(&mut self, link: &mut Link, lanes: &mut [Lane], traffic: &Traffic) -> Heard {
        match (self, &mut link.reading, link.in_flight.front()) {
            (Speaker::Http1(http1), Reading::Http1(reading), Some(request)) => {
                let step = &traffic.flows()[request.flow as usize].steps[request.step as usize];
                let values = &mut lanes[request.lane as usize].values;
                let told = http1.end(reading, step, values);
                match of_the_oldest(link, told) {
                    Heard::Answer(request, answer) => Heard::Answer(request, Answer { last: true, ..answer }),
                    other => other,
                }
            }
            (_, Reading::Http2(session), _) => Heard::Broken(session.lost_by_end()),
            (_, Reading::Echo(1..), _) => Heard::Broken("closed within a response"),
            (_, Reading::WebSocket(reading), _) if reading.is_within_message() => {
                Heard::Broken("closed within a response")
            }
            _ => Heard::Broken("closed without a response"),
        }
    }
}

/// What came of bytes on a link whose answers come in the order of requests.
#[inline]
fn of_the_oldest(link: &mut Link, told: Told) -> Heard {
    match told {
        Told::More => Heard::More,
        Told::Answer(answer) => {
            let request = link.in_flight.pop_front();
            Heard::Answer(request.expect("an answer belongs to a request"), answer)
        }
        Told::Said => Heard::Said,
        Told::Broken(what) => Heard::Broken(what),
        Told::Closing(what) => Heard::Closing(what),
    }
}

/// The session of a link; it has one where HTTP/2 is spoken.
fn session(reading: &mut Reading) -> &mut Session {
    match reading {
        Reading::Http2(session) => session,
        _ => unreachable!("a link reads what its worker speaks"),
    }
}

/// What is said over WebSockets; a plan that speaks them was checked to have it.
fn socket(traffic: &Traffic) -> &Socket {
    traffic.socket().expect("the plan was checked")
}

/// Writes a request, or puts it behind those that wait for room.
pub(super) fn write_or_keep(
    conn: Conn<'_>,
    unsent: &mut VecDeque<Bytes>,
    bytes: &[u8],
    shared: impl FnOnce() -> Bytes,
) -> Result<usize, WriteError> {
    if bytes.len() < LONG && unsent.is_empty() && conn.unsent() <= WRITE_MARK {
        conn.write(bytes)?;
    } else {
        unsent.push_back(shared());
    }
    Ok(bytes.len())
}
