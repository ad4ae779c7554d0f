//! What happens to a client that is too slow, and when a connection is looked at again.

use std::rc::Rc;

use ringmain_engine::Conn;
use ringmain_wire::h1;

use super::Machine;
use super::connection::{Connection, Phase};
use crate::error::Error;
use crate::limits;
use crate::ws::Live;

impl Machine {
    /// Sets the deadline that fits the phase.
    pub(super) fn arm(&self, conn: Conn<'_>, state: &mut Connection) {
        let limits = &self.site.limits;
        let span = match &state.phase {
            Phase::Head if state.begun => return,
            Phase::Head => limits.idle_timeout,
            // Each byte would put it off, if it were set anew.
            Phase::Collecting(_) | Phase::Discarding(_) | Phase::Sending(_) if state.ticking => return,
            Phase::Collecting(_) | Phase::Discarding(_) | Phase::Sending(_) => limits::RATE_TICK,
            Phase::Running { exchange, .. } if exchange.is_ticking() => return,
            // The handler's time is its own; what it waits for sets a deadline.
            Phase::Running { .. } => return conn.set_deadline(None),
            // The socket sets its own.
            Phase::Proxied(_)
            | Phase::Choosing(_)
            | Phase::Taken
            | Phase::Socket(_)
            | Phase::Lingering { .. } => return,
        };
        state.ticking = !matches!(state.phase, Phase::Head);
        conn.set_deadline(Some(span));
    }

    pub(super) fn on_deadline(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) {
        if self.on_socket(conn, state, Live::on_deadline) {
            return;
        }
        if conn.unsent() == 0 && std::mem::take(&mut state.slow) {
            // All of it was taken. What else the phase waits for counts from here.
            state.began = self.local.cx.now();
            state.base = 0;
        }
        match &state.phase {
            // The answer to its last request is not even taken: that counts as a transfer.
            _ if conn.unsent() > 0 => self.check_sending(conn, state),
            Phase::Head if state.begun => {
                let what = "expected the rest of the request's head in time, found none";
                let then = self.refuse(state, &Error::new(408, what), h1::Exchange::REFUSED, out);
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
                let Some(receiving) = exchange.receiving() else {
                    return conn.set_deadline(None);
                };
                if receiving.anew {
                    state.began = self.local.cx.now();
                    state.base = receiving.bytes;
                } else {
                    // The handler's own time is not its client's.
                    state.began = state.began.after(receiving.away);
                }
                if self.is_too_slow(state, receiving.bytes) {
                    return exchange.fail(self.too_slow(receiving.bytes));
                }
                conn.set_deadline(Some(limits::RATE_TICK));
            }
            Phase::Sending(_) => self.send_rest(conn, state),
            // Looked at before.
            Phase::Socket(_) => {}
        }
    }

    /// Whether a body comes in fast enough.
    fn check_receiving(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        received: u64,
        out: Option<&mut Vec<u8>>,
    ) {
        if !self.is_too_slow(state, received) {
            return conn.set_deadline(Some(limits::RATE_TICK));
        }
        let Some(out) = out else {
            // Its answer was given.
            return conn.abort();
        };
        let exchange = match &state.phase {
            Phase::Collecting(collector) => collector.exchange,
            _ => h1::Exchange::REFUSED,
        };
        let then = self.refuse(state, &self.too_slow(received), exchange, out);
        self.flush(conn, state, out, then);
    }

    fn too_slow(&self, received: u64) -> Error {
        let least = self.site.limits.rate_bytes;
        let what = format!("expected {least} bytes of body a second, found {received} in all");
        Error::new(408, what)
    }

    /// Whether of `count` bytes too few have passed since the window began. A window that was met is followed by the
    /// next, or a fast beginning would pay for any pause behind it.
    fn is_too_slow(&self, state: &mut Connection, count: u64) -> bool {
        let limits = &self.site.limits;
        let now = self.local.cx.now();
        let counted = now.since(state.began).saturating_sub(limits.rate_grace);
        let due = (counted.as_secs_f64() * f64::from(limits.rate_bytes)) as u64;
        if count.saturating_sub(state.base) < due {
            return true;
        }
        if counted > limits::RATE_WINDOW {
            state.began = now;
            state.base = count;
        }
        false
    }

    /// Whether an answer is taken fast enough: looked at each tick, as long as it is not all handed over.
    fn check_sending(&self, conn: Conn<'_>, state: &mut Connection) {
        let sent = conn.sent();
        if !std::mem::replace(&mut state.slow, true) {
            // From here the rate counts.
            state.began = self.local.cx.now();
            state.base = sent;
        } else if self.is_too_slow(state, sent) {
            return conn.abort();
        }
        // For the next look.
        conn.count_sent();
        conn.set_deadline(Some(limits::RATE_TICK));
    }
}
