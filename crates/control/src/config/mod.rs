//! A configuration file: YAML, checked as a whole and translated into the gateway's model.
//!
//! ```text
//! text ─▶ tree (values with places) ─▶ secrets ─▶ reader: document (serde, strict) ─▶ build ─▶ Loaded { config, errors }
//!                                                    └─▶ schema(), reference()
//! ```
//!
//! Reads no file and no environment itself: both are parameters. All errors are reported at once, with line and column.
//!
//! A file is applied as a whole or not at all: see [`Loaded::take_valid`]. Parts of an invalid file are translated as well, so that
//! all errors are reported at once and `ringmain explain` works; no part is served.

mod advice;
mod build;
mod deserializer;
mod document;
mod error;
mod expand;
mod fields;
mod last_good;
mod redacted;
mod reference;
mod scalars;
mod schema;
mod source;
#[cfg(test)]
mod tests;
mod unreachable;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use ringmain_gateway::model::{Config, Network};
use ringmain_gateway::table::{ConfigPart, Problem};
use serde::Deserialize;

use crate::limits;
use deserializer::NodeDeserializer;
use document::Document;
use error::Diagnostics;
pub use error::{ConfigError, FilePosition, Warning};
pub use redacted::redacted;
pub use reference::reference;
pub use schema::schema;
pub use source::{ConfigSource, Excerpt};

/// The environment that secrets and files are read from.
pub struct ConfigEnvironment<'s> {
    /// A variable of the environment.
    pub variable: &'s dyn Fn(&str) -> Option<String>,
    /// The contents of a file, by its path as it is written; it need not read more than
    /// [`NAMED_FILE_BYTES`](crate::limits::NAMED_FILE_BYTES) and one byte.
    pub file: &'s dyn Fn(&str) -> io::Result<Vec<u8>>,
    /// Returns whether every user of the host may read a file, by its path as written.
    pub is_public: &'s dyn Fn(&str) -> bool,
    /// The folder that paths are relative to, absolute.
    pub folder: &'s Path,
}

/// Kubernetes as a source of configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSource {
    /// The `spec.controllerName` of the served GatewayClasses.
    pub controller: Arc<str>,
    /// The range that each Gateway has an address of.
    pub pool: Network,
    /// The zone of this process. `None`: that of its Node, if it may be read.
    pub zone: Option<Arc<str>>,
}

/// A configuration file, read.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration. With `errors` it is incomplete, and only used for explanations. `None`: the file is not YAML, or not a
    /// map.
    pub config: Option<Config>,
    /// Kubernetes as a second source. `None`: not configured, or invalid.
    pub kubernetes: Option<Arc<KubernetesSource>>,
    /// The errors, in the order of the file: at most [`CONFIG_ERRORS`](crate::limits::CONFIG_ERRORS).
    pub errors: Vec<ConfigError>,
    /// The number of further errors.
    pub omitted: usize,
    /// Warnings: valid settings that are probably not intended.
    pub warnings: Vec<Warning>,
    file: String,
    access_log_position: FilePosition,
    positions: BTreeMap<ConfigPart, FilePosition>,
    policy_positions: BTreeMap<(ConfigPart, &'static str), FilePosition>,
    omitted_parts: BTreeSet<String>,
    incomplete: BTreeSet<ConfigPart>,
    unexpanded: Vec<String>,
}

impl Loaded {
    /// Returns the problems of compilation, with positions. Problems that only follow from errors of the file are omitted.
    #[must_use]
    pub fn locate_problems(&self, problems: &[Problem]) -> Vec<ConfigError> {
        let follows = |problem: &&Problem| {
            let name = problem.found.trim_matches('`');
            let is_field_of = |config_part: &ConfigPart| match config_part {
                ConfigPart::Listener(named) => problem.field == "listeners" && **named == *name,
                ConfigPart::Upstream(named) => problem.field != "listeners" && **named == *name,
                _ => false,
            };
            // A certificate that cannot be used is reported itself.
            let is_of_certificate = |other: &Problem| {
                matches!(other.part, ConfigPart::Certificate(_)) && problem.found.contains(&other.found)
            };
            self.omitted_parts.contains(name)
                || problem.field.starts_with("tls")
                    && (self.incomplete.contains(&problem.part) || problems.iter().any(is_of_certificate))
                || self.incomplete.iter().any(is_field_of)
                || self.unexpanded.iter().any(|text| problem.found.contains(text))
        };
        // A problem of a route's policy occurs in each of its rules, and is reported once.
        let mut reported = BTreeSet::new();
        let locate_problems = problems
            .iter()
            .filter(|problem| !follows(problem))
            .filter_map(|problem| {
                let policy = self.policy_position(problem);
                let (config_part, position) =
                    policy.unwrap_or_else(|| (problem.part.clone(), self.position(&problem.part)));
                let again = config_part != problem.part
                    && !reported.insert((position, problem.field, problem.found.as_str()));
                let error = || ConfigError {
                    file: self.file.clone(),
                    position,
                    part: format!("{config_part}: {}", problem.field),
                    expected: problem.expected.clone(),
                    found: problem.found.clone(),
                    advice: String::new(),
                };
                (!again).then(error)
            });
        locate_problems.collect()
    }

    /// Returns the owner of a policy that a problem is about, the rule or its route, and the position of the policy.
    fn policy_position(&self, problem: &Problem) -> Option<(ConfigPart, FilePosition)> {
        let rest = problem.field.strip_prefix("policies.")?;
        let kind = rest.split_once('.').map_or(rest, |(kind, _)| kind);
        let ConfigPart::Route(name, Some(_)) = &problem.part else {
            return None;
        };
        let positions = [problem.part.clone(), ConfigPart::Route(name.clone(), None)];
        positions.into_iter().find_map(|config_part| {
            let key = (config_part, kind);
            let position = self.policy_positions.get(&key).copied()?;
            Some((key.0, position))
        })
    }

    /// Returns all errors, of the file and of compilation, in the order of the file.
    #[must_use]
    pub fn all_errors(&self, problems: &[Problem]) -> Vec<ConfigError> {
        let mut errors = self.errors.clone();
        errors.extend(self.locate_problems(problems));
        errors.sort_by_key(|error| error.position);
        errors
    }

    /// Returns the error of an access log that cannot be opened, with its position.
    pub(crate) fn access_log_error(&self, reason: String) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            position: self.access_log_position,
            part: "access_log".to_owned(),
            expected: "a file that this user can write to, in an existing directory".to_owned(),
            found: reason,
            advice: String::new(),
        }
    }

    /// Returns the error of an unusable directory for the state of push, with its position.
    pub(crate) fn state_dir_error(&self, reason: String) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            position: self.position(&ConfigPart::Push),
            part: "push.state_dir".to_owned(),
            expected: "a directory that this user can write to, or create".to_owned(),
            found: reason,
            advice: String::new(),
        }
    }

    /// Adds warnings for parts that no request reaches.
    fn warn_about_unreachable(&mut self) {
        let Some(config) = self.config.as_ref().filter(|_| self.errors.is_empty()) else {
            return;
        };
        let found = unreachable::find_unreachable(config).into_iter();
        let warnings = found.map(|(config_part, text)| Warning {
            file: self.file.clone(),
            position: self.position(&config_part),
            text: format!("{config_part}: {text}"),
        });
        let warnings: Vec<_> = warnings.take(limits::CONFIG_ERRORS).collect();
        self.warnings.extend(warnings);
        self.warnings.sort_by_key(|warning| warning.position);
    }

    fn position(&self, config_part: &ConfigPart) -> FilePosition {
        let parent = match config_part {
            ConfigPart::Route(name, Some(_)) => Some(ConfigPart::Route(name.clone(), None)),
            _ => None,
        };
        let position_of = |config_part: &ConfigPart| self.positions.get(config_part).copied();
        position_of(config_part)
            .or_else(|| parent.as_ref().and_then(position_of))
            .unwrap_or(FilePosition { line: 1, column: 1 })
    }
}

/// Reads a configuration. `file` is its name in messages.
#[must_use]
pub fn load(file: &str, text: &str, environment: &ConfigEnvironment<'_>) -> Loaded {
    let mut errors = Diagnostics::new(file);
    let mut loaded = Loaded {
        config: None,
        kubernetes: None,
        errors: Vec::new(),
        omitted: 0,
        warnings: Vec::new(),
        file: file.to_owned(),
        access_log_position: FilePosition::START,
        positions: BTreeMap::new(),
        policy_positions: BTreeMap::new(),
        omitted_parts: BTreeSet::new(),
        incomplete: BTreeSet::new(),
        unexpanded: Vec::new(),
    };
    if let Some(mut tree) = yaml::parse(text, &errors) {
        expand::expand(&mut tree, environment, &mut errors);
        loaded.unexpanded = errors.unexpanded_texts();
        // There may be thousands of routes: each is read when it is built, which saves the memory of a second form.
        let routes = tree.take_map("routes");
        let reader = NodeDeserializer::new(&tree, &errors);
        // Errors have been reported.
        if let Ok(document) = Document::deserialize(reader) {
            let built = build::build_config(document, &routes, environment, &errors);
            loaded.config = Some(built.config);
            loaded.kubernetes = built.kubernetes;
            loaded.access_log_position = built.access_log_position;
            loaded.positions = built.positions;
            loaded.policy_positions = built.policy_positions;
            loaded.omitted_parts = built.omitted_parts;
            loaded.incomplete = built.incomplete;
        }
    }
    (loaded.errors, loaded.omitted, loaded.warnings) = errors.finish();
    loaded.warn_about_unreachable();
    loaded
}
