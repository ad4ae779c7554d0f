//! An external rate limit service.

use std::sync::Arc;
use std::time::Duration;

use super::{HeaderMatch, HeaderName, Hostname, RateKey, Target};
use crate::limits;

/// An external rate limit service, which is queried over gRPC with the descriptors of each request
/// (`envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`) and counts for all gateways.
///
/// A failure of the service concerns the request whose call failed, and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateService {
    /// The upstream of the service, which must speak HTTP/2.
    pub upstream: Target,
    /// The `Host` of calls. Default: `None`, the endpoint's own.
    pub host: Option<Hostname>,
    /// The domain, which the service keeps apart from others; not empty.
    pub domain: Arc<str>,
    /// The descriptors, 1 to [`limits::RATE_DESCRIPTORS`]. A request without descriptors is admitted without a call.
    pub descriptors: Vec<RateDescriptor>,
    /// Headers for the upstream that the service may set, and clients cannot. It may set others, too, in place of the client's.
    pub upstream_headers: Vec<HeaderName>,
    /// Adds `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` to responses, by the statuses that the service reports.
    /// Default: `false`.
    pub limit_headers: bool,
    /// The status of the response to a request over the limit, from 400 to 599. Default: 429.
    pub status: u16,
    /// Time limit of a call, connecting included. Default: [`limits::RATE_SERVICE_TIMEOUT`].
    pub timeout: Duration,
    /// Admits a request if the service fails; never because of a limit of the gateway, or of a failure that the request may have caused.
    /// Default: `false`, 503.
    pub fail_open: bool,
}

impl RateService {
    /// Creates a policy for this service, with defaults otherwise.
    #[must_use]
    pub fn new(
        upstream: Target,
        domain: impl Into<Arc<str>>,
        descriptors: Vec<RateDescriptor>,
    ) -> RateService {
        RateService {
            upstream,
            host: None,
            domain: domain.into(),
            descriptors,
            upstream_headers: Vec::new(),
            limit_headers: false,
            status: 429,
            timeout: limits::RATE_SERVICE_TIMEOUT,
            fail_open: false,
        }
    }

    /// Returns whether a descriptor depends on the identity that other policies establish.
    #[must_use]
    pub fn needs_identity(&self) -> bool {
        self.keys()
            .any(|key| matches!(key, RateKey::Identity | RateKey::Claim(_)))
    }

    /// Returns the parts of the request that descriptors have.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &RateKey> {
        let entries = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        entries.filter_map(|entry| match &entry.value {
            RateEntryValue::Request(key) => Some(key),
            _ => None,
        })
    }
}

/// A descriptor: the entries by which the service finds a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateDescriptor {
    /// The entries, 1 to [`limits::RATE_DESCRIPTORS`], in their order.
    pub entries: Vec<RateEntry>,
    /// The number of hits that a request counts for. Default: `None`, the service's own default, 1.
    pub hits: Option<u64>,
}

/// An entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateEntry {
    /// The key, not empty.
    pub key: Arc<str>,
    /// The value.
    pub value: RateEntryValue,
    /// Omits the entry if the request has no value for it. Default: `false`, the descriptor is omitted.
    pub optional: bool,
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateEntryValue {
    /// This text, not empty.
    Constant(Arc<str>),
    /// This text, if the request has all of these headers, or with `expect: false` if it has not.
    Match {
        /// The text, not empty.
        text: Arc<str>,
        /// The headers, at least one.
        headers: Vec<HeaderMatch>,
        /// The result of the comparison that the entry requires.
        expect: bool,
    },
    /// A part of the request. An address whose network is not the whole address is followed by the length of its prefix.
    Request(RateKey),
    /// The name of the route.
    Route,
}
