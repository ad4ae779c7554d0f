//! Every limit of the gateway's configuration and its defaults, with unit and what happens there.

use std::time::Duration;

pub use ringmain_jwt::limits::{KEY_SET_BYTES, KEYS_PER_SET, TOKEN_BYTES};

/// Time for a client that sent HTTP in the clear to a TLS listener, and was answered 400, to end its side; then the
/// connection is closed.
pub const PLAIN_HTTP_LINGER: Duration = Duration::from_secs(2);

/// Bytes of such a client that are read and dropped meanwhile; with more the connection is closed.
pub const PLAIN_HTTP_LINGER_BYTES: usize = 256 * 1024;

/// Bytes of the name of a listener, route, upstream, certificate or set of authorities.
pub const NAME_BYTES: usize = 253;

/// Bytes of a hostname (RFC 1035 §2.3.4), without a final dot.
pub const HOSTNAME_BYTES: usize = 253;

/// Bytes of a path in a match, a rewrite or a redirect.
pub const PATH_BYTES: usize = 4096;

/// Bytes of a header's name in a match or a change.
pub const HEADER_NAME_BYTES: usize = 256;

/// Bytes of a header's value in a match or a change.
pub const HEADER_VALUE_BYTES: usize = 4096;

/// Bytes of the text of an expression.
pub const PATTERN_BYTES: usize = 1024;

/// Bytes of an expression once compiled; one that needs more (`(\w{100}){100}`) is refused.
pub const PATTERN_COMPILED_BYTES: usize = 256 * 1024;

/// Bytes of what an expression may remember while it matches; beyond it matching is slower, never wrong.
pub const PATTERN_CACHE_BYTES: usize = 64 * 1024;

/// Bytes of a query's value, decoded, that an expression is tried on; a longer one matches none.
pub const PATTERN_VALUE_BYTES: usize = 1024;

/// Media types that a rule adds for its files; a file with more is refused.
pub const FILE_TYPES: usize = 1024;

/// Rules of a route; all requests of a route with more are answered 500.
pub const RULES: usize = 1024;

/// Matches of a rule; all requests of a route with more are answered 500.
pub const MATCHES: usize = 1024;

/// Rules that an explanation tells why they do not take a request; of more only the number is told.
pub const EXPLAINED: usize = 20;

/// The most that a backend may weigh.
pub const WEIGHT: u32 = 1_000_000;

/// How often a request may be tried again.
pub const RETRIES: u8 = 10;

/// Bytes of a request's body that are retained for another attempt while they are sent, where a rule has requests retried or hedged.
/// With more sent there is no other attempt; before any byte was sent a request can be sent to another endpoint whatever its body.
pub const REPLAY_BYTES: usize = 64 * 1024;

/// Tries that a [`RetryBudget`](crate::model::RetryBudget) saves up at most while none is needed.
pub const RETRIES_SAVED: u32 = 1000;

/// Copies of requests that a worker has under way at once. More are not sent.
pub const MIRRORS: u32 = 64;

/// How long a copy of a request may take, its answer included; then its connection is closed.
pub const MIRROR_TIME: Duration = Duration::from_secs(10);

/// The most that a rule may say of bytes of a body that are copied.
pub const MIRROR_BODY_BYTES: u64 = 16 << 20;

/// Bytes of an answer to a copy that are read, to keep its connection. With more the connection is closed.
pub const MIRROR_ANSWER_BYTES: u64 = 1 << 20;

/// Responses of one worker that are read to their end after their clients have left, so that their connections are pooled again.
/// Beyond it the connections are closed.
pub const ABANDONED_RESPONSES: u32 = 64;

/// Bytes of the body of such a response. A longer one closes its connection.
pub const ABANDONED_BYTES: u64 = 64 * 1024;

/// How long such a response may take. Later its connection is closed, which tells the endpoint to stop.
pub const ABANDONED_TIME: Duration = Duration::from_millis(500);

/// How many trusted proxies may stand between a client and a listener.
pub const HOPS: u8 = 16;

/// The most that a hash of a password may cost by bcrypt: 2 to this power of rounds, about a second of a CPU.
pub const BCRYPT_COST: u32 = 14;

/// KiB of memory that a hash of a password may cost by argon2.
pub const ARGON2_KIB: u32 = 128 * 1024;

/// Passes over that memory.
pub const ARGON2_PASSES: u32 = 16;

/// Rounds that a hash of a password may cost by SHA-crypt.
pub const SHA_CRYPT_ROUNDS: u32 = 1_000_000;

/// Users of a policy of basic authentication, and keys of one of API keys.
pub const CREDENTIALS: usize = 10_000;

/// Passwords that are checked at once, process-wide: half of the threads that do so, which also read files.
pub const PASSWORD_CHECKS: u32 = 8;

/// Bytes of memory that these checks take together, process-wide. A check that needs more runs alone.
pub const PASSWORD_BYTES: u64 = 256 << 20;

/// Requests that wait for such a check, process-wide. Beyond it the client with most of them loses one; without such a client
/// the request is answered 503.
pub const PASSWORDS_WAITING: usize = 1024;

/// Requests of one client address (IPv6: of its network) that wait for such a check. Beyond it: 503.
pub const PASSWORDS_WAITING_CLIENT: usize = 16;

/// How long a request waits for such a check; then 503.
pub const PASSWORD_WAIT: Duration = Duration::from_secs(10);

/// Passwords that a worker knows to be right without checking them again; beyond it the oldest is forgotten.
pub const PASSWORDS_KNOWN: usize = 4096;

/// Bytes of a name and password, or of an API key; longer ones are wrong.
pub const CREDENTIAL_BYTES: usize = 1024;

/// Tokens that a worker knows to be good without checking their signatures again; beyond it the oldest is forgotten.
pub const TOKENS_KNOWN: usize = 4096;

/// Bytes of all these tokens together, for each worker.
pub const TOKENS_KNOWN_BYTES: usize = 8 << 20;

/// Policies that a worker knows a token to be what they want; of more, the oldest is forgotten.
pub const TOKEN_GRANTS: usize = 4;

/// Bytes of headers that tell of a token, by one policy; of more they are put together each time.
pub const TOKEN_GRANT_BYTES: usize = 512;

/// How long fetching a set of keys may take.
pub const KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// How soon a set of keys is fetched again at the earliest, whatever tokens name.
pub const KEYS_LEAST: Duration = Duration::from_secs(10);

/// How soon a set of keys that was never fetched is tried again, at first; then after twice as long, up to
/// [`KEYS_LEAST`].
pub const KEYS_AGAIN: Duration = Duration::from_secs(1);

/// Requests of a provider that wait for its keys, process-wide. Who comes then is refused at once.
pub const KEYS_PARKED: u32 = 64;

/// How long a request waits for keys; then 503.
pub const KEYS_WAIT: Duration = Duration::from_secs(5);

/// Names of keys that a set is known not to have, for each provider; more are not remembered.
pub const KEYS_UNKNOWN: usize = 256;

/// For how long a set is taken not to have a key that it did not have.
pub const KEY_UNKNOWN: Duration = Duration::from_mins(1);

/// Bytes of a request's body that are held for a service that decides about it. A worker holds [`COLLECTED_BYTES`] together.
pub const AUTHZ_REQUEST_BYTES: u64 = 1 << 20;

/// Bytes of the body of a refusal by a service that is asked; with more it has failed.
pub const AUTHZ_BODY_BYTES: u64 = 64 * 1024;

/// Bytes of the certificates behind a client's own that an upstream is told of; of more it is told none of these.
pub const CERTIFICATE_CHAIN_BYTES: usize = 16 * 1024;

/// Body of a direct answer or an error page, bytes.
pub const ANSWER_BYTES: usize = 1 << 20;

/// How long connecting to an endpoint may take, TLS included, unless an upstream says otherwise.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an exchange may be without a byte in either direction, unless a rule says otherwise.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client may leave the stream of HTTP/2 open on which it speaks WebSocket, once the upstream has ended its side. Then the stream is
/// ended for both.
pub const TUNNEL_REST: Duration = Duration::from_secs(1);

/// Bytes of a request's body, unless a rule says otherwise.
pub const REQUEST_BODY_BYTES: u64 = 16 << 20;

/// Bytes of a request's body that are received and dropped behind an answer that was given before it was whole, within
/// [`linger`](ringmain_web::Limits::linger): so that a client which sends all of its body before it reads gets the answer. More: its
/// connection is closed, which may cost it the answer.
pub const LINGER_BYTES: u64 = 64 << 20;

/// Bytes of a request's body that make it worth a place of its upstream, whatever its client sends behind them. Until then its place is
/// held on its client's account, of which each client has a [share](UPSTREAM_CLIENT_SHARE).
pub const WORTH_BYTES: usize = REPLAY_BYTES;

/// Bytes of bodies that a worker collects for requests which are not worth a place yet. With more they wait for a place on their
/// client's account without that, and are answered 503 (`client_share_full`) after the upstream's connect timeout. So are, at once,
/// requests whose bodies a service of authorization is to see.
pub const COLLECTED_BYTES: usize = 64 << 20;

/// How many percent of an upstream's places one client address may hold by bodies that have not arrived and by tunnels, unless the
/// upstream says otherwise. More: uploads are collected first, streams and tunnels wait and are answered 503 (`client_share_full`).
pub const UPSTREAM_CLIENT_SHARE: u8 = 50;

/// Requests that wait for a connection to one upstream before any of them counts on its client's account: from half of the upstream's
/// `pool.pending` on, one client has at most a quarter of that number. More: 503 (`client_share_full`).
pub const TURNS_FREE: u32 = 32;

/// Wakers of requests that wait for a place on their client's account, for each upstream. Beyond it all are woken, and those that still
/// wait register again.
pub const SHARE_WAKERS: usize = 1024;

/// How often it is checked whether others wait for the place of a body that is sent slowly, or of a response that is read slowly.
pub const CONTENDED_LOOK: Duration = Duration::from_secs(1);

/// Checks after which such a body must bring its rate: twice its listener's minimum rate, twice as much after each further check.
pub const CONTENDED_GRACE: u32 = 2;

/// Bytes a second to which that rate rises at most.
pub const CONTENDED_RATE: u64 = 16 * 1024;

/// Connections to one upstream, process-wide, unless it says otherwise.
pub const UPSTREAM_CONNECTIONS: u32 = 1024;

/// Requests that wait for a connection to one upstream, process-wide, unless it says otherwise.
pub const UPSTREAM_PENDING: u32 = 1024;

/// Requests that wait for a connection because all upstreams together have as many as they may. More: 503.
pub const PROCESS_PENDING: u32 = 16 * 1024;

/// Requests under way to one upstream, process-wide, unless it says otherwise.
pub const UPSTREAM_REQUESTS: u32 = 16 * 1024;

/// Requests that are tried again at the same time at one upstream, process-wide, unless it says otherwise.
pub const UPSTREAM_RETRIES: u32 = 1024;

/// How long a connection is kept for the next request, unless an upstream says otherwise.
///
/// Below the minute after which most servers close an idle connection, so that few requests meet one that is closing.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(55);

/// Requests under way by one connection of HTTP/2 to an endpoint, unless an upstream says otherwise.
pub const UPSTREAM_STREAMS: u32 = 100;

/// The most that an upstream may say of that.
pub const UPSTREAM_STREAMS_MOST: u32 = 10_000;

/// How many requests at most wait for one connection that is being made, of which nobody knows yet how many it takes. For more
/// there is another one.
pub const UPSTREAM_STREAMS_ASSUMED: u32 = 100;

/// Bytes of a response's body that are held for a client which does not read them, where the upstream speaks HTTP/2: the window of
/// a stream. The endpoint sends no more then. They count in [`HELD_BYTES`](ringmain_engine::limits::HELD_BYTES).
pub const UPSTREAM_STREAM_WINDOW: u32 = 128 * 1024;

/// The window that a stream begins with. Once as much of its response was taken it has the whole window, unless the worker holds its share
/// of [`HELD_BYTES`](ringmain_engine::limits::HELD_BYTES): so each stalled download beyond that holds this at most.
pub const UPSTREAM_FIRST_WINDOW: u32 = 64 * 1024;

/// Bytes by which the memory of such a body grows from [`UPSTREAM_FIRST_WINDOW`] on; below it doubles.
pub const CHANNEL_BODY_STEP: usize = 16 * 1024;

/// Bytes of all streams of one such connection together, at most: the window of a connection.
pub const UPSTREAM_CONNECTION_WINDOW: u64 = 1 << 30;

/// How many times as much work for nothing as a client may make an endpoint may, before its connection is ended
/// ([`Budgets`](ringmain_wire::h2::Budgets)).
pub const UPSTREAM_TRUST: u32 = 20;

/// How long nothing has come by a connection of HTTP/2 when the next request asks for a sign of life.
pub const UPSTREAM_PING_AFTER: Duration = Duration::from_secs(15);

/// How long that sign is waited for, as by a connection on which a request has timed out. Without one the connection ends, and its
/// requests with it.
pub const UPSTREAM_PING_WAIT: Duration = Duration::from_secs(10);

/// Bytes of a line of an answer of the gateway's own that clients of gRPC are told as `grpc-message`. A longer one is not told.
pub const GRPC_MESSAGE_BYTES: usize = 1024;

/// Bytes of memory for what is to be written that a session of HTTP/2 keeps.
pub const SESSION_OUT_KEPT: usize = 16 * 1024;

/// Bytes of memory for a frame that is not whole that a session of HTTP/2 keeps.
pub const SESSION_PARTIAL_KEPT: usize = 16 * 1024;

/// Bytes of memory for what was read of a body that a stream of HTTP/2 keeps.
pub const CHANNEL_BODY_KEPT: usize = 32 * 1024;

/// Places for what comes on streams of HTTP/2 that a worker keeps for each upstream, to use again; more of them are freed.
pub const INCOMING_KEPT: usize = 1024;

/// Bytes of memory for an answer's head that each of those keeps.
pub const INCOMING_HEAD_KEPT: usize = 2 * 1024;

/// The same for what came of its body.
pub const INCOMING_BODY_KEPT: usize = 4 * 1024;

/// Points of an endpoint of weight 1 on the ring of [`Balance::RingHash`](crate::model::Balance::RingHash).
pub const RING_POINTS: u32 = 160;

/// Points of all endpoints of such a ring together; with more each has fewer, at least one.
pub const RING_POINTS_MOST: usize = 1 << 20;

/// Places of a table of [`Balance::Maglev`](crate::model::Balance::Maglev); a prime, as the algorithm needs it.
pub const MAGLEV_PLACES: u32 = 65_537;

/// How long an answer of DNS holds at least, whatever it says.
pub const DNS_TTL_LEAST: Duration = Duration::from_secs(1);

/// How long an answer of DNS holds at most, whatever it says.
pub const DNS_TTL_MOST: Duration = Duration::from_mins(5);

/// How soon a name is looked up again of which nothing is known, or what is known is from a file.
pub const DNS_AGAIN: Duration = Duration::from_secs(5);

/// How often a request that waits for an upstream's first addresses looks for them.
pub const PENDING_LOOK: Duration = Duration::from_millis(5);

/// How long one DNS server is waited for, unless `/etc/resolv.conf` says otherwise.
pub const DNS_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections of clients, process-wide, unless the configuration says otherwise: as the descriptor limit allows.
pub const CONNECTIONS: Option<u32> = None;

/// Fields that a client's `Connection` may name. More: 400, so that nobody makes sorting them costly.
pub const CONNECTION_OPTIONS: usize = 32;

/// How often this gateway's name may stand in a request's `Via`. More: 508.
pub const VIA_HOPS: usize = 8;

/// Bytes of the head of an upstream's answer. More: 502.
pub const RESPONSE_HEAD_BYTES: u32 = 48 * 1024;

/// Fields of an upstream's answer. More: 502.
pub const RESPONSE_FIELDS: u16 = 200;

/// Interim answers (100 to 199) that an upstream may send before its answer. More: 502.
pub const INTERIM_ANSWERS: u32 = 16;

/// How long an upstream may keep its answer's body waiting before
/// [`Timeouts::minimum_rate`](crate::model::Timeouts::minimum_rate) holds.
pub const ANSWER_RATE_GRACE: Duration = Duration::from_secs(5);

/// Bytes of a body's piece that is passed on at once, either way, and so the most that is written beyond
/// [`WRITE_MARK`](ringmain_engine::limits::WRITE_MARK).
pub const RELAY_SHARE: usize = 64 * 1024;

/// How long that rate is averaged, behind the grace; then both begin anew.
pub const ANSWER_RATE_WINDOW: Duration = Duration::from_secs(5);

/// Bytes of a file that are read at once.
pub const FILE_PIECE_BYTES: usize = 128 * 1024;

/// How long a directory of files stays open: one that was put in its place, as by a link, is served after that time.
pub const ROOT_HELD: Duration = Duration::from_secs(1);

/// How often kept connections are looked through for those that are too old or closed.
pub const SWEEP: Duration = Duration::from_secs(1);

/// The same in a shutdown: connections that requests share are closed so soon after the last of them is over.
pub(crate) const SWEEP_ENDING: Duration = Duration::from_millis(10);

/// How often a connection that others wait for may be handed on within its worker before it is closed for their sake.
pub const HANDED_ON: u32 = 32;

/// Stream routes that are counted each for itself, since the start. Further ones are counted together.
pub const COUNTED_ROUTES: usize = 1000;

/// Pairs of a route and an upstream whose requests are counted each for itself, since the start. Further ones are counted together.
/// Each takes 3 KiB of each worker that had a request of it.
pub const COUNTED_SERIES: usize = 2000;

/// Status codes that a worker counts each for itself for a route and an upstream, those first met. Further ones are counted by class.
pub const COUNTED_CODES: usize = 32;

/// For how long an endpoint that could not be connected to is passed over, if there are others.
pub const PASSED_OVER: Duration = Duration::from_secs(1);

/// A connect timeout that is shorter than this, because its caller's deadline is near, says nothing about the endpoint.
pub const CONNECT_TIMEOUT_LEAST: Duration = Duration::from_millis(250);

/// For how many times the upstream's `connect_timeout` a request, or a connection of a stream route, that could not be connected
/// continues with endpoints not yet tried; endpoints that refuse connections take no time.
pub const FAILOVER_CONNECT_TIMEOUTS: u32 = 4;

/// How long a client may take to say for which host its connection is, where TLS is not ended or ends before bytes, and how long
/// its handshake may take then. Later: `no_hello`, `handshake_failed`.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Endpoints that are tried for a connection of a stream route, one after the other; then it is closed. Endpoints to which no
/// connection can be established count only after [`FAILOVER_CONNECT_TIMEOUTS`].
pub const STREAM_TRIES: usize = 3;

/// The idle time of a stream connection after one side has reset it, while the bytes that this side sent before are delivered to the other.
/// Longer: both are reset.
pub const STREAM_REST: Duration = Duration::from_secs(10);

/// Keys that a rate limit remembers unless it says otherwise, with 16 bytes each. Beyond it the one that owes least is forgotten.
pub const RATE_KEYS: u32 = 16 * 1024;

/// The most keys that a rate limit may remember.
pub const RATE_KEYS_MOST: u32 = 1 << 24;

/// Rate limits of a rule that are asked together: those that need to know who asks, and those that do not. A rule with more is
/// answered 500.
pub const RATE_LIMITS: usize = 8;

/// How long a worker does not ask a Redis that has not answered; twice as long each time.
pub const REDIS_BACKOFF: Duration = Duration::from_millis(100);

/// How long at most.
pub const REDIS_BACKOFF_MOST: Duration = Duration::from_secs(5);

/// How long a Redis may take to count a request, unless a limit says otherwise.
pub const REDIS_TIMEOUT: Duration = Duration::from_millis(50);

/// Requests that one worker holds at once because a rule puts delays in. More go on at once.
pub const DELAYED: u32 = 4096;

/// Keys of one name that requests at once are counted by and that have a request under way, about: 64 parts have room for 1024
/// each. A request of one more is refused as if its key had as many as it may have.
pub const RUNNING_KEYS: usize = 64 * 1024;

/// How long a request may be held because a rule puts delays in.
pub const DELAY: Duration = Duration::from_mins(1);

/// Filters of a rule. A configuration with more is wrong.
pub const FILTERS: usize = 16;

/// How long one call of a filter may wait. Then its request is answered 504, or its answer cut.
pub const FILTER_WAIT: Duration = Duration::from_secs(30);

/// Bytes of a body that are held for a filter which wants it whole, or holds pieces back. More: 413, or 502 for an answer's.
pub const FILTER_HELD_BYTES: usize = 1024 * 1024;

/// Bytes by which a filter may make a piece of a body, or a whole one, longer. More: 500, or the answer is cut.
pub const FILTER_GROWTH_BYTES: usize = 256 * 1024;

const _: () = {
    assert!(FILTER_GROWTH_BYTES <= FILTER_HELD_BYTES);
    assert!(RATE_KEYS <= RATE_KEYS_MOST);
    assert!(PATTERN_BYTES < PATTERN_COMPILED_BYTES);
    assert!(NAME_BYTES <= 255 && HOSTNAME_BYTES <= 255);
    assert!(UPSTREAM_CONNECTIONS <= UPSTREAM_REQUESTS);
    assert!(DNS_TTL_LEAST.as_secs() < DNS_TTL_MOST.as_secs());
};

/// Places of requests that were answered without a task that a worker keeps to use again; more of them are freed.
pub const IDLE_BEGINNINGS: usize = 1024;

/// A request that was begun without a task and waits for a stream is looked at so often, and has a task when it has waited for as long.
/// One whose time is less than twice that has a task from the beginning.
pub const EARLY_TICK: Duration = Duration::from_millis(100);

/// Memory for what policies find out of a request that a worker keeps to use again; more of it is freed.
pub const FINDINGS_IDLE: usize = 1024;

/// Bytes of such memory: more, as of a chain of certificates, is freed with its request.
pub const FINDINGS_BYTES: usize = 4096;

/// How long an upstream may take to answer `Expect: 100-continue` before the gateway answers it by 100 in its place. An upstream that
/// ignores the field waits for the body, and the client for the 100: curl and Go stop waiting after as long.
pub const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// Log lines about rules that upstreams broke, for a worker within [`FAULT_LOG_SPAN`]; further ones are counted, and the count is part of the next
/// line.
pub const FAULT_LOG_LINES: u32 = 5;

/// See [`FAULT_LOG_LINES`].
pub const FAULT_LOG_SPAN: Duration = Duration::from_secs(1);
