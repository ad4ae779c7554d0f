//! `ringmain check`, `explain` and `schema`: what a configuration file says, without serving it.
//!
//! Knows how findings are printed; not what keys mean.

mod explain;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use ringmain_control::config::{self, ConfigError, Warning};
use ringmain_control::edge::{CheckedFile, Edge};
use ringmain_control::file::{self, LoadedFile};
use ringmain_control::verify::Rejected;
use ringmain_gateway::model::{Config, Rule};
use ringmain_gateway::table::Table;
use serde_json::json;

pub(crate) use self::explain::explain;
use crate::args::configuration::Check;
use crate::failure::Failure;
use crate::print;

/// A file, read and compiled for an explanation.
struct Read {
    /// `None`: the file is wrong as a whole.
    table: Option<Table<()>>,
    wrong: Vec<ConfigError>,
}

/// Validates a file as a start and a reload do.
pub(crate) fn check(args: &Check) -> Result<(), Failure> {
    // This program has no filters of its own; those that embed the gateway have.
    let CheckedFile { outcome, warnings } = Edge::from_file(&args.file).check()?;
    let name = args.file.display();
    print(|out| {
        if args.json {
            return writeln!(out, "{:#}", as_json(&outcome, &warnings));
        }
        for warning in &warnings {
            writeln!(out, "{warning}")?;
        }
        match &outcome {
            Ok(config) => writeln!(out, "{name}: right: {}", amounts(config)),
            Err(rejected) => rejected
                .errors
                .iter()
                .try_for_each(|error| writeln!(out, "{error}")),
        }
    })?;
    outcome
        .map(drop)
        .map_err(|rejected| Failure::Other(format!("{name}: {}", rejected.summary())))
}

/// The JSON Schema of configuration files.
pub(crate) fn schema(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", config::schema())
}

fn amounts(config: &Config) -> String {
    let of = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    [
        of(config.listeners.len(), "listener"),
        of(config.routes.len() + config.streams.len(), "route"),
        of(config.upstreams.len(), "upstream"),
    ]
    .join(", ")
}

fn as_json(outcome: &Result<Arc<Config>, Rejected>, warnings: &[Warning]) -> serde_json::Value {
    let none = Rejected::default();
    let rejected = outcome.as_ref().err().unwrap_or(&none);
    let errors = rejected.errors.iter().map(|error| {
        json!({
            "file": error.file,
            "line": error.position.line,
            "column": error.position.column,
            "what": error.part,
            "expected": error.expected,
            "found": error.found,
            "advice": error.advice,
        })
    });
    let warnings = warnings.iter().map(|warning| {
        json!({
            "file": warning.file,
            "line": warning.position.line,
            "column": warning.position.column,
            "text": warning.text,
        })
    });
    json!({
        "right": outcome.is_ok(),
        "errors": errors.collect::<Vec<_>>(),
        "more": rejected.omitted,
        "warnings": warnings.collect::<Vec<_>>(),
    })
}

/// Reads a file. `fits`: whether this program has what a rule wants of it.
fn read(path: &Path, fits: &dyn Fn(&Rule) -> Result<(), String>) -> Result<Read, Failure> {
    let LoadedFile { mut loaded, .. } =
        file::read(path).map_err(|error| Failure::Usage(error.to_string()))?;
    let table = loaded.config.take();
    let table = table.map(|config| Table::compile(Arc::new(config), None, &mut |rule, _| fits(rule)));
    let wrong = loaded.all_errors(table.as_ref().map_or(&[], Table::problems));
    Ok(Read { table, wrong })
}
