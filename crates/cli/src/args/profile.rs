//! The command line of `ringmain profile`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ringmain_sys::perf::COPIED_STACK_BYTES;
use ringmain_tune::profile::{Stacks, limits};

use super::bench::values::File;
use super::help;
use super::values::{Time, number_in_range, size32_in_range, time_in_range};
use crate::limits::TIME_MAX;

/// Sample the CPU time of a process, in user space and in the kernel, and draw it as a flame graph.
///
/// Select the process with --pid, or start one: ringmain profile -- COMMAND. Its child processes are sampled, too
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Profile {
    /// Process to sample, with all its threads and descendants
    #[arg(long, short, value_name = "PID", value_parser = number_in_range(1..=i32::MAX as u32))]
    pub(crate) pid: Option<u32>,
    /// Command to start and to sample until it exits, with its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) run: Vec<OsString>,
    #[command(flatten)]
    pub(crate) sampling: Sampling,
    #[command(flatten)]
    pub(crate) results: Results,
    #[command(subcommand)]
    pub(crate) command: Option<ProfileCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Compare two profiles: functions whose share of the time changed significantly, and a graph of both
    #[command(after_help = help::PROFILE_DIFF)]
    Diff(Diff),
}

/// The sampling options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Sampling {
    /// Duration [default: 10s; with a COMMAND until it exits]
    ///
    /// A COMMAND that runs longer is stopped by SIGTERM
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(Duration::from_millis(10)..=TIME_MAX))]
    pub(crate) duration: Option<Time>,

    /// Samples per second of CPU time of each thread
    #[arg(long, short = 'F', value_name = "N", default_value_t = limits::FREQUENCY_DEFAULT,
          value_parser = number_in_range(1..=limits::FREQUENCY))]
    pub(crate) frequency: u32,

    /// Stack unwinding method for user space
    #[arg(long, value_enum, default_value_t = StacksName::Auto)]
    pub(crate) stacks: StacksName,

    /// Bytes of the stack copied for each sample [default: 16k]
    ///
    /// A larger value shows deeper stacks and costs more; only for copied stacks
    #[arg(long, value_name = "SIZE", value_parser = size32_in_range(1024..=COPIED_STACK_BYTES))]
    pub(crate) stack_bytes: Option<u32>,
}

/// Stack unwinding methods by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StacksName {
    /// Frame pointers if the program has them, otherwise copied stacks
    Auto,
    /// Frame pointers: cheap; no callers if the program is built without them
    Fp,
    /// Copied stacks, unwound with .eh_frame, which nearly every program has
    Copy,
}

impl From<StacksName> for Stacks {
    fn from(name: StacksName) -> Stacks {
        match name {
            StacksName::Auto => Stacks::Auto,
            StacksName::Fp => Stacks::FramePointers,
            StacksName::Copy => Stacks::Copied,
        }
    }
}

/// The outputs. The summary is printed to standard output, unless one of these is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Results {
    /// Write a flame graph (SVG with zoom and search): user space blue, kernel red
    #[arg(long, short = 'o', value_name = "FILE.svg")]
    pub(crate) svg: Option<File>,

    /// Write folded stacks, one per line, for `ringmain profile diff` and other tools
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<File>,

    /// Write the summary as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<File>,

    /// Print neither the summary nor progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Compare two profiles.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Folded stacks before the change, from --folded
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// Folded stacks after the change
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// Write a differential flame graph (SVG): orange for a larger share of the time, green for a smaller one
    #[arg(long, short = 'o', value_name = "FILE.svg")]
    pub(crate) svg: Option<File>,
    /// Write the comparison as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<File>,
}

impl Profile {
    /// Describes the first conflict between valid options, if any.
    pub(crate) fn contradiction(&self) -> Option<String> {
        match (self.pid, self.run.first()) {
            (None, None) => {
                return Some(
                    "expected a process to sample: --pid PID, or a command after --, such as `ringmain profile -- ./program`"
                        .into(),
                );
            }
            (Some(_), Some(_)) => {
                return Some("--pid and a command cannot be used together: drop one".into());
            }
            _ => {}
        }
        if self.sampling.stack_bytes.is_some() && self.sampling.stacks == StacksName::Fp {
            return Some("--stack-bytes is for copied stacks: drop it, or drop --stacks fp".into());
        }
        let results = &self.results;
        let files = [
            ("--svg", &results.svg),
            ("--folded", &results.folded),
            ("--json", &results.json),
        ];
        let outputs = files
            .iter()
            .filter(|(_, file)| file.as_ref().is_some_and(File::is_standard_output));
        let outputs: Vec<&str> = outputs.map(|(option, _)| *option).collect();
        match outputs[..] {
            [first, second, ..] => Some(format!(
                "{first} and {second} both write to standard output: name a file for one"
            )),
            _ => None,
        }
    }
}
