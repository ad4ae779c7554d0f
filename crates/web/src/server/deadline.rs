//! Deadlines of an HTTP/1 connection, and the handling of slow clients.

use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1;

use super::Machine;
use super::connection::{Connection, Phase};
use super::rejected::Refused;
use crate::http::error::Error;
use crate::limits::{self, Limits};
use crate::ws::Live;

/// The shortest deadline: zero would mean none.
const LEAST: Duration = Duration::from_millis(1);

/// The start time of a transfer's measurement, and its byte count by then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    began: Time,
    base: u64,
}

impl Pace {
    pub(super) fn new(now: Time) -> Pace {
        Pace { began: now, base: 0 }
    }

    /// Restarts the measurement.
    pub(super) fn begin(&mut self, now: Time, count: u64) {
        *self = Pace {
            began: now,
            base: count,
        };
    }

    /// Excludes a time span from the measurement.
    pub(super) fn skip(&mut self, span: Duration) {
        self.began = self.began.after(span);
    }

    /// Returns true if `count` bytes are too few for the time since the window began. A window that met the rate is followed by a
    /// new one; otherwise a fast start would pay for any later pause. `rate` replaces that of `limits`.
    pub(super) fn is_too_slow(&mut self, limits: &Limits, rate: Option<u32>, now: Time, count: u64) -> bool {
        let counted = now.since(self.began).saturating_sub(limits.rate_grace);
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
        let taken = count.saturating_sub(std::mem::replace(&mut self.base, count));
        let most = now.after(limits.send_pause);
        let earned = Duration::try_from_secs_f64(taken as f64 / f64::from(rate));
        self.until = earned.map_or(most, |earned| self.until.after(earned).min(most));
        now > self.until
    }
}

impl Machine {
    /// Sets the deadline for the current phase.
    pub(super) fn arm(&self, conn: Conn<'_>, state: &mut Connection) {
        let limits = &self.site.limits;
        let span = match &state.phase {
            Phase::Head if state.begun => return,
            Phase::Head => limits.idle_timeout,
            // Setting it again at each byte would postpone it.
            Phase::Collecting(_) | Phase::Discarding(_) | Phase::Sending(_) if state.ticking => return,
            Phase::Collecting(_) | Phase::Discarding(_) | Phase::Sending(_) => limits::RATE_TICK,
            Phase::Running { exchange, .. } if exchange.is_ticking() => return,
            // A handler's own time has no limit; the body that it waits for sets a deadline, and so does an incomplete line of
            // framing.
            Phase::Running { exchange, .. } => {
                let now = self.local.cx.now();
                let due = exchange.line_due(now, limits.header_timeout);
                return conn.set_deadline(due.map(|due| due.since(now).max(LEAST)));
            }
            // The socket sets its own.
            Phase::Proxied(_)
            | Phase::Choosing(_)
            | Phase::Taken
            | Phase::Socket(_)
            | Phase::Http2(_)
            | Phase::Lingering { .. } => return,
        };
        state.ticking = !matches!(state.phase, Phase::Head);
        conn.set_deadline(Some(span));
    }

    pub(super) fn on_deadline(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) {
        if self.on_socket(conn, state, Live::on_deadline) {
            return;
        }
        if let Phase::Http2(session) = &state.phase {
            let session = session.share();
            return self.deadline_http2(conn, state, &session);
        }
        if conn.unsent() == 0 && std::mem::take(&mut state.slow) {
            // The response was taken completely. The phase's own measurement starts here.
            state.began = self.local.cx.now();
            state.base = 0;
        }
        match &state.phase {
            // The response to the last request is not completely taken: that counts as a transfer.
            _ if conn.unsent() > 0 => self.check_sending(conn, state),
            Phase::Head if state.begun => {
                let what = "expected the rest of the request's head in time, found none";
                let refused = Refused::unknown(&self.local, h1::Version::Http11);
                let about = (h1::Exchange::REFUSED, &refused);
                let then = self.refuse(state.client(), &Error::new(408, what), about, out);
                self.flush(conn, state, out, then);
            }
            Phase::Proxied(_) | Phase::Choosing(_) | Phase::Head | Phase::Lingering { .. } => conn.close(),
            Phase::Taken => {}
            Phase::Collecting(collector) => {
                let received = collector.decoder.consumed();
                self.check_receiving(conn, state, received, Some(out));
            }
            Phase::Discarding(decoder) => {
                let received = decoder.consumed();
                self.check_receiving(conn, state, received, None);
            }
            Phase::Running { exchange, .. } => {
                let exchange = Rc::clone(exchange);
                let now = self.local.cx.now();
                if let Some(due) = exchange.line_due(now, self.site.limits.header_timeout) {
                    if now < due {
                        return conn.set_deadline(Some(due.since(now)));
                    }
                    conn.set_deadline(None);
                    let what =
                        "expected the rest of a chunk's size line or of the trailers in time, found none";
                    return exchange.fail(Error::new(408, what));
                }
                let Some(receiving) = exchange.receiving() else {
                    return conn.set_deadline(None);
                };
                if receiving.anew {
                    state.began = self.local.cx.now();
                    state.base = receiving.bytes;
                } else {
                    // Time spent by the handler does not count against the client.
                    state.began = state.began.after(receiving.away);
                }
                if self.is_too_slow(state, receiving.rate, receiving.bytes) {
                    return exchange.fail(self.too_slow(receiving.rate, receiving.bytes));
                }
                conn.set_deadline(Some(limits::RATE_TICK));
            }
            Phase::Sending(_) => self.send_rest(conn, state),
            // Handled before.
            Phase::Socket(_) | Phase::Http2(_) => {}
        }
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
        let mut table = self.local.again.borrow_mut();
        let (exchange, refused) = match &state.phase {
            Phase::Collecting(collector) => {
                let head = self.reread(&collector.head, &mut table);
                (collector.exchange, Refused::of_head(&self.local, &head))
            }
            _ => (
                h1::Exchange::REFUSED,
                Refused::unknown(&self.local, h1::Version::Http11),
            ),
        };
        let then = self.refuse(
            state.client(),
            &self.too_slow(None, received),
            (exchange, &refused),
            out,
        );
        drop(table);
        self.flush(conn, state, out, then);
    }

    fn too_slow(&self, rate: Option<u32>, received: u64) -> Error {
        let least = rate.unwrap_or(self.site.limits.rate_bytes);
        let what = format!("expected {least} bytes of body a second, found {received} in all");
        Error::new(408, what)
    }

    /// As [`Pace::is_too_slow`], for the connection's single transfer.
    fn is_too_slow(&self, state: &mut Connection, rate: Option<u32>, count: u64) -> bool {
        let mut pace = Pace {
            began: state.began,
            base: state.base,
        };
        let slow = pace.is_too_slow(&self.site.limits, rate, self.local.cx.now(), count);
        (state.began, state.base) = (pace.began, pace.base);
        slow
    }

    /// Checks the rate at which a response is taken, each tick until all bytes are handed over.
    pub(super) fn check_sending(&self, conn: Conn<'_>, state: &mut Connection) {
        let (sent, now, limits) = (conn.sent(), self.local.cx.now(), &self.site.limits);
        let rate = match &state.phase {
            Phase::Running { exchange, .. } => exchange.rate(),
            _ => None,
        };
        let mut allowance = Allowance {
            until: state.began,
            base: state.base,
        };
        if !std::mem::replace(&mut state.slow, true) {
            allowance.begin(limits, now, sent);
        } else if allowance.is_used_up(limits, rate, now, sent) {
            return conn.abort();
        }
        (state.began, state.base) = (allowance.until, allowance.base);
        // For the next check.
        conn.count_sent();
        conn.set_deadline(Some(limits::RATE_TICK));
    }
}
