//! The figures as one JSON document, for programs.
//!
//! A name ends in its unit: `_s`, `_per_s`, `_bytes`; `share` is of 1, names without a unit are counts. What there is none of is
//! `null`. [`VERSION`] rises when a name or a meaning changes; names may be added without that.

use ringmain_sys::perf::Clock;
use serde::Serialize;

use super::Summary;
use crate::catalogue::Id;
use crate::profile::difference::{Change, Difference};
use crate::profile::folded::Side;
use crate::profile::{Facts, KernelView, StackKind};

/// The version of the documents.
pub const VERSION: u32 = 1;

/// What every document is called.
const FORMAT: &str = "ringmain-profile";

/// Functions in a document.
const FUNCTIONS: usize = 200;

#[derive(Serialize)]
struct Document<T> {
    format: &'static str,
    version: u32,
    kind: &'static str,
    #[serde(flatten)]
    rest: T,
}

#[derive(Serialize)]
struct ProfileDocument<'a> {
    target: &'a str,
    clock: &'static str,
    frequency_per_s: u32,
    stacks: &'static str,
    stack_bytes: Option<u32>,
    kernel_seen: &'static str,
    lasted_s: f64,
    samples: u64,
    lost: u64,
    user: Part,
    kernel: Part,
    unknown: Part,
    stacks_with_unknown: Part,
    threads: Vec<Named<'a>>,
    suspects: Vec<SuspectPart>,
    functions: Vec<FunctionPart<'a>>,
    remarks: &'a [String],
}

#[derive(Serialize)]
struct Part {
    samples: u64,
    share: f64,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    samples: u64,
}

#[derive(Serialize)]
struct SuspectPart {
    key: &'static str,
    title: &'static str,
    samples: u64,
    share: f64,
    own_samples: u64,
    step: &'static str,
    tune_steps: &'static [Id],
}

#[derive(Serialize)]
struct FunctionPart<'a> {
    name: &'a str,
    side: &'static str,
    own_samples: u64,
    own_share: f64,
    all_samples: u64,
    all_share: f64,
}

#[derive(Serialize)]
struct DifferenceDocument<'a> {
    before: Run<'a>,
    after: Run<'a>,
    functions: Vec<ChangePart<'a>>,
    suspects: Vec<ChangePart<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    name: &'a str,
    samples: u64,
}

#[derive(Serialize)]
struct ChangePart<'a> {
    name: &'a str,
    side: &'static str,
    before_samples: u64,
    after_samples: u64,
    before_share: f64,
    after_share: f64,
    beyond_chance: bool,
}

/// The document of kind `profile`.
#[must_use]
pub fn profile(summary: &Summary, facts: &Facts) -> String {
    let total = summary.total;
    let part = |samples| Part {
        samples,
        share: share(samples, total),
    };
    let threads = facts.threads.iter();
    let suspects = summary.suspects.iter().map(|found| SuspectPart {
        key: found.suspect.key,
        title: found.suspect.title,
        samples: found.samples,
        share: share(found.samples, total),
        own_samples: found.innermost,
        step: found.suspect.remedy,
        tune_steps: found.suspect.steps,
    });
    let functions = summary.functions.iter().take(FUNCTIONS);
    document(
        "profile",
        ProfileDocument {
            target: &facts.who,
            clock: match facts.clock {
                Clock::Cycles => "cycles",
                Clock::Timer => "timer",
            },
            frequency_per_s: facts.frequency,
            stacks: match facts.stacks {
                StackKind::FramePointers => "frame-pointers",
                StackKind::Copied(_) => "copied",
            },
            stack_bytes: match facts.stacks {
                StackKind::FramePointers => None,
                StackKind::Copied(bytes) => Some(bytes),
            },
            kernel_seen: match facts.kernel {
                KernelView::Named => "named",
                KernelView::Nameless => "nameless",
                KernelView::Nothing => "nothing",
            },
            lasted_s: facts.lasted.as_secs_f64(),
            samples: facts.samples,
            lost: facts.lost,
            user: part(summary.user),
            kernel: part(summary.kernel),
            unknown: part(summary.other),
            stacks_with_unknown: part(summary.unknown.1),
            threads: threads
                .map(|(name, samples)| Named {
                    name,
                    samples: *samples,
                })
                .collect(),
            suspects: suspects.collect(),
            functions: functions
                .map(|function| FunctionPart {
                    name: &function.name,
                    side: side(function.side),
                    own_samples: function.own,
                    own_share: share(function.own, total),
                    all_samples: function.all,
                    all_share: share(function.all, total),
                })
                .collect(),
            remarks: &facts.remarks,
        },
    )
}

/// The document of kind `difference`.
#[must_use]
pub fn difference(difference: &Difference, names: [&str; 2]) -> String {
    let of = |which: usize| Run {
        name: names[which],
        samples: difference.totals[which],
    };
    document(
        "difference",
        DifferenceDocument {
            before: of(0),
            after: of(1),
            functions: difference.functions.iter().take(FUNCTIONS).map(change).collect(),
            suspects: difference.suspects.iter().map(change).collect(),
        },
    )
}

fn change(change: &Change) -> ChangePart<'_> {
    ChangePart {
        name: &change.name,
        side: side(change.side),
        before_samples: change.samples[0],
        after_samples: change.samples[1],
        before_share: change.shares[0],
        after_share: change.shares[1],
        beyond_chance: change.beyond_chance,
    }
}

fn side(side: Side) -> &'static str {
    match side {
        Side::User => "user",
        Side::Kernel => "kernel",
        Side::Other => "other",
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn document<T: Serialize>(kind: &'static str, rest: T) -> String {
    let document = Document {
        format: FORMAT,
        version: VERSION,
        kind,
        rest,
    };
    let text = serde_json::to_string_pretty(&document);
    text.expect("numbers and texts can be written")
}
