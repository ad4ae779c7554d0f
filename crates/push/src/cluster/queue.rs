//! The queue of the workers' requests, with one reader.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crossbeam_queue::ArrayQueue;

use super::{ClusterRequest, ClusterRequestId};
use crate::limits;

/// The bits of a request's number below those of its worker.
const WORKER_SHIFT: u32 = 48;

/// Returns the identity of a worker's request.
pub(crate) fn request_id(worker: usize, number: u64) -> ClusterRequestId {
    ClusterRequestId((worker as u64) << WORKER_SHIFT | number & ((1 << WORKER_SHIFT) - 1))
}

/// Returns the worker of a request.
pub(super) fn worker_of_request(request: ClusterRequestId) -> usize {
    (request.0 >> WORKER_SHIFT) as usize
}

/// See the module.
pub(crate) struct ClusterQueue {
    queue: ArrayQueue<ClusterRequest>,
    waker: Mutex<Option<Waker>>,
    /// The reader was woken and has not polled since.
    is_woken: AtomicBool,
}

impl ClusterQueue {
    pub(super) fn new() -> ClusterQueue {
        ClusterQueue {
            queue: ArrayQueue::new(limits::CLUSTER_QUEUE),
            waker: Mutex::new(None),
            is_woken: AtomicBool::new(false),
        }
    }

    /// Adds a request, or returns it if there is no room.
    pub(crate) fn push(&self, request: ClusterRequest) -> Option<ClusterRequest> {
        self.queue.push(request).err()
    }

    /// Wakes the reader.
    pub(crate) fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner)
        {
            waker.wake_by_ref();
        }
    }

    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<ClusterRequest> {
        if let Some(request) = self.queue.pop() {
            return Poll::Ready(request);
        }
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        self.is_woken.store(false, Ordering::Release);
        // A request that was added before has woken no task.
        self.queue.pop().map_or(Poll::Pending, Poll::Ready)
    }
}

impl std::fmt::Debug for ClusterQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterQueue")
    }
}
