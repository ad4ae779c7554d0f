//! The command line of `ringmain tune measure`: that of a load, and what is tried.

use clap::Args;

use super::{Goals, JournalArgs, ServiceArgs};
use crate::args::bench::values::File;
use crate::args::bench::{Client, Load, Request, Tls, UnderTest};

/// Find what each step is worth here.
#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// Where the load goes, as with ringmain bench
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

    /// Print the ladder as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Write a page with a chart of the ladder, one file that needs no other
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) html: Option<File>,
    /// Say nothing while it runs
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
}
