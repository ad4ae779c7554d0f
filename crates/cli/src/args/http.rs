//! Options of the HTTP server: what is served, its deadlines and limits, its access log.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{self, Destination, Size, Time};
use crate::limits::{BODY_LIMIT_MAX, TIME_MAX};

#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct Http {
    /// An echo server instead of HTTP [default --listen: 127.0.0.1:7000]
    #[arg(long)]
    pub(crate) echo: bool,

    /// Connections that one client address may hold at once [default: 1024]
    ///
    /// One more gets 503 and is closed. Those from this host and from Unix sockets do not count
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = values::number_in_range(1..=u32::MAX))]
    pub(crate) per_address: Option<u32>,

    /// How long a client may take for a request's head [default: 10s]
    ///
    /// Longer: 408 if part of it is there, and the connection closes
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) header_timeout: Option<Time>,

    /// How long a connection may wait for its next request [default: 75s]
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) idle_timeout: Option<Time>,

    /// How long a request may wait in a busy worker before it is begun [default: 250ms]
    ///
    /// Longer: 503, so that under overload the others are answered in time. With 1h every request is answered,
    /// however late
    #[arg(long, value_name = "TIME", hide_short_help = true,
          value_parser = values::time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) patience: Option<Time>,

    /// The largest request body that is taken [default: 1MiB]
    ///
    /// A larger one gets 413
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = values::size_in_range(0..=BODY_LIMIT_MAX))]
    pub(crate) body_limit: Option<Size>,

    /// Log requests to a file or to standard output (-) [default: off]
    ///
    /// With a log each answer names its request (X-Request-Id)
    #[arg(long, value_name = "PATH")]
    pub(crate) access_log: Option<Destination>,

    /// What a line of the access log looks like [default: combined]
    #[arg(long, value_name = "FORMAT", value_enum, hide_short_help = true)]
    pub(crate) access_log_format: Option<AccessLogFormat>,
}

/// The forms of an access log's line by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLogFormat {
    /// The Common Log Format: client, time, request line, status, bytes
    Common,
    /// As common, with referrer and user agent
    Combined,
    /// One JSON object a line, with the duration and the request's id
    Json,
}

impl Http {
    /// Options given that only HTTP knows.
    pub(super) fn given_options(&self) -> Vec<&'static str> {
        let given = [
            ("--per-address", self.per_address.is_some()),
            ("--header-timeout", self.header_timeout.is_some()),
            ("--idle-timeout", self.idle_timeout.is_some()),
            ("--patience", self.patience.is_some()),
            ("--body-limit", self.body_limit.is_some()),
            ("--access-log", self.access_log.is_some()),
            ("--access-log-format", self.access_log_format.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        given.map(|(name, _)| name).collect()
    }

    /// Whether requests are logged.
    pub(crate) fn logs_access(&self) -> bool {
        self.access_log
            .as_ref()
            .is_some_and(|log| *log != Destination::Off)
    }
}
