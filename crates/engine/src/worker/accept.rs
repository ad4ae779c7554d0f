//! Listeners of a worker: arming, pausing when full, giving new connections away, draining.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use super::core::{Core, Told, Via};
use super::record::{Connection, Listener, Phase, Reason, Record};
use super::shared::Counters;
use super::sleep::accept_key;
use crate::backend::{Op, Slot, Socket, Time};
use crate::limits;

impl Core {
    pub(crate) fn add_listener(&mut self, socket: Socket, tag: u32) -> io::Result<()> {
        let listener = Listener {
            socket,
            tag,
            accepting: false,
            one: false,
            cancelled: false,
            not_before: Time(0),
            draining: false,
            closed: false,
            told: None,
        };
        let slot = self.records.insert(Record::Listener(listener));
        let slot = slot.map_err(|_| io::Error::from_raw_os_error(libc::ENFILE))?;
        self.listeners.push(slot);
        self.arm_listener(slot);
        Ok(())
    }

    fn arm_listener(&mut self, slot: Slot) {
        let now = self.now();
        let (full, draining, careful) = (self.full, self.draining, self.careful());
        let Some(Record::Listener(listener)) = self.records.get_mut(slot) else {
            return;
        };
        let draining = draining || listener.draining;
        if !listener.accepting && !full && !draining && listener.not_before <= now {
            listener.accepting = true;
            listener.cancelled = false;
            listener.one = careful;
            if careful {
                self.backend.accept_one(slot, listener.socket);
            } else {
                self.backend.accept(slot, listener.socket);
            }
        }
    }

    /// Connections that may still be taken here.
    fn room(&self) -> u32 {
        let own = self.capacity.saturating_sub(self.connections);
        own.min(
            self.shared
                .max_connections
                .saturating_sub(self.shared.connections()),
        )
    }

    /// So near to a limit that one listen queue could exceed it: connections are accepted one by one.
    fn careful(&self) -> bool {
        self.room() <= self.queue_limit
    }

    pub(crate) fn publish_load(&self) {
        self.shared.workers[self.index]
            .load
            .store(self.connections, Ordering::Relaxed);
    }

    /// A connection arrived here: keeps it or gives it away. At a limit accepting pauses; what had been
    /// accepted by then is kept, at most one connection for each other worker above the limit.
    pub(crate) fn on_accepted(&mut self, listener: Slot, socket: Socket) {
        Counters::add(&self.counters().accepted, 1);
        let tag = match self.records.get(listener) {
            Some(Record::Listener(listener)) => listener.tag,
            _ => return self.close_unnamed(socket),
        };
        match self.better_worker() {
            Some(worker) => self.give(socket, worker, tag),
            None => self.keep(socket, tag),
        }
        if self.shared.connections() >= self.shared.max_connections {
            let limit = self.shared.max_connections;
            self.pause_accepting(&format!(
                "the process holds {limit}, its limit; raise --max-connections or, where connections are descriptors, \
                 `ulimit -n`"
            ));
        } else if self.connections >= self.capacity && self.better_worker().is_none() {
            self.pause_accepting(
                "all tables of direct descriptors are full; raise `ulimit -n` or start more workers",
            );
        } else if self.careful() {
            self.slow_down(listener);
        }
    }

    /// Goes over to accepting one by one.
    fn slow_down(&mut self, slot: Slot) {
        if let Some(Record::Listener(listener)) = self.records.get(slot)
            && !listener.one
        {
            self.cancel_listener(slot);
        }
    }

    /// Another worker, if this one is full or has clearly more connections.
    fn better_worker(&self) -> Option<usize> {
        if self.shared.workers.len() == 1 {
            return None;
        }
        let (worker, load) = self.shared.least_loaded(self.now())?;
        let excess = self.connections.saturating_sub(load);
        let full = self.connections >= self.capacity;
        let skewed = excess > limits::SKEW_CONNECTIONS.max(load / 8);
        (worker != self.index && (full || skewed)).then_some(worker)
    }

    fn keep(&mut self, socket: Socket, tag: u32) {
        if let Ok(slot) = self.add_connection(Connection::new(socket, tag, Phase::Open)) {
            self.told.push_back(Told::Opened(slot, Via::Listener(tag)));
        }
    }

    fn give(&mut self, socket: Socket, worker: usize, tag: u32) {
        if let Ok(slot) = self.add_connection(Connection::new(socket, tag, Phase::Giving)) {
            self.giving += 1;
            self.backend.give(slot, socket, worker, tag);
        }
    }

    pub(crate) fn on_given(&mut self, slot: Slot, result: io::Result<()>) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        self.giving -= 1;
        match result {
            Ok(()) => {
                self.records.remove(slot);
                self.connections -= 1;
                self.publish_load();
                Counters::add(&self.counters().given, 1);
            }
            // Full queue or full table over there: it stays here.
            Err(_) => {
                connection.phase = Phase::Open;
                let tag = connection.listener;
                if self.stopping {
                    return self.abort(slot, Reason::Shutdown);
                }
                self.told.push_back(Told::Opened(slot, Via::Listener(tag)));
            }
        }
    }

    pub(crate) fn on_adopted(&mut self, tag: u32, socket: Socket) {
        Counters::add(&self.counters().adopted, 1);
        self.keep(socket, tag);
    }

    /// Accepting has ended: paused, drained, or failed.
    pub(crate) fn on_accept_ended(&mut self, slot: Slot, error: Option<io::Error>) {
        let now = self.now();
        let Some(Record::Listener(listener)) = self.records.get_mut(slot) else {
            return;
        };
        listener.accepting = false;
        if let Some(error) = &error {
            listener.not_before = now.after(Duration::from_millis(limits::ACCEPT_BACKOFF_MS));
            let at = listener.not_before;
            self.look_again(at);
            Counters::add(&self.counters().accept_pauses, 1);
            self.warn_accept(error);
        }
        let Some(Record::Listener(listener)) = self.records.get_mut(slot) else {
            return;
        };
        if listener.draining {
            self.finish_listener(slot);
        } else if error.is_none() {
            self.arm_listener(slot);
        }
    }

    fn warn_accept(&mut self, error: &io::Error) {
        if !self.may_warn() {
            return;
        }
        let advice = match error.raw_os_error() {
            Some(libc::EMFILE) => {
                let (soft, _) = ringmain_sys::limits::open_files();
                format!(
                    "the process holds its {soft} descriptors (RLIMIT_NOFILE): raise `ulimit -n` or, with \
                     io_uring, let connections use direct descriptors"
                )
            }
            Some(libc::ENFILE) => "the descriptor table is full: raise --max-connections or start more \
                                   workers; system-wide, see sysctl fs.file-max"
                .into(),
            _ => "accepting goes on when it passes".into(),
        };
        log::warn!(
            "worker {}: accepting paused with {} connections: {error}; {advice}; waiting clients stay in the \
             listen queue",
            self.index,
            self.connections
        );
    }

    /// A worker at its limit pauses again and again: it says so once in [`limits::WARN_MS`].
    fn may_warn(&mut self) -> bool {
        let now = self.now();
        let due = now >= self.warn_again;
        if due {
            self.warn_again = now.after(Duration::from_millis(limits::WARN_MS));
        }
        due
    }

    fn pause_accepting(&mut self, why: &str) {
        if std::mem::replace(&mut self.full, true) {
            return;
        }
        Counters::add(&self.counters().accept_pauses, 1);
        if self.may_warn() {
            log::warn!(
                "worker {}: accepting paused with {} connections: {why}; waiting clients stay in the listen queue",
                self.index,
                self.connections
            );
        }
        for slot in self.listeners.clone() {
            self.cancel_listener(slot);
        }
        // Other workers' connections may be the ones that end, so look again after a while.
        let at = self.now().after(Duration::from_millis(limits::ACCEPT_BACKOFF_MS));
        self.look_again(at);
    }

    /// Looks at the listeners again at that time or before. One timer serves all reasons, or each pause at a
    /// limit would leave one behind. Without a free timer the next closed connection does.
    fn look_again(&mut self, at: Time) {
        if !self.looks_again {
            self.looks_again = self.wheel.insert(at, accept_key()).is_some();
        }
    }

    fn cancel_listener(&mut self, slot: Slot) {
        let Some(Record::Listener(listener)) = self.records.get_mut(slot) else {
            return;
        };
        if listener.accepting && !listener.cancelled {
            listener.cancelled = true;
            self.backend.cancel(Op::Accept, slot);
        }
    }

    /// A connection has ended or time has passed: accepting may go on.
    pub(crate) fn accept_again(&mut self) {
        if self.draining {
            return;
        }
        if self.full {
            let room =
                self.connections < self.capacity && self.shared.connections() < self.shared.max_connections;
            if !room {
                return;
            }
            self.full = false;
        }
        for index in 0..self.listeners.len() {
            self.arm_listener(self.listeners[index]);
        }
    }

    pub(crate) fn on_accept_timer(&mut self) {
        self.looks_again = false;
        self.accept_again();
        let now = self.now();
        if self.full {
            self.look_again(now.after(Duration::from_millis(limits::ACCEPT_BACKOFF_MS)));
        }
        // One that failed after the timer was set waits for longer.
        let later = self
            .listeners
            .iter()
            .filter_map(|slot| match self.records.get(*slot) {
                Some(Record::Listener(listener)) if listener.not_before > now => Some(listener.not_before),
                _ => None,
            });
        if let Some(at) = later.min() {
            self.look_again(at);
        }
    }

    /// Stops accepting for good: cancel, empty the queue, close.
    pub(crate) fn drain_listeners(&mut self) {
        self.draining = true;
        let now = self.now();
        self.drain.start(now);
        let waiters: Vec<Slot> = self.drain_waiters.slots().collect();
        for waiter in waiters
            .into_iter()
            .filter_map(|place| self.drain_waiters.get(place))
        {
            waiter.wake_by_ref();
        }
        for slot in self.listeners.clone() {
            self.drain_listener(slot);
        }
    }

    fn drain_listener(&mut self, slot: Slot) {
        let Some(Record::Listener(listener)) = self.records.get_mut(slot) else {
            return;
        };
        listener.draining = true;
        if listener.accepting {
            self.cancel_listener(slot);
        } else {
            self.finish_listener(slot);
        }
    }

    /// Closes the listeners of a number, while others go on; `told` is dropped when they are closed.
    pub(crate) fn close_listeners(&mut self, tag: u32, told: &mpsc::Sender<()>) {
        for slot in self.listeners.clone() {
            if let Some(Record::Listener(listener)) = self.records.get_mut(slot)
                && listener.tag == tag
            {
                listener.told = Some(told.clone());
                self.drain_listener(slot);
            }
        }
    }

    fn finish_listener(&mut self, slot: Slot) {
        let Some(Record::Listener(listener)) = self.records.get_mut(slot) else {
            return;
        };
        if std::mem::replace(&mut listener.closed, true) {
            return;
        }
        let (socket, tag) = (listener.socket, listener.tag);
        // Also where a successor serves the queue now: the kernel wakes one waiter for each connection, and the one that
        // it woke here may have been cancelled since. Nobody else would hear of that connection.
        while self.connections < self.capacity {
            match self.backend.accept_now(socket) {
                Ok(Some(connection)) => {
                    Counters::add(&self.counters().accepted, 1);
                    self.keep(connection, tag);
                }
                Ok(None) => break,
                Err(error) => {
                    log::warn!(
                        "worker {}: connections still queued at a listener that closes are lost: {error}",
                        self.index
                    );
                    break;
                }
            }
        }
        self.backend.close(slot, socket);
    }
}
