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

use self::queue::{Joined, Queue};
use crate::limits;
use crate::resolve::within;

/// The client that a turn belongs to: an address, for IPv6 a network. `None`: all clients without a known address.
pub(super) type Client = Option<IpAddr>;

/// The slots for password checks of the process.
#[derive(Debug, Default)]
pub(crate) struct PasswordChecks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// Entries of the queue, and those that were granted or evicted and have not been polled since.
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
enum Waiter {
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
        client: Client,
        bytes: u64,
    ) -> Option<CheckPermit> {
        let permit = || CheckPermit {
            checks: Arc::clone(self),
            bytes,
        };
        let entry = match self.join(client, bytes) {
            Joined::Granted => return Some(permit()),
            Joined::Refused => return None,
            Joined::Queued { ticket, .. } => Entry {
                checks: self,
                client,
                bytes,
                ticket,
            },
        };
        let turn = poll_fn(|context| {
            let mut state = self.state();
            match state.waiters.get_mut(&entry.ticket) {
                Some(Waiter::Waiting(waker)) => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
                Some(Waiter::Granted) => {
                    state.waiters.remove(&entry.ticket);
                    Poll::Ready(true)
                }
                Some(Waiter::Evicted) | None => Poll::Ready(false),
            }
        });
        let granted = within(cx, limits::PASSWORD_WAIT, turn).await;
        granted.unwrap_or(false).then(permit)
    }

    fn join(&self, client: Client, bytes: u64) -> Joined {
        let mut state = self.state();
        let joined = state.queue.join(client, bytes);
        let Joined::Queued { ticket, evicted } = joined else {
            return joined;
        };
        state.waiters.insert(ticket, Waiter::Waiting(None));
        let woken = evicted.and_then(|evicted| state.end(evicted, Waiter::Evicted));
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        joined
    }

    fn change(&self, change: impl FnOnce(&mut State) -> Vec<u64>) {
        let mut state = self.state();
        let granted = change(&mut state);
        let woken: Vec<Waker> = granted
            .into_iter()
            .filter_map(|ticket| state.end(ticket, Waiter::Granted))
            .collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Records the outcome of an entry that has left the queue. Returns the waker of its request.
    fn end(&mut self, ticket: u64, outcome: Waiter) -> Option<Waker> {
        match self.waiters.insert(ticket, outcome) {
            Some(Waiter::Waiting(waker)) => waker,
            _ => None,
        }
    }
}

impl Drop for CheckPermit {
    fn drop(&mut self) {
        self.checks.change(|state| state.queue.release(self.bytes));
    }
}

/// A request's entry in the queue while it waits.
struct Entry<'c> {
    checks: &'c PasswordChecks,
    client: Client,
    bytes: u64,
    ticket: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.checks
            .change(|state| match state.waiters.remove(&self.ticket) {
                Some(Waiter::Waiting(_)) => state.queue.leave(self.client, self.ticket),
                // Granted at the instant at which the request was dropped.
                Some(Waiter::Granted) => state.queue.release(self.bytes),
                Some(Waiter::Evicted) | None => Vec::new(),
            });
    }
}
