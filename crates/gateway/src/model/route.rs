//! What happens to requests and connections: routes, their rules, and what a rule says besides its action.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Action, ErrorPage, HeaderChanges, HeaderName, Hostname, Match, Name, PathMatch, Policy, StatusHeaders,
    StatusRange, WeightedBackend,
};
use crate::limits;

/// Rules for the requests of some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Unique among routes.
    pub name: Name,
    /// At which listeners. Default: none, which means at every HTTP listener.
    pub listeners: Vec<Name>,
    /// For which hosts. Default: none, which means for every one of its listeners' hosts.
    pub hostnames: Vec<Hostname>,
    /// What is matched and done; of rules that match alike the first counts.
    pub rules: Vec<Rule>,
}

/// What is done with which requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// For logs and metrics; unique in its route. Default: `None`, it is known by its number, from 0.
    pub name: Option<Name>,
    /// A request needs to match one of them. Default: none, which means every request.
    pub matches: Vec<Match>,
    /// What must be passed before the action, in the order that the gateway has for kinds of policy.
    pub policies: Vec<Policy>,
    /// Of the request, before it is sent on.
    pub request_headers: HeaderChanges,
    /// Of every response of the rule, whoever makes it: upstream, gateway, error page.
    pub response_headers: HeaderChanges,
    /// Of responses with some statuses, after [`response_headers`](Self::response_headers).
    pub status_headers: Vec<StatusHeaders>,
    /// In place of errors, the first that has the status. Default: none, errors are told in a line.
    pub error_pages: Vec<ErrorPage>,
    /// How it is answered.
    pub action: Action,
}

impl Route {
    /// Whether it belongs to a listener, by its name.
    pub(crate) fn is_of(&self, listener: &Name) -> bool {
        self.listeners.is_empty() || self.listeners.contains(listener)
    }
}

impl Rule {
    /// For every request, with nothing but an action.
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

    /// Whether requests for a part of the paths must not get past this rule to a wider one: it has a policy that refuses
    /// requests, or refuses them itself.
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
                    | Policy::Filter(_)
            )
        };
        let refuses = match &self.action {
            Action::Answer(answer) => answer.status >= 400,
            Action::Broken { .. } => true,
            _ => false,
        };
        (refuses || self.policies.iter().any(is_guard)) && self.matches.iter().any(|found| !is_root(found))
    }
}

/// How long parts of an exchange may take. `None`: any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the request's last byte of the head to the answer's last byte, all tries together; then 504, or the answer is
    /// cut. Ends with the answer's head if the connection switches protocols. Default `None`: a time that is fixed ends
    /// long uploads and downloads too, which `idle` does not.
    pub request: Option<Duration>,
    /// One attempt, from its first byte to its response's head, without the time in which the client is waited for; then 504, or the next
    /// attempt. At most [`request`](Self::request). Default `None`.
    pub per_try: Option<Duration>,
    /// Without a byte in either direction, also after protocols were switched; then 408 if the client was waited for, else 504, or the
    /// exchange is cut. Default
    /// [`limits::IDLE_TIMEOUT`].
    pub idle: Option<Duration>,
    /// Bytes a second that an answer's body must bring, framing counted, behind [`limits::ANSWER_RATE_GRACE`] and on average
    /// over [`limits::ANSWER_RATE_WINDOW`]; then the answer is cut. Time in which its client does not take it does not count.
    /// 0: any number. Default 0: an event stream may have little to say.
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

/// How many bytes bodies may have. `None`: any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Of the request; then 413, or the request is cut. Default [`limits::REQUEST_BODY_BYTES`].
    pub request: Option<u64>,
    /// Of the answer; then the answer is cut, which its client can tell. Default `None`.
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

/// When a request is tried again, at another endpoint if there is one. Never once a byte of an answer went to the client;
/// nor, unless its method is idempotent (RFC 9110 §9.2.2), once a byte of it went to an upstream that may have acted; nor once
/// more than [`limits::REPLAY_BYTES`] of its body did; nor when the upstream's [budget](super::RetryBudget) is spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often again, at most [`limits::RETRIES`]. 0: never. Default 1.
    pub attempts: u8,
    /// After what.
    pub on: RetryOn,
    /// The shortest pause before a retry. Default 0.
    pub backoff_least: Duration,
    /// The longest pause before the first retry, which is random between the shortest one and this; twice as long before each further
    /// one. Default 25 ms.
    pub backoff: Duration,
    /// How long at most. Default 250 ms.
    pub backoff_most: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            attempts: 1,
            on: RetryOn::default(),
            backoff_least: Duration::ZERO,
            backoff: Duration::from_millis(25),
            backoff_most: Duration::from_millis(250),
        }
    }
}

/// After what a request is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection came about. Default `true`.
    pub connect: bool,
    /// The connection ended before an answer's head. Default `false`.
    pub reset: bool,
    /// [`Timeouts::per_try`] ran out. Default `false`.
    pub timeout: bool,
    /// The answer had one of these statuses, and the method is idempotent. That of the last try is passed on. Default: none.
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

/// Requests of one client go to one endpoint as long as it is well; then to another one, which it stays with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// What tells clients apart.
    pub by: AffinityBy,
    /// How long a session lasts, whatever happens. Default: `None`, as long as its cookie.
    pub lasts: Option<Duration>,
    /// How long it lasts without a request. Default `None`.
    pub idle: Option<Duration>,
}

/// What tells clients apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffinityBy {
    /// A cookie that the gateway sets, which names an endpoint without telling its address.
    Cookie(Cookie),
    /// A header with such a name in it, which the gateway sets in answers and the client sends back.
    Header(HeaderName),
    /// The client's address: by hash.
    Source,
}

/// A cookie that the gateway sets: `HttpOnly`, `SameSite=Lax`, and `Secure` where the client came by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// A token. Default `ringmain`.
    pub name: Arc<str>,
    /// `Path`. Default `/`.
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

    /// Returns whether the path is absolute and ends no attribute.
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

/// Connections that are not looked into, or datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRoute {
    /// Unique among stream routes.
    pub name: Name,
    /// At which listeners, none of HTTP. Default: none, which means at all of those.
    pub listeners: Vec<Name>,
    /// For which hosts, told by SNI. Default: none, which means for all, also without SNI. Of routes that match the exact
    /// host counts, then the longest wildcard, then the first.
    pub hostnames: Vec<Hostname>,
    /// Who gets them; one is drawn by weight for each. None, or weights of 0 only: the connection is closed. Changes of
    /// headers and rewrites mean nothing here.
    pub backends: Vec<WeightedBackend>,
    /// Without a byte in either direction; then the connection is reset: what is cut must not look whole. Default: 1 h. `None`: any time.
    pub idle: Option<Duration>,
}
