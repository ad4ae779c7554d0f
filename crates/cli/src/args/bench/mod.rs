//! The command line of `ringmain bench`: its options, and which of them make no sense together.
//!
//! Knows how loads are written down; not how they are carried out.

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
use super::values::{Time, number_in_range, size32_in_range, time};
use super::{EngineName, help};
use crate::limits::{CONNECTIONS, ECHO_MAX, TIME_MAX};

#[cfg(test)]
mod tests;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Put a load on a server and measure what comes of it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Bench {
    /// Where the load goes, or a file that says what it is
    ///
    /// http://HOST[:PORT][/PATH], https://…, HOST:PORT[/PATH], :PORT[/PATH], http+unix:/SOCKET[:/PATH], ws://HOST[:PORT][/PATH],
    /// wss://… and ws+unix:/SOCKET[:/PATH] for WebSocket echo, tcp://HOST:PORT and tcp+unix:/SOCKET for an echo server, or a scenario that says where itself (a name that ends in .yaml or .yml)
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
    /// Measure two or more targets in turn, and say which differences noise does not explain
    #[command(after_help = help::COMPARE)]
    Compare(Box<Compare>),
    /// Publish to very many clients that listen, and measure how long it takes and what is lost
    #[command(after_help = help::PUSH)]
    Push(Box<Push>),
    /// Put the histograms of several runs together, without loss
    #[command(after_help = help::MERGE)]
    Merge {
        /// Files that --hlog has written
        #[arg(value_name = "FILE.hlog", required = true)]
        files: Vec<PathBuf>,
        /// Write the histograms of them all here
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Print the figures as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say whether a scenario file is right, else what is wrong and where, without a load
    Check {
        /// The file
        #[arg(value_name = "SCENARIO.yaml")]
        scenario: PathBuf,
    },
    /// Print the JSON Schema of scenario files, which editors complete and check by, or that of results
    Schema {
        /// Print the JSON Schema of what --json writes
        #[arg(long)]
        results: bool,
    },
}

/// How much, for how long, at what pace.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct Load {
    /// Connections, all threads together [default: 64]
    #[arg(long, short, value_name = "N", value_parser = number_in_range(1..=limits::CONNECTIONS))]
    pub(crate) connections: Option<u32>,

    /// How long each round measures [default: 10s]
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(MILLISECOND * 10..=TIME_MAX))]
    pub(crate) duration: Option<Time>,

    /// Measure until so many requests are answered or have failed; with --duration, until whichever is first
    #[arg(long, short = 'n', value_name = "N", value_parser = number_in_range(1..=u64::MAX))]
    pub(crate) requests: Option<u64>,

    /// Load before each round that is not counted [default: 2s]
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(Duration::ZERO..=TIME_MAX))]
    pub(crate) warmup: Option<Time>,

    /// Open loop: so many requests a second, all connections together, whether or not answers come; 50k, 1.5m
    ///
    /// Without it the loop is closed: each connection sends as soon as it has its answer, so that a slow server is asked
    /// less
    #[arg(long, short, value_name = "RATE", value_parser = values::parse_request_rate)]
    pub(crate) rate: Option<f64>,

    /// With --rate: at independent moments (a Poisson process) instead of evenly spaced
    #[arg(long)]
    pub(crate) poisson: bool,

    /// How often it is all done; the result is the median with its spread [default: 3, of comparisons 5]
    #[arg(long, value_name = "N", value_parser = number_in_range(1..=limits::ROUNDS))]
    pub(crate) rounds: Option<u32>,

    /// Speak HTTP/2: known beforehand to be spoken on http://, agreed on over TLS (ALPN) on https://
    #[arg(long)]
    pub(crate) http2: bool,

    /// With --http2 or --grpc: requests in flight on a connection at most, each on a stream of its own [default: 1]
    ///
    /// Never more than the server lets be open at once, which the report says
    #[arg(long, value_name = "N", value_parser = number_in_range(1..=limits::PIPELINE))]
    pub(crate) streams: Option<u32>,

    /// With HTTP/1.1 and echo servers: requests in flight on a connection at most [default: 1]
    #[arg(long, short, value_name = "N", hide_short_help = true, value_parser = number_in_range(1..=limits::PIPELINE))]
    pub(crate) pipeline: Option<u32>,

    /// Close each connection after so many answers and open another one
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = number_in_range(1..=u64::MAX))]
    pub(crate) reconnect_every: Option<u64>,

    /// After so long without an answer a request has timed out, and its connection is closed [default: 5s]
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) timeout: Option<Time>,

    /// How long all connections may take to stand
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) connect_timeout: Time,

    /// With tcp://, ws:// and wss:// targets: bytes of a message, which must come back as they were [default: 64]
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = size32_in_range(1..=ECHO_MAX))]
    pub(crate) echo: Option<u32>,
}

/// The search for the highest rate.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct Search {
    /// Raise the rate until --slo is missed: the highest rate that the server keeps
    #[arg(long)]
    pub(crate) find_max: bool,

    /// With --find-max: what must be kept, such as 'p99<5ms'; may be given several times
    #[arg(long, value_name = "RULE", action = ArgAction::Append)]
    pub(crate) slo: Vec<Threshold>,
}

/// What is sent, and what answer is right.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct Request {
    /// What a scenario file says is sent, instead of one request; what it says of the load holds unless an option does
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,

    /// The method [default: GET, with a body POST]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// A header, such as 'Accept: text/html'; may be given several times
    #[arg(long, short = 'H', value_name = "NAME: VALUE", action = ArgAction::Append)]
    pub(crate) header: Vec<Header>,

    /// The body, or each message of a WebSocket, as text; as in the URL's path and in headers, {{seq}}, {{random:1..100}} and
    /// {{uuid}} are filled in
    #[arg(long, short, value_name = "TEXT", conflicts_with = "body_file")]
    pub(crate) body: Option<String>,

    /// The body from a file, sent as it is; over a WebSocket as binary
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) body_file: Option<PathBuf>,

    /// What the Host header says [default: what the URL says]
    #[arg(long, value_name = "HOST", hide_short_help = true)]
    pub(crate) host: Option<String>,

    /// Statuses that are right, such as 200 or 200-299,404 [default: 200-399]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub(crate) expect_status: Option<Statuses>,

    /// A text that each answer's body must hold
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(crate) expect_body: Option<String>,

    /// With ws:// and wss:// targets: offer permessage-deflate, and deflate messages where the server agrees
    #[arg(long, hide_short_help = true)]
    pub(crate) deflate: bool,

    #[command(flatten)]
    pub(crate) grpc: Grpc,
}

/// What the load comes from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Client")]
pub(crate) struct Client {
    /// Threads [default: one a CPU of --cpus, or that the server is not pinned to; never more than connections]
    #[arg(long, short, value_name = "N", value_parser = number_in_range(1..=ringmain_engine::limits::WORKERS))]
    pub(crate) threads: Option<usize>,

    /// CPUs that the threads are pinned to, in turn, such as 0-3,8 [default: those that --server-cpus leaves]
    #[arg(long, value_name = "LIST", value_parser = values::parse_cpus)]
    pub(crate) cpus: Option<std::vec::Vec<usize>>,

    /// Addresses of this host to connect from, in turn, such as 127.0.0.1-127.0.0.9: each has ports of its own
    #[arg(long, value_name = "ADDR[-ADDR]", hide_short_help = true, action = ArgAction::Append,
          value_parser = values::parse_sources)]
    pub(crate) source: Vec<std::vec::Vec<Addr>>,

    /// How to talk to the kernel
    #[arg(long, value_enum, default_value_t = EngineName::Auto, hide_short_help = true)]
    pub(crate) engine: EngineName,

    /// What arrivals, mixes and random tokens follow from; the report says it [default: another one each time]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) seed: Option<u64>,
}

/// The server, where it is on this host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server under test (on this host)")]
pub(crate) struct UnderTest {
    /// Start the server with this command of the shell, measure its CPU time and memory, and end it
    #[arg(long, value_name = "COMMAND", conflicts_with = "server_pid")]
    pub(crate) server: Option<String>,

    /// Measure the CPU time and memory of this process and all that descend from it
    #[arg(long, value_name = "PID", value_parser = number_in_range(1..=u32::MAX))]
    pub(crate) server_pid: Option<u32>,

    #[command(flatten)]
    pub(crate) started: Started,
}

/// Servers that are started.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server under test (on this host)")]
pub(crate) struct Started {
    /// The CPUs that --server may use, such as 0-3
    #[arg(long, value_name = "LIST", value_parser = values::parse_cpus)]
    pub(crate) server_cpus: Option<std::vec::Vec<usize>>,

    /// How long --server may take until it takes connections
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(30)), hide_short_help = true,
          value_parser = time_in_range(MILLISECOND..=Duration::from_hours(1)))]
    pub(crate) server_wait: Time,
}

/// What is made of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Results {
    /// What must hold, such as 'p99<5ms', 'errors<0.1%' or 'rps>10000', or the exit code is 1; may be given several times
    #[arg(long, value_name = "RULE", action = ArgAction::Append)]
    pub(crate) threshold: Vec<Threshold>,

    /// Write the figures as JSON (`ringmain bench schema --results`): to standard output in place of the summary, or to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<File>,

    /// Write a page with plots, one file that needs no other
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<File>,

    /// The time between two points of the series and of the live view
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(1)), hide_short_help = true,
          value_parser = time_in_range(limits::INTERVAL..=Duration::from_hours(1)))]
    pub(crate) interval: Time,

    /// Say nothing while it runs, and no doubts on standard error
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Histograms for later.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct HistogramFile {
    /// Write the histograms (HdrHistogram log), which `ringmain bench merge` and others read
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<File>,
}

impl Load {
    /// Takes what a scenario says where no option does.
    pub(crate) fn apply_scenario(&mut self, settings: &Settings) {
        let time = |time: Option<Duration>| time.map(Time);
        self.connections = self.connections.or(settings.connections);
        // Either of both says how much is measured.
        if self.duration.is_none() && self.requests.is_none() {
            self.duration = time(settings.duration);
            self.requests = settings.requests;
        }
        self.warmup = self.warmup.or(time(settings.warmup));
        self.rate = self.rate.or(settings.rate);
        self.poisson |= settings.poisson.unwrap_or(false) && self.rate.is_some();
        match self.http2 {
            // Several in flight on a connection are streams there.
            true => self.streams = self.streams.or(settings.pipeline),
            false => self.pipeline = self.pipeline.or(settings.pipeline),
        }
        self.timeout = self.timeout.or(time(settings.timeout));
        self.reconnect_every = self.reconnect_every.or(settings.reconnect_after);
    }

    /// What is wrong with options that are right one by one, if anything. A search `has_rates` of its own; `is_grpc`: calls are
    /// made.
    pub(crate) fn contradiction(&self, has_rates: bool, is_grpc: bool) -> Option<String> {
        let is_http2 = self.http2 || is_grpc;
        if self.poisson && self.rate.is_none() && !has_rates {
            return Some("--poisson needs a rate: add --rate RATE, or drop it".into());
        }
        if self.streams.is_some() && !is_http2 {
            return Some(
                "--streams is for HTTP/2: add --http2, or drop it (over HTTP/1.1 --pipeline has several requests in \
                 flight on a connection)"
                    .into(),
            );
        }
        if self.pipeline.is_some() && is_http2 {
            return Some(
                "--pipeline is for HTTP/1.1: over HTTP/2 requests in flight have streams of their own; write --streams N"
                    .into(),
            );
        }
        None
    }
}

impl Client {
    /// Takes what a scenario says where no option does.
    pub(crate) fn apply_scenario(&mut self, settings: &Settings) {
        self.threads = self.threads.or(settings.threads);
        self.seed = self.seed.or(settings.seed);
    }

    fn contradiction(&self, load: &Load) -> Option<String> {
        let connections = load.connections.unwrap_or(CONNECTIONS);
        if let Some(threads) = self.threads.filter(|threads| *threads > connections as usize) {
            return Some(format!(
                "--threads {threads} is more than the {connections} connections: each thread needs one; lower it, or \
                 raise --connections"
            ));
        }
        None
    }
}

impl Started {
    fn contradiction(&self, is_any: bool) -> Option<String> {
        if self.server_cpus.is_some() && !is_any {
            return Some(
                "--server-cpus needs a server that is started: add --server COMMAND, or drop it (a running one is pinned \
                 by `taskset -cp LIST PID`)"
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
                "{first} and {second} both go to standard output: name a file for one of them"
            )),
            _ => None,
        }
    }
}

impl Request {
    fn contradiction(&self) -> Option<String> {
        let (path, option) = (self.scenario.as_ref()?, self.first_given_option()?);
        Some(format!(
            "{option} says what one request is, and a scenario says what is sent: write it in {}",
            path.display()
        ))
    }

    /// The first option given that says what one request is.
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
    /// What is wrong with options that are right one by one, if anything. Whether they fit the target is not looked at.
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
                "--slo says what --find-max looks for: add --find-max, or write --threshold for a limit on this run".into()
            });
        }
        if search.slo.is_empty() {
            return Some(
                "--find-max needs to know what must be kept: add --slo 'p99<5ms' or the like".into(),
            );
        }
        let given = [
            ("--rate", load.rate.is_some()),
            ("--requests", load.requests.is_some()),
            ("--threshold", !self.results.threshold.is_empty()),
        ];
        let given = given.into_iter().find(|(_, given)| *given)?.0;
        Some(format!(
            "{given} has no meaning with --find-max, which tries one rate after the other: drop one of them"
        ))
    }
}
