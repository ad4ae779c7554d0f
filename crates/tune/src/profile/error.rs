//! Why there is no profile.

use std::io;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No such process.
    #[error("expected the number of a running process; found no process {0} (`ps -e` lists them)")]
    NoProcess(u32),
    /// It has ended while it was being attached to.
    #[error("process {0} has ended before it could be sampled")]
    Gone(u32),
    /// The kernel refuses to sample.
    #[error("the kernel refuses to sample {who} ({error}): {advice}")]
    Refused {
        /// Whom, such as `process 12`.
        who: String,
        /// What it said.
        error: io::Error,
        /// What is missing and how to get it.
        advice: String,
    },
    /// More samples a second than the kernel takes.
    #[error(
        "expected at most {most} samples a second, the sysctl kernel.perf_event_max_sample_rate; found {asked}: request fewer, \
         or raise it"
    )]
    Frequency {
        /// As asked for.
        asked: u32,
        /// The sysctl.
        most: u32,
    },
    /// More counters than one profile may have.
    #[error("{threads} threads on {cpus} CPUs need {} counters, and {most} are possible: raise the limit of descriptors \
             (ulimit -n), or name a process with fewer threads", threads * cpus)]
    Counters {
        /// Threads to attach to.
        threads: usize,
        /// CPUs that they may run on.
        cpus: usize,
        /// As many as there may be.
        most: usize,
    },
    /// No ring could be had.
    #[error(
        "no memory for samples ({error}): raise the sysctl kernel.perf_event_mlock_kb or the limit of locked memory \
         (ulimit -l), or run this with sudo"
    )]
    Ring {
        /// What the system said.
        error: io::Error,
    },
    /// Threads are started faster than they can be attached to.
    #[error(
        "process {0} starts threads faster than they can be attached to: start it with `ringmain profile -- COMMAND`, which \
         misses none"
    )]
    Restless(u32),
    /// The command could not be started.
    #[error("cannot start `{command}`: {error}")]
    Start {
        /// As given.
        command: String,
        /// What the system said.
        error: io::Error,
    },
    /// Stacks cannot be had in the way asked for.
    #[error("stacks of this architecture need frame pointers: drop `--stacks copy`")]
    Unwinding,
    /// Not a single sample.
    #[error(
        "no sample was taken in {seconds:.1} s: {who} has used no CPU time (an idle server shows nothing: put a load on it, \
         for example with `ringmain bench`)"
    )]
    Idle {
        /// Whom.
        who: String,
        /// For how long it was looked at.
        seconds: f64,
    },
    /// Anything else that the system said.
    #[error("{doing}: {error}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
}
