//! The command line: one definition per option for parsing, help, errors, the man page and completions.
//!
//! Owns the syntax of values and the conflicts between options; knows nothing of their effects.

pub(crate) mod bench;
pub(crate) mod configuration;
pub(crate) mod feed;
mod help;
mod http;
pub(crate) mod init;
pub(crate) mod profile;
mod tls;
pub(crate) mod tune;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ringmain_engine::features::Features;
use ringmain_engine::{Addr, Choice, Config, ListenOptions};
use ringmain_sys::listen;
use ringmain_web::process_log::ProcessLogFormat;

pub(crate) use self::help::{Lines, PATHS, Section, bench_sections, run_sections, tune_sections};
pub(crate) use self::http::{AccessLogFormat, Http};
pub(crate) use self::tls::{Tls, TlsMin};
pub(crate) use self::values::{Destination, Time};
use crate::limits::{BACKLOG_MAX, TIME_MAX};
use crate::version;

#[cfg(test)]
mod tests;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Shortest time that an option may set, unless it may be zero.
const MILLISECOND: Duration = Duration::from_millis(1);

/// HTTP server, gateway and realtime push server on io_uring.
///
/// Without a command, `ringmain` is `ringmain run`. Listeners inherited from a service manager or from a previous
/// instance (LISTEN_FDS) are used instead of opening their addresses again.
#[derive(Debug, Parser)]
#[command(name = "ringmain", version, styles = STYLES, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_help = help::run_short_help(), after_long_help = help::run_long_help())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Box<Run>,
    #[command(flatten)]
    help_flags: HelpFlags,
}

/// Flags that print a text and exit; clap handles both.
#[derive(Debug, Args)]
#[command(next_help_heading = "Help")]
struct HelpFlags {
    /// Print help: -h a summary, --help everything
    #[arg(long, short, action = ArgAction::Help, global = true)]
    help: Option<bool>,

    /// Print the version; --version adds the engine and the kernel of this host
    #[arg(long, short = 'V', action = ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a configuration file; without FILE, a built-in demo application
    #[command(after_help = help::run_short_help(), after_long_help = help::run_long_help())]
    Run(Box<Serve>),
    /// Benchmark an HTTP, WebSocket, gRPC or echo server
    #[command(after_help = help::bench_short_help(), after_long_help = help::bench_long_help())]
    Bench(Box<bench::Bench>),
    /// Publish simulated market data to standard output, NATS or a push server
    #[command(after_help = help::FEED)]
    Feed(Box<feed::Feed>),
    /// Profile the CPU time of a process and of the kernel, as a flame graph
    #[command(after_help = help::PROFILE)]
    Profile(Box<profile::Profile>),
    /// Tune this host for a network service: audit, apply, revert, measure
    #[command(after_help = help::tune_short_help(), after_long_help = help::tune_long_help())]
    Tune(Box<tune::Tune>),
    /// Validate a configuration file, and report every error with its position
    #[command(after_help = help::CHECK)]
    Check(configuration::Check),
    /// Show which route a request matches in a configuration file, and why
    #[command(after_help = help::EXPLAIN)]
    Explain(Box<configuration::Explain>),
    /// Write a commented configuration or application to start with; never overwrites a file
    #[command(after_help = help::INIT)]
    Init(init::Init),
    /// Print the JSON Schema of configuration files, for editors
    #[command(after_help = help::SCHEMA)]
    Schema,
    /// Print a shell completion script
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// Shell to generate the script for
        shell: Shell,
    },
    /// Print the manual page (roff)
    #[command(after_help = help::MAN)]
    Man {
        /// Write one page for the program and one for each command into this folder instead
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print the help of a command: ringmain help bench push
    #[command(hide = true)]
    Help {
        /// Command, and its subcommand
        #[arg(value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

impl Cli {
    /// Parses a command line, the program's name first.
    pub(crate) fn parse_args(args: Vec<OsString>) -> Result<Cli, clap::Error> {
        // Probing the engines takes some milliseconds: only `--version` pays for it.
        let definition = if args.iter().any(|arg| arg == "--version") {
            Cli::command().long_version(version::long_version())
        } else {
            Cli::command()
        };
        Cli::from_arg_matches(&definition.try_get_matches_from(args)?)
    }
}

/// Serve until a signal.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Configuration file, such as examples/proxy.yaml; keys: docs/reference/config
    ///
    /// It is reloaded on SIGHUP, and when it or a file that it names changes. A reload closes no connection. A file with
    /// an error is rejected as a whole, and the previous configuration remains active
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) run: Box<Run>,
}

/// The options of `ringmain run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) listen: Listen,
    #[command(flatten)]
    pub(crate) http: Http,
    #[command(flatten)]
    pub(crate) tls: Tls,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) uring: Uring,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct Listen {
    /// Address to listen on; repeatable [default: 127.0.0.1:8080; 8443 with TLS]
    ///
    /// IP address and port (127.0.0.1:80, [::1]:80; :80 is every IPv4 and IPv6 address; for port 0 the kernel chooses
    /// the port), or a Unix socket (unix:/path, unix:@abstract)
    #[arg(long, short, value_name = "ADDR", action = ArgAction::Append)]
    pub(crate) listen: Vec<Addr>,

    /// Length of the accept queue of each listener
    ///
    /// The kernel limits it to the sysctl net.core.somaxconn
    #[arg(long, value_name = "N", default_value_t = ListenOptions::default().backlog, hide_short_help = true,
          value_parser = values::number_in_range(1..=BACKLOG_MAX))]
    pub(crate) backlog: u32,

    /// Accept only IPv6 connections on IPv6 addresses
    #[arg(long, hide_short_help = true)]
    pub(crate) ipv6_only: bool,

    /// Permission bits of Unix sockets, such as 660 [default: set by the umask]
    #[arg(long, value_name = "OCTAL", hide_short_help = true, value_parser = values::parse_unix_mode)]
    pub(crate) unix_mode: Option<u32>,

    /// Owner of Unix sockets, by name or number [default: current user]
    #[arg(long, value_name = "USER[:GROUP]", hide_short_help = true, value_parser = listen::owner)]
    pub(crate) unix_owner: Option<(Option<u32>, Option<u32>)>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Engine {
    /// I/O back-end
    #[arg(long, value_enum, default_value_t = EngineName::Auto)]
    pub(crate) engine: EngineName,

    /// Worker threads [default: one per CPU, more if connections require it]
    #[arg(long, short, value_name = "N", value_parser = values::number_in_range(1..=ringmain_engine::limits::WORKERS))]
    pub(crate) workers: Option<usize>,

    /// Maximum number of connections [default: set by the descriptor limit]
    ///
    /// At the limit the workers stop accepting, and clients wait in the accept queue
    #[arg(long, value_name = "N", value_parser = values::number_in_range(1..=u32::MAX))]
    pub(crate) max_connections: Option<u32>,

    /// Time for open connections to finish at shutdown [default: 30s]
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::ZERO..=TIME_MAX))]
    pub(crate) grace: Option<Time>,

    /// Log a handler that blocks its worker for this long
    #[arg(long, value_name = "TIME", default_value_t = Time(Config::default().stall), hide_short_help = true,
          value_parser = values::time_in_range(MILLISECOND..=TIME_MAX))]
    pub(crate) stall: Time,

    /// Do not pin workers to CPUs (default: pinned, if each has its own CPU and no quota applies)
    #[arg(long, hide_short_help = true)]
    pub(crate) no_pin: bool,

    /// Assign each connection to the worker on the CPU that receives it from this network interface
    ///
    /// If the interface is not configured for it, a warning lists the missing settings, and connections are not steered
    #[arg(
        long,
        value_name = "INTERFACE",
        hide_short_help = true,
        conflicts_with = "no_pin"
    )]
    pub(crate) steer_by_cpu: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "io_uring only")]
pub(crate) struct Uring {
    /// io_uring features to disable, separated by commas
    ///
    /// Names: direct-descriptors, message-ring, multishot-accept, multishot-recv, registered-ring,
    /// zero-copy-send, busy-poll
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub(crate) uring_without: Option<Features>,

    /// Submit from a kernel thread per worker, which sleeps after this idle time [default TIME: 1s]
    ///
    /// Uses one CPU per worker
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s",
          hide_short_help = true, value_parser = values::time_in_range(MILLISECOND..=TIME_MAX))]
    pub(crate) sqpoll: Option<Time>,

    /// Poll the network device (NAPI) for this long before sleeping, such as 50us
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::from_micros(1)..=Duration::from_secs(1)))]
    pub(crate) busy_poll: Option<Time>,

    /// Minimum size of a zero-copy send [default: no zero-copy sends]
    ///
    /// Pays off from 8k to 16k on network devices, never on loopback
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = values::size32_in_range(1..=u32::MAX))]
    pub(crate) zero_copy: Option<u32>,

    /// Receive buffers per worker, 16 KiB each: a power of two, at most 32768
    #[arg(long, value_name = "N", default_value_t = Config::default().receive_buffers, hide_short_help = true,
          value_parser = values::parse_receive_buffers)]
    pub(crate) receive_buffers: u16,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output (standard error)")]
pub(crate) struct Output {
    /// Log the counters at this interval, such as 1s
    #[arg(long, value_name = "TIME", conflicts_with = "quiet",
          value_parser = values::time_in_range(Duration::from_millis(100)..=TIME_MAX))]
    pub(crate) stats: Option<Time>,

    /// Log debug messages; twice: also trace messages
    #[arg(long, short, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Log only warnings and errors; twice: only errors
    #[arg(long, short, action = ArgAction::Count, conflicts_with = "verbose")]
    pub(crate) quiet: u8,

    /// Format of the log [default: RINGMAIN_LOG_FORMAT, then the key `log` of FILE, then text]
    #[arg(long, value_name = "FORMAT", value_enum, hide_short_help = true)]
    pub(crate) log_format: Option<LogFormat>,
}

/// The formats of the process log by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Time, level and text
    Text,
    /// One JSON object per line, errors that end the program included
    Json,
}

impl From<LogFormat> for ProcessLogFormat {
    fn from(format: LogFormat) -> ProcessLogFormat {
        match format {
            LogFormat::Text => ProcessLogFormat::Text,
            LogFormat::Json => ProcessLogFormat::Json,
        }
    }
}

/// The I/O back-ends by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// io_uring if available, otherwise epoll; the log gives the reason
    Auto,
    /// io_uring; an error with the reason if it is not available
    Uring,
    /// epoll, available everywhere
    Epoll,
}

impl Serve {
    /// Describes the first conflict between valid options, if any.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if self.file.is_none() {
            return self.run.contradiction();
        }
        let Run {
            listen,
            http,
            tls,
            engine,
            ..
        } = &*self.run;
        let in_file = [
            ("--echo", http.echo, ""),
            ("--listen", !listen.listen.is_empty(), "listeners"),
            (
                "--max-connections",
                engine.max_connections.is_some(),
                "limits.connections",
            ),
            ("--grace", engine.grace.is_some(), "limits.drain"),
        ];
        if let Some((option, _, key)) = in_file.into_iter().find(|(_, given, _)| *given) {
            return Some(match key {
                "" => format!("{option} cannot be used with a configuration FILE: drop one"),
                key => {
                    format!("{option} is the key `{key}` of a configuration FILE: set it there, or drop FILE")
                }
            });
        }
        // A configuration file has no keys for these.
        let beside = ["--per-address", "--max-queue-delay", "--patience"];
        let mut given = http.given_options().into_iter().chain(tls.given_options());
        match given.find(|option| !beside.contains(option)) {
            Some(option) => Some(format!(
                "{option} is for the built-in application, and a configuration FILE has its own keys for it \
                 (docs/reference/config): drop one"
            )),
            None => self.run.engine_contradiction(),
        }
    }
}

impl Run {
    /// Describes the first conflict between valid options, if any.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if let (true, Some(option)) = (self.http.echo, self.http.given_options().first()) {
            return Some(format!("{option} is for HTTP: drop it, or drop --echo"));
        }
        if let (true, Some(option)) = (self.http.echo, self.tls.given_options().first()) {
            return Some(format!("{option} is for HTTP: drop it, or drop --echo"));
        }
        if let Some(contradiction) = self.tls.contradiction(&self.listen.listen) {
            return Some(contradiction);
        }
        if self.http.access_log_format.is_some() && !self.http.logs_access() {
            return Some("--access-log-format needs a log: add --access-log PATH, or drop it".into());
        }
        if let Some(contradiction) = self.engine_contradiction() {
            return Some(contradiction);
        }
        let listen = &self.listen;
        let has_unix = listen.listen.iter().any(|addr| addr.path().is_some());
        let for_unix = [
            ("--unix-mode", listen.unix_mode.is_some()),
            ("--unix-owner", listen.unix_owner.is_some()),
        ];
        if let Some((option, _)) = for_unix.iter().find(|(_, given)| *given && !has_unix) {
            return Some(format!(
                "{option} needs a Unix socket: add --listen unix:/path, or drop it"
            ));
        }
        let has_v6 = listen
            .listen
            .iter()
            .any(|addr| matches!(addr, Addr::Inet(inet) if inet.is_ipv6()));
        if listen.ipv6_only && !has_v6 {
            return Some("--ipv6-only needs an IPv6 address: add --listen [::]:PORT, or drop it".into());
        }
        None
    }

    fn engine_contradiction(&self) -> Option<String> {
        let uring_only = self.uring_options();
        match (self.engine.engine, uring_only.first()) {
            (EngineName::Epoll, Some(option)) => Some(format!(
                "{option} is for io_uring: drop it, or drop --engine epoll"
            )),
            _ => None,
        }
    }

    /// Returns the given options that only io_uring has.
    pub(crate) fn uring_options(&self) -> Vec<&'static str> {
        let uring = &self.uring;
        let given = [
            ("--uring-without", uring.uring_without.is_some()),
            ("--sqpoll", uring.sqpoll.is_some()),
            ("--busy-poll", uring.busy_poll.is_some()),
            ("--zero-copy", uring.zero_copy.is_some()),
        ];
        given
            .into_iter()
            .filter(|(_, given)| *given)
            .map(|(name, _)| name)
            .collect()
    }

    /// Returns the settings of the engine.
    pub(crate) fn engine_config(&self) -> Config {
        let (engine, uring) = (&self.engine, &self.uring);
        Config {
            engine: match engine.engine {
                EngineName::Auto => Choice::Auto,
                EngineName::Uring => Choice::Uring,
                EngineName::Epoll => Choice::Epoll,
            },
            workers: engine.workers,
            max_connections: engine.max_connections,
            grace: engine.grace.map_or(Config::default().grace, |grace| grace.0),
            pin: !engine.no_pin,
            without: uring.uring_without.unwrap_or(Features::none()),
            sqpoll: uring.sqpoll.map(|time| time.0),
            busy_poll: uring.busy_poll.map(|time| time.0),
            zero_copy: uring.zero_copy,
            steer: engine.steer_by_cpu.clone(),
            stall: engine.stall.0,
            receive_buffers: uring.receive_buffers,
            ..Config::default()
        }
    }

    /// Returns the settings of the listeners.
    pub(crate) fn listen_options(&self) -> ListenOptions {
        ListenOptions {
            backlog: self.listen.backlog,
            v6_only: self.listen.ipv6_only,
            unix_mode: self.listen.unix_mode,
            unix_owner: self.listen.unix_owner,
            ..ListenOptions::default()
        }
    }
}

impl Output {
    /// Returns the level up to which messages are logged.
    pub(crate) fn log_level(&self) -> log::LevelFilter {
        match (self.quiet, self.verbose) {
            (0, 0) => log::LevelFilter::Info,
            (0, 1) => log::LevelFilter::Debug,
            (0, _) => log::LevelFilter::Trace,
            (1, _) => log::LevelFilter::Warn,
            _ => log::LevelFilter::Error,
        }
    }
}
