//! The limits of the program, each with its unit and the effect of reaching it.

use std::time::Duration;

/// Log lines queued for standard error. Beyond it lines are dropped; their number is logged.
pub(crate) const LOG_LINES: usize = 4096;

/// Bytes of a log line. A longer one is truncated and marked.
pub(crate) const LOG_LINE_BYTES: usize = 4096;

/// Time at exit to write queued log lines. The remaining ones are lost.
pub(crate) const LOG_FLUSH: Duration = Duration::from_secs(2);

/// Longest time that an option may set: one day. More is an invalid value.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(86_400);

/// Largest backlog of `listen(2)`. More is an invalid value.
pub(crate) const BACKLOG_MAX: u32 = i32::MAX as u32;

/// Largest request body that an option may allow, in bytes: 1 TiB. More is an invalid value.
pub(crate) const BODY_LIMIT_MAX: u64 = 1 << 40;

/// Interval of the metrics of the welcome page.
pub(crate) const METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// Rates in the chart of the welcome page: one minute. Older ones are discarded.
pub(crate) const RATES: usize = 60;

/// Seconds covered by the latencies of the welcome page.
pub(crate) const LATENCY_SECONDS: usize = 10;

/// Interval at which a viewer's stream checks for new metrics.
pub(crate) const VIEWER_POLL: Duration = Duration::from_millis(250);

/// Delay before a browser reconnects to the stream of metrics.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Largest message to an echo server, in bytes: 1 MiB. More is an invalid value.
pub(crate) const ECHO_MAX: u32 = 1 << 20;

/// Highest CPU number for pinning. A higher one is an invalid value.
pub(crate) const CPU_MAX: usize = 1023;

/// Addresses of one `--source`. More are an invalid value.
pub(crate) const SOURCES_MAX: u128 = 4096;

/// Default number of connections of a load.
pub(crate) const CONNECTIONS: u32 = 64;

/// Default number of rounds of a target.
pub(crate) const ROUNDS: u32 = 3;

/// Default number of rounds of each compared target: with fewer no difference can be significant.
pub(crate) const COMPARE_ROUNDS: u32 = 5;

/// Minimum interval between redraws of the live view without new results.
pub(crate) const LIVE_REDRAW: Duration = Duration::from_millis(200);

/// Interval of progress lines, if there is no live view.
pub(crate) const LIVE_LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Rates in the sparkline of the live view. Older ones are discarded.
pub(crate) const LIVE_RATES: usize = 40;

const _: () = assert!(COMPARE_ROUNDS as usize >= ringmain_load::compare::PAIRS);
const _: () = assert!(LOG_LINE_BYTES >= 256 && LOG_LINES > 0);

/// Interval of the ticker's trades, with at least one client.
pub(crate) const TICKER_STEP: Duration = Duration::from_millis(100);

/// Interval at which the ticker checks for clients, without one.
pub(crate) const TICKER_IDLE_POLL: Duration = Duration::from_millis(500);

/// Conflation interval of a share's price.
pub(crate) const TICKER_INTERVAL: Duration = Duration::from_millis(200);

/// Shares of `ringmain feed`.
pub(crate) const FEED_SYMBOLS: usize = 100_000;

/// Bytes of a trade of `ringmain feed`. The default limit of NATS is 1 MiB.
pub(crate) const FEED_BYTES: u32 = 512 << 10;

/// Lag after which `ringmain feed` skips a trade.
pub(crate) const FEED_LAG_MAX: Duration = Duration::from_secs(1);

/// Poll interval of `ringmain feed` with trades due or in flight.
pub(crate) const FEED_POLL: Duration = Duration::from_millis(1);

/// Longest poll interval of `ringmain feed`, with no trade due.
pub(crate) const FEED_IDLE_POLL: Duration = Duration::from_millis(50);

/// Bytes that `ringmain feed` queues for its receiver. Beyond it no trade is generated.
pub(crate) const FEED_QUEUED_BYTES: usize = 256 << 10;

/// Delay before `ringmain feed` reconnects.
pub(crate) const FEED_RECONNECT: Duration = Duration::from_millis(500);

/// Timeout for connecting to a push server. On expiry the next address is used, or it is an error.
pub(crate) const FEED_CONNECT: Duration = Duration::from_secs(5);

/// Requests of `ringmain feed` to a push server in flight. At the limit sending pauses.
pub(crate) const FEED_IN_FLIGHT: usize = 256;

/// Timeout of the admin server's response to `ringmain tune locality`.
pub(crate) const ADMIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of the admin server's response. The rest is ignored.
pub(crate) const ADMIN_BYTES: u64 = 4 << 20;

/// Interval of the live view of `ringmain tune measure`.
pub(crate) const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// Longest secret in a file, in bytes. A longer one is an error.
pub(crate) const SECRET_BYTES: u64 = 4096;

// The bounds of the time to the next poll.
const _: () = assert!(FEED_POLL.as_nanos() < FEED_IDLE_POLL.as_nanos());
