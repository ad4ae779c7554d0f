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

/// Sample where the CPU time of a process goes, in its own code and in the kernel, and draw it as a flame graph.
///
/// Give the process by --pid, or start one: ringmain profile -- COMMAND. What they start is sampled, too
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Profile {
    /// The process: all of its threads, and the processes that descend from it
    #[arg(long, short, value_name = "PID", value_parser = number_in_range(1..=i32::MAX as u32))]
    pub(crate) pid: Option<u32>,
    /// A command to start and to sample until it ends: a program, and what it is to be called with
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
    /// Compare two profiles: which functions take more or less of the time, beyond chance, and a graph of both
    #[command(after_help = help::PROFILE_DIFF)]
    Diff(Diff),
}

/// How to sample.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Sampling {
    /// For how long [default: 10s; with a COMMAND until it ends]
    ///
    /// A COMMAND that runs for longer is ended by SIGTERM
    #[arg(long, short, value_name = "TIME", value_parser = time_in_range(Duration::from_millis(10)..=TIME_MAX))]
    pub(crate) duration: Option<Time>,

    /// Samples a second of CPU time, each thread
    #[arg(long, short = 'F', value_name = "N", default_value_t = limits::FREQUENCY_DEFAULT,
          value_parser = number_in_range(1..=limits::FREQUENCY))]
    pub(crate) frequency: u32,

    /// How the program's part of stacks is had
    #[arg(long, value_enum, default_value_t = StacksName::Auto)]
    pub(crate) stacks: StacksName,

    /// Bytes of a stack that are copied for each sample [default: 16k]
    ///
    /// More shows deeper stacks and costs more; only where stacks are copied
    #[arg(long, value_name = "SIZE", value_parser = size32_in_range(1024..=COPIED_STACK_BYTES))]
    pub(crate) stack_bytes: Option<u32>,
}

/// How stacks are had, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StacksName {
    /// By frame pointers if the program keeps them, else copied
    Auto,
    /// By frame pointers: cheap; shows nothing of callers if the program keeps none
    Fp,
    /// Copied and unwound by .eh_frame, which nearly every program has
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

/// Where results go. The summary goes to standard output, unless one of these does.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct Results {
    /// Draw a flame graph here, which a browser zooms and searches: user code is blue, the kernel red
    #[arg(long, short = 'o', value_name = "FILE.svg")]
    pub(crate) svg: Option<File>,

    /// Write folded stacks here, a line a stack: for `ringmain profile diff`, and other tools
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<File>,

    /// Write the summary as JSON here
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<File>,

    /// No summary, and no word on what is done
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Compare two profiles.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Folded stacks of before, from --folded
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// Folded stacks of after
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// Draw both in one graph here: orange takes more of the time than before, green less
    #[arg(long, short = 'o', value_name = "FILE.svg")]
    pub(crate) svg: Option<File>,
    /// Write the comparison as JSON here
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<File>,
}

impl Profile {
    /// What is wrong with options that are right one by one, if anything.
    pub(crate) fn contradiction(&self) -> Option<String> {
        match (self.pid, self.run.first()) {
            (None, None) => {
                return Some(
                    "expected what to sample: a process by --pid PID, or a command behind --, such as `ringmain profile -- ./program`"
                        .into(),
                );
            }
            (Some(_), Some(_)) => {
                return Some("--pid and a command are two things to sample: drop one of them".into());
            }
            _ => {}
        }
        if self.sampling.stack_bytes.is_some() && self.sampling.stacks == StacksName::Fp {
            return Some("--stack-bytes is for stacks that are copied: drop it, or drop --stacks fp".into());
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
                "{first} and {second} both go to standard output: give one of them a file"
            )),
            _ => None,
        }
    }
}
