//! Policies, kind by kind, that apply to a request before its rule's action. The data plane defines their order ([`crate::policy`]).

use std::sync::Arc;
use std::time::Duration;

use super::jwt::Jwt;
use super::{
    Concurrency, ExternalProcessor, FaultInjection, FilterUse, HeaderName, LoadShedding, MethodName, Network,
    Origin, RateLimit, RateService,
};
use super::{Hostname, PasswordHash, StatusRange, Target};

/// A requirement of requests, or processing around them. Each kind of policy is a variant here and a file in the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Admits or denies client addresses.
    Addresses(Arc<Addresses>),
    /// Lets scripts of other origins read responses.
    Cors(Arc<Cors>),
    /// Forwards the client certificate to the upstream, and may require one.
    ClientCertificate(Arc<ClientCertificate>),
    /// Requires a user name and a password.
    Basic(Arc<BasicAuth>),
    /// Requires an API key.
    ApiKeys(Arc<ApiKeys>),
    /// Requires a token signed by an identity provider.
    Jwt(Arc<Jwt>),
    /// Admits a request that satisfies one of [`ClientCertificate`](Self::ClientCertificate), [`Basic`](Self::Basic),
    /// [`ApiKeys`](Self::ApiKeys), [`Jwt`](Self::Jwt) and [`Addresses::allow`]. The rule must have at least two of these. Without a
    /// certificate the first is not satisfied, whatever [`ClientCertificate::required`] is. [`Addresses::deny`] still denies.
    SatisfyAny,
    /// Queries an external authorization service.
    ExternalAuth(Arc<ExternalAuth>),
    /// Limits requests per period.
    RateLimit(Arc<RateLimit>),
    /// Queries an external rate limit service.
    RateService(Arc<RateService>),
    /// Limits concurrent requests.
    Concurrency(Arc<Concurrency>),
    /// Refuses requests first under overload.
    Shed(LoadShedding),
    /// Injects faults.
    Inject(Arc<FaultInjection>),
    /// Passes requests and responses through an external processor, before custom filters.
    Processor(Arc<ExternalProcessor>),
    /// Passes requests and responses through a custom filter. Several filters apply in their order.
    Filter(Arc<FilterUse>),
}

/// Admitted and denied networks, by the client's address ([`ClientAddress`](super::ClientAddress)).
///
/// A request without an address, as on a Unix socket without a trusted header, is in no network: it passes unless [`allow`](Self::allow)
/// has entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Only these are admitted, unless the list is empty.
    pub allow: Vec<Network>,
    /// These are denied, whatever [`allow`](Self::allow) has.
    pub deny: Vec<Network>,
}

/// The handling of the certificate that a client presented in its TLS handshake: it is forwarded to the upstream in headers (RFC 9440),
/// which clients cannot send themselves. The listener decides whether it was verified ([`ClientCertificates`](super::ClientCertificates)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Refuses clients without a certificate. Default: `false`, they pass without these headers.
    pub required: bool,
    /// Forwards the intermediate certificates, too, in `Client-Cert-Chain`, unless they exceed
    /// [`CERTIFICATE_CHAIN_BYTES`](crate::limits::CERTIFICATE_CHAIN_BYTES). Default: `false`.
    pub chain: bool,
    /// A header for the certificate's SHA-256, in hexadecimal digits. Default: `None`.
    pub fingerprint: Option<HeaderName>,
    /// A header for the result of verification: `verified`, `unverified` or `none`. With it the upstream also receives invalid
    /// certificates, which a listener admits only in the mode [`Unchecked`](super::ClientCertificateMode::Unchecked). Default: `None`, an
    /// invalid certificate counts as none.
    pub verification: Option<HeaderName>,
}

/// Basic authentication (RFC 7617): a name and a password, which the client sends with every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// The realm, which browsers show to users; without `"` and `\\`.
    pub realm: Arc<str>,
    /// The users, each name once. No other user is admitted.
    pub users: Arc<[User]>,
    /// A header that forwards the name of the user to the upstream. Default: `None`.
    pub user_header: Option<HeaderName>,
    /// Removes `Authorization` before the request is forwarded. Default: `true`.
    pub hide: bool,
}

/// A user with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, without a colon.
    pub name: Arc<str>,
    /// The hash of the password.
    pub password: PasswordHash,
}

/// API keys of consumers, and their locations in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeys {
    /// The locations, at least one. The first key of a request applies.
    pub from: Vec<CredentialSource>,
    /// The keys, by SHA-256, each once.
    pub keys: Arc<[ApiKey]>,
    /// A header that forwards the name of the consumer to the upstream. Default: `None`.
    pub consumer_header: Option<HeaderName>,
    /// Removes headers with keys before the request is forwarded; cookies and queries are forwarded. Default: `true`.
    pub hide: bool,
}

/// The location of a key in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// The whole value of a header; for `Authorization` the part after `Bearer`.
    Header(HeaderName),
    /// A query parameter. Logs redact its value.
    Query(Arc<str>),
    /// A cookie.
    Cookie(Arc<str>),
}

/// The key of a consumer.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The name of the consumer.
    pub consumer: Arc<str>,
    /// The SHA-256 of the key.
    pub digest: [u8; 32],
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey")
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

/// An external authorization service, which is queried over HTTP or gRPC with the head of each request, and with its body up to
/// [`body`](Self::body).
///
/// Over HTTP a status of [`allowed`](Self::allowed) allows the request. Another one up to 499 refuses it, and one from 300 on is sent to the client.
/// Anything else is a failure for this request: other statuses, no response in time, an upstream that is at its limit or unreachable. A
/// failure does not affect other requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAuth {
    /// The upstream of the service.
    pub upstream: Target,
    /// The `Host`. `None`: the endpoint's own, or the client's with [`client_host`](Self::client_host).
    pub host: Option<Hostname>,
    /// Sends the client's `Host` if [`host`](Self::host) is not set. Default: `false`.
    pub client_host: bool,
    /// The form of the query.
    pub ask: AuthzRequest,
    /// Bytes of the request body that the service receives, at most [`AUTHZ_REQUEST_BYTES`](crate::limits::AUTHZ_REQUEST_BYTES). A request
    /// with a longer body is refused (413). Not with [`AuthzRequest::Path`], filters, gRPC-Web or push. Default: 0, the body is not sent.
    pub body: u64,
    /// Sends `Cookie` to the service. Default: `true`.
    pub cookies: bool,
    /// Statuses that allow a request, within 200 to 299. Default: all of these.
    pub allowed: StatusRange,
    /// Request headers that the service receives, besides `Authorization`, [`Cookie`](Self::cookies), and those that earlier policies
    /// write.
    pub request_headers: Vec<HeaderName>,
    /// Headers of the service's response that are forwarded to the upstream with an allowed request. Clients cannot send them.
    pub upstream_headers: Vec<HeaderName>,
    /// Forwards all other headers of the service's response, too, in place of the client's; except those that describe the response itself
    /// (`Content-*`, `Date`, `Server`, `Set-Cookie`, `Via`), those of the connection, `Host`, and those in which the gateway identifies the
    /// client. Default: `false`.
    pub all_upstream_headers: bool,
    /// Headers of the service's response that the client of a refused request receives, besides `Content-Type`, `Location`, `Set-Cookie`
    /// and `WWW-Authenticate`.
    pub client_headers: Vec<HeaderName>,
    /// The response header that has the client's identity. Default: `None`.
    pub identity: Option<HeaderName>,
    /// Time limit of a query. Default: 1 s.
    pub timeout: Duration,
    /// Allows a request if the service fails; never because of a limit of the gateway. Default: `false`, 503.
    pub fail_open: bool,
    /// The status of the response to a request that is refused because the service fails, from 400 to 599. Default: 503.
    pub failure_status: Option<u16>,
}

impl ExternalAuth {
    /// Returns the settings of queries over gRPC.
    #[must_use]
    pub fn grpc(&self) -> Option<&GrpcCheck> {
        match &self.ask {
            AuthzRequest::Grpc(check) => Some(check),
            AuthzRequest::Prefix(_) | AuthzRequest::Path(_) => None,
        }
    }

    /// Creates a policy for this service and form of query, with defaults otherwise.
    #[must_use]
    pub fn new(upstream: Target, ask: AuthzRequest) -> ExternalAuth {
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
            failure_status: None,
        }
    }
}

/// The form of a query to an authorization service. Over HTTP `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For` are always sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthzRequest {
    /// The request's method, with this prefix before its path and query. The prefix is empty, or begins with `/` and does not end with it.
    Prefix(Arc<str>),
    /// GET of this path and query.
    Path(Arc<str>),
    /// The method `envoy.service.auth.v3.Authorization/Check` over gRPC. The upstream must speak HTTP/2.
    ///
    /// The service receives all request headers, unless [`request_headers`](ExternalAuth::request_headers) lists some. It changes request
    /// headers as it decides; clients cannot send those in [`upstream_headers`](ExternalAuth::upstream_headers).
    Grpc(Arc<GrpcCheck>),
}

/// Settings of queries to an authorization service over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrpcCheck {
    /// Values for the service, each name once (`context_extensions`).
    pub context: Vec<(String, String)>,
    /// Sends the beginning of a body that exceeds [`ExternalAuth::body`], and forwards the request. Default: `false`, 413.
    pub partial_body: bool,
    /// Sends each body as bytes (`raw_body`). Default: `false`, only those that are not UTF-8.
    pub raw_body: bool,
    /// Sends the client's certificate. Default: `false`, only the name in it.
    pub certificate: bool,
    /// The name of the text in the service's dynamic metadata that identifies the client. Default: `None`.
    pub identity_metadata: Option<Arc<str>>,
}

/// Cross-origin resource sharing, as the Fetch standard defines it. The gateway answers preflight requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// The origins that the policy applies to. Empty: none.
    pub origins: Vec<Origin>,
    /// The methods that preflight responses list. Empty with [`any_method`](Self::any_method) `false`: GET, HEAD and POST, which browsers
    /// allow in any case.
    pub methods: Vec<MethodName>,
    /// Allows every method.
    pub any_method: bool,
    /// Request headers besides the safelisted ones.
    pub request_headers: Vec<HeaderName>,
    /// Allows every request header.
    pub any_request_header: bool,
    /// Response headers besides the safelisted ones that scripts may read. With [`credentials`](Self::credentials) a `*` is not sent:
    /// browsers take it for the name of a header.
    pub exposed_headers: Vec<HeaderName>,
    /// Allows credentials, such as cookies. Default: `false`.
    pub credentials: bool,
    /// Time for which browsers may cache a preflight response. Default: `None`, the browsers' own (5 s).
    pub max_age: Option<Duration>,
}
