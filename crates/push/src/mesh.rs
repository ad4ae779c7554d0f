//! Queues between desks, of one writer and one reader each.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

use ringmain_hub::mail::{ToHome, ToWorker};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::limits;

/// All queues, until their workers take them.
#[derive(Default)]
pub(crate) struct Mesh {
    made: OnceLock<Made>,
}

/// By worker.
type Made = Mutex<Vec<Option<Ends>>>;

/// What one worker has of them, by the other worker.
pub(crate) struct Ends {
    pub(crate) to_homes: Vec<Producer<ToHome>>,
    pub(crate) as_home: Vec<Consumer<ToHome>>,
    pub(crate) to_workers: Vec<Producer<ToWorker>>,
    pub(crate) as_worker: Vec<Consumer<ToWorker>>,
    /// Of all desks: each sets its own when it begins.
    pub(crate) bells: Arc<[OnceLock<Waker>]>,
    /// Whom a turn has something for: kept for the memory alone.
    pub(crate) rings: Vec<bool>,
}

impl Mesh {
    /// A worker's ends, once. `None`: it has them.
    pub(crate) fn take(&self, worker: usize, workers: usize) -> Option<Ends> {
        let made = self.made.get_or_init(|| make(workers));
        let mut ends = made.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get_mut(worker)?.take()
    }
}

fn make(workers: usize) -> Made {
    let bells: Arc<[OnceLock<Waker>]> = (0..workers).map(|_| OnceLock::new()).collect();
    let mut ends: Vec<Ends> = (0..workers)
        .map(|_| Ends {
            to_homes: Vec::new(),
            as_home: Vec::new(),
            to_workers: Vec::new(),
            as_worker: Vec::new(),
            bells: Arc::clone(&bells),
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
        }
    }
    Mutex::new(ends.into_iter().map(Some).collect())
}
