//! A worker: one thread, one back-end, its connections, timers, tasks and mail.
//!
//! Owns the loop and the delivery of events to the handler. Knows nothing of protocols.
//! A turn: wait → completions → timers → mail → tasks → state of the process → re-arm → flush.

pub(crate) mod accept;
pub(crate) mod closing;
pub(crate) mod connecting;
pub(crate) mod core;
pub(crate) mod cx;
pub(crate) mod datagrams;
pub(crate) mod deadline;
pub(crate) mod deliver;
pub(crate) mod drain;
pub(crate) mod handler;
pub(crate) mod holding;
pub(crate) mod layered;
pub(crate) mod output;
pub(crate) mod pool;
pub(crate) mod reading;
pub(crate) mod record;
pub(crate) mod resets;
pub(crate) mod shared;
pub(crate) mod sleep;
pub(crate) mod steps;
pub(crate) mod tasks;

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::core::Core;
use self::cx::{Cx, Inner};
use self::drain::DrainProgress;
use self::handler::Handler;
use self::holding::Holding;
use self::record::{Phase, Reason, Record};
use self::shared::{Counters, Opened, Order, Shared, State};
use self::sleep::Fired;
use self::tasks::Tasks;
use crate::backend::{Backend, Completion, Slot, Socket, Time};
use crate::limits;
use crate::mail::{Mailbox, PostError};
use crate::slab::Beside;
use crate::watchdog::StepName;

/// What a worker's handler is made from.
pub struct Start<M> {
    /// The worker's handle.
    pub cx: Cx,
    /// The worker's way to send to the others.
    pub post: Post<M>,
}

/// Sends mail to other workers.
pub struct Post<M> {
    mailbox: Rc<RefCell<Mailbox<M>>>,
    cx: Cx,
}

impl<M> Clone for Post<M> {
    fn clone(&self) -> Post<M> {
        Post {
            mailbox: Rc::clone(&self.mailbox),
            cx: self.cx.clone(),
        }
    }
}

impl<M: Send> Post<M> {
    /// Sends `mail` to worker `to`, this one included.
    ///
    /// # Errors
    /// The mail itself, when the queue to that worker is full or it has ended.
    pub fn send(&self, to: usize, mail: M) -> Result<(), PostError<M>> {
        let ring = self.mailbox.borrow_mut().post(to, mail)?;
        if ring {
            self.cx.core().backend.wake_peer(to);
        }
        Ok(())
    }
}

/// One worker. Made on its own thread.
pub struct Worker<H: Handler> {
    pub(crate) cx: Cx,
    pub(crate) handler: H,
    pub(crate) states: Beside<H::Conn>,
    mailbox: Rc<RefCell<Mailbox<H::Mail>>>,
    shared: Arc<Shared>,
    index: usize,
    step: StepName,
    fired: Vec<u64>,
    state: State,
    /// The process's state when this worker last followed it.
    seen: State,
    grace: Duration,
    stop_at: Option<Time>,
    /// Gives no connection away any more, and has said so.
    left: bool,
    /// Before this turn's completions nobody could give this worker a connection any more.
    alone: bool,
    /// Open or opened in this turn of a shutdown.
    newcomers: Vec<Slot>,
    /// The same of some turns before: what they had sent by then is handled, now they are told.
    settled: Vec<Slot>,
    /// Turns until those are told.
    settle_turns: u32,
    more_completions: bool,
    more_mail: bool,
}

/// What a worker needs besides its handler.
pub(crate) struct Parts<M> {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) mailbox: Mailbox<M>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    /// Connections that this worker may hold.
    pub(crate) capacity: u32,
    /// Connections that the listen queues may hold together.
    pub(crate) queue_limit: u32,
    pub(crate) grace: Duration,
    /// The time over which a shutdown spreads the ends of connections.
    pub(crate) drain_spread: Duration,
    /// How long a closed connection may take to hand over its last bytes.
    pub(crate) flush: Duration,
    /// Bytes that all workers hold for slow readers.
    pub(crate) held_bytes: usize,
}

impl<H: Handler> Worker<H> {
    pub(crate) fn new(parts: Parts<H::Mail>, make: impl FnOnce(Start<H::Mail>) -> H) -> Worker<H> {
        let Parts {
            backend,
            mailbox,
            shared,
            index,
            capacity,
            queue_limit,
            grace,
            drain_spread,
            flush,
            held_bytes,
        } = parts;
        let own = &shared.workers[index];
        own.capacity.store(capacity, Ordering::Relaxed);
        // The first installed waker stays; a worker is made once.
        let _ = own.doorbell.install(backend.waker());
        let tasks = Tasks::new(Arc::clone(&own.doorbell));
        let mut core = Core::new(backend, Arc::clone(&shared), index);
        core.capacity = capacity.min(limits::CONNECTIONS_PER_WORKER - 1);
        core.queue_limit = queue_limit;
        core.flush = flush;
        core.drain = DrainProgress::new(grace, drain_spread);
        core.holding = Holding::new(held_bytes / shared.workers.len());
        let cx = Cx(Rc::new(Inner {
            core: RefCell::new(core),
            tasks,
        }));
        let mailbox = Rc::new(RefCell::new(mailbox));
        let post = Post {
            mailbox: Rc::clone(&mailbox),
            cx: cx.clone(),
        };
        let handler = make(Start { cx: cx.clone(), post });
        let step = shared.names.intern(handler.name());
        Worker {
            cx,
            handler,
            states: Beside::new(),
            mailbox,
            shared,
            index,
            step,
            fired: Vec::new(),
            state: State::Running,
            seen: State::Running,
            grace,
            stop_at: None,
            left: false,
            alone: false,
            newcomers: Vec::new(),
            settled: Vec::new(),
            settle_turns: 0,
            more_completions: false,
            more_mail: false,
        }
    }

    /// Takes over a listening descriptor; `tag` is the listener's number, alike on all workers.
    pub(crate) fn adopt_listener(&mut self, fd: OwnedFd, tag: u32) -> io::Result<()> {
        let socket = self.cx.core().backend.adopt_listener(fd)?;
        self.listen(socket, tag)
    }

    /// Takes over a listener; `tag` is its number, alike on all workers.
    pub(crate) fn listen(&mut self, socket: Socket, tag: u32) -> io::Result<()> {
        self.cx.core().add_listener(socket, tag)
    }

    /// Runs until the process has shut down and all is returned.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_done() {
            self.turn()?;
        }
        Ok(())
    }

    /// Whether the shutdown is complete: every slot is free.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Stopping && self.cx.core().holds_nothing() && self.cx.0.tasks.count() == 0
    }

    /// One turn of the loop; waits if there is nothing to do.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        if self.begin_wait()? {
            self.shared.workers[self.index].doorbell.cancel_sleep();
        }
        self.work();
        Ok(())
    }

    /// What a turn does after its wait.
    pub(crate) fn work(&mut self) {
        self.shared.beats[self.index].enter(self.cx.now(), self.step);
        self.cx.core().begin_steps();
        let ending = std::mem::take(&mut self.cx.core().ending);
        let breaking = std::mem::take(&mut self.cx.core().breaking);
        self.costly_steps();
        self.completions();
        for (slot, reason) in breaking {
            self.cx.core().fail(slot, reason);
        }
        for slot in ending {
            self.cx.core().tell_eof(slot);
        }
        self.offer_yielded();
        self.timers();
        self.cx.core().check_resets();
        self.mail();
        self.orders();
        self.tasks();
        self.deliver_told();
        self.follow_state();
        self.deliver_told();
        let mut core = self.cx.core();
        core.rearm_parked();
        core.rearm_sated();
        core.flush_dirty();
        core.plan_reclaim();
        core.reclaim();
        drop(core);
        self.deliver_told();
        self.shared.beats[self.index].leave();
    }

    /// Waits. True if the doorbell was told so: it must hear of the end. In a simulation the wait
    /// only begins here.
    pub(crate) fn begin_wait(&mut self) -> io::Result<bool> {
        let doorbell = &self.shared.workers[self.index].doorbell;
        let timeout = self.timeout();
        let idle = timeout != Some(Duration::ZERO);
        if idle {
            doorbell.prepare_sleep();
        }
        let alone = self.shared.givers() == 0;
        let news = self.cx.0.tasks.pending()
            || !self.mailbox.borrow().is_empty()
            || self.shared.state() != self.seen
            || self.shared.workers[self.index].is_ordered()
            || alone != self.alone;
        self.alone = alone;
        let timeout = if idle && news {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        self.cx.core().backend.wait(timeout)?;
        Ok(idle)
    }

    fn timeout(&self) -> Option<Duration> {
        let core = self.cx.core();
        let busy = self.more_completions
            || self.more_mail
            || self.cx.0.tasks.pending()
            || !(core.told.is_empty()
                && core.dirty.is_empty()
                && core.sated.is_empty()
                && core.yielded.is_empty())
            || !(core.ending.is_empty() && core.breaking.is_empty() && core.costly.is_empty())
            || !(self.newcomers.is_empty() && self.settled.is_empty())
            || (self.state == State::Stopping && core.holds_nothing());
        if busy {
            return Some(Duration::ZERO);
        }
        let now = core.now();
        let timer = core.wheel.next_deadline(now);
        let reclaim = Some(core.holding.reclaim_at).filter(|at| *at != Time::NEVER);
        let check = Some(core.resets.check_at).filter(|at| *at != Time::NEVER);
        let next = timer.into_iter().chain(self.stop_at).chain(reclaim);
        let next = next.chain(check).min();
        if core.alarm == Time::NEVER {
            return Some(next?.since(now));
        }
        // Exact: the time that this turn has taken counts.
        let next = next.map_or(core.alarm, |next| next.min(core.alarm));
        Some(next.since(core.backend.clock()))
    }

    fn completions(&mut self) {
        if !self.more_completions {
            let core = &mut *self.cx.core();
            let lag = core.backend.lag();
            core.batch_at = core.now().before(lag);
        }
        self.more_completions = true;
        let mut count = 0;
        while count < limits::COMPLETIONS_PER_TURN {
            let next = {
                let core = &mut *self.cx.core();
                if !core.dirty.is_empty() {
                    core.end_step();
                }
                core.backend.next()
            };
            let Some(completion) = next else {
                self.more_completions = false;
                break;
            };
            count += 1;
            self.handle(completion);
            self.deliver_told();
        }
        let core = &mut *self.cx.core();
        core.turn = core.turn.wrapping_add(1);
        let counters = &self.shared.workers[self.index].counters;
        Counters::add(&counters.turns, 1);
        Counters::add(&counters.completions, count as u64);
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Received { slot, data, more } => self.received(slot, data, more),
            completion => self.cx.core().handle(completion),
        }
    }

    fn timers(&mut self) {
        let core = &mut *self.cx.core();
        let now = core.now();
        if core.alarm <= now {
            core.told.push_back(core::Told::Alarm);
        }
        if core.wheel.is_empty() {
            return;
        }
        core.wheel.advance(now, &mut self.fired);
        for key in self.fired.drain(..) {
            match sleep::fired(key) {
                Fired::Deadline(slot) => core.on_deadline(slot),
                Fired::Sleep(slot) => core.sleepers.fire(slot),
                Fired::Accept => core.on_accept_timer(),
                Fired::Handler(slot) => {
                    if let Some(sleeper) = core.sleepers.remove(&mut core.wheel, slot) {
                        core.told.push_back(core::Told::Timer(sleeper.handler_key));
                    }
                }
            }
        }
    }

    /// Opens and closes listeners.
    fn orders(&mut self) {
        if !self.shared.workers[self.index].is_ordered() {
            return;
        }
        for order in self.shared.workers[self.index].take_orders() {
            match order {
                Order::Open {
                    tag,
                    listener,
                    backlog,
                    told,
                } => {
                    let mut core = self.cx.core();
                    core.queue_limit = core.queue_limit.saturating_add(backlog);
                    drop(core);
                    // Who asked may have stopped waiting: then it is closed again by the next order.
                    let _ = told.send(self.open_listener(listener, tag));
                }
                Order::Close { tag, backlog, told } => {
                    let mut core = self.cx.core();
                    core.queue_limit = core.queue_limit.saturating_sub(backlog);
                    core.close_listeners(tag, &told);
                }
            }
        }
    }

    fn open_listener(&mut self, listener: Opened, tag: u32) -> io::Result<()> {
        if self.state >= State::Draining {
            return Err(io::Error::other("the process is shutting down"));
        }
        match listener {
            Opened::Descriptor(fd) => self.adopt_listener(fd, tag),
            #[cfg(feature = "testing")]
            Opened::Socket(socket) => self.listen(socket, tag),
        }
    }

    fn tasks(&mut self) {
        let tasks = &self.cx.0.tasks;
        tasks.run(|| self.cx.core().end_step());
        Counters::add(
            &self.shared.workers[self.index].counters.panics,
            tasks.take_panics(),
        );
    }

    fn mail(&mut self) {
        self.more_mail = false;
        for _ in 0..limits::MAIL_PER_TURN {
            let next = self.mailbox.borrow_mut().pop();
            let Some(mail) = next else { return };
            self.deliver_mail(mail);
            self.end_step();
        }
        self.more_mail = true;
    }

    /// Follows the process through draining and stopping.
    fn follow_state(&mut self) {
        let target = self.shared.state();
        self.seen = target;
        if target == State::DrainDelay && self.state == State::Running {
            self.state = State::DrainDelay;
            self.cx.core().drain.is_pending = true;
            self.announce_drain();
        }
        if target > State::DrainDelay && self.state < State::Draining {
            self.state = State::Draining;
            self.stop_at = Some(self.cx.now().after(self.grace));
            self.shared.kept().clear();
            self.newcomers.extend(self.cx.core().records.slots());
            self.cx.core().drain_listeners();
            self.deliver_told();
        }
        match self.state {
            State::Running | State::DrainDelay => {}
            State::Draining => {
                self.drain_newcomers();
                let late = self.stop_at.is_some_and(|at| self.cx.now() >= at);
                if late || self.is_quiet() || target == State::Stopping {
                    self.stop();
                }
            }
            // A handler may have spawned when it was told of an end.
            State::Stopping => self.cx.0.tasks.clear(),
        }
    }

    /// Connections are told of the shutdown some turns later: until then what they had sent before is handled.
    fn drain_newcomers(&mut self) {
        if self.settle_turns > 0 {
            self.settle_turns -= 1;
            return;
        }
        for slot in std::mem::take(&mut self.settled) {
            self.drain_one(slot);
        }
        self.settled = std::mem::take(&mut self.newcomers);
        if !self.settled.is_empty() {
            self.settle_turns = limits::SETTLE_TURNS;
        }
    }

    /// Whether no connection is here and none can come, not even from another worker, and no task holds the shutdown.
    fn is_quiet(&mut self) -> bool {
        let core = self.cx.core();
        let (closed, empty) = (
            core.listeners.is_empty() && core.giving == 0,
            core.connections == 0 && core.drain_holds == 0,
        );
        drop(core);
        if closed && !self.left {
            self.left = true;
            self.shared.gives_no_more();
        }
        closed && empty && self.alone
    }

    /// Ends everything that is left; slots are freed as the kernel lets go of them.
    fn stop(&mut self) {
        self.state = State::Stopping;
        self.stop_at = None;
        self.newcomers.clear();
        self.settled.clear();
        self.cx.0.tasks.clear();
        let mut core = self.cx.core();
        core.stopping = true;
        let slots: Vec<_> = core.records.slots().collect();
        for slot in slots {
            match core.records.get_mut(slot) {
                Some(Record::Connection(_)) => core.abort(slot, Reason::Shutdown),
                Some(Record::Datagrams(_)) => core.close_datagrams(slot),
                Some(Record::Listener(_)) | None => {}
            }
        }
    }
}

impl Core {
    /// Whether every socket is closed. Records of closed ones may be left to streams that the handler holds.
    fn holds_nothing(&self) -> bool {
        let done = |slot| match self.records.get(slot) {
            Some(Record::Connection(connection)) => connection.phase == Phase::Released,
            _ => false,
        };
        self.unnamed_closes == 0 && self.records.slots().all(done)
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Received { .. } => unreachable!("the worker handles these, it has the handler"),
            Completion::RecvEnded { slot, end } => self.on_recv_ended(slot, end),
            Completion::Sent { slot, result, held } => self.on_sent(slot, result, held),
            Completion::Released { slot } => self.on_released(slot),
            Completion::Accepted { slot, socket } => self.on_accepted(slot, socket),
            Completion::AcceptEnded { slot, error } => self.on_accept_ended(slot, error),
            Completion::Adopted { tag, socket } => self.on_adopted(tag, socket),
            Completion::Given { slot, result } => self.on_given(slot, result),
            Completion::Connected { slot, result } => self.on_connected(slot, result),
            Completion::Closed { slot } => self.on_closed(slot),
            Completion::Datagram {
                slot,
                data,
                from,
                info,
                more,
            } => self.on_datagram(slot, data, from, info, more),
            Completion::DatagramsEnded { slot, end } => self.on_datagrams_ended(slot, end),
            Completion::DatagramSent { slot, result } => self.on_datagram_sent(slot, result),
        }
    }
}
