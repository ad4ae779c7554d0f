//! Deadlines of an HTTP/1 connection, and the handling of slow clients.

use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1;

use super::HttpServer;
use super::connection::{ConnPhase, Connection};
use super::exchange::Exchange;
use super::rejected::RejectedRequest;
use crate::http::error::Error;
use crate::limits::{self, Limits};
use crate::ws::WsSession;

/// The shortest deadline: zero would mean none.
const LEAST: Duration = Duration::from_millis(1);

/// The start time of a transfer's measurement, and its byte count by then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    started_at: Time,
    base: u64,
}

impl Pace {
    pub(super) fn new(now: Time) -> Pace {
        Pace {
            started_at: now,
            base: 0,
        }
    }

    /// Restarts the measurement.
    pub(super) fn begin(&mut self, now: Time, count: u64) {
        *self = Pace {
            started_at: now,
            base: count,
        };
    }

    /// Excludes a time span from the measurement.
    pub(super) fn skip(&mut self, span: Duration) {
        self.started_at = self.started_at.after(span);
    }

    /// Returns true if `count` bytes are too few for the time since the window began. A window that met the rate is followed by a
    /// new one; otherwise a fast start would pay for any later pause. `rate` replaces that of `limits`.
    pub(super) fn is_too_slow(&mut self, limits: &Limits, rate: Option<u32>, now: Time, count: u64) -> bool {
        let counted = now.since(self.started_at).saturating_sub(limits.rate_grace);
        let rate = rate.unwrap_or(limits.rate_bytes);
        let due = (counted.as_secs_f64() * f64::from(rate)) as u64;
        if count.saturating_sub(self.base) < due {
            return true;
        }
        if counted > limits::RATE_WINDOW {
            self.begin(now, count);
        }
        false
    }
}

/// The time for which a client may still leave a response untouched: a client that takes nothing uses up [`Limits::send_pause`],
/// and regains time with the bytes that it takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    /// The time at which the allowance is used up; `Time(0)`: it starts at the first check.
    until: Time,
    /// Bytes taken at the last check.
    base: u64,
}

impl Allowance {
    /// Starts with the full allowance.
    pub(super) fn begin(&mut self, limits: &Limits, now: Time, count: u64) {
        *self = Allowance {
            until: now.after(limits.send_pause),
            base: count,
        };
    }

    /// Returns true if the allowance is used up, with `count` bytes taken by now; `rate`: bytes per second, if the request has its
    /// own.
    pub(super) fn is_used_up(&mut self, limits: &Limits, rate: Option<u32>, now: Time, count: u64) -> bool {
        let rate = rate.unwrap_or(limits.rate_bytes);
        if rate == 0 {
            return false;
        }
        if self.until == Time(0) {
            self.begin(limits, now, count);
        }
        let sent = count.saturating_sub(std::mem::replace(&mut self.base, count));
        let latest = now.after(limits.send_pause);
        let earned = Duration::try_from_secs_f64(sent as f64 / f64::from(rate));
        self.until = earned.map_or(latest, |earned| self.until.after(earned).min(latest));
        now > self.until
    }
}

impl HttpServer {
    /// Sets the deadline for the current phase.
    pub(super) fn arm(&self, conn: Conn<'_>, state: &mut Connection) {
        let limits = &self.app.limits;
        let span = match &state.phase {
            ConnPhase::Head if state.head_started => return,
            ConnPhase::Head => limits.idle_timeout,
            // Setting it again at each byte would postpone it.
            ConnPhase::Aggregating(_) | ConnPhase::Discarding(_) | ConnPhase::PendingResponse(_)
                if state.ticking =>
            {
                return;
            }
            ConnPhase::Aggregating(_) | ConnPhase::Discarding(_) | ConnPhase::PendingResponse(_) => {
                limits::RATE_TICK
            }
            ConnPhase::Running { exchange, .. } if exchange.has_rate_deadline() => return,
            // A handler's own time has no limit; the body that it waits for sets a deadline, and so does an incomplete line of
            // framing.
            ConnPhase::Running { exchange, .. } => {
                let now = self.worker.cx.now();
                let due = exchange.line_deadline(now, limits.header_timeout);
                return conn.set_deadline(due.map(|due| due.since(now).max(LEAST)));
            }
            // The socket sets its own.
            ConnPhase::AwaitingProxyHeader(_)
            | ConnPhase::SniffingHello(_)
            | ConnPhase::Detached
            | ConnPhase::Socket(_)
            | ConnPhase::Http2(_)
            | ConnPhase::Lingering { .. } => return,
        };
        state.ticking = !matches!(state.phase, ConnPhase::Head);
        conn.set_deadline(Some(span));
    }

    pub(super) fn on_deadline(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) {
        if self.on_socket(conn, state, WsSession::on_deadline) {
            return;
        }
        if let ConnPhase::Http2(session) = &state.phase {
            let session = session.share();
            return self.deadline_http2(conn, state, &session);
        }
        if conn.unsent() == 0 && std::mem::take(&mut state.slow) {
            // The response was taken completely. The phase's own measurement starts here.
            state.started_at = self.worker.cx.now();
            state.base = 0;
        }
        match &state.phase {
            // The response to the last request is not completely taken: that counts as a transfer.
            _ if conn.unsent() > 0 => self.check_sending(conn, state),
            ConnPhase::Head if state.head_started => {
                let message = "timed out waiting for the rest of the request head";
                let rejected = RejectedRequest::unknown(&self.worker, h1::Version::Http11);
                let next = self.reject(
                    state.client(),
                    &Error::new(408, message),
                    h1::Exchange::REFUSED,
                    &rejected,
                    out,
                );
                self.flush(conn, state, out, next);
            }
            ConnPhase::AwaitingProxyHeader(_)
            | ConnPhase::SniffingHello(_)
            | ConnPhase::Head
            | ConnPhase::Lingering { .. } => conn.close(),
            ConnPhase::Detached => {}
            ConnPhase::Aggregating(aggregator) => {
                let received = aggregator.decoder.consumed();
                self.check_receiving(conn, state, received, Some(out));
            }
            ConnPhase::Discarding(decoder) => {
                let received = decoder.consumed();
                self.check_receiving(conn, state, received, None);
            }
            ConnPhase::Running { exchange, .. } => {
                let exchange = Rc::clone(exchange);
                self.check_running(conn, state, &exchange);
            }
            ConnPhase::PendingResponse(_) => self.send_rest(conn, state),
            // Handled before.
            ConnPhase::Socket(_) | ConnPhase::Http2(_) => {}
        }
    }

    /// Checks a streamed body: the deadline of an incomplete line of framing, or the minimum rate.
    fn check_running(&self, conn: Conn<'_>, state: &mut Connection, exchange: &Exchange) {
        let now = self.worker.cx.now();
        if let Some(due) = exchange.line_deadline(now, self.app.limits.header_timeout) {
            if now < due {
                return conn.set_deadline(Some(due.since(now)));
            }
            conn.set_deadline(None);
            let message = "timed out waiting for the rest of a chunk size line or of the trailers";
            return exchange.fail(Error::new(408, message));
        }
        let Some(receiving) = exchange.receive_progress() else {
            return conn.set_deadline(None);
        };
        if receiving.restart {
            state.started_at = self.worker.cx.now();
            state.base = receiving.bytes;
        } else {
            // Time spent by the handler does not count against the client.
            state.started_at = state.started_at.after(receiving.handler_time);
        }
        if self.is_too_slow(state, receiving.minimum_rate, receiving.bytes) {
            return exchange.fail(self.too_slow(receiving.minimum_rate, receiving.bytes));
        }
        conn.set_deadline(Some(limits::RATE_TICK));
    }

    /// Checks the rate of an incoming body.
    fn check_receiving(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        received: u64,
        out: Option<&mut Vec<u8>>,
    ) {
        if !self.is_too_slow(state, None, received) {
            return conn.set_deadline(Some(limits::RATE_TICK));
        }
        let Some(out) = out else {
            // The request was answered already.
            return conn.abort();
        };
        let mut table = self.worker.reparse_table.borrow_mut();
        let (exchange, rejected) = match &state.phase {
            ConnPhase::Aggregating(aggregator) => {
                let head = self.reparse_head(&aggregator.head, &mut table);
                (
                    aggregator.exchange,
                    RejectedRequest::from_head(&self.worker, &head),
                )
            }
            _ => (
                h1::Exchange::REFUSED,
                RejectedRequest::unknown(&self.worker, h1::Version::Http11),
            ),
        };
        let next = self.reject(
            state.client(),
            &self.too_slow(None, received),
            exchange,
            &rejected,
            out,
        );
        drop(table);
        self.flush(conn, state, out, next);
    }

    fn too_slow(&self, rate: Option<u32>, received: u64) -> Error {
        let min_rate = rate.unwrap_or(self.app.limits.rate_bytes);
        let message = format!(
            "request body too slow: expected {min_rate} bytes per second, received {received} bytes in total"
        );
        Error::new(408, message)
    }

    /// As [`Pace::is_too_slow`], for the connection's single transfer.
    fn is_too_slow(&self, state: &mut Connection, rate: Option<u32>, count: u64) -> bool {
        let mut pace = Pace {
            started_at: state.started_at,
            base: state.base,
        };
        let slow = pace.is_too_slow(&self.app.limits, rate, self.worker.cx.now(), count);
        (state.started_at, state.base) = (pace.started_at, pace.base);
        slow
    }

    /// Checks the rate at which a response is taken, each tick until all bytes are handed over.
    pub(super) fn check_sending(&self, conn: Conn<'_>, state: &mut Connection) {
        let (sent, now, limits) = (conn.sent(), self.worker.cx.now(), &self.app.limits);
        let rate = match &state.phase {
            ConnPhase::Running { exchange, .. } => exchange.minimum_rate(),
            _ => None,
        };
        let mut allowance = Allowance {
            until: state.started_at,
            base: state.base,
        };
        if !std::mem::replace(&mut state.slow, true) {
            allowance.begin(limits, now, sent);
        } else if allowance.is_used_up(limits, rate, now, sent) {
            return conn.abort();
        }
        (state.started_at, state.base) = (allowance.until, allowance.base);
        // For the next check.
        conn.count_sent();
        conn.set_deadline(Some(limits::RATE_TICK));
    }
}
