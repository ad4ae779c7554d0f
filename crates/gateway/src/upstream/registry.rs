//! Upstreams, states of endpoints, and counters of policies by name: the state that survives a change of configuration.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::PeerName;

use super::connection_budget::ConnectionBudget;
use super::selection;
use super::transport::Transport;
use super::{BalancedEndpoint, Balancer, EndpointState, UpstreamEndpoint, UpstreamSnapshot, UpstreamState};
use crate::fault::Fault;
use crate::model::{self, Config, EndpointLocation, Hostname, Name, Upstream};
use crate::rate::counters::LimitCounters;
use crate::resolve::{LookupError, ResolvedName};
use crate::table::{ListDiff, have_same_objects};

/// All upstreams of a gateway. Used when the configuration or the addresses of a name change, never by requests.
#[derive(Debug, Default)]
pub(crate) struct UpstreamRegistry {
    upstreams: BTreeMap<Name, Arc<UpstreamState>>,
    /// Upstreams with hostnames, active health checks or TLS, which each change looks at; most of many upstreams have none of these.
    special: BTreeMap<Name, Arc<UpstreamState>>,
    /// The number of configurations that were staged: an upstream has that of the last one that lists it.
    staging: u64,
    /// Upstreams by number; the number of one that was released is reused.
    by_id: Vec<Weak<UpstreamState>>,
    /// No number below it is free.
    first_free_id: usize,
    endpoints: BTreeMap<(Name, String), Arc<EndpointState>>,
    names: BTreeMap<Hostname, LookupState>,
    connection_budget: Arc<ConnectionBudget>,
    counters: LimitCounters,
    /// Upstreams of a configuration that is being compiled, with the state they have after the commit.
    staged: Vec<(Arc<UpstreamState>, Arc<UpstreamSnapshot>)>,
    /// Upstreams that only this configuration has.
    added: Vec<Name>,
    /// Upstreams that it does not have. `None`: those that are not marked as listed.
    unlisted: Option<BTreeSet<Name>>,
    /// Upstreams whose endpoints are not those of the configuration.
    overridden: BTreeSet<Name>,
    /// Upstreams that may have states of endpoints that are not theirs any more.
    unswept: BTreeSet<Name>,
}

/// The result of resolving a name.
#[derive(Debug)]
enum LookupState {
    Addresses {
        addresses: Vec<IpAddr>,
        /// A later lookup has failed.
        stale: bool,
    },
    /// No lookup has succeeded.
    Failed(Fault),
}

/// Endpoints of a [`UpstreamSnapshot`] that is being built.
#[derive(Default)]
struct EndpointListBuilder {
    endpoints: Vec<(UpstreamEndpoint, Option<Hostname>)>,
    /// The same endpoints.
    balanced: Vec<BalancedEndpoint>,
    addresses: BTreeSet<Addr>,
    absence: Option<Fault>,
    is_pending: bool,
}

impl EndpointListBuilder {
    fn add(&mut self, config: &model::Endpoint, addr: Addr, authority: String, host: Option<&Hostname>) {
        // Two names may have the same address.
        if !self.addresses.insert(addr.clone()) {
            return;
        }
        let endpoint = UpstreamEndpoint {
            addr,
            authority: authority.into(),
            tls_name: None,
            token: 0,
            weight: config.weight,
            distance: config.distance,
            draining: config.draining,
            state: Arc::default(),
        };
        self.balanced.push(BalancedEndpoint {
            name: endpoint.addr.to_string(),
            weight: config.weight,
            distance: config.distance,
            zone: config.zone.clone(),
        });
        self.endpoints.push((endpoint, host.cloned()));
    }
}

/// Returns the name of a TLS session without SNI.
fn session_name(addr: &Addr) -> String {
    match addr {
        Addr::Inet(address) => address.ip().to_string(),
        _ => Ipv4Addr::LOCALHOST.to_string(),
    }
}

/// Returns whether an upstream has a part that depends on more than its own configuration: names to resolve, health checks or TLS.
fn is_special(config: &Upstream) -> bool {
    config.tls.is_some() || config.health.active.is_some() || hostnames_of(config).next().is_some()
}

fn hostnames_of(config: &Upstream) -> impl Iterator<Item = &Hostname> {
    config
        .endpoints
        .iter()
        .filter_map(|endpoint| match &endpoint.address {
            EndpointLocation::Host { name, .. } => Some(name),
            EndpointLocation::Address(_) | EndpointLocation::Unix(_) => None,
        })
}

impl UpstreamRegistry {
    /// Stages the upstreams of a configuration: they change at [`UpstreamRegistry::commit`], and remain as they are at
    /// [`UpstreamRegistry::discard`]. Of two upstreams with one name the first counts. `last` is the configuration that was committed last.
    /// `now` is the time since the Unix epoch.
    pub(crate) fn stage(&mut self, config: &Config, last: Option<&Config>, now: Duration) {
        self.staging += 1;
        self.unlisted = last.and_then(|last| self.stage_changed(config, last, now));
        if self.unlisted.is_some() {
            return;
        }
        for upstream in &config.upstreams {
            self.stage_upstream(upstream, config, now);
        }
    }

    /// Stages the upstreams that are not those of the last configuration, and returns the names that only that one has. `None`: the others
    /// have to be compared, too.
    fn stage_changed(&mut self, config: &Config, last: &Config, now: Duration) -> Option<BTreeSet<Name>> {
        let has_tls = |upstream: &Arc<UpstreamState>| upstream.snapshot().config.tls.is_some();
        let has_same_rest = have_same_objects(&config.certificates, &last.certificates)
            && have_same_objects(&config.authorities, &last.authorities)
            && have_same_objects(&config.streams, &last.streams);
        // TLS depends on other parts.
        if !has_same_rest && self.special.values().any(has_tls) {
            return None;
        }
        let diff = ListDiff::of(&last.upstreams, &config.upstreams);
        let old = last.upstreams[diff.old].iter().map(|upstream| &upstream.name);
        let old: BTreeSet<&Name> = old.collect();
        let changed = &config.upstreams[diff.new];
        let new: BTreeSet<&Name> = changed.iter().map(|upstream| &upstream.name).collect();
        let mut added = new.difference(&old);
        let has_duplicates = self.upstreams.len() != last.upstreams.len()
            || new.len() != changed.len()
            || added.any(|name| self.upstreams.contains_key(*name));
        let is_staged = |name: &Name| new.contains(name) || old.contains(name);
        if has_duplicates || !self.overridden.iter().all(is_staged) {
            return None;
        }
        let removed = old.difference(&new).map(|name| Name::clone(name)).collect();
        for upstream in changed {
            self.stage_upstream(upstream, config, now);
        }
        Some(removed)
    }

    fn stage_upstream(&mut self, config: &Arc<Upstream>, full_config: &Config, now: Duration) {
        if let Some(upstream) = self.upstreams.get(&config.name) {
            if !upstream.list_in(self.staging) {
                return;
            }
            let last = upstream.snapshot();
            // A transport without TLS depends on no other part of the configuration.
            if Arc::ptr_eq(&last.config, config) && config.tls.is_none() {
                return;
            }
            let upstream = Arc::clone(upstream);
            let transport = Transport::of(config, full_config, Some(&last.transport), now);
            if *last.config != **config || !Arc::ptr_eq(&last.transport, &transport) {
                let current = Arc::new(self.build_snapshot(config, transport));
                if is_special(config) {
                    self.special
                        .insert(Arc::clone(&upstream.name), Arc::clone(&upstream));
                }
                self.staged.push((upstream, current));
            }
            return;
        }
        let transport = Transport::of(config, full_config, None, now);
        let current = Arc::new(self.build_snapshot(config, transport));
        let id = self.allocate_id();
        let upstream = Arc::new(UpstreamState::new(
            id,
            config.name.clone(),
            current,
            Arc::clone(&self.connection_budget),
        ));
        upstream.list_in(self.staging);
        match self.by_id.get_mut(id) {
            Some(number) => *number = Arc::downgrade(&upstream),
            None => self.by_id.push(Arc::downgrade(&upstream)),
        }
        self.index(&upstream, config);
        self.upstreams.insert(config.name.clone(), upstream);
        self.added.push(config.name.clone());
    }

    /// Records whether each change looks at an upstream with this configuration.
    fn index(&mut self, upstream: &Arc<UpstreamState>, config: &Upstream) {
        if is_special(config) {
            self.special
                .insert(Arc::clone(&upstream.name), Arc::clone(upstream));
        } else {
            self.special.remove(&upstream.name);
        }
    }

    fn allocate_id(&mut self) -> usize {
        let mut free_ids = self.by_id[self.first_free_id..].iter();
        let free = free_ids.position(|number| number.strong_count() == 0);
        let id = free.map_or(self.by_id.len(), |at| self.first_free_id + at);
        self.first_free_id = id + 1;
        id
    }

    /// Replaces the endpoints of an upstream at once. Returns `false` if there is no such upstream. Endpoints that remain retain their
    /// state; the state of others is released with its last reference.
    pub(crate) fn set_endpoints(&mut self, name: &str, endpoints: Vec<model::Endpoint>) -> bool {
        let Some(upstream) = self.upstreams.get(name).cloned() else {
            return false;
        };
        let last = upstream.snapshot();
        if last.config.endpoints == endpoints {
            return true;
        }
        let config = Arc::new(Upstream {
            endpoints,
            ..Upstream::clone(&last.config)
        });
        let current = self.build_snapshot(&config, Arc::clone(&last.transport));
        drop(last);
        self.index(&upstream, &config);
        upstream.publish(Arc::new(current));
        self.overridden.insert(Arc::clone(&upstream.name));
        self.unswept.insert(Arc::clone(&upstream.name));
        self.sweep_endpoints(&BTreeSet::new());
        true
    }

    /// Applies the staged upstreams; removes those that the staged configuration does not list.
    pub(crate) fn commit(&mut self) {
        for (upstream, current) in std::mem::take(&mut self.staged) {
            self.index(&upstream, &current.config);
            self.unswept.insert(Arc::clone(&upstream.name));
            upstream.publish(current);
        }
        self.added.clear();
        self.overridden.clear();
        let staging = self.staging;
        let unlisted: Vec<_> = match self.unlisted.take() {
            Some(names) => {
                let names = names.iter();
                names
                    .filter_map(|name| self.upstreams.remove_entry(name))
                    .collect()
            }
            None => {
                let is_unlisted =
                    |_: &Name, upstream: &mut Arc<UpstreamState>| !upstream.is_listed_in(staging);
                self.upstreams.extract_if(.., is_unlisted).collect()
            }
        };
        let mut removed = BTreeSet::new();
        for (name, upstream) in unlisted {
            upstream.remove();
            self.special.remove(&name);
            removed.insert(name);
        }
        self.release_unused(&removed);
    }

    /// Discards the staged upstreams.
    pub(crate) fn discard(&mut self) {
        self.unlisted = None;
        for (upstream, _) in std::mem::take(&mut self.staged) {
            self.unswept.insert(Arc::clone(&upstream.name));
        }
        let added: BTreeSet<Name> = std::mem::take(&mut self.added).into_iter().collect();
        for name in &added {
            self.upstreams.remove(name);
            self.special.remove(name);
        }
        self.release_unused(&added);
    }

    /// Releases state that nothing uses once these upstreams are removed.
    fn release_unused(&mut self, removed: &BTreeSet<Name>) {
        self.first_free_id = 0;
        self.counters.remove_unused();
        if !self.names.is_empty() {
            let names = self.hostnames();
            self.names.retain(|name, _| names.contains(name));
        }
        self.sweep_endpoints(removed);
    }

    /// Releases the states of endpoints that only the map of states refers to, and those of removed upstreams.
    fn sweep_endpoints(&mut self, removed: &BTreeSet<Name>) {
        let mut names = std::mem::take(&mut self.unswept);
        names.extend(removed.iter().cloned());
        for name in names {
            let is_removed = removed.contains(&name);
            let of_it = (Name::clone(&name), String::new())..;
            let states = self.endpoints.range(of_it).take_while(|((of, _), _)| *of == name);
            let is_unused = |state: &Arc<EndpointState>| is_removed || Arc::strong_count(state) == 1;
            let (unused, used): (Vec<_>, Vec<_>) = states.partition(|(_, state)| is_unused(state));
            let unused: Vec<_> = unused.into_iter().map(|(key, _)| key.clone()).collect();
            let used = used.len();
            for key in unused {
                self.endpoints.remove(&key);
            }
            let upstream = self.upstreams.get(&name);
            let current = upstream.map_or(0, |upstream| upstream.snapshot().endpoints.len());
            // Requests may still use the state of an endpoint that is gone.
            if used > current {
                self.unswept.insert(name);
            }
        }
    }

    /// Returns the upstreams, staged or current, whose TLS settings are invalid, with the reason.
    pub(crate) fn invalid_tls(&self) -> impl Iterator<Item = (&Name, String)> {
        self.special.values().filter_map(|upstream| {
            let staged = self
                .staged
                .iter()
                .find(|(staged, _)| Arc::ptr_eq(staged, upstream));
            let current = staged.map_or_else(|| upstream.snapshot(), |(_, current)| Arc::clone(current));
            let error = current.transport.connector.as_ref()?.as_ref().err()?;
            Some((&upstream.name, error.clone()))
        })
    }

    /// Returns every upstream that may have hostnames, active health checks or TLS.
    pub(crate) fn special(&self) -> impl Iterator<Item = &Arc<UpstreamState>> {
        self.special.values()
    }

    /// Returns the upstream of that name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<UpstreamState>> {
        self.upstreams.get(name)
    }

    /// Returns the limit of connections that all upstreams share.
    pub(crate) fn connection_budget(&self) -> &Arc<ConnectionBudget> {
        &self.connection_budget
    }

    /// Returns the counters of policies.
    pub(crate) fn counters(&self) -> &LimitCounters {
        &self.counters
    }

    /// Returns every upstream.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<UpstreamState>> {
        self.upstreams.values()
    }

    /// Returns the names to resolve.
    pub(crate) fn hostnames(&self) -> BTreeSet<Hostname> {
        let configs = self.special.values().map(|upstream| upstream.snapshot());
        let names = configs.flat_map(|current| hostnames_of(&current.config).cloned().collect::<Vec<_>>());
        names.collect()
    }

    /// Records the result of a lookup. A failure keeps the last good addresses. Returns whether anything has changed.
    pub(crate) fn record_lookup(
        &mut self,
        name: &Hostname,
        found: Result<ResolvedName, LookupError>,
    ) -> bool {
        let is_first = !self.names.contains_key(name);
        let first = LookupState::Failed(Fault::DnsFailed);
        let known = self.names.entry(name.clone()).or_insert(first);
        match (&mut *known, found) {
            (LookupState::Addresses { addresses, stale }, Err(error)) => {
                if !std::mem::replace(stale, true) {
                    let (text, label, count) = (error.fault.text(), error.fault.label(), addresses.len());
                    log::warn!("DNS: `{name}`: {text} ({label}); its last {count} addresses are kept");
                }
                return false;
            }
            (LookupState::Addresses { addresses, stale }, Ok(found)) if *addresses == found.addresses => {
                *stale = false;
                return false;
            }
            (known, Ok(found)) => {
                *known = LookupState::Addresses {
                    addresses: found.addresses,
                    stale: false,
                };
            }
            (LookupState::Failed(fault), Err(error)) if *fault == error.fault && !is_first => return false,
            (known, Err(error)) => {
                log::warn!("DNS: `{name}`: {} ({})", error.fault.text(), error.fault.label());
                *known = LookupState::Failed(error.fault);
            }
        }
        let upstreams: Vec<_> = self.special.values().cloned().collect();
        for upstream in upstreams {
            let current = upstream.snapshot();
            if hostnames_of(&current.config).any(|other| other == name) {
                upstream.publish(Arc::new(
                    self.build_snapshot(&current.config, Arc::clone(&current.transport)),
                ));
                self.unswept.insert(Arc::clone(&upstream.name));
            }
        }
        // A configuration staged meanwhile must not restore the previous addresses.
        for at in 0..self.staged.len() {
            let current = Arc::clone(&self.staged[at].1);
            if hostnames_of(&current.config).any(|other| other == name) {
                let current = self.build_snapshot(&current.config, Arc::clone(&current.transport));
                self.staged[at].1 = Arc::new(current);
            }
        }
        true
    }

    /// Builds the state of an upstream from its configuration and the addresses of its names.
    fn build_snapshot(&mut self, config: &Arc<Upstream>, transport: Arc<Transport>) -> UpstreamSnapshot {
        let mut draft = EndpointListBuilder::default();
        for endpoint in config.endpoints.iter().filter(|endpoint| endpoint.weight > 0) {
            match &endpoint.address {
                EndpointLocation::Address(address) => {
                    draft.add(endpoint, Addr::Inet(*address), address.to_string(), None)
                }
                EndpointLocation::Unix(path) => match format!("unix:{}", path.display()).parse() {
                    Ok(addr) => draft.add(endpoint, addr, "localhost".to_owned(), None),
                    Err(_) => log::error!(
                        "upstream `{}`: `{}` is no path of a socket",
                        config.name,
                        path.display()
                    ),
                },
                EndpointLocation::Host { name, port } => match self.names.get(name) {
                    Some(LookupState::Addresses { addresses, .. }) => {
                        for address in addresses {
                            let addr = Addr::Inet(SocketAddr::new(*address, *port));
                            draft.add(endpoint, addr, format!("{name}:{port}"), Some(name));
                        }
                    }
                    Some(LookupState::Failed(fault)) => draft.absence = Some(*fault),
                    None => draft.is_pending = true,
                },
            }
        }
        let tls = config.tls.as_ref();
        let named = tls.is_some_and(|tls| !tls.subject_names.is_empty());
        let server = tls.and_then(|tls| tls.server_name.as_ref());
        let endpoints: Box<[_]> = draft
            .endpoints
            .into_iter()
            .map(|(endpoint, host)| {
                let peer = server.or(host.as_ref()).map(|name| name.as_str().to_owned());
                // An address is not a valid SNI; the other names identify the peer.
                let peer = peer.or_else(|| named.then(|| session_name(&endpoint.addr)));
                Arc::new(UpstreamEndpoint {
                    tls_name: peer.and_then(|name| PeerName::new(&name).ok()),
                    token: selection::endpoint_token(&config.name, &endpoint.addr.to_string()),
                    state: self.endpoint_state(&config.name, &endpoint.addr),
                    ..endpoint
                })
            })
            .collect();
        UpstreamSnapshot {
            config: Arc::clone(config),
            transport,
            balancer: Balancer::new(config, &draft.balanced),
            is_resolving: draft.is_pending && endpoints.is_empty(),
            fault_without_endpoints: if draft.is_pending {
                Fault::DnsFailed
            } else {
                draft.absence.unwrap_or(Fault::NoEndpoints)
            },
            endpoints,
        }
    }

    fn endpoint_state(&mut self, name: &Name, addr: &Addr) -> Arc<EndpointState> {
        let key = (name.clone(), addr.to_string());
        Arc::clone(self.endpoints.entry(key).or_default())
    }
}
