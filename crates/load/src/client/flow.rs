//! What happens on a connection that stands: requests leave, answers come, it ends.

use std::cmp::Reverse;
use std::io;

use bytes::Bytes;
use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;

use super::link::{InFlight, Lane, Link, Next, Reading, Stage, State};
use super::speak::{Draws, Incoming, Outgoing, write_or_keep};
use super::{Answer, Client, Heard, Place};
use crate::limits;

/// Bytes of a long request that are handed to the engine at a time.
const PIECE: usize = 64 * 1024;

impl Client {
    /// The lanes of a link.
    pub(super) fn lanes(&mut self, index: u32) -> &mut [Lane] {
        let each = self.plan.pipeline as usize;
        &mut self.lanes[index as usize * each..][..each]
    }

    /// The same, with the link.
    fn link_with_lanes(&mut self, index: u32) -> (&mut Link, &mut [Lane]) {
        let each = self.plan.pipeline as usize;
        let lanes = &mut self.lanes[index as usize * each..][..each];
        (&mut self.links[index as usize], lanes)
    }

    /// Has a link that stands do what it is there for: go on with its flows, and begin as many as it may.
    pub(super) fn use_link(&mut self, index: u32, now: Time) {
        if !self.window.sends() {
            return;
        }
        if self.links[index as usize].busy > 0 {
            self.resume(index, now);
        }
        self.fill(index, now);
    }

    /// Sends the due steps of all lanes; those that the server declared unprocessed first, the oldest ahead, so that none is left behind
    /// by a server that processes only the first few of each connection.
    fn resume(&mut self, index: u32, now: Time) {
        let lanes = self.lanes(index);
        let is_unprocessed = |lane: &u32| lanes[*lane as usize].unprocessed.is_some();
        let mut unprocessed: Vec<u32> = (0..lanes.len() as u32).filter(is_unprocessed).collect();
        unprocessed.sort_by_key(|lane| lanes[*lane as usize].due);
        for lane in unprocessed.into_iter().chain(0..self.plan.pipeline) {
            self.go_on(index, lane, now);
        }
    }

    /// Begins as many flows on a link as it may have.
    fn fill(&mut self, index: u32, now: Time) {
        if !self.window.sends() {
            return;
        }
        loop {
            let link = &self.links[index as usize];
            if link.busy + link.offered >= link.most
                || self
                    .plan
                    .reconnect_after
                    .is_some_and(|most| link.requests + u64::from(link.offered) >= most)
                || !matches!(link.state, State::Open(_))
            {
                return;
            }
            if !self.is_open_loop() {
                if !self.window.may_begin() {
                    return;
                }
                self.window.arrived();
                self.start_flow(index, now, now);
            } else if let Some(at) = self.arrivals.pop_front() {
                self.window.waiting -= 1;
                self.start_flow(index, at, now);
            } else {
                let link = &mut self.links[index as usize];
                link.offered += 1;
                let life = link.life;
                self.offer(Place { link: index, life });
            }
        }
    }

    /// Begins a flow that was meant to begin at `intended`.
    pub(super) fn start_flow(&mut self, index: u32, intended: Time, now: Time) {
        let flow = self.traffic.pick(&mut self.random) as u32;
        let (link, lanes) = self.link_with_lanes(index);
        let lane = link
            .take_lane(lanes)
            .expect("a link has lanes for what it may take");
        lanes[lane as usize].values.clear();
        self.plan_step(index, lane, Next { flow, step: 0 }, intended);
        self.go_on(index, lane, now);
    }

    /// Has the link send a step, after its think time.
    fn plan_step(&mut self, index: u32, lane: u32, next: Next, from: Time) {
        let pause = self.traffic.flows()[next.flow as usize].steps[next.step as usize].pause();
        let due = pause.map_or(from, |pause| from.after(pause));
        let place = &mut self.lanes(index)[lane as usize];
        place.next = Some(next);
        place.due = due;
        if pause.is_some() {
            self.sleeping.push(Reverse((due, index, lane)));
            self.set_alarm();
        }
    }

    /// Sends a lane's next step if it is due and can leave. Otherwise the end of its think time brings it here again,
    /// its next connection, or the end of another request.
    pub(super) fn go_on(&mut self, index: u32, lane: u32, now: Time) {
        let each = self.plan.pipeline as usize;
        let link = &mut self.links[index as usize];
        let place = &mut self.lanes[index as usize * each + lane as usize];
        let (State::Open(id), Some(next)) = (link.state, place.next) else {
            return;
        };
        // What has done its work goes on when it is made anew.
        if place.due > now || !self.window.sends() || link.has_done(self.plan.reconnect_after) {
            return;
        }
        if !self.speaker.may_ask(link) {
            link.stalled = true;
            return;
        }
        place.next = None;
        let request = InFlight {
            sent: now,
            intended: place.due,
            lane,
            flow: next.flow,
            step: next.step,
            attempt: place.unprocessed.take().map_or(0, |last| last.attempt + 1),
        };
        let conn = self.cx.conn(id);
        let mut draws = Draws {
            random: &mut self.random,
            sequence: &mut self.sequence,
            scratch: &mut self.scratch,
        };
        let outgoing = Outgoing {
            number: self.first + u64::from(index),
            lane: place,
            request,
        };
        let (speaker, traffic) = (&mut self.speaker, &self.traffic);
        let written = speaker.write(conn, link, traffic, outgoing, &mut draws);
        if !matches!(link.reading, Reading::Http2(_)) {
            link.in_flight.push_back(request);
        }
        link.requests += 1;
        if !link.watched {
            link.watched = true;
            conn.set_deadline(Some(self.plan.timeout));
        }
        self.window.sent(request, written.unwrap_or(0));
        if written.is_ok() && !self.held {
            let cx = self.cx.clone();
            self.pump(index, cx.conn(id));
            self.flush(index, cx.conn(id));
        }
        // A refused write ends the connection, and `closed` counts what was in flight.
    }

    /// Hands more of a long request to the engine.
    pub(super) fn pump(&mut self, index: u32, conn: Conn<'_>) {
        let link = &mut self.links[index as usize];
        while let Some(first) = link.unsent.front_mut()
            && conn.unsent() <= WRITE_MARK
        {
            let piece = first.split_to(first.len().min(PIECE));
            if first.is_empty() {
                link.unsent.pop_front();
            }
            if conn.write_frame(piece).is_err() {
                return;
            }
        }
    }

    /// Writes what has collected for a link, and as much of bodies as there is room for.
    pub(super) fn flush(&mut self, index: u32, conn: Conn<'_>) {
        loop {
            let link = &mut self.links[index as usize];
            // Up to where `drained` will be told.
            let room = (WRITE_MARK + 1).saturating_sub(conn.unsent());
            let room = if link.unsent.is_empty() { room } else { 0 };
            let Some(out) = self.speaker.gather(link, room) else {
                return;
            };
            let bytes = out.as_slice();
            let written = write_or_keep(conn, &mut link.unsent, bytes, || Bytes::copy_from_slice(bytes));
            out.clear();
            match written {
                Ok(bytes) => self.window.said(bytes),
                // It ends the connection, and `closed` counts what was in flight.
                Err(_) => return,
            }
        }
    }

    /// Takes received bytes; returns how many. They can answer the first `asked` requests in flight.
    pub(super) fn receive(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        life: u32,
        asked: usize,
        bytes: &mut [u8],
        now: Time,
    ) -> usize {
        self.held = true;
        let taken = self.read(conn, index, life, asked, bytes, now);
        self.held = false;
        if self.links[index as usize].life == life {
            self.pump(index, conn);
            self.flush(index, conn);
        }
        taken
    }

    fn read(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        life: u32,
        mut asked: usize,
        bytes: &mut [u8],
        now: Time,
    ) -> usize {
        let number = self.first + u64::from(index);
        let each = self.plan.pipeline as usize;
        let mut at = 0;
        while at < bytes.len() {
            let link = &mut self.links[index as usize];
            if link.life != life {
                return bytes.len();
            }
            let mut draws = Draws {
                random: &mut self.random,
                sequence: &mut self.sequence,
                scratch: &mut self.scratch,
            };
            let lanes = &mut self.lanes[index as usize * each..][..each];
            let incoming = Incoming {
                number,
                asked,
                now,
                bytes: &mut bytes[at..],
            };
            let (speaker, traffic) = (&mut self.speaker, &self.traffic);
            let (taken, heard) = speaker.read(link, lanes, traffic, incoming, &mut draws);
            at += taken;
            self.window.received(taken);
            self.speaker.tell_messages(&mut self.window);
            match heard {
                Heard::More => break,
                Heard::Answer(request, answer) => {
                    asked = asked.saturating_sub(1);
                    self.answered(conn, index, request, answer, now);
                }
                Heard::Lost(request, what) => self.request_lost(conn, index, request, what, now),
                Heard::Unprocessed(request, what) => {
                    self.unprocessed(index, request, what);
                    self.after_an_end(conn, index, now);
                }
                Heard::Retreat(what) => self.retreat(conn, index, what, now),
                Heard::Settings => {
                    self.allow(index);
                    self.after_an_end(conn, index, now);
                }
                Heard::Said => {
                    // A refused write ends the connection, and `closed` counts what was in flight.
                    let written = write_or_keep(conn, &mut link.unsent, &self.scratch, || {
                        Bytes::copy_from_slice(&self.scratch)
                    });
                    self.window.said(written.unwrap_or(0));
                }
                Heard::Broken(what) => {
                    conn.abort();
                    return self.give_up(index, what, bytes.len(), at);
                }
                Heard::Closing(what) => {
                    self.say_last(conn, index);
                    return self.give_up(index, what, bytes.len(), at);
                }
            }
        }
        at
    }

    /// Ends a connection with what the protocol has to say about it, if that can be said.
    fn say_last(&mut self, conn: Conn<'_>, index: u32) {
        let link = &mut self.links[index as usize];
        if let Some(out) = self.speaker.gather(link, 0) {
            self.scratch.clear();
            self.scratch.append(out);
        }
        // Behind a message that has partly left nothing can be said.
        if link.unsent.is_empty() && conn.write(&self.scratch).is_ok() {
            conn.close();
        } else {
            conn.abort();
        }
    }

    /// The link's connection is of no use any more, though `received` bytes came of which `taken` were looked at.
    fn give_up(&mut self, index: u32, what: &'static str, received: usize, taken: usize) -> usize {
        self.window.received(received - taken);
        self.lose(index, what);
        self.dial();
        self.set_alarm();
        received
    }

    /// An answer is whole.
    fn answered(&mut self, conn: Conn<'_>, index: u32, request: InFlight, answer: Answer, now: Time) {
        let lane = request.lane;
        self.window.answered(request, answer, now, &self.cx, &self.news);
        let steps = self.traffic.flows()[request.flow as usize].steps.len();
        // A flow does not go on from an answer that was not the expected one: what it needs may be missing.
        let goes_on = answer.right && (request.step as usize) + 1 < steps;
        if goes_on {
            let next = Next {
                flow: request.flow,
                step: request.step + 1,
            };
            self.plan_step(index, lane, next, now);
        } else {
            let (link, lanes) = self.link_with_lanes(index);
            link.leave_lane(lane, lanes);
        }
        if answer.last {
            return self.part(conn, index);
        }
        if goes_on {
            self.go_on(index, lane, now);
        }
        self.after_an_end(conn, index, now);
    }

    /// A request is lost, and its connection goes on.
    fn request_lost(&mut self, conn: Conn<'_>, index: u32, request: InFlight, what: &'static str, now: Time) {
        self.count_lost(index, request, what);
        self.after_an_end(conn, index, now);
    }

    fn count_lost(&mut self, index: u32, request: InFlight, what: &'static str) {
        self.window.broken(what, &[request], &self.cx, &self.news);
        if let Some(said) = self.speaker.take_said() {
            self.window.explain(what, || said);
        }
        let (link, lanes) = self.link_with_lanes(index);
        link.leave_lane(request.lane, lanes);
    }

    /// The server declared a request unprocessed: its lane sends it again, on this connection or the next one (RFC 9113 §8.7). At
    /// [`limits::RESENDS`] it counts as broken.
    fn unprocessed(&mut self, index: u32, request: InFlight, what: &'static str) {
        if request.attempt >= limits::RESENDS {
            return self.count_lost(index, request, what);
        }
        self.window.unprocessed();
        let lane = &mut self.lanes(index)[request.lane as usize];
        lane.next = Some(Next {
            flow: request.flow,
            step: request.step,
        });
        lane.due = request.intended;
        lane.unprocessed = Some(request);
        self.links[index as usize].stalled = true;
    }

    /// The server accepts no more requests on the connection, and has processed none above the last stream that it named
    /// (RFC 9113 §6.8).
    fn retreat(&mut self, conn: Conn<'_>, index: u32, what: &'static str, now: Time) {
        while let Some(request) = self.take_lost(index) {
            self.unprocessed(index, request, what);
        }
        let link = &mut self.links[index as usize];
        link.most = 0;
        link.offered = 0;
        self.after_an_end(conn, index, now);
    }

    /// The next of the requests that a link has lost.
    fn take_lost(&mut self, index: u32) -> Option<InFlight> {
        match &mut self.links[index as usize].reading {
            Reading::Http2(session) => session.take_lost(),
            _ => None,
        }
    }

    /// The server has limited the streams of a link: what was offered beyond that is for others.
    pub(super) fn allow(&mut self, index: u32) {
        let most = self.plan.pipeline;
        let link = &mut self.links[index as usize];
        if let Reading::Http2(session) = &link.reading
            && !session.is_leaving()
        {
            let allowed = session.streams_allowed();
            link.most = allowed.unwrap_or(u32::MAX).min(most);
            link.offered = link.offered.min(link.most.saturating_sub(link.busy));
            self.window.allowed(allowed);
        }
    }

    /// Something on a link is over: what waited for that goes on, and others begin; or the link ends, if nothing more can.
    fn after_an_end(&mut self, conn: Conn<'_>, index: u32, now: Time) {
        let link = &mut self.links[index as usize];
        if !matches!(link.state, State::Open(_)) {
            return;
        }
        let is_over = matches!(&link.reading, Reading::Http2(session) if session.is_over());
        if is_over || (link.has_done(self.plan.reconnect_after) && link.under_way() == 0) {
            return self.part(conn, index);
        }
        if std::mem::take(&mut link.stalled) {
            self.resume(index, now);
        }
        self.fill(index, now);
    }

    /// Ends a connection that has done its work.
    fn part(&mut self, conn: Conn<'_>, index: u32) {
        if !self.say_goodbye(conn, index) {
            conn.close();
            self.lose(index, "closed before its response");
        }
        self.dial();
        self.set_alarm();
    }

    /// The server has sent its last byte.
    ///
    /// Without TLS saying so anybody may have cut the connection: then no answer ends with it (RFC 8446 §6.1).
    pub(super) fn ended(&mut self, conn: Conn<'_>, index: u32, now: Time) {
        let link = &mut self.links[index as usize];
        if link.under_way() == 0 {
            self.gone(index, "closed");
            return;
        }
        let each = self.plan.pipeline as usize;
        let lanes = &mut self.lanes[index as usize * each..][..each];
        match self.speaker.end(link, lanes, &self.traffic) {
            Heard::Answer(request, _) if conn.was_cut() => {
                self.links[index as usize].in_flight.push_front(request);
                self.lose(index, "closed without close_notify");
            }
            Heard::Answer(request, answer) => self.answered(conn, index, request, answer, now),
            Heard::Broken(what) => self.lose(index, what),
            _ => unreachable!("nothing more comes"),
        }
    }

    /// The oldest request may have waited for too long.
    pub(super) fn time_out(&mut self, conn: Conn<'_>, index: u32, now: Time) {
        let link = &mut self.links[index as usize];
        if let State::Opening(opening) = link.state {
            conn.abort();
            let said = format!("the handshake did not complete within {:?}", self.plan.timeout);
            let error = io::Error::new(io::ErrorKind::TimedOut, said);
            let what = match opening.stage {
                Stage::Tls => "TLS: timed out",
                Stage::WebSocket => "WebSocket: timed out",
                Stage::Http2 => "HTTP/2: timed out",
            };
            return self.opening_failed(index, opening, what, error);
        }
        let (oldest, heard) = match &link.reading {
            Reading::Http2(session) => (session.oldest(), session.heard()),
            _ => (link.in_flight.front().map(|request| request.sent), Time(0)),
        };
        let Some(oldest) = oldest else {
            link.watched = false;
            return;
        };
        let at = oldest.after(self.plan.timeout);
        if now < at {
            conn.set_deadline(Some(at.since(now)));
            return;
        }
        if heard > oldest {
            return self.give_up_late(conn, index, now);
        }
        // Answers come in order, or nothing has come since: the connection is of no use.
        if let Reading::Http2(_) = link.reading {
            self.count_late(index, oldest, now);
        } else if let Some(request) = link.in_flight.pop_front() {
            self.window.timed_out(request, &self.cx, &self.news, now);
        }
        conn.abort();
        self.lose(index, "behind one that timed out");
    }

    /// Counts those as timed out that were sent until then, and gives them up.
    fn count_late(&mut self, index: u32, sent_until: Time, now: Time) {
        self.speaker.give_up(&mut self.links[index as usize], sent_until);
        while let Some(request) = self.take_lost(index) {
            self.window.timed_out(request, &self.cx, &self.news, now);
            let (link, lanes) = self.link_with_lanes(index);
            link.leave_lane(request.lane, lanes);
        }
    }

    /// Requests have waited for too long on a connection that is alive: they are given up one by one.
    fn give_up_late(&mut self, conn: Conn<'_>, index: u32, now: Time) {
        let timeout = self.plan.timeout;
        let late = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.count_late(index, Time(now.0.saturating_sub(late)), now);
        let life = self.links[index as usize].life;
        self.after_an_end(conn, index, now);
        let link = &mut self.links[index as usize];
        if link.life != life {
            return;
        }
        let oldest = match &link.reading {
            Reading::Http2(session) => session.oldest(),
            _ => None,
        };
        link.watched = oldest.is_some();
        conn.set_deadline(oldest.map(|oldest| oldest.after(timeout).since(now)));
        self.flush(index, conn);
    }

    /// Says goodbye where the protocol has words for that; the connection then waits for the other end's, without the link.
    /// `false` where it has none: then nothing has happened.
    pub(super) fn say_goodbye(&mut self, conn: Conn<'_>, index: u32) -> bool {
        let link = &mut self.links[index as usize];
        let mut draws = Draws {
            random: &mut self.random,
            sequence: &mut self.sequence,
            scratch: &mut self.scratch,
        };
        if !matches!(link.state, State::Open(_)) {
            return false;
        }
        let Some(is_answered) = self.speaker.close(link, &mut draws) else {
            return false;
        };
        if conn.write(&self.scratch).is_err() {
            return false;
        }
        if is_answered {
            conn.set_deadline(Some(limits::CLOSE_WAIT));
        } else {
            conn.close();
        }
        self.lose(index, "closed before its response");
        true
    }

    /// The link's connection has ended by itself, whether or not it stood.
    pub(super) fn gone(&mut self, index: u32, what: &'static str) {
        match self.links[index as usize].state {
            State::Opening(opening) => {
                let said = format!("the connection ended within the handshake: {what}");
                let error = io::Error::new(io::ErrorKind::ConnectionAborted, said);
                let what = match opening.stage {
                    Stage::Tls => "TLS: connection ended",
                    Stage::WebSocket => "WebSocket: connection ended",
                    Stage::Http2 => "HTTP/2: connection ended",
                };
                self.opening_failed(index, opening, what, error);
            }
            _ => self.lose(index, what),
        }
    }

    /// The link's connection is over: what was in flight is lost, and it is to be dialled again.
    pub(super) fn lose(&mut self, index: u32, what: &'static str) {
        let link = &mut self.links[index as usize];
        let lost: Vec<InFlight> = link.requests().collect();
        let what = match &link.reading {
            Reading::Http2(session) => session.farewell().unwrap_or(what),
            _ => what,
        };
        self.end_life(index);
        self.open -= 1;
        self.waiting.push_back(index);
        self.window.broken(what, &lost, &self.cx, &self.news);
        if let Some(said) = self.speaker.take_said().filter(|_| !lost.is_empty()) {
            self.window.explain(what, || said);
        }
    }

    /// Ends the life of a link's connection.
    pub(super) fn end_life(&mut self, index: u32) {
        let (link, lanes) = self.link_with_lanes(index);
        link.end_life(lanes);
        self.speaker.drop_unwritten();
    }
}
