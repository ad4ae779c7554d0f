//! Every limit of the command line program, with its unit and what happens when it is reached.

use std::time::Duration;

/// Log lines that wait for standard error. One more is dropped and counted; the count is reported.
pub(crate) const LOG_LINES: usize = 4096;

/// Bytes of one log line. The rest is cut and marked.
pub(crate) const LOG_LINE_BYTES: usize = 4096;

/// How long the program waits at its end for standard error to take the last lines. Longer: they are lost.
pub(crate) const LOG_FLUSH: Duration = Duration::from_secs(2);

/// The longest time that an option may set: a day. More is refused as a wrong value.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(86_400);

/// The largest backlog that `listen(2)` takes. More is refused as a wrong value.
pub(crate) const BACKLOG_MAX: u32 = i32::MAX as u32;

/// The largest request body that an option may allow, bytes: 1 TiB. More is refused as a wrong value.
pub(crate) const BODY_LIMIT_MAX: u64 = 1 << 40;

/// How often the welcome page's figures are made.
pub(crate) const METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// Rates that the welcome page draws: a minute of them. Older ones are forgotten.
pub(crate) const RATES: usize = 60;

/// Seconds that the welcome page's latencies are taken over.
pub(crate) const LATENCY_SECONDS: usize = 10;

/// How often a viewer's stream looks for new figures.
pub(crate) const VIEWER_POLL: Duration = Duration::from_millis(250);

/// How long a browser waits before it asks for the figures again after a break.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The largest message to an echo server, bytes: 1 MiB. More is refused as a wrong value.
pub(crate) const ECHO_MAX: u32 = 1 << 20;

/// The highest number of a CPU that can be pinned to.
pub(crate) const CPU_MAX: usize = 1023;

/// Addresses that one `--source` may name. More are refused as a wrong value.
pub(crate) const SOURCES_MAX: u128 = 4096;

/// Connections of a load if nobody says how many.
pub(crate) const CONNECTIONS: u32 = 64;

/// Rounds of a target if nobody says how many.
pub(crate) const ROUNDS: u32 = 3;

/// The same of each target that is compared: with fewer no difference is ever shown.
pub(crate) const COMPARE_ROUNDS: u32 = 5;

/// A view of a running benchmark is not drawn again sooner than after so long, unless there are new figures.
pub(crate) const LIVE_REDRAW: Duration = Duration::from_millis(200);

/// Where a running benchmark cannot draw, it says a line so often.
pub(crate) const LIVE_LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Intervals whose rates the live view draws. Older ones are forgotten.
pub(crate) const LIVE_RATES: usize = 40;

const _: () = assert!(COMPARE_ROUNDS as usize >= ringmain_load::compare::PAIRS);
const _: () = assert!(LOG_LINE_BYTES >= 256 && LOG_LINES > 0);

/// How often the ticker's market moves, while somebody looks.
pub(crate) const TICKER_STEP: Duration = Duration::from_millis(100);

/// How often it is seen whether anybody looks, while nobody does.
pub(crate) const TICKER_IDLE_POLL: Duration = Duration::from_millis(500);

/// How often a browser gets a share's price at most.
pub(crate) const TICKER_INTERVAL: Duration = Duration::from_millis(200);

/// Shares of `ringmain feed`.
pub(crate) const FEED_SYMBOLS: usize = 100_000;

/// Bytes of a trade of `ringmain feed` at most. A NATS takes a mebibyte, unless it is told otherwise.
pub(crate) const FEED_BYTES: u32 = 512 << 10;

/// Trades of `ringmain feed` that are due for longer than this are left out.
pub(crate) const FEED_LAG_MAX: Duration = Duration::from_secs(1);

/// How often `ringmain feed` looks what is due while something is.
pub(crate) const FEED_POLL: Duration = Duration::from_millis(1);

/// How often `ringmain feed` looks whether it is to end while nothing is due.
pub(crate) const FEED_IDLE_POLL: Duration = Duration::from_millis(50);

/// Bytes that `ringmain feed` hands to its receiver at a time. What is beyond is made when those are sent.
pub(crate) const FEED_QUEUED_BYTES: usize = 256 << 10;

/// How long `ringmain feed` waits before it connects again.
pub(crate) const FEED_RECONNECT: Duration = Duration::from_millis(500);

/// How long connecting to a push server may take. Longer: the next address is tried, or it is a failure.
pub(crate) const FEED_CONNECT: Duration = Duration::from_secs(5);

/// Requests of `ringmain feed` to a push server that wait for their answers. With so many nothing more is sent.
pub(crate) const FEED_IN_FLIGHT: usize = 256;

/// How long the administration may take to answer `ringmain tune locality`.
pub(crate) const ADMIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of the administration's answer. The rest is not looked at.
pub(crate) const ADMIN_BYTES: u64 = 4 << 20;

/// The time between two points of the live view of `ringmain tune measure`.
pub(crate) const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// The longest secret that is read from a file, bytes.
pub(crate) const SECRET_BYTES: u64 = 4096;

// A step is the shortest rest and a look the longest.
const _: () = assert!(FEED_POLL.as_nanos() < FEED_IDLE_POLL.as_nanos());
