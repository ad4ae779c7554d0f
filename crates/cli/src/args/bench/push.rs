//! The command line of `ringmain bench push`.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use ringmain_engine::Addr;
use ringmain_load::limits;

use super::values::{self, File, KillAt};
use super::{EngineName, MILLISECOND, Search, Tls, UnderTest};
use crate::args::values::{Time, number_in_range, size32_in_range, time_in_range};
use crate::limits::TIME_MAX;

/// Benchmark a push server: delivery latency and losses with many subscribers.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Endpoints of clients; several nodes are used round robin, and a client whose node fails connects to the next one
    ///
    /// ws://HOST[:PORT][/PATH]: the Centrifuge client protocol over WebSocket (default path: /connection/websocket).
    /// http://HOST[:PORT][/PATH]: server-sent events (default path: /connection/uni_sse). wss:// and https://: the same over TLS
    #[arg(value_name = "URL", required = true, num_args = 1..=limits::NODES)]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) subscribers: Subscribers,
    #[command(flatten)]
    pub(crate) publications: Publications,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) time: Timing,
    #[command(flatten)]
    pub(crate) tls: Tls,
    #[command(flatten)]
    pub(crate) client: Threads,
    #[command(flatten)]
    pub(crate) server: UnderTest,
    #[command(flatten)]
    pub(crate) results: Output,
}

/// The clients and their subscriptions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct Subscribers {
    /// Number of clients, all threads together
    #[arg(long, short, value_name = "N", default_value_t = 1000, value_parser = number_in_range(1..=limits::CONNECTIONS))]
    pub(crate) clients: u32,

    /// Number of channels: PREFIX0, PREFIX1, …
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_in_range(1..=limits::PUSH_CHANNELS))]
    pub(crate) channels: u32,

    /// Number of channels that each client subscribes to, evenly distributed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_in_range(1..=limits::PUSH_SUBSCRIPTIONS))]
    pub(crate) each: u32,

    /// Prefix of channel names, such as a namespace (market:)
    #[arg(long, value_name = "TEXT", default_value = "bench")]
    pub(crate) prefix: String,

    /// Use Protobuf instead of JSON over WebSocket
    #[arg(long)]
    pub(crate) protobuf: bool,

    /// Connection token (JWT), the same for all clients
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// Share of slow clients, such as 5%; their results are reported separately
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    pub(crate) slow: f64,

    /// Share of the sent data that slow clients read
    #[arg(long, value_name = "SHARE", default_value = "25%", hide_short_help = true, value_parser = parse_share)]
    pub(crate) slow_pace: f64,

    /// Connection attempts per second [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) connect_rate: Option<f64>,

    /// Abort every client's connection at this time of the measurement, as on a network failure: the clients reconnect
    /// (at --connect-rate) and recover, and the report has the time that it took and the recovered publications
    #[arg(long, value_name = "TIME", value_parser = time_in_range(Duration::ZERO..=TIME_MAX))]
    pub(crate) kill: Option<Time>,

    /// Interval at which --kill is repeated [default: once]
    #[arg(long, value_name = "TIME", requires = "kill", value_parser = time_in_range(MILLISECOND..=TIME_MAX))]
    pub(crate) kill_every: Option<Time>,

    /// Send SIGKILL to the process PID at this time of the measurement, such as 4711@3s, and report the time until all clients
    /// that lost their sessions are connected and subscribed again, at another URL if there are several
    #[arg(long, value_name = "PID@TIME", value_parser = values::parse_kill_at, conflicts_with_all = ["kill", "find_max"])]
    pub(crate) kill_server: Option<KillAt>,

    /// Delay before a client reconnects after a lost session or a failed attempt
    #[arg(long, value_name = "TIME", default_value_t = Time(limits::RECONNECT), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) reconnect: Time,

    /// Timeout of one client for connecting and subscribing, and of responses to publish requests
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) timeout: Time,

    /// Timeout for connecting and subscribing all clients
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_mins(1)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) connect_timeout: Time,
}

/// The publications.
#[derive(Debug, Args)]
#[command(next_help_heading = "Publications")]
pub(crate) struct Publications {
    /// Publications per second, round robin over the channels, independent of the responses [default: 10; with --common 0]
    #[arg(long, short, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,

    /// Publications per second to an additional channel that all clients subscribe to
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) common: Option<f64>,

    /// Size of a publication's data in bytes
    #[arg(long, short, value_name = "SIZE", default_value_t = 200, value_parser = size32_in_range(48..=limits::PUBLICATION_BYTES))]
    pub(crate) size: u32,

    /// Expect conflated channels with this update interval: skipped values are not losses, and the report has the age of the
    /// clients' values
    #[arg(long, value_name = "TIME", value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) conflated: Option<Time>,

    /// Publish nothing, and measure the cost of idle clients
    #[arg(long, conflicts_with_all = ["rate", "common", "conflated", "publish", "publish_as", "publishers", "batch",
                                  "publish_to"])]
    pub(crate) idle: bool,

    /// Publish nothing, and check the publications of an external producer with this run number, 8 hexadecimal digits
    ///
    /// A payload is {"b":"RRRRRRRRCCCCCCCCSSSSSSSSTTTTTTTTTTTTTTTTxxx…"} of exactly --size bytes, in lower-case hexadecimal
    /// digits. R: run number. C: channel number (N of PREFIXN; the number of channels for PREFIXall). S: sequence number in
    /// the channel, without gaps, starting with any number but 0. T: time on the host's monotonic clock in nanoseconds, or 0.
    /// x: padding. All publications after the first one of a subscription count; --warmup does not apply
    #[arg(long, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = "00000000",
          value_parser = values::parse_run_number,
          conflicts_with_all = ["idle", "rate", "conflated", "publish", "publish_as", "publishers", "batch", "find_max", "publish_to"])]
    pub(crate) listen_only: Option<u32>,

    /// API key (X-API-Key). Other users of the host can see arguments: prefer the variable or --api-key-file
    #[arg(long, value_name = "KEY", env = "RINGMAIN_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,

    /// File whose first line is the API key; overrides --api-key
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<std::path::PathBuf>,

    /// URL of the publish endpoint [default: /api/publish at the first URL, with the path prefix before /connection/]
    #[arg(long, value_name = "URL")]
    pub(crate) publish: Option<String>,

    /// Publish through a broker that the server consumes: kafka://HOST[:PORT]/TOPIC, nats://HOST[:PORT]/SUBJECT (JetStream,
    /// with {channel} in the subject), or redis://HOST[:PORT]/STREAM
    ///
    /// The channel is the key of a Kafka record, a part of the NATS subject, or the field `channel` of a Redis entry, whose
    /// value is the field `data`. A publication is accepted when the broker acknowledges it; latencies are reported from that
    /// time, too. Requires the feature `brokers`, which release builds have
    #[arg(long, value_name = "URL", conflicts_with_all = ["publish", "publish_as", "publishers", "batch", "api_key_file"])]
    pub(crate) publish_to: Option<String>,

    /// Format of the records' values
    #[arg(long, value_enum, default_value_t = RecordFormat::Data, requires = "publish_to", hide_short_help = true)]
    pub(crate) record_format: RecordFormat,

    /// Consume the records in this process, too, with the same library, and report the latency: the broker's part of the delay
    #[arg(long, requires = "publish_to")]
    pub(crate) plain_consumer: bool,

    /// Format of publish requests
    #[arg(long, value_enum, default_value_t = PublishAs::Api, hide_short_help = true)]
    pub(crate) publish_as: PublishAs,

    /// Maximum number of publications per request: those due in the same millisecond are sent together, to /api/batch or as
    /// several lines
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true,
          value_parser = number_in_range(1..=limits::PUBLISHES_IN_REQUEST as u16))]
    pub(crate) batch: u16,

    /// Number of connections for publish requests; each channel is assigned to one
    #[arg(long, value_name = "N", default_value_t = 4, hide_short_help = true, value_parser = number_in_range(1..=1024_u32))]
    pub(crate) publishers: u32,
}

/// Formats of a publish request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PublishAs {
    /// {"channel": …, "data": …}, the server API of Ringmain and Centrifugo
    Api,
    /// Channel, space and data, one publication per line
    Lines,
}

/// Formats of a record's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// The data of the publication
    Data,
    /// {"method": "publish", "payload": {"channel": …, "data": …}}, for sources with `format: commands` and Centrifugo's consumers
    Commands,
}

/// The phases of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
pub(crate) struct Timing {
    /// Measured duration
    #[arg(long, short, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)),
          value_parser = time_in_range(MILLISECOND * 10..=TIME_MAX))]
    pub(crate) duration: Time,

    /// Warm-up, not measured
    #[arg(long, short, value_name = "TIME", default_value_t = Time(Duration::from_secs(2)),
          value_parser = time_in_range(Duration::ZERO..=TIME_MAX))]
    pub(crate) warmup: Time,

    /// Maximum time to wait for publications in flight at the end
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(2)), hide_short_help = true,
          value_parser = time_in_range(Duration::ZERO..=Duration::from_hours(1)))]
    pub(crate) settle: Time,
}

/// The load generator: its threads, CPUs and addresses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Client")]
pub(crate) struct Threads {
    /// Number of client threads, besides the one that publishes [default: one per CPU of --cpus, or per CPU without the
    /// server; more if the clients need more descriptor tables]
    #[arg(long, short, value_name = "N", value_parser = number_in_range(1..=ringmain_engine::limits::WORKERS - 1))]
    pub(crate) threads: Option<usize>,

    /// CPUs to pin the threads to, round robin, such as 0-3,8 [default: all but --server-cpus]
    #[arg(long, value_name = "LIST", value_parser = values::parse_cpus)]
    pub(crate) cpus: Option<std::vec::Vec<usize>>,

    /// Source addresses, round robin, such as 127.0.0.1-127.0.0.9; each has 28,000 ports
    #[arg(long, value_name = "ADDR[-ADDR]", action = ArgAction::Append, value_parser = values::parse_sources)]
    pub(crate) source: Vec<std::vec::Vec<Addr>>,

    /// I/O back-end
    #[arg(long, value_enum, default_value_t = EngineName::Auto, hide_short_help = true)]
    pub(crate) engine: EngineName,
}

/// The outputs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Output {
    /// Write the results as JSON to FILE, or to standard output instead of the summary (schema: `ringmain bench schema --results`)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<File>,

    /// Print neither progress nor warnings
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    values::parse_request_rate(text).map_err(|_| {
        format!(
            "expected a number per second, more than 0 and at most {}m, such as 200, 2.5k or 1m",
            limits::RATE / 1e6
        )
    })
}

/// Parses a share: `5%`, `0.05`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, whole) = text
        .strip_suffix('%')
        .map_or((text, 1.0), |number| (number, 100.0));
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let share = number
        .parse::<f64>()
        .ok()
        .filter(|_| is_plain)
        .map(|number| number / whole);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "expected a share from 0 to 1, such as 5% or 0.05".to_owned())
}

impl Push {
    /// Returns the first given option that excludes a search for the highest rate.
    fn search_conflict(&self) -> Option<&'static str> {
        let given = [
            ("--idle", self.publications.idle),
            ("--kill", self.subscribers.kill.is_some()),
        ];
        given
            .into_iter()
            .find(|(_, given)| *given && self.search.find_max)
            .map(|(name, _)| name)
    }

    /// Describes the first conflict between valid options, if any.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let subscribers = &self.subscribers;
        if subscribers.each > subscribers.channels {
            return Some(format!(
                "--each {} is more than the {} channels: raise --channels, or lower it",
                subscribers.each, subscribers.channels
            ));
        }
        if let Some(option) = self.search_conflict() {
            return Some(format!("{option} cannot be used with --find-max: drop one"));
        }
        if !self.search.slo.is_empty() && !self.search.find_max {
            return Some("--slo is the objective of --find-max: add --find-max".into());
        }
        if self.search.find_max && self.search.slo.is_empty() {
            return Some("--find-max needs an objective: add --slo, such as --slo 'p99<50ms'".into());
        }
        let duration = self.time.duration;
        if let Some(kill) = subscribers.kill.filter(|kill| kill.0 >= duration.0) {
            return Some(format!(
                "--kill {kill} is not within the measured duration of {duration}: lower it, or raise --duration"
            ));
        }
        let kill = subscribers.kill_server;
        if let Some(kill) = kill.filter(|kill| kill.after.0 >= duration.0) {
            return Some(format!(
                "--kill-server {kill} is not within the measured duration of {duration}: lower it, or raise --duration"
            ));
        }
        let server = &self.server;
        if let Some(kill) = kill.filter(|kill| server.server_pid == Some(kill.pid)) {
            return Some(format!(
                "--kill-server {kill} is the process that --server-pid measures: measure another node"
            ));
        }
        if server.started.server_cpus.is_some() && server.server.is_none() {
            return Some(
                "--server-cpus needs a server that is started: add --server COMMAND, or drop it (`taskset -cp LIST PID` pins \
                 a running one)"
                    .into(),
            );
        }
        let threads = self
            .client
            .threads
            .filter(|threads| *threads > subscribers.clients as usize)?;
        Some(format!(
            "--threads {threads} is more than the {} clients, and each thread needs one: lower it, or raise --clients",
            subscribers.clients
        ))
    }
}
