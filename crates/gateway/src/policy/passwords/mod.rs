//! Slots for password checks, which are slow and large by design: process-wide, with a limit in bytes, in turn by client.
//!
//! A check runs on the blocking pool and ends there even if its client has left, so its slot belongs to the check and not to the
//! request.

mod queue;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use ringmain_engine::Cx;

use self::queue::{CheckQueue, SlotRequest};
use crate::limits;
use crate::resolve::with_timeout;

/// The client that a turn belongs to: an address, for IPv6 a network. `None`: all clients without a known address.
pub(super) type ClientAddr = Option<IpAddr>;

/// The slots for password checks of the process.
#[derive(Debug, Default)]
pub(crate) struct PasswordChecks(Mutex<CheckState>);

#[derive(Debug, Default)]
struct CheckState {
    queue: CheckQueue,
    /// Entries of the queue, and those that were granted or evicted and have not been polled since.
    waiters: BTreeMap<u64, CheckWaiter>,
}

#[derive(Debug)]
enum CheckWaiter {
    Waiting(Option<Waker>),
    Granted,
    Evicted,
}

/// A slot for one check, released when it is dropped.
#[derive(Debug)]
pub(super) struct CheckPermit {
    checks: Arc<PasswordChecks>,
    bytes: u64,
}

impl PasswordChecks {
    /// Waits for a slot for a check that takes `bytes`. `None`: too many checks wait, or the wait timed out.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        cx: &Cx,
        client: ClientAddr,
        bytes: u64,
    ) -> Option<CheckPermit> {
        let permit = || CheckPermit {
            checks: Arc::clone(self),
            bytes,
        };
        let entry = match self.request_slot(client, bytes) {
            SlotRequest::Granted => return Some(permit()),
            SlotRequest::Refused => return None,
            SlotRequest::Queued { ticket, .. } => CheckEntry {
                checks: self,
                client,
                bytes,
                ticket,
            },
        };
        let wait = poll_fn(|context| {
            let mut state = self.state();
            match state.waiters.get_mut(&entry.ticket) {
                Some(CheckWaiter::Waiting(waker)) => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
                Some(CheckWaiter::Granted) => {
                    state.waiters.remove(&entry.ticket);
                    Poll::Ready(true)
                }
                Some(CheckWaiter::Evicted) | None => Poll::Ready(false),
            }
        });
        let granted = with_timeout(cx, limits::PASSWORD_WAIT, wait).await;
        granted.unwrap_or(false).then(permit)
    }

    fn request_slot(&self, client: ClientAddr, bytes: u64) -> SlotRequest {
        let mut state = self.state();
        let position = state.queue.request_slot(client, bytes);
        let SlotRequest::Queued { ticket, evicted } = position else {
            return position;
        };
        state.waiters.insert(ticket, CheckWaiter::Waiting(None));
        let wakers = evicted.and_then(|evicted| state.resolve_entry(evicted, CheckWaiter::Evicted));
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        position
    }

    fn change_queue(&self, change: impl FnOnce(&mut CheckState) -> Vec<u64>) {
        let mut state = self.state();
        let granted = change(&mut state);
        let wakers: Vec<Waker> = granted
            .into_iter()
            .filter_map(|ticket| state.resolve_entry(ticket, CheckWaiter::Granted))
            .collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, CheckState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CheckState {
    /// Records the outcome of an entry that has left the queue. Returns the waker of its request.
    fn resolve_entry(&mut self, ticket: u64, outcome: CheckWaiter) -> Option<Waker> {
        match self.waiters.insert(ticket, outcome) {
            Some(CheckWaiter::Waiting(waker)) => waker,
            _ => None,
        }
    }
}

impl Drop for CheckPermit {
    fn drop(&mut self) {
        self.checks.change_queue(|state| state.queue.release(self.bytes));
    }
}

/// A request's entry in the queue while it waits.
struct CheckEntry<'c> {
    checks: &'c PasswordChecks,
    client: ClientAddr,
    bytes: u64,
    ticket: u64,
}

impl Drop for CheckEntry<'_> {
    fn drop(&mut self) {
        self.checks
            .change_queue(|state| match state.waiters.remove(&self.ticket) {
                Some(CheckWaiter::Waiting(_)) => state.queue.remove_entry(self.client, self.ticket),
                // Granted at the instant at which the request was dropped.
                Some(CheckWaiter::Granted) => state.queue.release(self.bytes),
                Some(CheckWaiter::Evicted) | None => Vec::new(),
            });
    }
}
