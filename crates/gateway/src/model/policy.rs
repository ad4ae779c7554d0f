//! What a request must pass before its rule's action, kind by kind. The order of kinds is the data plane's
//! ([`crate::policy`]).

use std::sync::Arc;
use std::time::Duration;

use super::jwt::Jwt;
use super::{Concurrency, FilterUse, HeaderName, Inject, MethodName, Network, Origin, RateLimit, Shed};
use super::{Hostname, PasswordHash, StatusRange, Target};

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
    /// A name and a password.
    Basic(Arc<BasicAuth>),
    /// A key that consumers were given.
    ApiKeys(Arc<ApiKeys>),
    /// A token that an identity provider has signed.
    Jwt(Arc<Jwt>),
    /// One of [`ClientCertificate`](Self::ClientCertificate), [`Basic`](Self::Basic), [`ApiKeys`](Self::ApiKeys),
    /// [`Jwt`](Self::Jwt) and what [`Addresses::allow`] lists is enough, of which a rule must have two; a certificate is wanted
    /// then whatever [`ClientCertificate::required`] says. What [`Addresses::deny`] lists is not let in all the same.
    SatisfyAny,
    /// Somebody else is asked.
    ExternalAuth(Arc<ExternalAuth>),
    /// How many requests in a time.
    RateLimit(Arc<RateLimit>),
    /// How many requests at once.
    Concurrency(Arc<Concurrency>),
    /// Which requests go first when there is too much to do.
    Shed(Shed),
    /// Faults that are put in.
    Inject(Arc<Inject>),
    /// What the program does with requests and answers itself. Several are passed in their order.
    Filter(Arc<FilterUse>),
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
    /// A header for the result of verification: `verified`, `unverified` or `none`. With it the upstream also receives invalid
    /// certificates, which a listener admits in [`Unchecked`](super::ClientCertificateMode::Unchecked) mode alone. Default `None`:
    /// a certificate that is not valid counts as none.
    pub verification: Option<HeaderName>,
}

/// Basic authentication (RFC 7617): a name and a password, which the client sends with every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// What the client's user is told that the password is for; without `"` and `\\`.
    pub realm: Arc<str>,
    /// By name, none twice. Nobody else is let in.
    pub users: Arc<[User]>,
    /// A header that tells the upstream the user's name. Default `None`.
    pub user_header: Option<HeaderName>,
    /// `Authorization` goes no further. Default `true`.
    pub hide: bool,
}

/// Who may come in by a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Without a colon.
    pub name: Arc<str>,
    /// By what it is checked.
    pub password: PasswordHash,
}

/// Keys that consumers were given, and where they show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeys {
    /// At least one. The first that the request has counts.
    pub from: Vec<KeyPlace>,
    /// By the SHA-256 of the key, none twice.
    pub keys: Arc<[ApiKey]>,
    /// A header that tells the upstream the consumer's name. Default `None`.
    pub consumer_header: Option<HeaderName>,
    /// Headers with keys go no further; cookies and queries do. Default `true`.
    pub hide: bool,
}

/// Where a request has its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A header's whole value; of `Authorization` what is behind `Bearer`.
    Header(HeaderName),
    /// A parameter of the query. Logs redact its value.
    Query(Arc<str>),
    /// A cookie.
    Cookie(Arc<str>),
}

/// A consumer's key.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Whose.
    pub consumer: Arc<str>,
    /// SHA-256 of the key.
    pub digest: [u8; 32],
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey")
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

/// A service is asked by HTTP whether a request may pass: by its head, and by its body up to [`body`](Self::body).
///
/// A status of [`allowed`](Self::allowed) allows the request. Another one up to 499 refuses it; one from 300 on is sent to the client.
/// Anything else is a failure of this request: other statuses, no response in time, an upstream that is full or unreachable. It changes nothing for other requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAuth {
    /// Who is asked.
    pub upstream: Target,
    /// `Host`. `None`: the endpoint's own, or the client's with [`client_host`](Self::client_host).
    pub host: Option<Hostname>,
    /// Without [`host`](Self::host) `Host` is the client's. Default `false`.
    pub client_host: bool,
    /// How.
    pub ask: Ask,
    /// Bytes of the request's body that it receives, at most [`AUTHZ_REQUEST_BYTES`](crate::limits::AUTHZ_REQUEST_BYTES); a longer body
    /// is refused (413). Not with [`Ask::Path`], filters, gRPC-Web or push. Default 0: the body is not sent.
    pub body: u64,
    /// It sees `Cookie`. Default `true`.
    pub cookies: bool,
    /// Statuses that allow a request, within 200 to 299. Default: all of these.
    pub allowed: StatusRange,
    /// Headers of the request that it sees, beside `Authorization` and [`Cookie`](Self::cookies), and beside what policies before it write.
    pub request_headers: Vec<HeaderName>,
    /// Headers of its answer for the upstream when the request passes. Clients cannot send them.
    pub upstream_headers: Vec<HeaderName>,
    /// All other headers of its answer, too, in place of the client's: but for those that describe the answer itself (`Content-*`, `Date`,
    /// `Server`, `Set-Cookie`, `Via`), those of the connection, `Host`, and those by which the gateway says who asked. Default `false`.
    pub all_upstream_headers: bool,
    /// Headers of its answer for the client when the request is refused, beside `Content-Type`, `Location`, `Set-Cookie` and
    /// `WWW-Authenticate`.
    pub client_headers: Vec<HeaderName>,
    /// The header of its answer that says who asks. Default `None`.
    pub identity: Option<HeaderName>,
    /// How long it may take. Default 1 s.
    pub timeout: Duration,
    /// Whether a request that the service fails is allowed; never because of a limit of the gateway. Default `false`: 503.
    pub fail_open: bool,
}

impl ExternalAuth {
    /// Creates a policy with an upstream and a way to query it, and the defaults of everything else.
    #[must_use]
    pub fn new(upstream: Target, ask: Ask) -> ExternalAuth {
        ExternalAuth {
            upstream,
            host: None,
            client_host: false,
            ask,
            body: 0,
            cookies: true,
            allowed: StatusRange {
                first: 200,
                last: 299,
            },
            request_headers: Vec::new(),
            upstream_headers: Vec::new(),
            all_upstream_headers: false,
            client_headers: Vec::new(),
            identity: None,
            timeout: Duration::from_secs(1),
            fail_open: false,
        }
    }
}

/// How a service is asked. Always told are `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// With the request's method, and its path and query behind this, which is empty or begins with `/` and does not end with it.
    Prefix(Arc<str>),
    /// GET of this path and query.
    Path(Arc<str>),
}

/// Cross-origin resource sharing, as the Fetch standard has it. A preflight is answered by the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// Whose. None: nobody's.
    pub origins: Vec<Origin>,
    /// The methods that preflight responses list. Empty with [`any_method`](Self::any_method) `false`: GET, HEAD and POST, which browsers
    /// allow in any case.
    pub methods: Vec<MethodName>,
    /// Every method.
    pub any_method: bool,
    /// Request headers besides the safe ones.
    pub request_headers: Vec<HeaderName>,
    /// Every request header.
    pub any_request_header: bool,
    /// Response headers besides the safelisted ones that scripts may read. With [`credentials`](Self::credentials) a `*` is not sent:
    /// browsers take it for the name of a header.
    pub exposed_headers: Vec<HeaderName>,
    /// Cookies and the like are sent. Default `false`.
    pub credentials: bool,
    /// How long a preflight's answer holds. Default: `None`, what browsers have (5 s).
    pub max_age: Option<Duration>,
}
