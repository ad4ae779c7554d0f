//! Every limit of an HTTP application: the data that a client may make a server hold or read, and the times that it may wait, with
//! unit, default and outcome.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ringmain_wire::h1;

/// Limits of an application. Each applies per connection unless stated otherwise. The defaults are safe on the internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sizes of heads, chunk lines and trailers: see [`h1::Limits`]. `head_bytes` and `trailer_bytes` are at most
    /// [`MAX_HEAD_BYTES`]; `body_bytes` is ignored here (see [`Limits::body_bytes`]).
    pub http1: h1::Limits,
    /// From the opening of a connection to the end of its TLS handshake. Longer: the connection closes.
    pub handshake_timeout: Duration,
    /// From a head's first byte, or from the opening of the connection (the end of its handshake), to the head's last byte. Longer:
    /// 408 if part of a head was received, and the connection closes. The same time applies to a chunk's size line and to a trailer
    /// section, from the first byte, in a body without a minimum rate
    /// ([`Request::disable_body_rate`](crate::Request::disable_body_rate)).
    pub header_timeout: Duration,
    /// From the end of a response to the next request's first byte. Longer: the connection closes.
    pub idle_timeout: Duration,
    /// Bytes of a body that is collected before its handler runs. More: 413, and the connection closes.
    pub body_bytes: u64,
    /// Bytes of collected bodies that one worker holds at once: incomplete bodies, and those of running asynchronous handlers. An
    /// HTTP/2 connection holds at most an eighth of this ([`CONNECTION_SHARE_DIVISOR`]), or one body. More: 503 with `Retry-After`.
    pub collected_bytes: usize,
    /// Bytes of a body that its handler streams; `None`: no limit. More: 413 if no response was started, and the connection closes.
    pub streamed_body_bytes: Option<u64>,
    /// Minimum rate of a body in bytes per second, after [`Limits::rate_grace`] and averaged over [`RATE_WINDOW`]. Slower: 408, and
    /// the connection closes. Time in which the handler itself does not read does not count. Also the minimum rate at which a
    /// client must take a response, except for pauses of up to [`Limits::send_pause`].
    pub rate_bytes: u32,
    /// The time for which a body may be slow before [`Limits::rate_bytes`] applies.
    pub rate_grace: Duration,
    /// The longest time for which a client may take nothing of a pending response. A client slower than [`Limits::rate_bytes`] uses
    /// up this time, a faster one regains it. Longer: the response is truncated, and the connection (or HTTP/2 stream) is reset.
    /// Checked every [`RATE_TICK`].
    pub send_pause: Duration,
    /// Bytes of an unread body (as after a 404) that are read and dropped to reuse the connection. More announced: the response
    /// says `Connection: close`.
    pub discard_bytes: u64,
    /// The time for which a connection's input is read and dropped after a response that closes it, so that the client can read the
    /// response before a reset (RFC 9112 §9.6). Longer: it is closed.
    pub linger: Duration,
    /// Bytes that are dropped in that time. More: the connection is closed.
    pub linger_bytes: u64,
    /// Requests served on one connection; the last response says `Connection: close`. `None`: no limit.
    pub requests_per_connection: Option<u32>,
    /// Requests that asynchronous handlers of one worker process at once. More: 503 with `Retry-After`.
    pub running_requests: usize,
    /// Streams that an HTTP/2 client may have open at once on a connection. More are refused (REFUSED_STREAM) and count in the
    /// budget of resets ([`h2::Limits`](ringmain_wire::h2::Limits), whose other limits keep their defaults for the internet).
    pub streams: u32,
    /// Connections from one client address ([`client_network`]) at once, process-wide; loopback addresses and Unix sockets (a local
    /// proxy, a load test) do not count. More: 503 and the connection closes. `None`: no limit.
    pub connections_per_address: Option<u32>,
    /// The longest queue delay of a request in an overloaded worker. Longer: 503 with `Retry-After`, so that the worker completes
    /// as many requests in time as it can. A worker is overloaded when its requests have been delayed that long for
    /// [`OVERLOAD_FACTOR`] times this duration without a pause; delays behind one long computation
    /// ([`LONG_STEP`](ringmain_engine::limits::LONG_STEP)) do not count. `None`: every request is served, however late. The routes
    /// of [`App::health`](crate::App::health) are always served.
    pub max_queue_delay: Option<Duration>,
    /// The deepest nesting of JSON in a body. Deeper: 400.
    pub json_depth: usize,
    /// Limits of open WebSockets.
    pub websocket: WsLimits,
}

/// Limits of WebSockets, for each one unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WsLimits {
    /// Bytes of a message, the sum of its fragments after inflation. More: the socket closes with 1009, at the latest after one
    /// more inflated piece ([`INFLATED_CHUNK_BYTES`]).
    pub message_bytes: u64,
    /// Bytes of one frame on the wire. More: 1009, as soon as its header is read.
    pub frame_bytes: u64,
    /// Pings, pongs and empty fragments per [`CONTROL_FRAME_PERIOD`]. More: 1008. Other fragments are not counted: their bytes are.
    pub control_frames: u32,
    /// Bytes queued for sending. More: the connection is reset ([`CloseCause::SlowReader`](crate::ws::CloseCause)), for a client that reads
    /// nothing cannot receive a Close. Also the longest single message.
    pub unsent_bytes: usize,
    /// Bytes of incomplete messages, the sum over a worker's sockets; an inflater counts as [`INFLATER_BYTES`]. More: the socket
    /// that exceeds the limit closes with 1013.
    pub assembly_bytes: usize,
    /// Sockets of a worker that deflate with context takeover. Further sockets deflate without it.
    pub contexts: u32,
    /// From the last sign of life to a ping. `None`: no pings are sent, and a silent peer goes undetected.
    pub ping_interval: Option<Duration>,
    /// From a ping to the next sign of life. Longer: the connection is reset. A client that takes queued bytes at
    /// [`Limits::rate_bytes`] counts as alive.
    pub pong_timeout: Duration,
    /// From the server's Close to the client's. Longer: the connection is reset. A client that still takes queued bytes gets the same time
    /// once more.
    pub close_timeout: Duration,
    /// From a message's first bytes to its last, if it does not arrive at once. Longer: 1008.
    pub message_timeout: Duration,
}

impl Default for WsLimits {
    fn default() -> WsLimits {
        WsLimits {
            message_bytes: 1024 * 1024,
            frame_bytes: 1024 * 1024,
            control_frames: 100,
            unsent_bytes: 2 * 1024 * 1024,
            assembly_bytes: 64 * 1024 * 1024,
            contexts: 128,
            ping_interval: Some(Duration::from_secs(30)),
            pong_timeout: Duration::from_secs(20),
            close_timeout: Duration::from_secs(5),
            message_timeout: Duration::from_secs(60),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            http1: h1::Limits::INTERNET,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_bytes: 1024 * 1024,
            collected_bytes: 64 * 1024 * 1024,
            streamed_body_bytes: None,
            rate_bytes: 240,
            rate_grace: Duration::from_secs(5),
            send_pause: Duration::from_secs(20),
            discard_bytes: 64 * 1024,
            linger: Duration::from_secs(2),
            linger_bytes: 1024 * 1024,
            requests_per_connection: None,
            running_requests: 16 * 1024,
            streams: 256,
            connections_per_address: Some(1024),
            max_queue_delay: Some(Duration::from_millis(250)),
            json_depth: 64,
            websocket: WsLimits::default(),
        }
    }
}

/// The highest limit on heads and trailers in [`Limits::http1`]: the engine buffers no more unread bytes.
pub const MAX_HEAD_BYTES: u32 = 48 * 1024;

/// Bytes of a response handed to the engine at once; the rest follows as the client takes them.
pub const SEND_CHUNK_BYTES: usize = 256 * 1024;

/// Interval in which a worker logs at most one line of each kind that clients can cause at will (plain HTTP on a TLS port); the
/// next line has the number of suppressed lines.
pub const CLIENT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Names of query parameters that a configuration declares to hold secrets ([`RedactedParams`](crate::RedactedParams)); with more,
/// the oldest are dropped.
pub const REDACTED_PARAM_NAMES: usize = 1024;

/// Bytes of a response body up to which it is copied behind its head; a longer one is handed over without a copy.
pub const COPIED_BODY_BYTES: usize = 16 * 1024;

/// Bytes of a relayed chunk up to which it is copied behind the preceding bytes; a longer one is handed over without a copy.
pub const COPIED_CHUNK_BYTES: usize = 4 * 1024;

/// The interval after which the budget of [`WsLimits::control_frames`] is refilled.
pub const CONTROL_FRAME_PERIOD: Duration = Duration::from_secs(1);

/// Bytes of an inflated message that are delivered at once; a longer one is assembled from such pieces.
pub const INFLATED_CHUNK_BYTES: usize = 16 * 1024;

/// Bytes that an inflater counts in [`WsLimits::assembly_bytes`]: its window, its tables and a piece.
pub const INFLATER_BYTES: usize = 64 * 1024;

/// Idle inflaters that a worker pools. More are freed.
pub const IDLE_INFLATERS: usize = 16;

/// Bytes of a message from which it is deflated if deflate was negotiated: shorter ones hardly shrink.
pub const MIN_DEFLATE_BYTES: usize = 128;

/// The compression level, 1 to 9: the fast end, because a worker has other sockets to serve.
pub const DEFLATE_LEVEL: u8 = 2;

/// Bytes of a Close's reason. A longer one is truncated (RFC 6455 §5.5).
pub const CLOSE_REASON_BYTES: usize = 123;

/// Bytes added to a message's own length while it is queued for an asynchronous handler, so that the limit also bounds empty
/// messages.
pub const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// Bytes of a streamed body, or of a socket's messages, queued for their handler. More: nothing is received until it reads.
pub const BODY_QUEUE_BYTES: usize = 64 * 1024;

/// Bytes of a body that an HTTP/2 client may send before the handler reads any: the stream's flow-control window. More violates the
/// protocol.
pub const STREAM_WINDOW: usize = 128 * 1024;

/// Bytes of the flow-control window of a whole HTTP/2 connection.
pub const CONNECTION_WINDOW: usize = 1024 * 1024;

/// Stream records that an idle HTTP/2 connection pools. More are freed with the last stream.
pub const IDLE_STREAM_RECORDS: usize = 4;

/// Bytes of memory that each pooled record retains for a head and for a body. More is freed.
pub const STREAM_RECORD_BYTES: usize = 1024;

/// The time for which an HTTP/2 client may stay silent during a response before it is sent a PING.
pub const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// The time from a PING to the next bytes from the client. Longer: the connection is reset.
pub const HTTP2_PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of memory that a scratch buffer retains for the next request. More is freed.
pub const SCRATCH_BYTES: usize = 64 * 1024;

/// Idle tasks that a worker pools for one asynchronous route, or as many as are running if that is more: requests arrive in
/// bursts. Tasks beyond the limit end with their request, and each such request ends one idle task too, so that the memory of a
/// burst is freed.
pub const IDLE_TASKS: usize = 256;

/// Buffers for collected bodies that a worker pools. More are freed.
pub const IDLE_AGGREGATORS: usize = 64;

/// Multiple of [`Limits::max_queue_delay`] for which requests must have been late before a worker counts as overloaded, and for which none
/// may have been late before it no longer does.
pub const OVERLOAD_FACTOR: u32 = 3;

/// The divisor of [`Limits::collected_bytes`] that gives the share of one HTTP/2 connection.
pub const CONNECTION_SHARE_DIVISOR: usize = 8;

/// Receipts of a worker without delays between two reads of the clock, see [`Limits::max_queue_delay`].
pub const RECEIPTS_PER_CLOCK_READ: u32 = 8;

/// The time for the access log's last lines at the end of [`App::run`](crate::App::run). Longer: they are lost.
pub const ACCESS_LOG_FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The period over which a transfer's rate is averaged after its grace; then both restart.
pub const RATE_WINDOW: Duration = Duration::from_secs(5);

/// The interval between checks of a transfer's rate.
pub const RATE_TICK: Duration = Duration::from_secs(1);

/// The highest [`Limits::json_depth`]: deeper documents hit the parser's own stack guard first. A higher limit counts as this one.
pub const MAX_JSON_DEPTH: usize = 127;

/// Bytes of client text that an error response repeats. Longer text is cut in the middle.
pub const ERROR_TEXT_BYTES: usize = 256;

/// Pairs of a query string or a form. More: 400. The usual default of other frameworks.
pub const QUERY_PAIRS: usize = 1000;

/// Bytes of a cookie's name and value together. More: the cookie is not written, because clients would ignore it (RFC 6265bis
/// §5.6).
pub const COOKIE_BYTES: usize = 4096;

/// Initial capacity in bytes of a cookie's line: most fit.
pub(crate) const USUAL_COOKIE_BYTES: usize = 256;

/// Bytes of a cookie's path and of its domain. More: the cookie is not written, because clients would ignore the attribute.
pub const COOKIE_ATTRIBUTE_BYTES: usize = 1024;

/// Bytes of a request id. A longer one from a client is not adopted.
pub const REQUEST_ID_BYTES: usize = 128;

/// Log fields of one request for the access log. More are dropped.
pub const LOG_FIELDS: usize = 16;

/// Bytes of client text in the access log, before escaping. Longer text is cut and ends in `...`.
pub const ACCESS_LOG_FIELD_BYTES: usize = 2048;

/// Bytes of a message or of a field in a JSON line of the process log, after escaping. Longer text is cut and ends in `…`.
pub const PROCESS_LOG_TEXT_BYTES: usize = 4096;

/// Fields of a JSON line of the process log, besides time, level, logger and message. Further ones are dropped.
pub const PROCESS_LOG_FIELDS: usize = 16;

/// Bytes of lines after which a worker hands them to the access log's writer without waiting for the end of the turn.
pub const ACCESS_LOG_BLOCK_BYTES: usize = 16 * 1024;

/// Blocks of lines queued for the access log's writer: 4 MiB of typical lines, at most 20 MiB when each block ends in the longest
/// possible line. More: their lines are dropped and counted, and the count is logged.
pub const ACCESS_LOG_BLOCKS: usize = 256;

/// The longest time for which a worker buffers a line of the access log.
pub const ACCESS_LOG_FLUSH: Duration = Duration::from_millis(500);

/// Bytes of lines that the access log's writer gathers for one write.
pub const ACCESS_LOG_WRITE_BYTES: usize = 64 * 1024;

/// Bits of an IPv6 address that distinguish clients wherever something is counted by address: a client with one address of such a
/// network usually has all its addresses.
pub const CLIENT_IPV6_BITS: u8 = 64;

/// Returns the address that a client counts as: for IPv6 the network of [`CLIENT_IPV6_BITS`], for an IPv4-mapped address the IPv4
/// address.
#[must_use]
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - CLIENT_IPV6_BITS);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Parameters of one route, including a wildcard. More: adding the route fails.
pub(crate) const PARAMS: usize = 16;

/// Bytes of a route's pattern, including the prefixes of its groups. More: adding the route fails.
pub(crate) const PATTERN_BYTES: usize = 1024;

/// Listeners whose open connections are counted; those with a higher number are not.
pub const COUNTED_LISTENERS: u32 = 1024;

/// Routes of one table. More: adding the route fails.
pub(crate) const ROUTES: usize = 65_536;

const _: () = assert!(PARAMS <= u8::MAX as usize, "their number is kept in a byte");
const _: () = assert!(ROUTES < u32::MAX as usize, "routes are numbered by `u32`");

const _: () = assert!(MAX_HEAD_BYTES as usize + 16 * 1024 <= ringmain_engine::limits::READ_MARK);
const _: () = assert!(2 * SEND_CHUNK_BYTES <= ringmain_engine::limits::WRITE_LIMIT);
const _: () = assert!(
    MAX_HEAD_BYTES <= u16::MAX as u32,
    "a place in a path is kept in sixteen bits"
);
const _: () = assert!(COPIED_BODY_BYTES < SEND_CHUNK_BYTES);
const _: () = assert!(INFLATED_CHUNK_BYTES < INFLATER_BYTES);
