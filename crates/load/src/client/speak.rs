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
use super::{Answer, Heard};
use crate::plan::Protocol;
use crate::traffic::{Sequence, Traffic};

/// Requests from this size on are handed over in pieces: the engine's queue has a limit.
const LONG: usize = 256 * 1024;

/// What all connections of a worker share of a protocol.
#[derive(Debug)]
pub(super) enum Speaker {
    Http1(Http1),
    Echo(Echo),
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
        }
    }

    pub(super) fn reading(&self) -> Reading {
        match self {
            Speaker::Http1(_) => Reading::Http1(http1::Reading::default()),
            Speaker::Echo(_) => Reading::Echo(0),
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

    /// Takes bytes that came on `link`; returns how many were taken, and what came of it.
    #[inline]
    pub(super) fn read(
        &mut self,
        link: &mut Link,
        number: u64,
        traffic: &Traffic,
        input: &[u8],
    ) -> (usize, Heard) {
        let Some(request) = link.in_flight.front() else {
            return (0, Heard::Broken("sent what nobody asked for"));
        };
        match (self, &mut link.reading) {
            (Speaker::Http1(http1), Reading::Http1(reading)) => {
                let step = &traffic.flows()[request.flow as usize].steps[request.step as usize];
                http1.read(reading, step, &mut link.values, input)
            }
            (Speaker::Echo(echo), Reading::Echo(received)) => {
                let oldest = link.messages - link.in_flight.len() as u64;
                echo.read(number, oldest, received, input)
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
            _ => Heard::Broken("closed without an answer"),
        }
    }
}

/// Writes a request, or puts it behind those that wait for room.
fn write_or_keep(
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
