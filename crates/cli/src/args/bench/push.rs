//! The command line of `ringmain bench push`.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use ringmain_engine::Addr;
use ringmain_load::limits;

use super::values::{self, File, KillAt};
use super::{EngineName, MILLISECOND, Search, Tls, UnderTest};
use crate::args::values::{Time, number_in_range, size32_in_range, time_in_range};
use crate::limits::TIME_MAX;

/// Have very many clients listen, publish to them, and measure how long it takes and what is lost.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Where clients connect to, and what they speak there; several nodes get clients round robin, and a client whose node fails
    /// connects to the next one
    ///
    /// ws://HOST[:PORT][/PATH] (/connection/websocket): the Centrifuge client protocol over WebSocket; http://HOST[:PORT][/PATH]
    /// (/connection/uni_sse): server-sent events; wss:// and https:// for the same over TLS
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

/// Who listens, and to what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct Subscribers {
    /// Clients, all threads together
    #[arg(long, short, value_name = "N", default_value_t = 1000, value_parser = number_in_range(1..=limits::CONNECTIONS))]
    pub(crate) clients: u32,

    /// Channels: PREFIX0, PREFIX1, …
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_in_range(1..=limits::PUSH_CHANNELS))]
    pub(crate) channels: u32,

    /// Of those, to how many each client subscribes; evenly spread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_in_range(1..=limits::PUSH_SUBSCRIPTIONS))]
    pub(crate) each: u32,

    /// What the names of channels begin with, such as a namespace (market:)
    #[arg(long, value_name = "TEXT", default_value = "bench")]
    pub(crate) prefix: String,

    /// Over WebSocket, speak Protobuf instead of JSON
    #[arg(long)]
    pub(crate) protobuf: bool,

    /// A token that all clients show
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// The share of clients that read slowly, such as 5%: their figures stand apart
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    pub(crate) slow: f64,

    /// What share of what they are sent slow clients read
    #[arg(long, value_name = "SHARE", default_value = "25%", hide_short_help = true, value_parser = parse_share)]
    pub(crate) slow_pace: f64,

    /// Clients that begin to connect in a second [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) connect_rate: Option<f64>,

    /// Cut off all clients so long after publications begin to count, without a word, as a network that fails or a proxy that is
    /// started anew does: they come back at once (or by --connect-rate), ask for what they missed, and it is told how long that
    /// took and what was recovered
    #[arg(long, value_name = "TIME", value_parser = time_in_range(Duration::ZERO..=TIME_MAX))]
    pub(crate) kill: Option<Time>,

    /// Do that again so long after each time [default: once]
    #[arg(long, value_name = "TIME", requires = "kill", value_parser = time_in_range(MILLISECOND..=TIME_MAX))]
    pub(crate) kill_every: Option<Time>,

    /// Send SIGKILL to the process PID so long after publications begin to count, such as 4711@3s, and report the time until all
    /// clients that lost their sessions are connected and subscribed again, at another URL if there are several
    #[arg(long, value_name = "PID@TIME", value_parser = values::parse_kill_at, conflicts_with_all = ["kill", "find_max"])]
    pub(crate) kill_server: Option<KillAt>,

    /// The time after which a client whose session or attempt has ended connects again
    #[arg(long, value_name = "TIME", default_value_t = Time(limits::RECONNECT), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) reconnect: Time,

    /// How long one client may take to connect and subscribe; also how long answers to publications are waited for
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) timeout: Time,

    /// How long all clients may take
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_mins(1)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) connect_timeout: Time,
}

/// What is published.
#[derive(Debug, Args)]
#[command(next_help_heading = "Publications")]
pub(crate) struct Publications {
    /// Publications a second, to the channels in turn, all together, whether or not answers come [default: 10; with --common 0]
    #[arg(long, short, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,

    /// Have all clients subscribe to one more channel, and publish so many a second there
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) common: Option<f64>,

    /// Bytes of a publication's data
    #[arg(long, short, value_name = "SIZE", default_value_t = 200, value_parser = size32_in_range(48..=limits::PUBLICATION_BYTES))]
    pub(crate) size: u32,

    /// The server sends the newest value of a channel only, so far apart: what is left out is not lost, and how far clients'
    /// values are behind is told
    #[arg(long, value_name = "TIME", value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) conflated: Option<Time>,

    /// Publish nothing: what clients cost that only stand there
    #[arg(long, conflicts_with_all = ["rate", "common", "conflated", "publish", "publish_as", "publishers", "batch",
                                  "publish_to"])]
    pub(crate) idle: bool,

    /// Publish nothing, and check the publications of an external producer: payloads of --size bytes with this run number, 8
    /// hexadecimal digits
    ///
    /// A payload is {"b":"RRRRRRRRCCCCCCCCSSSSSSSSTTTTTTTTTTTTTTTTxxx…"} of exactly --size bytes, where lower-case hexadecimal digits
    /// are R: the run number, C: the channel's number (N of PREFIXN; the number of channels for PREFIXall), S: the publication's number
    /// in its channel, from any number but 0 on and without gaps, T: its time on the host's monotonic clock in nanoseconds, or 0; x pads
    /// it. All publications from a subscription's first one on count; --warmup does not apply.
    #[arg(long, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = "00000000",
          value_parser = values::parse_run_number,
          conflicts_with_all = ["idle", "rate", "conflated", "publish", "publish_as", "publishers", "batch", "find_max", "publish_to"])]
    pub(crate) listen_only: Option<u32>,

    /// The key that programs send in X-API-Key; other users of the host see arguments, so name it by the variable or a file
    #[arg(long, value_name = "KEY", env = "RINGMAIN_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,

    /// A file whose first line is the key; it precedes --api-key
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<std::path::PathBuf>,

    /// Where publications are posted to [default: /api/publish where clients connect, behind the path that precedes /connection/ there]
    #[arg(long, value_name = "URL")]
    pub(crate) publish: Option<String>,

    /// Write publications to a broker that the server reads, instead of posting them: kafka://HOST[:PORT]/TOPIC, nats://HOST[:PORT]/SUBJECT
    /// (JetStream) with {channel} in the subject, or redis://HOST[:PORT]/STREAM
    ///
    /// The channel is the key of a record of Kafka, a part of the subject, or the field `channel` of an entry of Redis, whose field `data`
    /// is the value. A publication is accepted once the broker has acknowledged the record; times are reported from there, too. Needs a
    /// build with the feature `brokers`, as releases are.
    #[arg(long, value_name = "URL", conflicts_with_all = ["publish", "publish_as", "publishers", "batch", "api_key_file"])]
    pub(crate) publish_to: Option<String>,

    /// Values of records: the data of publications, or commands of the server API
    #[arg(long, value_enum, default_value_t = RecordFormat::Data, requires = "publish_to", hide_short_help = true)]
    pub(crate) record_format: RecordFormat,

    /// Read the records in this process, too, with a plain consumer of the same library, and report how long it takes: the part of the
    /// delay that is the broker's
    #[arg(long, requires = "publish_to")]
    pub(crate) plain_consumer: bool,

    /// What is posted
    #[arg(long, value_enum, default_value_t = PublishAs::Api, hide_short_help = true)]
    pub(crate) publish_as: PublishAs,

    /// Publications of one request at most: those that are due in the same millisecond leave together, as a batch to /api/batch or as
    /// several lines
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true,
          value_parser = number_in_range(1..=limits::PUBLISHES_IN_REQUEST as u16))]
    pub(crate) batch: u16,

    /// Connections to publish on; each channel has one of them
    #[arg(long, value_name = "N", default_value_t = 4, hide_short_help = true, value_parser = number_in_range(1..=1024_u32))]
    pub(crate) publishers: u32,
}

/// The body of a request that publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PublishAs {
    /// {"channel": …, "data": …}, as the interfaces of Ringmain and Centrifugo for programs take it
    Api,
    /// The channel, a space and the data, on a line
    Lines,
}

/// The value of a record that publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// The data of the publication
    Data,
    /// {"method": "publish", "payload": {"channel": …, "data": …}}, as sources with `format: commands` and Centrifugo's consumers read
    Commands,
}

/// For how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
pub(crate) struct Timing {
    /// How long publications count
    #[arg(long, short, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)),
          value_parser = time_in_range(MILLISECOND * 10..=TIME_MAX))]
    pub(crate) duration: Time,

    /// Publications before that do not count
    #[arg(long, short, value_name = "TIME", default_value_t = Time(Duration::from_secs(2)),
          value_parser = time_in_range(Duration::ZERO..=TIME_MAX))]
    pub(crate) warmup: Time,

    /// How long it is waited afterwards for what is on its way; not longer than needed
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(2)), hide_short_help = true,
          value_parser = time_in_range(Duration::ZERO..=Duration::from_hours(1)))]
    pub(crate) settle: Time,
}

/// What the load comes from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Client")]
pub(crate) struct Threads {
    /// Threads for clients; one more publishes [default: one a CPU of --cpus or that the server is not pinned to, and as many
    /// more as clients need tables of descriptors]
    #[arg(long, short, value_name = "N", value_parser = number_in_range(1..=ringmain_engine::limits::WORKERS - 1))]
    pub(crate) threads: Option<usize>,

    /// CPUs that the threads are pinned to, in turn, such as 0-3,8 [default: those that --server-cpus leaves]
    #[arg(long, value_name = "LIST", value_parser = values::parse_cpus)]
    pub(crate) cpus: Option<std::vec::Vec<usize>>,

    /// Addresses of this host to connect from, in turn, such as 127.0.0.1-127.0.0.9: each has 28,000 ports
    #[arg(long, value_name = "ADDR[-ADDR]", action = ArgAction::Append, value_parser = values::parse_sources)]
    pub(crate) source: Vec<std::vec::Vec<Addr>>,

    /// How to talk to the kernel
    #[arg(long, value_enum, default_value_t = EngineName::Auto, hide_short_help = true)]
    pub(crate) engine: EngineName,
}

/// What is made of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Output {
    /// Write the figures as JSON (`ringmain bench schema --results`): to standard output in place of the summary, or to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<File>,

    /// Say nothing while it runs, and no doubts on standard error
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    values::parse_request_rate(text).map_err(|_| {
        format!(
            "expected a number a second, more than 0 and at most {}m, such as 200, 2.5k or 1m",
            limits::RATE / 1e6
        )
    })
}

/// A part of a whole: `5%`, `0.05`.
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
    /// An option that is of no use in a search for the highest rate.
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

    /// What is wrong with options that are right one by one, if anything.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let subscribers = &self.subscribers;
        if subscribers.each > subscribers.channels {
            return Some(format!(
                "--each {} is more than the {} channels: raise --channels, or lower it",
                subscribers.each, subscribers.channels
            ));
        }
        if let Some(option) = self.search_conflict() {
            return Some(format!("{option} does not go with --find-max: drop one of them"));
        }
        if !self.search.slo.is_empty() && !self.search.find_max {
            return Some("--slo says what --find-max looks for: add --find-max".into());
        }
        if self.search.find_max && self.search.slo.is_empty() {
            return Some(
                "--find-max needs to know what must be kept: add --slo 'p99<50ms' or the like".into(),
            );
        }
        let duration = self.time.duration;
        if let Some(kill) = subscribers.kill.filter(|kill| kill.0 >= duration.0) {
            return Some(format!(
                "--kill {kill} is not before the end of the {duration} that count: lower it, or raise --duration"
            ));
        }
        let kill = subscribers.kill_server;
        if let Some(kill) = kill.filter(|kill| kill.after.0 >= duration.0) {
            return Some(format!(
                "--kill-server {kill} is not before the end of the {duration} that count: lower it, or raise --duration"
            ));
        }
        let server = &self.server;
        if let Some(kill) = kill.filter(|kill| server.server_pid == Some(kill.pid)) {
            return Some(format!(
                "--kill-server {kill} is the process that --server-pid measures, which must not end: measure another node"
            ));
        }
        if server.started.server_cpus.is_some() && server.server.is_none() {
            return Some(
                "--server-cpus needs a server that is started: add --server COMMAND, or drop it (a running one is pinned by \
                 `taskset -cp LIST PID`)"
                    .into(),
            );
        }
        let threads = self
            .client
            .threads
            .filter(|threads| *threads > subscribers.clients as usize)?;
        Some(format!(
            "--threads {threads} is more than the {} clients: each thread needs one; lower it",
            subscribers.clients
        ))
    }
}
