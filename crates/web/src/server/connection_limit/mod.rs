//! The limit on connections per client address: counts them process-wide when they open and close. A client is one IPv4 address or
//! an IPv6 network ([`client_network`]).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::client_network;

/// Shards of the table, each with a lock of its own, to reduce contention between workers.
const SHARDS: usize = 16;

/// Connections by address. Has one entry for each address with any, so at most one per connection.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    limit: Option<u32>,
    shards: [Mutex<BTreeMap<IpAddr, u32>>; SHARDS],
}

impl ConnectionLimit {
    pub(crate) fn new(limit: Option<u32>) -> ConnectionLimit {
        ConnectionLimit {
            limit,
            shards: std::array::from_fn(|_| Mutex::new(BTreeMap::new())),
        }
    }

    /// Returns true if connections are counted.
    pub(crate) fn is_enabled(&self) -> bool {
        self.limit.is_some()
    }

    /// Counts a connection of `address`; `false`: the address has reached its limit.
    pub(crate) fn acquire(&self, address: IpAddr) -> bool {
        let Some(limit) = self.limit.filter(|_| !is_exempt(address)) else {
            return true;
        };
        let address = client_network(address);
        let mut shard = self.shard(address);
        let count = shard.entry(address).or_insert(0);
        if *count >= limit {
            return false;
        }
        *count += 1;
        true
    }

    /// Removes a counted connection when it closes.
    pub(crate) fn release(&self, address: IpAddr) {
        if self.limit.is_none() || is_exempt(address) {
            return;
        }
        let address = client_network(address);
        let mut shard = self.shard(address);
        if let Some(count) = shard.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&address);
            }
        }
    }

    /// Returns the number of counted addresses.
    #[cfg(feature = "testing")]
    pub(crate) fn addresses(&self) -> usize {
        let count =
            |shard: &Mutex<BTreeMap<IpAddr, u32>>| shard.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.shards.iter().map(count).sum()
    }

    fn shard(&self, address: IpAddr) -> MutexGuard<'_, BTreeMap<IpAddr, u32>> {
        let last = match address {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets().iter().fold(0, |sum, octet| sum ^ octet),
        };
        let shard = &self.shards[usize::from(last) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Exempts loopback: a local proxy represents many clients, and a load test opens many connections.
fn is_exempt(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
