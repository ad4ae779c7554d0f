//! The action of a rule: forward, redirect, respond, serve files, push.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Affinity, BodyLimits, HeaderName, HeaderValue, Hostname, Name, Path, PushEndpoints, Retry, Timeouts,
};

/// The action of a rule for its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forwards them to an upstream.
    Forward(Box<Forward>),
    /// Redirects them to another URL.
    Redirect(Redirect),
    /// Responds with a fixed response.
    Respond(DirectResponse),
    /// Serves files of a directory.
    Files(Files),
    /// Accepts them as an endpoint for push clients.
    Push(PushEndpoints),
    /// Answers 500: the configured action does not exist, is not allowed or was not understood. The rule keeps its requests, so that none
    /// falls through to a wider rule that was not meant for it.
    Broken {
        /// The reason, for the operator.
        reason: Arc<str>,
    },
}

/// Forwarding to upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// The candidate backends. One is picked by weight for each request; none, or only weights of 0: 500.
    pub backends: Vec<WeightedBackend>,
    /// Changes of host and path. Default: none.
    pub rewrite: Rewrite,
    /// Mirrored requests, whose responses are discarded. Default: none.
    pub mirrors: Vec<Mirror>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Limits of bodies, bytes.
    pub body: BodyLimits,
    /// The conditions for a retry. Default: `None`, never. A pooled connection that the upstream closed before it took a byte of the
    /// request does not count as an attempt.
    pub retry: Option<Retry>,
    /// An idempotent request is also sent to another endpoint if the response to its first attempt has not started after this time. Its
    /// body is buffered first; a request with a body of more than [`REPLAY_BYTES`](crate::limits::REPLAY_BYTES) is sent once. The response
    /// that starts first is relayed, and the other connection is closed. A hedge counts as a retry in the upstream's budget and limit.
    /// Default: `None`, never.
    pub hedge: Option<Duration>,
    /// Sends the requests of a client to one endpoint. Default: `None`, balancing alone decides.
    pub affinity: Option<Box<Affinity>>,
    /// Protocols (tokens of `Upgrade`, case-insensitive) that a connection may switch to. Default: `websocket`. A request for another
    /// protocol is forwarded without the field.
    pub upgrades: Vec<Arc<str>>,
    /// Translates gRPC-Web calls, binary and text, to gRPC, and their responses back. Default: `false`.
    pub grpc_web: bool,
    /// Replaces responses of the upstream, too, with the error pages of the rule. The connection of a replaced response is not reused,
    /// since its body is not read. Default: `false`, only the gateway's own responses are replaced.
    pub replace_errors: bool,
}

impl Forward {
    /// Returns the affinity of requests to the backend with this index.
    #[must_use]
    pub fn affinity_of(&self, backend: usize) -> Option<&Affinity> {
        let own = self.backends.get(backend);
        own.and_then(|backend| backend.affinity.as_deref())
            .or(self.affinity.as_deref())
    }

    /// Returns whether requests to any backend have an affinity.
    #[must_use]
    pub fn has_affinity(&self) -> bool {
        self.affinity.is_some() || self.backends.iter().any(|backend| backend.affinity.is_some())
    }

    /// Creates a forward to one upstream, with defaults otherwise.
    #[must_use]
    pub fn to(upstream: impl Into<Name>) -> Forward {
        Forward {
            backends: vec![WeightedBackend::new(upstream)],
            upgrades: vec!["websocket".into()],
            ..Forward::default()
        }
    }
}

/// A backend of a rule, with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedBackend {
    /// The upstream.
    pub target: Target,
    /// The weight; its share of requests is the weight divided by the sum of the weights. At most [`crate::limits::WEIGHT`]. 0: none.
    /// Default: 1.
    pub weight: u32,
    /// Edits of the request headers, applied after those of the rule.
    pub request_headers: HeaderChanges,
    /// Edits of the response headers, applied after those of the rule.
    pub response_headers: HeaderChanges,
    /// Edits for some statuses, applied after [`response_headers`](Self::response_headers).
    pub status_headers: Vec<StatusHeaders>,
    /// Overrides the parts of the rule's rewrite that it sets.
    pub rewrite: Rewrite,
    /// Sends the requests of a client to one endpoint of this backend. Default: `None`, [`Forward::affinity`] applies. Backends whose
    /// session cookies differ in name each keep a session for the same client.
    pub affinity: Option<Box<Affinity>>,
}

impl WeightedBackend {
    /// Creates a backend with weight 1 and no edits.
    #[must_use]
    pub fn new(upstream: impl Into<Name>) -> WeightedBackend {
        WeightedBackend {
            target: Target::Upstream(upstream.into()),
            weight: 1,
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            status_headers: Vec::new(),
            rewrite: Rewrite::default(),
            affinity: None,
        }
    }
}

/// The upstream that requests are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The upstream of this name.
    Upstream(Name),
    /// A reference that does not exist or is not allowed. Its share of requests is answered 500, so that the share of the other backends
    /// does not change.
    Broken {
        /// The reason, for the operator.
        reason: Arc<str>,
    },
}

/// Edits of headers, in this order: remove, set, add. Names that frame a message or belong to the connection (`Content-Length`,
/// `Transfer-Encoding`, `Connection`, `Upgrade`, `Keep-Alive`, `TE`, `Trailer`, `Proxy-Connection`) are reported when they are compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// Removes every occurrence.
    pub remove: Vec<HeaderName>,
    /// Replaces every occurrence with this value.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Appends one more occurrence with this value.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

/// Edits of the headers of responses with certain statuses, like nginx's `add_header` without `always`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusHeaders {
    /// At least one range, each within 200 to 599. The status is the one that the client receives.
    pub statuses: Vec<StatusRange>,
    /// Applied after the edits for every status.
    pub changes: HeaderChanges,
}

impl HeaderChanges {
    /// Returns whether the edits change nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

/// A rewrite of host and path for the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The host. Default: `None`, the client's.
    pub host: Option<Hostname>,
    /// The path. Default: `None`, the client's in normal form. The query is unchanged.
    pub path: Option<PathRewrite>,
}

/// A replacement of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// Replaces the whole path.
    Full(Path),
    /// Replaces the prefix that the rule matched: with `/b` for `/a`, `/a/c` becomes `/b/c`, and with `/` it becomes `/c`. Only for rules
    /// whose matches are all prefixes.
    Prefix(Path),
}

/// A redirect to another URL. Parts that it does not set are those of the URL that the client requested; the query is unchanged.
///
/// Scheme, host and port that the client requested are those of the connection and of `Host`, unless the peer is trusted
/// ([`ClientAddress`](super::ClientAddress)): then `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Port` (or `Forwarded`) override them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `http` or `https`. Default: the one that the client used.
    pub https: Option<bool>,
    /// The host. Default: the request's.
    pub host: Option<Hostname>,
    /// The port. Default: the scheme's default port if [`https`](Self::https) is set, else the one that the client requested. The
    /// default port of a scheme is not written.
    pub port: Option<u16>,
    /// Without [`port`](Self::port) and [`https`](Self::https): the listener's port in place of the one that the client requested,
    /// as the Gateway API's `HTTPRequestRedirectFilter` has it. Default `false`.
    pub listener_port: bool,
    /// The path. Default: the request's.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308. Default 302.
    pub status: u16,
}

impl Default for Redirect {
    fn default() -> Redirect {
        Redirect {
            https: None,
            host: None,
            port: None,
            listener_port: false,
            path: None,
            status: 302,
        }
    }
}

/// A response without an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectResponse {
    /// 200 to 599.
    pub status: u16,
    /// `Content-Type`; `None`: not sent.
    pub content_type: Option<HeaderValue>,
    /// At most [`crate::limits::ANSWER_BYTES`] bytes; not sent with 204 and 304.
    pub body: StaticBody,
}

/// The bytes of a response body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticBody(pub Arc<[u8]>);

/// The files of a directory, served for GET and HEAD. No file outside it is served, not even through a link that points outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The absolute path of the directory.
    pub root: PathBuf,
    /// Removes the prefix that the rule matched from the path of the file. Default: `true`.
    pub strip_prefix: bool,
    /// Names of index files; the first that exists is served for a directory. Default: `index.html`; none: 404.
    pub index: Vec<Arc<str>>,
    /// The file, within the directory, for paths that name no file: for applications that route in the browser. Default: `None`, 404.
    pub fallback: Option<Path>,
    /// `Cache-Control: max-age`. Default: `None`, not sent; `ETag` and `Last-Modified` always are.
    pub max_age: Option<Duration>,
    /// Media types by file extension, in lower case and without a dot; they override those that the gateway knows. Default: none. At most
    /// [`crate::limits::FILE_TYPES`].
    pub types: Vec<(Arc<str>, HeaderValue)>,
    /// Serves paths with a segment that begins with a dot (`.env`, `.git/config`). Default: `false`, 404, except for `.well-known` (RFC
    /// 8615).
    pub dot_files: bool,
}

impl Files {
    /// Serves this directory, with defaults otherwise.
    #[must_use]
    pub fn of(root: impl Into<PathBuf>) -> Files {
        Files {
            root: root.into(),
            strip_prefix: true,
            index: vec!["index.html".into()],
            fallback: None,
            max_age: None,
            types: Vec::new(),
            dot_files: false,
        }
    }
}

/// Mirroring of requests to another upstream, marked by `X-Mirrored-By: ringmain`. A mirrored request is sent once the original is complete
/// and its response has started, and never delays or fails the original. It is dropped at the limit ([`crate::limits::MIRRORS`], the
/// upstream's own limits), and aborted after [`crate::limits::MIRROR_TIME`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The upstream that receives them.
    pub target: Target,
    /// The share of requests that are mirrored. Default: all.
    pub share: Fraction,
    /// Limit of a mirrored body, bytes; a request with a longer one is not mirrored. Default: 1 MiB, at most
    /// [`crate::limits::MIRROR_BODY_BYTES`].
    pub body_bytes: u64,
}

impl Mirror {
    /// Mirrors all requests to this upstream.
    #[must_use]
    pub fn to(upstream: impl Into<Name>) -> Mirror {
        Mirror {
            target: Target::Upstream(upstream.into()),
            share: Fraction::ALL,
            body_bytes: 1 << 20,
        }
    }
}

/// A fraction: `part` out of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// At most [`of`](Self::of).
    pub part: u32,
    /// At least 1.
    pub of: u32,
}

impl Fraction {
    /// All requests.
    pub const ALL: Fraction = Fraction { part: 1, of: 1 };
}

/// A response body that replaces those of errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The statuses whose responses are replaced.
    pub statuses: StatusRange,
    /// The replacement. The original status is retained, whatever status is set here.
    pub response: DirectResponse,
}

/// A range of statuses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    /// At least 400 for error pages; at least 100 elsewhere.
    pub first: u16,
    /// At most 599.
    pub last: u16,
}

impl StatusRange {
    /// Creates a range of one status.
    #[must_use]
    pub const fn one(status: u16) -> StatusRange {
        StatusRange {
            first: status,
            last: status,
        }
    }

    /// Returns whether the range contains `status`.
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }
}
