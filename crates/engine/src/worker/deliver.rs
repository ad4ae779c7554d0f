//! Delivers events to the handler, with no borrow of the worker's state held.
//!
//! A panic of the handler ends the connection that it had at hand and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::core::{Told, Via};
use super::cx::{Conn, ConnId};
use super::handler::Handler;
use super::record::{Phase, Reason};
use super::shared::Counters;
use super::{State, Worker};
use crate::backend::{Lent, Slot, Time};
use crate::limits;
use crate::stream::Receiver;

/// Where received bytes go.
enum Route {
    /// Straight to the handler, without a copy.
    Handler,
    /// To the handler, behind bytes that it has not consumed.
    Behind,
    /// Through the layer first.
    Layer,
    /// To who has said that it looks at a stream's bytes at once.
    Receiver(Rc<dyn Receiver>),
    /// Kept until somebody asks.
    Keep,
    Drop,
}

impl<H: Handler> Worker<H> {
    pub(super) fn received(&mut self, slot: Slot, mut data: Lent, more: bool) {
        let mut core = self.cx.core();
        core.count_received(slot, data.len());
        let layered = core.connection(slot).is_some_and(|c| c.layer.is_some());
        let (route, parked_at) = match core.connection(slot) {
            Some(connection) => {
                let parked_at = std::mem::take(&mut connection.parked_at);
                connection.flags.recv_armed = more;
                let flags = &connection.flags;
                let route = if connection.phase != Phase::Open {
                    Route::Drop
                } else if layered {
                    Route::Layer
                } else if flags.streamed || flags.paused || flags.blocked || flags.yielded {
                    connection.receiver().map_or(Route::Keep, Route::Receiver)
                } else if connection.unread.is_empty() {
                    Route::Handler
                } else {
                    Route::Behind
                };
                (route, parked_at)
            }
            None => (Route::Drop, Time(0)),
        };
        core.ready_at = if parked_at == Time(0) {
            core.batch_at
        } else {
            parked_at
        };
        match route {
            Route::Handler => {
                drop(core);
                let bytes = data.bytes_mut();
                let consumed = self.offer(slot, bytes);
                core = self.cx.core();
                if consumed < bytes.len() {
                    core.keep_unread(slot, &bytes[consumed..]);
                    core.end_if_stuck(slot);
                    core.tell_fresh_layer(slot);
                }
            }
            Route::Behind => {
                core.keep_unread(slot, data.bytes_mut());
                drop(core);
                self.offer_kept(slot);
                core = self.cx.core();
            }
            Route::Layer => {
                drop(core);
                self.received_layered(slot, data.bytes_mut());
                core = self.cx.core();
            }
            Route::Receiver(receiver) => {
                drop(core);
                self.show(slot, &*receiver, data.bytes_mut());
                core = self.cx.core();
            }
            Route::Keep => core.keep_unread(slot, data.bytes_mut()),
            Route::Drop => {}
        }
        core.backend.give_back(data);
        core.update_recv(slot);
        core.close_if_quiet(slot);
    }

    /// Shows bytes to the handler; returns how many it consumed.
    pub(super) fn offer(&mut self, slot: Slot, bytes: &mut [u8]) -> usize {
        let len = bytes.len();
        let Some(state) = self.states.get_mut(slot) else {
            return len;
        };
        let (handler, conn) = (&mut self.handler, Conn::new(&self.cx, slot));
        match catch_unwind(AssertUnwindSafe(|| handler.data(conn, state, bytes))) {
            Ok(consumed) => consumed.min(len),
            Err(_) => {
                self.panicked(slot);
                len
            }
        }
    }

    /// Shows bytes to a stream's receiver; what it leaves is kept.
    pub(super) fn show(&mut self, slot: Slot, receiver: &dyn Receiver, bytes: &[u8]) {
        match catch_unwind(AssertUnwindSafe(|| receiver.data(bytes))) {
            Ok(consumed) if consumed < bytes.len() => self.cx.core().keep_unread(slot, &bytes[consumed..]),
            Ok(_) => {}
            Err(_) => self.panicked(slot),
        }
    }

    /// Tells a stream's receiver that there is something to look at.
    fn news(&mut self, slot: Slot) {
        let mut core = self.cx.core();
        let receiver = core
            .connection(slot)
            .and_then(|c| c.stream.as_ref()?.receiver.clone());
        drop(core);
        if let Some(receiver) = receiver
            && catch_unwind(AssertUnwindSafe(|| receiver.news())).is_err()
        {
            self.panicked(slot);
        }
    }

    /// Shows the kept bytes to the handler; ends a connection whose handler can make nothing of them.
    pub(super) fn offer_kept(&mut self, slot: Slot) {
        let mut kept = {
            let mut core = self.cx.core();
            let Some(connection) = core.connection(slot) else {
                return;
            };
            std::mem::take(&mut connection.unread)
        };
        if kept.is_empty() {
            return;
        }
        let consumed = self.offer_in_shares(slot, &mut kept);
        let core = &mut *self.cx.core();
        let Some(connection) = core.connection(slot).filter(|c| c.phase == Phase::Open) else {
            core.pool.put(kept);
            return core.count_unread(slot);
        };
        if consumed == kept.len() {
            core.pool.put(kept);
            return core.count_unread(slot);
        }
        kept.drain(..consumed);
        connection.unread = kept;
        core.count_unread(slot);
        core.end_if_stuck(slot);
        core.tell_fresh_layer(slot);
    }

    /// Shows at most [`limits::READ_MARK`] bytes at a time, as long as the connection takes them: what was on
    /// its way when receiving stopped may be much more than a handler may write in one go.
    fn offer_in_shares(&mut self, slot: Slot, kept: &mut [u8]) -> usize {
        let mut consumed = 0;
        loop {
            let share = (kept.len() - consumed).min(limits::READ_MARK);
            let shown = consumed + share;
            let taken = self.offer(slot, &mut kept[consumed..shown]);
            consumed += taken;
            let more = shown < kept.len() && taken > 0;
            let open = self.cx.core().connection(slot).is_some_and(|c| {
                c.phase == Phase::Open
                    && !(c.flags.paused
                        || c.flags.blocked
                        || c.flags.streamed
                        || c.flags.yielded
                        || c.has_fresh_layer())
            });
            if !(more && open) {
                return consumed;
            }
        }
    }

    pub(super) fn deliver_told(&mut self) {
        loop {
            let told = self.cx.core().told.pop_front();
            let Some(told) = told else { return };
            match told {
                Told::Opened(slot, via) => self.opened(slot, via),
                Told::Drained(slot) => {
                    self.with_state(slot, |handler, conn, state| handler.drained(conn, state))
                }
                Told::Deadline(slot) => {
                    self.with_state(slot, |handler, conn, state| handler.deadline(conn, state))
                }
                Told::EndOfData(slot) => {
                    self.with_state(slot, |handler, conn, state| handler.end(conn, state));
                    self.cx.core().close_if_over(slot);
                }
                Told::Unread(slot) => self.unread(slot),
                Told::News(slot) => self.news(slot),
                Told::Ended(slot, reason) => self.ended(slot, reason),
                Told::Taken(slot) => drop(self.states.take(slot)),
                Told::NotConnected(slot, reason) => {
                    let (handler, cx) = (&mut self.handler, &self.cx);
                    let id = ConnId(slot);
                    let call = || handler.not_connected(cx, id, reason);
                    let outcome = catch_unwind(AssertUnwindSafe(call));
                    self.guard(outcome);
                }
                Told::Alarm => self.alarm(),
                Told::Timer(key) => {
                    let (handler, cx) = (&mut self.handler, &self.cx);
                    let outcome = catch_unwind(AssertUnwindSafe(|| handler.timer(cx, key)));
                    self.guard(outcome);
                }
            }
            self.end_step();
        }
    }

    /// Unless it was moved or taken away earlier in this turn.
    fn alarm(&mut self) {
        let mut core = self.cx.core();
        if core.alarm > core.now() {
            return;
        }
        core.alarm = Time::NEVER;
        drop(core);
        let (handler, cx) = (&mut self.handler, &self.cx);
        let outcome = catch_unwind(AssertUnwindSafe(|| handler.alarm(cx)));
        self.guard(outcome);
    }

    fn opened(&mut self, slot: Slot, via: Via) {
        if !self.is_open(slot) {
            return;
        }
        let (handler, conn) = (&mut self.handler, Conn::new(&self.cx, slot));
        match catch_unwind(AssertUnwindSafe(|| handler.open(conn, via))) {
            Ok(Some(state)) => self.states.put(slot, state),
            Ok(None) => {
                // Without state there is nobody to hear of it, unless a stream has taken it.
                let mut core = self.cx.core();
                let streamed = core.connection(slot).is_some_and(|c| c.flags.streamed);
                if !streamed {
                    core.close(slot, Reason::Closed);
                }
            }
            Err(_) => self.panicked(slot),
        }
        self.cx.core().first_recv(slot);
        if self.state >= State::Draining {
            self.newcomers.push(slot);
        }
    }

    /// A step has ended that may have written something.
    pub(super) fn end_step(&mut self) {
        let core = &mut *self.cx.core();
        if !core.dirty.is_empty() {
            core.end_step();
        }
    }

    /// Offers connections that yielded in the last turn what they left, as bytes that have waited since they arrived.
    pub(super) fn offer_yielded(&mut self) {
        let yielded = std::mem::take(&mut self.cx.core().yielded);
        for (slot, since) in yielded {
            let mut core = self.cx.core();
            if let Some(connection) = core.connection(slot) {
                connection.flags.yielded = false;
                drop(core);
                self.unread_since(slot, Some(since));
                self.deliver_told();
                self.end_step();
            }
        }
    }

    /// Kept bytes first, then the end of data if that has arrived.
    fn unread(&mut self, slot: Slot) {
        self.unread_since(slot, None);
    }

    /// The same for bytes that have waited for the worker since then; `None`: they waited for their own connection.
    fn unread_since(&mut self, slot: Slot, since: Option<Time>) {
        if self
            .cx
            .core()
            .connection(slot)
            .is_some_and(|c| c.has_fresh_layer())
        {
            self.look_at_wire(slot);
        }
        let ready = self.cx.core().connection(slot).is_some_and(|c| {
            c.phase == Phase::Open
                && !(c.flags.paused || c.flags.blocked || c.flags.streamed || c.flags.yielded)
        });
        if !ready {
            return;
        }
        let mut core = self.cx.core();
        core.ready_at = since.unwrap_or(core.now());
        drop(core);
        self.offer_kept(slot);
        let mut core = self.cx.core();
        let Some(connection) = core.connection(slot) else {
            return;
        };
        let waits = connection.layer_waits();
        let flags = &mut connection.flags;
        if flags.eof && !waits && !flags.eof_told && !flags.paused && !flags.blocked && !flags.yielded {
            flags.eof_told = true;
            core.told.push_back(Told::EndOfData(slot));
        }
        core.update_recv(slot);
    }

    fn ended(&mut self, slot: Slot, reason: Reason) {
        let (handler, cx) = (&mut self.handler, &self.cx);
        if let Some(state) = self.states.take(slot) {
            let outcome = catch_unwind(AssertUnwindSafe(|| handler.closed(cx, state, reason)));
            self.guard(outcome);
        }
    }

    pub(super) fn deliver_mail(&mut self, mail: H::Mail) {
        let (handler, cx) = (&mut self.handler, &self.cx);
        let outcome = catch_unwind(AssertUnwindSafe(|| handler.mail(cx, mail)));
        self.guard(outcome);
        self.deliver_told();
    }

    /// Notifies every open connection of the shutdown to come.
    pub(super) fn announce_drain(&mut self) {
        let slots: Vec<Slot> = self.cx.core().records.slots().collect();
        for slot in slots {
            if self.is_open(slot) {
                self.with_state(slot, |handler, conn, state| handler.drain_pending(conn, state));
                self.deliver_told();
            }
        }
    }

    pub(super) fn drain_one(&mut self, slot: Slot) {
        if self.is_open(slot) {
            self.with_state(slot, |handler, conn, state| handler.drain(conn, state));
            self.deliver_told();
        }
    }

    fn is_open(&self, slot: Slot) -> bool {
        self.cx
            .core()
            .connection(slot)
            .is_some_and(|c| c.phase == Phase::Open)
    }

    pub(super) fn with_state(&mut self, slot: Slot, call: impl FnOnce(&mut H, Conn<'_>, &mut H::Conn)) {
        if !self.is_open(slot) {
            return;
        }
        let Some(state) = self.states.get_mut(slot) else {
            return;
        };
        let (handler, conn) = (&mut self.handler, Conn::new(&self.cx, slot));
        if catch_unwind(AssertUnwindSafe(|| call(handler, conn, state))).is_err() {
            self.panicked(slot);
        }
    }

    fn panicked(&mut self, slot: Slot) {
        self.guard(Err(Box::new(())));
        self.cx.core().abort(slot, Reason::Panicked);
    }

    fn guard(&mut self, outcome: std::thread::Result<()>) {
        if outcome.is_err() {
            Counters::add(&self.shared.workers[self.index].counters.panics, 1);
            log::error!("{} panicked; the worker goes on", self.handler.name());
        }
    }
}
