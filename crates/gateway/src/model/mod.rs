//! The intermediate form of every configuration: listeners, routes, upstreams and their policies.
//!
//! Plain data, complete and independent of its source. Each source translates into it by pure functions; the data plane reads nothing else.
//! A text that is invalid by itself was rejected when it was parsed (types of `text`); parts that contradict each other are found by
//! compiling ([`crate::table`]), route by route.
//!
//! A [`Config`] is a whole: an option that it does not set has the default that is documented at the field. Shared parts are in [`Arc`]s,
//! so that a source that changes one route passes the others unchanged.
//!
//! # The concepts of a gateway
//!
//! Every concept of the Gateway API (v1.7) has an equivalent here:
//!
//! | concept | here |
//! |---|---|
//! | Gateway, ListenerSet | [`Listener`]s; their names identify the owner |
//! | listener port and protocol HTTP, HTTPS, TLS, TCP, UDP | [`Listener::addresses`], [`Protocol`] |
//! | listener hostname, isolation of listeners | [`Listener::hostnames`]: of the listeners of an address the most specific takes a request,
//! and only its routes are searched |
//! | TLS mode Terminate, Passthrough, and both on one port | [`Protocol::Tls`], [`Protocol::TlsPassthrough`], beside each other on one address |
//! | certificateRefs | [`ListenerTls::certificates`] |
//! | frontend validation of client certificates, insecure fallback | [`ClientCertificates`], [`ClientCertificateMode`] |
//! | detection of misdirected requests (421) | follows from [`Listener::hostnames`]; no option needed |
//! | static and empty addresses | [`Listener::addresses`], which a translation fills in |
//! | parentRef with section name and port | [`Route::listeners`] |
//! | intersection of hostnames | [`Route::hostnames`] as the route has them: precedence follows these, and [`Listener::hostnames`] admit the requests |
//! | HTTPRoute rules, their names and order | [`Rule`], [`Rule::name`]; order as in [`crate::table`] |
//! | path Exact, PathPrefix, RegularExpression | [`PathMatch`] |
//! | method, headers, query parameters | [`Match`] |
//! | GRPCRoute method match | [`PathMatch`] of `/service/method`, `/service` or an expression |
//! | RequestHeaderModifier, ResponseHeaderModifier, on rules and on backends | [`HeaderChanges`] of [`Rule`] and of [`WeightedBackend`] |
//! | URLRewrite on rules and on backends | [`Rewrite`] of [`Forward`] and of [`WeightedBackend`] |
//! | RequestRedirect: scheme, host, port, path, 301, 302, 303, 307, 308 | [`Redirect`] |
//! | RequestMirror, several, with fraction or percentage | [`Mirror`] |
//! | CORS | [`Policy::Cors`] |
//! | ExtensionRef, listener filters | further kinds of [`Policy`]; [`Listener::policies`] |
//! | backendRefs with weights | [`Forward::backends`] |
//! | a backendRef that does not exist or is not allowed: 500 for its share | [`Target::Broken`] |
//! | no backendRefs: 500 | [`Forward::backends`] empty |
//! | a filter that cannot be resolved: 500, never skipped | [`Action::Broken`] |
//! | appProtocol h2c, ws, wss | [`UpstreamProtocol`], [`Forward::upgrades`], [`Upstream::tls`] |
//! | timeouts request, backendRequest | [`Timeouts::request`], [`Timeouts::per_try`] |
//! | retry: codes, attempts, backoff, connection errors | [`Retry`] |
//! | session persistence | [`Affinity`] |
//! | TLSRoute, TCPRoute, UDPRoute with weights | [`StreamRoute`] |
//! | BackendTLSPolicy: hostname, CA references, system's, subject alternative names | [`UpstreamTls`] |
//! | client certificate of the gateway for backends | [`UpstreamTls::certificate`] |
//! | Services, headless, slices of endpoints | [`Upstream::endpoints`] |
//! | endpoints that serve while they terminate | [`Endpoint::draining`] |
//! | status: the invalid rule, the parts that were left out | problems of [`crate::table`], by route and rule |

mod action;
mod channel;
mod ext_proc;
mod filter;
mod jwt;
mod limits;
mod listener;
mod matching;
mod nats;
mod origin;
mod password;
mod policy;
mod process;
mod push;
mod push_cluster;
mod rate_service;
mod route;
mod secret_params;
mod sources;
mod text;
mod tls;
mod upstream;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use action::{
    Action, DirectResponse, ErrorPage, Files, Forward, Fraction, HeaderChanges, Mirror, PathRewrite,
    Redirect, Rewrite, StaticBody, StatusHeaders, StatusRange, Target, WeightedBackend,
};
pub use channel::{CHANNEL_BOUNDS, ChannelBound, ChannelTemplate, RecordParts, Subject, SubjectPattern};
pub use ext_proc::{BodyMode, ExternalProcessor, ProcessingMode};
pub use filter::{FilterUse, Options};
pub use jwt::{
    ClaimHeader, ClaimPath, ClaimRule, Jwt, JwtAlgorithm, JwtKeys, JwtProvider, KeySet, RemoteKeys,
};
pub use limits::{Concurrency, FaultInjection, LoadShedding, RateHeaders, RateKey, RateLimit, Redis};
pub use listener::{
    ClientAddress, ClientHeader, EscapedSlashes, HttpLimits, HttpsRedirect, Listener, Paths, Protocol,
    ProxyProtocol,
};
pub use matching::{HeaderMatch, Match, PathMatch, QueryMatch, ValueMatch};
pub use nats::{Nats, NatsAccess, NatsLogin, NatsServer, NatsTls};
pub(crate) use origin::SerializedOrigin;
pub use origin::{Origin, OriginPort};
pub use password::PasswordHash;
pub use policy::{
    Addresses, ApiKey, ApiKeys, AuthzRequest, BasicAuth, ClientCertificate, Cors, CredentialSource,
    ExternalAuth, GrpcCheck, Policy, User,
};
pub use process::{
    AccessLog, AccessLogFormat, Admin, LogDestination, PerAddressLimit, ProcessLimits, ProcessLog,
    ProcessLogFormat,
};
pub use push::{
    Push, PushDataFormat, PushEndpoints, PushEvent, PushKeys, PushListen, PushNamespace, PushProxy,
    PushQuery, PushTokens,
};
pub use push_cluster::{
    JetStreamLog, KafkaLog, PUSH_LOG_PARTITIONS, PushCluster, PushClusterTls, PushLog, PushLogEngine,
    PushMembership, PushRebalance, PushRole, PushService, PushServicePort, PushTakeover, RedisLog, RedisLoss,
};
pub use rate_service::{RateDescriptor, RateEntry, RateEntryValue, RateService};
pub use ringmain_sys::addr::{Addr, AddrError};
pub use route::{
    Affinity, AffinityBy, BodyLimits, Cookie, DatagramSessions, Retry, RetryOn, Route, Rule, StreamRoute,
    Timeouts,
};
pub(crate) use secret_params::secret_params;
pub use sources::{
    BrokerLogin, BrokerTls, JetStream, Kafka, KafkaSasl, Mapping, Postgres, RecordFormat, RedisAccess,
    RedisDeployment, RedisPubSub, RedisStreams, SaslMechanism, Source, SourceKind, StartPosition,
};
pub use text::{
    HeaderName, HeaderValue, Hostname, MethodName, Name, Network, Path, Pattern, Secret, TextError,
};
pub use tls::{
    Authorities, Certificate, ClientCertificateMode, ClientCertificates, ListenerTls, SubjectName,
    TlsVersion, Trust, UpstreamTls,
};
pub use upstream::{
    ActiveHealth, Balance, Distance, Endpoint, EndpointLocation, HashKey, Health, HealthCheck,
    OutlierDetection, Pool, ProxyProtocolVersion, PushBalance, RetryBudget, SlowStart, Upstream,
    UpstreamProtocol, ZonePreference,
};

/// The complete configuration of a gateway.
///
/// Lists are in order of precedence where order matters (routes), and names are unique within their list: of two parts with one name the
/// first applies and the second is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The addresses that clients connect to.
    pub listeners: Vec<Arc<Listener>>,
    /// The routes of HTTP requests. Of routes that match alike the first applies.
    pub routes: Vec<Arc<Route>>,
    /// The routes of connections that are passed through: TCP, and TLS by its server name.
    pub streams: Vec<Arc<StreamRoute>>,
    /// The upstreams that routes forward to.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Certificates with their keys, for listeners and for upstreams that request one.
    pub certificates: Vec<Arc<Certificate>>,
    /// Sets of certificate authorities that client and upstream certificates are verified against.
    pub authorities: Vec<Arc<Authorities>>,
    /// Realtime push; `None`: disabled.
    pub push: Option<Arc<Push>>,
    /// The listener of the admin interface; `None`: disabled.
    pub admin: Option<Admin>,
    /// One log line per request; `None`: disabled.
    pub access_log: Option<AccessLog>,
    /// The log of the process.
    pub process_log: ProcessLog,
    /// Limits of the whole process.
    pub limits: ProcessLimits,
}
