//! One worker's part: its connections, the channels at home there, and what goes between the two and to other workers.
//!
//! All that happens in a turn of the worker's loop (commands, mail) wakes one task, which then carries everything on: what a
//! hundred clients have asked for goes in one visit to each queue.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_hub::mail::WorkerId;
use ringmain_hub::protocol::{Disconnect, Format, Unsubscribed};
use ringmain_hub::shard::ChannelShard;
use ringmain_hub::subscribers::{ConnId, SubscriberEvent as Event, SubscriberTable};

use crate::admission::Admission;
use crate::asking::Crowd;
use crate::due::Due;
use crate::gathering::Asking;
use crate::handshakes::Doorway;
use crate::interruptions::Applying;
use crate::limits;
use crate::mesh::Ends;
use crate::metrics::{Counts, Report};
use crate::names::SessionName;
use crate::options::Checked;
use crate::orders::Order;
use crate::outlet::Outlet;
use crate::publisher::Places;
use crate::rounds::Rounds;
use crate::seat::Seat;
use crate::session::Session;
use crate::settings::Settings;
use crate::survey::Surveys;

/// A worker's desk; clones are the same.
#[derive(Clone)]
pub(crate) struct Desk(Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) cx: Cx,
    pub(crate) settings: Arc<Settings>,
    /// A predecessor's state is waited for.
    pub(crate) holds: Cell<bool>,
    /// The channels here were written for a successor.
    pub(crate) is_saved: Cell<bool>,
    since: Time,
    pub(crate) counts: Arc<Counts>,
    pub(crate) doorway: Doorway,
    pub(crate) asking: RefCell<Asking>,
    pub(crate) surveys: RefCell<Surveys>,
    pub(crate) applying: RefCell<Applying>,
    /// Commands of sources that are not sent to the other workers yet: at most one for each partition, which waits for its receipt.
    pub(crate) commands: RefCell<VecDeque<Order>>,
    /// Of the settings that were looked at last.
    seen: Cell<u64>,
    options: RefCell<Rc<Checked>>,
    /// What clients call this process.
    pub(crate) node: Arc<str>,
    /// Those of all workers.
    clients: Arc<AtomicUsize>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) crowd: Crowd,
    pub(crate) local: RefCell<SubscriberTable>,
    pub(crate) home: RefCell<ChannelShard>,
    pub(crate) places: RefCell<Places>,
    pub(crate) ends: RefCell<Ends>,
    /// By [`ConnId::slot`].
    seats: RefCell<Vec<Option<Rc<Seat>>>>,
    /// Those whose clients speak by requests of their own, by the secret part of their names.
    sessions: RefCell<BTreeMap<u128, ConnId>>,
    /// The task's.
    bell: RefCell<Option<Waker>>,
    /// The task's that sends what channels hold, and what it waits for: the first of it.
    pub(crate) alarm: RefCell<Option<Waker>>,
    pub(crate) next_release: Cell<Option<Duration>>,
    woken: Cell<bool>,
    due: RefCell<Due>,
    /// Connections of those whom we know, by their slots.
    users: RefCell<BTreeMap<Arc<str>, Vec<usize>>>,
    /// Connections by the second in which they are pinged, and those that wait to say who they are by that in which they must.
    rounds: RefCell<Rounds>,
}

/// What a client says by a request beside its session.
#[derive(Debug)]
pub(crate) struct Emulated {
    pub(crate) secret: u128,
    pub(crate) format: Format,
    pub(crate) data: Bytes,
}

impl Desk {
    /// Begins with its worker; `None`: there is one of this worker's number already.
    pub(crate) fn start(cx: &Cx, settings: &Arc<Settings>, (seen, options): (u64, Checked)) -> Option<Desk> {
        let (worker, workers) = (cx.worker(), cx.workers());
        let ends = settings.mesh.take(cx)?;
        let count = u16::try_from(workers).unwrap_or(u16::MAX);
        let rounds = Rounds::new(&options);
        let desk = Desk(Rc::new(Inner {
            cx: cx.clone(),
            local: RefCell::new(SubscriberTable::new(count, options.limits)),
            home: RefCell::new(ChannelShard::new(count, options.channels, cx.random())),
            places: RefCell::default(),
            settings: Arc::clone(settings),
            holds: Cell::new(settings.hand_over.has_incoming()),
            is_saved: Cell::new(false),
            since: ends.since,
            counts: settings.metrics.worker(),
            doorway: Doorway::default(),
            asking: RefCell::default(),
            surveys: RefCell::default(),
            applying: RefCell::default(),
            commands: RefCell::default(),
            seen: Cell::new(seen),
            options: RefCell::new(Rc::new(options)),
            node: Arc::clone(&ends.node),
            clients: Arc::clone(&ends.clients),
            admission: Arc::clone(&ends.admission),
            crowd: Crowd::default(),
            ends: RefCell::new(ends),
            seats: RefCell::default(),
            sessions: RefCell::default(),
            bell: RefCell::default(),
            alarm: RefCell::default(),
            next_release: Cell::default(),
            woken: Cell::new(false),
            due: RefCell::default(),
            users: RefCell::default(),
            rounds: RefCell::new(rounds),
        }));
        let expected = settings
            .expected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        desk.home.borrow_mut().expect_logs(expected);
        let (carrier, clock, pacer, farewell) = (desk.clone(), desk.clone(), desk.clone(), desk.clone());
        for spawned in [
            cx.spawn(async move { farewell.send_away().await }),
            cx.spawn(async move { carrier.carry().await }),
            cx.spawn(async move { clock.tick().await }),
            cx.spawn(async move { pacer.pace().await }),
        ] {
            if spawned.is_err() {
                log::error!("push: worker {worker} has no room for its tasks, so nothing is pushed there");
            }
        }
        Some(desk)
    }

    /// The settings that hold now, for this worker alone.
    pub(crate) fn options(&self) -> Rc<Checked> {
        if let Some((seen, options)) = self.0.settings.newer(self.0.seen.get()) {
            self.0.seen.set(seen);
            self.0.local.borrow_mut().set_limits(options.limits);
            self.0.home.borrow_mut().set_channel_limit(options.channels);
            self.0.rounds.borrow_mut().follow(&options);
            *self.0.options.borrow_mut() = Rc::new(options);
        }
        Rc::clone(&self.0.options.borrow())
    }

    /// There is something to carry on.
    pub(crate) fn ring(&self) {
        if !self.0.woken.replace(true)
            && let Some(bell) = &*self.0.bell.borrow()
        {
            bell.wake_by_ref();
        }
    }

    /// A connection is known from now on.
    pub(crate) fn seat(&self, id: ConnId, seat: Rc<Seat>) {
        let mut seats = self.0.seats.borrow_mut();
        if seats.len() <= id.slot() {
            seats.resize_with(id.slot() + 1, || None);
        }
        let identity = seat.identity();
        if !identity.user().is_empty() {
            let mut users = self.0.users.borrow_mut();
            users.entry(identity.user().into()).or_default().push(id.slot());
        }
        seat.pending.end_handshake();
        seats[id.slot()] = Some(seat);
        self.0.counts.connected();
        self.0.clients.fetch_add(1, Ordering::Relaxed);
        self.0.rounds.borrow_mut().join(id);
    }

    /// Connections that are known, of all workers.
    pub(crate) fn clients(&self) -> usize {
        self.0.clients.load(Ordering::Relaxed)
    }

    /// What has been counted so far, of all workers.
    pub(crate) fn report(&self) -> Report {
        self.0.settings.report()
    }

    /// How long there have been workers.
    pub(crate) fn uptime(&self) -> Duration {
        self.0.cx.now().since(self.0.since)
    }

    /// Somebody is there who has to say who it is.
    pub(crate) fn stranger(&self, seat: Rc<Seat>) {
        let mut rounds = self.0.rounds.borrow_mut();
        let within = limits::CONNECT_WITHIN.as_secs() as usize;
        let at = (rounds.second + within) % rounds.strangers.len();
        rounds.strangers[at].push(seat);
    }

    /// A connection is over.
    pub(crate) fn leave(&self, id: ConnId) {
        self.0.local.borrow_mut().close(id);
        let seat = self
            .0
            .seats
            .borrow_mut()
            .get_mut(id.slot())
            .and_then(Option::take);
        if let Some(seat) = seat {
            let rights = &mut *seat.rights.borrow_mut();
            self.due(id, None, rights.set_ends(None), None);
            for grant in rights.take_all() {
                self.due(id, Some(&grant.channel), grant.ends, None);
            }
            self.forget_user(seat.identity().user(), id);
            self.0.counts.over();
            self.0.clients.fetch_sub(1, Ordering::Relaxed);
            if let Outlet::Stream(stream) = &*seat.outlet.borrow()
                && let Some(secret) = stream.session.get()
            {
                self.0.sessions.borrow_mut().remove(&secret);
            }
        }
        self.ring();
    }

    fn forget_user(&self, user: &str, id: ConnId) {
        let mut users = self.0.users.borrow_mut();
        if let Some(slots) = users.get_mut(user) {
            slots.retain(|slot| *slot != id.slot());
            if slots.is_empty() {
                users.remove(user);
            }
            self.0.admission.release(user);
        }
    }

    /// The connections of a user that are here.
    pub(crate) fn of_user(&self, user: &str) -> Vec<Rc<Seat>> {
        let (users, seats) = (self.0.users.borrow(), self.0.seats.borrow());
        let slots = users.get(user).map_or(&[][..], Vec::as_slice);
        slots
            .iter()
            .filter_map(|slot| seats.get(*slot)?.clone())
            .collect()
    }

    /// Returns all connections of this worker: the connected ones, and those that have not sent `connect` yet.
    pub(crate) fn all_seats(&self) -> Vec<Rc<Seat>> {
        let strangers = &self.0.rounds.borrow().strangers;
        let seats = self.0.seats.borrow();
        let strangers = strangers.iter().flatten().filter(|seat| seat.id().is_none());
        strangers.chain(seats.iter().flatten()).map(Rc::clone).collect()
    }

    /// Tells the other workers. `false`: one of them has no room for it, and nobody was told.
    pub(crate) fn send_order(&self, order: &Order) -> bool {
        let own = self.0.cx.worker();
        self.0.ends.borrow_mut().order(own, order)
    }

    /// A connection, or its subscription to a channel, ends at another time than before: in seconds since 1970.
    pub(crate) fn due(&self, id: ConnId, channel: Option<&Arc<str>>, before: Option<u64>, now: Option<u64>) {
        if before != now {
            let ending = (id.slot(), channel.cloned());
            self.0.due.borrow_mut().moves(ending, before, now);
        }
    }

    /// Runs commands of sources here, and has the other workers run them. Returns whether some wait for room.
    fn run_commands(&self, ends: &mut Ends) -> bool {
        loop {
            let next = self.0.commands.borrow_mut().pop_front();
            let Some(order) = next else { return false };
            if !ends.order(self.0.cx.worker(), &order) {
                self.0.commands.borrow_mut().push_front(order);
                return true;
            }
            self.follow(&order);
        }
    }

    /// Ends what nobody has shown another token for.
    fn end_what_is_over(&self) {
        let now = self.0.cx.wall().as_secs();
        loop {
            let ending = self.0.due.borrow_mut().next(now);
            let Some((slot, channel)) = ending else { break };
            let seat = self.0.seats.borrow().get(slot).cloned().flatten();
            let Some((seat, id)) = seat.and_then(|seat| Some((Rc::clone(&seat), seat.id()?))) else {
                continue;
            };
            let (desk, mut rights) = (self.clone(), seat.rights.borrow_mut());
            let seat = Rc::clone(&seat);
            match channel {
                None => {
                    rights.set_ends(None);
                    drop(rights);
                    let session = Session { desk, seat };
                    if !session.ask_refresh(id) {
                        session.seat.disconnect(Disconnect::EXPIRED);
                    }
                }
                Some(channel) => {
                    if let Some(grant) = rights.grant_mut(&channel) {
                        grant.ends = None;
                    }
                    drop(rights);
                    if !(Session { desk, seat }).ask_sub_refresh(id, &channel) {
                        let mut local = self.0.local.borrow_mut();
                        local.unsubscribe(id, &channel, Unsubscribed::EXPIRED);
                    }
                }
            }
        }
        self.ring();
    }

    /// Names a connection, so that what its client says in requests beside it finds it.
    pub(crate) fn name(&self, id: ConnId) -> SessionName {
        let (high, low) = (self.0.cx.random(), self.0.cx.random());
        let secret = (u128::from(high) << 64) | u128::from(low);
        self.0.sessions.borrow_mut().insert(secret, id);
        SessionName {
            worker: self.0.cx.worker(),
            secret,
        }
    }

    /// Hands what a client says to the worker that has its session. `false`: as much as may is on its way there.
    pub(crate) fn emulate(&self, worker: usize, emulated: Emulated) -> bool {
        if worker == self.0.cx.worker() {
            self.emulated(emulated);
            return true;
        }
        self.0.ends.borrow_mut().emulate(worker, emulated)
    }

    /// For a session here, if it is still.
    fn emulated(&self, emulated: Emulated) {
        let id = self.0.sessions.borrow().get(&emulated.secret).copied();
        let Some(seat) = id.and_then(|id| self.find(id)) else {
            return;
        };
        if emulated.format != seat.format {
            return seat.disconnect(Disconnect::BAD_REQUEST);
        }
        let desk = self.clone();
        Session { desk, seat }.receive(emulated.data);
    }

    pub(crate) fn find(&self, id: ConnId) -> Option<Rc<Seat>> {
        let seats = self.0.seats.borrow();
        let seat = seats.get(id.slot())?.as_ref()?;
        (seat.id() == Some(id)).then(|| Rc::clone(seat))
    }

    async fn carry(&self) {
        poll_fn::<(), _>(|context| {
            if self.0.bell.borrow().is_none() {
                *self.0.bell.borrow_mut() = Some(context.waker().clone());
                // It is this task's for as long as the worker lives.
                let (ends, own) = (self.0.ends.borrow(), self.0.cx.worker());
                let _ = ends.bells[own].set(context.waker().clone());
                ends.slots[own].begin(context.waker());
            }
            self.0.woken.set(false);
            if self.pass() {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Carries on what is there: what comes in first, since what goes out follows from it. Whether there is more.
    fn pass(&self) -> bool {
        self.take_surveys();
        let ends = &mut *self.0.ends.borrow_mut();
        let mut rings = std::mem::take(&mut ends.rings);
        rings.fill(false);
        self.follow_hand_over(&ends.slots);
        let mut more = self.take_arrived(&ends.slots);
        more |= self.run_commands(ends);
        for queue in &mut ends.as_sessions {
            // Whoever adds to it meanwhile rings again.
            for _ in 0..limits::EMULATED {
                let Ok(emulated) = queue.pop() else { break };
                self.emulated(emulated);
            }
        }
        for queue in &mut ends.as_orders {
            for _ in 0..limits::ORDERS {
                let Ok(order) = queue.pop() else { break };
                self.follow(&order);
            }
        }
        for (other, rings) in rings.iter_mut().enumerate() {
            more |= self.take_in(other, ends, rings);
        }
        let slot = &ends.slots[self.0.cx.worker()];
        more |= self.apply_interruptions(&slot.interruptions, slot.is_empty());
        for (other, rings) in rings.iter_mut().enumerate() {
            more |= self.give_out(other, ends, rings);
        }
        more |= self.give_states();
        self.tell();
        self.count();
        let (own, local) = (self.0.cx.worker(), self.0.local.borrow());
        for (other, &rings) in rings.iter().enumerate() {
            let has_room = other == own || !ends.to_homes[other].is_full();
            let is_held = other == own && self.is_holding();
            more |= has_room && !is_held && local.has_mail(WorkerId(other as u16));
            if rings && let Some(bell) = ends.bells[other].get() {
                bell.wake_by_ref();
            }
        }
        ends.rings = rings;
        more
    }

    /// What connections here want of a worker's channels, and what that worker wants of the channels here.
    fn take_in(&self, other: usize, ends: &mut Ends, rings: &mut bool) -> bool {
        let (id, now) = (WorkerId(other as u16), self.0.cx.now().since(Time(0)));
        let (local, home) = (&mut *self.0.local.borrow_mut(), &mut *self.0.home.borrow_mut());
        let holds = self.is_holding();
        if other == self.0.cx.worker() {
            while !holds && let Some(message) = local.poll_request(id) {
                home.handle(id, message, now);
            }
            return false;
        }
        while local.has_mail(id) && !ends.to_homes[other].is_full() {
            if let Some(message) = local.poll_request(id) {
                *rings |= ends.to_homes[other].push(message).is_ok();
            }
        }
        let (as_home, as_worker) = (&mut ends.as_home[other], &mut ends.as_worker[other]);
        // Whoever found no room is told that there is some.
        *rings |= as_home.slots() >= limits::QUEUE || as_worker.slots() >= limits::QUEUE;
        for _ in 0..if holds { 0 } else { limits::TAKEN_A_TURN } {
            let Ok(message) = as_home.pop() else { break };
            home.handle(id, message, now);
        }
        for _ in 0..limits::TAKEN_A_TURN {
            let Ok(message) = as_worker.pop() else { break };
            local.handle(message);
        }
        (!holds && !as_home.is_empty()) || !as_worker.is_empty()
    }

    /// What the channels here have for a worker.
    fn give_out(&self, other: usize, ends: &mut Ends, rings: &mut bool) -> bool {
        let (id, now) = (WorkerId(other as u16), self.0.cx.now().since(Time(0)));
        let home = &mut *self.0.home.borrow_mut();
        if other == self.0.cx.worker() {
            let local = &mut *self.0.local.borrow_mut();
            for _ in 0..limits::TAKEN_A_TURN {
                let Some(message) = home.poll(id, now) else { break };
                local.handle(message);
            }
            return home.has_mail(id);
        }
        while home.has_mail(id) && !ends.to_workers[other].is_full() {
            let Some(message) = home.poll(id, now) else { break };
            *rings |= ends.to_workers[other].push(message).is_ok();
        }
        false
    }

    /// Has it known how much there is, and was.
    fn count(&self) {
        let (local, home) = (self.0.local.borrow(), self.0.home.borrow());
        self.0.counts.follow(local.counts(), home.counts(), home.len());
    }

    /// Tells connections and programs what has happened, and sends what waits for connections.
    fn tell(&self) {
        self.tell_programs();
        loop {
            let event = self.0.local.borrow_mut().poll_event();
            let Some(event) = event else { break };
            let id = match &event {
                Event::Subscribed { conn, .. }
                | Event::Rejected { conn, .. }
                | Event::Unsubscribed { conn, .. }
                | Event::Published { conn, .. }
                | Event::QueryResult { conn, .. }
                | Event::Disconnected { conn, .. } => *conn,
            };
            if let Some(seat) = self.find(id) {
                seat.told(self, event);
                let held = seat.held();
                if !held.is_empty() {
                    let desk = self.clone();
                    Session { desk, seat }.carry_out(held.into_iter().map(Ok));
                }
            }
        }
        self.send_what_waits();
    }

    async fn tick(&self) {
        const SECOND: Duration = Duration::from_secs(1);
        let mut next = self.0.cx.now();
        loop {
            next = next.after(SECOND);
            self.0.cx.sleep(next.since(self.0.cx.now())).await;
            let (at, pinged) = self.second();
            self.end_what_is_over();
            let now = self.0.cx.now().since(Time(0));
            self.0.home.borrow_mut().sweep(now);
            self.0.places.borrow_mut().tidy();
            self.ping(at, pinged).await;
        }
    }

    /// Looks at those who should have answered; returns whom to ping now, and where they are put back.
    fn second(&self) -> (usize, Vec<ConnId>) {
        let (waited, due, strangers) = {
            let rounds = &mut *self.0.rounds.borrow_mut();
            rounds.second += 1;
            let waited = rounds.waited();
            let strangers = rounds.second % rounds.strangers.len();
            (
                waited,
                std::mem::take(&mut rounds.pinged[waited]),
                std::mem::take(&mut rounds.strangers[strangers]),
            )
        };
        for &id in &due {
            if let Some(seat) = self.find(id) {
                seat.must_have_answered();
            }
        }
        for stranger in strangers {
            stranger.must_be_known();
        }
        let rounds = &mut *self.0.rounds.borrow_mut();
        rounds.pinged[waited] = due;
        let at = rounds.second % rounds.pinged.len();
        (at, std::mem::take(&mut rounds.pinged[at]))
    }

    /// Pings them, spread over less than a second: what is published meanwhile does not wait for all of them.
    async fn ping(&self, at: usize, mut pinged: Vec<ConnId>) {
        const SLICES: usize = 500;
        let together = limits::PINGS_TOGETHER.max(pinged.len().div_ceil(SLICES));
        let slices = pinged.chunks(together);
        let pause = Duration::from_secs(1) / (slices.len() as u32 + 1);
        for slice in slices {
            for &id in slice {
                if let Some(seat) = self.find(id) {
                    seat.ping();
                }
            }
            self.0.cx.sleep(pause).await;
        }
        pinged.retain(|id| self.find(*id).is_some());
        self.0.rounds.borrow_mut().pinged[at].append(&mut pinged);
    }
}

impl std::ops::Deref for Desk {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}
