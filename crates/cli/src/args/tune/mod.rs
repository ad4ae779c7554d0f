//! The command line of `ringmain tune`: what it is tuned for, which service, which steps.
//!
//! Knows how wishes are written down; not how they are carried out.

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

/// Where it is written down what was changed on this host.
const STATE: &str = "/var/lib/ringmain/tune";

/// Find what this host costs a service, change it, and take it back.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) goals: Goals,
    /// Say all about a step: what it is, whose figures these are, when not to, what it means here
    #[arg(long, value_name = "STEP", hide_possible_values = true, value_parser = step_parser())]
    pub(crate) explain: Option<Id>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Option<TuneCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Show every write that `apply` would do, and change nothing
    Plan {
        #[command(flatten)]
        service: ServiceArgs,
        #[command(flatten)]
        goals: Goals,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Change what the plan says: written down before, verified after
    #[command(after_help = help::TUNE_APPLY)]
    Apply(Apply),
    /// Take back what was applied, also by a run that was killed
    #[command(after_help = help::TUNE_REVERT)]
    Revert {
        #[command(flatten)]
        journal_args: JournalArgs,
        #[command(flatten)]
        host: HostArgs,
        /// Write what was there before although somebody else has changed it since
        #[arg(long, conflicts_with = "forget")]
        force: bool,
        /// Leave what somebody else has changed since, and forget it
        #[arg(long)]
        forget: bool,
    },
    /// Say what is applied, and whether it still holds
    Status {
        #[command(flatten)]
        journal_args: JournalArgs,
        #[command(flatten)]
        host: HostArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write all settings that the steps know as JSON
    Snapshot {
        #[command(flatten)]
        host: HostArgs,
    },
    /// Say what differs between two snapshots, or a snapshot and now
    Diff {
        /// The first
        #[arg(value_name = "A.json")]
        first: PathBuf,
        /// The second [default: this host, now]
        #[arg(value_name = "B.json")]
        second: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print the plan, and what is applied already, as a file that keeps it over restarts
    #[command(after_help = help::TUNE_EXPORT)]
    Export {
        /// The form
        #[arg(long = "as", value_enum)]
        format: ExportFormat,
        /// The image that has ringmain, for Kubernetes
        #[arg(long, value_name = "IMAGE", default_value = "ringmain:latest")]
        image: String,
        #[command(flatten)]
        service: ServiceArgs,
        #[command(flatten)]
        goals: Goals,
        #[command(flatten)]
        journal_args: JournalArgs,
    },
    /// Draw the way of packets: queue, interrupt, CPU, worker; and the assignment that makes it straight
    Locality {
        #[command(flatten)]
        service: ServiceArgs,
        /// The administration of a running Ringmain, which tells the connections of each worker
        #[arg(long, value_name = "IP:PORT")]
        admin: Option<std::net::SocketAddr>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Find what each step is worth here: apply it, put a load on the server, keep it only if it helps
    #[command(after_help = help::TUNE_MEASURE)]
    Measure(Box<Measure>),
}

/// Change what the plan says.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(flatten)]
    pub(crate) goals: Goals,
    #[command(flatten)]
    pub(crate) journal_args: JournalArgs,
    /// Stay, and take all back at SIGTERM or Ctrl-C
    #[arg(long)]
    pub(crate) hold: bool,
}

/// Which service, on which host.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServiceArgs {
    /// The TCP port that the service listens on
    #[arg(long, value_name = "PORT", value_parser = number_in_range(1..=u16::MAX))]
    pub(crate) port: Option<u16>,
    /// Its process
    #[arg(long, value_name = "PID", value_parser = number_in_range(1..=u32::MAX))]
    pub(crate) pid: Option<u32>,
    /// The network interface that its packets come by [default: that of the default route]
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Which host.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct HostArgs {
    /// A host recorded in a directory (proc, sys, calls) instead of this one
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) root: Option<PathBuf>,
}

/// What is wanted.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Wish")]
pub(crate) struct Goals {
    /// What it is tuned for
    #[arg(long, value_enum, default_value_t = ProfileName::Throughput)]
    pub(crate) profile: ProfileName,
    /// Only this step; may be given several times [default: all that are not optional]
    #[arg(long, value_name = "STEP", action = ArgAction::Append, hide_possible_values = true, value_parser = step_parser())]
    pub(crate) step: Vec<Id>,
    /// Accept what weakens the host or can drop packets, by its name; may be given several times
    ///
    /// Nothing of it is done or proposed as a change without this
    #[arg(long, value_name = "NAME", action = ArgAction::Append, hide_possible_values = true, value_parser = accept_parser())]
    pub(crate) accept: Vec<Accept>,
}

/// Where it is written down what was changed.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Journal")]
pub(crate) struct JournalArgs {
    /// The directory that remembers what was changed
    #[arg(long, value_name = "DIR", default_value = STATE)]
    pub(crate) state: PathBuf,
}

/// How it is told.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a host is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// The most requests a second
    Throughput,
    /// The shortest time for each
    Latency,
    /// The least CPU time and power for each
    Efficiency,
}

/// What a plan is printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A file of sysctl.d
    Sysctl,
    /// A unit of systemd that holds the plan
    Systemd,
    /// A DaemonSet that does so on every node
    Kubernetes,
    /// The system calls that Ringmain makes, for container runtimes
    Seccomp,
}

impl JournalArgs {
    /// What is wrong with these two together, if anything: a recorded host must not use the journal of this one.
    pub(crate) fn contradiction(&self, host: &HostArgs) -> Option<String> {
        let mixed = host.root.is_some() && self.state == Path::new(STATE);
        mixed.then(|| "--root is another host, which needs a journal of its own: add --state DIR".to_owned())
    }
}

impl ProfileName {
    /// The catalogue's own.
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
