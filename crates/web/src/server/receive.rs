//! Received bytes: parses heads, and aggregates, discards or streams bodies.
//!
//! The responses to all plain requests of one receipt are sent by one write, in order.

use std::fmt::{self, Display};

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::{
    self, BodyDecoder, BodyEvent, FaultKind, FieldTable, Found, HeadScanner, Parsed, PeerFault, RequestHead,
    parse_request,
};

use super::connection::{ConnPhase, Connection};
use super::rejected::RejectedRequest;
use super::{HttpServer, NextAction, WorkerScratch, http2};
use crate::limits;

/// The outcome of processing some bytes.
pub(super) struct ReceiveStep {
    pub(super) consumed: usize,
    pub(super) next: NextAction,
}

pub(super) fn step(consumed: usize, next: NextAction) -> ReceiveStep {
    ReceiveStep { consumed, next }
}

impl HttpServer {
    /// Processes `bytes` as far as possible and returns the number of consumed bytes.
    pub(super) fn receive(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        bytes: &[u8],
        scratch: &mut WorkerScratch,
    ) -> usize {
        self.worker.refresh_date();
        self.update_lateness();
        let now = self.worker.cx.now();
        let mut consumed = 0;
        let mut next = NextAction::Continue;
        while next == NextAction::Continue && consumed < bytes.len() {
            let input = &bytes[consumed..];
            let step = self.receive_step(conn, state, now, input, scratch);
            consumed += step.consumed;
            next = step.next;
            if scratch.buffers.out.len() > WRITE_MARK && next == NextAction::Continue {
                // The engine offers the rest when the client has taken this.
                next = NextAction::Wait;
            }
            if next == NextAction::Continue && consumed < bytes.len() && self.worker.cx.step_is_long() {
                // Sends the pending responses, then lets other connections have their turn.
                conn.yield_turn();
                next = NextAction::Wait;
            }
        }
        self.flush(conn, state, &mut scratch.buffers.out, next);
        if matches!(next, NextAction::Continue | NextAction::Wait) {
            self.arm(conn, state);
        }
        if matches!(state.phase, ConnPhase::Http2(_)) {
            consumed += self.receive_http2(conn, state, &bytes[consumed..], scratch);
        }
        consumed
    }

    /// Passes bytes to the owner that the connection's phase names.
    fn receive_step(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        now: Time,
        input: &[u8],
        scratch: &mut WorkerScratch,
    ) -> ReceiveStep {
        match &mut state.phase {
            ConnPhase::Head => self.receive_head(conn, state, now, input, scratch),
            ConnPhase::Aggregating(_) => self.aggregate_body(conn, state, input, scratch),
            ConnPhase::Discarding(decoder) => match discard(decoder, input) {
                // The rest is part of a line: more must arrive.
                Ok((consumed, false)) => step(consumed, NextAction::Wait),
                Ok((consumed, true)) => {
                    state.phase = ConnPhase::Head;
                    // A shutdown may have begun meanwhile, and it closes idle connections.
                    let idle = consumed == input.len();
                    let closes = idle && state.last;
                    step(
                        consumed,
                        if closes {
                            NextAction::Close
                        } else {
                            NextAction::Continue
                        },
                    )
                }
                // The request was answered already; the next one cannot be found.
                Err(_) => step(input.len(), NextAction::Linger),
            },
            ConnPhase::Running { exchange, .. } => {
                let consumed = exchange.feed(conn, input);
                exchange.wake();
                step(consumed, NextAction::Wait)
            }
            // The bytes belong to another owner.
            ConnPhase::AwaitingProxyHeader(_)
            | ConnPhase::SniffingHello(_)
            | ConnPhase::Detached
            | ConnPhase::PendingResponse(_)
            | ConnPhase::Socket(_)
            | ConnPhase::Http2(_) => step(0, NextAction::Wait),
            ConnPhase::Lingering { left } => {
                *left = left.saturating_sub(input.len() as u64);
                let next = if *left == 0 {
                    NextAction::Close
                } else {
                    NextAction::Wait
                };
                step(input.len(), next)
            }
        }
    }

    /// Checks whether the current requests are late in an overloaded worker. Reads the clock every [`limits::RECEIPTS_PER_CLOCK_READ`]
    /// receipts, and at each one while requests are late.
    pub(super) fn update_lateness(&self) {
        let until = self.until_timed.get();
        if until > 0 {
            return self.until_timed.set(until - 1);
        }
        if let Some(max_queue_delay) = self.app.limits.max_queue_delay {
            let cx = &self.worker.cx;
            let is_late = cx.queued() > max_queue_delay;
            self.is_late
                .set(self.overload.refuses(cx.clock(), is_late, max_queue_delay));
            self.until_timed.set(if is_late {
                0
            } else {
                limits::RECEIPTS_PER_CLOCK_READ
            });
        }
    }

    fn receive_head(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        now: Time,
        input: &[u8],
        scratch: &mut WorkerScratch,
    ) -> ReceiveStep {
        let (table, buffers) = (&mut scratch.table, &mut scratch.buffers);
        match http2::preface(state, input) {
            Some(true) => {
                self.begin_http2(conn, state, &mut buffers.out);
                return step(0, NextAction::Wait);
            }
            Some(false) => return self.partial_head(conn, state),
            None => {}
        }
        let mut scanner = HeadScanner::resume(state.progress);
        let parsed = parse_request(input, &self.app.limits.http1, &mut scanner, table);
        state.progress = scanner.progress();
        match parsed {
            Ok(Parsed::Complete { head, bytes }) => {
                state.head_started = false;
                state.ticking = false;
                state.requests = state.requests.saturating_add(1);
                state.started_at = now;
                state.base = 0;
                let (bytes, rest) = input.split_at(bytes);
                self.process_request(conn, state, &head, bytes, rest, buffers)
            }
            Ok(Parsed::Partial) => match invalid_head_start(input) {
                None => self.partial_head(conn, state),
                Some(fault) => {
                    self.log_tls_on_plain_port(state, input);
                    let rejected = RejectedRequest::from_bytes(&self.worker, input);
                    let next = self.reject_fault(
                        state.client(),
                        &fault,
                        h1::Exchange::REFUSED,
                        &rejected,
                        &mut buffers.out,
                    );
                    step(input.len(), next)
                }
            },
            Err(fault) => {
                self.log_tls_on_plain_port(state, input);
                let rejected = RejectedRequest::from_bytes(&self.worker, input);
                let next = self.reject_fault(
                    state.client(),
                    &fault,
                    h1::Exchange::REFUSED,
                    &rejected,
                    &mut buffers.out,
                );
                step(input.len(), next)
            }
        }
    }

    /// Logs a client that speaks TLS to a plain HTTP listener: it only sees a failed handshake, and does not show the reason.
    fn log_tls_on_plain_port(&self, state: &Connection, input: &[u8]) {
        if input.first() == Some(&TLS_HANDSHAKE)
            && !state.peer.secure
            && let Some(suppressed) = self.worker.tls_on_plain_port.admit(self.worker.cx.now())
        {
            let remote = fmt::from_fn(|f| match state.peer.remote {
                Some(address) => address.fmt(f),
                None => f.write_str("unix"),
            });
            log::info!(
                "{remote}: TLS where plain HTTP is expected; answered 400: this port speaks no TLS{suppressed}"
            );
        }
    }

    /// Waits for the rest of a head, within its deadline.
    fn partial_head(&self, conn: Conn<'_>, state: &mut Connection) -> ReceiveStep {
        if !state.head_started {
            state.head_started = true;
            // The first head's deadline started when the connection was opened.
            if state.requests > 0 {
                conn.set_deadline(Some(self.app.limits.header_timeout));
            }
        }
        step(0, NextAction::Wait)
    }

    /// Parses the head of a request with a collected body again.
    pub(super) fn reparse_head<'a>(&self, bytes: &'a [u8], table: &'a mut FieldTable) -> RequestHead<'a> {
        let parsed = parse_request(bytes, &self.app.limits.http1, &mut HeadScanner::new(), table);
        let Ok(Parsed::Complete { head, .. }) = parsed else {
            unreachable!("these bytes were parsed on arrival");
        };
        head
    }
}

/// Drops the unwanted body's part of `input`; returns its length and whether the body is complete.
fn discard(decoder: &mut BodyDecoder, input: &[u8]) -> Result<(usize, bool), PeerFault> {
    let mut consumed = 0;
    loop {
        let step = decoder.decode(&input[consumed..])?;
        consumed += step.consumed;
        match step.event {
            BodyEvent::Data(_) | BodyEvent::Trailers(_) => {}
            BodyEvent::NeedMore => return Ok((consumed, decoder.is_over())),
            BodyEvent::End => return Ok((consumed, true)),
        }
    }
}

/// The first byte of a TLS record that starts a handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// Returns the fault of a partial head that cannot start a request, so that its rest need not be awaited: TLS and other binary
/// protocols. An empty line may precede a request (RFC 9112 §2.2).
fn invalid_head_start(input: &[u8]) -> Option<PeerFault> {
    let first = *input.first()?;
    let is_binary = (first.is_ascii_control() && !matches!(first, b'\r' | b'\n')) || !first.is_ascii();
    is_binary.then_some(PeerFault {
        kind: FaultKind::Method,
        at: 0,
        found: Found::Byte(first),
    })
}
