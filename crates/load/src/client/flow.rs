//! What happens on a connection that stands: requests leave, answers come, it ends.

use std::cmp::Reverse;
use std::io;

use bytes::Bytes;
use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;

use super::link::{InFlight, Next, Stage, State};
use super::speak::{Draws, write_or_keep};
use super::{Answer, Client, Heard, Place};
use crate::limits;

/// Bytes of a long request that are handed to the engine at a time.
const PIECE: usize = 64 * 1024;

impl Client {
    /// Has a link that stands do what it is there for: go on with its flow, or begin as many as it may.
    pub(super) fn use_link(&mut self, index: u32, now: Time) {
        if !self.window.sends() {
            return;
        }
        self.go_on(index, now);
        loop {
            let link = &self.links[index as usize];
            if link.next.is_some()
                || link.in_flight.len() + link.offered as usize >= self.plan.pipeline as usize
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
        let link = &mut self.links[index as usize];
        link.values.clear();
        self.plan_step(index, Next { flow, step: 0 }, intended);
        self.go_on(index, now);
    }

    /// Has the link send a step, after its think time.
    fn plan_step(&mut self, index: u32, next: Next, from: Time) {
        let step = &self.traffic.flows()[next.flow as usize].steps[next.step as usize];
        let link = &mut self.links[index as usize];
        link.next = Some(next);
        link.due = from;
        if let Some(pause) = step.pause() {
            link.due = from.after(pause);
            self.sleeping.push(Reverse((link.due, index)));
            self.set_alarm();
        }
    }

    /// Sends the link's next step if it is due and can leave. Otherwise the end of its think time brings it here again,
    /// or its next connection.
    pub(super) fn go_on(&mut self, index: u32, now: Time) {
        let link = &mut self.links[index as usize];
        let (State::Open(id), Some(next)) = (link.state, link.next) else {
            return;
        };
        if link.due > now || !self.window.sends() {
            return;
        }
        link.next = None;
        let request = InFlight {
            sent: now,
            intended: link.due,
            flow: next.flow,
            step: next.step,
        };
        let conn = self.cx.conn(id);
        let mut draws = Draws {
            random: &mut self.random,
            sequence: &mut self.sequence,
            scratch: &mut self.scratch,
        };
        let number = self.first + u64::from(index);
        let written = self
            .speaker
            .write(conn, link, number, &self.traffic, request, &mut draws);
        link.in_flight.push_back(request);
        link.requests += 1;
        if !link.watched {
            link.watched = true;
            conn.set_deadline(Some(self.plan.timeout));
        }
        self.window.sent(request, written.unwrap_or(0));
        if written.is_ok() && !self.links[index as usize].unsent.is_empty() {
            let cx = self.cx.clone();
            self.pump(index, cx.conn(id));
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

    /// Takes received bytes; returns how many. They can answer the first `asked` requests in flight.
    pub(super) fn receive(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        life: u32,
        mut asked: usize,
        bytes: &mut [u8],
        now: Time,
    ) -> usize {
        let number = self.first + u64::from(index);
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
            let rest = &mut bytes[at..];
            let (taken, heard) = self
                .speaker
                .read(link, number, &self.traffic, asked, rest, &mut draws);
            at += taken;
            self.window.received(taken);
            match heard {
                Heard::More => break,
                Heard::Answer(answer) => {
                    asked -= 1;
                    self.answered(conn, index, answer, now);
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
                    // Behind a message that has partly left nothing can be said.
                    if link.unsent.is_empty() && conn.write(&self.scratch).is_ok() {
                        conn.close();
                    } else {
                        conn.abort();
                    }
                    return self.give_up(index, what, bytes.len(), at);
                }
            }
        }
        at
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
    fn answered(&mut self, conn: Conn<'_>, index: u32, answer: Answer, now: Time) {
        let link = &mut self.links[index as usize];
        let request = link
            .in_flight
            .pop_front()
            .expect("an answer belongs to a request");
        self.window.answered(request, answer, now, &self.cx, &self.news);
        let steps = self.traffic.flows()[request.flow as usize].steps.len();
        // A flow does not go on from an answer that was not the expected one: what it needs may be missing.
        if answer.right && (request.step as usize) + 1 < steps {
            let next = Next {
                flow: request.flow,
                step: request.step + 1,
            };
            self.plan_step(index, next, now);
        }
        let link = &self.links[index as usize];
        let answers = link.requests - link.in_flight.len() as u64;
        if answer.last || self.plan.reconnect_after.is_some_and(|most| answers >= most) {
            if !self.say_goodbye(conn, index) {
                conn.close();
                self.lose(index, "closed before its answer");
            }
            self.dial();
            self.set_alarm();
        } else {
            self.use_link(index, now);
        }
    }

    /// The server has sent its last byte.
    ///
    /// Without TLS saying so anybody may have cut the connection: then no answer ends with it (RFC 8446 §6.1).
    pub(super) fn ended(&mut self, conn: Conn<'_>, index: u32, now: Time) {
        let link = &mut self.links[index as usize];
        if link.in_flight.is_empty() {
            self.gone(index, "closed");
            return;
        }
        match self.speaker.end(link, &self.traffic) {
            Heard::Answer(_) if conn.was_cut() => self.lose(index, "closed without close_notify"),
            Heard::Answer(answer) => self.answered(conn, index, answer, now),
            Heard::Broken(what) => self.lose(index, what),
            Heard::More | Heard::Said | Heard::Closing(_) => unreachable!("nothing more comes"),
        }
    }

    /// The oldest request may have waited for too long.
    pub(super) fn time_out(&mut self, conn: Conn<'_>, index: u32, now: Time) {
        let link = &mut self.links[index as usize];
        if let State::Opening(opening) = link.state {
            conn.abort();
            let said = format!("the handshake was not over within {:?}", self.plan.timeout);
            let error = io::Error::new(io::ErrorKind::TimedOut, said);
            let what = match opening.stage {
                Stage::Tls => "TLS: timed out",
                Stage::WebSocket => "WebSocket: timed out",
            };
            return self.opening_failed(index, opening, what, error);
        }
        let Some(oldest) = link.in_flight.front() else {
            link.watched = false;
            return;
        };
        let at = oldest.sent.after(self.plan.timeout);
        if now < at {
            conn.set_deadline(Some(at.since(now)));
            return;
        }
        link.in_flight.pop_front();
        self.window.timed_out(&self.cx, &self.news, now);
        conn.abort();
        self.lose(index, "behind one that timed out");
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
        let says = matches!(link.state, State::Open(_)) && self.speaker.close(link, &mut draws);
        if !says || conn.write(&self.scratch).is_err() {
            return false;
        }
        conn.set_deadline(Some(limits::CLOSE_WAIT));
        self.lose(index, "closed before its answer");
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
                };
                self.opening_failed(index, opening, what, error);
            }
            _ => self.lose(index, what),
        }
    }

    /// The link's connection is over: what was in flight is lost, and it is to be dialled again.
    pub(super) fn lose(&mut self, index: u32, what: &'static str) {
        let link = &mut self.links[index as usize];
        let lost = link.in_flight.len();
        link.end_life();
        self.open -= 1;
        self.waiting.push_back(index);
        self.window.broken(what, lost, &self.cx, &self.news);
    }
}
