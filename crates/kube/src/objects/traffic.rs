//! Experimental: session persistence of rules and Services, and XBackendTrafficPolicy. Clusters with the standard channel have
//! neither these fields nor the kind.

use serde::Deserialize;

use super::policy::TargetRef;
use super::{Meta, Status};

/// Requests of one client go to one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionPersistence {
    /// `Cookie` (the default) or `Header`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The maximum duration of a session, as a duration of GEP-2257.
    pub absolute_timeout: Option<String>,
    /// For `Cookie`.
    pub cookie: Option<SessionCookie>,
    /// For `Header`.
    pub header: Option<SessionHeader>,
}

/// A cookie that names a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionCookie {
    /// Default: a name that no other backend has.
    pub name: Option<String>,
    /// Default: `/`.
    pub path: Option<String>,
    /// `Session` (the default) or `Permanent`: with `Max-Age`.
    pub lifetime_type: Option<String>,
}

/// A header that names a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SessionHeader {
    /// Its name.
    pub name: String,
}

/// The treatment of requests to Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct XBackendTrafficPolicy {
    /// Its metadata.
    pub metadata: Meta,
    /// Its specification.
    pub spec: XBackendTrafficPolicySpec,
    /// As the API server has it.
    pub status: Status,
}

/// The specification of an [`XBackendTrafficPolicy`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XBackendTrafficPolicySpec {
    /// The Services, of its own namespace. A section name is not part of the kind.
    pub target_refs: Vec<TargetRef>,
    /// The budget of retries.
    pub retry_constraint: Option<RetryConstraint>,
    /// Sessions of rules that have no persistence of their own.
    pub session_persistence: Option<SessionPersistence>,
}

/// A budget of retries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryConstraint {
    /// Default: 20 % within 10 s.
    pub budget: Option<RetryShare>,
    /// Default: 10 in 1 s.
    pub min_retry_rate: Option<RequestRate>,
}

/// The share of retries among requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RetryShare {
    /// Default: 20.
    pub percent: Option<u32>,
    /// The time for which a request counts. Default: 10 s.
    pub interval: Option<String>,
}

/// A rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestRate {
    /// Default: 10.
    pub count: Option<u32>,
    /// Default: 1 s.
    pub interval: Option<String>,
}
