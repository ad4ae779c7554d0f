//! The WebSockets and event streams of a worker in a shutdown: ended at an even rate, since their clients reconnect.
//!
//! ```text
//! Idle ── the first entry ──▶ Collecting ── DRAIN_SPREAD_START ──▶ Ending: each entry in its turn; a later one at once
//! ```
//!
//! Knows no schedule, which is the engine's ([`Cx::end_in_turns`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringmain_engine::{Conn, Cx};

use super::exchange::Exchange;
use super::response_stream::EventFraming;
use crate::ws::Ws;

/// A response or a socket that lasts until one side ends it.
pub(crate) enum LongLived {
    Socket(Ws),
    /// The response to the request with this serial. It is ended if it is an event stream by then.
    Events(Rc<Exchange>, u64),
}

/// See the module. It has at most one entry for each connection and HTTP/2 stream, and one more for a response that starts during the
/// shutdown.
pub(crate) struct DrainQueue {
    cx: Cx,
    phase: Cell<QueuePhase>,
    entries: RefCell<Vec<LongLived>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePhase {
    Idle,
    Collecting,
    Ending,
}

impl LongLived {
    fn is_open(&self) -> bool {
        match self {
            LongLived::Socket(ws) => ws.is_open(),
            LongLived::Events(exchange, serial) => is_event_stream(exchange, *serial),
        }
    }

    fn end(&self) {
        match self {
            LongLived::Socket(ws) => ws.close_for_restart(),
            LongLived::Events(exchange, serial) if is_event_stream(exchange, *serial) => {
                match exchange.stream_ref() {
                    Some(stream_ref) => stream_ref
                        .session
                        .end_events(stream_ref.stream, exchange, *serial),
                    None => end_events(exchange.conn(), exchange),
                }
            }
            LongLived::Events(..) => {}
        }
    }
}

impl DrainQueue {
    pub(crate) fn new(cx: &Cx) -> Rc<DrainQueue> {
        Rc::new(DrainQueue {
            cx: cx.clone(),
            phase: Cell::new(QueuePhase::Idle),
            entries: RefCell::default(),
        })
    }

    /// Has a socket or a response end in its turn, never within this call. Called once the process drains.
    pub(crate) fn push(self: &Rc<Self>, entry: LongLived) {
        if self.phase.get() == QueuePhase::Ending {
            // Without a task it is cut with the worker's others.
            let _ = self.cx.spawn(async move { entry.end() });
            return;
        }
        self.entries.borrow_mut().push(entry);
        if self.phase.replace(QueuePhase::Collecting) == QueuePhase::Idle
            && self.cx.spawn(Rc::clone(self).end_in_turns()).is_err()
        {
            // The next entry tries again.
            self.phase.set(QueuePhase::Idle);
        }
    }

    async fn end_in_turns(self: Rc<Self>) {
        let open_entries = || {
            self.phase.set(QueuePhase::Ending);
            let mut entries = self.entries.take();
            // Turns of those that have finished meanwhile would be gaps.
            entries.retain(LongLived::is_open);
            entries
        };
        let end = |entry: LongLived| entry.end();
        self.cx.end_in_turns(open_entries, end).await;
    }
}

/// Returns true if the response to the request with this `serial` is an event stream that a shutdown ends.
fn is_event_stream(exchange: &Exchange, serial: u64) -> bool {
    let framing = exchange.events.get();
    exchange.is_running(serial)
        && !exchange.outlives_drain.get()
        && framing.is_some_and(|framing| framing != EventFraming::Never)
}

/// Terminates an event stream properly, whatever its handler waits for: each event is one chunk.
pub(super) fn end_events(conn: Conn<'_>, exchange: &Exchange) {
    match exchange.events.get() {
        Some(EventFraming::Chunked) => {
            // Fails only when the connection is closed.
            let _ = conn.write(b"0\r\n\r\n");
            conn.close();
        }
        Some(EventFraming::Unframed) => conn.close(),
        Some(EventFraming::Never) | None => {}
    }
}
