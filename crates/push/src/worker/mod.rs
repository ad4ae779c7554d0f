//! One worker's part of push: its clients, the channels of its shard, and the exchange between these and with other workers.
//!
//! All that arrives within a turn of the worker's loop (commands, messages of other workers) wakes one task, [`PushWorker::run`], which then
//! processes everything: the requests of a hundred clients are one visit to each queue.
//!
//! Each part owns its state: [`ClientRegistry`] (connected clients), [`PingScheduler`] (pings, and the limit of time to `connect`),
//! [`ExpiryQueue`] (deadlines of tokens), [`Mesh`] (queues to other workers), [`OptionsCache`], [`ConflationTimer`]. Clients reach the worker
//! through the methods of `client_interface.rs` only.

mod api_publish;
mod client_interface;
mod clients;
mod cluster;
mod cluster_calls;
mod conflation;
pub(crate) mod connect_limiter;
mod expiry;
mod flush;
mod hand_over;
mod inbound;
pub(crate) mod mesh;
mod options_cache;
pub(crate) mod pending_replies;
mod ping;
mod rebalance;
mod survey;
pub(crate) mod user_commands;
pub(crate) mod user_connections;
mod wakeup;
pub(crate) mod worker_slot;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_hub::mail::WorkerId;
use ringmain_hub::protocol::{Disconnect, Format, Unsubscribed};
use ringmain_hub::shard::ChannelShard;
use ringmain_hub::subscribers::{SubscriberEvent, SubscriberTable};

use crate::app_proxy::InFlightLimit;
use crate::client::commands::CommandHandler;
use crate::limits;
use crate::metrics::{Report, WorkerMetrics};
use crate::options::ValidOptions;
use crate::publish::interruptions::ActiveInterruptions;
use crate::settings::SharedSettings;
use clients::ClientRegistry;
use cluster::ClusterChannels;
use conflation::ConflationTimer;
use connect_limiter::ConnectLimiter;
use expiry::ExpiryQueue;
use hand_over::HandOverProgress;
use mesh::Mesh;
use options_cache::OptionsCache;
use pending_replies::PendingReplies;
use ping::{DuePings, PingScheduler};
use survey::PendingSurveys;
use user_commands::ConnectionCommand;
use wakeup::Wakeup;

pub(crate) use api_publish::{ApiPublication, PendingPublish, PublicationPool, PublishOutcome};
pub(crate) use cluster_calls::{CalledNodes, RemoteEmulation};

/// A worker's part of push. Clones refer to the same.
#[derive(Clone)]
pub(crate) struct PushWorker(Rc<WorkerState>);

struct WorkerState {
    cx: Cx,
    settings: Arc<SharedSettings>,
    options: OptionsCache,
    metrics: Arc<WorkerMetrics>,
    clients: ClientRegistry,
    pings: PingScheduler,
    expiry: RefCell<ExpiryQueue>,
    mesh: RefCell<Mesh>,
    /// The subscriptions of clients here, to channels across all workers.
    subscribers: RefCell<SubscriberTable>,
    /// The channels of this worker.
    shard: RefCell<ChannelShard>,
    pool: RefCell<PublicationPool>,
    connect_limiter: ConnectLimiter,
    proxy_requests: InFlightLimit,
    pending_replies: RefCell<PendingReplies>,
    surveys: RefCell<PendingSurveys>,
    interruptions: RefCell<ActiveInterruptions>,
    /// Commands of sources that have not been sent to the other workers: at most one for each partition, which waits for its receipt.
    source_commands: RefCell<VecDeque<ConnectionCommand>>,
    wakeup: Wakeup,
    conflation: ConflationTimer,
    hand_over: HandOverProgress,
    /// `None`: this process is no node of a cluster.
    cluster: Option<RefCell<ClusterChannels>>,
}

/// A message of a client that arrives in a request of its own, for the worker with its session.
#[derive(Debug)]
pub(crate) struct EmulatedMessage {
    pub(crate) secret: u128,
    pub(crate) format: Format,
    pub(crate) data: Bytes,
}

impl PushWorker {
    /// Starts together with its worker. `None`: another application has this worker already.
    pub(crate) fn start(
        cx: &Cx,
        settings: &Arc<SharedSettings>,
        generation: u64,
        options: ValidOptions,
    ) -> Option<PushWorker> {
        let (number, workers) = (cx.worker(), cx.workers());
        let mesh = settings.mesh.take(cx)?;
        let count = u16::try_from(workers).unwrap_or(u16::MAX);
        let worker = PushWorker(Rc::new(WorkerState {
            cx: cx.clone(),
            settings: Arc::clone(settings),
            metrics: settings.metrics.add_worker(),
            clients: ClientRegistry::new(mesh.process()),
            pings: PingScheduler::new(&options),
            expiry: RefCell::default(),
            mesh: RefCell::new(mesh),
            subscribers: RefCell::new(SubscriberTable::new(count, options.limits)),
            shard: RefCell::new(ChannelShard::new(count, options.channels, cx.random())),
            pool: RefCell::default(),
            connect_limiter: ConnectLimiter::default(),
            proxy_requests: InFlightLimit::default(),
            pending_replies: RefCell::default(),
            surveys: RefCell::default(),
            interruptions: RefCell::default(),
            source_commands: RefCell::default(),
            wakeup: Wakeup::default(),
            conflation: ConflationTimer::default(),
            hand_over: HandOverProgress::new(&settings.hand_over),
            cluster: settings.cluster.get().map(|_| RefCell::default()),
            options: OptionsCache::new(generation, options),
        }));
        let expected = settings
            .expected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        worker.0.shard.borrow_mut().expect_logs(expected);
        let (runner, clock, conflation, drain) =
            (worker.clone(), worker.clone(), worker.clone(), worker.clone());
        for spawned in [
            cx.spawn(async move { drain.disconnect_on_drain().await }),
            cx.spawn(async move { runner.run().await }),
            cx.spawn(async move { clock.run_clock().await }),
            cx.spawn(async move { conflation.run_conflation().await }),
        ] {
            if spawned.is_err() {
                log::error!("push: worker {number} has no capacity for its tasks, so push is disabled there");
            }
        }
        Some(worker)
    }

    /// Returns the current options, which may be newer than those of other workers.
    pub(crate) fn options(&self) -> Rc<ValidOptions> {
        let state = &*self.0;
        state.options.current(&state.settings, |options| {
            state.subscribers.borrow_mut().set_limits(options.limits);
            state.shard.borrow_mut().set_channel_limit(options.channels);
            state.pings.set_options(options);
        })
    }

    /// Schedules [`run`](PushWorker::run) for this turn.
    pub(crate) fn wake(&self) {
        self.0.wakeup.wake();
    }

    /// Returns the number of connected clients, across all workers.
    pub(crate) fn client_count(&self) -> usize {
        self.0.clients.process_count()
    }

    /// Returns the counters across all workers.
    pub(crate) fn report(&self) -> Report {
        self.0.settings.report()
    }

    /// Returns the time since the first worker of the process started.
    pub(crate) fn uptime(&self) -> Duration {
        self.0.cx.now().since(self.0.clients.started())
    }

    /// Runs commands of sources here, and sends them to the other workers. Returns whether some wait for room.
    fn run_source_commands(&self, mesh: &mut Mesh) -> bool {
        loop {
            let next = self.0.source_commands.borrow_mut().pop_front();
            let Some(command) = next else { return false };
            if !mesh.broadcast_command(self.0.cx.worker(), &command) {
                self.0.source_commands.borrow_mut().push_front(command);
                return true;
            }
            self.run_command(&command);
        }
    }

    /// Closes connections and ends subscriptions whose deadline has passed, unless the application is requested to renew them.
    fn expire_due(&self) {
        let now = self.0.cx.wall().as_secs();
        loop {
            let expired = self.0.expiry.borrow_mut().pop_expired(now);
            let Some((slot, channel)) = expired else { break };
            let client = self.0.clients.in_slot(slot);
            let Some((client, id)) = client.and_then(|client| Some((Rc::clone(&client), client.id()?)))
            else {
                continue;
            };
            let mut permissions = client.permissions.borrow_mut();
            match channel {
                None => {
                    permissions.set_deadline(None);
                    drop(permissions);
                    let session = CommandHandler::resume(self, client);
                    if !session.proxy_refresh(id) {
                        session.client.disconnect(Disconnect::EXPIRED);
                    }
                }
                Some(channel) => {
                    if let Some(grant) = permissions.find_grant_mut(&channel) {
                        grant.deadline = None;
                    }
                    drop(permissions);
                    if !CommandHandler::resume(self, client).proxy_sub_refresh(id, &channel) {
                        self.unsubscribe(id, &channel, Unsubscribed::EXPIRED);
                    }
                }
            }
        }
        self.wake();
    }

    /// Forwards a client's message to the worker with its session. Returns `false` if [`limits::EMULATED_MESSAGES`] are in flight there.
    pub(crate) fn forward_emulated(&self, worker: usize, message: EmulatedMessage) -> bool {
        if worker == self.0.cx.worker() {
            self.receive_emulated(message);
            return true;
        }
        self.0.mesh.borrow_mut().send_emulated(worker, message)
    }

    /// Executes a message for a session of this worker; the message of a session that has ended is dropped.
    fn receive_emulated(&self, message: EmulatedMessage) {
        let Some(client) = self.0.clients.find_session(message.secret) else {
            return;
        };
        if message.format != client.format {
            return client.disconnect(Disconnect::BAD_REQUEST);
        }
        CommandHandler::resume(self, client).receive_message(message.data);
    }

    async fn run(&self) {
        poll_fn::<(), _>(|context| {
            if self.0.wakeup.register(context.waker()) {
                // The waker is this task's for as long as the worker lives.
                self.0
                    .mesh
                    .borrow()
                    .register_worker(self.0.cx.worker(), context.waker());
            }
            self.0.wakeup.reset();
            if self.process_queues() {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Processes all queues, inbound ones first since outbound messages result from them. Returns whether there is more to do.
    fn process_queues(&self) -> bool {
        self.receive_surveys();
        let mesh = &mut *self.0.mesh.borrow_mut();
        let mut to_wake = mesh.take_wake_list();
        self.advance_hand_over(mesh.inbound_queues());
        let mut has_more = self.drain_inbound(mesh.inbound_queues());
        has_more |= self.run_source_commands(mesh);
        for other in 0..to_wake.len() {
            // A worker that adds to the queue meanwhile wakes this one again.
            for _ in 0..limits::EMULATED_MESSAGES {
                let Some(message) = mesh.pop_emulated(other) else {
                    break;
                };
                self.receive_emulated(message);
            }
        }
        for other in 0..to_wake.len() {
            for _ in 0..limits::USER_COMMANDS {
                let Some(command) = mesh.pop_command(other) else {
                    break;
                };
                self.run_command(&command);
            }
        }
        for (other, wake) in to_wake.iter_mut().enumerate() {
            has_more |= self.exchange_requests(other, mesh, wake);
        }
        let queue = &mesh.inbound_queues()[self.0.cx.worker()];
        has_more |= self.apply_interruptions(queue);
        for (other, wake) in to_wake.iter_mut().enumerate() {
            has_more |= self.send_events(other, mesh, wake);
        }
        has_more |= self.release_conflated();
        self.dispatch_events();
        self.flush_cluster();
        self.update_metrics();
        let (worker, subscribers) = (self.0.cx.worker(), self.0.subscribers.borrow());
        for (other, &wake) in to_wake.iter().enumerate() {
            let has_capacity = other == worker || mesh.has_request_room(other);
            let is_held = other == worker && self.is_holding();
            has_more |= has_capacity && !is_held && subscribers.has_mail(WorkerId(other as u16));
            if wake {
                mesh.wake_worker(other);
            }
        }
        mesh.return_wake_list(to_wake);
        has_more
    }

    /// Sends requests of clients here to a worker's channels, and handles that worker's requests and events. Sets `wake` if the other
    /// worker must run. Returns whether more is to be received.
    fn exchange_requests(&self, other: usize, mesh: &mut Mesh, wake: &mut bool) -> bool {
        let (id, now) = (WorkerId(other as u16), self.0.cx.now().since(Time(0)));
        let (subscribers, shard) = (
            &mut *self.0.subscribers.borrow_mut(),
            &mut *self.0.shard.borrow_mut(),
        );
        let is_holding = self.is_holding();
        if other == self.0.cx.worker() {
            while !is_holding && let Some(message) = subscribers.poll_request(id) {
                self.handle_request(shard, id, message, now);
            }
            return false;
        }
        *wake |= mesh.send_requests(other, subscribers);
        // Wakes a worker that waits for capacity.
        *wake |= mesh.is_inbox_full(other);
        for _ in 0..if is_holding { 0 } else { limits::MESSAGES_PER_TURN } {
            let Some(message) = mesh.pop_request(other) else {
                break;
            };
            self.handle_request(shard, id, message, now);
        }
        for _ in 0..limits::MESSAGES_PER_TURN {
            let Some(message) = mesh.pop_event(other) else {
                break;
            };
            subscribers.handle(message);
        }
        (!is_holding && mesh.has_requests(other)) || mesh.has_events(other)
    }

    /// Sends the events of the channels here to a worker. Returns whether there are more for this worker itself.
    fn send_events(&self, other: usize, mesh: &mut Mesh, wake: &mut bool) -> bool {
        let (id, now) = (WorkerId(other as u16), self.0.cx.now().since(Time(0)));
        let shard = &mut *self.0.shard.borrow_mut();
        if other == self.0.cx.worker() {
            let subscribers = &mut *self.0.subscribers.borrow_mut();
            for _ in 0..limits::MESSAGES_PER_TURN {
                let Some(message) = shard.poll(id, now) else { break };
                subscribers.handle(message);
            }
            return shard.has_mail(id);
        }
        *wake |= mesh.send_events(other, shard, now);
        false
    }

    fn update_metrics(&self) {
        let (subscribers, shard) = (self.0.subscribers.borrow(), self.0.shard.borrow());
        let metrics = &self.0.metrics;
        metrics.update_totals(subscribers.counts(), shard.counts(), shard.len());
    }

    /// Dispatches events to clients and programs, and sends queued pushes.
    fn dispatch_events(&self) {
        self.deliver_replies();
        loop {
            let event = self.0.subscribers.borrow_mut().poll_event();
            let Some(event) = event else { break };
            let id = match &event {
                SubscriberEvent::Subscribed { conn, .. }
                | SubscriberEvent::Rejected { conn, .. }
                | SubscriberEvent::Unsubscribed { conn, .. }
                | SubscriberEvent::Published { conn, .. }
                | SubscriberEvent::QueryResult { conn, .. }
                | SubscriberEvent::Disconnected { conn, .. } => *conn,
            };
            if let Some(client) = self.find_client(id) {
                client.handle_event(self, event);
                let commands = client.take_ready_commands();
                if !commands.is_empty() {
                    CommandHandler::resume(self, client).execute_all(commands.into_iter().map(Ok));
                }
            }
        }
        self.flush_clients();
    }

    async fn run_clock(&self) {
        const SECOND: Duration = Duration::from_secs(1);
        let mut next = self.0.cx.now();
        loop {
            next = next.after(SECOND);
            self.0.cx.sleep(next.since(self.0.cx.now())).await;
            let pings = self.check_timeouts();
            self.expire_due();
            let now = self.0.cx.now().since(Time(0));
            self.0.shard.borrow_mut().sweep(now);
            self.expire_cluster_subscribers();
            self.0.pool.borrow_mut().shrink();
            self.send_pings(pings).await;
        }
    }

    /// Disconnects clients that owe a pong or a `connect`. Returns the clients to ping now.
    fn check_timeouts(&self) -> DuePings {
        let due = self.0.pings.advance();
        for &id in &due.pongs {
            if let Some(client) = self.find_client(id) {
                client.check_pong();
            }
        }
        for client in &due.connects {
            client.check_connect_timeout();
        }
        self.0.pings.take_due(due)
    }

    /// Pings clients, spread over less than a second so that publications are not delayed by a burst.
    async fn send_pings(&self, mut pings: DuePings) {
        const SLICES: usize = 500;
        let batch = limits::PING_BATCH.max(pings.clients.len().div_ceil(SLICES));
        let slices = pings.clients.chunks(batch);
        let pause = Duration::from_secs(1) / (slices.len() as u32 + 1);
        for slice in slices {
            for &id in slice {
                if let Some(client) = self.find_client(id) {
                    client.send_ping();
                }
            }
            self.0.cx.sleep(pause).await;
        }
        pings.clients.retain(|id| self.find_client(*id).is_some());
        self.0.pings.reschedule(pings);
    }
}
