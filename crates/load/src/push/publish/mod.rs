//! The thread that publishes: an open loop of POSTs. Publications leave when they are due, whether or not answers come.
//!
//! ```text
//! Trying ─ one is accepted ─▶ Ready ─ order ─▶ Publishing ─ the last is due ─▶ Waiting ─ answers, or time ─▶ Ready
//!                               └ the last order ─▶ Over
//! ```
//!
//! All publications of a channel leave on one connection, so that a server that answers in order has them in order. What is due
//! together may leave in one request.

pub mod exchange;
mod line;
mod records;
mod request;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_engine::{Conn, ConnId, Cx, Reason, Start};
use ringmain_sys::process::{thread_cpu_time, thread_waited};
use ringmain_wire::h1::{self, FieldTable};

use self::exchange::{faults, hint};
use self::line::{Due, Flight, Line};
use self::records::Records;
use super::calendar::{Calendar, Number};
use super::figures::Published;
use super::listen::Common;
use super::plan::{Form, Plan};
use super::worker::{News, Order, Place};
use crate::client::{Secure, failure};
use crate::limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Trying,
    Ready,
    Publishing,
    Waiting,
    Over,
}

/// The last worker.
pub(super) struct Publisher {
    cx: Cx,
    plan: Arc<Plan>,
    calendar: Calendar,
    run: u32,
    /// What connections are secured with, if they are.
    secure: Option<Secure>,
    lines: Vec<Line>,
    /// The records that are written to a broker instead.
    records: Option<Records>,
    phase: Phase,
    begun: Time,
    /// The next publication of each stream.
    next: [u64; 2],
    /// When counting begins and ends.
    marks: VecDeque<(Time, Edge)>,
    /// When answers are not waited for any more, or a broken connection is opened again.
    patience: Option<Time>,
    redial: Option<Time>,
    effort: (Duration, Option<Duration>),
    figures: Box<Published>,
    accepted: Vec<bool>,
    table: FieldTable,
    scratch: Vec<u8>,
    body: Vec<u8>,
    news: Sender<News>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Begin,
    End,
}

impl Publisher {
    pub(super) fn new(start: &Start<Order>, common: Common, secure: Option<Secure>) -> Publisher {
        let Common {
            plan,
            calendar,
            run,
            news,
            exchange,
            ..
        } = common;
        let lines = plan
            .publishing
            .as_ref()
            .map_or(0, |publishing| publishing.connections);
        let mut publisher = Publisher {
            secure,
            lines: (0..lines).map(|_| Line::new()).collect(),
            records: plan.broker.is_some().then(|| Records::new(exchange, &start.cx)),
            phase: Phase::Trying,
            begun: Time(0),
            next: [0; 2],
            marks: VecDeque::new(),
            patience: None,
            redial: None,
            effort: Default::default(),
            figures: Box::new(Published {
                due: calendar.counted() as u64,
                ..Published::default()
            }),
            accepted: vec![false; calendar.counted()],
            table: FieldTable::new(&h1::Limits::INTERNET),
            scratch: Vec::new(),
            body: Vec::new(),
            cx: start.cx.clone(),
            plan,
            calendar,
            run,
            news,
        };
        publisher.dial();
        publisher.look_whether_ready();
        publisher.set_alarm();
        publisher
    }

    /// Publications are due from `at` on.
    pub(super) fn begin(&mut self, at: Time, calendar: Calendar, run: u32) {
        self.phase = Phase::Publishing;
        self.begun = at;
        self.calendar = calendar;
        self.run = run;
        self.next = [0; 2];
        *self.figures = Published {
            due: calendar.counted() as u64,
            ..Published::default()
        };
        self.accepted = vec![false; calendar.counted()];
        if let Some(records) = &mut self.records {
            records.begin(calendar.counted());
        }
        let from = at.after(self.plan.warmup);
        self.marks = [(from, Edge::Begin), (from.after(self.plan.duration), Edge::End)].into();
    }

    /// What was counted is told already. After the last time connections that end are not opened again.
    pub(super) fn end(&mut self, is_last: bool) {
        self.tell_records();
        if is_last {
            self.phase = Phase::Over;
            self.redial = None;
            self.set_alarm();
        }
    }

    pub(super) fn alarm(&mut self, now: Time) {
        if self.redial.is_some_and(|at| at <= now) {
            self.redial = None;
            self.dial();
        }
        while let Some((_, mark)) = self.marks.pop_front_if(|(at, _)| *at <= now) {
            self.mark(mark, now);
        }
        if self.phase == Phase::Publishing {
            self.publish_due(now);
        }
        if self.patience.is_some_and(|at| at <= now) {
            self.finish();
        }
        self.set_alarm();
    }

    fn mark(&mut self, mark: Edge, now: Time) {
        if mark == Edge::Begin {
            self.effort = (thread_cpu_time(), thread_waited());
            let _ = self.news.send(News::Counting);
            return;
        }
        // What was due by then has left first.
        self.publish_due(now);
        let (cpu, waited) = self.effort;
        let waited = thread_waited().zip(waited);
        let _ = self.news.send(News::Effort {
            worker: self.cx.worker(),
            cpu: thread_cpu_time().saturating_sub(cpu),
            waited: waited.map(|(end, begin)| end.saturating_sub(begin)),
        });
        let _ = self.news.send(News::Counted);
        self.phase = Phase::Waiting;
        self.patience = Some(now.after(self.plan.timeout));
        self.look_whether_done();
    }

    /// The next publication of both streams.
    fn upcoming(&self) -> Option<(Time, Number)> {
        let of = |stream: u8| {
            let number = Number {
                stream,
                number: self.next[usize::from(stream)],
            };
            let due = self.calendar.due(number)?;
            Some((self.begun.after(due), number))
        };
        [of(0), of(1)].into_iter().flatten().min_by_key(|(due, _)| *due)
    }

    /// Sends what is due.
    fn publish_due(&mut self, now: Time) {
        for _ in 0..limits::ARRIVALS_PER_TURN {
            let Some((due, number)) = self.upcoming().filter(|(due, _)| *due <= now) else {
                break;
            };
            self.next[usize::from(number.stream)] += 1;
            let mark = self.calendar.mark(number);
            let due = Due {
                due,
                number: Some(number),
                run: self.run,
            };
            if self.records.is_some() {
                self.add_record(due);
                continue;
            }
            let line = mark.channel as usize % self.lines.len();
            let waiting = &mut self.lines[line].waiting;
            if waiting.len() < limits::PUBLICATIONS_WAITING {
                waiting.push_back(due);
            } else {
                self.figures.unsent += u64::from(self.calendar.place(mark).is_some());
            }
        }
        self.send_records(now);
        for line in 0..self.lines.len() {
            self.pump(line);
        }
    }

    /// Sends what waits on a connection, as much as it takes.
    fn pump(&mut self, line: usize) {
        let cx = self.cx.clone();
        loop {
            let state = &mut self.lines[line];
            let (Some(id), true) = (state.id, state.open) else {
                return;
            };
            let conn = cx.conn(id);
            let room = state.in_flight.len() < limits::PUBLISHES_IN_FLIGHT && conn.unsent() <= WRITE_MARK;
            if !room || state.waiting.is_empty() {
                return;
            }
            let Ok(count) = self.write(line) else {
                return self.refuse("what is published cannot be written as a request".into());
            };
            let now = cx.clock();
            let mut counted = false;
            let first = self.lines[line].in_flight.len() - count;
            for at in first..first + count {
                let flight = &mut self.lines[line].in_flight[at];
                flight.sent = now;
                let due = flight.due;
                if self.counts(due) {
                    self.figures.lag.record(now.since(due.due).as_nanos() as u64);
                    counted = true;
                }
            }
            if counted {
                self.figures.bytes_sent += self.scratch.len() as u64;
            }
            // A refused write ends the connection, and `closed` comes.
            let _ = conn.write(&self.scratch);
        }
    }

    fn counts(&self, due: Due) -> bool {
        self.place(due).is_some()
    }

    fn place(&self, due: Due) -> Option<usize> {
        let counts = due.run == self.run && matches!(self.phase, Phase::Publishing | Phase::Waiting);
        self.calendar
            .place(self.calendar.mark(due.number.filter(|_| counts)?))
    }

    /// The next moment at which something is to be done unasked.
    fn set_alarm(&mut self) {
        let due = self.upcoming().filter(|_| self.phase == Phase::Publishing);
        let due = due.map(|(at, _)| self.together(at));
        let mark = self.marks.front().map(|(at, _)| *at);
        let next = [due, mark, self.patience, self.redial];
        self.cx.set_alarm(next.into_iter().flatten().min());
    }

    /// When what is due at a moment leaves: at once, or with what else is due in the same millisecond.
    fn together(&self, due: Time) -> Time {
        let form = self.plan.publishing.as_ref().map(|publishing| publishing.form);
        let is_batched = matches!(form, Some(Form::Batch(2..) | Form::Lines(2..)));
        if !is_batched && self.records.is_none() {
            return due;
        }
        let tick = limits::BATCH_TICK.as_nanos() as u64;
        let since = due.since(self.begun).as_nanos() as u64;
        self.begun
            .after(Duration::from_nanos(since.div_ceil(tick) * tick))
    }

    fn dial(&mut self) {
        let Some(publishing) = &self.plan.publishing else {
            return;
        };
        for line in &mut self.lines {
            if line.id.is_some() {
                continue;
            }
            match self.cx.connect(&publishing.target, None) {
                Ok(id) => {
                    self.cx.conn(id).set_deadline(Some(self.plan.timeout));
                    line.id = Some(id);
                }
                Err(error) => {
                    self.redial = Some(self.cx.now().after(limits::REDIAL));
                    let _ = self.news.send(News::NotConnected { node: None, error });
                }
            }
        }
    }

    pub(super) fn connected(&mut self, conn: Conn<'_>) -> Option<Place> {
        let index = self.lines.iter().position(|line| line.id == Some(conn.id()))?;
        conn.set_deadline(None);
        if let Some(secure) = &self.secure {
            // What is written before it stands waits for it.
            secure.begin(conn, self.cx.wall());
        }
        let line = &mut self.lines[index];
        line.open = true;
        let place = Place {
            index: index as u32,
            life: line.life,
        };
        if index == 0 && self.phase == Phase::Trying {
            line.waiting.push_back(Due {
                due: self.cx.clock(),
                number: None,
                run: self.run,
            });
            conn.set_deadline(Some(self.plan.timeout));
        }
        self.pump(index);
        Some(place)
    }

    pub(super) fn not_connected(&mut self, id: ConnId, reason: Reason) {
        let Some(line) = self.lines.iter_mut().find(|line| line.id == Some(id)) else {
            return;
        };
        line.id = None;
        let kind = match reason {
            Reason::NotConnected(kind) => kind,
            Reason::Deadline => std::io::ErrorKind::TimedOut,
            _ => std::io::ErrorKind::Other,
        };
        self.redial = Some(self.cx.now().after(limits::REDIAL));
        self.set_alarm();
        let _ = self.news.send(News::NotConnected {
            node: None,
            error: kind.into(),
        });
    }

    /// TLS has found a fault; the connection ends.
    pub(super) fn insecure(&mut self, conn: Conn<'_>, place: Place) {
        let (what, said) = failure(conn);
        let is_there = self.lines[place.index as usize].life == place.life;
        if is_there && self.phase == Phase::Trying {
            let address = self.address();
            return self.refuse(format!("publishing to {address} failed: {said}"));
        }
        self.lost(place, what);
    }

    /// A connection is gone; what was on its way has no answer.
    pub(super) fn lost(&mut self, place: Place, what: &'static str) {
        let index = place.index as usize;
        if self.lines[index].life != place.life {
            return;
        }
        if self.phase == Phase::Trying {
            let address = self.address();
            return self.refuse(format!("publishing to {address} failed: {what}"));
        }
        let flights = self.lines[index].end_life();
        let lost = flights.iter().filter(|flight| self.counts(flight.due)).count();
        self.figures.unanswered += lost as u64;
        // One that a server closes because nothing is asked for is opened again, and that is all.
        self.figures.broken += u64::from(self.phase != Phase::Over && !flights.is_empty());
        if self.phase != Phase::Over {
            self.redial = Some(self.cx.now().after(limits::REDIAL));
            self.look_whether_done();
            self.set_alarm();
        }
    }

    pub(super) fn drained(&mut self, _conn: Conn<'_>, place: Place) {
        if self.lines[place.index as usize].life == place.life {
            self.pump(place.index as usize);
        }
    }

    /// Answers have come; returns how many bytes were taken.
    pub(super) fn received(&mut self, conn: Conn<'_>, place: Place, bytes: &[u8]) -> usize {
        let index = place.index as usize;
        if self.lines[index].life != place.life {
            return bytes.len();
        }
        let mut at = 0;
        loop {
            match self.lines[index].reading.take(&mut self.table, &bytes[at..]) {
                Ok((taken, None)) => {
                    at += taken;
                    break;
                }
                Ok((taken, Some(status))) => {
                    at += taken;
                    self.answered(conn, index, status);
                }
                Err(what) => {
                    conn.abort();
                    self.lost(place, what);
                    return bytes.len();
                }
            }
        }
        self.pump(index);
        self.look_whether_done();
        self.set_alarm();
        at
    }

    /// A whole answer: its body is what is kept.
    fn answered(&mut self, conn: Conn<'_>, index: usize, status: u16) {
        let form = self
            .plan
            .publishing
            .as_ref()
            .map_or(Form::Api, |publishing| publishing.form);
        let line = &mut self.lines[index];
        let Some(count) = line.requests.pop_front() else {
            return;
        };
        let faults = faults(form, status, &line.reading.kept, usize::from(count));
        line.reading.kept.clear();
        for fault in faults {
            let Some(flight) = self.lines[index].in_flight.pop_front() else {
                return;
            };
            self.told(conn, flight, status, fault);
        }
    }

    /// What is said of a publication.
    fn told(&mut self, conn: Conn<'_>, flight: Flight, status: u16, fault: Option<String>) {
        if self.phase == Phase::Over {
            // It was waited for until the end, and has been counted as one without an answer.
            return;
        }
        if flight.due.number.is_none() {
            conn.set_deadline(None);
            return match fault {
                None => {
                    self.phase = Phase::Ready;
                    let _ = self.news.send(News::Standing { now: self.cx.now() });
                }
                Some(what) => {
                    let (address, hint) = (self.address(), hint(status));
                    self.refuse(format!("{address} does not accept publications: {what}{hint}"));
                }
            };
        }
        let Some(place) = self.place(flight.due) else {
            return;
        };
        self.figures
            .answer
            .record(self.cx.clock().since(flight.sent).as_nanos() as u64);
        match fault {
            None => {
                self.figures.accepted += 1;
                self.accepted[place] = true;
            }
            Some(what) => self.figures.refused.add(what),
        }
    }

    /// Without connections there is nothing to try.
    fn look_whether_ready(&mut self) {
        if self.lines.is_empty() && self.records.is_none() {
            self.phase = Phase::Ready;
            let _ = self.news.send(News::Standing { now: self.cx.now() });
        }
    }

    fn look_whether_done(&mut self) {
        let quiet = |line: &Line| line.in_flight.is_empty() && line.waiting.is_empty();
        let are_acknowledged = self.records.as_ref().is_none_or(Records::are_acknowledged);
        if self.phase == Phase::Waiting && self.lines.iter().all(quiet) && are_acknowledged {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if self.phase != Phase::Waiting {
            return;
        }
        self.patience = None;
        for index in 0..self.lines.len() {
            let line = &self.lines[index];
            let unanswered = line
                .in_flight
                .iter()
                .filter(|flight| self.counts(flight.due))
                .count();
            let unsent = line.waiting.iter().filter(|due| self.counts(**due)).count();
            self.figures.unanswered += unanswered as u64;
            self.figures.unsent += unsent as u64;
            self.lines[index].waiting.clear();
        }
        self.figures.unanswered += self.records.as_ref().map_or(0, Records::unacknowledged);
        // An answer that comes now counts no more.
        self.phase = Phase::Ready;
        let _ = self.news.send(News::Published {
            figures: std::mem::take(&mut self.figures),
            accepted: std::mem::take(&mut self.accepted),
        });
    }

    fn refuse(&mut self, message: String) {
        self.phase = Phase::Over;
        let _ = self.news.send(News::Refused { message });
    }

    fn address(&self) -> String {
        let publishing = self.plan.publishing.as_ref();
        publishing.map_or_else(String::new, |to| {
            let scheme = if to.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}{}", to.host, to.path)
        })
    }
}
