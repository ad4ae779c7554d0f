//! Deadlines of an HTTP/2 connection: slow and silent clients, and the end of the connection.

use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h2::{ErrorCode, FRAME_BYTES, Stream};

use super::{Session, Work};
use crate::http::error::Error;
use crate::limits;
use crate::server::Machine;
use crate::server::connection::Connection;
use crate::server::response_stream::EventFraming;

/// Types of the frames that carry heads: HEADERS and CONTINUATION (RFC 9113 §6).
const HEAD_FRAMES: [u8; 2] = [0x1, 0x9];

/// The payload of our PINGs.
const PING: [u8; 8] = *b"are you?";

impl Session {
    /// Sets the next deadline after an event, or closes a finished connection.
    pub(in crate::server) fn settle(&self) {
        if self.over.get() {
            return;
        }
        let conn = self.conn();
        let (idle, leaving) = {
            let core = self.core.borrow();
            (core.wire.is_idle(), core.wire.is_going_away())
        };
        let draining = idle && self.local.cx.is_draining();
        if draining && !leaving {
            // The client that should confirm the shutdown has no request in flight.
            self.write(|core, _, out| core.wire.go_away(out));
        }
        if idle && (leaving || draining || self.half.get()) {
            self.over.set(true);
            conn.shutdown();
            return conn.set_deadline(Some(self.local.site.limits.linger));
        }
        let ticks = self.ticking.get();
        if self.is_quiet() {
            if !self.quiet.replace(true) {
                self.ticking.set(false);
                self.begun.set(false);
                self.rest_until_due();
            }
            return;
        }
        self.quiet.set(false);
        let partial = self.partial.get() > 0 || self.head_since.get().is_some();
        if !idle {
            self.rest_until.set(None);
        }
        match (idle, partial) {
            (false, _) if ticks => {}
            (false, _) => {
                self.ticking.set(true);
                self.begun.set(false);
                self.tick();
            }
            // Setting it again at each byte would postpone it.
            (true, true) if self.begun.get() => {}
            (true, true) => {
                self.ticking.set(false);
                self.begun.set(true);
                conn.set_deadline(Some(self.local.site.limits.header_timeout));
            }
            (true, false) => {
                self.ticking.set(false);
                self.begun.set(false);
                // The preface's deadline started when the connection was opened. Frames that are not requests do not prolong the
                // time of an idle connection.
                if self.core.borrow().wire.is_established() {
                    let now = self.now();
                    let until = self.rest_until.get();
                    let until = until.unwrap_or_else(|| now.after(self.local.site.limits.idle_timeout));
                    self.rest_until.set(Some(until));
                    conn.set_deadline(Some(until.since(now).max(Duration::from_millis(1))));
                }
            }
        }
    }
}

impl Session {
    /// Records the rest of a receipt: part of a frame, perhaps of a head, and whether a head in several frames is incomplete.
    pub(super) fn note_rest(&self, rest: &[u8], now: Time) {
        self.partial.set(rest.len());
        let begun = rest.get(3).is_some_and(|kind| HEAD_FRAMES.contains(kind));
        let within = begun || self.core.borrow().wire.is_within_a_head();
        let since = within.then(|| self.head_since.get().unwrap_or(now));
        self.head_since.set(since);
    }
}

impl Machine {
    pub(in crate::server) fn deadline_http2(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        session: &Rc<Session>,
    ) {
        session.armed.set(Time::NEVER);
        session.look_at_sockets();
        if session.is_quiet() {
            session.quiet.set(false);
            return session.settle();
        }
        let idle = session.core.borrow().wire.is_idle();
        if idle && conn.unsent() == 0 {
            // The client is silent, or the rest of a frame does not arrive.
            session.write(|core, _, out| core.wire.go_away(out));
            return session.settle();
        }
        let late = session
            .head_since
            .get()
            .is_some_and(|since| self.local.cx.now().since(since) > self.site.limits.header_timeout);
        if late {
            // The head of a stream does not arrive, and blocks all other frames.
            log::debug!(
                "{:?}: the rest of a head did not arrive in time",
                state.origin.remote
            );
            self.local.stats.refused();
            session.write(|core, _, out| core.wire.go_away(out));
            session.over.set(true);
            self.drop_all(session);
            return self.linger(conn, state);
        }
        if conn.unsent() > 0 {
            // Resets the stream if the client takes too little, and sets the next check.
            self.check_sending(conn, state);
        } else {
            state.slow = false;
        }
        session.tick();
        if self.local.cx.is_draining() {
            // The client had its time to confirm.
            session.write(|core, _, out| core.wire.go_away(out));
        }
        session.ticking.set(true);
        self.look_at_streams(state, session);
        self.look_for_life(conn, session);
    }

    /// Ends bodies that arrive too slowly, and responses whose client grants no window.
    fn look_at_streams(&self, state: &Connection, session: &Rc<Session>) {
        let now = self.local.cx.now();
        let limits = &self.site.limits;
        let partial = session.partial.get() as u64;
        // Handlers of other streams hold the connection window: the client cannot send.
        let held = session.core.borrow().wire.peer_window() < FRAME_BYTES;
        let mut slow: Vec<Stream> = Vec::new();
        let mut stuck: Vec<Stream> = Vec::new();
        for lane in &mut session.core.borrow_mut().lanes {
            let Some(stream) = lane.stream else { continue };
            if held {
                lane.coming.begin(now, lane.received + partial);
            }
            if matches!(lane.work, Work::Collecting)
                && lane
                    .coming
                    .is_too_slow(limits, None, now, lane.received + partial)
            {
                slow.push(stream);
            } else if !matches!(lane.work, Work::Socket(_))
                && !lane.pending.is_empty()
                && lane.going.is_used_up(limits, lane.work.rate(), now, lane.sent)
            {
                stuck.push(stream);
            }
        }
        for stream in slow {
            session.write(|core, _, out| {
                let lane = core.lane(stream);
                let (stored, began) = lane.map_or_else(Default::default, |lane| {
                    (std::mem::take(&mut lane.head), Some(lane.began))
                });
                let client = (state.origin.remote, began.unwrap_or(now));
                let id = self.note_collected(client, 408, &stored);
                core.refuse(
                    &self.local,
                    &too_slow(limits.rate_bytes),
                    (stream, id.as_ref()),
                    out,
                );
            });
            self.drop_stream(session, stream);
        }
        for stream in stuck {
            session.reset(stream, ErrorCode::CANCEL);
            self.drop_stream(session, stream);
        }
        for (stream, exchange, _) in session.all_running() {
            let Some(receiving) = exchange.receiving() else {
                continue;
            };
            let mut core = session.core.borrow_mut();
            let Some(lane) = core.lane(stream) else { continue };
            if receiving.anew || held {
                lane.coming.begin(now, receiving.bytes);
            } else {
                // Time spent by the handler does not count against the client.
                lane.coming.skip(receiving.away);
            }
            let slow = lane
                .coming
                .is_too_slow(limits, receiving.rate, now, receiving.bytes + partial);
            drop(core);
            if slow {
                exchange.fail(too_slow(receiving.rate.unwrap_or(limits.rate_bytes)));
            }
        }
        session.settle();
    }

    /// Sends a PING to a client that is silent during a response, and resets the connection without a reply.
    fn look_for_life(&self, conn: Conn<'_>, session: &Session) {
        let now = self.local.cx.now();
        if let Some(pinged) = session.pinged.get() {
            if now.since(pinged) > limits::PONG_WITHIN && session.heard.get() < pinged {
                return conn.abort();
            }
            if session.heard.get() >= pinged {
                session.pinged.set(None);
            }
        } else if now.since(session.heard.get()) > limits::PING_AFTER {
            session.pinged.set(Some(now));
            session.write(|core, _, out| core.wire.ping(PING, out));
        }
    }

    /// Drains the connection when the process shuts down: no new streams, and open ones are answered.
    pub(in crate::server) fn drain_http2(&self, session: &Rc<Session>) {
        let idle = session.core.borrow().wire.is_idle();
        if idle {
            session.write(|core, _, out| core.wire.go_away(out));
            return session.settle();
        }
        session.write(|core, _, out| core.wire.announce_end(out));
        session.drain_sockets();
        self.end_events(session);
        session.settle();
    }

    /// Ends streams of messages, which have no end of their own, except those whose handlers must send more.
    fn end_events(&self, session: &Rc<Session>) {
        for (stream, exchange, _) in session.all_running() {
            if exchange
                .events
                .get()
                .is_some_and(|framing| framing != EventFraming::Never)
            {
                session.end(stream, None);
                self.drop_stream(session, stream);
                session.write(|core, _, out| core.ended(stream, out));
            }
        }
    }

    /// Ends responses of unlimited length when the client sends nothing more.
    pub(super) fn end_lasting(&self, session: &Rc<Session>) {
        self.end_events(session);
        for (stream, exchange, _) in session.all_running() {
            if exchange.events.get() == Some(EventFraming::Never) {
                session.reset(stream, ErrorCode::CANCEL);
                self.drop_stream(session, stream);
            }
        }
    }
}

fn too_slow(least: u32) -> Error {
    Error::new(
        408,
        format!("expected {least} bytes of body a second, found less"),
    )
}
