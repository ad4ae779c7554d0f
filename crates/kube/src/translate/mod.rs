//! The translation: the objects of a cluster into parts of the model, and findings about each object.
//!
//! Pure: the same store, settings and places give the same translation, whether all is translated or what depends on a change
//! ([`Translator`]). Nothing fails open: a rule that cannot be translated keeps its requests and responds 500,
//! a listener without a valid certificate keeps its hosts, and a route whose hosts are all invalid is not attached.
//!
//! Owns the collected parts. Knows no API server and no clock.

mod backend;
mod condition;
mod external_auth;
mod features;
mod filters;
mod findings;
mod gateway;
mod http;
mod listener;
mod location;
mod matches;
mod order;
mod persistence;
mod places;
mod policy;
mod reference;
mod route;
mod stream;
mod text;
mod traffic;
mod translator;
mod upstreams;

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_gateway::model::{Authorities, Certificate, Config, Name};

use crate::objects::Key;
use crate::store::Store;

pub use condition::Condition;
pub use features::FEATURES;
pub use findings::{
    Ancestor, Findings, FindingsUpdate, GatewayFinding, ListenerFinding, ListenerSetFinding, Parent,
};
pub use location::Location;
pub use places::{AddressProblem, Placement, Places, StatusAddress};
pub use translator::{PartsUpdate, Translator, Update};

/// The name of our controller unless the configuration sets another one.
pub const CONTROLLER_NAME: &str = "ringmain.dev/gateway";

/// Settings of the translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// GatewayClasses with this controller are ours. Default [`CONTROLLER_NAME`].
    pub controller_name: String,
    /// The location of this process, for Services that prefer near endpoints. Default: unknown.
    pub location: Location,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            controller_name: CONTROLLER_NAME.to_owned(),
            location: Location::default(),
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

/// Translates all objects of a store, without another translation before it.
#[must_use]
pub fn translate(store: &Store, settings: &Settings, places: &dyn Places) -> Translation {
    Translator::new(settings.clone()).translate(store, places)
}

/// Collects while objects are translated.
struct Context<'a> {
    store: &'a Store,
    location: Location,
    policies: policy::PolicyIndex<'a>,
    traffic: traffic::TrafficIndex<'a>,
    upstreams: BTreeMap<Name, backend::KnownUpstream>,
    certificates: BTreeMap<Name, Arc<Certificate>>,
    authorities: BTreeMap<Name, Arc<Authorities>>,
    findings: Findings,
    /// Of the route that is translated.
    reads: translator::Reads,
}

/// The name of a part: that of its object, and a suffix.
fn part_name(key: &Key, suffix: &str) -> Name {
    format!("{key}{suffix}").into()
}
