//! `ringmain bench`: runs a load, shows its progress, and writes the results.
//!
//! Exit codes: 0 done and all thresholds met, 1 failed or a threshold missed, 2 wrong command line. Knows nothing of sending
//! and timing requests.

mod broker;
mod client_tls;
mod compare;
pub(crate) mod interrupt;
mod live;
mod measure;
mod merge;
pub(crate) mod output;
mod push;
mod request;
pub(crate) mod resolve_target;
mod scenario_file;
mod session;
mod single;

use ringmain_load::scenario;

pub(crate) use self::interrupt::Interrupt;
pub(crate) use self::output::{Sink, terminal_style, to_standard_error};
pub(crate) use self::session::BenchSession;
use crate::args::bench::{Bench, BenchCommand};
use crate::error::CliError;
use crate::logging;

/// Runs the command.
pub(crate) fn run_bench(mut args: Bench) -> Result<(), CliError> {
    match args.command.take() {
        None => single::run(args),
        Some(BenchCommand::Compare(args)) => compare::run(*args),
        Some(BenchCommand::Push(args)) => push::run(&args),
        Some(BenchCommand::Merge { files, output, json }) => merge::run(&files, output.as_deref(), json),
        Some(BenchCommand::Check { scenario }) => scenario_file::check_scenario(&scenario),
        Some(BenchCommand::Schema { results: false }) => {
            output::to_standard_output(&format!("{:#}", scenario::schema()))
        }
        Some(BenchCommand::Schema { results: true }) => {
            let schema = ringmain_load::report::json::schema();
            output::to_standard_output(&format!("{:#}", schema.as_value()))
        }
    }
}

/// Blocks signals and starts the log; called before the first thread.
pub(crate) fn init_process(quiet: bool) -> Result<Interrupt, CliError> {
    let interrupt = Interrupt::install()?;
    let level = if quiet {
        log::LevelFilter::Error
    } else {
        log::LevelFilter::Warn
    };
    logging::start_log(level)
        .map_err(|error| CliError::Other(format!("cannot start the log thread: {error}")))?;
    Ok(interrupt)
}
