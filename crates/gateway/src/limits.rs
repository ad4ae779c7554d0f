//! The limits of the gateway and the defaults of its configuration, each with its unit and the consequence of exceeding it.

use std::time::Duration;

pub use ringmain_jwt::limits::{KEY_SET_BYTES, KEYS_PER_SET, TOKEN_BYTES};

/// Time that a client gets to close its side after it sent plaintext HTTP to a TLS listener and received 400. Then the connection is
/// closed.
pub const PLAIN_HTTP_LINGER: Duration = Duration::from_secs(2);

/// Bytes from such a client that are read and discarded during this time. With more the connection is closed.
pub const PLAIN_HTTP_LINGER_BYTES: usize = 256 * 1024;

/// Bytes of the name of a listener, route, upstream, certificate or set of certificate authorities.
pub const NAME_BYTES: usize = 253;

/// Bytes of a hostname (RFC 1035 §2.3.4), without the trailing dot.
pub const HOSTNAME_BYTES: usize = 253;

/// Bytes of a path in a match, a rewrite or a redirect.
pub const PATH_BYTES: usize = 4096;

/// Bytes of a header name in a match or a header edit.
pub const HEADER_NAME_BYTES: usize = 256;

/// Bytes of a header value in a match or a header edit.
pub const HEADER_VALUE_BYTES: usize = 4096;

/// Bytes of the text of a regular expression.
pub const PATTERN_BYTES: usize = 1024;

/// Bytes of a compiled regular expression. One that needs more, such as `(\w{100}){100}`, is rejected.
pub const PATTERN_COMPILED_BYTES: usize = 256 * 1024;

/// Bytes of the cache that a regular expression uses while it matches. At the limit matching gets slower, never incorrect.
pub const PATTERN_CACHE_BYTES: usize = 64 * 1024;

/// Bytes of a decoded query value that is matched against a regular expression. A longer value matches none.
pub const PATTERN_VALUE_BYTES: usize = 1024;

/// Media types that a rule adds for its files. A configuration with more is rejected.
pub const FILE_TYPES: usize = 1024;

/// Rules of a route. Every request of a route with more is answered 500.
pub const RULES: usize = 1024;

/// Matches of a rule. Every request of a route with more is answered 500.
pub const MATCHES: usize = 1024;

/// Rejected rules that an explanation of a request lists with the reason. Further ones are only counted.
pub const EXPLAINED: usize = 20;

/// Highest weight of a backend.
pub const WEIGHT: u32 = 1_000_000;

/// Highest number of retries of a request.
pub const RETRIES: u8 = 10;

/// Bytes of a request body that are retained for another attempt while they are sent, where the rule retries or hedges requests. After more
/// were sent no other attempt is made. Before the first byte is sent a request can move to another endpoint whatever its body.
pub const REPLAY_BYTES: usize = 64 * 1024;

/// Retries that a [`RetryBudget`](crate::model::RetryBudget) accumulates at most while none is needed.
pub const RETRIES_SAVED: u32 = 1000;

/// Mirrored requests that a worker has in flight. At the limit further ones are not sent.
pub const MIRRORS: u32 = 64;

/// Time limit of a mirrored request, its response included. Then its connection is closed.
pub const MIRROR_TIME: Duration = Duration::from_secs(10);

/// Highest configurable limit of the body bytes of a mirrored request.
pub const MIRROR_BODY_BYTES: u64 = 16 << 20;

/// Bytes of the response to a mirrored request that are read so that its connection can be pooled. With more the connection is closed.
pub const MIRROR_ANSWER_BYTES: u64 = 1 << 20;

/// Responses that a worker reads to their end after their clients have disconnected, so that their connections are pooled again. At the
/// limit the connections are closed.
pub const ABANDONED_RESPONSES: u32 = 64;

/// Bytes of the body of such a response. With more its connection is closed.
pub const ABANDONED_BYTES: u64 = 64 * 1024;

/// Time limit of such a response. Then its connection is closed, which signals the endpoint to stop.
pub const ABANDONED_TIME: Duration = Duration::from_millis(500);

/// Highest number of trusted proxies between a client and a listener.
pub const HOPS: u8 = 16;

/// Highest bcrypt cost of a password hash: 2 to this power rounds, about one second of CPU time.
pub const BCRYPT_COST: u32 = 14;

/// KiB of memory that an Argon2 password hash may require.
pub const ARGON2_KIB: u32 = 128 * 1024;

/// Passes over that memory that an Argon2 password hash may require.
pub const ARGON2_PASSES: u32 = 16;

/// Rounds that a SHA-crypt password hash may require.
pub const SHA_CRYPT_ROUNDS: u32 = 1_000_000;

/// Users of a basic authentication policy, and keys of an API key policy.
pub const CREDENTIALS: usize = 10_000;

/// Concurrent password checks, process-wide: half of the blocking pool's threads, which also read files.
pub const PASSWORD_CHECKS: u32 = 8;

/// Bytes of memory that these checks use together, process-wide. A check that needs more runs alone.
pub const PASSWORD_BYTES: u64 = 256 << 20;

/// Requests that wait for such a check, process-wide. At the limit the client with the most such requests loses one; if none has more than
/// the client of the new request, the new request is answered 503.
pub const PASSWORDS_WAITING: usize = 1024;

/// Requests of one client address (IPv6: network) that wait for such a check. At the limit: 503.
pub const PASSWORDS_WAITING_CLIENT: usize = 16;

/// Time that a request waits for such a check. Then: 503.
pub const PASSWORD_WAIT: Duration = Duration::from_secs(10);

/// Verified passwords that a worker caches. At the limit the oldest is evicted.
pub const PASSWORDS_KNOWN: usize = 4096;

/// Bytes of a user name and password, or of an API key. Longer ones are invalid.
pub const CREDENTIAL_BYTES: usize = 1024;

/// Tokens with a verified signature that a worker caches. At the limit the oldest is evicted.
pub const TOKENS_KNOWN: usize = 4096;

/// Total bytes of these tokens, for each worker.
pub const TOKENS_KNOWN_BYTES: usize = 8 << 20;

/// Policies for which a worker caches that a token satisfies them. At the limit the oldest is evicted.
pub const TOKEN_GRANTS: usize = 4;

/// Bytes of cached upstream headers with a token's claims, for one policy. Longer ones are built for each request.
pub const TOKEN_GRANT_BYTES: usize = 512;

/// Time limit for fetching a key set.
pub const KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest interval between two fetches of a key set, whatever key the tokens name.
pub const KEYS_LEAST: Duration = Duration::from_secs(10);

/// First delay before a key set that was never fetched is requested again. It doubles with each failure, up to [`KEYS_LEAST`].
pub const KEYS_AGAIN: Duration = Duration::from_secs(1);

/// Requests that wait for the keys of a provider, process-wide. At the limit further ones are refused at once.
pub const KEYS_PARKED: u32 = 64;

/// Time that a request waits for keys. Then: 503.
pub const KEYS_WAIT: Duration = Duration::from_secs(5);

/// Key names that a set is known to lack, for each provider. Further ones are not remembered.
pub const KEYS_UNKNOWN: usize = 256;

/// Time for which a set is assumed to lack a key that it lacked.
pub const KEY_UNKNOWN: Duration = Duration::from_mins(1);

/// Bytes of a request body that are buffered for an external authorization service. A worker buffers at most [`COLLECTED_BYTES`] in all.
pub const AUTHZ_REQUEST_BYTES: u64 = 1 << 20;

/// The time without a byte of the upstream after which a response is aborted whose client has shut down its side since the response began:
/// only that shows that a client has left. An event stream is aborted at once.
pub const HALF_CLOSED_SILENCE: Duration = Duration::from_secs(1);

/// Bytes of the body of an external authorization service's refusal. A longer one counts as a failure of the service.
pub const AUTHZ_BODY_BYTES: u64 = 64 * 1024;

/// Bytes of the response of an external authorization service over gRPC. A longer one counts as a failure of the service.
pub const AUTHZ_MESSAGE_BYTES: u32 = 128 * 1024;

/// Changes of headers and query parameters that such a response demands. With more it counts as a failure of the service; further headers
/// of a refusal are not sent.
pub const AUTHZ_CHANGES: usize = 128;

/// Bytes of the dynamic metadata of such a response, as JSON, in the access log. Longer metadata is not logged.
pub const AUTHZ_METADATA_BYTES: usize = 1024;

/// Descriptors of a rate limit service policy, and entries of a descriptor. With more the rule is broken.
pub const RATE_DESCRIPTORS: usize = 16;

/// Time limit of a call to a rate limit service, connecting included, unless configured.
pub const RATE_SERVICE_TIMEOUT: Duration = Duration::from_millis(100);

/// Bytes of the response of a rate limit service. A longer one counts as a failure of the service.
pub const RATE_MESSAGE_BYTES: u32 = 128 * 1024;

/// Headers that such a response adds. With more it counts as a failure of the service; further headers of a refusal are not sent.
pub const RATE_CHANGES: usize = 128;

/// Time limit of the response of an external processor to one message, connecting included, unless configured.
pub const PROCESSOR_TIMEOUT: Duration = Duration::from_millis(200);

/// The longest configurable time limit of such a response, and the longest time that a processor may request. Both together are below
/// [`FILTER_WAIT`].
pub const PROCESSOR_TIMEOUT_MOST: Duration = Duration::from_secs(10);

/// Bytes of a message of an external processor. A longer one counts as a failure of the service.
pub const PROCESSOR_MESSAGE_BYTES: u32 = 1536 * 1024;

/// Changes of headers that such a message demands. With more it counts as a failure of the service.
pub const PROCESSOR_CHANGES: usize = 128;

/// Bytes of the intermediate certificates of a client that are forwarded to an upstream. With more none are.
pub const CERTIFICATE_CHAIN_BYTES: usize = 16 * 1024;

/// Bytes of the body of a direct response or an error page.
pub const ANSWER_BYTES: usize = 1 << 20;

/// Default time limit for connecting to an endpoint, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Default time limit of an exchange without a byte in either direction.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which a client may leave the HTTP/2 stream of a WebSocket open after the upstream has closed its side. Then the stream is
/// closed in both directions.
pub const TUNNEL_REST: Duration = Duration::from_secs(1);

/// Time that an event of an upstream's event stream has to become complete, once the stream is to be ended because the process shuts down.
pub const EVENT_END_WAIT: Duration = Duration::from_secs(1);

/// Time for the closing handshake of a WebSocket that is closed because the process shuts down, since the client's or the upstream's
/// last bytes. Then both connections are closed.
pub const TUNNEL_CLOSE: Duration = Duration::from_secs(5);

/// Default limit of a request body, bytes.
pub const REQUEST_BODY_BYTES: u64 = 16 << 20;

/// Bytes of a request body that are received and discarded after an early response, within [`linger`](ringmain_web::Limits::linger), so
/// that a client that sends its whole body before it reads receives the response. With more its connection is closed, and the response may
/// be lost.
pub const LINGER_BYTES: u64 = 64 << 20;

/// Bytes of a request body that entitle it to a slot of its upstream, whatever its client sends after them. Until then its slot is charged
/// to its client, and each client has a [share](UPSTREAM_CLIENT_SHARE).
pub const WORTH_BYTES: usize = REPLAY_BYTES;

/// Bytes of bodies that a worker buffers for requests that are not entitled to a slot yet. At the limit they wait, unbuffered, for a slot
/// that is charged to their client, and are answered 503 (`client_share_full`) after the upstream's connect timeout. Requests whose bodies
/// an external authorization service inspects are answered so at once.
pub const COLLECTED_BYTES: usize = 64 << 20;

/// Default share, in percent, of an upstream's slots that one client address may occupy with incomplete bodies and with tunnels. At the
/// limit uploads are buffered first; streams and tunnels wait, and are answered 503 (`client_share_full`).
pub const UPSTREAM_CLIENT_SHARE: u8 = 50;

/// Requests that wait for a connection to an upstream before any is charged to its client. From half of the upstream's `pool.pending` on,
/// one client has at most a quarter of that number; further requests are answered 503 (`client_share_full`).
pub const TURNS_FREE: u32 = 32;

/// Wakers of requests that wait for a slot charged to their client, for each upstream. At the limit all are woken, and those that still
/// wait register again.
pub const SHARE_WAKERS: usize = 1024;

/// Interval at which a slow upload or a slowly read response checks whether other requests wait for its slot.
pub const CONTENDED_LOOK: Duration = Duration::from_secs(1);

/// Checks after which such a body must reach its rate: twice its listener's minimum rate, doubled with each further check.
pub const CONTENDED_GRACE: u32 = 2;

/// Highest value of that rate, bytes per second.
pub const CONTENDED_RATE: u64 = 16 * 1024;

/// Default limit of connections to one upstream, process-wide.
pub const UPSTREAM_CONNECTIONS: u32 = 1024;

/// Default limit of requests that wait for a connection to one upstream, process-wide.
pub const UPSTREAM_PENDING: u32 = 1024;

/// Requests that wait for a connection because all upstreams together are at their connection limit. With more: 503.
pub const PROCESS_PENDING: u32 = 16 * 1024;

/// Default limit of requests in flight to one upstream, process-wide.
pub const UPSTREAM_REQUESTS: u32 = 16 * 1024;

/// Default limit of concurrent retries at one upstream, process-wide.
pub const UPSTREAM_RETRIES: u32 = 1024;

/// Default time for which an idle connection to an endpoint stays in the pool.
///
/// Below the minute after which most servers close an idle connection, so that few requests meet one that is closing.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(55);

/// Default limit of concurrent requests on one HTTP/2 connection to an endpoint.
pub const UPSTREAM_STREAMS: u32 = 100;

/// Highest configurable value of that limit.
pub const UPSTREAM_STREAMS_MOST: u32 = 10_000;

/// Requests that wait for one connection that is being established, while its limit of concurrent streams is unknown. For more, another
/// connection is opened.
pub const UPSTREAM_STREAMS_ASSUMED: u32 = 100;

/// Bytes of a response body that are buffered for a client that does not read them, where the upstream speaks HTTP/2: the flow-control
/// window of a stream, at which the endpoint stops. They count in [`HELD_BYTES`](ringmain_engine::limits::HELD_BYTES).
pub const UPSTREAM_STREAM_WINDOW: u32 = 128 * 1024;

/// Initial window of a stream, bytes. After that many bytes of its response were read the stream gets the whole window, unless the worker
/// is at its share of [`HELD_BYTES`](ringmain_engine::limits::HELD_BYTES): beyond it a stalled download buffers at most this much.
pub const UPSTREAM_FIRST_WINDOW: u32 = 64 * 1024;

/// Bytes by which the buffer of such a body grows above [`UPSTREAM_FIRST_WINDOW`]. Below it the buffer doubles.
pub const CHANNEL_BODY_STEP: usize = 16 * 1024;

/// Flow-control window of such a connection, bytes: the limit of its streams together.
pub const UPSTREAM_CONNECTION_WINDOW: u64 = 1 << 30;

/// Factor by which an endpoint may cause more futile work than a client before its connection is closed
/// ([`Budgets`](ringmain_wire::h2::Budgets)).
pub const UPSTREAM_TRUST: u32 = 20;

/// Time without received bytes on an HTTP/2 connection after which a `PING` follows the next request.
pub const UPSTREAM_PING_AFTER: Duration = Duration::from_secs(15);

/// Time to wait for the reply to a `PING`, which is also sent after a request has timed out. Without a reply the connection is closed and
/// its requests fail.
pub const UPSTREAM_PING_WAIT: Duration = Duration::from_secs(10);

/// Bytes of a line of a local response that gRPC clients receive as `grpc-message`. A longer line is not sent.
pub const GRPC_MESSAGE_BYTES: usize = 1024;

/// Bytes of capacity that a call of the gateway's own over gRPC retains for its next message.
pub const GRPC_MESSAGE_KEPT: usize = 16 * 1024;

/// Bytes of capacity that the write buffer of an HTTP/2 connection retains.
pub const SESSION_OUT_KEPT: usize = 16 * 1024;

/// Bytes of capacity that the buffer for an incomplete frame of an HTTP/2 connection retains.
pub const SESSION_PARTIAL_KEPT: usize = 16 * 1024;

/// Bytes of capacity that the body buffer of an HTTP/2 stream retains.
pub const CHANNEL_BODY_KEPT: usize = 32 * 1024;

/// Receive states of HTTP/2 streams that a worker pools for each upstream. Further ones are freed.
pub const INCOMING_KEPT: usize = 1024;

/// Bytes of capacity for a response head that each receive state retains.
pub const INCOMING_HEAD_KEPT: usize = 2 * 1024;

/// Bytes of capacity for a response body that each receive state retains.
pub const INCOMING_BODY_KEPT: usize = 4 * 1024;

/// Points of an endpoint of weight 1 on the ring of [`Balance::RingHash`](crate::model::Balance::RingHash).
pub const RING_POINTS: u32 = 160;

/// Total points of such a ring. With more each endpoint has fewer, at least one.
pub const RING_POINTS_MOST: usize = 1 << 20;

/// The load that the healthy endpoints of a distance carry, in percent of their share: up to 28 % of near endpoints may be unhealthy
/// before requests go farther away.
pub const ZONE_LOAD_PERCENT: u64 = 140;

/// The clients that a push server has room for under [`Balance::Push`](crate::model::Balance::Push) if it does not report a maximum: loads
/// of servers with and without one are comparable by it. It is never full.
pub const PUSH_CLIENTS_ASSUMED: u32 = 100_000;

/// The percentage of the load of other zones that the servers of this zone may have under
/// [`Balance::Push`](crate::model::Balance::Push). Above it new clients go to other zones.
pub const PUSH_ZONE_PERCENT: u64 = 150;

/// The intervals of health checks, plus one timeout, after which a load report is stale: its server is compared with others by requests in
/// flight.
pub const LOAD_REPORT_INTERVALS: u32 = 3;

/// The smallest and the largest [`Upstream::hash_balance_factor`](crate::model::Upstream::hash_balance_factor).
pub const HASH_BALANCE_FACTORS: std::ops::RangeInclusive<u16> = 101..=10_000;

/// The factor of keys under [`Balance::Push`](crate::model::Balance::Push), unless the upstream has one.
pub const PUSH_KEY_FACTOR: u16 = 125;

/// Slots of a table of [`Balance::Maglev`](crate::model::Balance::Maglev): a prime, as the algorithm requires.
pub const MAGLEV_PLACES: u32 = 65_537;

/// Shortest time for which a DNS response is cached, whatever its TTL.
pub const DNS_TTL_LEAST: Duration = Duration::from_secs(1);

/// Longest time for which a DNS response is cached, whatever its TTL.
pub const DNS_TTL_MOST: Duration = Duration::from_mins(5);

/// Interval at which a name is resolved again whose addresses are unknown or were read from a file.
pub const DNS_AGAIN: Duration = Duration::from_secs(5);

/// Interval at which a request that waits for the first addresses of an upstream polls for them.
pub const PENDING_LOOK: Duration = Duration::from_millis(5);

/// Default time limit of a query to one DNS server, if `/etc/resolv.conf` sets none.
pub const DNS_TIMEOUT: Duration = Duration::from_secs(2);

/// Default limit of client connections, process-wide: as many as the descriptor limit allows.
pub const CONNECTIONS: Option<u32> = None;

/// Options that a client's `Connection` field may list. With more: 400, so that no client makes filtering them expensive.
pub const CONNECTION_OPTIONS: usize = 32;

/// Occurrences of this gateway's name in a request's `Via`. With more: 508.
pub const VIA_HOPS: usize = 8;

/// Bytes of the head of an upstream's response. With more: 502.
pub const RESPONSE_HEAD_BYTES: u32 = 48 * 1024;

/// Fields of an upstream's response. With more: 502.
pub const RESPONSE_FIELDS: u16 = 200;

/// Interim responses (100 to 199) that an upstream may send before its final response. With more: 502.
pub const INTERIM_ANSWERS: u32 = 16;

/// Time after which [`Timeouts::minimum_rate`](crate::model::Timeouts::minimum_rate) applies to an upstream's response body.
pub const ANSWER_RATE_GRACE: Duration = Duration::from_secs(5);

/// Bytes of a body that are relayed at once, in either direction, and so the most that is written beyond
/// [`WRITE_MARK`](ringmain_engine::limits::WRITE_MARK).
pub const RELAY_SHARE: usize = 64 * 1024;

/// Time over which that rate is averaged, after the grace period. Then both start again.
pub const ANSWER_RATE_WINDOW: Duration = Duration::from_secs(5);

/// Bytes of a file that are read at once.
pub const FILE_PIECE_BYTES: usize = 128 * 1024;

/// Time for which the directory of a file rule stays open. A directory that replaced it, for example through a link, is served after that.
pub const ROOT_HELD: Duration = Duration::from_secs(1);

/// Interval at which the pools are searched for connections that have expired or were closed.
pub const SWEEP: Duration = Duration::from_secs(1);

/// The same interval during a shutdown: shared connections are closed this soon after their last request has finished.
pub(crate) const SWEEP_ENDING: Duration = Duration::from_millis(10);

/// Times a connection is reused within its worker while other requests wait for one. Then it is closed in their favor.
pub const HANDED_ON: u32 = 32;

/// Stream routes that have counters of their own, since the start. Further ones are counted together.
pub const COUNTED_ROUTES: usize = 1000;

/// Pairs of a route and an upstream that have counters of their own, since the start. Further ones are counted together. Each pair takes 3
/// KiB in each worker that had a request of the pair.
pub const COUNTED_SERIES: usize = 2000;

/// Pairs of an extension and an upstream that a worker counts individually, since the start. Further ones are counted together.
pub const COUNTED_EXTENSIONS: usize = 1000;

/// Status codes that a worker counts individually for a route and an upstream: the first ones. Further ones are counted by class.
pub const COUNTED_CODES: usize = 32;

/// Time for which an endpoint that could not be connected to is skipped, if there are others.
pub const PASSED_OVER: Duration = Duration::from_secs(1);

/// A shorter connect timeout, which results from a near deadline of the caller, does not mark the endpoint as unreachable.
pub const CONNECT_TIMEOUT_LEAST: Duration = Duration::from_millis(250);

/// Multiple of the upstream's `connect_timeout` for which a request, or a connection of a stream route, continues with untried endpoints
/// after a failed connect. Endpoints that refuse connections take no time.
pub const FAILOVER_CONNECT_TIMEOUTS: u32 = 4;

/// Time limit of a client for naming the host of its connection, where TLS is passed through or terminated for a byte stream, and then for
/// its handshake. Later: `no_hello`, `handshake_failed`.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Endpoints that are tried for a connection of a stream route, one after the other. Then it is closed. Endpoints to which no connection
/// can be established count only after [`FAILOVER_CONNECT_TIMEOUTS`].
pub const STREAM_TRIES: usize = 3;

/// Idle time of a stream connection after one side has reset it, while the bytes that this side sent before are delivered to the other.
/// Then both sides are reset.
pub const STREAM_REST: Duration = Duration::from_secs(10);

/// Default number of keys that a rate limit remembers, 16 bytes each. At the limit the key closest to its full burst is evicted.
pub const RATE_KEYS: u32 = 16 * 1024;

/// Highest configurable number of keys of a rate limit.
pub const RATE_KEYS_MOST: u32 = 1 << 24;

/// Rate limits of a rule that are evaluated together: those that need the identity of the client, and those that do not. Every request of a
/// rule with more is answered 500.
pub const RATE_LIMITS: usize = 8;

/// First time for which a worker does not query a Redis that failed to respond. It doubles with each failure.
pub const REDIS_BACKOFF: Duration = Duration::from_millis(100);

/// Longest such time.
pub const REDIS_BACKOFF_MOST: Duration = Duration::from_secs(5);

/// Default time limit of a Redis for counting a request.
pub const REDIS_TIMEOUT: Duration = Duration::from_millis(50);

/// Requests that one worker delays through fault injection. At the limit further ones continue without a delay.
pub const DELAYED: u32 = 4096;

/// Keys of one concurrency limit with a request in flight, about: 64 parts hold 1024 each. A request with a further key is refused as if
/// its key were at its limit.
pub const RUNNING_KEYS: usize = 64 * 1024;

/// Longest delay of a request through fault injection.
pub const DELAY: Duration = Duration::from_mins(1);

/// Filters of a rule. A configuration with more is invalid.
pub const FILTERS: usize = 16;

/// Time limit of one call of a filter. Then its request is answered 504, or its response is aborted.
pub const FILTER_WAIT: Duration = Duration::from_secs(30);

/// Bytes of a body that are buffered for a filter that requires all of the body, or holds pieces back. With more: 413, or 502 for a
/// response.
pub const FILTER_HELD_BYTES: usize = 1024 * 1024;

/// Bytes by which a filter may extend a piece of a body, or a whole body. With more: 500, or the response is aborted.
pub const FILTER_GROWTH_BYTES: usize = 256 * 1024;

/// Default limit of UDP sessions, process-wide; each worker has an equal share, rounded up. At the limit the least recently used session of
/// the worker is ended, whatever its upstream. Each session has a socket: where descriptors run out first, the same happens.
pub const DATAGRAM_SESSIONS: u32 = 16 * 1024;

/// Default limit of UDP sessions of one client address (IPv6: of a /64), process-wide; each worker has an equal share, rounded up. At the
/// limit the least recently used session of this address is ended: with many source ports it cannot evict the sessions of others.
pub const DATAGRAM_SESSIONS_PER_ADDRESS: u32 = 1024;

/// Default idle time of a UDP session.
pub const DATAGRAM_IDLE: Duration = Duration::from_secs(60);

/// The same of a route with a number of responses: the time to wait for them.
pub const DATAGRAM_RESPONSE_IDLE: Duration = Duration::from_secs(5);

/// Datagrams of a UDP session that wait while its socket is opened. Further ones are dropped (`queue_full`).
pub const DATAGRAMS_PENDING: usize = 16;

/// Bytes of these. Further ones are dropped.
pub const DATAGRAMS_PENDING_BYTES: usize = 64 * 1024;

/// Endpoints that a UDP session tries, one after the other, as ICMP errors report that none receives its datagrams. After these the next
/// datagram starts again with any.
pub const DATAGRAM_TRIES: usize = 8;

/// Largest size of datagrams that are sent as segments of one send. Larger ones are sent one by one: the path's MTU may be below theirs.
pub const DATAGRAM_SEGMENT_BYTES: u16 = 1452;

const _: () = {
    assert!(DATAGRAM_SESSIONS <= UPSTREAM_REQUESTS);
    assert!(DATAGRAM_SESSIONS_PER_ADDRESS < DATAGRAM_SESSIONS);
    assert!(FILTER_GROWTH_BYTES <= FILTER_HELD_BYTES);
    assert!(FILTER_GROWTH_BYTES + FILTER_HELD_BYTES < PROCESSOR_MESSAGE_BYTES as usize);
    assert!(PROCESSOR_TIMEOUT_MOST.as_secs() * 2 < FILTER_WAIT.as_secs());
    assert!(RATE_KEYS <= RATE_KEYS_MOST);
    assert!(PATTERN_BYTES < PATTERN_COMPILED_BYTES);
    assert!(NAME_BYTES <= 255 && HOSTNAME_BYTES <= 255);
    assert!(UPSTREAM_CONNECTIONS <= UPSTREAM_REQUESTS);
    assert!(DNS_TTL_LEAST.as_secs() < DNS_TTL_MOST.as_secs());
};

/// Finished requests that ran without a task whose memory a worker pools. Further ones are freed.
pub const IDLE_BEGINNINGS: usize = 1024;

/// Interval at which a request that started without a task and waits for a stream is checked. Once it has waited this long it continues in
/// a task. A request with a timeout of at most twice this starts in a task.
pub const EARLY_TICK: Duration = Duration::from_millis(100);

/// Policy contexts that a worker pools. Further ones are freed.
pub const FINDINGS_IDLE: usize = 1024;

/// Bytes of a pooled policy context. A larger one, for example with a certificate chain, is freed with its request.
pub const FINDINGS_BYTES: usize = 4096;

/// Time that an upstream has to respond to `Expect: 100-continue` before the gateway sends 100 in its place. An upstream that ignores the
/// field waits for the body, and the client for the 100: curl and Go stop waiting after the same time.
pub const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// Log lines about protocol violations of upstreams, for a worker within [`FAULT_LOG_SPAN`]. Further ones are counted, and the next line
/// contains the count.
pub const FAULT_LOG_LINES: u32 = 5;

/// See [`FAULT_LOG_LINES`].
pub const FAULT_LOG_SPAN: Duration = Duration::from_secs(1);
