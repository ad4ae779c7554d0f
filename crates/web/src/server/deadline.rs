//! What happens to a client that is too slow, and when a connection is looked at again.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_wire::h1;

use super::Machine;
use super::connection::{Connection, Phase};
use crate::error::Error;
use crate::limits;

impl Machine {
    /// Sets the deadline that fits the phase.
    pub(super) fn arm(&self, conn: Conn<'_>, state: &Connection) {
        let limits = &self.site.limits;
        let span = match &state.phase {
            Phase::Head if state.begun => return,
            Phase::Head => limits.idle_timeout,
            Phase::Collecting(_) | Phase::Discarding(_) | Phase::Sending { .. } => limits::RATE_TICK,
            // The handler's time is its own; what it waits for sets a deadline.
            Phase::Running { .. } => return conn.set_deadline(None),
            Phase::Lingering { .. } => return,
        };
        conn.set_deadline(Some(span));
    }

    pub(super) fn on_deadline(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) {
        match &state.phase {
            // The answer to its last request is not even taken: that counts as a transfer.
            _ if conn.unsent() > 0 => self.check_sending(conn, state),
            Phase::Head if state.begun => {
                let what = "expected the rest of the request's head in time, found none";
                let then = self.refuse(state, &Error::new(408, what), h1::Exchange::REFUSED, out);
                self.flush(conn, state, out, then);
            }
            Phase::Head | Phase::Lingering { .. } => conn.close(),
            Phase::Collecting(collector) => {
                let received = collector.decoder.consumed();
                self.check_receiving(conn, state, received, Some(out));
            }
            Phase::Discarding(decoder) => {
                let received = decoder.consumed();
                self.check_receiving(conn, state, received, None);
            }
            Phase::Running { exchange, .. } => match exchange.receiving() {
                Some((received, anew)) => {
                    if anew {
                        state.began = self.local.cx.now();
                        state.base = received;
                    }
                    self.check_receiving(conn, state, received, Some(out));
                }
                None => conn.set_deadline(None),
            },
            Phase::Sending { .. } => self.send_rest(conn, state),
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
        if received - state.base >= self.due(state) {
            return conn.set_deadline(Some(limits::RATE_TICK));
        }
        let Some(out) = out.filter(|_| state.running().is_none()) else {
            // Its answer was given, or a task is about to give it: there is no place for another.
            return conn.abort();
        };
        let least = self.site.limits.rate_bytes;
        let what = format!("expected {least} bytes of body a second, found {received} in all");
        let exchange = match &state.phase {
            Phase::Collecting(collector) => collector.exchange,
            _ => h1::Exchange::REFUSED,
        };
        let then = self.refuse(state, &Error::new(408, what), exchange, out);
        self.flush(conn, state, out, then);
    }

    /// Bytes that must have passed by now.
    fn due(&self, state: &Connection) -> u64 {
        let spent = self.local.cx.now().since(state.began);
        let counted = spent.saturating_sub(self.site.limits.rate_grace);
        (counted.as_secs_f64() * f64::from(self.site.limits.rate_bytes)) as u64
    }

    /// Whether an answer is taken fast enough: looked at each tick, as long as it is not all handed over.
    fn check_sending(&self, conn: Conn<'_>, state: &mut Connection) {
        let unsent = conn.unsent() as u32;
        let now = self.local.cx.now();
        if unsent != state.unsent {
            // Something was taken, or written since.
            state.unsent = unsent;
            state.began = now;
        } else if now.since(state.began) > self.site.limits.rate_grace + Duration::from_secs(1) {
            return conn.abort();
        }
        conn.set_deadline(Some(limits::RATE_TICK));
    }
}
