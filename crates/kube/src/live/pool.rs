//! The addresses of Gateways, out of a range that is routed to this host. Pure: replicas that see the same objects assign alike.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ringmain_gateway::model::{Addr, Network};
use serde_json::Value;

use crate::limits;
use crate::objects::{Gateway, GatewayAddress, Id};
use crate::translate::{AddressProblem, Placement, Places, StatusAddress};

/// Addresses that are tried before the range counts as full.
const PROBES: u128 = 1 << 16;

/// The addresses of Gateways.
#[derive(Debug)]
pub(super) struct Pool {
    network: Network,
    assigned: BTreeMap<Id, Vec<IpAddr>>,
}

impl Pool {
    pub(super) fn new(network: Network) -> Pool {
        Pool {
            network,
            assigned: BTreeMap::new(),
        }
    }

    /// Assigns addresses to these Gateways, which are in the order of precedence. Addresses that a Gateway has and still wants take
    /// precedence over requests of others, so that no Gateway can take over the address of another one; then requested addresses,
    /// then free ones. A Gateway has those of its status, where clients find it, or else those of the last assignment.
    pub(super) fn assign(&mut self, gateways: &[&Arc<Gateway>]) {
        let last = std::mem::take(&mut self.assigned);
        let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
        let gateways = &gateways[..gateways.len().min(limits::GATEWAYS)];
        for gateway in gateways {
            let id = gateway.metadata.id();
            let mut held = published(gateway);
            if held.is_empty() {
                held = last.get(&id).cloned().unwrap_or_default();
            }
            let held = held.into_iter();
            // Any address: one is enough.
            let count = if wants_any(gateway) { 1 } else { usize::MAX };
            let kept = held.filter(|address| wants(gateway, *address) && self.is_usable(*address));
            let kept: Vec<_> = kept.take(count).collect();
            for address in kept {
                self.take(&mut taken, &id, address);
            }
        }
        for gateway in gateways {
            let id = gateway.metadata.id();
            let usable: Vec<_> = requested(gateway)
                .filter(|address| self.is_usable(*address))
                .collect();
            for address in usable {
                self.take(&mut taken, &id, address);
            }
        }
        for gateway in gateways.iter().filter(|gateway| wants_any(gateway)) {
            let id = gateway.metadata.id();
            if self.assigned.contains_key(&id) {
                continue;
            }
            // Without a free one its status reports that.
            if let Some(address) = self.free(&taken, &id) {
                self.take(&mut taken, &id, address);
            }
        }
    }

    /// Returns whether another replica has published other addresses of a Gateway than this one has assigned.
    pub(super) fn differs_from_status(&self, gateway: &Gateway) -> bool {
        let (assigned, published) = (self.assigned(gateway), published(gateway));
        !assigned.is_empty() && !published.is_empty() && assigned != published
    }

    fn assigned(&self, gateway: &Gateway) -> &[IpAddr] {
        self.assigned
            .get(&gateway.metadata.id())
            .map_or(&[], Vec::as_slice)
    }

    /// Assigns an address unless it is taken.
    fn take(&mut self, taken: &mut BTreeSet<IpAddr>, id: &Id, address: IpAddr) {
        if taken.insert(address) {
            self.assigned.entry(id.clone()).or_default().push(address);
        }
    }

    /// Within the range, without its first and last address: of IPv4 these are the network's own.
    fn is_usable(&self, address: IpAddr) -> bool {
        let (first, last) = self.bounds();
        let number = number(address);
        self.network.contains(address) && (first == last || (number != first && number != last))
    }

    /// The first free address from a place on that the name determines.
    fn free(&self, taken: &BTreeSet<IpAddr>, id: &Id) -> Option<IpAddr> {
        let (first, last) = self.bounds();
        let size = (last - first).saturating_add(1);
        let start = u128::from(crate::hash::hash(&id.to_string())) % size;
        let tried = (0..size.min(PROBES)).map(|step| first + (start + step) % size);
        let mut addresses = tried.map(|number| self.address(number));
        addresses.find(|address| self.is_usable(*address) && !taken.contains(address))
    }

    fn bounds(&self) -> (u128, u128) {
        let width = if self.network.address().is_ipv4() { 32 } else { 128 };
        let spare = width - u32::from(self.network.bits());
        let first = number(self.network.address());
        let rest = 1_u128.checked_shl(spare).map_or(u128::MAX, |size| size - 1);
        (first, first.saturating_add(rest))
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.network.address() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
        }
    }
}

impl Places for Pool {
    fn place(&self, gateway: &Gateway) -> Placement {
        let assigned = self.assigned(gateway);
        let kind = |address: &GatewayAddress| address.kind.clone().unwrap_or_else(|| "IPAddress".to_owned());
        let unsupported = gateway
            .spec
            .addresses
            .iter()
            .map(kind)
            .find(|kind| kind != "IPAddress");
        let missing = || {
            let mut addresses = gateway.spec.addresses.iter();
            addresses.find(|address| !address.value.is_empty() && !is_in(assigned, &address.value))
        };
        let problem = if let Some(kind) = unsupported {
            let message = format!("addresses of type {kind} are not supported, IPAddress is");
            Some(AddressProblem::Unsupported(message))
        } else if let Some(address) = missing() {
            let message = format!("{} is not a free address of {}", address.value, self.network);
            Some(AddressProblem::NotUsable(message))
        } else if assigned.is_empty() {
            let message = format!("no address of {} is free", self.network);
            Some(AddressProblem::NotAssigned(message))
        } else {
            None
        };
        Placement {
            addresses: assigned.iter().map(StatusAddress::ip).collect(),
            problem,
        }
    }

    fn bind(&self, gateway: &Gateway, port: u16) -> Vec<Addr> {
        let assigned = self.assigned(gateway).iter();
        assigned
            .map(|address| Addr::Inet((*address, port).into()))
            .collect()
    }
}

fn is_in(assigned: &[IpAddr], value: &str) -> bool {
    value.parse().is_ok_and(|address| assigned.contains(&address))
}

/// The addresses that a Gateway asks for by value.
fn requested(gateway: &Gateway) -> impl Iterator<Item = IpAddr> {
    let addresses = gateway.spec.addresses.iter();
    let of_type = addresses.filter(|address| address.kind.as_deref().is_none_or(|kind| kind == "IPAddress"));
    of_type.filter_map(|address| address.value.parse().ok())
}

/// Returns `true` for a Gateway that accepts any address.
fn wants_any(gateway: &Gateway) -> bool {
    let addresses = &gateway.spec.addresses;
    addresses.is_empty() || addresses.iter().all(|address| address.value.is_empty())
}

/// Returns whether a Gateway asks for this address, or for any.
fn wants(gateway: &Gateway, address: IpAddr) -> bool {
    wants_any(gateway) || requested(gateway).any(|wanted| wanted == address)
}

/// The addresses that the status of a Gateway has, which may be another replica's assignment.
fn published(gateway: &Gateway) -> Vec<IpAddr> {
    let status = gateway.status.fields();
    let addresses = status.get("addresses").and_then(Value::as_array);
    let values = addresses
        .into_iter()
        .flatten()
        .filter_map(|address| address.get("value")?.as_str());
    values.filter_map(|value| value.parse().ok()).collect()
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
