//! Every fault of a request: whose side it is on, the status that the client receives, whether a retry may help.
//!
//! One table: statuses, labels of metrics and fields of logs are taken from it, and `docs/faults.md` is checked against it. Does
//! not know how faults are detected.

mod detail;
#[cfg(test)]
mod tests;

pub(crate) use self::detail::Violation;

/// The side that a fault lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultSide {
    /// The client.
    Client,
    /// The gateway: its configuration or its limits.
    Gateway,
    /// The upstream, or the network between.
    Upstream,
}

impl FaultSide {
    /// Returns the name for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            FaultSide::Client => "client",
            FaultSide::Gateway => "gateway",
            FaultSide::Upstream => "upstream",
        }
    }
}

/// The conditions under which a request may be retried, as far as the fault decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retryable {
    /// No endpoint has received any part of the request.
    Always,
    /// An endpoint may have acted on the request: only an idempotent method may be retried.
    IfIdempotent,
    /// A retry would fail the same way, or a response has begun.
    Never,
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $kind:ident $label:literal $side:ident $status:literal $retryable:ident $text:literal,)*) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $($(#[doc = $doc])+ $kind,)* }

        impl Fault {
            /// Every fault, in the order of the table.
            pub const ALL: &[Fault] = &[$(Fault::$kind),*];

            const fn row(self) -> (&'static str, FaultSide, u16, Retryable, &'static str) {
                match self {
                    $(Fault::$kind => ($label, FaultSide::$side, $status, Retryable::$retryable, $text),)*
                }
            }
        }
    };
}

faults! {
    /// No listener of the address accepts the host.
    NoListener "no_listener" Client 404 Never "unknown host",
    /// No rule matches.
    NoRoute "no_route" Client 404 Never "no matching route",
    /// The host belongs to another listener than the one that the TLS handshake led to.
    Misdirected "misdirected" Client 421 Never "misdirected request: host not served on this connection",
    /// The path has an escaped slash or a backslash, which the listener rejects.
    EscapedSlash "escaped_slash" Client 400 Never "path contains an escaped slash or a backslash",
    /// The listener requires a client certificate, and the client has presented none.
    NoCertificate "no_certificate" Client 403 Never "client certificate required",
    /// The rule does not allow the client's address.
    AddressDenied "address_denied" Client 403 Never "client address denied",
    /// The rule requires credentials (basic authentication or an API key), and the request has none.
    CredentialsMissing "credentials_missing" Client 401 Never "authentication required",
    /// The rule does not accept the request's credentials or API key.
    CredentialsWrong "credentials_wrong" Client 401 Never "invalid credentials",
    /// The rule requires a token, and the request has none.
    TokenMissing "token_missing" Client 401 Never "token required",
    /// The request's token is malformed, not from one of the rule's providers, or has an invalid signature.
    TokenInvalid "token_invalid" Client 401 Never "invalid token",
    /// The request's token has expired or is not yet valid.
    TokenExpired "token_expired" Client 401 Never "token expired or not yet valid",
    /// The token lacks a scope that the rule requires.
    ScopeMissing "scope_missing" Client 403 Never "insufficient scope",
    /// A claim of the token does not satisfy the rule.
    ClaimRefused "claim_refused" Client 403 Never "token claims do not permit access",
    /// The external authorization service has denied the request. The client receives the response of that service.
    AuthzDenied "authz_denied" Client 403 Never "access denied",
    /// The client has exceeded its rate limit.
    RateLimited "rate_limited" Client 429 Never "rate limit exceeded",
    /// The request has passed through this gateway too often.
    Loop "loop" Client 508 Never "proxy loop detected",
    /// The request's `Connection` lists more options than the limit.
    ConnectionOptions "connection_options" Client 400 Never "too many options in the Connection header",
    /// The request's body exceeds the rule's limit.
    RequestTooLarge "request_too_large" Client 413 Never "request body too large",
    /// The client closed the connection within the request's body, or its framing is broken.
    RequestCut "request_cut" Client 400 Never "incomplete request body",
    /// The client sent the body slower than its listener's minimum rate.
    RequestTooSlow "request_too_slow" Client 408 Never "request body below the minimum rate",
    /// No further bytes of the client's body arrived before the timeout.
    RequestIdle "request_idle" Client 408 Never "request body timeout",
    /// The client is at its limit of requests with unfinished bodies, and tunnels, at the upstream.
    ClientShareFull "client_share_full" Client 503 Never "too many unfinished requests from this client",
    /// The client read the response slower than a rate that rises while others wait for the upstream: the response is cut.
    ClientTooSlow "client_too_slow" Client 408 Never "response read too slowly",
    /// The method is neither GET nor HEAD, the only ones that files are served for.
    MethodNotAllowed "method_not_allowed" Client 405 Never "method not allowed: only GET and HEAD",
    /// The method is TRACE, which is forwarded only by a rule that names it.
    TraceRefused "trace_refused" Client 405 Never "method not allowed: TRACE",
    /// The file does not exist.
    NoFile "no_file" Client 404 Never "file not found",
    /// A connection that is routed by SNI does not begin with TLS.
    NotTls "not_tls" Client 400 Never "connection does not start with a TLS ClientHello",
    /// The ClientHello of a connection that is routed by SNI is too long.
    HelloTooLong "hello_too_long" Client 400 Never "TLS ClientHello too large",
    /// A connection that is routed by SNI ended, or timed out, before its ClientHello was complete.
    NoHello "no_hello" Client 408 Never "TLS ClientHello timeout",
    /// The handshake of a TLS connection failed that is terminated here and does not carry HTTP.
    HandshakeFailed "handshake_failed" Client 400 Never "TLS handshake failed",
    /// The rule's configuration is invalid.
    BrokenRule "broken_rule" Gateway 500 Never "invalid route configuration",
    /// The backend that was selected does not exist or is not allowed.
    BrokenBackend "broken_backend" Gateway 500 Never "invalid backend configuration",
    /// The rule has no backend with a weight above zero.
    NoBackend "no_backend" Gateway 500 Never "no backend with a weight above zero",
    /// A filter of the rule has failed, has panicked, or has exceeded the limit for a body.
    FilterFailed "filter_failed" Gateway 500 Never "filter failed",
    /// A filter of the rule has exceeded its timeout.
    FilterTimeout "filter_timeout" Gateway 504 Never "filter timeout",
    /// A file cannot be read.
    FileUnreadable "file_unreadable" Gateway 500 Never "file cannot be read",
    /// The keys for token validation were never fetched or are too old, or the limit of requests that wait for them is reached.
    KeysUnavailable "keys_unavailable" Gateway 503 Never "token verification keys unavailable",
    /// The limit of concurrent password checks is reached.
    PasswordsBusy "passwords_busy" Gateway 503 Never "too many concurrent password checks",
    /// The upstream's limit of requests in flight is reached.
    RequestsFull "requests_full" Gateway 503 Never "upstream request limit reached",
    /// The rule's limit of requests in flight is reached.
    ConcurrencyFull "concurrency_full" Gateway 503 Never "concurrency limit reached",
    /// The shared rate limit store or the rate limit service does not respond, and the limit is configured to deny in that case.
    LimiterDown "limiter_down" Gateway 503 Never "rate limiter unavailable",
    /// The worker is overloaded, and the rule allows its requests to be shed.
    Shed "shed" Gateway 503 Never "server overloaded",
    /// An error by the rule's fault injection.
    Injected "injected" Gateway 503 Never "injected fault",
    /// The upstream's limit of requests that wait for a connection is reached.
    PendingFull "pending_full" Gateway 503 Never "upstream queue full",
    /// No connection to the upstream became free in time.
    PendingTimeout "pending_timeout" Gateway 503 Never "timeout waiting for an upstream connection",
    /// The process's limit of requests that wait for a connection is reached.
    ProcessPendingFull "process_pending_full" Gateway 503 Never "connection queue full",
    /// The process remained at its limit of upstream connections for too long.
    ProcessPendingTimeout "process_pending_timeout" Gateway 503 Never "timeout waiting for a connection slot",
    /// A descriptor, port or memory for a connection is not available.
    NoResources "no_resources" Gateway 503 Always "no resources to open a connection",
    /// The request exceeded the rule's timeout, all attempts included.
    RequestTimeout "request_timeout" Gateway 504 Never "request timeout",
    /// The external authorization service does not respond, or its response is invalid.
    AuthzUnavailable "authz_unavailable" Upstream 503 Never "authorization service unavailable",
    /// The external processor does not respond, or its response is invalid.
    ProcessorUnavailable "processor_unavailable" Upstream 503 Never "external processor unavailable",
    /// The upstream has no endpoints.
    NoEndpoints "no_endpoints" Upstream 503 Never "upstream has no endpoints",
    /// All endpoints are unhealthy, and the panic threshold does not apply.
    AllDown "all_down" Upstream 503 Never "no healthy upstream",
    /// The name does not exist in DNS, and has not since the start.
    DnsNotFound "dns_not_found" Upstream 503 Never "upstream hostname does not exist",
    /// The name exists in DNS but has no address.
    DnsEmpty "dns_empty" Upstream 503 Never "upstream hostname has no address",
    /// No DNS server responds, or responses are invalid.
    DnsFailed "dns_failed" Upstream 503 Never "upstream hostname cannot be resolved",
    /// The endpoint refused the connection: no process listens there.
    ConnectRefused "connect_refused" Upstream 503 Always "upstream connection refused",
    /// The connection to the endpoint was not established in time.
    ConnectTimeout "connect_timeout" Upstream 503 Always "upstream connect timeout",
    /// The endpoint is unreachable or reset the connection attempt.
    ConnectFailed "connect_failed" Upstream 503 Always "upstream unreachable",
    /// The TLS handshake failed: no common version, or a peer that violates the protocol.
    TlsFailed "tls_failed" Upstream 502 Always "upstream TLS handshake failed",
    /// The endpoint's certificate is not trusted, has expired, or does not match the name.
    TlsCertificate "tls_certificate" Upstream 502 Never "upstream certificate not trusted",
    /// The connection was reset before the head of the response.
    ResetBeforeHead "reset_before_head" Upstream 502 IfIdempotent "upstream reset the connection before the response headers",
    /// The connection was closed before the head of the response.
    ClosedBeforeHead "closed_before_head" Upstream 502 IfIdempotent "upstream closed the connection before the response headers",
    /// The endpoint refused the request's HTTP/2 stream, or sent GOAWAY before it processed the stream.
    StreamRefused "stream_refused" Upstream 503 Always "upstream refused the stream",
    /// The endpoint does not support HTTP/2: it did not select it in the TLS handshake, or its response is not HTTP/2.
    NoHttp2 "wrong_protocol" Upstream 502 Never "upstream does not support HTTP/2",
    /// The head of the response is not HTTP or violates it.
    GarbageHead "garbage_head" Upstream 502 Never "invalid upstream response headers",
    /// The head of the response is too large.
    HeadTooLarge "head_too_large" Upstream 502 Never "upstream response headers too large",
    /// The response switches protocols without a request for it.
    SwitchUnasked "switch_unasked" Upstream 502 Never "unexpected protocol switch by the upstream",
    /// The head of the response did not arrive in time.
    HeadTimeout "head_timeout" Upstream 504 IfIdempotent "upstream response timeout",
    /// The body of the response exceeds the rule's limit. A response that has begun is cut.
    ResponseTooLarge "response_too_large" Upstream 502 Never "upstream response body too large",
    /// The connection ended within the body of the response: the response is cut.
    BodyCut "body_cut" Upstream 502 Never "upstream closed the connection within the response body",
    /// The framing of the response's body is broken: the response is cut.
    GarbageBody "garbage_body" Upstream 502 Never "invalid framing of the upstream response body",
    /// No further bytes of the response's body arrived before the timeout: the response is cut.
    BodyTimeout "body_timeout" Upstream 504 Never "upstream response body timeout",
    /// The body of the response arrived slower than the rule's minimum rate: the response is cut.
    BodyTooSlow "body_too_slow" Upstream 504 Never "upstream response body below the minimum rate",
}

impl Fault {
    /// Returns the name for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.row().0
    }

    /// Returns the side that the fault lies on.
    #[must_use]
    pub const fn side(self) -> FaultSide {
        self.row().1
    }

    /// Returns the status of the response, if no response has begun.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.row().2
    }

    /// Returns whether a retry may help and is safe.
    #[must_use]
    pub const fn retryable(self) -> Retryable {
        self.row().3
    }

    /// Returns whether a limit was reached. Such responses have `X-Overloaded`, so that clients can distinguish overload from other
    /// failures.
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

    /// Returns whether no connection to an endpoint could be established: no byte of the request was sent there.
    #[must_use]
    pub const fn is_connect_failure(self) -> bool {
        matches!(
            self,
            Fault::ConnectRefused | Fault::ConnectTimeout | Fault::ConnectFailed | Fault::TlsFailed
        )
    }

    /// Returns the text of the response.
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
