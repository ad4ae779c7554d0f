//! Translations that follow each other: only parts that depend on a change are translated again.
//!
//! ```text
//! changes ─┬─ endpoints alone ───────────────────▶ endpoints of their upstreams
//!          ├─ routes, Services ──────────────────▶ these routes and those that read the Services
//!          ├─ Gateways, ListenerSets, Secrets, … ▶ listeners; routes of those to which they attach otherwise now
//!          └─ classes, policies, grants ─────────▶ everything
//! ```
//!
//! Owns the memory between translations: Gateways with their listeners, and the parts of each route with the objects that it was derived
//! from. Parts that have not changed are the same objects in each translation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_gateway::model::{Authorities, Config, Endpoint, Name, Route, StreamRoute, Upstream};

use super::backend::{endpoints, upstream_prefix};
use super::findings::FindingsUpdate;
use super::gateway::{Attached, RouteCounts, reuse_equal};
use super::order::RouteOrder;
use super::policy::PolicyUses;
use super::upstreams::Upstreams;
use super::{
    Context, Findings, Parent, Places, Settings, Translation, gateway, http, policy, stream, traffic,
};
use crate::objects::{
    BackendTlsPolicy, GatewayClass, GrpcRoute, HttpRoute, Id, Key, Kind, Meta, TcpRoute, TlsRoute, UdpRoute,
};
use crate::store::{Changes, Store};

/// The outcome of [`Translator::update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Nothing depends on the changes.
    Unchanged,
    /// The endpoints of these upstreams alone are others.
    Endpoints(Vec<(Name, Vec<Endpoint>)>),
    /// All parts, of which unchanged ones are those of the last translation, and the results that differ.
    Parts(Box<PartsUpdate>),
}

/// A translation that follows another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartsUpdate {
    /// All parts of the model, as in [`Translation::parts`].
    pub parts: Config,
    /// The results that differ from those of the last translation.
    pub findings: FindingsUpdate,
}

/// Translates a store again and again.
#[derive(Debug, Default)]
pub struct Translator {
    settings: Settings,
    attached: Attached,
    routes: BTreeMap<Key, Arc<Memo>>,
    /// The same routes.
    order: RouteOrder,
    upstreams: Upstreams,
    /// The number of routes that use each upstream.
    users: BTreeMap<Name, usize>,
    /// The routes that have read each Service, whether or not it exists.
    readers: BTreeMap<Id, BTreeSet<Key>>,
    /// The routes of each parent, whether or not it exists or is one of ours.
    routes_of: BTreeMap<Key, BTreeSet<Key>>,
    counts: RouteCounts,
    /// Gateways and ListenerSets whose numbers of routes may have changed.
    recounted: BTreeSet<Key>,
    policy_uses: PolicyUses,
    traffic_uses: PolicyUses,
    /// Those of policies.
    authorities: BTreeMap<Name, Arc<Authorities>>,
    findings: Findings,
}

/// A translated route.
#[derive(Debug)]
pub(super) struct Memo {
    pub(super) rank: Rank,
    pub(super) parts: RouteParts,
    finding: Arc<Vec<Parent>>,
    reads: MemoReads,
}

/// The position of a route: older ones first, then by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The time of creation, in the text of the API.
    created: Arc<str>,
    namespace: Arc<str>,
    name: Arc<str>,
    kind: Kind,
}

#[derive(Debug)]
pub(super) enum RouteParts {
    Http(Vec<Arc<Route>>),
    Stream(Vec<Arc<StreamRoute>>),
}

/// The objects that the translation of a route uses, while it is translated.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) services: BTreeSet<Id>,
    pub(super) upstreams: BTreeSet<Name>,
    pub(super) parents: BTreeSet<Key>,
    /// The listeners that count it, by their Gateway or ListenerSet and their index there.
    pub(super) listeners: BTreeSet<(Key, usize)>,
}

/// The objects that the translation of a route has used.
#[derive(Debug)]
struct MemoReads {
    services: Box<[Id]>,
    upstreams: Box<[Name]>,
    parents: Box<[Key]>,
    listeners: Box<[(Key, usize)]>,
    /// Policies of its backends, and the Gateways that use them.
    policies: Box<[(Id, Id)]>,
    /// The same of XBackendTrafficPolicies.
    traffic: Box<[(Id, Id)]>,
}

/// The extent of a translation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Routes,
    Listeners,
    All,
}

impl Translator {
    /// Creates a translator that has translated nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Translator {
        Translator {
            settings,
            ..Translator::default()
        }
    }

    /// Translates all objects.
    #[must_use]
    pub fn translate(&mut self, store: &Store, places: &dyn Places) -> Translation {
        let PartsUpdate { parts, .. } = self.translate_again(store, places);
        Translation {
            parts,
            findings: self.findings.clone(),
        }
    }

    /// Translates all objects, and returns the results that differ from those of the last translation.
    #[must_use]
    pub fn translate_again(&mut self, store: &Store, places: &dyn Places) -> PartsUpdate {
        let forgotten = std::mem::take(&mut self.routes);
        self.order.clear();
        let upstreams = std::mem::take(&mut self.upstreams);
        self.users.clear();
        self.readers.clear();
        self.routes_of.clear();
        self.counts.clear();
        self.policy_uses = PolicyUses::default();
        self.traffic_uses = PolicyUses::default();
        let mut context = self.context(store);
        let attached = self.derive_attached(&mut context, places);
        self.attached = attached;
        let keys = Kind::ALL.into_iter().filter(|kind| kind.is_route());
        let keys: Vec<Key> = keys.flat_map(|kind| store.keys(kind)).collect();
        let mut update = self.complete(context, &keys, &forgotten, Scope::All);
        self.upstreams.reuse_equal(upstreams);
        update.parts.upstreams = self.upstreams.list();
        update
    }

    /// The results of the last translation.
    #[must_use]
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Translates what depends on changes since the last translation of the same store. Without a change of a Gateway, `places`
    /// must be as it was.
    #[must_use]
    pub fn update(&mut self, store: &Store, places: &dyn Places, changes: &Changes) -> Update {
        if affect_all(store, changes) {
            return Update::Parts(Box::new(self.translate_again(store, places)));
        }
        let of_kind = |kind| changes.objects.iter().filter(move |key| key.kind == kind);
        let services: Vec<Id> = of_kind(Kind::Service).map(Key::id).collect();
        let is_route = |key: &&Key| key.kind.is_route();
        let mut stale: BTreeSet<Key> = changes.objects.iter().filter(is_route).cloned().collect();
        for service in &services {
            stale.extend(self.readers.get(service).into_iter().flatten().cloned());
        }
        let endpoints = self.update_endpoints(store, &changes.endpoints);
        if stale.is_empty() && !changes.affect_listeners() {
            return if endpoints.is_empty() {
                Update::Unchanged
            } else {
                Update::Endpoints(endpoints)
            };
        }
        let mut scope = Scope::Routes;
        let mut context = self.context(store);
        if changes.affect_listeners() {
            scope = Scope::Listeners;
            let attached = self.derive_attached(&mut context, places);
            for owner in attached.changed_owners(&self.attached) {
                stale.extend(self.routes_of.get(owner).into_iter().flatten().cloned());
                self.recounted.insert(owner.clone());
            }
            self.attached = attached;
            // Its labels decide which listeners its routes may attach to.
            for namespace in of_kind(Kind::Namespace) {
                stale.extend(self.routes_in(&namespace.name));
            }
        }
        for service in &services {
            for name in self.upstreams_of(service) {
                self.upstreams.remove(&name);
            }
        }
        let stale: Vec<Key> = stale.into_iter().collect();
        let forgotten = stale
            .iter()
            .filter_map(|key| Some((key.clone(), self.forget(key)?)));
        let forgotten = forgotten.collect();
        Update::Parts(Box::new(self.complete(context, &stale, &forgotten, scope)))
    }

    fn context<'s>(&self, store: &'s Store) -> Context<'s> {
        Context {
            store,
            location: self.settings.location.clone(),
            policies: policy::PolicyIndex::new(store),
            traffic: traffic::TrafficIndex::new(store),
            upstreams: BTreeMap::new(),
            certificates: BTreeMap::new(),
            authorities: BTreeMap::new(),
            findings: Findings::default(),
            reads: Reads::default(),
        }
    }

    fn classes<'s>(&self, store: &'s Store) -> impl Iterator<Item = &'s Arc<GatewayClass>> {
        let ours = self.settings.controller_name.clone();
        let classes = store.all::<GatewayClass>();
        classes.filter(move |class| class.spec.controller_name == ours)
    }

    fn derive_attached(&self, context: &mut Context<'_>, places: &dyn Places) -> Attached {
        let classes = self.classes(context.store);
        let classes: BTreeSet<&str> = classes.map(|class| &*class.metadata.name).collect();
        Attached::derive(context, &classes, places, &self.attached)
    }

    /// Returns the routes in a namespace.
    fn routes_in(&self, namespace: &Arc<str>) -> Vec<Key> {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_route());
        let of_kind = |kind| {
            let from = Key::new(kind, Arc::clone(namespace), "");
            let routes = self.routes.range(from..).map(|(key, _)| key);
            routes.take_while(move |key| key.kind == kind && key.namespace == *namespace)
        };
        kinds.flat_map(of_kind).cloned().collect()
    }

    /// Sets the endpoints of the upstreams of these Services, and returns those that have changed.
    fn update_endpoints(&mut self, store: &Store, services: &BTreeSet<Id>) -> Vec<(Name, Vec<Endpoint>)> {
        let mut changed = Vec::new();
        for service in services {
            for name in self.upstreams_of(service) {
                let Some(known) = self.upstreams.by_name.get_mut(&name) else {
                    continue;
                };
                let location = &self.settings.location;
                let found = endpoints(store, service, &known.port, location, known.distribution);
                if known.upstream.endpoints != found {
                    let mut upstream = Upstream::clone(&known.upstream);
                    upstream.endpoints.clone_from(&found);
                    known.upstream = Arc::new(upstream);
                    self.upstreams.changed.insert(Arc::clone(&name));
                    changed.push((name, found));
                }
            }
        }
        changed
    }

    fn upstreams_of(&self, service: &Id) -> Vec<Name> {
        let prefix = upstream_prefix(service);
        let from = self.upstreams.by_name.range(Name::from(&*prefix)..);
        let names = from.map(|(name, _)| name);
        names
            .take_while(|name| name.starts_with(&prefix))
            .cloned()
            .collect()
    }

    fn forget(&mut self, key: &Key) -> Option<Arc<Memo>> {
        let memo = self.routes.remove(key)?;
        self.order.remove(&memo);
        for service in &memo.reads.services {
            remove_from(&mut self.readers, service, key);
        }
        for parent in &memo.reads.parents {
            remove_from(&mut self.routes_of, parent, key);
        }
        for upstream in &memo.reads.upstreams {
            if let Some(users) = self.users.get_mut(upstream) {
                *users -= 1;
            }
        }
        for (owner, at) in &memo.reads.listeners {
            if let Some(count) = self.counts.get_mut(owner).and_then(|counts| counts.get_mut(*at)) {
                *count -= 1;
            }
            self.recounted.insert(owner.clone());
        }
        self.policy_uses.remove(&memo.reads.policies);
        self.traffic_uses.remove(&memo.reads.traffic);
        Some(memo)
    }

    /// Translates the routes with these keys that exist, which must not be known, and derives all that follows from them. `forgotten` are
    /// routes that were known.
    fn complete(
        &mut self,
        mut context: Context<'_>,
        keys: &[Key],
        forgotten: &BTreeMap<Key, Arc<Memo>>,
        scope: Scope,
    ) -> PartsUpdate {
        let attached = std::mem::take(&mut self.attached);
        context.upstreams = std::mem::take(&mut self.upstreams.by_name);
        for key in keys {
            self.translate_route(&mut context, &attached, key, forgotten.get(key));
        }
        self.upstreams.by_name = std::mem::take(&mut context.upstreams);
        self.drop_unused_upstreams(forgotten.values());
        let mut findings = std::mem::take(&mut context.findings);
        let mut removed: Vec<Key> = Vec::new();
        removed.extend(
            forgotten
                .keys()
                .filter(|key| !self.routes.contains_key(*key))
                .cloned(),
        );
        if scope == Scope::All {
            for class in self.classes(context.store) {
                let conditions = gateway::class_conditions(class);
                findings.classes.insert(class.metadata.id(), conditions);
            }
        }
        let recounted = std::mem::take(&mut self.recounted);
        if scope == Scope::Routes {
            for owner in &recounted {
                attached.report(owner, &self.counts, &mut findings);
            }
        } else {
            attached.report_all(&self.counts, &mut findings);
            removed.extend(self.findings.missing_listeners(&findings));
        }
        for owner in &recounted {
            let is_unused = |counts: &Vec<u32>| counts.iter().all(|count| *count == 0);
            if self.counts.get(owner).is_some_and(is_unused) {
                self.counts.remove(owner);
            }
        }
        self.attached = attached;
        let is_used_otherwise = self.policy_uses.is_changed || self.traffic_uses.is_changed;
        if scope == Scope::All || is_used_otherwise {
            context.authorities.clear();
            policy::report(&mut context, &self.policy_uses);
            traffic::report(&mut context, &self.traffic_uses);
            self.authorities = reuse_equal(std::mem::take(&mut context.authorities), &self.authorities);
            findings.policies = std::mem::take(&mut context.findings.policies);
            findings.traffic_policies = std::mem::take(&mut context.findings.traffic_policies);
            self.policy_uses.is_changed = false;
            self.traffic_uses.is_changed = false;
        }
        if scope == Scope::All {
            let known = self.findings.keys().into_iter();
            removed.extend(known.filter(|key| !findings.has(key)));
        }
        PartsUpdate {
            findings: self.findings.replace(findings, removed),
            parts: self.parts(),
        }
    }

    fn parts(&mut self) -> Config {
        let (routes, streams) = self.order.parts();
        let mut authorities = self.attached.authorities.clone();
        authorities.extend(
            self.authorities
                .iter()
                .map(|(name, part)| (Arc::clone(name), Arc::clone(part))),
        );
        Config {
            listeners: self.attached.models(),
            routes,
            streams,
            upstreams: self.upstreams.list(),
            certificates: self.attached.certificates.values().cloned().collect(),
            authorities: authorities.into_values().collect(),
            ..Config::default()
        }
    }

    /// Translates a route, if it exists. `last` is its last translation.
    fn translate_route(
        &mut self,
        context: &mut Context<'_>,
        attached: &Attached,
        key: &Key,
        last: Option<&Arc<Memo>>,
    ) {
        let (store, namespace, name) = (context.store, &*key.namespace, &*key.name);
        context.reads = Reads::default();
        let last = last.map(|memo| &**memo);
        let http = match last.map(|memo| &memo.parts) {
            Some(RouteParts::Http(parts)) => &parts[..],
            _ => &[],
        };
        let streams = match last.map(|memo| &memo.parts) {
            Some(RouteParts::Stream(parts)) => &parts[..],
            _ => &[],
        };
        let translated = match key.kind {
            Kind::HttpRoute => store.get::<HttpRoute>(namespace, name).map(|route| {
                let parts = shared(http::translate_http(context, attached, route), http);
                (&route.metadata, RouteParts::Http(parts))
            }),
            Kind::GrpcRoute => store.get::<GrpcRoute>(namespace, name).map(|route| {
                let parts = shared(http::translate_grpc(context, attached, route), http);
                (&route.metadata, RouteParts::Http(parts))
            }),
            Kind::TlsRoute => store.get::<TlsRoute>(namespace, name).map(|route| {
                let parts = shared(stream::translate_tls(context, attached, route), streams);
                (&route.metadata, RouteParts::Stream(parts))
            }),
            Kind::TcpRoute => store.get::<TcpRoute>(namespace, name).map(|route| {
                let parts = shared(stream::translate_tcp(context, attached, route), streams);
                (&route.metadata, RouteParts::Stream(parts))
            }),
            Kind::UdpRoute => store.get::<UdpRoute>(namespace, name).map(|route| {
                let parts = shared(stream::translate_udp(context, attached, route), streams);
                (&route.metadata, RouteParts::Stream(parts))
            }),
            _ => None,
        };
        let Some((meta, parts)) = translated else { return };
        self.remember(context, key, meta, parts, last);
    }

    fn remember(
        &mut self,
        context: &mut Context<'_>,
        key: &Key,
        meta: &Meta,
        parts: RouteParts,
        last: Option<&Memo>,
    ) {
        let reads = std::mem::take(&mut context.reads);
        let reads = MemoReads {
            services: reads.services.into_iter().collect(),
            upstreams: reads.upstreams.into_iter().collect(),
            parents: reads.parents.into_iter().collect(),
            listeners: reads.listeners.into_iter().collect(),
            policies: context.policies.take_found().into_iter().collect(),
            traffic: context.traffic.take_found().into_iter().collect(),
        };
        for service in &reads.services {
            let readers = self.readers.entry(service.clone()).or_default();
            readers.insert(key.clone());
        }
        for parent in &reads.parents {
            let routes = self.routes_of.entry(parent.clone()).or_default();
            routes.insert(key.clone());
        }
        for upstream in &reads.upstreams {
            *self.users.entry(Arc::clone(upstream)).or_default() += 1;
            self.upstreams.changed.insert(Arc::clone(upstream));
        }
        for (owner, at) in &reads.listeners {
            let counts = self.counts.entry(owner.clone()).or_default();
            counts.resize(counts.len().max(at + 1), 0);
            counts[*at] += 1;
            self.recounted.insert(owner.clone());
        }
        self.policy_uses.add(&reads.policies);
        self.traffic_uses.add(&reads.traffic);
        let rank = Rank {
            created: meta.creation_timestamp.as_str().into(),
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
            kind: key.kind,
        };
        let mut finding = context.findings.routes.get(key).cloned().unwrap_or_default();
        if let Some(last) = last.filter(|last| last.finding == finding) {
            finding = Arc::clone(&last.finding);
            context.findings.routes.insert(key.clone(), Arc::clone(&finding));
        }
        let memo = Arc::new(Memo {
            rank,
            parts,
            finding,
            reads,
        });
        self.order.insert(Arc::clone(&memo));
        self.routes.insert(key.clone(), memo);
    }

    /// Drops the upstreams that these routes have used and no route uses now.
    fn drop_unused_upstreams<'m>(&mut self, forgotten: impl Iterator<Item = &'m Arc<Memo>>) {
        for name in forgotten.flat_map(|memo| &memo.reads.upstreams) {
            if self.users.get(name) == Some(&0) {
                self.users.remove(name);
                self.upstreams.remove(name);
            }
        }
    }
}

/// Returns whether changes concern objects that any route may depend on.
fn affect_all(store: &Store, changes: &Changes) -> bool {
    let affects_all = |key: &Key| match key.kind {
        Kind::GatewayClass | Kind::ReferenceGrant | Kind::BackendTlsPolicy | Kind::XBackendTrafficPolicy => {
            true
        }
        // The routes to a Service depend on the validity of its policy.
        Kind::Secret | Kind::ConfigMap => store
            .all::<BackendTlsPolicy>()
            .any(|policy| policy.metadata.namespace == key.namespace && refers_to(policy, key)),
        _ => false,
    };
    changes.objects.iter().any(affects_all)
}

fn refers_to(policy: &BackendTlsPolicy, key: &Key) -> bool {
    let mut authorities = policy.spec.validation.authorities.iter();
    authorities.any(|reference| *reference.name == *key.name)
}

fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<Key>>, of: &K, key: &Key) {
    if let Some(keys) = map.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(of);
        }
    }
}

/// Shares parts; those that equal the last ones are the same objects.
fn shared<T: PartialEq>(parts: Vec<T>, last: &[Arc<T>]) -> Vec<Arc<T>> {
    let mut last = last.iter();
    let share = |part: T| match last.next().filter(|last| ***last == part) {
        Some(last) => Arc::clone(last),
        None => Arc::new(part),
    };
    parts.into_iter().map(share).collect()
}
