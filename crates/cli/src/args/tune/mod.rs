//! The command line of `ringmain tune`: goals, service, steps.
//!
//! Owns the syntax of goals; knows nothing of their execution.

mod measure;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use ringmain_tune::catalogue::{Accept, Id, Profile};

pub(crate) use self::measure::Measure;
use super::help;
use super::values::number_in_range;

/// The default directory of the journal of changes: that of the exported unit. It is not below `/var/lib/ringmain`, whose owner is the user of
/// the server.
const STATE: &str = "/var/lib/ringmain-tune";

/// Audit the settings of this host for a network service, apply changes, and revert them.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) goals: Goals,
    /// Describe a step: purpose, evidence, side effects, state on this host
    #[arg(long, value_name = "STEP", hide_possible_values = true, value_parser = step_parser())]
    pub(crate) explain: Option<Id>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Option<TuneCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Show every change that `apply` would make, without making it
    Plan {
        #[command(flatten)]
        service: ServiceArgs,
        #[command(flatten)]
        goals: Goals,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Apply the plan; each change is journaled before and verified after
    #[command(after_help = help::TUNE_APPLY)]
    Apply(Apply),
    /// Revert the applied changes, also those of a run that was killed
    #[command(after_help = help::TUNE_REVERT)]
    Revert {
        #[command(flatten)]
        journal_args: JournalArgs,
        #[command(flatten)]
        host: HostArgs,
        /// Restore the previous values of settings that were changed by others since
        #[arg(long, conflicts_with = "forget")]
        force: bool,
        /// Keep settings that were changed by others since, and remove them from the journal
        #[arg(long)]
        forget: bool,
    },
    /// Show the applied changes, and whether they are still effective
    Status {
        #[command(flatten)]
        journal_args: JournalArgs,
        #[command(flatten)]
        host: HostArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print all settings that the steps cover as JSON
    Snapshot {
        #[command(flatten)]
        host: HostArgs,
    },
    /// Compare two snapshots, or a snapshot and the current state
    Diff {
        /// First snapshot
        #[arg(value_name = "A.json")]
        first: PathBuf,
        /// Second snapshot [default: current state of this host]
        #[arg(value_name = "B.json")]
        second: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print the plan and the applied changes as a file that makes them persistent
    #[command(after_help = help::TUNE_EXPORT)]
    Export {
        /// File format
        #[arg(long = "as", value_enum)]
        format: ExportFormat,
        /// Container image with ringmain, for Kubernetes
        #[arg(long, value_name = "IMAGE", default_value = "ringmain:latest")]
        image: String,
        #[command(flatten)]
        service: ServiceArgs,
        #[command(flatten)]
        goals: Goals,
        #[command(flatten)]
        journal_args: JournalArgs,
    },
    /// Show the path of packets (queue, interrupt, CPU, worker), and the assignment that keeps it on one CPU
    Locality {
        #[command(flatten)]
        service: ServiceArgs,
        /// Admin address of a running Ringmain, for the connections of each worker
        #[arg(long, value_name = "IP:PORT")]
        admin: Option<std::net::SocketAddr>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Measure the effect of each step under load, and keep the steps that help
    #[command(after_help = help::TUNE_MEASURE)]
    Measure(Box<Measure>),
}

/// Apply the plan.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) goals: Goals,
    #[command(flatten)]
    pub(crate) journal_args: JournalArgs,
    /// Keep running, and revert all changes on SIGTERM or Ctrl-C
    #[arg(long)]
    pub(crate) hold: bool,
}

/// The service and its host.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServiceArgs {
    /// TCP port of the service
    #[arg(long, value_name = "PORT", value_parser = number_in_range(1..=u16::MAX))]
    pub(crate) port: Option<u16>,
    /// Process of the service
    #[arg(long, value_name = "PID", value_parser = number_in_range(1..=u32::MAX))]
    pub(crate) pid: Option<u32>,
    /// Network interface of the service [default: that of the default route]
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// The host.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct HostArgs {
    /// Directory with a recorded host (proc, sys, calls), to use instead of this one
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) root: Option<PathBuf>,
}

/// The goals of the tuning.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Goals")]
pub(crate) struct Goals {
    /// Optimization goal
    #[arg(long, value_enum, default_value_t = ProfileName::Throughput)]
    pub(crate) profile: ProfileName,
    /// Only this step; repeatable [default: all but the optional ones]
    #[arg(long, value_name = "STEP", action = ArgAction::Append, hide_possible_values = true, value_parser = step_parser())]
    pub(crate) step: Vec<Id>,
    /// Accept a change that weakens security or can drop packets, by its name; repeatable
    ///
    /// Without it such changes are neither made nor planned
    #[arg(long, value_name = "NAME", action = ArgAction::Append, hide_possible_values = true, value_parser = accept_parser())]
    pub(crate) accept: Vec<Accept>,
}

/// The journal of changes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Journal")]
pub(crate) struct JournalArgs {
    /// Directory of the journal of changes
    #[arg(long, value_name = "DIR", default_value = STATE)]
    pub(crate) state: PathBuf,
}

/// The output format.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Optimization goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// Maximum requests per second
    Throughput,
    /// Minimum latency of each request
    Latency,
    /// Minimum CPU time and power per request
    Efficiency,
}

/// File formats of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// File for sysctl.d
    Sysctl,
    /// systemd unit that applies the plan at boot
    Systemd,
    /// DaemonSet that applies the plan on every node
    Kubernetes,
    /// Seccomp profile of the system calls that Ringmain makes, for container runtimes
    Seccomp,
}

impl JournalArgs {
    /// Describes the conflict of a recorded host with the journal of this one, if any.
    pub(crate) fn contradiction(&self, host: &HostArgs) -> Option<String> {
        let mixed = host.root.is_some() && self.state == Path::new(STATE);
        mixed.then(|| "--root is another host, which needs its own journal: add --state DIR".to_owned())
    }
}

impl ProfileName {
    /// Returns the profile of the step catalogue.
    pub(crate) fn tuner_profile(self) -> Profile {
        match self {
            ProfileName::Throughput => Profile::Throughput,
            ProfileName::Latency => Profile::Latency,
            ProfileName::Efficiency => Profile::Efficiency,
        }
    }
}

fn step_parser() -> impl TypedValueParser<Value = Id> {
    let names = Id::ALL
        .iter()
        .map(|id| PossibleValue::new(id.name()).help(id.step().title));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Id>())
}

fn accept_parser() -> impl TypedValueParser<Value = Accept> {
    let names = Accept::ALL.map(|one| PossibleValue::new(one.name()).help(one.meaning()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Accept>())
}
