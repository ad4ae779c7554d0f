//! The protocols behind one enum: the seam where later ones come in.
//!
//! Knows what a request's bytes are and where its answer ends; nothing of when.

use std::collections::VecDeque;

use bytes::Bytes;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_engine::{Conn, WriteError};

use super::echo::Echo;
use super::http1::{self, Http1};
use super::link::{InFlight, Link, Reading};
use super::websocket::{Opened, WebSocket};
use super::{Answer, Heard};
use crate::plan::Protocol;
use crate::traffic::{Sequence, Socket, Traffic};

/// Requests from this size on are handed over in pieces: the engine's queue has a limit.
const LONG: usize = 256 * 1024;

/// What all connections of a worker share of a protocol.
#[derive(Debug)]
pub(super) enum Speaker {
    Http1(Http1),
    Echo(Echo),
    WebSocket(WebSocket),
}

/// What is drawn from while a request is put together.
pub(super) struct Draws<'a> {
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) sequence: &'a mut Sequence,
    pub(super) scratch: &'a mut Vec<u8>,
}

impl Speaker {
    pub(super) fn new(protocol: Protocol) -> Speaker {
        match protocol {
            Protocol::Http1 => Speaker::Http1(Http1::new()),
            Protocol::Echo { bytes } => Speaker::Echo(Echo::new(bytes)),
            Protocol::WebSocket(messages) => Speaker::WebSocket(WebSocket::new(messages.bytes)),
        }
    }

    pub(super) fn reading(&self) -> Reading {
        match self {
            Speaker::Http1(_) => Reading::Http1(http1::Reading::default()),
            Speaker::Echo(_) => Reading::Echo(0),
            Speaker::WebSocket(_) => Reading::WebSocket(Box::default()),
        }
    }

    /// Begins the protocol's own handshake on a connection, if it has one: leaves it in the scratch.
    pub(super) fn open(&mut self, link: &mut Link, traffic: &Traffic, draws: &mut Draws<'_>) -> bool {
        let Reading::WebSocket(reading) = &mut link.reading else {
            return false;
        };
        WebSocket::open(reading, socket(traffic), draws);
        true
    }

    /// Takes bytes of the answer to the handshake; returns how many were taken, and what came of it.
    pub(super) fn opened(&mut self, link: &mut Link, traffic: &Traffic, input: &[u8]) -> (usize, Opened) {
        match (self, &mut link.reading) {
            (Speaker::WebSocket(websocket), Reading::WebSocket(reading)) => {
                websocket.opened(reading, socket(traffic), input)
            }
            _ => unreachable!("other protocols have no handshake"),
        }
    }

    /// Leaves a word of farewell in the scratch; `false` if the protocol has none, or cannot say it now.
    pub(super) fn close(&mut self, link: &mut Link, draws: &mut Draws<'_>) -> bool {
        match &mut link.reading {
            Reading::WebSocket(reading) => link.unsent.is_empty() && reading.close(draws),
            Reading::Http1(_) | Reading::Echo(_) => false,
        }
    }

    /// Writes the request that `link` has just taken in; returns its length. A long one's rest is left in
    /// [`Link::unsent`].
    pub(super) fn write(
        &mut self,
        conn: Conn<'_>,
        link: &mut Link,
        number: u64,
        traffic: &Traffic,
        request: InFlight,
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
                websocket.write(reading, socket(traffic), (number, link.messages), draws);
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
                step.write(scratch, &link.values, draws.random, draws.sequence);
                write_or_keep(conn, &mut link.unsent, scratch, || {
                    Bytes::copy_from_slice(scratch)
                })
            }
        }
    }

    /// Takes bytes that came on `link`; returns how many were taken, and what came of it. Its first `asked` requests in flight
    /// were sent before these bytes came.
    #[inline]
    pub(super) fn read(
        &mut self,
        link: &mut Link,
        number: u64,
        traffic: &Traffic,
        asked: usize,
        input: &mut [u8],
        draws: &mut Draws<'_>,
    ) -> (usize, Heard) {
        // Only WebSocket has words that nobody asks for.
        let request = match (&self, link.in_flight.front()) {
            (Speaker::WebSocket(_), _) => None,
            (_, Some(request)) if asked > 0 => Some(request),
            _ => return (0, Heard::Broken("sent what nobody asked for")),
        };
        match (self, &mut link.reading, request) {
            (Speaker::Http1(http1), Reading::Http1(reading), Some(request)) => {
                let step = &traffic.flows()[request.flow as usize].steps[request.step as usize];
                http1.read(reading, step, &mut link.values, input)
            }
            (Speaker::Echo(echo), Reading::Echo(received), _) => {
                let oldest = link.messages - link.in_flight.len() as u64;
                echo.read(number, oldest, received, input)
            }
            (Speaker::WebSocket(websocket), Reading::WebSocket(reading), _) => {
                let oldest = link.messages - link.in_flight.len() as u64;
                websocket.read(reading, socket(traffic), (number, oldest), asked, input, draws)
            }
            _ => unreachable!("a link reads what its worker speaks"),
        }
    }

    /// The server has sent its last byte while requests are in flight on `link`.
    pub(super) fn end(&mut self, link: &mut Link, traffic: &Traffic) -> Heard {
        match (self, &mut link.reading, link.in_flight.front()) {
            (Speaker::Http1(http1), Reading::Http1(reading), Some(request)) => {
                let step = &traffic.flows()[request.flow as usize].steps[request.step as usize];
                match http1.end(reading, step, &mut link.values) {
                    Heard::Answer(answer) => Heard::Answer(Answer { last: true, ..answer }),
                    other => other,
                }
            }
            (_, Reading::Echo(1..), _) => Heard::Broken("closed within an answer"),
            (_, Reading::WebSocket(reading), _) if reading.is_within_message() => {
                Heard::Broken("closed within an answer")
            }
            _ => Heard::Broken("closed without an answer"),
        }
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
