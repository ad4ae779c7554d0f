//! The JSON Schema of all documents, from the structures that are written.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use super::{ComparisonDocument, Merged, RunDocument, SearchDocument};
use crate::push::report::json as push;

/// Returns the schema of every document that `ringmain bench --json` writes; `docs/bench.schema.json` is it.
#[must_use]
pub fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings
        .into_generator()
        .into_root_schema_for::<AnyDocument<'static>>()
}

/// A result of `ringmain bench`. Names end in their unit: `_s`, `_us` (microseconds), `_per_s`, `_bytes`; names without one are
/// counts, and `ratio` and `share` are of 1. What there is none of is `null`. Names may be added without a new `version`.
#[derive(JsonSchema)]
#[schemars(title = "Result of ringmain bench")]
#[expect(dead_code, reason = "only its schema is used")]
struct AnyDocument<'a> {
    /// Always `ringmain-bench`.
    #[schemars(extend("const" = "ringmain-bench"))]
    format: &'static str,
    /// Rises when a name or a meaning changes.
    #[schemars(extend("const" = super::VERSION))]
    version: u32,
    /// The version of the program.
    ringmain: &'static str,
    #[schemars(flatten)]
    body: Body<'a>,
}

#[derive(JsonSchema)]
#[schemars(tag = "kind", rename_all = "kebab-case")]
#[expect(dead_code, reason = "only its schema is used")]
enum Body<'a> {
    /// One target.
    Run(RunDocument<'a>),
    /// Several targets, and each but the first against the first.
    Comparison(ComparisonDocument<'a>),
    /// The highest rate that a target held.
    Search(SearchDocument<'a>),
    /// Files of histograms put together.
    Merged(Merged<'a>),
    /// A fan-out of publications.
    Push(push::Document<'a>),
    /// The highest rate of publications that a target held.
    PushSearch(push::SearchDocument<'a>),
}

#[cfg(test)]
pub(crate) mod tests;
