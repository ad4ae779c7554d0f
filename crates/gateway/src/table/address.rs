//! Listening addresses, and the selection of the listener for a connection or a request. Knows no routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::host_map::ByHost;
use crate::model::{Addr, Hostname, Listener};

/// The index of an address in `Addresses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressId(pub(super) u32);

/// The index of a listener. Valid for one table only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(pub(super) u32);

/// The addresses of a table.
#[derive(Debug)]
pub struct AddressTable(Box<[SharedAddress]>);

/// An address and its listeners.
#[derive(Debug)]
struct SharedAddress {
    address: Addr,
    /// The address is for datagrams, which have a port space of their own.
    datagrams: bool,
    listeners: Vec<(ListenerId, Arc<Listener>)>,
    /// The listener of each host. `None`: the host is of a listener that cannot be served: no other listener receives its requests.
    by_host: ByHost<Option<ListenerId>>,
}

/// A shared address while listeners are added.
struct AddressBuilder {
    address: Addr,
    datagrams: bool,
    listeners: Vec<(ListenerId, Arc<Listener>)>,
    refused: Vec<Hostname>,
}

impl AddressBuilder {
    fn build(self) -> SharedAddress {
        let mut named: BTreeMap<&Hostname, Option<ListenerId>> = BTreeMap::new();
        let mut any = None;
        // The first of equals; listeners of one address are never equal.
        for (id, listener) in &self.listeners {
            if listener.hostnames.is_empty() {
                any.get_or_insert(Some(*id));
            }
            for host in &listener.hostnames {
                named.entry(host).or_insert(Some(*id));
            }
        }
        for host in &self.refused {
            named.entry(host).or_insert(None);
        }
        let named = named.into_iter().map(|(host, id)| (host.clone(), id));
        SharedAddress {
            by_host: ByHost::new(named.collect(), any),
            address: self.address,
            datagrams: self.datagrams,
            listeners: self.listeners,
        }
    }
}

impl AddressTable {
    /// Groups listeners by address. `left_out` are listeners that cannot be served. Each port 0 is an address of its own.
    pub(super) fn new(listeners: &[&Arc<Listener>], left_out: &[&Arc<Listener>]) -> AddressTable {
        let mut addresses: Vec<AddressBuilder> = Vec::new();
        let mut numbers: BTreeMap<(&Addr, bool), usize> = BTreeMap::new();
        for (id, listener) in (0..).map(ListenerId).zip(listeners) {
            let datagrams = listener.protocol == crate::model::Protocol::Udp;
            for address in &listener.addresses {
                let any = matches!(address, Addr::Inet(address) if address.port() == 0);
                let known = numbers.get(&(address, datagrams)).filter(|_| !any);
                if let Some(known) = known {
                    addresses[*known].listeners.push((id, Arc::clone(listener)));
                    continue;
                }
                if !any {
                    numbers.insert((address, datagrams), addresses.len());
                }
                addresses.push(AddressBuilder {
                    address: address.clone(),
                    datagrams,
                    listeners: vec![(id, Arc::clone(listener))],
                    refused: Vec::new(),
                });
            }
        }
        let mut refused: BTreeMap<usize, Vec<Hostname>> = BTreeMap::new();
        if !left_out.is_empty() {
            let mut by_address: BTreeMap<&Addr, Vec<usize>> = BTreeMap::new();
            for (number, shared) in addresses
                .iter()
                .enumerate()
                .filter(|(_, shared)| !shared.datagrams)
            {
                by_address.entry(&shared.address).or_default().push(number);
            }
            for listener in left_out {
                let own = listener
                    .addresses
                    .iter()
                    .filter_map(|address| by_address.get(address));
                for number in own.flatten() {
                    let (_, served) = &addresses[*number].listeners[0];
                    if listener.protocol.has_sni() == served.protocol.has_sni() {
                        let hosts = refused.entry(*number).or_default();
                        hosts.extend_from_slice(&listener.hostnames);
                    }
                }
            }
        }
        for (number, hosts) in refused {
            addresses[number].refused = hosts;
        }
        AddressTable(addresses.into_iter().map(AddressBuilder::build).collect())
    }

    /// Returns an address. `None`: `id` is of another table and beyond this one's addresses.
    pub(crate) fn address(&self, id: AddressId) -> Option<&Addr> {
        Some(&self.0.get(id.0 as usize)?.address)
    }

    /// Returns every address, and whether it is for datagrams.
    pub fn iter(&self) -> impl Iterator<Item = (AddressId, &Addr, bool)> {
        let all = (0..).map(AddressId).zip(&self.0);
        all.map(|(id, shared)| (id, &shared.address, shared.datagrams))
    }

    /// Returns the listeners of an address, in the order of the configuration; at least one. The PROXY protocol, and whether
    /// connections begin with TLS, is the same for each.
    ///
    /// # Panics
    /// `id` is of another table and beyond this one's addresses.
    pub fn listeners(&self, id: AddressId) -> impl Iterator<Item = (ListenerId, &Arc<Listener>)> {
        let listeners = self.0[id.0 as usize].listeners.iter();
        listeners.map(|(id, listener)| (*id, listener))
    }

    /// Returns the listener of an address for a host: the one with the exact name, then the one with the longest wildcard,
    /// then the one for all others. `host` is in the form of [`normalize_host`](super::normalize_host); empty without SNI or `Host`. `None`: no listener
    /// has the host; a connection is refused and a request is answered with 421 (with TLS) or 404.
    ///
    /// On a TLS connection the listener of a request's host must be the one that the SNI selected, else the response is
    /// 421: the demands of one listener on the client (such as its certificate) do not satisfy another.
    ///
    /// # Panics
    /// `id` is of another table and beyond this one's addresses.
    #[must_use]
    pub fn select_listener(&self, id: AddressId, host: &str) -> Option<ListenerId> {
        self.0[id.0 as usize]
            .by_host
            .find_first(host, |id| Some(*id))
            .flatten()
    }
}

/// Returns the specificity, computed without an index, of a listener with these hosts for a host; higher is more specific. `None`: the host is not one of these.
#[cfg(test)]
pub(crate) fn host_specificity(hostnames: &[Hostname], host: &str) -> Option<usize> {
    if hostnames.is_empty() {
        return Some(0);
    }
    let matching = hostnames.iter().filter(|name| name.matches(host));
    let ranks = matching.map(|name| match name.wildcard_suffix() {
        Some(suffix) => suffix.len(),
        None => usize::MAX,
    });
    ranks.max()
}
