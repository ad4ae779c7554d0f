//! Every limit of reading and following configuration, with its unit and what happens there.

use std::time::Duration;

/// Bytes of a configuration file; a larger one is refused.
pub const CONFIG_BYTES: usize = 32 << 20;

/// How deep values may nest, aliases replaced; a deeper file is refused.
pub const CONFIG_DEPTH: usize = 64;

/// Values of a file, aliases replaced; a file with more is refused.
pub const CONFIG_VALUES: usize = 4_000_000;

/// Values that the aliases (`*name`) of a file stand for; a file with more is refused. Their texts count to [`CONFIG_BYTES`].
pub const CONFIG_ALIASES: usize = 100_000;

/// What is told to be wrong at once; of more only the number is told.
pub const CONFIG_ERRORS: usize = 100;

/// Bytes of a file that `${file:…}`, a certificate or a body names; a larger one is refused.
pub const NAMED_FILE_BYTES: usize = 4 << 20;

/// The longest time that may be written; what follows computes with times without care for overflow.
pub const MAX_TIME: Duration = Duration::from_hours(24 * 365);

/// Bytes of a request's body to the administration; a longer one is refused.
pub const ADMIN_BODY_BYTES: u64 = 4096;

/// Upstreams that metrics name; more are left out.
pub const METRIC_UPSTREAMS: usize = 1000;

/// Endpoints of all upstreams together that metrics name; further ones are left out.
pub const METRIC_ENDPOINTS: usize = 5000;

/// Certificates that metrics name; further ones are left out.
pub const METRIC_CERTIFICATES: usize = 1000;

/// Routes that the administration's page shows, those with most requests first, and streams; of more only the number is told.
pub const DASHBOARD_ROUTES: usize = 100;

/// Upstreams that the page shows, by name; of more only the number is told.
pub const DASHBOARD_UPSTREAMS: usize = 100;

/// Endpoints of one upstream that the page shows, those that are passed over first; of more only the number is told.
pub const DASHBOARD_ENDPOINTS: usize = 24;

/// Failing watches of Kubernetes, and problems of its objects, that the page shows; of more only the number is shown.
pub const DASHBOARD_PROBLEMS: usize = 20;

/// How often the page has new figures while somebody looks.
pub const DASHBOARD_INTERVAL: Duration = Duration::from_secs(1);

/// Percentiles of the page are of this long to twice as long.
pub const DASHBOARD_WINDOW: Duration = Duration::from_secs(5);

/// How long a browser waits before it asks for the figures again after a break.
pub const DASHBOARD_RETRY: Duration = Duration::from_secs(1);
/// Counts of policies (rate limits, requests at once) that metrics name; more are left out.
pub const METRIC_COUNTERS: usize = 1000;

/// How long a configuration and the files that it names must have been the same before they are applied: contents, size and time of
/// modification.
pub const DEBOUNCE: Duration = Duration::from_millis(100);

/// How long a start waits for that. Longer: it fails.
pub const DEBOUNCE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a file may be open for writing without a write before it counts as closed. Then what it has is applied.
pub const WRITER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the program waits at its end for the access log to be written. Longer: the rest is lost, which is said.
pub const ACCESS_LOG_FLUSH: Duration = Duration::from_secs(5);

/// Connections to the administration at once. One more waits until one is closed.
pub const ADMIN_CONNECTIONS: u32 = 64;

/// Receive buffers of the administration's worker: few, as its requests are small.
pub const ADMIN_RECEIVE_BUFFERS: u16 = 64;

/// How long requests to the administration may go on at its end.
pub const ADMIN_GRACE: Duration = Duration::from_secs(1);

/// Bytes of a message of a NATS; a larger one is passed over and counted. Half of what may wait for a client by default.
pub const NATS_PAYLOAD_BYTES: usize = 512 << 10;

/// How long connecting to a NATS may take, with TLS and signing in. Longer: it is a failure, and the next server is tried.
pub const NATS_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long nothing may be heard of a NATS before it is asked whether it is there.
pub const NATS_PING_INTERVAL: Duration = Duration::from_secs(20);

/// How long it may take to answer; then it counts as gone.
pub const NATS_PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a message of a NATS waits for room with its worker; then it is dropped and counted. Meanwhile nothing is read, and the
/// server keeps what comes.
pub const NATS_QUEUE_TIMEOUT: Duration = Duration::from_millis(250);

/// How long none of a consumer's messages waits after one has waited in vain: those without room are dropped at once, so that a
/// worker that stands still does not hold up what is for the others.
pub const NATS_DROP_PERIOD: Duration = Duration::from_secs(5);

/// A consumer of NATS says the same at most so often.
pub const NATS_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Sources of push in a configuration, without consumers of core NATS; a file with more is refused.
pub const SOURCES: usize = 64;

/// Consumers of NATS in a configuration; a file with more is refused.
pub const NATS_CONSUMERS: usize = 64;

/// How long each worker may take to write its channels for the next process. Longer: those start new epochs.
pub const STATE_FREEZE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long sending them to a successor may take. Longer: all start new epochs.
pub const STATE_SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a successor waits for them, from its start on; what is asked of channels waits meanwhile.
pub const STATE_RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause after a panic of the task that follows Kubernetes; then it begins again.
#[cfg(feature = "kubernetes")]
pub const CLUSTER_RESTART_DELAY: Duration = Duration::from_secs(10);
