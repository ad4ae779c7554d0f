//! The report as one JSON document, for programs.
//!
//! Every document has `format`, `version` and `kind`, and beside them what that kind of document holds. A name ends in its
//! unit: `_s`, `_us` (microseconds), `_per_s`, `_bytes`; names without one are counts, and `ratio` and `share` are of 1.
//! What there is none of is `null`, never left out. [`VERSION`] rises when a name or a meaning changes; names may be added
//! without that, so readers skip what they do not know.
//!
//! The fields of the private structures below are the fields of the documents, and [`schema`] describes them. Knows the model and its judgements, no
//! other output.

mod judged;
mod round;
pub(crate) mod schema;
mod setup;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Serialize;

use self::judged::{Against, Merged, Search, Told, Verdict};
use self::round::{Round, Summary};
pub use self::schema::schema;
use self::setup::Setup;
pub(crate) use self::setup::Tls;
use crate::compare::Comparison;
use crate::doubts::Doubt;
use crate::knee::Found;
use crate::record::Recorded;
use crate::report::Run;
use crate::threshold::Judgement;

/// The version of the documents.
pub const VERSION: u32 = 1;

/// A run with what was judged of it.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The run.
    pub run: &'a Run,
    /// What speaks against believing it.
    pub doubts: &'a [Doubt],
    /// The thresholds that it was held against.
    pub thresholds: &'a [Judgement],
}

/// The document of kind `run`: one target.
#[must_use]
pub fn run(judged: &Judged<'_>) -> String {
    document(
        "run",
        &RunDocument {
            run: Target::of(judged),
        },
    )
}

/// The document of kind `comparison`: several targets, and each but the first against the first.
#[must_use]
pub fn comparison(runs: &[Judged<'_>], comparisons: &[Comparison]) -> String {
    document(
        "comparison",
        &ComparisonDocument {
            runs: runs.iter().map(Target::of).collect(),
            comparisons: comparisons.iter().map(Against::of).collect(),
        },
    )
}

/// The document of kind `search`: the highest rate that a target held, and the run that confirmed it, if one did.
#[must_use]
pub fn search(found: &Found, confirmed: Option<&Judged<'_>>) -> String {
    document(
        "search",
        &SearchDocument {
            search: Search::of(found),
            run: confirmed.map(Target::of),
        },
    )
}

/// The document of kind `merged`: files of histograms put together.
#[must_use]
pub fn merged(recorded: &Recorded) -> String {
    document("merged", &Merged::of(recorded))
}

pub(crate) fn document(kind: &'static str, body: &impl Serialize) -> String {
    let document = Document {
        format: "ringmain-bench",
        version: VERSION,
        ringmain: env!("CARGO_PKG_VERSION"),
        kind,
        body,
    };
    let text = serde_json::to_string_pretty(&document);
    text.expect("the structures have string keys only and are written to memory") + "\n"
}

/// What all documents have.
#[derive(JsonSchema, Serialize)]
struct Document<'a, Body: Serialize> {
    /// Always `ringmain-bench`.
    format: &'static str,
    /// [`VERSION`].
    version: u32,
    /// The version of the program.
    ringmain: &'static str,
    /// `run`, `comparison`, `search`, `merged`, `push` or `push-search`.
    kind: &'static str,
    #[serde(flatten)]
    body: &'a Body,
}

#[derive(JsonSchema, Serialize)]
struct RunDocument<'a> {
    run: Target<'a>,
}

#[derive(JsonSchema, Serialize)]
struct ComparisonDocument<'a> {
    /// In the order in which the user named them.
    runs: Vec<Target<'a>>,
    /// One for each target but the first.
    comparisons: Vec<Against<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct SearchDocument<'a> {
    search: Search,
    run: Option<Target<'a>>,
}

/// One target.
#[derive(JsonSchema, Serialize)]
struct Target<'a> {
    /// What the user calls it.
    name: &'a str,
    /// The engine that the client ran on, with its features.
    engine: &'a str,
    /// What was asked for.
    plan: Setup,
    /// Medians over the rounds.
    summary: Summary,
    /// One a round, in the order in which they were run.
    rounds: Vec<Round<'a>>,
    /// What speaks against believing it, the weightier first.
    doubts: Vec<Told<'a>>,
    /// The thresholds, in the order in which they were given.
    thresholds: Vec<Verdict>,
}

impl<'a> Target<'a> {
    fn of(judged: &Judged<'a>) -> Target<'a> {
        let run = judged.run;
        Target {
            name: &run.name,
            engine: &run.engine,
            plan: Setup::of(&run.plan),
            summary: Summary::of(run),
            rounds: run.rounds.iter().map(Round::of).collect(),
            doubts: judged.doubts.iter().map(Told::of).collect(),
            thresholds: judged.thresholds.iter().map(Verdict::of).collect(),
        }
    }
}
