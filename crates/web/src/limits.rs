//! Every limit of an HTTP application: what a client may make a server hold, read or wait for, with unit, default
//! and outcome.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ringmain_wire::h1;

/// Limits of one application. Each holds per connection unless it says otherwise; the defaults survive the
/// internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sizes of heads, chunk lines and trailers: see [`h1::Limits`]. `head_bytes` and `trailer_bytes` are at most
    /// [`HEAD_BYTES_MOST`]; `body_bytes` is not looked at here (see [`Limits::body_bytes`]).
    pub http1: h1::Limits,
    /// From the opening of a connection to the end of its TLS handshake. Longer: the connection closes.
    pub handshake_timeout: Duration,
    /// From a head's first byte, or from the opening of the connection (the end of its handshake), to the head's last byte. Longer: 408 if part of
    /// a head is there, and the connection closes. The same time is for a chunk's size line and for a trailer section, from its first
    /// byte, in a body without a minimum rate ([`Request::wait_patiently`](crate::Request::wait_patiently)).
    pub header_timeout: Duration,
    /// From an answer to the next request's first byte. Longer: the connection closes.
    pub idle_timeout: Duration,
    /// Bytes of a body that is collected before its handler runs. More: 413, and the connection closes.
    pub body_bytes: u64,
    /// Bytes of collected bodies that one worker holds at once: those that are not whole, and those whose asynchronous handlers
    /// run. A connection of HTTP/2 holds an eighth of it at most ([`CONNECTION_SHARE`]), or one body. More: 503 with
    /// `Retry-After`.
    pub collected_bytes: usize,
    /// Bytes of a body that its handler streams; `None`: no limit. More: 413 if nothing was answered yet, and the
    /// connection closes.
    pub streamed_body_bytes: Option<u64>,
    /// Bytes a second that a body must bring in, behind [`Limits::rate_grace`] and on average over [`RATE_WINDOW`]. Slower: 408,
    /// and the connection closes. Time in which the handler itself does not read does not count. And bytes a second at which a
    /// client must take an answer, but for pauses of up to [`Limits::send_pause`].
    pub rate_bytes: u32,
    /// How long a body may be slow before [`Limits::rate_bytes`] holds.
    pub rate_grace: Duration,
    /// How long a client may take nothing of an answer that waits for it; a slower client than [`Limits::rate_bytes`] uses this
    /// time up, a faster one earns it back. Longer: the answer is cut, and the connection (or stream of HTTP/2) is reset. Checked
    /// every [`RATE_TICK`].
    pub send_pause: Duration,
    /// Bytes of an unwanted body (as behind a 404) that are read and dropped to keep the connection. More announced:
    /// the answer says `Connection: close`.
    pub discard_bytes: u64,
    /// How long a connection is read and dropped after an answer that closes it, so that the client can read the answer
    /// before a reset (RFC 9112 §9.6). Longer: it is closed.
    pub linger: Duration,
    /// Bytes that are dropped meanwhile. More: it is closed.
    pub linger_bytes: u64,
    /// Requests answered on one connection; the last one's answer says `Connection: close`. `None`: no limit.
    pub requests_per_connection: Option<u32>,
    /// Requests of asynchronous handlers that one worker runs at once. More: 503 with `Retry-After`.
    pub running_requests: usize,
    /// Streams that a client of HTTP/2 may have open at once on a connection. More are refused (REFUSED_STREAM), and count in
    /// the budget of resets ([`h2::Limits`](ringmain_wire::h2::Limits), whose other limits are those for the internet).
    pub streams: u32,
    /// Connections from one client address ([`client_network`]) at once, process-wide; those from loopback addresses and Unix
    /// sockets do not count (a local proxy, a load test). More: 503 and the connection closes. `None`: no limit.
    pub connections_per_address: Option<u32>,
    /// How long a request may have waited in an overloaded worker before its handler runs. Longer: 503 with `Retry-After`, so that
    /// the worker answers as many in time as it can. Overloaded is a worker whose requests have waited that long for
    /// [`OVERLOAD_AFTER`] times as long without a pause; time behind one long computation
    /// ([`LONG_STEP`](ringmain_engine::limits::LONG_STEP)) does not count. `None`: each is answered, however late. The routes of [`App::health`](crate::App::health) are
    /// answered at any time.
    pub patience: Option<Duration>,
    /// How deep JSON in a body may nest. Deeper: 400.
    pub json_depth: usize,
    /// What holds for WebSockets once they are open.
    pub websocket: WsLimits,
}

/// Limits of WebSockets, for each one unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WsLimits {
    /// Bytes of a message, all fragments together and inflated. More: the socket closes with 1009, at the latest when one
    /// more piece ([`INFLATED_PIECE`]) was inflated.
    pub message_bytes: u64,
    /// Bytes of a frame of a message, as on the wire. More: 1009, known from its header.
    pub frame_bytes: u64,
    /// Pings, pongs and empty fragments in [`CONTROL_PERIOD`]. More: 1008. Other fragments are not counted: they bring
    /// bytes, which are.
    pub control_frames: u32,
    /// Bytes that wait to be sent. More: the connection is reset ([`Cause::SlowReader`](crate::ws::Cause)), for a client that
    /// takes nothing cannot be told. One message may be so long at most.
    pub unsent_bytes: usize,
    /// Bytes of messages that are not whole, of all sockets of a worker; an inflater counts [`INFLATER_BYTES`]. More: the
    /// socket that brings it closes with 1013.
    pub assembly_bytes: usize,
    /// Sockets of a worker that deflate with memory between messages. More are deflated without.
    pub contexts: u32,
    /// From the last sign of life to a ping. `None`: none are sent, and who falls silent is not noticed.
    pub ping_interval: Option<Duration>,
    /// From a ping to the next sign of life. Longer: the connection is reset. Who takes what it is sent at
    /// [`Limits::rate_bytes`] is alive.
    pub pong_timeout: Duration,
    /// From our Close to the client's. Longer: the connection is reset. Who still takes what it is sent is given as long
    /// again.
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
            patience: Some(Duration::from_millis(250)),
            json_depth: 64,
            websocket: WsLimits::default(),
        }
    }
}

/// What [`Limits::http1`] may say of heads and trailers: the engine keeps no more of unread bytes.
pub const HEAD_BYTES_MOST: u32 = 48 * 1024;

/// Bytes of an answer handed to the engine at once; the rest follows as the client takes them.
pub const SEND_SHARE: usize = 256 * 1024;

/// Interval in which a worker logs at most one line of each kind that clients can cause at will (plain HTTP on a TLS port); the
/// next line has the number of those that were left out.
pub const CLIENT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Names of query parameters that a configuration declares to hold secrets ([`RedactedParams`](crate::RedactedParams)); with more
/// the oldest are forgotten.
pub const REDACTED_PARAMS: usize = 1024;

/// Bytes of a reply's body up to which it is copied behind its head; a longer one is handed over as it is.
pub const COPIED_BODY: usize = 16 * 1024;

/// Bytes of a piece of a relayed body up to which it is gathered with what is before it; a longer one is handed over as it
/// is.
pub const GATHERED_PIECE: usize = 4 * 1024;

/// How often the budget of [`WsLimits::control_frames`] is filled again.
pub const CONTROL_PERIOD: Duration = Duration::from_secs(1);

/// Bytes of an inflated message that are handed on at once; a longer one is put together from such pieces.
pub const INFLATED_PIECE: usize = 16 * 1024;

/// Bytes that an inflater counts in [`WsLimits::assembly_bytes`]: its window, its tables and a piece.
pub const INFLATER_BYTES: usize = 64 * 1024;

/// Idle inflaters that a worker keeps. More are freed.
pub const IDLE_INFLATERS: usize = 16;

/// Bytes of a message from which it is deflated where that was agreed on: shorter ones hardly become smaller.
pub const DEFLATE_FROM: usize = 128;

/// How hard messages are deflated, 1 to 9: the fast end, for a worker has other sockets to serve.
pub const DEFLATE_LEVEL: u8 = 2;

/// Bytes of a Close's reason. A longer one is cut (RFC 6455 §5.5).
pub const CLOSE_REASON_BYTES: usize = 123;

/// Bytes that a message counts beside its own while it waits for an asynchronous handler: many empty ones are bounded too.
pub const MESSAGE_RECORD: usize = 64;

/// Bytes of a streamed body, or of a socket's messages, that wait for their handler. More: nothing is received until it reads.
pub const BODY_QUEUE: usize = 64 * 1024;

/// Bytes of a body that come on a stream of HTTP/2 before its handler reads any. More would break the protocol's window.
pub const STREAM_WINDOW: usize = 128 * 1024;

/// The same of all streams of a connection.
pub const CONNECTION_WINDOW: usize = 1024 * 1024;

/// Streams' records that an idle connection of HTTP/2 keeps. More are freed with the last stream.
pub const IDLE_LANES: usize = 4;

/// Bytes of memory that each of them keeps for a head and for a body. More is given back.
pub const LANE_BYTES: usize = 1024;

/// How long a client of HTTP/2 may say nothing while it is answered before it is asked for a sign of life.
pub const PING_AFTER: Duration = Duration::from_secs(30);

/// How long that may take. Longer: the connection is reset.
pub const PONG_WITHIN: Duration = Duration::from_secs(20);

/// Bytes of memory that a scratch buffer keeps for the next request. More is given back.
pub const SCRATCH_BYTES: usize = 64 * 1024;

/// Idle runners of one asynchronous route that a worker keeps, or as many as are running if that is more: requests come in bursts. Those beyond
/// end with their request, and one that is idle with each, so that a burst's memory is given back.
pub const IDLE_RUNNERS: usize = 256;

/// Collected bodies' buffers that a worker keeps. More are freed.
pub const IDLE_COLLECTORS: usize = 64;

/// Times [`Limits::patience`] for which requests must have been late before a worker counts as overloaded, and for which none may
/// have been before it does no more.
pub const OVERLOAD_AFTER: u32 = 3;

/// The part of [`Limits::collected_bytes`] that one connection of HTTP/2 may hold: one in so many.
pub const CONNECTION_SHARE: usize = 8;

/// Receipts of a worker that is not late between two looks at the clock, see [`Limits::patience`].
pub const RECEIPTS_UNTIMED: u32 = 8;

/// How long the access log's last lines may take at the end of [`App::run`](crate::App::run). Longer: they are lost.
pub const LAST_LINES: Duration = Duration::from_secs(5);

/// How long a transfer's rate is averaged, behind its grace; then both begin anew.
pub const RATE_WINDOW: Duration = Duration::from_secs(5);

/// How often a transfer's rate is looked at.
pub const RATE_TICK: Duration = Duration::from_secs(1);

/// The deepest nesting of a JSON document that can be asked for: beyond it the parser's own guard for the stack
/// answers first. A higher limit counts as this one.
pub const JSON_DEPTH_MOST: usize = 127;

/// Bytes of a client's own text that an error sends back to it. Longer ones are cut in the middle.
pub const ERROR_TEXT_BYTES: usize = 256;

/// Pairs of a query string or a form. More: 400. As many as other frameworks take by default.
pub const PAIRS: usize = 1000;

/// Bytes of a cookie's name and value together. More: it is not written, for clients would ignore it
/// (RFC 6265bis §5.6).
pub const COOKIE_BYTES: usize = 4096;

/// Bytes of memory with which the line of a cookie begins: most fit.
pub(crate) const USUAL_COOKIE_BYTES: usize = 256;

/// Bytes of a cookie's path and of its domain. More: it is not written, for clients would ignore the attribute.
pub const COOKIE_ATTRIBUTE_BYTES: usize = 1024;

/// Bytes of a request's id. A longer one that a client says is not taken over.
pub const REQUEST_ID_BYTES: usize = 128;

/// Notes of one request for the access log. More are dropped.
pub const NOTES: usize = 16;

/// Bytes of a client's text in the access log, before escapes. Longer ones are cut and end in `...`.
pub const ACCESS_LOG_FIELD_BYTES: usize = 2048;

/// Bytes of lines after which a worker hands them over to the access log's writer without waiting for the turn's end.
pub const ACCESS_LOG_BLOCK_BYTES: usize = 16 * 1024;

/// Blocks of lines that wait for the access log's writer: 4 MiB of usual lines, at most 20 MiB when each block ends in
/// the longest line there can be. More: their lines are dropped, counted, and the count is logged.
pub const ACCESS_LOG_BLOCKS: usize = 256;

/// How long a line of the access log may wait at its worker.
pub const ACCESS_LOG_FLUSH: Duration = Duration::from_millis(500);

/// Bytes of lines that the access log's writer gathers for one write.
pub const ACCESS_LOG_WRITE_BYTES: usize = 64 * 1024;

/// Bits of an IPv6 address that tell clients apart wherever something is counted by address: a client that has one address of such a
/// network mostly has all of them.
pub const CLIENT_IPV6_BITS: u8 = 64;

/// The address that a client counts as: of IPv6 the network of [`CLIENT_IPV6_BITS`], and IPv4 for an address that IPv6 maps.
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

/// Parameters of one route, a wildcard counted. More: the route is refused when it is added.
pub(crate) const PARAMS: usize = 16;

/// Bytes of a route's pattern, its groups' prefixes counted. More: the route is refused when it is added.
pub(crate) const PATTERN_BYTES: usize = 1024;

/// Routes of one table. More: the route is refused when it is added.
pub(crate) const ROUTES: usize = 65_536;

const _: () = assert!(PARAMS <= u8::MAX as usize, "their number is kept in a byte");
const _: () = assert!(ROUTES < u32::MAX as usize, "routes are numbered by `u32`");

const _: () = assert!(HEAD_BYTES_MOST as usize + 16 * 1024 <= ringmain_engine::limits::READ_MARK);
const _: () = assert!(2 * SEND_SHARE <= ringmain_engine::limits::WRITE_LIMIT);
const _: () = assert!(
    HEAD_BYTES_MOST <= u16::MAX as u32,
    "a place in a path is kept in sixteen bits"
);
const _: () = assert!(COPIED_BODY < SEND_SHARE);
const _: () = assert!(INFLATED_PIECE < INFLATER_BYTES);
