//! The task that owns the node: it joins the workers' requests, the links and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringmain_push::cluster::{ClusterEvent, ClusterPort, ClusterRequest};
use ringmain_sys::clock;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::connection::{Input, LinkContext};
use super::dial::{Aborting, Dialer};
use super::tls::Tls;
use super::{ActorState, ClusterReport, LinkOptions, NodeReport, translate};
use crate::frame::Frame;
use crate::limits;
use crate::log::{LogEvent, NodePort};
use crate::member::{Member, Phase, Uid};
use crate::node::{LinkId, Load, Node};

/// See the module.
pub(super) struct Actor {
    node: Node,
    port: ClusterPort,
    inputs: mpsc::Receiver<Input>,
    links: BTreeMap<LinkId, ActiveLink>,
    /// An event that its worker has no room for. No other is delivered before it.
    undelivered: Option<Box<ClusterEvent>>,
    linked: Arc<Mutex<BTreeSet<Uid>>>,
    shared: Arc<ActorState>,
    started: Duration,
    /// The workers' requests are handled.
    is_serving: bool,
    log: Option<NodePort>,
    log_engine: &'static str,
    /// The nodes with other settings of the log.
    other_logs: BTreeMap<Uid, OtherLog>,
    _tasks: [Aborting; 2],
}

/// The log of this node, if there is one.
#[derive(Debug, Default)]
pub(super) struct LogContext {
    pub(super) engine: &'static str,
    pub(super) digest: Option<u64>,
    pub(super) port: Option<NodePort>,
}

/// A node that is not linked, since the settings of its log are others.
struct OtherLog {
    name: Arc<str>,
    /// The last time that it was met.
    met: Duration,
    /// It has served before this node, which is not ready.
    is_older: bool,
}

struct ActiveLink {
    uid: Uid,
    writer: mpsc::UnboundedSender<Vec<u8>>,
    unsent: Arc<AtomicUsize>,
    /// Closes the connection when it is dropped.
    _close: oneshot::Sender<()>,
}

impl Actor {
    pub(super) fn new(
        node: Node,
        port: ClusterPort,
        listener: std::net::TcpListener,
        options: LinkOptions,
        tls: Option<Tls>,
        shared: Arc<ActorState>,
        log: LogContext,
    ) -> io::Result<Actor> {
        let listener = TcpListener::from_std(listener)?;
        let (sender, inputs) = mpsc::channel(limits::RECEIVED_BATCHES);
        let mut hello = Vec::new();
        node.hello().encode(&mut hello);
        // An older node skips it.
        Frame::LogSettings(log.digest).encode(&mut hello);
        let linked: Arc<Mutex<BTreeSet<Uid>>> = Arc::default();
        let dialer = Dialer {
            context: LinkContext {
                hello: hello.into(),
                log: log.digest,
                inputs: sender,
            },
            tls,
            uid: node.member().uid,
            links: Arc::new(AtomicU64::new(1)),
            linked: Arc::clone(&linked),
        };
        let tasks = [
            Aborting(tokio::spawn(dialer.clone().accept(listener))),
            Aborting(tokio::spawn(dialer.follow(options.membership))),
        ];
        Ok(Actor {
            node,
            port,
            inputs,
            links: BTreeMap::new(),
            undelivered: None,
            linked,
            shared,
            started: clock::monotonic(),
            is_serving: false,
            log_engine: log.engine,
            log: log.port,
            other_logs: BTreeMap::new(),
            _tasks: tasks,
        })
    }

    /// Runs until the sender of `stopped` is dropped.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<()>) {
        let mut ticks = interval(limits::TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let has_waited = clock::monotonic() - self.started >= limits::STARTUP_GRACE;
            self.is_serving |= has_waited && self.node.can_serve();
            let is_serving = self.is_serving;
            let is_blocked = self.undelivered.is_some();
            let port = &self.port;
            let requests = poll_fn(|context| port.poll_request(context));
            tokio::select! {
                _ = stopped.changed() => return,
                Some(input) = self.inputs.recv() => self.handle_inputs(input),
                // While an event waits, none that answers a request at once has a place.
                request = requests, if is_serving && !is_blocked => self.handle_requests(request),
                Some(events) = receive_log(&mut self.log), if !is_blocked => self.handle_log(events),
                _ = ticks.tick() => self.tick(),
                () = sleep(limits::REDELIVER_INTERVAL), if is_blocked => {}
            }
            self.send_log_requests();
            self.deliver_events();
            self.send_frames();
        }
    }

    /// Handles the events of the log's adapter, and those that wait behind them.
    fn handle_log(&mut self, first: Vec<LogEvent>) {
        let mut next = Some(first);
        let mut count = 0;
        while let Some(events) = next {
            let now = clock::monotonic();
            let events = events.into_iter();
            events.for_each(|event| self.node.receive_log(event, now));
            count += 1;
            if count == limits::LOG_EVENT_BATCHES {
                return;
            }
            next = self.log.as_mut().and_then(|log| log.events.try_recv().ok());
        }
    }

    fn send_log_requests(&mut self) {
        let requests = self.node.take_log_requests();
        if !requests.is_empty()
            && let Some(log) = &self.log
        {
            // An adapter that has ended reports nothing: appends expire.
            let _ = log.requests.send(requests);
        }
    }

    /// Handles a request and those that wait behind it, so that their frames leave together.
    fn handle_requests(&mut self, first: ClusterRequest) {
        let mut next = Some(first);
        let mut count = 0;
        while let Some(request) = next.take() {
            match translate::local(request) {
                Ok(local) => self.node.handle(local, clock::monotonic()),
                Err(event) => {
                    self.undelivered = Some(Box::new(event));
                    return;
                }
            }
            count += 1;
            if count == limits::REQUESTS_PER_TURN {
                return;
            }
            // The next turn registers the waker of this task again.
            if let Poll::Ready(request) = self.port.poll_request(&Context::from_waker(Waker::noop())) {
                next = Some(request);
            }
        }
    }

    /// Handles an input and those that wait behind it.
    fn handle_inputs(&mut self, first: Input) {
        self.handle_input(first);
        for _ in 1..limits::RECEIVED_BATCHES {
            match self.inputs.try_recv() {
                Ok(input) => self.handle_input(input),
                Err(_) => return,
            }
        }
    }

    fn handle_input(&mut self, input: Input) {
        let now = clock::monotonic();
        match input {
            Input::Up {
                link,
                hello,
                is_dialed,
                writer,
                unsent,
                close,
                is_accepted,
            } => {
                let (uid, name) = (hello.member.uid, Arc::clone(&hello.member.name));
                let is_up = self.node.link_up(link, hello, is_dialed, now);
                if is_up {
                    log::info!("cluster: linked to the node {name} ({uid})");
                    let active = ActiveLink {
                        uid,
                        writer,
                        unsent,
                        _close: close,
                    };
                    self.links.insert(link, active);
                    self.linked().insert(uid);
                }
                let _ = is_accepted.send(is_up);
            }
            Input::Frames { link, frames } => {
                self.node.note_bytes(link, now);
                for frame in frames {
                    self.node.receive(link, frame, now);
                }
            }
            Input::Down { link } => {
                self.node.link_down(link, now);
                self.remove_link(link);
            }
            Input::OtherLog { member } => self.note_other_log(&member, now),
            Input::Refused { uid } => self.node.note_refused(uid, now),
        }
    }

    fn note_other_log(&mut self, other: &Member, now: Duration) {
        let is_older = !self.is_serving;
        if let Some(known) = self.other_logs.get_mut(&other.uid) {
            known.met = now;
            return;
        }
        let own = &self.node.member().name;
        let state = if is_older { "is not ready" } else { "remains ready" };
        log::error!(
            "cluster: the node {} ({}) has other settings of `cluster.log` than this one, {own}: engine, names, loss or partitions. \
             They are not linked, and {own} {state}. Set the same log on all nodes, and restart all at once",
            other.name,
            other.uid
        );
        let other_log = OtherLog {
            name: Arc::clone(&other.name),
            met: now,
            is_older,
        };
        self.other_logs.insert(other.uid, other_log);
    }

    fn linked(&self) -> std::sync::MutexGuard<'_, BTreeSet<Uid>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_link(&mut self, link: LinkId) {
        if let Some(ActiveLink { uid, .. }) = self.links.remove(&link)
            && !self.node.is_linked(uid)
        {
            self.linked().remove(&uid);
        }
    }

    fn deliver_events(&mut self) {
        self.queue_events();
        self.port.wake_workers();
    }

    fn queue_events(&mut self) {
        loop {
            let event = match self.undelivered.take() {
                Some(event) => *event,
                None => match self.node.poll_event().map(translate::event) {
                    None => return,
                    Some(Ok(event)) => event,
                    Some(Err(link)) => {
                        self.remove_link(link);
                        continue;
                    }
                },
            };
            if let Err(event) = self.port.deliver(event) {
                self.undelivered = Some(event);
                return;
            }
        }
    }

    fn send_frames(&mut self) {
        let mut stuck = Vec::new();
        for (id, link) in &self.links {
            let mut bytes = Vec::new();
            self.node.encode_frames(*id, &mut bytes);
            // A link whose writer has ended is removed when its end is received.
            if !bytes.is_empty() {
                let unsent = link.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
                if unsent > limits::UNSENT_BYTES {
                    stuck.push(*id);
                }
                let _ = link.writer.send(bytes);
            }
        }
        for id in stuck {
            log::warn!("cluster: a link is closed: the other node does not read");
            self.node.link_down(id, clock::monotonic());
            self.remove_link(id);
        }
    }

    fn tick(&mut self) {
        let now = clock::monotonic();
        self.node.set_load(Load {
            clients: self.shared.clients.load(Ordering::Relaxed),
        });
        if self.shared.is_leaving.load(Ordering::Relaxed) {
            self.node.leave(now);
        }
        self.node.tick(now);
        self.other_logs
            .retain(|_, other| now.saturating_sub(other.met) < limits::OTHER_LOG_TIME);
        let to_move = self.node.take_clients_to_move();
        self.shared.to_move.fetch_add(to_move, Ordering::Relaxed);
        self.update_report();
    }

    fn update_report(&self) {
        let reports = self.node.peers().map(|(member, status)| NodeReport {
            uid: member.uid,
            name: Arc::clone(&member.name),
            zone: Arc::clone(&member.zone),
            role: member.role,
            weight: member.weight,
            clients: status.clients,
            is_leaving: status.phase == Phase::Leaving,
        });
        let mut nodes: Vec<_> = reports.collect();
        nodes.sort_by(|a, b| (&a.name, a.uid).cmp(&(&b.name, b.uid)));
        let has_unsent = |link: &ActiveLink| link.unsent.load(Ordering::Relaxed) > 0;
        let report = ClusterReport {
            counts: self.node.counts(),
            nodes,
            has_left: self.node.has_left() && !self.links.values().any(has_unsent),
            log: self.node.log_report(clock::monotonic()),
            log_engine: self.log_engine,
            other_log: self
                .other_logs
                .values()
                .find(|other| other.is_older)
                .map(|other| Arc::clone(&other.name)),
        };
        *self.shared.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// Returns the next events of the log's adapter. Without one there are none.
async fn receive_log(log: &mut Option<NodePort>) -> Option<Vec<LogEvent>> {
    match log {
        Some(log) => log.events.recv().await,
        None => std::future::pending().await,
    }
}
