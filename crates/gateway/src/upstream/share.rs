//! Places of an upstream that are held on account of one client each: what a client can hold is bounded by what it gives.
//!
//! A request holds its place on its client's account as long as its body is neither whole nor has brought
//! [`WORTH_BYTES`](crate::limits::WORTH_BYTES), and a tunnel for its life. All that a client address holds so, over all of its
//! connections and streams, is at most a share of the upstream's places. Requests whose bodies are whole are not counted: what
//! they wait for is the upstream's.
//!
//! The queue of requests that wait for a place is anybody's until it is half full; of the rest one client address has half.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::Shared;
use crate::limits;

/// A client address: that of IPv4, the /64 of IPv6. Clients without an address (Unix sockets) are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder(Option<(bool, u128)>);

impl From<Option<IpAddr>> for Holder {
    fn from(address: Option<IpAddr>) -> Holder {
        Holder(address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => (false, address.to_bits().into()),
            IpAddr::V6(address) => (true, address.to_bits() >> 64),
        }))
    }
}

/// See the module. Has as many entries as there are places held, which is bounded by the upstream's pool.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    all: u32,
    clients: BTreeMap<Holder, u32>,
    /// Requests that wait for a place on their client's account.
    waiting: Vec<Waker>,
}

/// How many places may be held on account of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// By one of them.
    pub(crate) client: u32,
    /// By all of them; `None`: any number.
    pub(crate) all: Option<u32>,
}

/// What is held on a client's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// A place of the pool.
    Place,
    /// A turn in the queue of requests that wait for one.
    Turn,
}

/// A place or turn that is held on a client's account until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    shared: Arc<Shared>,
    account: Account,
    holder: Holder,
}

impl Shares {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn account(&self, account: Account) -> &Shares {
        match account {
            Account::Place => &self.shares,
            Account::Turn => &self.turns,
        }
    }

    /// Counts a place or turn on a client's account. `None`: it has as many as it may; `waker` is woken when one becomes free.
    pub(crate) fn hold(
        self: &Arc<Self>,
        (account, holder): (Account, Holder),
        most: Most,
        waker: &Waker,
    ) -> Option<Held> {
        let table = &mut *self.account(account).lock();
        let held = table.clients.get(&holder).copied().unwrap_or_default();
        if held >= most.client || most.all.is_some_and(|all| table.all >= all) {
            // Those of requests that are over are among them: beyond the limit who still waits comes again.
            let over = match table.waiting.len() < limits::SHARE_WAKERS {
                true => Vec::new(),
                false => std::mem::take(&mut table.waiting),
            };
            if !table.waiting.iter().any(|other| other.will_wake(waker)) {
                table.waiting.push(waker.clone());
            }
            over.into_iter().for_each(Waker::wake);
            return None;
        }
        table.clients.insert(holder, held + 1);
        table.all += 1;
        Some(Held {
            shared: Arc::clone(self),
            account,
            holder,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let waiting = {
            let table = &mut *self.shared.account(self.account).lock();
            table.all -= 1;
            if let Some(held) = table.clients.get_mut(&self.holder) {
                *held -= 1;
                if *held == 0 {
                    table.clients.remove(&self.holder);
                }
            }
            std::mem::take(&mut table.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
