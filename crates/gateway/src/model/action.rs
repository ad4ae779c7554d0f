//! What is done with a request that a rule is for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Affinity, BodyLimits, HeaderName, HeaderValue, Hostname, Name, Path, PushAt, Retry, Timeouts};

/// How a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// By an upstream.
    Forward(Box<Forward>),
    /// By another URL.
    Redirect(Redirect),
    /// At once.
    Answer(Answer),
    /// From a directory.
    Files(Files),
    /// By what is pushed: clients connect there.
    Push(PushAt),
    /// By 500: what was asked for is not there, not allowed or not understood. The rule keeps its requests, so that none
    /// of them falls to a wider rule that was not meant for it.
    Broken {
        /// Why, for whoever looks for it.
        reason: Arc<str>,
    },
}

/// How a request is sent on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// Who may answer. One is drawn by weight for each request; none, or weights of 0 only: 500.
    pub backends: Vec<WeightedBackend>,
    /// How host and path are changed. Default: not at all.
    pub rewrite: Rewrite,
    /// Copies of the request, whose answers nobody waits for. Default: none.
    pub mirrors: Vec<Mirror>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How many bytes.
    pub body: BodyLimits,
    /// When a request is tried again. Default: `None`, never; but for a kept connection that the upstream closed before
    /// it took a byte of the request, which is a request that was not sent.
    pub retry: Option<Retry>,
    /// A request whose method is idempotent is tried at another endpoint as well, if its first try has not begun to answer after
    /// this time. A body is waited for first; one of more than [`REPLAY_BYTES`](crate::limits::REPLAY_BYTES) is sent once. The answer that begins first is passed on, the other connection is closed. It counts as a
    /// try, in the upstream's budget and in its cap. Default: `None`, never.
    pub hedge: Option<Duration>,
    /// Requests of one client go to one endpoint. Default: `None`, balancing alone decides.
    pub affinity: Option<Box<Affinity>>,
    /// Protocols (tokens of `Upgrade`, in any case) that a connection may switch to. Default: `websocket`. A request for
    /// another one is sent on without it.
    pub upgrades: Vec<Arc<str>>,
    /// Calls of gRPC-Web are sent on as gRPC, and their answers back, in binary and as text. Default: `false`.
    pub grpc_web: bool,
    /// Answers of the upstream are also replaced by the rule's error pages, whose connection is not used again then: nobody
    /// reads the rest of them. Default: `false`, only the gateway's own are.
    pub replace_errors: bool,
}

impl Forward {
    /// The affinity of requests that are sent to a backend, by its number.
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

    /// To one upstream, all else by default.
    #[must_use]
    pub fn to(upstream: impl Into<Name>) -> Forward {
        Forward {
            backends: vec![WeightedBackend::new(upstream)],
            upgrades: vec!["websocket".into()],
            ..Forward::default()
        }
    }
}

/// One of those who may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedBackend {
    /// Who.
    pub target: Target,
    /// Its share: its weight by the sum of all, at most [`crate::limits::WEIGHT`]. 0: none. Default 1.
    pub weight: u32,
    /// After those of the rule.
    pub request_headers: HeaderChanges,
    /// After those of the rule.
    pub response_headers: HeaderChanges,
    /// After [`response_headers`](Self::response_headers).
    pub status_headers: Vec<StatusHeaders>,
    /// In place of the rule's where it says something.
    pub rewrite: Rewrite,
    /// Requests of one client go to one endpoint of this backend. Default: `None`, as [`Forward::affinity`] has it. Backends whose
    /// sessions have different names hold one each for the same client.
    pub affinity: Option<Box<Affinity>>,
}

impl WeightedBackend {
    /// This upstream, with weight 1 and no changes.
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

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The upstream of this name.
    Upstream(Name),
    /// Nobody: what was asked for is not there or not allowed. Its share of requests is answered 500, so that the others'
    /// share stays what it was meant to be.
    Broken {
        /// Why, for whoever looks for it.
        reason: Arc<str>,
    },
}

/// Changes of headers, in this order: removed, set, added. Names that frame a message or belong to the connection
/// (`Content-Length`, `Transfer-Encoding`, `Connection`, `Upgrade`, `Keep-Alive`, `TE`, `Trailer`, `Proxy-Connection`)
/// are reported when they are compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// Gone, however often it is there.
    pub remove: Vec<HeaderName>,
    /// There once, with this value.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// There once more, with this value.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

/// Changes of the headers of responses with some statuses: as nginx's `add_header` without `always`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusHeaders {
    /// At least one range, each within 200 to 599. The status is the one that the client receives.
    pub statuses: Vec<StatusRange>,
    /// Applied after the changes that hold for every status.
    pub changes: HeaderChanges,
}

impl HeaderChanges {
    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

/// What the upstream sees in place of what the client sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The host. Default: `None`, the client's.
    pub host: Option<Hostname>,
    /// The path. Default: `None`, the client's in normal form. The query always stays.
    pub path: Option<PathRewrite>,
}

/// A path in place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// In place of the whole.
    Full(Path),
    /// In place of what the rule's prefix matched: with `/b` for `/a`, `/a/c` becomes `/b/c`, and with `/` it becomes
    /// `/c`. Only for rules whose matches are all prefixes.
    Prefix(Path),
}

/// Another URL. Parts that it does not set are those of the URL that the client requested; the query always stays.
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

/// An answer without an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// From 200 to 599.
    pub status: u16,
    /// `Content-Type`; `None`: none is sent.
    pub content_type: Option<HeaderValue>,
    /// At most [`crate::limits::ANSWER_BYTES`]; not sent with 204 and 304.
    pub body: Body,
}

/// The bytes of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(pub Arc<[u8]>);

/// Files of a directory, answered for GET and HEAD. Nothing outside it is served, also not by a link that leads out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory, absolute.
    pub root: PathBuf,
    /// What the rule's prefix matched is not part of the file's path. Default `true`.
    pub strip_prefix: bool,
    /// What a directory is answered with, the first that is there. Default: `index.html`; none: 404.
    pub index: Vec<Arc<str>>,
    /// The file (in the directory) for paths that name no file: for applications that route in the browser. Default:
    /// `None`, 404.
    pub fallback: Option<Path>,
    /// `Cache-Control: max-age`. Default: `None`, no such header; `ETag` and `Last-Modified` always are.
    pub max_age: Option<Duration>,
    /// Media types by file extension: in small letters, without a dot; before those that the gateway knows. Default: none.
    /// At most [`crate::limits::FILE_TYPES`].
    pub types: Vec<(Arc<str>, HeaderValue)>,
    /// Paths with a segment that begins with a dot (`.env`, `.git/config`) are served, too. Default `false`: 404, but for
    /// `.well-known` (RFC 8615).
    pub dot_files: bool,
}

impl Files {
    /// Of this directory, all else by default.
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

/// A copy of requests for another upstream, marked by `X-Mirrored-By: ringmain`. It is sent when the request is there as a
/// whole and its answer has begun, and never delays or fails what it is a copy of: what finds no room is not sent
/// ([`crate::limits::MIRRORS`], the upstream's own caps), and what takes longer than [`crate::limits::MIRROR_TIME`] is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Who gets them.
    pub target: Target,
    /// Of how many. Default: of all.
    pub share: Share,
    /// Bytes of a body that are copied at most; a request with a longer one is not mirrored. Default 1 MiB, at most
    /// [`crate::limits::MIRROR_BODY_BYTES`].
    pub body_bytes: u64,
}

impl Mirror {
    /// Of all requests, to this upstream.
    #[must_use]
    pub fn to(upstream: impl Into<Name>) -> Mirror {
        Mirror {
            target: Target::Upstream(upstream.into()),
            share: Share::ALL,
            body_bytes: 1 << 20,
        }
    }
}

/// So many out of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// At most [`of`](Self::of).
    pub part: u32,
    /// At least 1.
    pub of: u32,
}

impl Share {
    /// All.
    pub const ALL: Share = Share { part: 1, of: 1 };
}

/// What clients see in place of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// In place of which.
    pub statuses: StatusRange,
    /// What is sent. The status stays what it was, whatever is in here.
    pub answer: Answer,
}

/// Statuses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    /// From 400 for error pages; from 100 elsewhere.
    pub first: u16,
    /// At most 599.
    pub last: u16,
}

impl StatusRange {
    /// One status.
    #[must_use]
    pub const fn one(status: u16) -> StatusRange {
        StatusRange {
            first: status,
            last: status,
        }
    }

    /// Whether `status` is one of them.
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }
}
