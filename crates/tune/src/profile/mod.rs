//! Profiles: the CPU time of a process, its threads and its children, by function, in its own code and in the kernel.
//!
//! ```text
//! recording: samples ─▶ stacks of addresses ─▶ names ─▶ folded ─┬▶ flame: a graph, or of two the difference
//!                                                               ├▶ suspects ─▶ summary: text, JSON
//!                                                               └▶ a file
//! ```
//!
//! ```text
//! kernel ─▶ ring of a CPU ─▶ order: by time ─▶ Recorder::record ─┬▶ mappings, names of threads ─▶ address spaces
//!                                                                └▶ sample: unwind, locate in a file ─▶ Stacks ─▶ names ─▶ Folded
//! ```
//!
//! A counter per thread and CPU is inherited by new threads and children; all counters of a CPU write to one ring. A stack consists of
//! addresses within files until the end, when each address is looked up once. Only CPU time is measured: waiting threads do not appear.
//! Everything after folded stacks is pure; only `recording` calls the kernel. Must not know flags or terminals.

pub mod difference;
mod error;
pub mod flame;
pub mod folded;
#[cfg(test)]
mod golden;
mod image;
mod kernel;
pub mod limits;
mod names;
mod naming;
mod recording;
mod rights;
pub mod summary;
pub mod suspects;
mod unwind;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringmain_sys::perf::Clock;

pub use self::error::ProfileError;
use self::folded::Folded;
use self::recording::{Counts, Recording, Taken};

/// What to profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, what descends from it, and all their threads.
    Process(u32),
    /// A command that is started for it: a program and its arguments.
    Command(Vec<OsString>),
}

/// How the user's part of stacks is had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// By frame pointers if the program keeps them, else copied.
    #[default]
    Auto,
    /// By frame pointers.
    FramePointers,
    /// Copied, and taken apart by `.eh_frame`.
    Copied,
}

/// How it was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackKind {
    /// By frame pointers.
    FramePointers,
    /// So many bytes were copied for each sample.
    Copied(u32),
}

/// How to profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What.
    pub target: Target,
    /// For how long; `None` is [`limits::DURATION_DEFAULT`] for a process, and until its end for a command.
    pub duration: Option<Duration>,
    /// Samples a second of CPU time, at most [`limits::FREQUENCY`].
    pub frequency: u32,
    /// How stacks are had.
    pub stacks: Stacks,
    /// Bytes of a stack that are copied; `None` is [`limits::STACK_BYTES`].
    pub stack_bytes: Option<u32>,
}

/// A profile.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The stacks.
    pub folded: Folded,
    /// How they were taken.
    pub facts: Facts,
}

/// What is seen of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelView {
    /// Its functions by name.
    Named,
    /// Its functions, which have no names: a right is missing.
    Nameless,
    /// Nothing: a right is missing.
    Nothing,
}

/// How a profile was taken, and what it does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What was profiled, as it is shown: `process 12 (nginx)`.
    pub who: String,
    /// By which clock.
    pub clock: Clock,
    /// Samples a second of CPU time that were asked for.
    pub frequency: u32,
    /// How the user's part of stacks was had.
    pub stacks: StackKind,
    /// What is seen of the kernel.
    pub kernel: KernelView,
    /// For how long.
    pub lasted: Duration,
    /// Samples taken.
    pub samples: u64,
    /// Samples and other records that found no room.
    pub lost: u64,
    /// Samples by thread's name, the most first.
    pub threads: Vec<(String, u64)>,
    /// What is missing or to be doubted, each with what to do about it.
    pub remarks: Vec<String>,
}

impl Profile {
    /// Its flame graph as an SVG file.
    #[must_use]
    pub fn draw(&self) -> String {
        let facts = &self.facts;
        let subtitle = format!(
            "{} samples in {:.1} s at {} a second of CPU time, {} lost",
            flame::count(facts.samples),
            facts.lasted.as_secs_f64(),
            facts.frequency,
            flame::count(facts.lost)
        );
        flame::draw(&self.folded, &facts.who, &subtitle)
    }
}

/// Takes a profile; ends early when `stop` is set.
///
/// # Errors
/// [`ProfileError`].
pub fn take(options: &Options, stop: &AtomicBool) -> Result<Profile, ProfileError> {
    let (mut recording, taken) = recording::take(options, stop)?;
    if recording.counts.samples == 0 {
        let seconds = taken.lasted.as_secs_f64();
        return Err(ProfileError::Idle {
            who: taken.who,
            seconds,
        });
    }
    let named = naming::fold(&mut recording);
    let mut remarks = remarks(&taken, &recording.counts);
    let kernel = match (&taken.no_kernel, named.kernel_hidden) {
        (Some(_), _) => KernelView::Nothing,
        (None, true) => KernelView::Nameless,
        (None, false) => KernelView::Named,
    };
    if kernel == KernelView::Nameless {
        remarks.push(taken.no_kernel_names.clone());
    }
    let (innermost, _) = named.folded.unknown();
    if share(innermost, recording.counts.samples) >= 5 {
        remarks.push(format!(
            "{} % of the samples are in functions without a name: their files have no symbols, could not be read, or the code was \
             made at run time (JIT)",
            share(innermost, recording.counts.samples)
        ));
    }
    Ok(Profile {
        facts: Facts {
            who: taken.who,
            clock: taken.clock,
            frequency: options.frequency,
            stacks: taken.stacks,
            kernel,
            lasted: taken.lasted,
            samples: recording.counts.samples,
            lost: recording.counts.lost,
            threads: threads(&recording),
            remarks,
        },
        folded: named.folded,
    })
}

fn threads(recording: &Recording) -> Vec<(String, u64)> {
    let stacks = &recording.stacks;
    let mut threads: Vec<(String, u64)> = stacks
        .threads
        .iter()
        .map(|(number, count)| (stacks.by_number[*number as usize].clone(), *count))
        .collect();
    threads.sort_by(|(a, first), (b, second)| second.cmp(first).then_with(|| a.cmp(b)));
    threads
}

/// In whole percent.
fn share(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100) / whole.max(1)
}

/// What is missing or to be doubted.
fn remarks(taken: &Taken, counts: &Counts) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(taken.ended.clone());
    remarks.extend(taken.no_kernel.clone());
    if counts.lost > 0 {
        remarks.push(format!(
            "{} records were lost to a full buffer, mostly samples: request fewer with --frequency, or copy less with \
             --stack-bytes",
            counts.lost
        ));
    }
    if counts.throttled > 0 {
        remarks.push(format!(
            "the kernel took fewer samples than requested, {} times: they cost more than kernel.perf_cpu_time_max_percent allows",
            counts.throttled
        ));
    }
    let of_user = |part: u64| share(part, counts.user);
    if of_user(counts.cut) >= 1 {
        remarks.push(format!(
            "{} % of the stacks are deeper than the copied part and lack their outer frames ([truncated]): copy more with \
             --stack-bytes",
            of_user(counts.cut)
        ));
    }
    if of_user(counts.broken) >= 5 {
        remarks.push(format!(
            "{} % of the stacks could not be unwound to their start: code without .eh_frame and without frame pointers, such as \
             hand-written assembly or code made at run time",
            of_user(counts.broken)
        ));
    }
    if of_user(counts.shallow) >= 50 {
        remarks.push(format!(
            "{} % of the stacks have two frames or less: the program keeps no frame pointers; use --stacks copy, or build it with them \
             (-C force-frame-pointers=yes, -fno-omit-frame-pointer)",
            of_user(counts.shallow)
        ));
    }
    if counts.unread > 0 {
        remarks.push(format!(
            "{} records of the kernel could not be parsed",
            counts.unread
        ));
    }
    if counts.samples < FEW {
        remarks.push(format!(
            "only {} samples: shares are rough; profile for longer, under load",
            counts.samples
        ));
    }
    remarks
}

/// With fewer samples than this a share of one percent is no sample.
const FEW: u64 = 200;

/// The file that a command's first word means.
fn found(word: &OsStr) -> Option<PathBuf> {
    let path = Path::new(word);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(path))
        .find(|path| path.is_file())
}
