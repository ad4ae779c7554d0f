//! One thread's clients: they connect, subscribe, and read what comes.
//!
//! No task and no buffer for a client: its bytes are looked at where the engine has received them. `dial` opens
//! connections, `hear` reads them, `told` does what it is told and `deliver` counts publications, `watch` slows some of them down
//! and looks how fresh their values are, `kill` cuts them off. `audited` compares what different clients have received.

mod audited;
mod deliver;
mod dial;
mod hear;
mod kill;
mod link;
mod told;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Cx, Reason, Start};
use ringmain_sys::clock;
use ringmain_sys::process::{thread_cpu_time, thread_waited};
use ringmain_wire::h1::{self, FieldTable};
use ringmain_wire::ws::{Close, CloseCode, Encoder, Mask, Role};

use self::kill::Kills;
use self::link::{Link, State};
use self::watch::Watch;
use super::audit::Audit;
use super::broker::Exchange;
use super::calendar::{Calendar, Mark};
use super::figures::{Heard, Spread};
use super::layout::Layout;
use super::order::Track;
use super::plan::{Plan, Transport};
use super::position::Positions;
use super::stamp;
use super::worker::{News, Order, Place};
use crate::client::{Schedule, Secure, share};
use crate::plan::Pace;

/// The code of a server that shuts down.
const SHUTDOWN: u32 = 3001;

/// What the run shows while threads work.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Clients whose subscriptions stand.
    pub(super) standing: AtomicU32,
    /// Deliveries that count, each once.
    pub(super) delivered: AtomicU64,
}

/// ```text
/// Joining ─ all stand ─▶ Ready ─ order ─▶ Hearing ─ order, the last ─▶ Over
///                          ▲                 │
///                          └──── order ──────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Joining,
    Ready,
    Hearing,
    Over,
}

/// One thread's clients.
pub(super) struct Listeners {
    cx: Cx,
    plan: Arc<Plan>,
    layout: Layout,
    calendar: Calendar,
    links: Vec<Link>,
    /// The subscriptions of all clients, each client's in the order of its places.
    tracks: Vec<Track>,
    /// Where those stand, if clients are to recover.
    positions: Option<Positions>,
    /// Compares positions and recoveries, if that is needed.
    audit: Option<Audit>,
    /// Publications of the reply that is processed, in order.
    answered: Vec<Mark>,
    /// The highest sequence number of each channel while publications count, over all threads; only of an external producer's.
    tops: Arc<[AtomicU32]>,
    /// Whether the highest sequence numbers are final.
    has_tops: bool,
    /// The host's monotonic clock when the engine's was zero.
    origin: Duration,
    /// TLS of the connections to each node.
    secure: Vec<Option<Secure>>,
    /// The number of the first client among those of all threads.
    first: u32,
    /// Clients to be dialled, in order.
    waiting: VecDeque<u32>,
    /// Clients that come back, and when, in order.
    later: VecDeque<(Time, u32)>,
    /// Connections asked for that are not there yet.
    attempts: Vec<(ConnId, u32)>,
    /// Clients that are dialling or joining.
    dialling: usize,
    /// When the next may be dialled, if there is a rate.
    dials: Option<Schedule>,
    hold_dials_until: Time,
    standing: u32,
    phase: Phase,
    /// Whether what was counted has been told.
    has_told: bool,
    begun: Time,
    /// When counting begins and ends.
    counts: (Time, Time),
    /// CPU time of this thread, and its time without a CPU, when counting began.
    effort: Option<(Duration, Option<Duration>)>,
    reader: stamp::Reader,
    watch: Watch,
    kills: Kills,
    figures: Box<Heard>,
    spreads: Vec<Spread>,
    gauge: Arc<Gauge>,
    alarm: Option<Time>,
    table: FieldTable,
    scratch: Vec<u8>,
    random: fastrand::Rng,
    news: Sender<News>,
}

/// What all workers of a run share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) plan: Arc<Plan>,
    pub(super) layout: Layout,
    pub(super) calendar: Calendar,
    /// What publications of this run are told by.
    pub(super) run: u32,
    pub(super) news: Sender<News>,
    /// The highest sequence number of each channel of an external producer; empty without one.
    pub(super) tops: Arc<[AtomicU32]>,
    /// The way to the broker that publications are written to, if there is one.
    pub(super) exchange: Arc<Exchange>,
}

impl Listeners {
    pub(super) fn new(
        start: &Start<Order>,
        common: Common,
        gauge: Arc<Gauge>,
        secure: Vec<Option<Secure>>,
    ) -> Listeners {
        let cx = start.cx.clone();
        let Common {
            plan,
            layout,
            calendar,
            run,
            news,
            tops,
            ..
        } = common;
        let (worker, workers) = (cx.worker(), plan.threads);
        let (first, count) = share(u64::from(plan.clients), worker, workers);
        let (first, count) = (first as u32, count as u32);
        let clients = first..first + count;
        let pace = plan.connect_rate.map(Pace::Constant);
        let dials = pace.and_then(|pace| Schedule::new(pace, worker, workers, 0, cx.now()));
        let subscriptions = count as usize * layout.places() as usize;
        let mut listeners = Listeners {
            links: clients
                .map(|client| Link::new(layout.is_slow(client), layout.node(client, plan.nodes.len())))
                .collect(),
            tracks: vec![Track::default(); subscriptions],
            positions: plan.is_positioned().then(|| Positions::new(subscriptions)),
            audit: plan
                .is_audited()
                .then(|| Audit::new(subscriptions, plan.listening.is_some(), plan.conflated.is_some())),
            answered: Vec::new(),
            tops,
            has_tops: false,
            origin: clock::monotonic().saturating_sub(Duration::from_nanos(cx.clock().0)),
            secure,
            first,
            waiting: (0..count).collect(),
            later: VecDeque::new(),
            attempts: Vec::new(),
            dialling: 0,
            dials,
            hold_dials_until: Time(0),
            standing: 0,
            phase: Phase::Joining,
            has_told: false,
            begun: Time(0),
            counts: (Time::NEVER, Time::NEVER),
            effort: None,
            reader: stamp::Reader::new(run, plan.size as usize),
            watch: Watch::default(),
            kills: Kills::default(),
            figures: Box::default(),
            spreads: Vec::new(),
            gauge,
            alarm: None,
            table: FieldTable::new(&h1::Limits::INTERNET),
            scratch: Vec::new(),
            random: fastrand::Rng::with_seed(u64::from(run) << 16 | worker as u64),
            news,
            plan,
            layout,
            calendar,
            cx,
        };
        listeners.dial();
        listeners.set_alarm();
        listeners
    }

    /// Publications are due from `at` on. What comes of former ones is known by their run, and counts no more.
    pub(super) fn begin(&mut self, at: Time, calendar: Calendar, run: u32) {
        self.phase = Phase::Hearing;
        self.calendar = calendar;
        self.reader = stamp::Reader::new(run, self.plan.size as usize);
        if std::mem::replace(&mut self.has_told, false) {
            self.tracks.fill(Track::default());
            if let Some(audit) = &mut self.audit {
                audit.reset();
            }
            *self.figures = Heard::default();
            self.gauge.delivered.store(0, Ordering::Relaxed);
            self.effort = None;
        }
        self.begun = at;
        let from = at.after(self.plan.warmup);
        self.counts = (from, from.after(self.plan.duration));
        if self.plan.conflated.is_none() {
            self.spreads = vec![Spread::default(); self.calendar.counted()];
        }
        self.plan_kills(from);
        self.start_watching(at);
        self.set_alarm();
    }

    pub(super) fn alarm(&mut self, now: Time) {
        self.alarm = None;
        let (from, until) = self.counts;
        if now >= from && self.effort.is_none() {
            self.effort = Some((thread_cpu_time(), thread_waited()));
        }
        if now >= until {
            self.counts.1 = Time::NEVER;
            self.has_tops = true;
            self.tell_effort();
        }
        self.kill(now);
        self.watch(now);
        self.dial();
        self.set_alarm();
    }

    /// The next moment at which something is to be done unasked.
    fn set_alarm(&mut self) {
        let (from, until) = self.counts;
        let mark = if self.effort.is_none() { from } else { until };
        let next = [Some(mark), self.next_dial(), self.next_watch(), self.next_kill()];
        let next = next.into_iter().flatten().min().filter(|at| *at != Time::NEVER);
        if next != self.alarm {
            self.alarm = next;
            self.cx.set_alarm(next);
        }
    }

    fn tell_effort(&mut self) {
        let (cpu, waited) = self.effort.unwrap_or_default();
        let waited = thread_waited().zip(waited);
        let _ = self.news.send(News::Effort {
            worker: self.cx.worker(),
            cpu: thread_cpu_time().saturating_sub(cpu),
            waited: waited.map(|(end, begin)| end.saturating_sub(begin)),
        });
    }

    /// Counts no longer, and tells what has been counted.
    pub(super) fn tell(&mut self, is_last: bool) {
        if self.phase == Phase::Over {
            return;
        }
        if self.phase == Phase::Hearing {
            self.look_at_last();
        }
        self.count_nodes();
        let findings = self.findings(is_last);
        self.phase = if is_last { Phase::Over } else { Phase::Ready };
        self.has_told = true;
        self.counts = (Time::NEVER, Time::NEVER);
        let _ = self.news.send(News::Heard {
            figures: std::mem::take(&mut self.figures),
            spreads: std::mem::take(&mut self.spreads),
            findings: findings.map(Box::new),
        });
        self.set_alarm();
    }

    /// Which subscriptions lack the last publication of their channel. Clients that read slowly may.
    fn look_at_last(&mut self) {
        let places = self.layout.places();
        for (index, track) in self.tracks.iter().enumerate() {
            let (client, place) = (index as u32 / places, index as u32 % places);
            let channel = self.layout.channel(self.first + client, place);
            let slow = self.links[client as usize].slow;
            let behind = !slow && track.highest() < self.calendar.last(channel);
            self.figures.counts.behind_at_end += u64::from(behind);
        }
    }

    /// The number of a client's subscription among those of all.
    fn track(&self, index: u32, place: u32) -> usize {
        index as usize * self.layout.places() as usize + place as usize
    }

    /// Whether publications that are due now count.
    fn is_counting(&self) -> bool {
        self.effort.is_some() && self.counts.1 != Time::NEVER
    }

    /// The client that this connection still belongs to.
    fn owner(&self, place: Place) -> Option<u32> {
        (self.links[place.index as usize].life == place.life).then_some(place.index)
    }

    /// The server has sent its last byte.
    pub(super) fn ended(&mut self, place: Place) {
        if let Some(index) = self.owner(place) {
            self.end(index, &How::What("closed by the server without a code"));
        }
    }

    /// It took too long to join.
    pub(super) fn late(&mut self, place: Place) {
        if let Some(index) = self.owner(place) {
            self.end(index, &How::What("timed out"));
        }
    }

    pub(super) fn closed(&mut self, place: Place, reason: Reason) {
        if let Some(index) = self.owner(place) {
            self.end(index, &How::What(dial::describe(reason)));
        }
    }

    /// A client's session or attempt is over.
    fn end(&mut self, index: u32, how: &How<'_>) {
        let state = self.links[index as usize].state;
        match state {
            State::Live { .. } => {
                self.standing -= 1;
                self.gauge.standing.store(self.standing, Ordering::Relaxed);
                if self.phase != Phase::Over {
                    self.figures.counts.disconnects.add(how.told());
                    self.ended_live(index);
                }
            }
            State::Dialling { .. } | State::Joining { .. } => {
                self.dialling -= 1;
                self.not_joined(self.links[index as usize].node, how);
            }
            State::Waiting | State::Gone => return,
        }
        let comes_back = self.phase != Phase::Over && how.may_come_back();
        if comes_back {
            let link = &mut self.links[index as usize];
            // A node that ends a session with a code is alive, unless it shuts down.
            if !matches!(link.state, State::Live { .. }) || how.is_node_down() {
                link.fail_over(self.plan.nodes.len());
            }
            link.end_life(State::Waiting);
            self.later
                .push_back((self.cx.now().after(self.plan.reconnect), index));
        } else {
            self.links[index as usize].end_life(State::Gone);
            self.figures.counts.gone += u64::from(self.phase != Phase::Over);
        }
        self.dial();
        self.set_alarm();
    }

    /// A client could not join; while all are to stand the run is told why.
    fn not_joined(&mut self, node: u16, how: &How<'_>) {
        *self.figures.counts.connect_errors.entry(how.told()).or_default() += 1;
        if self.phase != Phase::Joining {
            return;
        }
        let error = match how {
            How::Code(..) | How::Refused(_) => {
                let _ = self.news.send(News::Refused { message: how.said() });
                return;
            }
            How::Failed(kind) => (*kind).into(),
            How::Later(what) => std::io::Error::other(what.clone()),
            How::What(what) => std::io::Error::other(*what),
            // However many clients there are, none would be taken.
            How::Insecure(_, said) => std::io::Error::new(std::io::ErrorKind::InvalidData, said.clone()),
        };
        let _ = self.news.send(News::NotConnected {
            node: Some(node),
            error,
        });
    }

    /// Says that nothing is wanted any more, if the connection has a way to.
    pub(super) fn say_goodbye(&mut self, conn: Conn<'_>) {
        if matches!(self.plan.transport, Transport::WebSocket(_)) {
            self.write_close(conn, CloseCode::NORMAL);
        }
    }

    fn write_close(&mut self, conn: Conn<'_>, code: CloseCode) {
        self.scratch.clear();
        let mut key = || self.random.u32(..).to_ne_bytes();
        let close = Some(Close { code, reason: "" });
        let mut encoder = Encoder::new(Role::Client, None, usize::MAX);
        if encoder
            .close(&mut self.scratch, close, Mask::Keys(&mut key))
            .is_ok()
        {
            // A refused write ends the connection, which ends anyway.
            let _ = conn.write(&self.scratch);
        }
    }
}

/// How a session or an attempt ended.
#[derive(Clone, Debug)]
enum How<'a> {
    /// The server has said a code and a reason.
    Code(u32, &'a str),
    /// The server does not want to, in whole words.
    Refused(String),
    /// The server does not want to now.
    Later(String),
    /// A connection did not come about.
    Failed(std::io::ErrorKind),
    /// TLS has found a fault: what is counted, and what was found.
    Insecure(&'static str, String),
    /// Something else.
    What(&'static str),
}

impl How<'_> {
    /// As it is counted.
    fn told(&self) -> String {
        match self {
            How::Code(code, "") => code.to_string(),
            How::Code(code, reason) => format!("{code} {reason}"),
            How::Refused(message) | How::Later(message) => message.clone(),
            How::Failed(kind) => dial::failed(*kind).to_owned(),
            How::What(what) | How::Insecure(what, _) => (*what).to_owned(),
        }
    }

    /// To a person, while clients are to join.
    fn said(&self) -> String {
        let hint = "check that anonymous clients may connect, or pass a --token";
        match self {
            How::Code(..) => format!(
                "the server closed a client's session before it was established: {}; {hint}",
                self.told()
            ),
            _ => self.told(),
        }
    }

    /// Whether the node that ended a session is down or shuts down, so that a client connects elsewhere.
    fn is_node_down(&self) -> bool {
        match self {
            // A shutdown; and codes of WebSocket alone, by which nothing of the protocol was sent.
            How::Code(code, _) => *code == SHUTDOWN || *code < 3000,
            _ => true,
        }
    }

    /// Codes from 3500 to 3999 and from 4500 to 4999 are final, as the protocol has it.
    fn may_come_back(&self) -> bool {
        match self {
            How::Code(code, _) => !matches!(code, 3500..=3999 | 4500..=4999),
            How::Refused(_) => false,
            How::Later(_) | How::Failed(_) | How::Insecure(..) | How::What(_) => true,
        }
    }
}
