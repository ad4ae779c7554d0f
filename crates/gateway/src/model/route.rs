//! Routes, their rules, and the settings of a rule besides its action.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Action, ErrorPage, HeaderChanges, HeaderName, Hostname, Match, Name, PathMatch, Policy, StatusHeaders,
    StatusRange, WeightedBackend,
};
use crate::limits;

/// The rules for the requests of some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Unique among routes.
    pub name: Name,
    /// The listeners that it applies to. Default: none, which means every HTTP listener.
    pub listeners: Vec<Name>,
    /// The hosts that it applies to. Default: none, which means every host of its listeners.
    pub hostnames: Vec<Hostname>,
    /// The rules; of rules that match alike the first applies.
    pub rules: Vec<Rule>,
}

/// A rule: the requests that it matches, and their processing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name in logs and metrics, unique in its route. Default: `None`, its index from 0.
    pub name: Option<Name>,
    /// The matches, one of which a request must meet. Default: none, which means every request.
    pub matches: Vec<Match>,
    /// Policies that apply before the action, in the order that the gateway defines for their kinds.
    pub policies: Vec<Policy>,
    /// Edits of the request headers, before the request is forwarded.
    pub request_headers: HeaderChanges,
    /// Edits of the headers of every response, from the upstream or the gateway, error pages included.
    pub response_headers: HeaderChanges,
    /// Edits for some statuses, after [`response_headers`](Self::response_headers).
    pub status_headers: Vec<StatusHeaders>,
    /// Replacements of error responses; the first that has the status applies. Default: none, the body of an error is one line.
    pub error_pages: Vec<ErrorPage>,
    /// The action.
    pub action: Action,
}

impl Route {
    /// Returns whether the route applies to a listener, by its name.
    pub(crate) fn attaches_to(&self, listener: &Name) -> bool {
        self.listeners.is_empty() || self.listeners.contains(listener)
    }
}

impl Rule {
    /// Creates a rule for every request, with an action and nothing else.
    #[must_use]
    pub fn new(action: Action) -> Rule {
        Rule {
            name: None,
            matches: Vec::new(),
            policies: Vec::new(),
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            status_headers: Vec::new(),
            error_pages: Vec::new(),
            action,
        }
    }

    /// Returns whether requests for a part of the paths must not fall through this rule to a wider one: the rule refuses requests, or has a
    /// policy that does.
    #[must_use]
    pub fn guards_path(&self) -> bool {
        let is_root = |found: &Match| matches!(&found.path, PathMatch::Prefix(path) if path.as_str() == "/");
        let is_guard = |policy: &Policy| {
            matches!(
                policy,
                Policy::Addresses(_)
                    | Policy::ClientCertificate(_)
                    | Policy::Basic(_)
                    | Policy::ApiKeys(_)
                    | Policy::Jwt(_)
                    | Policy::ExternalAuth(_)
                    | Policy::RateLimit(_)
                    | Policy::RateService(_)
                    | Policy::Processor(_)
                    | Policy::Filter(_)
            )
        };
        let refuses = match &self.action {
            Action::Respond(response) => response.status >= 400,
            Action::Broken { .. } => true,
            _ => false,
        };
        (refuses || self.policies.iter().any(is_guard)) && self.matches.iter().any(|found| !is_root(found))
    }
}

/// Time limits of the parts of an exchange. `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the last byte of the request head to the last byte of the response, all attempts together. Then: 504, or the response is
    /// aborted. Stops at the response head if the connection switches protocols. Default: `None`, since a fixed limit aborts long uploads
    /// and downloads, too, which `idle` does not.
    pub request: Option<Duration>,
    /// One attempt, from its first byte to its response head, excluding time spent waiting for the client. Then: 504, or the next attempt.
    /// At most [`request`](Self::request). Default: `None`.
    pub per_try: Option<Duration>,
    /// Time without a byte in either direction, also after a switch of protocols. Then: 408 if the gateway was waiting for the client, else
    /// 504, or the exchange is aborted. Default: [`limits::IDLE_TIMEOUT`].
    pub idle: Option<Duration>,
    /// Minimum rate of a response body, framing included, in bytes per second. It applies after [`limits::ANSWER_RATE_GRACE`], on average
    /// over [`limits::ANSWER_RATE_WINDOW`], and excludes time spent waiting for the client. Below it the response is aborted. Default: 0,
    /// none, since an event stream may have few events.
    pub minimum_rate: u32,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            request: None,
            per_try: None,
            idle: Some(limits::IDLE_TIMEOUT),
            minimum_rate: 0,
        }
    }
}

/// Limits of bodies, bytes. `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Of a request. Beyond it: 413, or the request is aborted. Default: [`limits::REQUEST_BODY_BYTES`].
    pub request: Option<u64>,
    /// Of a response. Beyond it the response is aborted, which its client can detect. Default: `None`.
    pub response: Option<u64>,
}

impl Default for BodyLimits {
    fn default() -> BodyLimits {
        BodyLimits {
            request: Some(limits::REQUEST_BODY_BYTES),
            response: None,
        }
    }
}

/// The conditions for retrying a request, at another endpoint if there is one.
///
/// A request is never retried once a byte of a response was sent to the client; nor, unless its method is idempotent (RFC 9110 §9.2.2),
/// once a byte of the request was sent to an upstream that may have processed it; nor once more than [`limits::REPLAY_BYTES`] of its body
/// were sent; nor when the upstream's [budget](super::RetryBudget) is exhausted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Number of retries, at most [`limits::RETRIES`]. 0: none. Default: 1.
    pub attempts: u8,
    /// The failures after which a request is retried.
    pub on: RetryOn,
    /// The shortest pause before a retry. Default: 0.
    pub backoff_min: Duration,
    /// The longest pause before the first retry; the pause is random between the shortest one and this. Doubles with each further retry.
    /// Default: 25 ms.
    pub backoff: Duration,
    /// The limit of that pause. Default: 250 ms.
    pub backoff_max: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            attempts: 1,
            on: RetryOn::default(),
            backoff_min: Duration::ZERO,
            backoff: Duration::from_millis(25),
            backoff_max: Duration::from_millis(250),
        }
    }
}

/// The failures after which a request is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection could be established. Default: `true`.
    pub connect: bool,
    /// The connection was closed before a response head. Default: `false`.
    pub reset: bool,
    /// [`Timeouts::per_try`] expired. Default: `false`.
    pub timeout: bool,
    /// The response had one of these statuses, and the method is idempotent. The response to the last attempt is relayed. Default: none.
    pub statuses: Vec<StatusRange>,
}

impl Default for RetryOn {
    fn default() -> RetryOn {
        RetryOn {
            connect: true,
            reset: false,
            timeout: false,
            statuses: Vec::new(),
        }
    }
}

/// Affinity: the requests of a client go to one endpoint while it is healthy; then to another one, which the client stays with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The property that identifies a client.
    pub by: AffinityBy,
    /// Lifetime of a session. Default: `None`, that of its cookie.
    pub lasts: Option<Duration>,
    /// Lifetime of a session without a request. Default: `None`.
    pub idle: Option<Duration>,
}

/// The property that identifies a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffinityBy {
    /// A cookie that the gateway sets. It identifies an endpoint without revealing its address.
    Cookie(Cookie),
    /// A header with such an identifier, which the gateway sets in responses and the client sends back.
    Header(HeaderName),
    /// The client's address, by hash.
    Source,
}

/// A cookie that the gateway sets: `HttpOnly`, `SameSite=Lax`, and `Secure` where the client connected over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// The name, a token. Default: `ringmain`.
    pub name: Arc<str>,
    /// `Path`. Default: `/`.
    pub path: Arc<str>,
    /// `Max-Age`. Default: `None`, until the browser closes.
    pub max_age: Option<Duration>,
}

impl Cookie {
    /// Returns whether the name is a token (RFC 6265 §4.1.1).
    #[must_use]
    pub fn has_valid_name(&self) -> bool {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !self.name.is_empty() && self.name.bytes().all(is_token)
    }

    /// Returns whether the path is absolute and has no character that would end the attribute.
    #[must_use]
    pub fn has_valid_path(&self) -> bool {
        let is_visible = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b';';
        self.path.starts_with('/') && self.path.bytes().all(is_visible)
    }
}

impl Default for Cookie {
    fn default() -> Cookie {
        Cookie {
            name: "ringmain".into(),
            path: "/".into(),
            max_age: None,
        }
    }
}

/// A route of connections that are passed through, or of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRoute {
    /// Unique among stream routes.
    pub name: Name,
    /// The listeners that it applies to, all non-HTTP. Default: none, which means every such listener.
    pub listeners: Vec<Name>,
    /// The hosts that it applies to, by SNI. Default: none, which means every connection, also without SNI. Of routes that match, the one
    /// with the exact host applies, then the longest wildcard, then the first.
    pub hostnames: Vec<Hostname>,
    /// The candidate backends; one is picked by weight for each connection. None, or only weights of 0: the connection is closed. Header
    /// edits and rewrites have no effect here.
    pub backends: Vec<WeightedBackend>,
    /// Time without a byte in either direction. Then the connection is reset, since truncated data must not look complete. Default: 1 h.
    /// `None`: unlimited.
    pub idle: Option<Duration>,
    /// The sessions at listeners of [`Protocol::Udp`](super::Protocol::Udp).
    pub datagrams: DatagramSessions,
}

/// The sessions of a stream route at UDP listeners: a client's datagrams to one address and the datagrams of the endpoint that was picked
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSessions {
    /// Time without a datagram in either direction, after which the session ends. Default: [`limits::DATAGRAM_IDLE`], with
    /// [`responses`](Self::responses) [`limits::DATAGRAM_RESPONSE_IDLE`]. `None`: unlimited; sessions end by eviction.
    pub idle: Option<Duration>,
    /// Datagrams that an endpoint sends for each datagram of the client: the session ends with the last of these, as for DNS. Default:
    /// `None`, any number.
    pub responses: Option<u32>,
}

impl Default for DatagramSessions {
    fn default() -> DatagramSessions {
        DatagramSessions {
            idle: Some(limits::DATAGRAM_IDLE),
            responses: None,
        }
    }
}
