//! The command line of `ringmain feed`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::bench::values::parse_request_rate;
use super::values::{Time, number_in_range, size32_in_range, time_in_range};
use crate::limits::{FEED_BYTES, FEED_SYMBOLS, TIME_MAX};

/// Publish a made-up market: shares whose prices wander, at a rate, for tests and shows of what pushes them on.
#[derive(Debug, Args)]
pub(crate) struct Feed {
    /// Where to: - (standard output, a line of JSON a trade), nats://HOST[:PORT] or tls://HOST[:PORT] (a NATS), or
    /// http://HOST[:PORT][/PATH] (a push server; /api/publish if there is no path)
    #[arg(value_name = "TO", default_value = "-")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) market: MarketArgs,
    #[command(flatten)]
    pub(crate) receiver: ReceiverArgs,
}

/// What is traded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Market")]
pub(crate) struct MarketArgs {
    /// Shares
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number_in_range(1..=FEED_SYMBOLS))]
    pub(crate) symbols: usize,

    /// Trades a second, all shares together
    #[arg(long, short, value_name = "RATE", default_value = "1k", value_parser = parse_rate)]
    pub(crate) rate: f64,

    /// Which share is traded next
    #[arg(long, value_enum, default_value_t = Distribution::Zipf)]
    pub(crate) distribution: Distribution,

    /// Bytes of a trade at least: what it says is filled up [default: as long as it is, about 75]
    #[arg(long, short, value_name = "SIZE", value_parser = size32_in_range(1..=FEED_BYTES))]
    pub(crate) size: Option<u32>,

    /// What trades are drawn by: the same are made of the same number [default: another one each time, which is said]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// For how long [default: until Ctrl-C]
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(Duration::from_millis(1)..=TIME_MAX))]
    pub(crate) duration: Option<Time>,
}

/// Which share is traded next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// Few of them most of the time: the n-th a n-th as often as the first
    Zipf,
    /// Each as often as any other
    Uniform,
}

/// Whom it is published to.
#[derive(Debug, Args)]
#[command(next_help_heading = "Receiver")]
pub(crate) struct ReceiverArgs {
    /// A NATS: the subject of a trade; {symbol} is its share
    #[arg(long, value_name = "TEXT", default_value = "market.{symbol}")]
    pub(crate) subject: String,

    /// A NATS: a file of credentials to sign in by
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: Option<PathBuf>,

    /// A NATS with TLS: believe it if these authorities have issued its certificate (PEM) [default: those that the host trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// A push server: the channel of a trade; {symbol} is its share
    #[arg(long, value_name = "TEXT", default_value = "market:{symbol}")]
    pub(crate) channel: String,

    /// A push server: the key that programs send in X-API-Key; other users of the host see arguments, so name it by the variable or a
    /// file
    #[arg(long, value_name = "KEY", env = "RINGMAIN_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,

    /// A push server: a file whose first line is the key; it precedes --api-key
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,

    /// Say nothing but what is wrong
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_request_rate(text)
        .map_err(|_| "expected trades a second, more than 0, such as 200, 2.5k or 1m".to_owned())
}
