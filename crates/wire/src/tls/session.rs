//! One connection's TLS, either role: which phase it is in, and the records that bytes are cut into.
//!
//! ```text
//! Handshake ──▶ Open ──▶ (the peer has ended, and may still be sent to)
//!     │           │
//!     └───────────┴────▶ Failed: nothing is read or written any more
//! ```
//!
//! Knows neither sockets nor time.

use std::ops::Range;
use std::sync::Arc;

use super::facts::Facts;
use super::fault::{Fault, FaultKind};
use super::handshake::{Handshake, Outcome, Progress};
use super::limits::{HANDSHAKE, HEADER, RECORD};
use super::plain;
use super::traffic::{Content, Traffic};

/// What became of received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// So many from the front are done with.
    pub consumed: usize,
    /// What came of them.
    pub event: Event,
}

/// See [`Session::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing for the owner; what is left may be shown at once.
    Nothing,
    /// What is left is a part of something, and is shown again as it was left, with what comes behind it. It is less than a
    /// [`RECORD`](super::limits::RECORD), and up to [`HANDSHAKE`](super::limits::HANDSHAKE) bytes more before the handshake is over.
    NeedMore,
    /// Data: these bytes of the input, which lie within those consumed.
    Plain(Range<usize>),
    /// The handshake is over: [`Session::facts`] are there, and data may be sent. Reported once.
    Established,
    /// The peer has ended its side (close_notify). What comes behind it is dropped. Reported once.
    End,
    /// It is over, for the reason that [`Session::fault`] tells; the alert for the peer is written.
    Failed,
}

/// Nothing can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotSend {
    /// The handshake is not over.
    #[error("expected to send once the handshake is over; it is not")]
    TooEarly,
    /// [`Session::close`] was called.
    #[error("expected to send before the end was announced; it was")]
    Closed,
    /// The session has failed, now or before: [`Session::fault`] says why.
    #[error("the session has failed")]
    Failed,
}

/// One connection's TLS.
///
/// Idle, it holds its keys and facts: no buffer, and nothing of rustls's handshake.
pub struct Session {
    phase: Phase,
    /// Whether the peer has ended its side.
    ended: bool,
    /// Whether this side was ended.
    closed: bool,
    facts: Option<Arc<Facts>>,
    fault: Option<Box<Fault>>,
}

enum Phase {
    Handshake(Box<Handshake>),
    Open(Box<Traffic>),
    Failed,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = match self.phase {
            Phase::Handshake(_) => "Handshake",
            Phase::Open(_) => "Open",
            Phase::Failed => "Failed",
        };
        f.debug_struct("Session")
            .field("phase", &phase)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(handshake: Handshake) -> Self {
        Self {
            phase: Phase::Handshake(Box::new(handshake)),
            ended: false,
            closed: false,
            facts: None,
            fault: None,
        }
    }

    /// One that could not even begin.
    pub(super) fn failed(fault: Fault) -> Self {
        Self {
            phase: Phase::Failed,
            ended: false,
            closed: false,
            facts: None,
            fault: Some(Box::new(fault)),
        }
    }

    /// What was agreed on; `None` before [`Event::Established`].
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_deref()
    }

    /// As [`Session::facts`], to be kept.
    #[must_use]
    pub fn shared_facts(&self) -> Option<Arc<Facts>> {
        self.facts.clone()
    }

    /// Why it failed; `None` if it has not.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }

    /// Whether the handshake is not over yet: what is received may cost operations with public keys.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Whether a handshake is under way: the peer has sent a whole record of it, and it is not over.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        matches!(&self.phase, Phase::Handshake(handshake) if handshake.is_begun())
    }

    /// Says what has to be said first: a client's hello. A server says nothing.
    pub fn begin(&mut self, wire: &mut Vec<u8>) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        if let Outcome::Refused(error) = handshake.begin(wire).outcome {
            self.fail(Fault::of(&error));
        }
    }

    /// Looks at received bytes from the front, a record at a time, and opens it where it lies. What has to be sent in answer is
    /// appended to `wire`. Called again as long as it consumes or reports something.
    pub fn receive(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> Step {
        loop {
            let step = self.receive_record(bytes, wire);
            // A record that is held as a part of a message: the next one is behind it.
            if step.consumed > 0 || step.event != Event::Nothing {
                return step;
            }
        }
    }

    fn receive_record(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> Step {
        if self.ended {
            // RFC 8446 §6.1: what comes behind close_notify is ignored.
            let event = if bytes.is_empty() {
                Event::NeedMore
            } else {
                Event::Nothing
            };
            return Step {
                consumed: bytes.len(),
                event,
            };
        }
        let held = match &self.phase {
            Phase::Handshake(handshake) => handshake.held(),
            Phase::Open(_) => 0,
            Phase::Failed => {
                return Step {
                    consumed: bytes.len(),
                    event: Event::Failed,
                };
            }
        };
        let end = match record_end(bytes, held) {
            Ok(Some(end)) => end,
            Ok(None) => {
                return Step {
                    consumed: 0,
                    event: Event::NeedMore,
                };
            }
            Err(fault) => {
                match &self.phase {
                    Phase::Handshake(handshake)
                        if handshake.is_server()
                            && !handshake.is_begun()
                            && plain::is_http(bytes) == Some(true) =>
                    {
                        plain::respond(bytes, wire);
                        self.fail(Fault::plain_http(bytes));
                    }
                    _ => self.refuse(fault, wire),
                }
                return Step {
                    consumed: bytes.len(),
                    event: Event::Failed,
                };
            }
        };
        match &mut self.phase {
            Phase::Handshake(_) => self.receive_handshake(&mut bytes[..end], wire),
            Phase::Open(traffic) => match traffic.record(&mut bytes[..end], wire) {
                Ok(content) => Step {
                    consumed: end,
                    event: self.event(content),
                },
                Err(fault) => {
                    self.refuse(fault, wire);
                    Step {
                        consumed: end,
                        event: Event::Failed,
                    }
                }
            },
            Phase::Failed => unreachable!("returned above"),
        }
    }

    fn event(&mut self, content: Content) -> Event {
        match content {
            Content::Nothing => Event::Nothing,
            Content::Data(range) => Event::Plain(range),
            Content::End => {
                self.ended = true;
                Event::End
            }
        }
    }

    fn receive_handshake(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> Step {
        let Phase::Handshake(handshake) = &mut self.phase else {
            unreachable!("asked in this phase alone");
        };
        let more = bytes.len() - handshake.held();
        if handshake.received + more > HANDSHAKE {
            let text = format!("a handshake of more than {HANDSHAKE} bytes");
            self.refuse(Fault::new(FaultKind::HandshakeTooLong, text), wire);
            return Step {
                consumed: bytes.len(),
                event: Event::Failed,
            };
        }
        let start = wire.len();
        let Progress { consumed, outcome } = handshake.record(bytes, wire);
        let event = match outcome {
            Outcome::More if handshake.is_over() => self.establish(),
            Outcome::More => Event::Nothing,
            Outcome::Refused(error) => {
                let fault = Fault::in_handshake(&error, handshake);
                if handshake.is_server() && matches!(fault.kind, FaultKind::Name | FaultKind::Version) {
                    // RFC 6066 §3, RFC 8446 §4.2.1: rustls says access_denied, and sometimes handshake_failure. Both are
                    // known from the hello, and nothing was encrypted yet.
                    wire.truncate(start);
                    in_the_clear(&fault, wire);
                }
                self.fail(fault);
                Event::Failed
            }
        };
        Step { consumed, event }
    }

    /// Takes keys and facts out of the handshake, which is dropped.
    fn establish(&mut self) -> Event {
        let Phase::Handshake(handshake) = std::mem::replace(&mut self.phase, Phase::Failed) else {
            unreachable!("asked in this phase alone");
        };
        let done = handshake.finish().map_err(|error| Fault::of(&error));
        let facts = done.as_ref().ok().map(|done| Arc::new(done.facts.clone()));
        match done.and_then(Traffic::new) {
            Ok(traffic) => {
                self.facts = facts;
                self.phase = Phase::Open(Box::new(traffic));
                Event::Established
            }
            Err(fault) => {
                self.fail(fault);
                Event::Failed
            }
        }
    }

    /// Encrypts `plain`.
    ///
    /// # Errors
    /// [`CannotSend`]; where keys are used up, [`Session::fault`] says so.
    pub fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), CannotSend> {
        if self.closed {
            return Err(CannotSend::Closed);
        }
        let sent = match &mut self.phase {
            Phase::Handshake(_) => return Err(CannotSend::TooEarly),
            Phase::Failed => return Err(CannotSend::Failed),
            Phase::Open(traffic) => traffic.send(plain, wire),
        };
        sent.map_err(|fault| {
            self.refuse(fault, wire);
            CannotSend::Failed
        })
    }

    /// Announces that nothing more will be sent (close_notify); what is received is still read, but for a handshake, which ends.
    /// Called again, it does nothing.
    pub fn close(&mut self, wire: &mut Vec<u8>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        match &mut self.phase {
            // Nothing was agreed on that could be ended.
            Phase::Handshake(_) => {
                self.fail(Fault::new(
                    FaultKind::Left,
                    "this end closed the connection within the handshake",
                ));
            }
            Phase::Open(traffic) => traffic.end(wire),
            Phase::Failed => {}
        }
    }

    /// The connection has ended: was it meant to?
    ///
    /// # Errors
    /// [`FaultKind::Left`] within the handshake, [`FaultKind::Truncated`] without a close_notify: what was received last may
    /// have been cut off by somebody in between (RFC 8446 §6.1). What failed before is told again.
    pub fn ended(&self) -> Result<(), Fault> {
        match (&self.phase, self.ended) {
            (Phase::Failed, _) => Err(self.fault().cloned().unwrap_or_else(Fault::unknown)),
            (_, true) => Ok(()),
            (Phase::Handshake(_), false) => Err(Fault::new(
                FaultKind::Left,
                "the connection ended within the handshake",
            )),
            (Phase::Open(_), false) => Err(Fault::new(
                FaultKind::Truncated,
                "the connection ended without a close_notify",
            )),
        }
    }

    /// Fails, and tells the peer.
    fn refuse(&mut self, fault: Fault, wire: &mut Vec<u8>) {
        match &mut self.phase {
            Phase::Open(traffic) => traffic.tell(&fault, wire),
            Phase::Handshake(handshake) if handshake.is_begun() => handshake.refuse(wire),
            Phase::Handshake(_) => in_the_clear(&fault, wire),
            Phase::Failed => {}
        }
        self.fail(fault);
    }

    #[cfg(test)]
    pub(super) fn traffic_for_tests(&mut self) -> &mut Traffic {
        match &mut self.phase {
            Phase::Open(traffic) => traffic,
            _ => panic!("the handshake is over"),
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.phase = Phase::Failed;
        self.fault = Some(Box::new(fault));
    }
}

/// Appends the alert that tells of `fault`, if one does, while there are no keys.
fn in_the_clear(fault: &Fault, wire: &mut Vec<u8>) {
    if let Some(alert) = fault.kind.alert() {
        wire.extend_from_slice(&[21, 3, 3, 0, 2, 2, alert]);
    }
}

/// Where the record ends that begins at `held`; `None` if it has not come whole.
fn record_end(bytes: &[u8], held: usize) -> Result<Option<usize>, Fault> {
    let Some(&[kind, major, _, a, b]) = bytes.get(held..held + HEADER) else {
        return Ok(None);
    };
    if !(20..=23).contains(&kind) || major != 3 {
        return Err(Fault::not_tls(&bytes[held..]));
    }
    let length = HEADER + usize::from(u16::from_be_bytes([a, b]));
    if length > RECORD {
        let text = format!("a record of {length} bytes; {RECORD} are taken");
        return Err(Fault::new(FaultKind::Record, text));
    }
    Ok(Some(held + length).filter(|&end| end <= bytes.len()))
}
