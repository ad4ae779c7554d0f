//! The command line of `ringmain tune measure`: a load, and the steps to measure.

use clap::Args;

use super::{Goals, JournalArgs, ServiceArgs};
use crate::args::bench::values::File;
use crate::args::bench::{Client, Load, Request, Tls, UnderTest};

/// Measure the effect of each step on this host.
#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// Target URL, as for ringmain bench
    #[arg(value_name = "URL")]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) goals: Goals,
    #[command(flatten)]
    pub(crate) journal_args: JournalArgs,
    #[command(flatten)]
    pub(crate) load: Load,
    #[command(flatten)]
    pub(crate) request: Request,
    #[command(flatten)]
    pub(crate) tls: Tls,
    #[command(flatten)]
    pub(crate) client: Client,
    #[command(flatten)]
    pub(crate) server: UnderTest,

    /// Print the results as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Write an HTML report with a chart, in one self-contained file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) html: Option<File>,
    /// Print no progress
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
}
