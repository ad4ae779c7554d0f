//! Deadlines of an HTTP/2 connection: slow and silent clients, and the end of the connection.

use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h2::{ErrorCode, FRAME_BYTES, Stream};

use super::{H2Session, StreamPhase};
use crate::http::error::Error;
use crate::limits;
use crate::server::HttpServer;
use crate::server::connection::Connection;
use crate::server::drain::LongLived;
use crate::server::exchange::Exchange;
use crate::server::fast_path;
use crate::server::response_stream::EventFraming;

/// Types of the frames that carry heads: HEADERS and CONTINUATION (RFC 9113 §6).
const HEAD_FRAMES: [u8; 2] = [0x1, 0x9];

/// The payload of our PINGs.
const PING: [u8; 8] = *b"are you?";

impl H2Session {
    /// Sets the next deadline after an event, or closes a finished connection.
    pub(in crate::server) fn rearm_deadline(&self) {
        if self.closed.get() {
            return;
        }
        let conn = self.conn();
        let (idle, leaving) = {
            let core = self.core.borrow();
            (core.wire.is_idle(), core.wire.is_going_away())
        };
        let draining = idle && self.worker.cx.is_draining();
        if draining && !leaving {
            // The client that should confirm the shutdown has no request in flight.
            self.write(|core, _, out| core.wire.go_away(out));
        }
        if idle && (leaving || draining || self.client_ended.get()) {
            self.closed.set(true);
            conn.shutdown();
            return conn.set_deadline(Some(self.worker.app.limits.linger));
        }
        let ticks = self.ticking.get();
        if self.needs_only_socket_deadlines() {
            if !self.has_only_sockets.replace(true) {
                self.ticking.set(false);
                self.has_frame_deadline.set(false);
                self.sleep_until_socket_deadline();
            }
            return;
        }
        self.has_only_sockets.set(false);
        let partial_frame = self.partial_frame.get() > 0 || self.head_since.get().is_some();
        if !idle {
            self.idle_until.set(None);
        }
        match (idle, partial_frame) {
            (false, _) if ticks => {}
            (false, _) => {
                self.ticking.set(true);
                self.has_frame_deadline.set(false);
                self.tick();
            }
            // Setting it again at each byte would postpone it.
            (true, true) if self.has_frame_deadline.get() => {}
            (true, true) => {
                self.ticking.set(false);
                self.has_frame_deadline.set(true);
                conn.set_deadline(Some(self.worker.app.limits.header_timeout));
            }
            (true, false) => {
                self.ticking.set(false);
                self.has_frame_deadline.set(false);
                // The preface's deadline started when the connection was opened. Frames that are not requests do not prolong the
                // time of an idle connection.
                if self.core.borrow().wire.is_established() {
                    let now = self.now();
                    let until = self.idle_until.get();
                    let until = until.unwrap_or_else(|| now.after(self.worker.app.limits.idle_timeout));
                    self.idle_until.set(Some(until));
                    conn.set_deadline(Some(until.since(now).max(Duration::from_millis(1))));
                }
            }
        }
    }
}

impl H2Session {
    /// Ends the event stream of the request with this `serial`, which has no end of its own, and drops its handler.
    pub(in crate::server) fn end_events(&self, stream: Stream, exchange: &Rc<Exchange>, serial: u64) {
        let is_current = |phase: &StreamPhase| match phase {
            StreamPhase::Running(running, number) => Rc::ptr_eq(running, exchange) && *number == serial,
            _ => false,
        };
        if !self
            .core
            .borrow_mut()
            .entry(stream)
            .is_some_and(|entry| is_current(&entry.phase))
        {
            return;
        }
        self.end(stream, None);
        drop(self.core.borrow_mut().remove_entry(stream));
        if exchange.is_running(serial) {
            fast_path::cancel(exchange, &self.worker);
        }
        self.write(|core, _, out| core.end_stream(stream, out));
        self.rearm_deadline();
    }

    /// Records the rest of a receipt: part of a frame, perhaps of a head, and whether a head in several frames is incomplete.
    pub(super) fn record_unread(&self, rest: &[u8], now: Time) {
        self.partial_frame.set(rest.len());
        let has_frame_deadline = rest.get(3).is_some_and(|kind| HEAD_FRAMES.contains(kind));
        let within = has_frame_deadline || self.core.borrow().wire.is_within_a_head();
        let since = within.then(|| self.head_since.get().unwrap_or(now));
        self.head_since.set(since);
    }
}

impl HttpServer {
    pub(in crate::server) fn deadline_http2(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        session: &Rc<H2Session>,
    ) {
        session.deadline.set(Time::NEVER);
        session.check_due_sockets();
        if session.needs_only_socket_deadlines() {
            session.has_only_sockets.set(false);
            return session.rearm_deadline();
        }
        let idle = session.core.borrow().wire.is_idle();
        if idle && conn.unsent() == 0 {
            // The client is silent, or the rest of a frame does not arrive.
            session.write(|core, _, out| core.wire.go_away(out));
            return session.rearm_deadline();
        }
        let late = session
            .head_since
            .get()
            .is_some_and(|since| self.worker.cx.now().since(since) > self.app.limits.header_timeout);
        if late {
            // The head of a stream does not arrive, and blocks all other frames.
            log::debug!(
                "{:?}: timed out waiting for the rest of a head",
                state.peer.remote
            );
            self.worker.stats.refused();
            session.write(|core, _, out| core.wire.go_away(out));
            session.closed.set(true);
            self.drop_all_streams(session);
            return self.linger(conn, state);
        }
        if conn.unsent() > 0 {
            // Resets the stream if the client takes too little, and sets the next check.
            self.check_sending(conn, state);
        } else {
            state.slow = false;
        }
        session.tick();
        if self.worker.cx.is_draining() {
            // The client had its time to confirm.
            session.write(|core, _, out| core.wire.go_away(out));
        }
        session.ticking.set(true);
        self.check_transfer_rates(state, session);
        self.check_liveness(conn, session);
    }

    /// Ends bodies that arrive too slowly, and responses whose client grants no window.
    fn check_transfer_rates(&self, state: &Connection, session: &Rc<H2Session>) {
        let now = self.worker.cx.now();
        let limits = &self.app.limits;
        let partial_frame = session.partial_frame.get() as u64;
        // Handlers of other streams hold the connection window: the client cannot send.
        let held = session.core.borrow().wire.peer_window() < FRAME_BYTES;
        let mut slow: Vec<Stream> = Vec::new();
        let mut stalled: Vec<Stream> = Vec::new();
        for entry in &mut session.core.borrow_mut().streams {
            let Some(stream) = entry.stream else { continue };
            if held {
                entry.receive_pace.begin(now, entry.received + partial_frame);
            }
            if matches!(entry.phase, StreamPhase::Aggregating)
                && entry
                    .receive_pace
                    .is_too_slow(limits, None, now, entry.received + partial_frame)
            {
                slow.push(stream);
            } else if !matches!(entry.phase, StreamPhase::Socket(_))
                && !entry.pending.is_empty()
                && entry
                    .send_allowance
                    .is_used_up(limits, entry.phase.minimum_rate(), now, entry.sent)
            {
                stalled.push(stream);
            }
        }
        for stream in slow {
            self.reject_slow_body(state, session, stream);
        }
        for stream in stalled {
            session.reset(stream, ErrorCode::CANCEL);
            self.drop_stream(session, stream);
        }
        for (stream, exchange, _) in session.all_running() {
            let Some(receiving) = exchange.receive_progress() else {
                continue;
            };
            let mut core = session.core.borrow_mut();
            let Some(entry) = core.entry(stream) else { continue };
            if receiving.restart || held {
                entry.receive_pace.begin(now, receiving.bytes);
            } else {
                // Time spent by the handler does not count against the client.
                entry.receive_pace.skip(receiving.handler_time);
            }
            let slow = entry.receive_pace.is_too_slow(
                limits,
                receiving.minimum_rate,
                now,
                receiving.bytes + partial_frame,
            );
            drop(core);
            if slow {
                exchange.fail(too_slow(receiving.minimum_rate.unwrap_or(limits.rate_bytes)));
            }
        }
        session.rearm_deadline();
    }

    /// Rejects a request whose aggregated body arrives too slowly.
    fn reject_slow_body(&self, state: &Connection, session: &Rc<H2Session>, stream: Stream) {
        let now = self.worker.cx.now();
        let rate = self.app.limits.rate_bytes;
        session.write(|core, _, out| {
            let entry = core.entry(stream);
            let (stored, started_at) = entry.map_or_else(Default::default, |entry| {
                (std::mem::take(&mut entry.head), Some(entry.started_at))
            });
            let client = state.client_since(started_at.unwrap_or(now));
            let id = self.log_rejected_body(client, 408, &stored);
            core.reject(&self.worker, &too_slow(rate), stream, id.as_ref(), out);
        });
        self.drop_stream(session, stream);
    }

    /// Sends a PING to a client that is silent during a response, and resets the connection without a reply.
    fn check_liveness(&self, conn: Conn<'_>, session: &H2Session) {
        let now = self.worker.cx.now();
        if let Some(ping_sent_at) = session.ping_sent_at.get() {
            if now.since(ping_sent_at) > limits::HTTP2_PONG_TIMEOUT
                && session.last_received.get() < ping_sent_at
            {
                return conn.abort();
            }
            if session.last_received.get() >= ping_sent_at {
                session.ping_sent_at.set(None);
            }
        } else if now.since(session.last_received.get()) > limits::HTTP2_PING_INTERVAL {
            session.ping_sent_at.set(Some(now));
            session.write(|core, _, out| core.wire.ping(PING, out));
        }
    }

    /// Asks the client to use another connection before the process shuts down (RFC 9113 §6.8): the last stream is named once the client has
    /// confirmed, so that no request is refused that was in flight.
    pub(in crate::server) fn announce_drain_http2(&self, session: &Rc<H2Session>) {
        session.write(|core, _, out| core.wire.announce_end(out));
        session.rearm_deadline();
    }

    /// Drains the connection when the process shuts down: no new streams, and open ones are answered.
    pub(in crate::server) fn drain_http2(&self, session: &Rc<H2Session>) {
        let idle = session.core.borrow().wire.is_idle();
        if idle {
            session.write(|core, _, out| core.wire.go_away(out));
            return session.rearm_deadline();
        }
        session.write(|core, _, out| core.wire.announce_end(out));
        session.drain_sockets();
        for (_, exchange, serial) in session.all_running() {
            let response = LongLived::Events(exchange, serial);
            self.worker.drain_queue.push(response);
        }
        session.rearm_deadline();
    }

    /// Ends responses of unlimited length when the client sends nothing more.
    pub(super) fn end_unbounded(&self, session: &Rc<H2Session>) {
        for (stream, exchange, serial) in session.all_running() {
            match exchange.events.get() {
                Some(EventFraming::Never) => {
                    session.reset(stream, ErrorCode::CANCEL);
                    self.drop_stream(session, stream);
                }
                Some(EventFraming::Chunked | EventFraming::Unframed) => {
                    session.end_events(stream, &exchange, serial);
                }
                None => {}
            }
        }
    }
}

fn too_slow(min_rate: u32) -> Error {
    Error::new(
        408,
        format!("request body too slow: expected {min_rate} bytes per second"),
    )
}
