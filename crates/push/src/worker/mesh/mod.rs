//! Queues between the workers of a process, of one writer and one reader each.

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_hub::mail::{ShardEvent, ShardRequest, WorkerId};
use ringmain_hub::shard::ChannelShard;
use ringmain_hub::subscribers::SubscriberTable;
use rtrb::{Consumer, Producer, RingBuffer};

use super::EmulatedMessage;
use super::survey::SurveyMessage;
use super::user_commands::ConnectionCommand;
use super::user_connections::UserConnections;
use crate::client::identity::ClientId;
use crate::limits;
use crate::publish::inbound_queue::InboundQueue;

/// The queues between all workers, until each worker takes its ends.
#[derive(Default)]
pub(crate) struct SharedMesh {
    parts: OnceLock<MeshParts>,
    user_connections: Arc<UserConnections>,
    /// Queues of other threads, by worker.
    inbound: OnceLock<Arc<[InboundQueue]>>,
}

/// By worker.
type MeshParts = Mutex<Vec<Option<Mesh>>>;

/// State that the workers of a process share with each other. Clones refer to the same.
#[derive(Clone)]
pub(crate) struct Process {
    /// The name of this process for clients.
    pub(crate) node: Arc<str>,
    /// The start of the first worker.
    pub(crate) started: Time,
    /// The number of connected clients.
    pub(crate) clients: Arc<AtomicUsize>,
    pub(crate) user_connections: Arc<UserConnections>,
}

/// One worker's ends of the queues. Vectors are indexed by the other worker.
pub(crate) struct Mesh {
    process: Process,
    requests_out: Vec<Producer<ShardRequest>>,
    requests_in: Vec<Consumer<ShardRequest>>,
    events_out: Vec<Producer<ShardEvent>>,
    events_in: Vec<Consumer<ShardEvent>>,
    emulated_out: Vec<Producer<EmulatedMessage>>,
    emulated_in: Vec<Consumer<EmulatedMessage>>,
    commands_out: Vec<Producer<ConnectionCommand>>,
    commands_in: Vec<Consumer<ConnectionCommand>>,
    surveys_out: Vec<Producer<SurveyMessage>>,
    surveys_in: Vec<Consumer<SurveyMessage>>,
    /// Wakers by worker: each worker sets its own when it starts.
    wakers: Arc<[OnceLock<Waker>]>,
    /// Queues of other threads, by worker.
    inbound: Arc<[InboundQueue]>,
    /// Workers to wake at the end of a turn: retained for its memory alone.
    wake_list: Vec<bool>,
}

impl SharedMesh {
    /// Returns the number of connected users, across all workers.
    pub(crate) fn user_count(&self) -> u64 {
        self.user_connections.user_count() as u64
    }

    /// Takes a worker's part. `None`: it was taken before.
    pub(crate) fn take(&self, cx: &Cx) -> Option<Mesh> {
        let inbound = self
            .inbound
            .get_or_init(|| (0..cx.workers()).map(|_| InboundQueue::new()).collect());
        let parts = self.parts.get_or_init(|| {
            let process = Process {
                node: Arc::from(ClientId::random(cx).to_string()),
                started: cx.now(),
                clients: Arc::default(),
                user_connections: Arc::clone(&self.user_connections),
            };
            connect_workers(inbound, &process)
        });
        let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get_mut(cx.worker())?.take()
    }

    /// Returns the queues of other threads, by worker. `None`: no worker has started yet.
    pub(crate) fn inbound_queues(&self) -> Option<&[InboundQueue]> {
        self.inbound.get().map(|queues| &**queues)
    }
}

impl Mesh {
    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Stores the waker of a worker that starts, and opens its queue of other threads.
    pub(super) fn register_worker(&self, worker: usize, waker: &Waker) {
        // A worker starts once.
        let _ = self.wakers[worker].set(waker.clone());
        self.inbound[worker].register_worker(waker);
    }

    pub(super) fn wake_worker(&self, worker: usize) {
        if let Some(waker) = self.wakers[worker].get() {
            waker.wake_by_ref();
        }
    }

    /// Returns the queues of other threads, by worker.
    pub(super) fn inbound_queues(&self) -> &Arc<[InboundQueue]> {
        &self.inbound
    }

    /// Returns a flag for each worker, none set; [`return_wake_list`](Mesh::return_wake_list) has to follow.
    pub(super) fn take_wake_list(&mut self) -> Vec<bool> {
        let mut list = std::mem::take(&mut self.wake_list);
        list.fill(false);
        list
    }

    pub(super) fn return_wake_list(&mut self, list: Vec<bool>) {
        self.wake_list = list;
    }

    /// Sends queued requests of the clients here to a worker, as far as there is room. Returns whether any was sent.
    pub(super) fn send_requests(&mut self, worker: usize, subscribers: &mut SubscriberTable) -> bool {
        let (id, queue) = (WorkerId(worker as u16), &mut self.requests_out[worker]);
        let mut is_sent = false;
        while subscribers.has_mail(id) && !queue.is_full() {
            if let Some(message) = subscribers.poll_request(id) {
                is_sent |= queue.push(message).is_ok();
            }
        }
        is_sent
    }

    pub(super) fn has_request_room(&self, worker: usize) -> bool {
        !self.requests_out[worker].is_full()
    }

    /// Sends queued events of the channels here to a worker, as far as there is room. Returns whether any was sent.
    pub(super) fn send_events(&mut self, worker: usize, shard: &mut ChannelShard, now: Duration) -> bool {
        let (id, queue) = (WorkerId(worker as u16), &mut self.events_out[worker]);
        let mut is_sent = false;
        while shard.has_mail(id) && !queue.is_full() {
            let Some(message) = shard.poll(id, now) else { break };
            is_sent |= queue.push(message).is_ok();
        }
        is_sent
    }

    /// Returns whether a worker may wait for room in a queue to this one.
    pub(super) fn is_inbox_full(&self, worker: usize) -> bool {
        self.requests_in[worker].slots() >= limits::QUEUE || self.events_in[worker].slots() >= limits::QUEUE
    }

    pub(super) fn pop_request(&mut self, worker: usize) -> Option<ShardRequest> {
        self.requests_in[worker].pop().ok()
    }

    pub(super) fn has_requests(&self, worker: usize) -> bool {
        !self.requests_in[worker].is_empty()
    }

    pub(super) fn pop_event(&mut self, worker: usize) -> Option<ShardEvent> {
        self.events_in[worker].pop().ok()
    }

    pub(super) fn has_events(&self, worker: usize) -> bool {
        !self.events_in[worker].is_empty()
    }

    /// Sends a client's message to the worker with its session. Returns `false` if [`limits::EMULATED_MESSAGES`] are in flight there.
    pub(super) fn send_emulated(&mut self, worker: usize, message: EmulatedMessage) -> bool {
        let Some(queue) = self.emulated_out.get_mut(worker) else {
            // A worker that does not exist has no sessions.
            return true;
        };
        if queue.push(message).is_err() {
            return false;
        }
        self.wake_worker(worker);
        true
    }

    pub(super) fn pop_emulated(&mut self, worker: usize) -> Option<EmulatedMessage> {
        self.emulated_in[worker].pop().ok()
    }

    /// Sends a command to all workers but this one, or to none if one has no room. Returns whether it was sent.
    pub(super) fn broadcast_command(&mut self, worker: usize, command: &ConnectionCommand) -> bool {
        let mut others = self.commands_out.iter().enumerate();
        if others.any(|(other, queue)| other != worker && queue.is_full()) {
            return false;
        }
        for (other, queue) in self.commands_out.iter_mut().enumerate() {
            if other != worker
                && queue.push(command.clone()).is_ok()
                && let Some(waker) = self.wakers[other].get()
            {
                waker.wake_by_ref();
            }
        }
        true
    }

    pub(super) fn pop_command(&mut self, worker: usize) -> Option<ConnectionCommand> {
        self.commands_in[worker].pop().ok()
    }

    /// Sends a message of a survey. There is room for all that can be in flight.
    pub(super) fn send_survey(&mut self, worker: usize, message: SurveyMessage) {
        if self.surveys_out[worker].push(message).is_err() {
            log::error!("push: no room for a list of channels in the queue to another worker");
        }
        self.wake_worker(worker);
    }

    /// Returns a message of a survey, and the worker that has sent it.
    pub(super) fn pop_survey(&mut self) -> Option<(usize, SurveyMessage)> {
        let mut queues = self.surveys_in.iter_mut().enumerate();
        queues.find_map(|(from, queue)| Some((from, queue.pop().ok()?)))
    }
}

fn connect_workers(inbound: &Arc<[InboundQueue]>, process: &Process) -> MeshParts {
    let workers = inbound.len();
    let wakers: Arc<[OnceLock<Waker>]> = (0..workers).map(|_| OnceLock::new()).collect();
    let mut parts: Vec<Mesh> = (0..workers)
        .map(|_| Mesh {
            process: process.clone(),
            requests_out: Vec::new(),
            requests_in: Vec::new(),
            events_out: Vec::new(),
            events_in: Vec::new(),
            emulated_out: Vec::new(),
            emulated_in: Vec::new(),
            commands_out: Vec::new(),
            commands_in: Vec::new(),
            surveys_out: Vec::new(),
            surveys_in: Vec::new(),
            wakers: Arc::clone(&wakers),
            inbound: Arc::clone(inbound),
            wake_list: vec![false; workers],
        })
        .collect();
    for from in 0..workers {
        for to in 0..workers {
            let (writer, reader) = RingBuffer::new(limits::QUEUE);
            parts[from].requests_out.push(writer);
            parts[to].requests_in.push(reader);
            let (writer, reader) = RingBuffer::new(limits::QUEUE);
            parts[from].events_out.push(writer);
            parts[to].events_in.push(reader);
            let (writer, reader) = RingBuffer::new(limits::EMULATED_MESSAGES);
            parts[from].emulated_out.push(writer);
            parts[to].emulated_in.push(reader);
            let (writer, reader) = RingBuffer::new(limits::USER_COMMANDS);
            parts[from].commands_out.push(writer);
            parts[to].commands_in.push(reader);
            // Each worker sends at most so many requests, and responses to as many of the other's.
            let (writer, reader) = RingBuffer::new(2 * limits::SURVEYS);
            parts[from].surveys_out.push(writer);
            parts[to].surveys_in.push(reader);
        }
    }
    Mutex::new(parts.into_iter().map(Some).collect())
}
