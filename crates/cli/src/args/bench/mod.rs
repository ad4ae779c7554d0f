//! The command line of `ringmain bench`: its options, and their conflicts.
//!
//! Owns the syntax of loads; knows nothing of their execution.

mod compare;
mod grpc;
pub(crate) mod push;
mod tls;
pub(crate) mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};
use ringmain_engine::Addr;
use ringmain_load::limits;
use ringmain_load::scenario::Settings;
use ringmain_load::threshold::Threshold;

pub(crate) use self::compare::Compare;
pub(crate) use self::grpc::Grpc;
use self::push::Push;
pub(crate) use self::tls::{Tls, TlsVersion};
use self::values::{File, Header, Statuses};
use super::values::{Time, number_in_range, size32_in_range, time_in_range};
use super::{EngineName, help};
use crate::limits::{CONNECTIONS, ECHO_MAX, TIME_MAX};

#[cfg(test)]
mod tests;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Benchmark a server, in a closed loop or at a given rate.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Bench {
    /// Target URL, or a scenario file
    ///
    /// HTTP: http://HOST[:PORT][/PATH], https://…, HOST:PORT[/PATH], :PORT[/PATH], http+unix:/SOCKET[:/PATH]. WebSocket echo:
    /// ws://HOST[:PORT][/PATH], wss://…, ws+unix:/SOCKET[:/PATH]. TCP echo: tcp://HOST:PORT, tcp+unix:/SOCKET. A scenario file
    /// (.yaml or .yml) names its target itself
    #[arg(value_name = "URL|SCENARIO.yaml", required = true)]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) load: Load,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) request: Request,
    #[command(flatten)]
    pub(crate) tls: Tls,
    #[command(flatten)]
    pub(crate) client: Client,
    #[command(flatten)]
    pub(crate) server: UnderTest,
    #[command(flatten)]
    pub(crate) results: Results,
    #[command(flatten)]
    pub(crate) histogram: HistogramFile,
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare two or more targets in alternating rounds, and report significant differences
    #[command(after_help = help::COMPARE)]
    Compare(Box<Compare>),
    /// Benchmark a push server: delivery latency and losses with many subscribers
    #[command(after_help = help::PUSH)]
    Push(Box<Push>),
    /// Merge the histograms of several runs, without loss
    #[command(after_help = help::MERGE)]
    Merge {
        /// Histogram files written by --hlog
        #[arg(value_name = "FILE.hlog", required = true)]
        files: Vec<PathBuf>,
        /// Write the merged histograms to this file
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Print the results as JSON
        #[arg(long)]
        json: bool,
    },
    /// Validate a scenario file, without sending requests
    Check {
        /// Scenario file
        #[arg(value_name = "SCENARIO.yaml")]
        scenario: PathBuf,
    },
    /// Print the JSON Schema of scenario files, or of results
    Schema {
        /// Print the JSON Schema of the output of --json
        #[arg(long)]
        results: bool,
    },
}

/// The load: connections, duration, rate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct Load {
    /// Number of connections, all threads together [default: 64]
    #[arg(long, short, value_name = "N", value_parser = number_in_range(1..=limits::CONNECTIONS))]
    pub(crate) connections: Option<u32>,

    /// Measured duration of each round [default: 10s]
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(MILLISECOND * 10..=TIME_MAX))]
    pub(crate) duration: Option<Time>,

    /// Number of completed or failed requests that ends a round; with --duration, the first limit reached
    #[arg(long, short = 'n', value_name = "N", value_parser = number_in_range(1..=u64::MAX))]
    pub(crate) requests: Option<u64>,

    /// Warm-up before each round, not measured [default: 2s]
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(Duration::ZERO..=TIME_MAX))]
    pub(crate) warmup: Option<Time>,

    /// Open loop: requests per second over all connections, independent of the responses; 50k, 1.5m
    ///
    /// Without a rate the loop is closed: each connection sends its next request when it has the response, so that a slow
    /// server receives fewer requests
    #[arg(long, short, value_name = "RATE", value_parser = values::parse_request_rate)]
    pub(crate) rate: Option<f64>,

    /// With --rate: Poisson arrivals instead of evenly spaced ones
    #[arg(long)]
    pub(crate) poisson: bool,

    /// Number of rounds; the result is the median with its spread [default: 3; compare: 5]
    #[arg(long, value_name = "N", value_parser = number_in_range(1..=limits::ROUNDS))]
    pub(crate) rounds: Option<u32>,

    /// Use HTTP/2: with prior knowledge on http://, negotiated with ALPN on https://
    #[arg(long)]
    pub(crate) http2: bool,

    /// With --http2 or --grpc: maximum number of concurrent streams per connection [default: 1]
    ///
    /// Limited to the maximum that the server announces, which the report shows
    #[arg(long, value_name = "N", value_parser = number_in_range(1..=limits::PIPELINE))]
    pub(crate) streams: Option<u32>,

    /// With HTTP/1.1 and echo servers: maximum number of pipelined requests per connection [default: 1]
    #[arg(long, short, value_name = "N", hide_short_help = true, value_parser = number_in_range(1..=limits::PIPELINE))]
    pub(crate) pipeline: Option<u32>,

    /// Close each connection after this number of responses, and open a new one
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = number_in_range(1..=u64::MAX))]
    pub(crate) reconnect_every: Option<u64>,

    /// Response timeout; on expiry the request fails and its connection is closed [default: 5s]
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) timeout: Option<Time>,

    /// Timeout for establishing all connections
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) connect_timeout: Time,

    /// With tcp://, ws:// and wss:// targets: message size in bytes; the echo must be identical [default: 64]
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = size32_in_range(1..=ECHO_MAX))]
    pub(crate) echo: Option<u32>,
}

/// The search for the highest rate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct Search {
    /// Search the highest rate at which every --slo is met
    #[arg(long)]
    pub(crate) find_max: bool,

    /// With --find-max: service level objective, such as 'p99<5ms'; repeatable
    #[arg(long, value_name = "RULE", action = ArgAction::Append)]
    pub(crate) slo: Vec<Threshold>,
}

/// The request, and the expected response.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct Request {
    /// Scenario file with the requests to send; options override its load settings
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,

    /// Request method [default: GET, with a body POST]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Request header, such as 'Accept: text/html'; repeatable
    #[arg(long, short = 'H', value_name = "NAME: VALUE", action = ArgAction::Append)]
    pub(crate) header: Vec<Header>,

    /// Request body or WebSocket message as text; {{seq}}, {{random:1..100}} and {{uuid}} are replaced here, in the URL's
    /// path and in headers
    #[arg(long, short, value_name = "TEXT", conflicts_with = "body_file")]
    pub(crate) body: Option<String>,

    /// Read the body from a file and send it unchanged; over WebSocket as binary messages
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) body_file: Option<PathBuf>,

    /// Value of the Host header [default: from the URL]
    #[arg(long, value_name = "HOST", hide_short_help = true)]
    pub(crate) host: Option<String>,

    /// Expected status codes, such as 200 or 200-299,404 [default: 200-399]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub(crate) expect_status: Option<Statuses>,

    /// Text that every response body must contain
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(crate) expect_body: Option<String>,

    /// With ws:// and wss:// targets: offer permessage-deflate, and compress messages if the server accepts
    #[arg(long, hide_short_help = true)]
    pub(crate) deflate: bool,

    #[command(flatten)]
    pub(crate) grpc: Grpc,
}

/// The load generator: its threads, CPUs and addresses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Client")]
pub(crate) struct Client {
    /// Number of threads [default: one per CPU of --cpus, or per CPU without the server; at most one per connection]
    #[arg(long, short, value_name = "N", value_parser = number_in_range(1..=ringmain_engine::limits::WORKERS))]
    pub(crate) threads: Option<usize>,

    /// CPUs to pin the threads to, round robin, such as 0-3,8 [default: all but --server-cpus]
    #[arg(long, value_name = "LIST", value_parser = values::parse_cpus)]
    pub(crate) cpus: Option<std::vec::Vec<usize>>,

    /// Source addresses, round robin, such as 127.0.0.1-127.0.0.9; each has its own range of ports
    #[arg(long, value_name = "ADDR[-ADDR]", hide_short_help = true, action = ArgAction::Append,
          value_parser = values::parse_sources)]
    pub(crate) source: Vec<std::vec::Vec<Addr>>,

    /// I/O back-end
    #[arg(long, value_enum, default_value_t = EngineName::Auto, hide_short_help = true)]
    pub(crate) engine: EngineName,

    /// Random seed of arrivals, mixes and tokens; shown in the report [default: random]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) seed: Option<u64>,
}

/// The server under test, if it runs on this host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server under test (on this host)")]
pub(crate) struct UnderTest {
    /// Shell command that starts the server; its CPU time and memory are measured, and it is stopped at the end
    #[arg(long, value_name = "COMMAND", conflicts_with = "server_pid")]
    pub(crate) server: Option<String>,

    /// Measure the CPU time and memory of this process and its descendants
    #[arg(long, value_name = "PID", value_parser = number_in_range(1..=u32::MAX))]
    pub(crate) server_pid: Option<u32>,

    #[command(flatten)]
    pub(crate) started: Started,
}

/// Options of servers that are started.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server under test (on this host)")]
pub(crate) struct Started {
    /// CPUs to pin --server to, such as 0-3
    #[arg(long, value_name = "LIST", value_parser = values::parse_cpus)]
    pub(crate) server_cpus: Option<std::vec::Vec<usize>>,

    /// Timeout for --server to accept connections
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(30)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) server_wait: Time,
}

/// The outputs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Results {
    /// Condition for exit code 0, such as 'p99<5ms', 'errors<0.1%' or 'rps>10000'; repeatable
    #[arg(long, value_name = "RULE", action = ArgAction::Append)]
    pub(crate) threshold: Vec<Threshold>,

    /// Write the results as JSON to FILE, or to standard output instead of the summary (schema: `ringmain bench schema --results`)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<File>,

    /// Write an HTML report with plots, in one self-contained file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<File>,

    /// Interval between two points of the time series and of the live view
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(1)), hide_short_help = true,
          value_parser = time_in_range(limits::INTERVAL..=Duration::from_hours(1)))]
    pub(crate) interval: Time,

    /// Print neither progress nor warnings
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The output of histograms.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct HistogramFile {
    /// Write the histograms as an HdrHistogram log, for `ringmain bench merge` and other tools
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<File>,
}

impl Load {
    /// Applies the settings of a scenario that no option sets.
    pub(crate) fn apply_scenario(&mut self, settings: &Settings) {
        let time = |time: Option<Duration>| time.map(Time);
        self.connections = self.connections.or(settings.connections);
        // Each limits the round.
        if self.duration.is_none() && self.requests.is_none() {
            self.duration = time(settings.duration);
            self.requests = settings.requests;
        }
        self.warmup = self.warmup.or(time(settings.warmup));
        self.rate = self.rate.or(settings.rate);
        self.poisson |= settings.poisson.unwrap_or(false) && self.rate.is_some();
        if self.http2 {
            // Requests in flight are streams there.
            self.streams = self.streams.or(settings.pipeline);
        } else {
            self.pipeline = self.pipeline.or(settings.pipeline);
        }
        self.timeout = self.timeout.or(time(settings.timeout));
        self.reconnect_every = self.reconnect_every.or(settings.reconnect_after);
    }

    /// Describes the first conflict between valid options, if any. `has_rates`: a search sets the rates.
    pub(crate) fn contradiction(&self, has_rates: bool, is_grpc: bool) -> Option<String> {
        let is_http2 = self.http2 || is_grpc;
        if self.poisson && self.rate.is_none() && !has_rates {
            return Some("--poisson needs a rate: add --rate RATE, or drop it".into());
        }
        if self.streams.is_some() && !is_http2 {
            return Some(
                "--streams is for HTTP/2: add --http2, or drop it (--pipeline is the option for HTTP/1.1)"
                    .into(),
            );
        }
        if self.pipeline.is_some() && is_http2 {
            return Some("--pipeline is for HTTP/1.1: write --streams N for HTTP/2".into());
        }
        None
    }
}

impl Client {
    /// Applies the settings of a scenario that no option sets.
    pub(crate) fn apply_scenario(&mut self, settings: &Settings) {
        self.threads = self.threads.or(settings.threads);
        self.seed = self.seed.or(settings.seed);
    }

    fn contradiction(&self, load: &Load) -> Option<String> {
        let connections = load.connections.unwrap_or(CONNECTIONS);
        if let Some(threads) = self.threads.filter(|threads| *threads > connections as usize) {
            return Some(format!(
                "--threads {threads} is more than the {connections} connections, and each thread needs one: lower it, or raise \
                 --connections"
            ));
        }
        None
    }
}

impl Started {
    fn contradiction(&self, is_any: bool) -> Option<String> {
        if self.server_cpus.is_some() && !is_any {
            return Some(
                "--server-cpus needs a server that is started: add --server COMMAND, or drop it (`taskset -cp LIST PID` pins \
                 a running one)"
                    .into(),
            );
        }
        None
    }
}

impl Results {
    fn contradiction(&self, histograms: Option<&File>) -> Option<String> {
        let to_standard_output = [
            ("--json", &self.json),
            ("--html", &self.html),
            ("--hlog", &histograms.cloned()),
        ];
        let mut names = to_standard_output
            .into_iter()
            .filter(|(_, file)| file.as_ref().is_some_and(File::is_standard_output))
            .map(|(name, _)| name);
        match (names.next(), names.next()) {
            (Some(first), Some(second)) => Some(format!(
                "{first} and {second} both write to standard output: name a file for one"
            )),
            _ => None,
        }
    }
}

impl Request {
    fn contradiction(&self) -> Option<String> {
        let (path, option) = (self.scenario.as_ref()?, self.first_given_option()?);
        Some(format!(
            "{option} describes a single request, and cannot be used with a scenario: set it in {}",
            path.display()
        ))
    }

    /// Returns the first given option that describes a single request.
    pub(crate) fn first_given_option(&self) -> Option<&'static str> {
        let given = [
            ("--method", self.method.is_some()),
            ("--header", !self.header.is_empty()),
            ("--body", self.body.is_some()),
            ("--body-file", self.body_file.is_some()),
            ("--host", self.host.is_some()),
            ("--expect-status", self.expect_status.is_some()),
            ("--expect-body", self.expect_body.is_some()),
            ("--deflate", self.deflate),
            ("--grpc", self.grpc.grpc),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

impl Bench {
    /// Describes the first conflict between valid options, if any. Does not check them against the target.
    pub(crate) fn contradiction(&self) -> Option<String> {
        self.load
            .contradiction(self.search.find_max, self.request.grpc.grpc)
            .or_else(|| self.search_contradiction())
            .or_else(|| self.client.contradiction(&self.load))
            .or_else(|| self.server.started.contradiction(self.server.server.is_some()))
            .or_else(|| self.results.contradiction(self.histogram.hlog.as_ref()))
    }

    fn search_contradiction(&self) -> Option<String> {
        let (search, load) = (&self.search, &self.load);
        if !search.find_max {
            let needless = !search.slo.is_empty();
            return needless.then(|| {
                "--slo is the objective of --find-max: add --find-max, or use --threshold to check this run".into()
            });
        }
        if search.slo.is_empty() {
            return Some("--find-max needs an objective: add --slo, such as --slo 'p99<5ms'".into());
        }
        let given = [
            ("--rate", load.rate.is_some()),
            ("--requests", load.requests.is_some()),
            ("--threshold", !self.results.threshold.is_empty()),
        ];
        let given = given.into_iter().find(|(_, given)| *given)?.0;
        Some(format!(
            "{given} has no meaning with --find-max, which sets the rates itself: drop one"
        ))
    }
}
