//! All limits of reading and applying configuration, with their units and consequences.

use std::time::Duration;

/// Bytes of a configuration file; a larger one is refused.
pub const CONFIG_BYTES: usize = 32 << 20;

/// The maximum depth of nested values, with aliases resolved; a deeper file is rejected.
pub const CONFIG_DEPTH: usize = 64;

/// Values of a file, aliases replaced; a file with more is refused.
pub const CONFIG_VALUES: usize = 4_000_000;

/// The maximum number of values that the aliases (`*name`) of a file resolve to; a file with more is rejected. Their texts count
/// towards [`CONFIG_BYTES`].
pub const CONFIG_ALIASES: usize = 100_000;

/// The maximum number of errors that are reported; further ones are only counted.
pub const CONFIG_ERRORS: usize = 100;

/// Bytes of a file that `${file:…}`, a certificate or a body names; a larger one is refused.
pub const NAMED_FILE_BYTES: usize = 4 << 20;

/// The maximum time in a configuration; later computations rely on it not to overflow.
pub const MAX_TIME: Duration = Duration::from_hours(24 * 365);

/// Bytes of a request's body to the administration; a longer one is refused.
pub const ADMIN_BODY_BYTES: u64 = 4096;

/// The maximum number of upstreams in metrics; further ones are omitted.
pub const METRIC_UPSTREAMS: usize = 1000;

/// The maximum number of endpoints in metrics, over all upstreams; further ones are omitted.
pub const METRIC_ENDPOINTS: usize = 5000;

/// The maximum number of listen addresses in metrics; further ones are omitted.
pub const METRIC_LISTENERS: usize = 1000;

/// The maximum number of certificates in metrics; further ones are omitted.
pub const METRIC_CERTIFICATES: usize = 1000;

/// The maximum number of routes on the dashboard, those with most requests first, and of streams; further ones are only counted.
pub const DASHBOARD_ROUTES: usize = 100;

/// The maximum number of upstreams on the dashboard, by name; further ones are only counted.
pub const DASHBOARD_UPSTREAMS: usize = 100;

/// The maximum number of endpoints of one upstream on the dashboard, unhealthy ones first; further ones are only counted.
pub const DASHBOARD_ENDPOINTS: usize = 24;

/// Failing watches of Kubernetes, and problems of its objects, that the page shows; of more only the number is shown.
pub const DASHBOARD_PROBLEMS: usize = 20;

/// The maximum number of listen addresses on the dashboard, in the order of the configuration.
pub const DASHBOARD_LISTENERS: usize = 100;

/// The maximum number of certificates on the dashboard, those that expire first; further ones are only counted.
pub const DASHBOARD_CERTIFICATES: usize = 50;

/// The remaining validity below which the dashboard warns about a certificate.
pub const CERTIFICATE_WARNING: Duration = Duration::from_hours(14 * 24);

/// Points of the dashboard's history, one a second; the oldest is dropped for a new one.
pub const DASHBOARD_HISTORY: usize = 600;

/// The update interval of the dashboard while a page is open.
pub const DASHBOARD_INTERVAL: Duration = Duration::from_secs(1);

/// Percentiles of the page are of this long to twice as long.
pub const DASHBOARD_WINDOW: Duration = Duration::from_secs(5);

/// The time after which a browser reconnects to the dashboard.
pub const DASHBOARD_RETRY: Duration = Duration::from_secs(1);
/// The maximum number of counters of policies (rate limits, concurrency limits) in metrics; further ones are omitted.
pub const METRIC_COUNTERS: usize = 1000;

/// The time for which a configuration and the files that it names must be unchanged before they are applied: contents, size and
/// time of modification.
pub const DEBOUNCE: Duration = Duration::from_millis(100);

/// The maximum time that a start waits for unchanged files; then it fails.
pub const DEBOUNCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which a file that is open for writing counts as closed without a write. Then its contents are applied.
pub const WRITER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time for writing the access log at the end; then the rest is lost, which is logged.
pub const ACCESS_LOG_FLUSH: Duration = Duration::from_secs(5);

/// The maximum number of connections to the administration; further ones wait until one is closed.
pub const ADMIN_CONNECTIONS: u32 = 64;

/// Receive buffers of the administration's worker: few, as its requests are small.
pub const ADMIN_RECEIVE_BUFFERS: u16 = 64;

/// The time that requests to the administration have to complete at the end.
pub const ADMIN_GRACE: Duration = Duration::from_secs(1);

/// The maximum size of a NATS message, in bytes; a larger one is dropped and counted. Half of the default limit of pushes that are
/// pending for a client.
pub const NATS_PAYLOAD_BYTES: usize = 512 << 10;

/// The timeout for connecting to a NATS server, including TLS and authentication; then the next server is tried.
pub const NATS_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time without data from a NATS server after which it is pinged.
pub const NATS_PING_INTERVAL: Duration = Duration::from_secs(20);

/// The timeout for a pong; then the connection is closed.
pub const NATS_PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time that a NATS message waits for a free place in the queue of its worker; then it is dropped and counted.
/// Meanwhile no message is read, and the server buffers.
pub const NATS_QUEUE_TIMEOUT: Duration = Duration::from_millis(250);

/// The time for which messages are dropped at once after one has waited in vain, so that a blocked worker does not delay the
/// messages for others.
pub const NATS_DROP_PERIOD: Duration = Duration::from_secs(5);

/// The minimum time between two equal log messages of a NATS consumer.
pub const NATS_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Sources of push in a configuration, without consumers of core NATS; a file with more is refused.
pub const SOURCES: usize = 64;

/// Consumers of NATS in a configuration; a file with more is refused.
pub const NATS_CONSUMERS: usize = 64;

/// The maximum time for a worker to write its channels for the next process; then they start new epochs.
pub const STATE_FREEZE_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout for sending channels to a successor; then all start new epochs.
pub const STATE_SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The time from its start for which a successor waits for channels; operations on channels wait meanwhile.
pub const STATE_RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The delay before the task that follows Kubernetes is restarted after a panic.
#[cfg(feature = "kubernetes")]
pub const CLUSTER_RESTART_DELAY: Duration = Duration::from_secs(10);

/// The time that a node of a push cluster takes to hand its channels over when the process ends: that of the hand-over itself, and a reserve.
/// Then those that are left start new epochs.
pub const PUSH_LEAVE_TIMEOUT: Duration =
    ringmain_cluster::limits::HANDOVER_TIME.saturating_add(Duration::from_secs(2));

/// The interval at which the process checks whether all channels are handed over.
pub const PUSH_LEAVE_CHECK: Duration = Duration::from_millis(10);

/// The time for which a push gateway remains ready without a link to a node that owns channels.
pub const PUSH_SERVERS_MISSING: Duration = Duration::from_secs(5);

/// The time for which the start of a node of a push cluster waits for the zone of its Kubernetes Node; then the node has no zone.
#[cfg(feature = "kubernetes")]
pub const NODE_ZONE_WITHIN: Duration = Duration::from_secs(5);
