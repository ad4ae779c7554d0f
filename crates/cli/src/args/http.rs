//! Options of the HTTP server: its deadlines and limits, and its access log.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{self, Destination, Size, Time};
use crate::limits::{BODY_LIMIT_MAX, TIME_MAX};

#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct Http {
    /// Run a TCP echo server instead of HTTP [default --listen: 127.0.0.1:7000]
    #[arg(long)]
    pub(crate) echo: bool,

    /// Maximum number of connections per client address [default: 1024]
    ///
    /// Further connections receive 503 and are closed. Connections from this host and over Unix sockets do not count
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = values::number_in_range(1..=u32::MAX))]
    pub(crate) per_address: Option<u32>,

    /// Timeout for receiving a request head [default: 10s]
    ///
    /// On expiry the connection is closed, after 408 if a part of the head was received
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) header_timeout: Option<Time>,

    /// Timeout of an idle keep-alive connection [default: 75s]
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) idle_timeout: Option<Time>,

    /// Maximum time that a request waits for a busy worker [default: 250ms]
    ///
    /// A request that waited longer receives 503, so that under overload the others are answered in time. With 1h
    /// every request is answered, however late
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) max_queue_delay: Option<Time>,

    /// Deprecated: use --max-queue-delay
    #[arg(long, value_name = "TIME", hide = true, conflicts_with = "max_queue_delay",
          value_parser = values::time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) patience: Option<Time>,

    /// Maximum size of a request body [default: 1MiB]
    ///
    /// A larger body receives 413
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = values::size_in_range(0..=BODY_LIMIT_MAX))]
    pub(crate) body_limit: Option<Size>,

    /// Write an access log to a file or to standard output (-) [default: off]
    ///
    /// With an access log each response has the request's id (X-Request-Id)
    #[arg(long, value_name = "PATH")]
    pub(crate) access_log: Option<Destination>,

    /// Format of the access log [default: combined]
    #[arg(long, value_name = "FORMAT", value_enum, hide_short_help = true)]
    pub(crate) access_log_format: Option<AccessLogFormat>,
}

/// The formats of the access log by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLogFormat {
    /// The Common Log Format: client, time, request line, status, bytes
    Common,
    /// Common with referrer and user agent
    Combined,
    /// One JSON object per line, with duration and request id
    Json,
}

impl Http {
    /// Returns the given options that only HTTP has.
    pub(super) fn given_options(&self) -> Vec<&'static str> {
        let given = [
            ("--per-address", self.per_address.is_some()),
            ("--header-timeout", self.header_timeout.is_some()),
            ("--idle-timeout", self.idle_timeout.is_some()),
            ("--max-queue-delay", self.max_queue_delay.is_some()),
            ("--patience", self.patience.is_some()),
            ("--body-limit", self.body_limit.is_some()),
            ("--access-log", self.access_log.is_some()),
            ("--access-log-format", self.access_log_format.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        given.map(|(name, _)| name).collect()
    }

    /// Returns the maximum queue delay, by its name or by the deprecated one.
    pub(crate) fn queue_delay_limit(&self) -> Option<Duration> {
        self.max_queue_delay.or(self.patience).map(|time| time.0)
    }

    /// Returns a warning for each deprecated option that was given.
    pub(crate) fn deprecations(&self) -> Vec<&'static str> {
        let patience = "`--patience` is deprecated, use `--max-queue-delay`";
        self.patience.iter().map(|_| patience).collect()
    }

    /// Returns whether requests are logged.
    pub(crate) fn logs_access(&self) -> bool {
        self.access_log
            .as_ref()
            .is_some_and(|log| *log != Destination::Off)
    }
}
