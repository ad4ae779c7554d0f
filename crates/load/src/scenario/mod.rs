//! A scenario file: YAML that says what is sent and, where it likes, how much of it.
//!
//! ```text
//! text ─▶ document (serde, strict) ─▶ build, settings ─▶ Scenario ─▶ traffic(host)
//!            └─▶ schema()             └─ wrong: file, line, column, expected, found
//! ```
//!
//! Reads no file: the text and the contents of body files are handed in. Knows no flag.

mod build;
mod document;
mod error;
mod settings;
#[cfg(test)]
mod tests;
mod values;

use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};

use crate::limits;
use crate::traffic::{FlowDraft, Traffic, TrafficError};
use document::Document;
pub use error::ScenarioError;
pub use settings::{Located, Settings};
use values::Position;

/// A scenario, checked but for the host that it is sent to.
#[derive(Clone, Debug)]
pub struct Scenario {
    file: String,
    /// What the file says about the load.
    pub settings: Settings,
    drafts: Vec<FlowDraft>,
}

impl Scenario {
    /// The traffic, sent to `host`: the target's `host` or `host:port`.
    ///
    /// # Errors
    /// The host is none; all else was found by [`load`].
    pub fn traffic(&self, host: &str) -> Result<Traffic, TrafficError> {
        let mut drafts = self.drafts.clone();
        for step in drafts.iter_mut().flat_map(|flow| &mut flow.steps) {
            host.clone_into(&mut step.request.host);
        }
        Traffic::mix(&drafts)
    }

    /// The error for a setting that the caller cannot use: a target or threshold that is none.
    #[must_use]
    pub fn wrong<T>(&self, setting: &Located<T>, what: &str, expected: &str, found: &str) -> ScenarioError {
        let position = Position {
            line: setting.line,
            column: setting.column,
        };
        ScenarioError::new(&self.file, position, what, expected, found)
    }
}

/// Reads a scenario. `file` is what messages call it. `read` is given the path of each `body_file` as it is written; it must
/// resolve it against the scenario's folder, and need not read more than [`limits::REQUEST_BODY_BYTES`] and one byte.
///
/// # Errors
/// The first thing that is wrong: with the YAML, a key, a value, or with what they mean together.
pub fn load(
    file: &str,
    text: &str,
    read: &mut dyn FnMut(&str) -> std::io::Result<Vec<u8>>,
) -> Result<Scenario, ScenarioError> {
    if text.len() > limits::SCENARIO_BYTES {
        let expected = format!("a file of at most {} bytes", limits::SCENARIO_BYTES);
        let start = Position { line: 1, column: 1 };
        return Err(ScenarioError::new(
            file,
            start,
            "",
            expected,
            text.len().to_string(),
        ));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // A second one is refused all the same, with a better message than that of the limit.
            max_documents: 2,
            max_depth: 64,
            max_aliases: 10_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Merge,
        // `yes` and `no` are texts, as everybody means them in a body.
        strict_booleans: true,
        with_snippet: false,
    };
    let document: Document = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ScenarioError::of_yaml(file, text, &error))?;
    build::build(file, document, read)
}

/// The JSON Schema of a scenario file: what editors complete and check by.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Document).to_value()
}
