//! The translation: the objects of a cluster into parts of the model, and findings about each object.
//!
//! Pure: the same store, settings and places give the same translation. A function for each Gateway, route and Service, so
//! that it can become incremental. Nothing fails open: a rule that cannot be translated keeps its requests and responds 500,
//! a listener without a valid certificate keeps its hosts, and a route whose hosts are all invalid is not attached.
//!
//! Owns the order of the steps and the collected parts. Knows no API server and no clock.

mod backend;
mod condition;
mod external_auth;
mod features;
mod filters;
mod findings;
mod gateway;
mod http;
mod listener;
mod matches;
mod persistence;
mod places;
mod policy;
mod reference;
mod route;
mod stream;
mod text;
mod traffic;

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_gateway::model::{Authorities, Certificate, Config, Name, Upstream};

use crate::objects::{GatewayClass, GrpcRoute, HttpRoute, Id, Key, Kind, TcpRoute, TlsRoute};
use crate::store::Store;

pub use condition::Condition;
pub use features::FEATURES;
pub use findings::{Ancestor, Findings, GatewayFinding, ListenerFinding, ListenerSetFinding, Parent};
pub use places::{AddressProblem, Placement, Places, StatusAddress};

/// The name of our controller unless the configuration sets another one.
pub const CONTROLLER_NAME: &str = "ringmain.dev/gateway";

/// Settings of the translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// GatewayClasses with this controller are ours. Default [`CONTROLLER_NAME`].
    pub controller_name: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            controller_name: CONTROLLER_NAME.to_owned(),
        }
    }
}

/// The parts of the model that objects give, and findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// Listeners, routes, streams, upstreams, certificates and authorities, routes in the order of precedence. All else has its
    /// default.
    pub parts: Config,
    /// The results for each object.
    pub findings: Findings,
}

/// Translates all objects of a store.
#[must_use]
pub fn translate(store: &Store, settings: &Settings, places: &dyn Places) -> Translation {
    let mut context = Context {
        store,
        policies: policy::PolicyIndex::new(store),
        traffic: traffic::TrafficIndex::new(store),
        upstreams: BTreeMap::new(),
        certificates: BTreeMap::new(),
        authorities: BTreeMap::new(),
        findings: Findings::default(),
    };
    let classes: Vec<&Arc<GatewayClass>> = store
        .all::<GatewayClass>()
        .filter(|class| class.spec.controller_name == settings.controller_name)
        .collect();
    for class in &classes {
        context
            .findings
            .classes
            .insert(class.metadata.id(), gateway::class_conditions(class));
    }
    let mut attached = gateway::Attached::new(&mut context, &classes, places);
    let mut routes = Ordered::default();
    let mut streams = Ordered::default();
    for route in store.all::<HttpRoute>() {
        let found = http::translate_http(&mut context, &mut attached, route);
        routes.add(Kind::HttpRoute, &route.metadata, found);
    }
    for route in store.all::<GrpcRoute>() {
        let found = http::translate_grpc(&mut context, &mut attached, route);
        routes.add(Kind::GrpcRoute, &route.metadata, found);
    }
    for route in store.all::<TlsRoute>() {
        let found = stream::translate_tls(&mut context, &mut attached, route);
        streams.add(Kind::TlsRoute, &route.metadata, found);
    }
    for route in store.all::<TcpRoute>() {
        let found = stream::translate_tcp(&mut context, &mut attached, route);
        streams.add(Kind::TcpRoute, &route.metadata, found);
    }
    policy::report(&mut context);
    traffic::report(&mut context);
    let listeners = attached.finish(&mut context);
    Translation {
        parts: Config {
            listeners,
            routes: routes.sorted(),
            streams: streams.sorted(),
            upstreams: context.upstreams.into_values().collect(),
            certificates: context.certificates.into_values().collect(),
            authorities: context.authorities.into_values().collect(),
            ..Config::default()
        },
        findings: context.findings,
    }
}

/// Collects while objects are translated.
struct Context<'a> {
    store: &'a Store,
    policies: policy::PolicyIndex<'a>,
    traffic: traffic::TrafficIndex<'a>,
    upstreams: BTreeMap<Name, Arc<Upstream>>,
    certificates: BTreeMap<Name, Arc<Certificate>>,
    authorities: BTreeMap<Name, Arc<Authorities>>,
    findings: Findings,
}

/// Routes by precedence: age, then namespace and name.
struct Ordered<T>(BTreeMap<(String, Id, Kind), Vec<Arc<T>>>);

impl<T> Default for Ordered<T> {
    fn default() -> Ordered<T> {
        Ordered(BTreeMap::new())
    }
}

impl<T> Ordered<T> {
    fn add(&mut self, kind: Kind, meta: &crate::objects::Meta, found: Vec<T>) {
        let key = (meta.creation_timestamp.clone(), meta.id(), kind);
        self.0.insert(key, found.into_iter().map(Arc::new).collect());
    }

    fn sorted(self) -> Vec<Arc<T>> {
        self.0.into_values().flatten().collect()
    }
}

/// The name of a part: that of its object, and a suffix.
fn part_name(key: &Key, suffix: &str) -> Name {
    format!("{key}{suffix}").into()
}
