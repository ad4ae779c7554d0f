//! Everything that can go wrong with a request: whose side it is on, what the client is answered, whether trying again helps.
//!
//! One table: statuses, labels of metrics and fields of logs come from it, and `docs/faults.md` is checked against it. Knows
//! nothing of how a fault is found out.

mod detail;
#[cfg(test)]
mod tests;

pub(crate) use self::detail::Detail;

/// On whose side a fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The client's.
    Client,
    /// The gateway's: its configuration or its limits.
    Gateway,
    /// The upstream's, or that of the network between.
    Upstream,
}

impl Side {
    /// As it stands in logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Gateway => "gateway",
            Side::Upstream => "upstream",
        }
    }
}

/// Whether a request may be tried again after a fault, as far as the fault tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retryable {
    /// No endpoint has seen any of it.
    Always,
    /// An endpoint may have acted on it: if its method is idempotent.
    IfIdempotent,
    /// It would end the same way, or an answer has begun.
    Never,
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $kind:ident $label:literal $side:ident $status:literal $retryable:ident $text:literal,)*) => {
        /// What went wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $($(#[doc = $doc])+ $kind,)* }

        impl Fault {
            /// All of them, in the order of the table.
            pub const ALL: &[Fault] = &[$(Fault::$kind),*];

            const fn row(self) -> (&'static str, Side, u16, Retryable, &'static str) {
                match self {
                    $(Fault::$kind => ($label, Side::$side, $status, Retryable::$retryable, $text),)*
                }
            }
        }
    };
}

faults! {
    /// No listener of the address is for the host.
    NoListener "no_listener" Client 404 Never "no such host here",
    /// No rule matches.
    NoRoute "no_route" Client 404 Never "no route matches",
    /// The host belongs to another listener than the one that the TLS handshake led to.
    Misdirected "misdirected" Client 421 Never "this host is not served on this connection",
    /// The path has an escaped slash or a backslash, which the listener rejects.
    EscapedSlash "escaped_slash" Client 400 Never "the path has an escaped slash or a backslash",
    /// The listener wants a certificate of the client, which has shown none.
    NoCertificate "no_certificate" Client 403 Never "a client certificate is needed here",
    /// The client's address is one that the rule does not let in.
    AddressDenied "address_denied" Client 403 Never "your address is not let in here",
    /// The rule wants a name and password, or a key, and the request has none.
    CredentialsMissing "credentials_missing" Client 401 Never "credentials are needed here",
    /// The name and password, or the key, is not one that the rule lets in.
    CredentialsWrong "credentials_wrong" Client 401 Never "these credentials are not right",
    /// The rule wants a token, and the request has none.
    TokenMissing "token_missing" Client 401 Never "a token is needed here",
    /// The request's token is none, or not of the rule's providers, or its signature is wrong.
    TokenInvalid "token_invalid" Client 401 Never "this token is not valid",
    /// The request's token has expired, or does not hold yet.
    TokenExpired "token_expired" Client 401 Never "this token does not hold now",
    /// The token has not all of the scopes that the rule wants.
    ScopeMissing "scope_missing" Client 403 Never "this token has not the scopes that are needed here",
    /// A claim of the token is not what the rule wants.
    ClaimRefused "claim_refused" Client 403 Never "this token does not give access here",
    /// The service that is asked whether requests may pass has refused it. The client is answered as that service has it.
    AuthzDenied "authz_denied" Client 403 Never "this is not allowed",
    /// The client has asked for more than its rate allows.
    RateLimited "rate_limited" Client 429 Never "too many requests: come back later",
    /// The request has passed this gateway too often.
    Loop "loop" Client 508 Never "the request goes round in a circle",
    /// The request's `Connection` names more fields than may be sorted out.
    ConnectionOptions "connection_options" Client 400 Never "Connection names too many fields",
    /// The request's body is longer than the rule allows.
    RequestTooLarge "request_too_large" Client 413 Never "the request's body is too large",
    /// The client ended or broke its body before it was whole.
    RequestCut "request_cut" Client 400 Never "the request's body is not whole",
    /// The client sent its body slower than its listener's minimum rate.
    RequestTooSlow "request_too_slow" Client 408 Never "the request's body arrives too slowly",
    /// Nothing more of the client's body arrived for too long.
    RequestIdle "request_idle" Client 408 Never "the request's body did not arrive in time",
    /// The client has as many requests with unfinished bodies, and tunnels, at the upstream as one client may.
    ClientShareFull "client_share_full" Client 503 Never "too many unfinished requests of this client",
    /// The client took its response slower than a rate that rises while others wait for the upstream: the response is cut.
    ClientTooSlow "client_too_slow" Client 408 Never "the response is read too slowly",
    /// The method is none that files are served for.
    MethodNotAllowed "method_not_allowed" Client 405 Never "only GET and HEAD are answered here",
    /// The method is TRACE, which goes further only by a rule that names it.
    TraceRefused "trace_refused" Client 405 Never "TRACE is not passed on here",
    /// There is no such file.
    NoFile "no_file" Client 404 Never "no such file",
    /// A connection to be routed by SNI does not begin with TLS.
    NotTls "not_tls" Client 400 Never "the connection does not begin with TLS",
    /// The first message of a connection to be routed by SNI is too long.
    HelloTooLong "hello_too_long" Client 400 Never "the first message of TLS is too long",
    /// A connection to be routed by SNI ended before it had said for whom it is, or took too long to.
    NoHello "no_hello" Client 408 Never "the first message of TLS did not come in time",
    /// TLS that ends here and is no HTTP: its handshake failed.
    HandshakeFailed "handshake_failed" Client 400 Never "the TLS handshake failed",
    /// The rule cannot be carried out: its configuration is wrong.
    BrokenRule "broken_rule" Gateway 500 Never "the rule for this request is broken",
    /// The backend that was drawn is not there or not allowed.
    BrokenBackend "broken_backend" Gateway 500 Never "the backend for this request is broken",
    /// The rule has no backend with a weight above zero.
    NoBackend "no_backend" Gateway 500 Never "the rule for this request has no backend",
    /// A filter of the rule has failed or panicked, or has made too much of a body.
    FilterFailed "filter_failed" Gateway 500 Never "a filter of this request failed",
    /// A filter of the rule has waited for too long.
    FilterTimeout "filter_timeout" Gateway 504 Never "a filter of this request took too long",
    /// A file cannot be read.
    FileUnreadable "file_unreadable" Gateway 500 Never "the file cannot be read",
    /// The keys that tokens are checked by could never be fetched, or are too old, or as many requests wait for them as may.
    KeysUnavailable "keys_unavailable" Gateway 503 Never "tokens cannot be checked now",
    /// As many passwords are checked as may be at once.
    PasswordsBusy "passwords_busy" Gateway 503 Never "too many passwords are checked",
    /// As many requests are under way to the upstream as may be.
    RequestsFull "requests_full" Gateway 503 Never "too many requests are under way",
    /// As many requests are under way by the rule as may be.
    ConcurrencyFull "concurrency_full" Gateway 503 Never "too many requests are under way here",
    /// What counts requests for several gateways does not answer, and the limit denies then.
    LimiterDown "limiter_down" Gateway 503 Never "requests cannot be counted now",
    /// The worker is too late to begin with what the rule lets go first.
    Shed "shed" Gateway 503 Never "there is too much to do",
    /// The rule puts errors in.
    Injected "injected" Gateway 503 Never "this error was put in to be tried",
    /// As many requests wait for a connection to the upstream as may.
    PendingFull "pending_full" Gateway 503 Never "too many requests wait",
    /// No connection became free in time.
    PendingTimeout "pending_timeout" Gateway 503 Never "no connection became free in time",
    /// As many requests wait for connections to all upstreams together as may.
    ProcessPendingFull "process_pending_full" Gateway 503 Never "too many requests wait for connections",
    /// All upstreams together had as many connections as they may for too long.
    ProcessPendingTimeout "process_pending_timeout" Gateway 503 Never "no connection at all became free in time",
    /// No descriptor, port or memory for a connection.
    NoResources "no_resources" Gateway 503 Always "no connection can be opened",
    /// The request took longer than the rule allows, all tries together.
    RequestTimeout "request_timeout" Gateway 504 Never "the request took too long",
    /// The service that is asked whether requests may pass does not answer, or not in a way that can be used.
    AuthzUnavailable "authz_unavailable" Upstream 503 Never "nobody can tell now whether this is allowed",
    /// The upstream has no endpoints.
    NoEndpoints "no_endpoints" Upstream 503 Never "the upstream has no endpoints",
    /// All endpoints are known not to be well, and the panic threshold does not apply.
    AllDown "all_down" Upstream 503 Never "no endpoint of the upstream is well",
    /// DNS has no such name, and never had since the start.
    DnsNotFound "dns_not_found" Upstream 503 Never "the upstream's name does not exist",
    /// DNS has the name and no address for it.
    DnsEmpty "dns_empty" Upstream 503 Never "the upstream's name has no address",
    /// DNS does not answer, or not in a way that can be used.
    DnsFailed "dns_failed" Upstream 503 Never "the upstream's name cannot be resolved",
    /// Nobody listens at the endpoint.
    ConnectRefused "connect_refused" Upstream 503 Always "the upstream refuses connections",
    /// The endpoint did not answer in time.
    ConnectTimeout "connect_timeout" Upstream 503 Always "the upstream cannot be connected to in time",
    /// The endpoint cannot be reached, or broke the connection off.
    ConnectFailed "connect_failed" Upstream 503 Always "the upstream cannot be reached",
    /// The TLS handshake failed: no common version, or a broken peer.
    TlsFailed "tls_failed" Upstream 502 Always "no secure connection to the upstream",
    /// The endpoint's certificate does not pass: name, time or authority.
    TlsCertificate "tls_certificate" Upstream 502 Never "the upstream's certificate is not trusted",
    /// The connection was reset before the answer's head.
    ResetBeforeHead "reset_before_head" Upstream 502 IfIdempotent "the upstream broke off before it answered",
    /// The connection was closed before the answer's head.
    ClosedBeforeHead "closed_before_head" Upstream 502 IfIdempotent "the upstream closed before it answered",
    /// The endpoint refused the request's stream of HTTP/2, or went away without having looked at it.
    StreamRefused "stream_refused" Upstream 503 Always "the upstream refuses the request",
    /// The endpoint speaks no HTTP/2: it does not choose it in the TLS handshake, or answers otherwise.
    NoHttp2 "wrong_protocol" Upstream 502 Never "the upstream does not speak HTTP/2",
    /// The answer's head is no HTTP, or breaks a rule of it.
    GarbageHead "garbage_head" Upstream 502 Never "the upstream's answer is not HTTP",
    /// The answer's head is too large.
    HeadTooLarge "head_too_large" Upstream 502 Never "the upstream's answer has too large a head",
    /// The answer switches protocols, which nobody asked for.
    SwitchUnasked "switch_unasked" Upstream 502 Never "the upstream switches protocols unasked",
    /// The endpoint did not begin to answer in time.
    HeadTimeout "head_timeout" Upstream 504 IfIdempotent "the upstream does not answer in time",
    /// The answer's body is longer than the rule allows. If that shows only later the answer is cut.
    ResponseTooLarge "response_too_large" Upstream 502 Never "the upstream's answer is too large",
    /// The connection ended within the answer's body: the answer is cut.
    BodyCut "body_cut" Upstream 502 Never "the upstream broke off within its answer",
    /// The framing of the answer's body is broken: the answer is cut.
    GarbageBody "garbage_body" Upstream 502 Never "the upstream's answer is broken",
    /// Nothing more of the answer's body came in time: the answer is cut.
    BodyTimeout "body_timeout" Upstream 504 Never "the upstream stopped within its answer",
    /// The answer's body came slower than the rule allows: the answer is cut.
    BodyTooSlow "body_too_slow" Upstream 504 Never "the upstream's answer comes too slowly",
}

impl Fault {
    /// As it stands in logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.row().0
    }

    /// On whose side it lies.
    #[must_use]
    pub const fn side(self) -> Side {
        self.row().1
    }

    /// What the client is answered, if no answer has begun.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.row().2
    }

    /// Whether trying again may help and is safe.
    #[must_use]
    pub const fn retryable(self) -> Retryable {
        self.row().3
    }

    /// Whether there was too much to do: something has as much as it may. Answers say so (`X-Overloaded`), so that whoever asked
    /// can tell it from what is broken.
    #[must_use]
    pub const fn is_overload(self) -> bool {
        matches!(
            self,
            Fault::RequestsFull
                | Fault::ConcurrencyFull
                | Fault::Shed
                | Fault::PendingFull
                | Fault::PendingTimeout
                | Fault::ProcessPendingFull
                | Fault::ProcessPendingTimeout
        )
    }

    /// Whether no connection to an endpoint could be established: nothing of the request was sent there.
    #[must_use]
    pub const fn is_connect_failure(self) -> bool {
        matches!(
            self,
            Fault::ConnectRefused | Fault::ConnectTimeout | Fault::ConnectFailed | Fault::TlsFailed
        )
    }

    /// What the client is told.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.row().4
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text(), self.label())
    }
}

impl std::error::Error for Fault {}
