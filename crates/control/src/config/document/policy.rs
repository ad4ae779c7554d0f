//! Keys of what a request must pass before its rule's action.

use ringmain_gateway::model::{HeaderName, Network};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Concurrency, Inject, Maybe, RateLimit, Shed, Some1};
use crate::config::values::{OneOrMany, Switch, Text};

/// What a request must pass, in the order that docs/policies.md gives. Of a route: for all of its rules; a rule has its own in
/// place of one of the same kind, and `false` for none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Policies {
    /// From which addresses requests may come.
    pub(in crate::config) addresses: Maybe<Switch<Addresses>>,
    /// The upstream is told of the certificate that a client has shown, in the header `Client-Cert` (RFC 9440).
    pub(in crate::config) client_certificate: Maybe<Switch<ClientCertificate>>,
    /// How many requests in a time: one limit, or several which all have to let a request pass.
    pub(in crate::config) rate_limit: Maybe<Switch<OneOrMany<RateLimit>>>,
    /// How many requests at once.
    pub(in crate::config) concurrency: Maybe<Switch<Concurrency>>,
    /// Requests that go first when there is too much to do.
    pub(in crate::config) shed: Maybe<Switch<Shed>>,
    /// Faults that are put in, to see what becomes of them.
    pub(in crate::config) inject: Maybe<Switch<Inject>>,
}

/// From which addresses requests may come, by the client's address as the listener's `client_address` has it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Addresses {
    /// From these alone. From all if it does not say.
    pub(in crate::config) allow: Some1<Text<Network>>,
    /// Not from these, whatever is allowed.
    pub(in crate::config) deny: Some1<Text<Network>>,
}

/// What becomes of the certificate that a client has shown. The listener asks for it: `tls.clients`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ClientCertificate {
    /// Clients without one are answered 403. `false` if it does not say.
    pub(in crate::config) required: Maybe<bool>,
    /// Also those that lead to its authority, in `Client-Cert-Chain`. `false` if it does not say.
    pub(in crate::config) chain: Maybe<bool>,
    /// A header for its SHA-256 in hexadecimal digits. None if it does not say.
    pub(in crate::config) fingerprint: Maybe<Text<HeaderName>>,
}
