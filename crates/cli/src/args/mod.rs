//! The command line: each option defined once, which gives parsing, help and errors.
//!
//! Knows how values are written and which of them make no sense together; not what is done with them.

use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use ringmain_engine::features::Features;
use ringmain_engine::{Addr, Choice, Config, ListenOptions};
use ringmain_sys::listen;

use crate::limits::{BACKLOG_MAX, SECONDS_MAX};

#[cfg(test)]
mod tests;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// One engine that serves, routes and pushes HTTP and realtime traffic on io_uring.
#[derive(Debug, Parser)]
#[command(name = "ringmain", version, styles = STYLES, max_term_width = 100)]
#[command(subcommand_required = true, disable_help_subcommand = true, after_help = FIRST_STEPS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until a signal ends it
    Run(Box<Run>),
}

const FIRST_STEPS: &str = "\
Try it:
  ringmain run --echo   an echo server on 127.0.0.1:7000
  ringmain run --help   its options, with examples";

const SIGNALS_AND_EXAMPLES: &str = "\
Signals:
  SIGTERM, SIGINT  accept no more, let open connections finish (--grace); a second one ends them
  SIGQUIT          end at once
  SIGUSR2          start this program anew and hand it the listeners; no client is refused

Exit codes:
  0  ended by a signal
  1  failed
  2  wrong command line

Examples:
  ringmain run --echo
  ringmain run --echo --listen :7000 --listen unix:/run/echo.sock --unix-mode 660
  ringmain run --echo --engine epoll --workers 1 --stats 1
  ringmain run --echo --listen 127.0.0.1:7000 --max-connections 80000";

/// Serve until a signal ends it.
///
/// Today this is an echo server (--echo): every byte comes back. Listeners handed over by a service
/// manager or a former instance (LISTEN_FDS) are used instead of opening the same addresses anew.
#[derive(Debug, Args)]
#[command(after_help = SIGNALS_AND_EXAMPLES)]
pub(crate) struct Run {
    /// Send every byte back
    #[arg(long)]
    pub(crate) echo: bool,

    #[command(flatten)]
    pub(crate) listen: Listen,
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
    /// Where to listen; may be given several times [default: 127.0.0.1:7000]
    ///
    /// An IP address and port (127.0.0.1:80, [::1]:80; :80 is every IPv4 and IPv6 address; port 0 lets the
    /// kernel choose), or a Unix socket (unix:/path, unix:@abstract)
    #[arg(long, short, value_name = "ADDR", action = ArgAction::Append)]
    pub(crate) listen: Vec<Addr>,

    /// Connections that may wait to be accepted, at each address
    ///
    /// The kernel clamps it by the sysctl net.core.somaxconn
    #[arg(long, value_name = "N", default_value_t = ListenOptions::default().backlog,
          value_parser = clap::value_parser!(u32).range(1..=BACKLOG_MAX))]
    pub(crate) backlog: u32,

    /// IPv6 addresses take no IPv4 connections
    #[arg(long)]
    pub(crate) ipv6_only: bool,

    /// Permission bits of Unix sockets, such as 660 [default: by the umask]
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    pub(crate) unix_mode: Option<u32>,

    /// Owner of Unix sockets, by name or number [default: this user]
    #[arg(long, value_name = "USER[:GROUP]", value_parser = listen::owner)]
    pub(crate) unix_owner: Option<(Option<u32>, Option<u32>)>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Engine {
    /// How to talk to the kernel; auto takes io_uring where it works, else epoll, and says why
    #[arg(long, value_enum, default_value_t = EngineName::Auto)]
    pub(crate) engine: EngineName,

    /// Worker threads [default: one a CPU that this process may use, more if connections need them]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=ringmain_engine::limits::WORKERS as i64))]
    pub(crate) workers: Option<u16>,

    /// Connections held at once, all workers together [default: as the descriptor limit allows]
    ///
    /// Beyond it accepting pauses and clients wait in the backlog
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,

    /// Seconds that open connections may take to finish at shutdown
    #[arg(long, value_name = "SECONDS", default_value_t = Config::default().grace.as_secs(),
          value_parser = clap::value_parser!(u64).range(0..=SECONDS_MAX))]
    pub(crate) grace: u64,

    /// Milliseconds after which a handler that holds its worker is named in the log
    #[arg(long, value_name = "MS", default_value_t = Config::default().stall.as_millis() as u64,
          value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX * 1000))]
    pub(crate) stall: u64,

    /// Do not pin workers to CPUs (done only if there is one for each and no CPU quota)
    #[arg(long)]
    pub(crate) no_pin: bool,

    /// Steer each connection to the worker on the CPU that receives it from this network interface
    ///
    /// If the interface is not set up for that, a warning says what is missing and nothing is steered
    #[arg(long, value_name = "INTERFACE", conflicts_with = "no_pin")]
    pub(crate) steer_by_cpu: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "io_uring only")]
pub(crate) struct Uring {
    /// Features not to use, separated by commas
    ///
    /// Out of: direct-descriptors, message-ring, multishot-accept, multishot-recv, registered-ring,
    /// zero-copy-send, busy-poll
    #[arg(long, value_name = "LIST")]
    pub(crate) uring_without: Option<Features>,

    /// A kernel thread submits for each worker, spinning until idle for MS milliseconds [default MS: 1000]
    ///
    /// Costs a CPU a worker
    #[arg(long, value_name = "MS", num_args = 0..=1, default_missing_value = "1000",
          value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX * 1000))]
    pub(crate) sqpoll: Option<u64>,

    /// Microseconds to poll the network device (NAPI) before sleeping
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) busy_poll: Option<u64>,

    /// Send without copying from so many bytes on
    ///
    /// Pays from 8 to 16 KiB on real devices and never on loopback
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) zero_copy: Option<u32>,

    /// Receive buffers of 16 KiB a worker: a power of two up to 32768
    #[arg(long, value_name = "N", default_value_t = Config::default().receive_buffers, value_parser = buffers)]
    pub(crate) receive_buffers: u16,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output (standard error)")]
pub(crate) struct Output {
    /// Say the counters every so many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "quiet",
          value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub(crate) stats: Option<u64>,

    /// Say more; twice: everything
    #[arg(long, short, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Warnings and errors only; twice: errors only
    #[arg(long, short, action = ArgAction::Count, conflicts_with = "verbose")]
    pub(crate) quiet: u8,
}

/// The back-end by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    Auto,
    Uring,
    Epoll,
}

impl Run {
    /// What is wrong with options that are right one by one, if anything.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if !self.echo {
            return Some(
                "expected --echo: the echo server is all that `ringmain run` can do today; run: ringmain run --echo"
                    .into(),
            );
        }
        let uring_only = self.uring_options();
        if let (EngineName::Epoll, Some(option)) = (self.engine.engine, uring_only.first()) {
            return Some(format!(
                "{option} is for io_uring: drop it, or drop --engine epoll"
            ));
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

    /// Options given that only io_uring knows.
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

    /// The engine's settings.
    pub(crate) fn config(&self) -> Config {
        let (engine, uring) = (&self.engine, &self.uring);
        Config {
            engine: match engine.engine {
                EngineName::Auto => Choice::Auto,
                EngineName::Uring => Choice::Uring,
                EngineName::Epoll => Choice::Epoll,
            },
            workers: engine.workers.map(usize::from),
            max_connections: engine.max_connections,
            grace: Duration::from_secs(engine.grace),
            pin: !engine.no_pin,
            without: uring.uring_without.unwrap_or(Features::none()),
            sqpoll: uring.sqpoll.map(Duration::from_millis),
            busy_poll: uring.busy_poll.map(Duration::from_micros),
            zero_copy: uring.zero_copy,
            steer: engine.steer_by_cpu.clone(),
            stall: Duration::from_millis(engine.stall),
            receive_buffers: uring.receive_buffers,
            ..Config::default()
        }
    }

    /// The listeners' settings.
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
    /// How much is said.
    pub(crate) fn level(&self) -> log::LevelFilter {
        match (self.quiet, self.verbose) {
            (0, 0) => log::LevelFilter::Info,
            (0, 1) => log::LevelFilter::Debug,
            (0, _) => log::LevelFilter::Trace,
            (1, _) => log::LevelFilter::Warn,
            _ => log::LevelFilter::Error,
        }
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("expected octal permission bits from 0 to 777, such as 660; found `{text}`"))
}

fn buffers(text: &str) -> Result<u16, String> {
    let count = text
        .parse()
        .ok()
        .filter(|n: &u16| n.is_power_of_two() && *n <= 32_768);
    count.ok_or_else(|| format!("expected a power of two from 1 to 32768; found `{text}`"))
}
