//! The hosts of a listener, each with its rules. Knows which routes are attached where; nothing of paths.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::compiled_route::{CompiledRoute, Matched};
use super::name_index::{HashSlots, IndexKey, NameIndex, hash_text};
use super::path_tree::PathTree;
use super::request_facts::RequestFacts;
use crate::model::{Hostname, Listener, Name, StreamRoute};

/// Values by host.
#[derive(Debug)]
pub(crate) struct ByHost<T> {
    /// Exact hosts and wildcards.
    named: NameIndex<Hostname, T>,
    wildcards: bool,
    /// The value of each host that is not in the index.
    any: Option<T>,
}

impl<T> ByHost<T> {
    /// Creates the index of values by host, without duplicates; `any` is the value of each other host.
    pub(crate) fn new(named: Vec<(Hostname, T)>, any: Option<T>) -> ByHost<T> {
        ByHost {
            wildcards: named.iter().any(|(host, _)| host.wildcard_suffix().is_some()),
            named: NameIndex::new(named.into()),
            any,
        }
    }

    /// Returns the values after a change: `None` removes a host.
    fn with(&self, changed: Vec<(Hostname, Option<T>)>, any: Option<T>) -> ByHost<T>
    where
        T: Clone,
    {
        let named = self.named.with(changed);
        let wildcards = named.keys().any(|host| host.wildcard_suffix().is_some());
        ByHost {
            wildcards,
            named,
            any,
        }
    }

    /// Calls `found` with the values for `host`, the most specific first, until it returns a result.
    pub(crate) fn find_first<'t, R>(
        &'t self,
        host: &str,
        mut found: impl FnMut(&'t T) -> Option<R>,
    ) -> Option<R> {
        if !host.starts_with('.')
            && let Some(result) = self.named.find(host).and_then(&mut found)
        {
            return Some(result);
        }
        if self.wildcards {
            // A wildcard has at least one label before its suffix: a leading dot is skipped.
            let dots = host.bytes().enumerate().skip(1).filter(|(_, byte)| *byte == b'.');
            for (at, _) in dots {
                if let Some(result) = self.named.find(&host[at..]).and_then(&mut found) {
                    return Some(result);
                }
            }
        }
        self.any.as_ref().and_then(found)
    }
}

/// The hosts of an HTTP listener.
#[derive(Debug)]
pub(super) struct HostMap<P>(ByHost<Arc<PathTree<P>>>);

impl<P> HostMap<P> {
    /// Returns the rule that takes a request.
    pub(super) fn find(&self, facts: &RequestFacts<'_>) -> Option<Matched<'_, P>> {
        if !facts.path.starts_with('/') {
            return None;
        }
        self.0.find_first(facts.host, |table| table.find(facts))
    }

    /// Returns the table of exactly this host; `None`: that for every host.
    pub(super) fn find_exact(&self, host: Option<&Hostname>) -> Option<&Arc<PathTree<P>>> {
        match host {
            Some(host) => self.0.named.find(host.key()),
            None => self.0.any.as_ref(),
        }
    }
}

/// The routes of a listener that a change removes and adds.
pub(super) struct HostChanges<'c, P> {
    pub(super) old: Vec<&'c Arc<CompiledRoute<P>>>,
    /// With their positions in the order of routes.
    pub(super) new: PlacedRoutes<'c, P>,
}

impl<P> HostChanges<'_, P> {
    /// Returns the addresses of the routes, which identify the change.
    pub(super) fn addresses(&self) -> (Vec<usize>, Vec<usize>) {
        let address = |route: &Arc<CompiledRoute<P>>| Arc::as_ptr(route).addr();
        let old = self.old.iter().map(|route| address(route));
        let new = self.new.iter().map(|(_, route)| address(route));
        (old.collect(), new.collect())
    }
}

/// Routes with their positions.
type PlacedRoutes<'c, P> = Vec<(usize, &'c Arc<CompiledRoute<P>>)>;

impl<P> HostMap<P> {
    /// Returns the hosts after a change. `position` returns the next position of a route that stays, `None` for one that does not.
    pub(super) fn succeed(
        &self,
        changes: &HostChanges<'_, P>,
        position: &dyn Fn(&CompiledRoute<P>) -> Option<usize>,
    ) -> HostMap<P> {
        let mut changed: BTreeMap<Option<&Hostname>, PlacedRoutes<'_, P>> = BTreeMap::new();
        for host in changes.old.iter().flat_map(|route| hosts_of(route)) {
            changed.entry(host).or_default();
        }
        for (at, route) in &changes.new {
            for host in hosts_of(route) {
                let list = changed.entry(host).or_default();
                // A route may name a host twice.
                if list.last().is_none_or(|(last, _)| last != at) {
                    list.push((*at, *route));
                }
            }
        }
        let mut any = self.0.any.clone();
        let mut named = Vec::with_capacity(changed.len());
        // Hosts with the same list of routes share a table.
        let mut tables: BTreeMap<Vec<usize>, Arc<PathTree<P>>> = BTreeMap::new();
        for (host, mut list) in changed {
            let last = self.find_exact(host);
            let stay = last.iter().flat_map(|last| &last.routes);
            list.extend(stay.filter_map(|route| Some((position(route)?, route))));
            list.sort_unstable_by_key(|(at, _)| *at);
            let is_current = |last: &&Arc<PathTree<P>>| {
                let mut pairs = last.routes.iter().zip(&list);
                last.routes.len() == list.len() && pairs.all(|(last, (_, route))| Arc::ptr_eq(last, route))
            };
            let table = match last.filter(is_current) {
                Some(last) => Some(Arc::clone(last)),
                None if list.is_empty() => None,
                None => {
                    let numbers: Vec<usize> = list.iter().map(|(at, _)| *at).collect();
                    let table = tables.entry(numbers).or_insert_with(|| {
                        let routes = list.iter().map(|(_, route)| Arc::clone(route));
                        Arc::new(PathTree::new(routes.collect()))
                    });
                    Some(Arc::clone(table))
                }
            };
            match host {
                Some(host) => named.push((host.clone(), table)),
                None => any = table,
            }
        }
        HostMap(self.0.with(named, any))
    }
}

/// Returns the hosts of a route; `None`: every host.
fn hosts_of<P>(route: &CompiledRoute<P>) -> impl Iterator<Item = Option<&Hostname>> {
    let hostnames = &route.route().hostnames;
    let every = hostnames.is_empty().then_some(None);
    hostnames.iter().map(Some).chain(every)
}

/// The hosts of a listener of another protocol than HTTP.
#[derive(Debug)]
pub(super) struct StreamMap(ByHost<Arc<StreamRoute>>);

impl StreamMap {
    /// Returns the route that takes a connection; `sni` is empty if there was none.
    pub(super) fn find(&self, sni: &str) -> Option<&Arc<StreamRoute>> {
        self.0.find_first(sni, Some)
    }
}

/// Attaches routes to listeners; listeners with the same routes share their hosts.
pub(super) struct HostMapBuilder<'b, P> {
    routes: &'b [Arc<CompiledRoute<P>>],
    streams: &'b [Arc<StreamRoute>],
    routes_of: AttachedNumbers<'b>,
    streams_of: AttachedNumbers<'b>,
    hosts: BTreeMap<Vec<u32>, Arc<HostMap<P>>>,
    none: Arc<HostMap<P>>,
    no_streams: Arc<StreamMap>,
}

/// The numbers of routes: of those that name a listener, by its name, and of those that apply to every listener.
struct AttachedNumbers<'b> {
    by_listener: BTreeMap<&'b str, Vec<u32>>,
    everywhere: Vec<u32>,
}

impl<'b> AttachedNumbers<'b> {
    fn new(listeners: impl Iterator<Item = &'b [Name]>) -> AttachedNumbers<'b> {
        let mut attached = AttachedNumbers {
            by_listener: BTreeMap::new(),
            everywhere: Vec::new(),
        };
        for (number, names) in (0..).zip(listeners) {
            if names.is_empty() {
                attached.everywhere.push(number);
            }
            for name in names {
                let numbers = attached.by_listener.entry(&**name).or_default();
                // A route may name a listener twice.
                if numbers.last() != Some(&number) {
                    numbers.push(number);
                }
            }
        }
        attached
    }

    /// Returns the routes of a listener, in their order.
    fn of(&self, listener: &str) -> Vec<u32> {
        let named = self.by_listener.get(listener).map_or(&[][..], Vec::as_slice);
        let mut numbers = [named, &self.everywhere].concat();
        // Both are sorted, and none is in both.
        numbers.sort();
        numbers
    }
}

impl<'b, P> HostMapBuilder<'b, P> {
    pub(super) fn new(
        routes: &'b [Arc<CompiledRoute<P>>],
        streams: &'b [Arc<StreamRoute>],
    ) -> HostMapBuilder<'b, P> {
        HostMapBuilder {
            routes,
            streams,
            routes_of: AttachedNumbers::new(routes.iter().map(|route| &*route.route().listeners)),
            streams_of: AttachedNumbers::new(streams.iter().map(|stream| &*stream.listeners)),
            hosts: BTreeMap::new(),
            none: Arc::new(HostMap(ByHost::new(Vec::new(), None))),
            no_streams: Arc::new(StreamMap(ByHost::new(Vec::new(), None))),
        }
    }

    /// Returns the hosts of a listener. `last` are its hosts in the last table.
    pub(super) fn attach_listener(
        &mut self,
        listener: &Listener,
        last: Option<&HostMap<P>>,
    ) -> (Arc<HostMap<P>>, Arc<StreamMap>) {
        if !listener.protocol.is_http() {
            let streams = self.streams_of.of(&listener.name).into_iter();
            let streams = streams.map(|number| &self.streams[number as usize]);
            return (Arc::clone(&self.none), Arc::new(map_streams(streams)));
        }
        let routes = self.routes_of.of(&listener.name);
        let none = Arc::clone(&self.no_streams);
        if let Some(hosts) = self.hosts.get(&routes) {
            return (Arc::clone(hosts), none);
        }
        let hosts = Arc::new(self.build_hosts(&routes, last));
        self.hosts.insert(routes, Arc::clone(&hosts));
        (hosts, none)
    }

    fn build_hosts(&self, routes: &[u32], last: Option<&HostMap<P>>) -> HostMap<P> {
        let mut groups = HostGroups::new(self.routes, routes);
        let mut named = Vec::with_capacity(groups.0.len());
        let mut any = None;
        // Hosts with the same list of routes share a table.
        let mut tables: BTreeMap<Vec<u32>, Arc<PathTree<P>>> = BTreeMap::new();
        for (host, list) in groups.0.drain(..) {
            let last = last.and_then(|last| last.find_exact(host));
            let table = match last.filter(|last| self.is_current(last, &list)) {
                Some(last) => Arc::clone(last),
                None => Arc::clone(tables.entry(list).or_insert_with_key(|list| {
                    let routes = list
                        .iter()
                        .map(|number| Arc::clone(&self.routes[*number as usize]));
                    Arc::new(PathTree::new(routes.collect()))
                })),
            };
            match host {
                Some(host) => named.push((host.clone(), table)),
                None => any = Some(table),
            }
        }
        HostMap(ByHost::new(named, any))
    }

    fn is_current(&self, last: &PathTree<P>, list: &[u32]) -> bool {
        let same = |(last, number): (&Arc<CompiledRoute<P>>, &u32)| {
            Arc::ptr_eq(last, &self.routes[*number as usize])
        };
        last.routes.len() == list.len() && last.routes.iter().zip(list).all(same)
    }
}

/// Hosts, `None` for every host, each with its routes in order.
struct HostGroups<'b>(Vec<(Option<&'b Hostname>, Vec<u32>)>);

impl<'b> HostGroups<'b> {
    fn new<P>(all: &'b [Arc<CompiledRoute<P>>], routes: &[u32]) -> HostGroups<'b> {
        let of = |number: &u32| &*all[*number as usize].route().hostnames;
        let mut slots = HashSlots::with_capacity(routes.iter().map(|number| of(number).len().max(1)).sum());
        let mut groups = HostGroups(Vec::new());
        for &number in routes {
            let hostnames = of(&number);
            if hostnames.is_empty() {
                groups.add(&mut slots, None, number);
            }
            for host in hostnames {
                groups.add(&mut slots, Some(host), number);
            }
        }
        groups
    }

    fn add(&mut self, slots: &mut HashSlots, host: Option<&'b Hostname>, number: u32) {
        let hash = hash_text(0, host.map_or("", IndexKey::key).as_bytes());
        match slots.find(hash, |group| self.0[group as usize].0 == host) {
            Some(group) => {
                let list = &mut self.0[group as usize].1;
                // A route may name a host twice.
                if list.last() != Some(&number) {
                    list.push(number);
                }
            }
            None => {
                slots.insert(hash, u32::try_from(self.0.len()).expect("fewer hosts than that"));
                self.0.push((host, vec![number]));
            }
        }
    }
}

/// Maps hosts to stream routes; the first route of a host counts.
fn map_streams<'s>(streams: impl Iterator<Item = &'s Arc<StreamRoute>>) -> StreamMap {
    let mut named: BTreeMap<&Hostname, &Arc<StreamRoute>> = BTreeMap::new();
    let mut any = None;
    for stream in streams {
        if stream.hostnames.is_empty() {
            any.get_or_insert(stream);
        }
        for host in &stream.hostnames {
            named.entry(host).or_insert(stream);
        }
    }
    let named = named
        .into_iter()
        .map(|(host, stream)| (host.clone(), Arc::clone(stream)));
    StreamMap(ByHost::new(named.collect(), any.cloned()))
}
