//! Limits the slots of an upstream that one client can hold before it has sent the bodies of its requests.
//!
//! A request holds a slot on its client's account until its body is complete or has reached
//! [`WORTH_BYTES`](crate::limits::WORTH_BYTES), and a tunnel for its whole life. The slots that a client address holds, over all its
//! connections and streams, are limited to a share of the upstream's slots. Requests with a complete body are not counted: they
//! wait for the upstream, not for the client.
//!
//! The queue of requests that wait for a slot is open to all until it is half full; of the rest one client address gets half.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::UpstreamState;
use crate::limits;

/// A client address: an IPv4 address, or the /64 of an IPv6 address. Clients without an address (Unix sockets) count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientKey(Option<(bool, u128)>);

impl From<Option<IpAddr>> for ClientKey {
    fn from(address: Option<IpAddr>) -> ClientKey {
        ClientKey(address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => (false, address.to_bits().into()),
            IpAddr::V6(address) => (true, address.to_bits() >> 64),
        }))
    }
}

/// Held slots by client. Has at most as many entries as slots are held, which the upstream's pool limits.
#[derive(Debug, Default)]
pub(crate) struct ClientShares(Mutex<ShareTable>);

#[derive(Debug, Default)]
struct ShareTable {
    total: u32,
    clients: BTreeMap<ClientKey, u32>,
    /// Requests that wait for a slot on their client's account.
    waiting: Vec<Waker>,
}

/// Limits on the slots that clients hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareLimits {
    /// Slots of one client.
    pub(crate) per_client: u32,
    /// Slots for all clients; `None`: no limit.
    pub(crate) total: Option<u32>,
}

/// The resource that a client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedResource {
    /// A slot of the pool.
    Slot,
    /// A position in the queue of requests that wait for a slot.
    QueuePosition,
}

/// A slot or position that is held on a client's account until this is dropped.
#[derive(Debug)]
pub(crate) struct ShareGuard {
    upstream: Arc<UpstreamState>,
    resource: SharedResource,
    client: ClientKey,
}

impl ClientShares {
    fn lock(&self) -> MutexGuard<'_, ShareTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpstreamState {
    fn shares_of(&self, account: SharedResource) -> &ClientShares {
        match account {
            SharedResource::Slot => &self.slot_shares,
            SharedResource::QueuePosition => &self.queue_shares,
        }
    }

    /// Counts a slot or position on a client's account. `None`: the client is at its limit; `waker` is woken when one becomes free.
    pub(crate) fn acquire_share(
        self: &Arc<Self>,
        account: SharedResource,
        holder: ClientKey,
        limits: ShareLimits,
        waker: &Waker,
    ) -> Option<ShareGuard> {
        let table = &mut *self.shares_of(account).lock();
        let held = table.clients.get(&holder).copied().unwrap_or_default();
        if held >= limits.per_client || limits.total.is_some_and(|all| table.total >= all) {
            // The list includes wakers of finished requests: at the limit all are woken, and those that still wait register again.
            let woken = if table.waiting.len() < limits::SHARE_WAKERS {
                Vec::new()
            } else {
                std::mem::take(&mut table.waiting)
            };
            if !table.waiting.iter().any(|other| other.will_wake(waker)) {
                table.waiting.push(waker.clone());
            }
            woken.into_iter().for_each(Waker::wake);
            return None;
        }
        table.clients.insert(holder, held + 1);
        table.total += 1;
        Some(ShareGuard {
            upstream: Arc::clone(self),
            resource: account,
            client: holder,
        })
    }
}

impl Drop for ShareGuard {
    fn drop(&mut self) {
        let waiting = {
            let table = &mut *self.upstream.shares_of(self.resource).lock();
            table.total -= 1;
            if let Some(held) = table.clients.get_mut(&self.client) {
                *held -= 1;
                if *held == 0 {
                    table.clients.remove(&self.client);
                }
            }
            std::mem::take(&mut table.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
