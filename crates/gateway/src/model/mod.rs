//! The one intermediate form of all configuration: what is listened on, what is matched, what is done, who answers.
//!
//! Plain data, complete and independent of where it comes from. Each source translates into it by pure functions; the
//! data plane reads nothing else. Whatever a text can be wrong in was found when it was read (types of `text`); what
//! parts can be wrong in together is found by compiling ([`crate::table`]), route by route.
//!
//! A [`Config`] is a whole: what it does not say has the default that is documented at the field. Shared parts are in
//! [`Arc`]s, so that a source that changes one route hands over the others as they are.
//!
//! # What a gateway must be able to say
//!
//! The concepts of the Gateway API (v1.7), and where they are here:
//!
//! | concept | here |
//! |---|---|
//! | Gateway, ListenerSet | [`Listener`]s; the names say whose they are |
//! | listener port and protocol HTTP, HTTPS, TLS, TCP, UDP | [`Listener::addresses`], [`Protocol`] |
//! | listener hostname, isolation of listeners | [`Listener::hostnames`]: of the listeners of an address the most specific takes a request, and only its routes are looked at |
//! | TLS mode Terminate, Passthrough, and both on one port | [`Protocol::Tls`], [`Protocol::TlsPassthrough`], beside each other on one address |
//! | certificateRefs | [`ListenerTls::certificates`] |
//! | frontend validation of client certificates, insecure fallback | [`ClientCertificates`], [`ClientCertificateMode`] |
//! | detection of misdirected requests (421) | follows from [`Listener::hostnames`]; nothing to say |
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
//! | a backendRef that is not there or not allowed: 500 for its share | [`Target::Broken`] |
//! | no backendRefs: 500 | [`Forward::backends`] empty |
//! | a filter that cannot be resolved: 500, never skipped | [`Action::Broken`] |
//! | appProtocol h2c, ws, wss | [`UpstreamProtocol`], [`Forward::upgrades`], [`Upstream::tls`] |
//! | timeouts request, backendRequest | [`Timeouts::request`], [`Timeouts::per_try`] |
//! | retry: codes, attempts, backoff, connection errors | [`Retry`] |
//! | session persistence | [`Affinity`] |
//! | TLSRoute, TCPRoute, UDPRoute with weights | [`StreamRoute`] |
//! | BackendTLSPolicy: hostname, CA references, system's, subject alternative names | [`UpstreamTls`] |
//! | client certificate of the gateway towards backends | [`UpstreamTls::certificate`] |
//! | Services, headless, slices of endpoints | [`Upstream::endpoints`] |
//! | endpoints that serve while they terminate | [`Endpoint::draining`] |
//! | status: which rule is wrong, what was left out | problems of [`crate::table`], by route and rule |

mod action;
mod bounds;
mod channel;
mod filter;
mod jwt;
mod listener;
mod matching;
mod nats;
mod origin;
mod password;
mod policy;
mod process;
mod push;
mod route;
mod secret;
mod sources;
mod text;
mod tls;
mod upstream;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use action::{
    Action, Answer, Body, ErrorPage, Files, Forward, HeaderChanges, Mirror, PathRewrite, Redirect, Rewrite,
    Share, StatusHeaders, StatusRange, Target, WeightedBackend,
};
pub use bounds::{Concurrency, Inject, RateHeaders, RateKey, RateLimit, Redis, Shed};
pub use channel::{CHANNEL_BOUNDS, ChannelBound, ChannelTemplate, RecordParts, Subject, SubjectPattern};
pub use filter::{FilterUse, Options};
pub use jwt::{
    ClaimHeader, ClaimPath, ClaimRule, Jwt, JwtAlgorithm, JwtKeys, JwtProvider, KeySet, RemoteKeys,
};
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
    Addresses, ApiKey, ApiKeys, Ask, BasicAuth, ClientCertificate, Cors, ExternalAuth, KeyPlace, Policy, User,
};
pub use process::{AccessLog, AccessLogFormat, Admin, Limits, LogDestination, PerAddress};
pub use push::{
    Push, PushAsk, PushAt, PushDataFormat, PushEvent, PushKeys, PushListen, PushNamespace, PushProxy,
    PushTokens,
};
pub use ringmain_sys::addr::{Addr, AddrError};
pub use route::{
    Affinity, AffinityBy, BodyLimits, Cookie, Retry, RetryOn, Route, Rule, StreamRoute, Timeouts,
};
pub(crate) use secret::secret_params;
pub use sources::{
    BrokerLogin, BrokerTls, JetStream, Kafka, KafkaSasl, Mapping, Postgres, RecordFormat, RedisAccess,
    RedisDeployment, RedisPubSub, RedisStreams, SaslMechanism, Source, SourceKind, Start,
};
pub use text::{
    HeaderName, HeaderValue, Hostname, MethodName, Name, Network, Path, Pattern, Secret, TextFault,
};
pub use tls::{
    Authorities, Certificate, ClientCertificateMode, ClientCertificates, ListenerTls, SubjectName,
    TlsVersion, Trust, UpstreamTls,
};
pub use upstream::{
    ActiveHealth, Balance, Endpoint, HashKey, Health, HealthCheck, OutlierDetection, Pool,
    ProxyProtocolVersion, RetryBudget, SlowStart, Upstream, UpstreamProtocol, Where,
};

/// Everything that the gateway is told.
///
/// Each list is in order of precedence where order matters (routes), and names are unique in their list: of two with one
/// name the first counts and the second is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Where clients come in.
    pub listeners: Vec<Arc<Listener>>,
    /// What is done with HTTP requests. Of routes that match alike the first counts.
    pub routes: Vec<Arc<Route>>,
    /// Where connections go that are not looked into.
    pub streams: Vec<Arc<StreamRoute>>,
    /// Who answers.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Certificates with their keys, for listeners and for upstreams that ask for one.
    pub certificates: Vec<Arc<Certificate>>,
    /// Sets of authorities that certificates of clients and of upstreams are checked by.
    pub authorities: Vec<Arc<Authorities>>,
    /// What is pushed to clients; `None`: nothing.
    pub push: Option<Arc<Push>>,
    /// The administration's own listener; `None`: there is none.
    pub admin: Option<Admin>,
    /// One line a request; `None`: no such log.
    pub access_log: Option<AccessLog>,
    /// What holds for the whole process.
    pub limits: Limits,
}
