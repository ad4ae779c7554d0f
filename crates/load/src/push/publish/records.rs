//! Publications as records of a broker: handed over when they are due, counted when they are acknowledged.
//!
//! ```text
//! Trying ─ the broker is started ─▶ one record ─ acknowledged ─▶ Ready
//! ```
//!
//! Records that are due in the same millisecond are handed over together, at its end. Knows no library of a broker.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_sys::clock;

use super::line::Due;
use super::{Phase, Publisher};
use crate::limits;
use crate::push::broker::{Acknowledgement, Consumed, Exchange, Record, Token};
use crate::push::calendar::Mark;
use crate::push::layout::write_name;
use crate::push::stamp::{self, Stamp};
use crate::push::worker::News;

/// A publication that was not acknowledged, or not consumed.
const NEVER: u32 = u32::MAX;

/// The records of a run.
pub(super) struct Records {
    exchange: Arc<Exchange>,
    /// The record that tests the broker was handed over.
    has_tried: bool,
    /// Records to be handed over together.
    batch: Vec<Record>,
    /// Records that were handed over and have no outcome.
    in_flight: u64,
    /// Records of this run that were handed over and count, without an outcome.
    unacknowledged: u64,
    /// The host's monotonic clock when the engine's was zero.
    origin: Duration,
    /// Microseconds from the time at which a publication was due, by its place among those that count.
    acknowledged: Vec<u32>,
    consumed: Vec<u32>,
}

impl Records {
    pub(super) fn new(exchange: Arc<Exchange>, cx: &Cx) -> Records {
        Records {
            exchange,
            has_tried: false,
            batch: Vec::new(),
            in_flight: 0,
            unacknowledged: 0,
            origin: clock::monotonic().saturating_sub(Duration::from_nanos(cx.clock().0)),
            acknowledged: Vec::new(),
            consumed: Vec::new(),
        }
    }

    /// Starts a run with so many publications that count.
    pub(super) fn begin(&mut self, counted: usize) {
        self.unacknowledged = 0;
        self.acknowledged = vec![NEVER; counted];
        self.consumed = vec![NEVER; counted];
    }

    /// Returns whether no record is without an outcome.
    pub(super) fn are_acknowledged(&self) -> bool {
        self.unacknowledged == 0
    }

    /// Returns how many records that count are without an outcome.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// Returns the time of the engine's clock.
    fn time(&self, at: Duration) -> Time {
        Time(u64::try_from(at.saturating_sub(self.origin).as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Publisher {
    /// Adds a record that is due to the next batch.
    pub(super) fn add_record(&mut self, due: Due) {
        let counts = self.counts(due);
        let Some(records) = &mut self.records else {
            return;
        };
        if records.in_flight >= limits::RECORDS_IN_FLIGHT {
            self.figures.unsent += u64::from(counts);
            return;
        }
        records.in_flight += 1;
        records.unacknowledged += u64::from(counts);
        let record = self.record(due);
        if let Some(records) = &mut self.records {
            records.batch.push(record);
        }
    }

    fn record(&self, due: Due) -> Record {
        let plan = &self.plan;
        let none = Mark {
            channel: 0,
            sequence: 0,
        };
        let mark = due.number.map_or(none, |number| self.calendar.mark(number));
        let mut channel = Vec::new();
        write_name(&mut channel, &plan.prefix, plan.channels, mark.channel);
        let is_command = plan.broker.as_ref().is_some_and(|broker| broker.commands);
        let [open, middle, close]: [&[u8]; 3] = if is_command {
            [
                b"{\"method\":\"publish\",\"payload\":{\"channel\":\"",
                b"\",\"data\":",
                b"}}",
            ]
        } else {
            [b""; 3]
        };
        let size = plan.size as usize;
        let mut value = Vec::with_capacity(open.len() + channel.len() + middle.len() + size + close.len());
        value.extend_from_slice(open);
        if is_command {
            value.extend_from_slice(&channel);
        }
        value.extend_from_slice(middle);
        stamp::write(&mut value, self.run, Stamp { mark, due: due.due }, size);
        value.extend_from_slice(close);
        Record {
            token: Token {
                due: due.due,
                number: due.number,
                run: due.run,
                sent: due.due,
            },
            channel: String::from_utf8(channel).expect("names of channels are ASCII"),
            value,
        }
    }

    /// Hands the records over that are due.
    pub(super) fn send_records(&mut self, now: Time) {
        let Some(records) = &mut self.records else {
            return;
        };
        let mut batch = std::mem::take(&mut records.batch);
        if batch.is_empty() {
            return;
        }
        let place = |token: Token| self.calendar.place(self.calendar.mark(token.number?));
        for Record { token, value, .. } in &mut batch {
            token.sent = now;
            if place(*token).is_some() {
                self.figures.lag.record(now.since(token.due).as_nanos() as u64);
                self.figures.bytes_sent += value.len() as u64;
            }
        }
        records.exchange.send(batch);
    }

    /// Handles what the broker's thread has reported.
    pub(in crate::push) fn reported(&mut self, now: Time) {
        let Some(records) = &mut self.records else {
            return;
        };
        let pending = records.exchange.take();
        if let Some(message) = pending.failed {
            return self.refuse(message);
        }
        if self.phase == Phase::Trying && !records.has_tried && records.exchange.is_started() {
            records.has_tried = true;
            let due = Due {
                due: now,
                number: None,
                run: self.run,
            };
            self.add_record(due);
            self.send_records(now);
        }
        for acknowledgement in pending.acknowledged {
            self.acknowledged(acknowledgement, now);
        }
        for consumed in pending.consumed {
            self.consumed(consumed);
        }
        self.look_whether_done();
        self.set_alarm();
    }

    fn acknowledged(&mut self, acknowledgement: Acknowledgement, now: Time) {
        let Acknowledgement { token, at, refused } = acknowledgement;
        if let Some(records) = &mut self.records {
            records.in_flight = records.in_flight.saturating_sub(1);
        }
        let due = Due {
            due: token.due,
            number: token.number,
            run: token.run,
        };
        if due.number.is_none() {
            return self.tried(refused, now);
        }
        let (Some(place), Some(records)) = (self.place(due), &mut self.records) else {
            return;
        };
        records.unacknowledged = records.unacknowledged.saturating_sub(1);
        let at = records.time(at);
        self.figures.answer.record(at.since(token.sent).as_nanos() as u64);
        match refused {
            None => {
                self.figures.accepted += 1;
                self.accepted[place] = true;
                records.acknowledged[place] = microseconds(at.since(token.due));
            }
            Some(what) => self.figures.refused.add(what),
        }
    }

    /// Handles the outcome of the record that tries whether the broker takes any.
    fn tried(&mut self, refused: Option<String>, now: Time) {
        if self.phase != Phase::Trying {
            return;
        }
        match refused {
            None => {
                self.phase = Phase::Ready;
                let _ = self.news.send(News::Standing { now });
            }
            Some(what) => {
                let url = self.plan.broker.as_ref().map_or("", |plan| plan.broker.url());
                let message = format!("{url} does not accept publications: {what}");
                self.refuse(message);
            }
        }
    }

    fn consumed(&mut self, consumed: Consumed) {
        let place = self.calendar.place(consumed.stamp.mark);
        let (true, Some(place), Some(records)) = (consumed.run == self.run, place, &mut self.records) else {
            return;
        };
        let span = records.time(consumed.at).since(consumed.stamp.due);
        if let Some(first) = records.consumed.get_mut(place) {
            *first = microseconds(span).min(*first);
        }
    }

    /// Reports when the records were acknowledged and consumed.
    pub(super) fn tell_records(&mut self) {
        if self.records.is_none() {
            return;
        }
        self.reported(self.cx.now());
        if let Some(records) = &mut self.records {
            let _ = self.news.send(News::Recorded {
                acknowledged: std::mem::take(&mut records.acknowledged),
                consumed: std::mem::take(&mut records.consumed),
            });
        }
    }
}

fn microseconds(span: Duration) -> u32 {
    u32::try_from(span.as_micros())
        .unwrap_or(NEVER - 1)
        .min(NEVER - 1)
}
