//! What a request must pass before its rule's action, kind by kind. The order of kinds is the data plane's
//! ([`crate::policy`]).

use std::sync::Arc;
use std::time::Duration;

use super::{Concurrency, HeaderName, Hostname, Inject, MethodName, Network, RateLimit, Shed};

/// What a request must pass, or what is done around it. A kind of policy is a variant here and a file in the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// From which addresses requests may come.
    Addresses(Arc<Addresses>),
    /// Which other sites' scripts may read answers.
    Cors(Arc<Cors>),
    /// What becomes of the certificate that a client has shown.
    ClientCertificate(Arc<ClientCertificate>),
    /// How many requests in a time.
    RateLimit(Arc<RateLimit>),
    /// How many requests at once.
    Concurrency(Arc<Concurrency>),
    /// Which requests go first when there is too much to do.
    Shed(Shed),
    /// Faults that are put in.
    Inject(Arc<Inject>),
}

/// From which addresses requests may come, by the client's address ([`ClientAddress`](super::ClientAddress)).
///
/// A request without an address, as on a Unix socket whose word is not taken, is in no network: it passes unless there is
/// something to [`allow`](Self::allow).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// From these alone, if there are any.
    pub allow: Vec<Network>,
    /// Not from these, whatever is allowed.
    pub deny: Vec<Network>,
}

/// What becomes of the certificate that a client has shown in its TLS handshake: the upstream is told of it in headers
/// (RFC 9440), which clients cannot send themselves. Whether it was checked is the listener's to say
/// ([`ClientCertificates`](super::ClientCertificates)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Clients without one are refused. Default `false`: they pass, and nothing is said of them.
    pub required: bool,
    /// The certificates that lead to its authority are told too, in `Client-Cert-Chain`, unless they have more than
    /// [`CERTIFICATE_CHAIN_BYTES`](crate::limits::CERTIFICATE_CHAIN_BYTES). Default `false`.
    pub chain: bool,
    /// A header for its SHA-256, in hexadecimal digits. Default `None`.
    pub fingerprint: Option<HeaderName>,
}

/// Cross-origin resource sharing, as the Fetch standard has it. A preflight is answered by the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// Whose. None: nobody's.
    pub origins: Vec<Origin>,
    /// Besides GET, HEAD and POST. Empty with [`any_method`](Self::any_method) `false`: no more.
    pub methods: Vec<MethodName>,
    /// Every method.
    pub any_method: bool,
    /// Request headers besides the safe ones.
    pub request_headers: Vec<HeaderName>,
    /// Every request header.
    pub any_request_header: bool,
    /// Response headers besides the safe ones that scripts may read.
    pub exposed_headers: Vec<HeaderName>,
    /// Cookies and the like are sent. Default `false`.
    pub credentials: bool,
    /// How long a preflight's answer holds. Default: `None`, what browsers have (5 s).
    pub max_age: Option<Duration>,
}

/// Origins of scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// All.
    Any,
    /// One, or those of all hosts below one: `https`, the host, the port if it is not the scheme's own.
    Of {
        /// `http` or `https`.
        https: bool,
        /// Which hosts.
        host: Hostname,
        /// Which port; `None`: the scheme's own.
        port: Option<u16>,
    },
}
