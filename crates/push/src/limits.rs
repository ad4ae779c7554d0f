//! Every limit of push, with its unit and what happens there.

use std::time::Duration;

/// Messages that wait between two workers, each way. What finds no room waits where it is, in order.
pub const QUEUE: usize = 1024;

/// Messages that a worker takes from each queue before it looks after its connections.
pub const TAKEN_A_TURN: usize = 256;

/// Commands of one client that wait for their answer. Those behind them are held ([`COMMANDS_HELD`]).
pub const COMMANDS_UNDER_WAY: u32 = 128;

/// Commands of one client that are held: until it is connected, until it has taken the replies to those before, or, where one would
/// overtake another about the same channel, until that is answered. With more it is disconnected ([`Disconnect::TOO_MANY_REQUESTS`]).
///
/// [`Disconnect::TOO_MANY_REQUESTS`]: ringmain_hub::protocol::Disconnect::TOO_MANY_REQUESTS
pub const COMMANDS_HELD: usize = 1024;

/// Bytes of these; one alone may have more. With more, the same.
pub const HELD_BYTES: usize = 1024 * 1024;

/// Bytes of a publication with its tags, as they are in JSON at most; a larger one is refused with error 106. As much as a body of 1 MiB
/// brings, and what a client's connection takes in one message: else it would be cut off by it, and again when it recovers it.
pub const PUBLICATION_BYTES: usize = 1024 * 1024 + 64 * 1024;

/// Bytes of recovered publications in one reply to `subscribe` or `connect`, of all its channels. Those beyond follow as pushes, one
/// after the other, as fast as the client takes them.
pub const RECOVERED_WITH_REPLY_BYTES: usize = 256 * 1024;

/// Bytes of replies and recovered publications that wait for one client, up to which a recovery is complete. With more it gets none of
/// the publications, and its reply says so (`recovered: false`, error 112).
pub const RECOVERED_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of replies and recovered publications that wait for one client. With more a question is answered with error 106, and for
/// anything else the client is disconnected ([`Disconnect::SLOW`]). Publications are shared with what their channel retains.
///
/// [`Disconnect::SLOW`]: ringmain_hub::protocol::Disconnect::SLOW
pub const QUEUED_BYTES: usize = 12 * 1024 * 1024;

/// Bytes of an answer to a client's `history` or `presence`. A larger one is error 106: the client asks for fewer publications, or for
/// `presence_stats`. Below web's `unsent_bytes` and [`STREAM_BYTES`], and as much as WebSocket libraries take in one message.
pub const ANSWER_TO_CLIENT_BYTES: usize = 1024 * 1024;

/// Bytes that each reply and each publication is counted with besides its data.
pub const REPLY_OVERHEAD_BYTES: usize = 128;

/// Messages of one worker that wait for room in a queue; while there are more, programs that publish are answered 503.
pub const BACKLOG: usize = 16_384;

/// Bytes of a client's message that [`Options`](crate::Options) may allow, at most. A WebSocket's frames count up to this before push
/// sees them.
pub const MESSAGE_BYTES_MOST: usize = 1 << 20;

/// Bytes of the body of a program's request unless [`Options`](crate::Options) say otherwise, and at most. More: 413.
pub const API_BODY_BYTES: usize = 1 << 20;
/// See [`API_BODY_BYTES`].
pub const API_BODY_BYTES_MOST: usize = 64 << 20;

/// The least that either may be set to.
pub const LEAST_BYTES: usize = 1 << 10;

/// The longest interval of pings that may be set.
pub const PING_EVERY_MOST: Duration = Duration::from_secs(3600);

/// How much longer than a ping and its answer bytes to a client may stay unacknowledged (`TCP_USER_TIMEOUT`); then the kernel closes the
/// connection: clients that only listen answer no pings.
pub const UNACKNOWLEDGED_BEYOND: Duration = Duration::from_secs(5);

/// Bytes of the positions that an event carries as its `id`. With more channels events have none, and a browser that comes back begins
/// where its URL says.
pub const EVENT_ID_BYTES: usize = 2048;

/// How often a client is pinged unless [`Options`](crate::Options) say otherwise.
pub const PING_EVERY: Duration = Duration::from_secs(25);

/// Clients of a worker that are pinged in one turn of it, the rest of a second's in turns spread over that second; more only where there
/// are more than 500 times as many.
pub const PINGS_TOGETHER: usize = 64;

/// How long a client may take to answer a ping unless [`Options`](crate::Options) say otherwise, at least; then it is disconnected ([`Disconnect::NO_PONG`]), unless pushes wait for it: the
/// ping may be among them.
///
/// [`Disconnect::NO_PONG`]: ringmain_hub::protocol::Disconnect::NO_PONG
pub const PONG_WITHIN: Duration = Duration::from_secs(10);

/// Bytes that the kernel takes for a client beyond what is on its way (`TCP_NOTSENT_LOWAT`). It would take megabytes for one that does not
/// read: values that are old by then, and cannot be replaced by newer ones.
pub const KERNEL_UNSENT: u32 = 16 * 1024;

/// How long a client may take to say who it is; then it is disconnected ([`Disconnect::STALE`]).
///
/// [`Disconnect::STALE`]: ringmain_hub::protocol::Disconnect::STALE
pub const CONNECT_WITHIN: Duration = Duration::from_secs(25);

/// How long a client may take to show another token once it is time to, for its connection or for a subscription; then that ends
/// ([`Disconnect::EXPIRED`], [`Unsubscribed::EXPIRED`]). Who only listens cannot, and is not waited for.
///
/// [`Disconnect::EXPIRED`]: ringmain_hub::protocol::Disconnect::EXPIRED
/// [`Unsubscribed::EXPIRED`]: ringmain_hub::protocol::Unsubscribed::EXPIRED
pub const REFRESH_WITHIN: Duration = Duration::from_secs(25);

/// Publications that a client is given of a history at once.
pub const HISTORY_PUBLICATIONS: usize = 1000;

/// How often channels that nobody needs are looked for.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How long the task that sends what channels hold sleeps while none holds anything; it is woken before that when one does.
pub const NO_RELEASE: Duration = Duration::from_hours(1);

/// Messages of clients' that wait between two workers, each way, besides [`QUEUE`]: those that come by requests of their own
/// (`/emulation`), of up to [`MESSAGE_BYTES`](ringmain_hub::limits::MESSAGE_BYTES) each. More are answered 503, and the SDKs
/// connect again.
pub const EMULATED: usize = 256;

/// Bytes of such a request: a message, each byte of it escaped, and the names beside it. More: 413.
pub const EMULATION_BYTES: u64 = 2 * MESSAGE_BYTES_MOST as u64 + 1024;

/// Bytes of replies and pushes that were handed to an HTTP stream and wait for its client. With more it is disconnected ([`Disconnect::SLOW`]), as
/// web's limit `unsent_bytes` does with WebSockets; pushes wait under their own budget before
/// ([`Limits::queued_bytes`](ringmain_hub::subscribers::SubscriberLimits)).
///
/// [`Disconnect::SLOW`]: ringmain_hub::protocol::Disconnect::SLOW
pub const STREAM_BYTES: usize = 2 * 1024 * 1024;

/// Orders about users' connections that wait between two workers, each way. With more nobody is told of another one, and whoever
/// gives it is told so ([`Busy`](crate::Busy), 503).
pub const ORDERS: usize = 256;

/// Connections of one user unless [`Options`](crate::Options) say otherwise.
pub const CONNECTIONS_PER_USER: u32 = 128;

/// Clients that are looked at together before the first of them is sent what waits for it.
pub(crate) const SENT_TOGETHER: usize = 32;

/// Questions of programs (publications that are answered with a place among them) that are on their way from one worker. With
/// more a program is answered 503, and nothing was done. A question stays one until its channel's home has answered.
pub const QUESTIONS: usize = 16_384;

/// How long a program waits for such answers, all of a request together. Then it is answered 503: what it wanted done may be.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Publications that a program is given of a history at once; also if it asks for more, or for all.
pub const HISTORY_TOLD: usize = 1000;

/// Channels of one broadcast; more are answered with error 106, and nothing is published.
pub const BROADCAST_CHANNELS: usize = 4096;

/// Commands of one batch; more are answered 413, and nothing is done.
pub const BATCH_COMMANDS: usize = 1024;

/// Connections of a user that a disconnection may be told to leave; more are answered with error 106.
pub const WHITELIST: usize = 256;

/// How long keys of publications are remembered unless [`Options`](crate::Options) say otherwise. How many:
/// [`IDEMPOTENCY_KEYS`](ringmain_hub::limits::IDEMPOTENCY_KEYS).
pub const KEYS_REMEMBERED: Duration = Duration::from_secs(300);

/// Lists of all channels that are under way for one worker. With more a program is answered 503.
pub const SURVEYS: usize = 8;

/// Channels that such a list has; of more a program is told with error 106, and asks by a pattern.
pub const CHANNELS_TOLD: usize = 10_000;

/// Channels that a worker looks at for such a list before it looks after its connections.
pub const SURVEYED_A_TURN: usize = 1024;

/// Bytes of a pattern of channels; a longer one is answered with error 107.
pub const PATTERN_BYTES: usize = 255;

/// Clients of one worker that are about to say who they are, unless [`Options`](crate::Options) say otherwise.
pub const HANDSHAKES: u32 = 8192;

/// Within how long those are told to come back who are not let in for that.
pub const COME_BACK_WITHIN: Duration = Duration::from_secs(5);

/// Questions about one client that wait for the application's answer, and commands of its that wait behind them; with more the
/// command that is one too many is answered with [`Fault::TOO_MANY_REQUESTS`].
///
/// [`Fault::TOO_MANY_REQUESTS`]: ringmain_hub::protocol::Fault::TOO_MANY_REQUESTS
pub const QUESTIONS_A_CLIENT: usize = 32;

/// Questions of one worker that wait for the application's answer; with more a command is answered with
/// [`Fault::TOO_MANY_REQUESTS`], after which clients try to connect and to subscribe again.
///
/// [`Fault::TOO_MANY_REQUESTS`]: ringmain_hub::protocol::Fault::TOO_MANY_REQUESTS
pub const QUESTIONS_A_WORKER: u32 = 1024;

/// The longest that an answer of the application may be waited for: below [`CONNECT_WITHIN`].
pub const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Bytes of an answer; a longer one is none.
pub const ANSWER_BYTES: usize = 1 << 20;

/// Bytes of the headers that a client may say with its connection, as far as they are kept; with more it is disconnected
/// ([`Disconnect::BAD_REQUEST`]).
///
/// [`Disconnect::BAD_REQUEST`]: ringmain_hub::protocol::Disconnect::BAD_REQUEST
pub const EMULATED_HEADER_BYTES: usize = 8 << 10;

/// When the application is asked again whether a connection or a subscription goes on, if it has not answered; a part of it by lot,
/// so that not all are asked about at once. It goes on meanwhile.
pub const REFRESH_AGAIN: Duration = Duration::from_secs(30);

/// How often a worker warns of answers that are none, at most; of others only at the level `debug`.
pub const WARN_EVERY: Duration = Duration::from_secs(1);

/// Publications from outside the workers (an [`Inlet`](crate::Inlet)) that wait for one worker. More are not taken
/// ([`NotTaken::Full`](crate::NotTaken)): whoever publishes waits for room, or drops them.
pub const INLET: usize = 8192;

/// Bytes of those, of one worker; the last of them may go beyond it. More are not taken, as above.
pub const INLET_BYTES: usize = 16 << 20;

/// Threads and tasks that wait for room with one worker. One more is not woken, and finds that there is none.
pub const INLET_WAITING: usize = 64;

/// Interruptions of sources that one worker has not applied yet, by channel or by prefix. One more, and all of them become an
/// interruption of all channels.
pub const INTERRUPTIONS: usize = 1024;

/// How often a worker applies them, at most: clients of a channel that loses publications all the time subscribe no more often than
/// this. Below the second within which they are notified.
pub const INTERRUPTED_EVERY: Duration = Duration::from_millis(500);

/// Channels that start a new epoch for an interruption before a worker looks after its connections.
pub const INTERRUPTED_A_TURN: usize = 1024;

/// Bytes of the state that a process leaves to the one after it, of all workers together; more is not read, and all channels start
/// new epochs.
pub const STATE_BYTES: usize = 4 << 30;

/// Within how long clients are sent away when the process drains, at most; in half of its drain time if that is less. Those that have not
/// been sent away yet have nothing of what the successor publishes.
pub const SENT_AWAY_WITHIN: Duration = Duration::from_secs(10);

/// The time that members of channels remain present at the successor after their clients were disconnected, if these do not reconnect.
pub const PRESENT_AFTER: Duration = Duration::from_secs(5);

/// When the first of them are, after the drain has begun.
pub const SENT_AWAY_AFTER: Duration = Duration::from_millis(100);

/// How often some of them are.
pub const SENT_AWAY_EVERY: Duration = Duration::from_millis(20);
