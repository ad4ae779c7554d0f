//! `ringmain check`, `explain` and `schema`: configuration files, without serving them.
//!
//! Owns the output of findings; knows nothing of the keys.

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
use crate::error::CliError;
use crate::print_output;

/// A configuration file, compiled for an explanation.
struct CompiledFile {
    /// `None` if the file cannot be compiled at all.
    table: Option<Table<()>>,
    wrong: Vec<ConfigError>,
}

/// `ringmain check`: validates a file in the same way as startup and reload.
///
/// # Errors
/// Fails if the file is invalid or cannot be read.
pub(crate) fn check_file(args: &Check) -> Result<(), CliError> {
    // Custom filters exist only in programs that embed the gateway.
    let CheckedFile { outcome, warnings } = Edge::from_file(&args.file).check()?;
    let name = args.file.display();
    print_output(|out| {
        if args.json {
            return writeln!(out, "{:#}", check_json(&outcome, &warnings));
        }
        for warning in &warnings {
            writeln!(out, "{warning}")?;
        }
        match &outcome {
            Ok(config) => writeln!(out, "{name}: valid: {}", summarize(config)),
            Err(rejected) => rejected
                .errors
                .iter()
                .try_for_each(|error| writeln!(out, "{error}")),
        }
    })?;
    outcome
        .map(drop)
        .map_err(|rejected| CliError::Other(format!("{name}: {}", rejected.summary())))
}

/// Prints the JSON Schema of configuration files.
pub(crate) fn print_schema(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", config::schema())
}

fn summarize(config: &Config) -> String {
    let of = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    [
        of(config.listeners.len(), "listener"),
        of(config.routes.len() + config.streams.len(), "route"),
        of(config.upstreams.len(), "upstream"),
    ]
    .join(", ")
}

fn check_json(outcome: &Result<Arc<Config>, Rejected>, warnings: &[Warning]) -> serde_json::Value {
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

/// Reads and compiles a file. `fits` returns an error for a rule that this program does not support.
fn compile_file(path: &Path, fits: &dyn Fn(&Rule) -> Result<(), String>) -> Result<CompiledFile, CliError> {
    let LoadedFile { mut loaded, .. } =
        file::read(path).map_err(|error| CliError::Usage(error.to_string()))?;
    let table = loaded.config.take();
    let table = table.map(|config| Table::compile(Arc::new(config), None, &mut |rule, _| fits(rule)));
    let wrong = loaded.all_errors(table.as_ref().map_or(&[], Table::problems));
    Ok(CompiledFile { table, wrong })
}
