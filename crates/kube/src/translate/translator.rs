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
    routes: BTreeMap<Key, Memo>,
    upstreams: BTreeMap<Name, KnownUpstream>,
    /// The routes that have read each Service, whether or not it exists.
    readers: BTreeMap<Id, BTreeSet<Key>>,
}

/// A translated route.
#[derive(Debug)]
struct Memo {
    /// The time of creation, in the text of the API.
    created: String,
    parts: RouteParts,
    finding: Arc<Vec<Parent>>,
    reads: Reads,
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
        self.upstreams.clear();
        self.readers.clear();
        self.complete(store, places)
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
        for key in &stale {
            self.forget(key);
        }
        Update::Translation(Box::new(self.complete(store, places)))
    }

    /// Sets the endpoints of the upstreams of these Services, and returns those that have changed.
    fn update_endpoints(&mut self, store: &Store, services: &BTreeSet<Id>) -> Vec<(Name, Vec<Endpoint>)> {
        let mut changed = Vec::new();
        for service in services {
            for name in self.upstreams_of(service) {
                let Some(known) = self.upstreams.get_mut(&name) else {
                    continue;
                };
                let found = endpoints(store, service, &known.port);
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

    fn forget(&mut self, key: &Key) {
        let Some(memo) = self.routes.remove(key) else {
            return;
        };
        for service in &memo.reads.services {
            if let Some(readers) = self.readers.get_mut(service) {
                readers.remove(key);
                if readers.is_empty() {
                    self.readers.remove(service);
                }
            }
        }
    }

    /// Translates the routes that are not known, and derives all else.
    fn complete(&mut self, store: &Store, places: &dyn Places) -> Translation {
        let mut context = Context {
            store,
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
        self.translate_routes(context, &mut attached);
        policy::report(context);
        traffic::report(context);
        let listeners = attached.finish(context);
        self.upstreams = std::mem::take(&mut context.upstreams);
        self.drop_unused_upstreams();
        let (routes, streams) = self.by_precedence();
        let upstreams = self.upstreams.values();
        let upstreams = upstreams.map(|known| Arc::clone(&known.upstream));
        Translation {
            parts: Config {
                listeners,
                routes,
                streams,
                upstreams: upstreams.collect(),
                certificates: std::mem::take(&mut context.certificates).into_values().collect(),
                authorities: std::mem::take(&mut context.authorities).into_values().collect(),
                ..Config::default()
            },
            findings: std::mem::take(&mut context.findings),
        }
    }

    fn translate_routes<'a>(&mut self, context: &mut Context<'a>, attached: &mut Attached<'a>) {
        let store = context.store;
        for route in store.all::<HttpRoute>() {
            self.route(
                context,
                attached,
                Kind::HttpRoute,
                &route.metadata,
                |context, attached| RouteParts::Http(shared(http::translate_http(context, attached, route))),
            );
        }
        for route in store.all::<GrpcRoute>() {
            self.route(
                context,
                attached,
                Kind::GrpcRoute,
                &route.metadata,
                |context, attached| RouteParts::Http(shared(http::translate_grpc(context, attached, route))),
            );
        }
        for route in store.all::<TlsRoute>() {
            self.route(
                context,
                attached,
                Kind::TlsRoute,
                &route.metadata,
                |context, attached| {
                    RouteParts::Stream(shared(stream::translate_tls(context, attached, route)))
                },
            );
        }
        for route in store.all::<TcpRoute>() {
            self.route(
                context,
                attached,
                Kind::TcpRoute,
                &route.metadata,
                |context, attached| {
                    RouteParts::Stream(shared(stream::translate_tcp(context, attached, route)))
                },
            );
        }
        for route in store.all::<UdpRoute>() {
            self.route(
                context,
                attached,
                Kind::UdpRoute,
                &route.metadata,
                |context, attached| {
                    RouteParts::Stream(shared(stream::translate_udp(context, attached, route)))
                },
            );
        }
    }

    /// Reports a route as it was translated; a route that is not known is translated by `translate`.
    fn route<'a>(
        &mut self,
        context: &mut Context<'a>,
        attached: &mut Attached<'a>,
        kind: Kind,
        meta: &Meta,
        translate: impl FnOnce(&mut Context<'a>, &mut Attached<'a>) -> RouteParts,
    ) {
        let key = Key::new(kind, Arc::clone(&meta.namespace), Arc::clone(&meta.name));
        if let Some(memo) = self.routes.get(&key) {
            attached.count(&memo.reads.listeners);
            context.policies.add(&memo.reads.policies);
            context.traffic.add(&memo.reads.traffic);
            context.findings.routes.insert(key, Arc::clone(&memo.finding));
            return;
        }
        context.reads = Reads::default();
        let parts = translate(context, attached);
        let mut reads = std::mem::take(&mut context.reads);
        reads.policies = context.policies.take_found();
        reads.traffic = context.traffic.take_found();
        for service in &reads.services {
            let readers = self.readers.entry(service.clone()).or_default();
            readers.insert(key.clone());
        }
        let finding = context.findings.routes.get(&key).cloned();
        let memo = Memo {
            created: meta.creation_timestamp.clone(),
            parts,
            finding: finding.unwrap_or_default(),
            reads,
        };
        self.routes.insert(key, memo);
    }

    fn drop_unused_upstreams(&mut self) {
        let used = self.routes.values().flat_map(|memo| &memo.reads.upstreams);
        let used: BTreeSet<&Name> = used.collect();
        self.upstreams.retain(|name, _| used.contains(name));
    }

    /// Returns the parts of every route: older ones first, then by namespace and name.
    fn by_precedence(&self) -> (Vec<Arc<Route>>, Vec<Arc<StreamRoute>>) {
        let mut memos: Vec<(&Key, &Memo)> = self.routes.iter().collect();
        memos.sort_by_key(|(key, memo)| (&*memo.created, &*key.namespace, &*key.name, key.kind));
        let (mut routes, mut streams) = (Vec::new(), Vec::new());
        for (_, memo) in memos {
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
