//! Where is listened, and which listener a connection or a request belongs to. Knows no routes.

use std::sync::Arc;

use crate::model::{Addr, Hostname, Listener};

/// One of `Addresses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressId(pub(super) u32);

/// One of a table's listeners. Good for that table only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerId(pub(super) u32);

/// The addresses of a table.
#[derive(Debug)]
pub struct Addresses(Box<[Shared]>);

/// An address and its listeners.
#[derive(Debug)]
struct Shared {
    address: Addr,
    /// For datagrams, which have ports of their own.
    datagrams: bool,
    listeners: Vec<(ListenerId, Arc<Listener>)>,
    /// Hosts of listeners that cannot be served: no other listener receives their requests.
    refused: Vec<Hostname>,
}

impl Addresses {
    /// Of listeners that can be told apart, and of those that are left out. Port 0 is an address of its own each time.
    pub(super) fn new(listeners: &[&Arc<Listener>], left_out: &[&Arc<Listener>]) -> Addresses {
        let mut addresses: Vec<Shared> = Vec::new();
        for (id, listener) in (0..).map(ListenerId).zip(listeners) {
            let datagrams = listener.protocol == crate::model::Protocol::Udp;
            for address in &listener.addresses {
                let any = matches!(address, Addr::Inet(address) if address.port() == 0);
                let same = |shared: &&mut Shared| {
                    shared.address == *address && shared.datagrams == datagrams && !any
                };
                match addresses.iter_mut().find(same) {
                    Some(shared) => shared.listeners.push((id, Arc::clone(listener))),
                    None => addresses.push(Shared {
                        address: address.clone(),
                        datagrams,
                        listeners: vec![(id, Arc::clone(listener))],
                        refused: Vec::new(),
                    }),
                }
            }
        }
        for listener in left_out {
            let beside = |shared: &&mut Shared| {
                let (_, served) = &shared.listeners[0];
                let is_alike = listener.protocol.has_sni() == served.protocol.has_sni();
                is_alike && !shared.datagrams && listener.addresses.contains(&shared.address)
            };
            for shared in addresses.iter_mut().filter(beside) {
                shared.refused.extend_from_slice(&listener.hostnames);
            }
        }
        Addresses(addresses.into())
    }

    /// All of them, and whether datagrams are listened for.
    pub fn iter(&self) -> impl Iterator<Item = (AddressId, &Addr, bool)> {
        let all = (0..).map(AddressId).zip(&self.0);
        all.map(|(id, shared)| (id, &shared.address, shared.datagrams))
    }

    /// The listeners of an address, in the order of the configuration; at least one. They have the PROXY protocol and
    /// whether connections begin with TLS in common.
    ///
    /// # Panics
    /// `id` is of another table and beyond this one's addresses.
    pub fn listeners(&self, id: AddressId) -> impl Iterator<Item = (ListenerId, &Arc<Listener>)> {
        let listeners = self.0[id.0 as usize].listeners.iter();
        listeners.map(|(id, listener)| (*id, listener))
    }

    /// The listener of an address that a host belongs to: the one that has it, then the one with the longest wildcard,
    /// then the one for all others. `host` is in the form of [`host`](fn@super::host); empty if none was told. `None`: none,
    /// a connection is refused and a request answered 421 (with TLS) or 404.
    ///
    /// On a TLS connection the listener of a request's host must be the one that the SNI led to, else it is answered
    /// 421: what one listener asked of the client (its certificate, say) is nothing to another.
    ///
    /// # Panics
    /// `id` is of another table and beyond this one's addresses.
    #[must_use]
    pub fn admit(&self, id: AddressId, host: &str) -> Option<ListenerId> {
        let Shared {
            listeners, refused, ..
        } = &self.0[id.0 as usize];
        let ranked = listeners
            .iter()
            .filter_map(|(id, listener)| Some((rank(&listener.hostnames, host)?, *id)));
        // The first of those that are alike: of one address no two are.
        let (most, id) = ranked.max_by_key(|(rank, id)| (*rank, std::cmp::Reverse(*id)))?;
        let is_refused = !refused.is_empty() && rank(refused, host).is_some_and(|rank| rank > most);
        (!is_refused).then_some(id)
    }
}

/// How specific a listener with these hosts is for a host, the more the greater. `None`: it is not for that one.
pub(crate) fn rank(hostnames: &[Hostname], host: &str) -> Option<usize> {
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
