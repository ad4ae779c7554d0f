//! Queues between desks, of one writer and one reader each.

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_hub::mail::{ShardEvent, ShardRequest};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::client::identity::ClientId;
use crate::limits;
use crate::publish::thread_publisher::Slot;
use crate::worker::Emulated;
use crate::worker::survey::Survey;
use crate::worker::user_commands::Order;
use crate::worker::user_connections::Admission;

/// All queues, until their workers take them.
#[derive(Default)]
pub(crate) struct Mesh {
    made: OnceLock<Made>,
    admission: Arc<Admission>,
    /// What comes from outside, by worker.
    slots: OnceLock<Arc<[Slot]>>,
}

/// By worker.
type Made = Mutex<Vec<Option<Ends>>>;

/// What one worker has of them, by the other worker.
pub(crate) struct Ends {
    pub(crate) to_homes: Vec<Producer<ShardRequest>>,
    pub(crate) as_home: Vec<Consumer<ShardRequest>>,
    pub(crate) to_workers: Vec<Producer<ShardEvent>>,
    pub(crate) as_worker: Vec<Consumer<ShardEvent>>,
    pub(crate) to_sessions: Vec<Producer<Emulated>>,
    pub(crate) as_sessions: Vec<Consumer<Emulated>>,
    to_orders: Vec<Producer<Order>>,
    pub(crate) as_orders: Vec<Consumer<Order>>,
    to_surveys: Vec<Producer<Survey>>,
    as_surveys: Vec<Consumer<Survey>>,
    /// What all workers of this process are called together, for clients.
    pub(crate) node: Arc<str>,
    /// Clients of all workers, of this process.
    pub(crate) clients: Arc<AtomicUsize>,
    pub(crate) admission: Arc<Admission>,
    /// When the first of the workers began.
    pub(crate) since: Time,
    /// Of all desks: each sets its own when it begins.
    pub(crate) bells: Arc<[OnceLock<Waker>]>,
    /// What comes from outside, by worker.
    pub(crate) slots: Arc<[Slot]>,
    /// Whom a turn has something for: kept for the memory alone.
    pub(crate) rings: Vec<bool>,
}

impl Mesh {
    /// Users that are connected, of all workers.
    pub(crate) fn users(&self) -> u64 {
        self.admission.users() as u64
    }

    /// A worker's ends, once. `None`: it has them.
    pub(crate) fn take(&self, cx: &Cx) -> Option<Ends> {
        let since = cx.now();
        let slots = self
            .slots
            .get_or_init(|| (0..cx.workers()).map(|_| Slot::new()).collect());
        let made = self
            .made
            .get_or_init(|| make(slots, &ClientId::draw(cx).to_string(), since, &self.admission));
        let mut ends = made.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get_mut(cx.worker())?.take()
    }

    /// What comes from outside, by worker. `None`: there is none yet.
    pub(crate) fn slots(&self) -> Option<&[Slot]> {
        self.slots.get().map(|slots| &**slots)
    }
}

impl Ends {
    /// Hands what a client says to the worker that has its session. `false`: as much as may is on its way there.
    pub(crate) fn emulate(&mut self, worker: usize, emulated: Emulated) -> bool {
        let Some(queue) = self.to_sessions.get_mut(worker) else {
            // A worker that there is not has no sessions.
            return true;
        };
        if queue.push(emulated).is_err() {
            return false;
        }
        if let Some(bell) = self.bells[worker].get() {
            bell.wake_by_ref();
        }
        true
    }
}

impl Ends {
    /// Tells all workers but this one, or none if one of them has no room for it.
    pub(crate) fn order(&mut self, own: usize, order: &Order) -> bool {
        let mut others = self.to_orders.iter().enumerate();
        if others.any(|(other, queue)| other != own && queue.is_full()) {
            return false;
        }
        for (other, queue) in self.to_orders.iter_mut().enumerate() {
            if other != own
                && queue.push(order.clone()).is_ok()
                && let Some(bell) = self.bells[other].get()
            {
                bell.wake_by_ref();
            }
        }
        true
    }
}

impl Ends {
    /// Tells another worker: there is room for all that can be under way.
    pub(crate) fn survey(&mut self, worker: usize, survey: Survey) {
        if self.to_surveys[worker].push(survey).is_err() {
            log::error!("push: a list of channels found no room on its way to another worker");
        }
        if let Some(bell) = self.bells[worker].get() {
            bell.wake_by_ref();
        }
    }

    /// What another worker has told, and which.
    pub(crate) fn next_survey(&mut self) -> Option<(usize, Survey)> {
        let mut queues = self.as_surveys.iter_mut().enumerate();
        queues.find_map(|(from, queue)| Some((from, queue.pop().ok()?)))
    }
}

fn make(slots: &Arc<[Slot]>, node: &str, since: Time, admission: &Arc<Admission>) -> Made {
    let workers = slots.len();
    let (node, clients): (Arc<str>, _) = (Arc::from(node), Arc::default());
    let bells: Arc<[OnceLock<Waker>]> = (0..workers).map(|_| OnceLock::new()).collect();
    let mut ends: Vec<Ends> = (0..workers)
        .map(|_| Ends {
            to_homes: Vec::new(),
            as_home: Vec::new(),
            to_workers: Vec::new(),
            as_worker: Vec::new(),
            to_sessions: Vec::new(),
            as_sessions: Vec::new(),
            to_orders: Vec::new(),
            as_orders: Vec::new(),
            to_surveys: Vec::new(),
            as_surveys: Vec::new(),
            node: Arc::clone(&node),
            clients: Arc::clone(&clients),
            admission: Arc::clone(admission),
            since,
            bells: Arc::clone(&bells),
            slots: Arc::clone(slots),
            rings: vec![false; workers],
        })
        .collect();
    for from in 0..workers {
        for to in 0..workers {
            let (writer, reader) = RingBuffer::new(limits::QUEUE);
            ends[from].to_homes.push(writer);
            ends[to].as_home.push(reader);
            let (writer, reader) = RingBuffer::new(limits::QUEUE);
            ends[from].to_workers.push(writer);
            ends[to].as_worker.push(reader);
            let (writer, reader) = RingBuffer::new(limits::EMULATED);
            ends[from].to_sessions.push(writer);
            ends[to].as_sessions.push(reader);
            let (writer, reader) = RingBuffer::new(limits::ORDERS);
            ends[from].to_orders.push(writer);
            ends[to].as_orders.push(reader);
            // Each asks so many at most, and answers as many of the other's.
            let (writer, reader) = RingBuffer::new(2 * limits::SURVEYS);
            ends[from].to_surveys.push(writer);
            ends[to].as_surveys.push(reader);
        }
    }
    Mutex::new(ends.into_iter().map(Some).collect())
}
