//! Limits of push, each with its unit and the effect of reaching it.

use std::time::Duration;

/// Messages in a queue between two workers, in each direction. Further messages wait at the sender, in order.
pub const QUEUE: usize = 1024;

/// Requests of the workers that wait for the thread of the cluster. Further ones wait at their worker, in order.
pub const CLUSTER_QUEUE: usize = 1 << 14;

/// Publications and queries of one worker that wait for their channels' owners. Further ones fail as if the owner had not responded.
pub const CLUSTER_REQUESTS: usize = 1 << 14;

/// Requests that wait at one worker for room in [`CLUSTER_QUEUE`]. At the limit new subscribers must retry; members that leave, and the
/// requests that [`CLUSTER_REQUESTS`] admits, are still added.
pub const CLUSTER_WAITING: usize = 1 << 16;

/// Calls of one worker to the other nodes that are in flight. Further ones fail with 503, and no node has run them.
pub const CLUSTER_CALLS: usize = 256;

/// Calls of one worker that may be in flight when it passes on another client's message. Further messages fail with 503: clients cannot use
/// up the calls of the server API.
pub const CLUSTER_EMULATIONS: usize = CLUSTER_CALLS / 2;

/// Bytes of a call, or of its result. A longer list of channels is sent in parts; a client's message that is longer is 413.
pub const CLUSTER_CALL_BYTES: usize = 1 << 20;

/// The parts of a second over which a worker sends clients to other nodes.
pub const MOVE_SLICES: u32 = 100;

/// The slots of clients that a worker checks for one client to send away. If all are free, one client less moves in this second.
pub const MOVE_PROBES: usize = 1024;

/// The time that a subscriber waits for the state of its channel; then its client must retry. A client that has received publications at
/// another node waits as long for them to arrive; then it recovers from a position that is not known.
pub const CLUSTER_STATE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which the state of a channel is requested for a client that has received publications at another node, at the next full
/// second: the node may lack a position and no publication.
pub const CLUSTER_AHEAD_AFTER: Duration = Duration::from_millis(500);

/// Messages that a worker receives from each queue in a turn, before it serves its connections.
pub const MESSAGES_PER_TURN: usize = 256;

/// Commands of one client without a reply. Those behind them are held ([`COMMANDS_HELD`]).
pub const COMMANDS_IN_FLIGHT: u32 = 128;

/// Held commands of one client: until it is connected, until it has received earlier replies, or, where one would overtake another about
/// the same channel, until the reply to that is sent. With more it is disconnected ([`Disconnect::TOO_MANY_REQUESTS`]).
///
/// [`Disconnect::TOO_MANY_REQUESTS`]: ringmain_hub::protocol::Disconnect::TOO_MANY_REQUESTS
pub const COMMANDS_HELD: usize = 1024;

/// Bytes of held commands; a single one may have more. With more the client is disconnected as above.
pub const HELD_BYTES: usize = 1024 * 1024;

/// Bytes of a publication with its tags, at most as in JSON; a larger one is rejected with error 106. It fits a body of 1 MiB, and into one
/// message of a client's connection, which would otherwise be closed by it, and again by its recovery.
pub const PUBLICATION_BYTES: usize = 1024 * 1024 + 64 * 1024;

/// The same in a namespace with deltas, whose subscribers of the JSON format receive data as a text, in which each quotation mark takes
/// two bytes.
pub const DELTA_PUBLICATION_BYTES: usize = 512 * 1024;

/// Bytes of recovered publications in one reply to `subscribe` or `connect`, for all its channels. Further ones follow as pushes, as fast as
/// the client receives them.
pub const RECOVERED_WITH_REPLY_BYTES: usize = 256 * 1024;

/// Bytes of queued replies and recovered publications of one client, up to which a recovery is complete. With more it receives none of the
/// publications, and its reply reports that (`recovered: false`, error 112).
pub const RECOVERED_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of queued replies and recovered publications of one client. With more the reply to a query is error 106, and for anything else the
/// client is disconnected ([`Disconnect::SLOW`]). Publications share their memory with the channel's history.
///
/// [`Disconnect::SLOW`]: ringmain_hub::protocol::Disconnect::SLOW
pub const QUEUED_BYTES: usize = 12 * 1024 * 1024;

/// Bytes of a reply to a client's `history` or `presence`. A larger one is error 106: the client requests fewer publications, or
/// `presence_stats`. Below web's `unsent_bytes` and [`STREAM_BYTES`], and the largest message that WebSocket libraries accept by default.
pub const CLIENT_REPLY_BYTES: usize = 1024 * 1024;

/// Bytes that each reply and each publication counts for besides its data.
pub const REPLY_OVERHEAD_BYTES: usize = 128;

/// Messages of one worker that wait for room in a queue; with more, programs that publish receive 503.
pub const BACKLOG: usize = 16_384;

/// The largest size of a client's message that [`Options`](crate::Options) may set, in bytes. The frames of a WebSocket message are
/// collected up to this size before push receives it.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of the body of an API request. Default of [`Options::api_body_bytes`](crate::Options::api_body_bytes). More: 413.
pub const API_BODY_BYTES: usize = 1 << 20;
/// The largest value that may be set instead.
pub const API_BODY_BYTES_MAX: usize = 64 << 20;

/// The smallest value of both sizes that may be set.
pub const MIN_BYTES: usize = 1 << 10;

/// The longest ping interval that may be set.
pub const PING_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// The time that bytes to a client may remain unacknowledged beyond a ping and its timeout (`TCP_USER_TIMEOUT`); then the kernel closes the
/// connection: unidirectional clients send no pongs.
pub const UNACKNOWLEDGED_GRACE: Duration = Duration::from_secs(5);

/// Bytes of the positions in an event's `id`. With more channels events have none, and a browser that reconnects starts at the position of
/// its URL.
pub const EVENT_ID_BYTES: usize = 2048;

/// The ping interval. Default of [`Options::ping_interval`](crate::Options::ping_interval).
pub const PING_INTERVAL: Duration = Duration::from_secs(25);

/// Clients of a worker that are pinged in one turn, the others of a second in turns spread over it; more only with more than 500 times as
/// many clients.
pub const PING_BATCH: usize = 64;

/// The pong timeout. Default of [`Options::pong_timeout`](crate::Options::pong_timeout). After it a client is disconnected
/// ([`Disconnect::NO_PONG`]), unless pushes to it are queued: the ping may be among them.
///
/// [`Disconnect::NO_PONG`]: ringmain_hub::protocol::Disconnect::NO_PONG
pub const PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// Unsent bytes that the kernel buffers for a client (`TCP_NOTSENT_LOWAT`). It would buffer megabytes for a client that does not read:
/// values that are outdated by then, and that newer ones cannot replace.
pub const KERNEL_UNSENT: u32 = 16 * 1024;

/// The time within which a client has to send `connect`; then it is disconnected ([`Disconnect::STALE`]).
///
/// [`Disconnect::STALE`]: ringmain_hub::protocol::Disconnect::STALE
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(25);

/// The time that a client has to send another token, for its connection or for a subscription, after the old one has expired; then that
/// ends ([`Disconnect::EXPIRED`], [`Unsubscribed::EXPIRED`]). A unidirectional client cannot send one, and has no such time.
///
/// [`Disconnect::EXPIRED`]: ringmain_hub::protocol::Disconnect::EXPIRED
/// [`Unsubscribed::EXPIRED`]: ringmain_hub::protocol::Unsubscribed::EXPIRED
pub const REFRESH_GRACE: Duration = Duration::from_secs(25);

/// Publications in one reply to a client's `history`.
pub const HISTORY_PUBLICATIONS: usize = 1000;

/// The interval at which unused channels are removed.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The sleep of the task that releases conflated updates while none is held; it is woken when one is.
pub const IDLE_RELEASE: Duration = Duration::from_hours(1);

/// Messages of clients in a queue between two workers, in each direction, besides [`QUEUE`]: those that arrive in requests of their own
/// (`/emulation`), of up to [`MESSAGE_BYTES`](ringmain_hub::limits::MESSAGE_BYTES) each. More receive 503, and the SDKs reconnect.
pub const EMULATED_MESSAGES: usize = 256;

/// Bytes of the names of session and node beside the message in such a request.
pub const SESSION_NAMES_BYTES: usize = 1024;

/// Bytes of the body of such a request: a message with each byte escaped, and the names beside it. More: 413.
pub const EMULATION_BYTES: u64 = 2 * MESSAGE_BYTES_MAX as u64 + SESSION_NAMES_BYTES as u64;

/// Bytes of replies and pushes in the buffer of an HTTP stream. With more its client is disconnected ([`Disconnect::SLOW`]), as web's limit
/// `unsent_bytes` does with WebSockets; pushes are queued under their own limit before
/// ([`Limits::queued_bytes`](ringmain_hub::subscribers::SubscriberLimits)).
///
/// [`Disconnect::SLOW`]: ringmain_hub::protocol::Disconnect::SLOW
pub const STREAM_BYTES: usize = 2 * 1024 * 1024;

/// Commands for users' connections in a queue between two workers, in each direction. At the limit a command is not run, and its caller
/// receives [`Busy`](crate::Busy) (503).
pub const USER_COMMANDS: usize = 256;

/// Connections of one user. Default of [`Options::connections_per_user`](crate::Options::connections_per_user).
pub const CONNECTIONS_PER_USER: u32 = 128;

/// Clients whose memory is requested together before pushes are sent to the first one.
pub(crate) const FLUSH_BATCH: usize = 32;

/// Queries of programs (and publications with a reply) in flight from one worker. With more a program receives 503, and no command was
/// executed. A query counts until its channel's shard has replied.
pub const QUERIES: usize = 16_384;

/// The time that a program waits for replies, all of a request together. Then it receives 503: the command may have been executed or not.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Publications in one response to a program's `history`; also if it requests more, or all.
pub const API_HISTORY_PUBLICATIONS: usize = 1000;

/// Channels of one broadcast; more are error 106, and nothing is published.
pub const BROADCAST_CHANNELS: usize = 4096;

/// Commands of one batch; with more the response is 413, and no command is executed.
pub const BATCH_COMMANDS: usize = 1024;

/// Connections that a `disconnect` of a user may except; more are error 106.
pub const WHITELIST: usize = 256;

/// The time for which idempotency keys are stored. Default of [`Options::idempotency_window`](crate::Options::idempotency_window). Their
/// number: [`IDEMPOTENCY_KEYS`](ringmain_hub::limits::IDEMPOTENCY_KEYS).
pub const IDEMPOTENCY_WINDOW: Duration = Duration::from_secs(300);

/// Lists of channels in flight from one worker. With more a program receives 503.
pub const SURVEYS: usize = 8;

/// Channels in such a list; with more a program receives error 106, and requests a narrower pattern.
pub const LISTED_CHANNELS: usize = 10_000;

/// Channels that a worker visits for such a list in a turn, before it serves its connections.
pub const SURVEYED_PER_TURN: usize = 1024;

/// Bytes of a pattern of channels; a longer one is error 107.
pub const PATTERN_BYTES: usize = 255;

/// Connections of one worker that have not been identified. Default of [`Options::pending_connects`](crate::Options::pending_connects).
pub const PENDING_CONNECTS: u32 = 8192;

/// The upper limit of the random time after which clients that were not admitted reconnect.
pub const RECONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Requests to the application in flight for one client, and its commands that are held for them; with more a further command is
/// [`Fault::TOO_MANY_REQUESTS`].
///
/// [`Fault::TOO_MANY_REQUESTS`]: ringmain_hub::protocol::Fault::TOO_MANY_REQUESTS
pub const PROXY_REQUESTS_PER_CLIENT: usize = 32;

/// Requests to the application in flight from one worker; with more a command is [`Fault::TOO_MANY_REQUESTS`], after which clients retry to
/// connect and to subscribe.
///
/// [`Fault::TOO_MANY_REQUESTS`]: ringmain_hub::protocol::Fault::TOO_MANY_REQUESTS
pub const PROXY_REQUESTS_PER_WORKER: u32 = 1024;

/// The longest timeout of a request to the application: below [`CONNECT_TIMEOUT`].
pub const PROXY_TIMEOUT_MAX: Duration = Duration::from_secs(20);

/// Bytes of the application's response; a longer one is invalid.
pub const PROXY_RESPONSE_BYTES: usize = 1 << 20;

/// Bytes of a client's emulated headers, as far as they are stored; with more it is disconnected ([`Disconnect::BAD_REQUEST`]).
///
/// [`Disconnect::BAD_REQUEST`]: ringmain_hub::protocol::Disconnect::BAD_REQUEST
pub const EMULATED_HEADER_BYTES: usize = 8 << 10;

/// The time until the application is requested again to renew a connection or a subscription if it has not responded; half of this time is random,
/// so that not all requests coincide. The connection remains open meanwhile.
pub const REFRESH_RETRY: Duration = Duration::from_secs(30);

/// The shortest interval between a worker's warnings about invalid responses; others are logged at level `debug`.
pub const WARN_INTERVAL: Duration = Duration::from_secs(1);

/// Publications of other threads (by a [`ThreadPublisher`](crate::ThreadPublisher)) in the queue of one worker. More are rejected
/// ([`SubmitError::Full`](crate::SubmitError)): the publisher waits for room, or drops them.
pub const THREAD_QUEUE: usize = 8192;

/// Bytes of these, of one worker; the last publication may exceed it. More are rejected as above.
pub const THREAD_QUEUE_BYTES: usize = 16 << 20;

/// Threads and tasks that wait for room in the queue of one worker. A further one is not woken: it retries at once.
pub const THREAD_QUEUE_WAITERS: usize = 64;

/// Interruptions of sources that one worker has not applied yet, by channel or by prefix. With more the worker treats every channel as
/// interrupted.
pub const INTERRUPTIONS: usize = 1024;

/// The shortest interval at which a worker applies interruptions: clients of a channel that loses publications all the time resubscribe no more
/// often. Below the second within which they are notified.
pub const INTERRUPTION_INTERVAL: Duration = Duration::from_millis(500);

/// Channels that start a new epoch for an interruption in a turn, before a worker serves its connections.
pub const INTERRUPTED_PER_TURN: usize = 1024;

/// Bytes of the state for the next process, across all workers together; more is not read, and all channels start new epochs.
pub const STATE_BYTES: usize = 4 << 30;

/// The time that members of channels remain present at the successor after their clients were disconnected, if these do not reconnect.
pub const PRESENCE_GRACE: Duration = Duration::from_secs(5);
