//! Every limit of push, with its unit and what happens there.

use std::time::Duration;

/// Messages that wait between two workers, each way. What finds no room waits where it is, in order.
pub const QUEUE: usize = 1024;

/// Messages that a worker takes from each queue before it looks after its connections.
pub const TAKEN_A_TURN: usize = 256;

/// Commands of one client that wait for their answer, or until it is told that it is connected; with more it is disconnected ([`Disconnect::TOO_MANY_REQUESTS`]).
///
/// [`Disconnect::TOO_MANY_REQUESTS`]: ringmain_hub::protocol::Disconnect::TOO_MANY_REQUESTS
pub const COMMANDS_UNDER_WAY: u32 = 128;

/// Messages of one worker that wait for room in a queue; while there are more, programs that publish are answered 503.
pub const BACKLOG: usize = 16_384;

/// How often a client is pinged.
pub const PING_EVERY: Duration = Duration::from_secs(25);

/// How long a client may take to answer a ping; then it is disconnected ([`Disconnect::NO_PONG`]).
///
/// [`Disconnect::NO_PONG`]: ringmain_hub::protocol::Disconnect::NO_PONG
pub const PONG_WITHIN: Duration = Duration::from_secs(10);

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
pub const EMULATION_BYTES: u64 = 2 * ringmain_hub::limits::MESSAGE_BYTES as u64 + 1024;

/// Bytes of replies and pushes that wait for the client of an HTTP stream. With more it is disconnected ([`Disconnect::SLOW`]), as
/// web's limit `unsent_bytes` does with WebSockets; pushes wait under their own budget before
/// ([`Limits::waiting_bytes`](ringmain_hub::local::Limits)).
///
/// [`Disconnect::SLOW`]: ringmain_hub::protocol::Disconnect::SLOW
pub const STREAM_BYTES: usize = 2 * 1024 * 1024;

/// Orders about users' connections that wait between two workers, each way. With more nobody is told of another one, and whoever
/// gives it is told so ([`Busy`](crate::Busy), 503).
pub const ORDERS: usize = 256;

/// Connections of one user unless [`Options`](crate::Options) say otherwise.
pub const CONNECTIONS_PER_USER: u32 = 128;

/// Publications from outside the workers (an [`Inlet`](crate::Inlet)) that wait for one worker. More are not taken
/// ([`NotTaken::Full`](crate::NotTaken)): whoever publishes waits for room, or drops them.
pub const INLET: usize = 8192;

/// Bytes of those, of one worker; the last of them may go beyond it. More are not taken, as above.
pub const INLET_BYTES: usize = 16 << 20;

/// Threads and tasks that wait for room with one worker. One more is not woken, and finds that there is none.
pub const INLET_WAITING: usize = 64;
