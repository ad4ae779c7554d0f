//! Translations that follow each other: only routes that depend on a change are translated again.
//!
//! ```text
//! changes ─┬─ endpoints alone ──────────▶ endpoints of their upstreams
//!          ├─ routes, Services ─────────▶ these routes and those that read the Services; all others as they were
//!          └─ any other kind of object ─▶ everything
//! ```
//!
//! Owns the memory between translations: the parts of each route and the objects that they were derived from. Listeners and policies are
//! derived again each time, since routes count there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_gateway::model::{Config, Endpoint, Name, Route, StreamRoute};

use super::backend::{KnownUpstream, endpoints, upstream_prefix};
use super::gateway::Attached;
use super::{
    Context, Findings, Parent, Places, Settings, Translation, gateway, http, policy, stream, traffic,
};
use crate::objects::{GatewayClass, GrpcRoute, HttpRoute, Id, Key, Kind, Meta, TcpRoute, TlsRoute, UdpRoute};
use crate::store::{Changes, Store};

/// The outcome of [`Translator::update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Nothing depends on the changes.
    Unchanged,
    /// The endpoints of these upstreams alone are others.
    Endpoints(Vec<(Name, Vec<Endpoint>)>),
    /// The translation as a whole, in which unchanged parts are those of the last one.
    Translation(Box<Translation>),
}

/// Translates a store again and again.
#[derive(Debug, Default)]
pub struct Translator {
    settings: Settings,
    routes: BTreeMap<Key, Arc<Memo>>,
    /// The same routes, in the order of precedence.
    by_rank: BTreeMap<Rank, Arc<Memo>>,
    upstreams: BTreeMap<Name, KnownUpstream>,
    /// The number of routes that use each upstream.
    users: BTreeMap<Name, usize>,
    /// The routes that have read each Service, whether or not it exists.
    readers: BTreeMap<Id, BTreeSet<Key>>,
}

/// A translated route.
#[derive(Debug)]
struct Memo {
    rank: Rank,
    parts: RouteParts,
    finding: Arc<Vec<Parent>>,
    reads: Reads,
}

/// The position of a route: older ones first, then by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The time of creation, in the text of the API.
    created: Arc<str>,
    namespace: Arc<str>,
    name: Arc<str>,
    kind: Kind,
}

#[derive(Debug)]
enum RouteParts {
    Http(Vec<Arc<Route>>),
    Stream(Vec<Arc<StreamRoute>>),
}

/// The objects that the translation of a route has used.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) services: BTreeSet<Id>,
    pub(super) upstreams: BTreeSet<Name>,
    /// The listeners that count it.
    pub(super) listeners: BTreeSet<usize>,
    /// Policies of its backends, and the Gateways that use them.
    pub(super) policies: BTreeSet<(Id, Id)>,
    /// The same of XBackendTrafficPolicies.
    pub(super) traffic: BTreeSet<(Id, Id)>,
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
        self.routes.clear();
        self.by_rank.clear();
        self.upstreams.clear();
        self.users.clear();
        self.readers.clear();
        let keys = Kind::ALL.into_iter().filter(|kind| kind.is_route());
        let keys: Vec<Key> = keys.flat_map(|kind| store.keys(kind)).collect();
        self.complete(store, places, &keys, &[])
    }

    /// Translates what depends on changes since the last translation of the same store. Without a change of a Gateway, `places`
    /// must be as it was.
    #[must_use]
    pub fn update(&mut self, store: &Store, places: &dyn Places, changes: &Changes) -> Update {
        if changes.affect_all() {
            return Update::Translation(Box::new(self.translate(store, places)));
        }
        let (services, routes): (Vec<&Key>, Vec<&Key>) =
            changes.objects.iter().partition(|key| key.kind == Kind::Service);
        let services: Vec<Id> = services.into_iter().map(Key::id).collect();
        let mut stale: BTreeSet<Key> = routes.into_iter().cloned().collect();
        for service in &services {
            stale.extend(self.readers.get(service).into_iter().flatten().cloned());
        }
        let endpoints = self.update_endpoints(store, &changes.endpoints);
        if stale.is_empty() {
            return if endpoints.is_empty() {
                Update::Unchanged
            } else {
                Update::Endpoints(endpoints)
            };
        }
        for service in &services {
            for name in self.upstreams_of(service) {
                self.upstreams.remove(&name);
            }
        }
        let stale: Vec<Key> = stale.into_iter().collect();
        let forgotten: Vec<Arc<Memo>> = stale.iter().filter_map(|key| self.forget(key)).collect();
        Update::Translation(Box::new(self.complete(store, places, &stale, &forgotten)))
    }

    /// Sets the endpoints of the upstreams of these Services, and returns those that have changed.
    fn update_endpoints(&mut self, store: &Store, services: &BTreeSet<Id>) -> Vec<(Name, Vec<Endpoint>)> {
        let mut changed = Vec::new();
        for service in services {
            for name in self.upstreams_of(service) {
                let Some(known) = self.upstreams.get_mut(&name) else {
                    continue;
                };
                let location = &self.settings.location;
                let found = endpoints(store, service, &known.port, location, known.distribution);
                if known.upstream.endpoints != found {
                    Arc::make_mut(&mut known.upstream).endpoints.clone_from(&found);
                    changed.push((name, found));
                }
            }
        }
        changed
    }

    fn upstreams_of(&self, service: &Id) -> Vec<Name> {
        let prefix = upstream_prefix(service);
        let from = self.upstreams.range(Name::from(&*prefix)..);
        let names = from.map(|(name, _)| name);
        names
            .take_while(|name| name.starts_with(&prefix))
            .cloned()
            .collect()
    }

    fn forget(&mut self, key: &Key) -> Option<Arc<Memo>> {
        let memo = self.routes.remove(key)?;
        self.by_rank.remove(&memo.rank);
        for service in &memo.reads.services {
            if let Some(readers) = self.readers.get_mut(service) {
                readers.remove(key);
                if readers.is_empty() {
                    self.readers.remove(service);
                }
            }
        }
        for upstream in &memo.reads.upstreams {
            if let Some(users) = self.users.get_mut(upstream) {
                *users -= 1;
            }
        }
        Some(memo)
    }

    /// Translates the routes with these keys that exist, which must not be known, and derives all else. `forgotten` are routes that were
    /// known.
    fn complete(
        &mut self,
        store: &Store,
        places: &dyn Places,
        keys: &[Key],
        forgotten: &[Arc<Memo>],
    ) -> Translation {
        let mut context = Context {
            store,
            location: self.settings.location.clone(),
            policies: policy::PolicyIndex::new(store),
            traffic: traffic::TrafficIndex::new(store),
            upstreams: std::mem::take(&mut self.upstreams),
            certificates: BTreeMap::new(),
            authorities: BTreeMap::new(),
            findings: Findings::default(),
            reads: Reads::default(),
        };
        let classes: Vec<&Arc<GatewayClass>> = store
            .all::<GatewayClass>()
            .filter(|class| class.spec.controller_name == self.settings.controller_name)
            .collect();
        for class in &classes {
            let conditions = gateway::class_conditions(class);
            context.findings.classes.insert(class.metadata.id(), conditions);
        }
        let mut attached = Attached::new(&mut context, &classes, places);
        let context = &mut context;
        for memo in self.routes.values() {
            attached.count(&memo.reads.listeners);
            context.policies.add(&memo.reads.policies);
            context.traffic.add(&memo.reads.traffic);
        }
        for key in keys {
            self.translate_route(context, &mut attached, key);
        }
        let findings = self.routes.iter();
        let findings = findings.map(|(key, memo)| (key.clone(), Arc::clone(&memo.finding)));
        context.findings.routes = findings.collect();
        policy::report(context);
        traffic::report(context);
        let listeners = attached.finish(context);
        self.upstreams = std::mem::take(&mut context.upstreams);
        self.drop_unused_upstreams(forgotten);
        let (routes, streams) = self.by_precedence();
        let upstreams = self.upstreams.values();
        Translation {
            parts: Config {
                listeners,
                routes,
                streams,
                upstreams: upstreams.map(|known| Arc::clone(&known.upstream)).collect(),
                certificates: std::mem::take(&mut context.certificates).into_values().collect(),
                authorities: std::mem::take(&mut context.authorities).into_values().collect(),
                ..Config::default()
            },
            findings: std::mem::take(&mut context.findings),
        }
    }

    /// Translates a route, if it exists.
    fn translate_route<'a>(&mut self, context: &mut Context<'a>, attached: &mut Attached<'a>, key: &Key) {
        let (store, namespace, name) = (context.store, &*key.namespace, &*key.name);
        context.reads = Reads::default();
        let translated = match key.kind {
            Kind::HttpRoute => store.get::<HttpRoute>(namespace, name).map(|route| {
                let parts = shared(http::translate_http(context, attached, route));
                (&route.metadata, RouteParts::Http(parts))
            }),
            Kind::GrpcRoute => store.get::<GrpcRoute>(namespace, name).map(|route| {
                let parts = shared(http::translate_grpc(context, attached, route));
                (&route.metadata, RouteParts::Http(parts))
            }),
            Kind::TlsRoute => store.get::<TlsRoute>(namespace, name).map(|route| {
                let parts = shared(stream::translate_tls(context, attached, route));
                (&route.metadata, RouteParts::Stream(parts))
            }),
            Kind::TcpRoute => store.get::<TcpRoute>(namespace, name).map(|route| {
                let parts = shared(stream::translate_tcp(context, attached, route));
                (&route.metadata, RouteParts::Stream(parts))
            }),
            Kind::UdpRoute => store.get::<UdpRoute>(namespace, name).map(|route| {
                let parts = shared(stream::translate_udp(context, attached, route));
                (&route.metadata, RouteParts::Stream(parts))
            }),
            _ => None,
        };
        let Some((meta, parts)) = translated else { return };
        self.remember(context, key, meta, parts);
    }

    fn remember(&mut self, context: &mut Context<'_>, key: &Key, meta: &Meta, parts: RouteParts) {
        let mut reads = std::mem::take(&mut context.reads);
        reads.policies = context.policies.take_found();
        reads.traffic = context.traffic.take_found();
        for service in &reads.services {
            let readers = self.readers.entry(service.clone()).or_default();
            readers.insert(key.clone());
        }
        for upstream in &reads.upstreams {
            *self.users.entry(Arc::clone(upstream)).or_default() += 1;
        }
        let rank = Rank {
            created: meta.creation_timestamp.as_str().into(),
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
            kind: key.kind,
        };
        let memo = Arc::new(Memo {
            rank: rank.clone(),
            parts,
            finding: context.findings.routes.remove(key).unwrap_or_default(),
            reads,
        });
        self.by_rank.insert(rank, Arc::clone(&memo));
        self.routes.insert(key.clone(), memo);
    }

    /// Drops the upstreams that these routes have used and no route uses now.
    fn drop_unused_upstreams(&mut self, forgotten: &[Arc<Memo>]) {
        for name in forgotten.iter().flat_map(|memo| &memo.reads.upstreams) {
            if self.users.get(name) == Some(&0) {
                self.users.remove(name);
                self.upstreams.remove(name);
            }
        }
    }

    /// Returns the parts of every route, in the order of precedence.
    fn by_precedence(&self) -> (Vec<Arc<Route>>, Vec<Arc<StreamRoute>>) {
        let (mut routes, mut streams) = (Vec::new(), Vec::new());
        for memo in self.by_rank.values() {
            match &memo.parts {
                RouteParts::Http(parts) => routes.extend(parts.iter().cloned()),
                RouteParts::Stream(parts) => streams.extend(parts.iter().cloned()),
            }
        }
        (routes, streams)
    }
}

fn shared<T>(parts: Vec<T>) -> Vec<Arc<T>> {
    parts.into_iter().map(Arc::new).collect()
}
