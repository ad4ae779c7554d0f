//! The command line of `ringmain feed`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::bench::values::parse_request_rate;
use super::values::{Time, number_in_range, size32_in_range, time_in_range};
use crate::limits::{FEED_BYTES, FEED_SYMBOLS, TIME_MAX};

/// Publish simulated market data: share prices that follow a random walk, at a given rate, for tests and demonstrations.
#[derive(Debug, Args)]
pub(crate) struct Feed {
    /// Receiver: - (standard output, one JSON line per trade), nats://HOST[:PORT] or tls://HOST[:PORT] (NATS), or
    /// http://HOST[:PORT][/PATH] (push server; default path: /api/publish)
    #[arg(value_name = "TO", default_value = "-")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) market: MarketArgs,
    #[command(flatten)]
    pub(crate) receiver: ReceiverArgs,
}

/// The simulated market.
#[derive(Debug, Args)]
#[command(next_help_heading = "Market")]
pub(crate) struct MarketArgs {
    /// Number of shares
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number_in_range(1..=FEED_SYMBOLS))]
    pub(crate) symbols: usize,

    /// Trades per second, all shares together
    #[arg(long, short, value_name = "RATE", default_value = "1k", value_parser = parse_rate)]
    pub(crate) rate: f64,

    /// Distribution of trades over the shares
    #[arg(long, value_enum, default_value_t = Distribution::Zipf)]
    pub(crate) distribution: Distribution,

    /// Minimum size of a trade in bytes, reached by padding [default: no padding, about 75]
    #[arg(long, short, value_name = "SIZE", value_parser = size32_in_range(1..=FEED_BYTES))]
    pub(crate) size: Option<u32>,

    /// Random seed; the same seed generates the same trades [default: random, printed at startup]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Duration [default: until Ctrl-C]
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) duration: Option<Time>,
}

/// Distributions of trades over the shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// The n-th share 1/n as often as the first
    Zipf,
    /// All shares equally often
    Uniform,
}

/// The receiver of trades.
#[derive(Debug, Args)]
#[command(next_help_heading = "Receiver")]
pub(crate) struct ReceiverArgs {
    /// NATS: subject of a trade; {symbol} is replaced by its share
    #[arg(long, value_name = "TEXT", default_value = "market.{symbol}")]
    pub(crate) subject: String,

    /// NATS: credentials file
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: Option<PathBuf>,

    /// NATS over TLS: trusted certificate authorities (PEM) [default: those of the host]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// Push server: channel of a trade; {symbol} is replaced by its share
    #[arg(long, value_name = "TEXT", default_value = "market:{symbol}")]
    pub(crate) channel: String,

    /// Push server: API key (X-API-Key). Other users of the host can see arguments: prefer the variable or
    /// --api-key-file
    #[arg(long, value_name = "KEY", env = "RINGMAIN_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,

    /// Push server: file whose first line is the API key; overrides --api-key
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,

    /// Print only warnings and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_request_rate(text)
        .map_err(|_| "expected trades per second, more than 0, such as 200, 2.5k or 1m".to_owned())
}
