//! Deadlines of connections: stored when they move, looked at when their timer fires.

use std::time::Duration;

use super::core::{Core, Told};
use super::record::{Phase, Reason, Record};
use super::sleep::deadline_key;
use crate::backend::{Slot, Time};

impl Core {
    /// Sets or moves the connection's deadline; costs a store when it moves back.
    pub(crate) fn set_deadline(&mut self, slot: Slot, after: Option<Duration>) {
        let now = self.now();
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.deadline = after.map_or(Time(0), |span| now.after(span.max(Duration::from_nanos(1))));
        let at = connection.deadline;
        if at == Time(0) || (connection.timer.is_some() && connection.timer_at <= at) {
            return;
        }
        if let Some(timer) = connection.timer.take() {
            self.wheel.cancel(timer);
        }
        // A full wheel leaves the connection without a deadline until the next call sets one.
        connection.timer = self.wheel.insert(at, deadline_key(slot));
        connection.timer_at = at;
    }

    /// The timer of a connection's deadline fired, perhaps too early because the deadline has moved.
    pub(crate) fn on_deadline(&mut self, slot: Slot) {
        let now = self.now();
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.timer = None;
        if connection.deadline == Time(0) {
            return;
        }
        if connection.deadline > now {
            let at = connection.deadline;
            connection.timer = self.wheel.insert(at, deadline_key(slot));
            connection.timer_at = at;
            return;
        }
        connection.deadline = Time(0);
        match connection.phase {
            Phase::Flushing => self.fail(slot, Reason::FlushTimeout),
            Phase::Open | Phase::Connecting if connection.flags.streamed => self.fail(slot, Reason::Deadline),
            Phase::Open => self.told.push_back(Told::Deadline(slot)),
            Phase::Connecting => self.fail(slot, Reason::Deadline),
            _ => {}
        }
    }
}
