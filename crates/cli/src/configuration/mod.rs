//! `ringmain check`, `explain` and `schema`: configuration files, without serving them.
//!
//! Owns the output of findings; knows nothing of the keys.

mod explain;
mod findings;

use std::io::{self, Read, Write};
use std::sync::Arc;

use ringmain_control::config::{self, ConfigError};
use ringmain_control::edge::{CheckedFile, Edge};
use ringmain_control::file::{self, LoadedFile};
use ringmain_control::limits::CONFIG_BYTES;
use ringmain_gateway::model::{Config, Rule};
use ringmain_gateway::table::Table;

pub(crate) use self::explain::explain;
use self::findings::Findings;
use crate::args::configuration::{Check, CheckFormat, Input};
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
    let edge = Edge::from_file(args.input.path());
    let checked = match stdin_text(&args.input)? {
        Some(text) => edge.check_text(text),
        None => edge.check()?,
    };
    let name = args.input.path().display();
    print_output(|out| {
        let findings = Findings::new(&checked);
        if args.format == CheckFormat::Json {
            return writeln!(out, "{:#}", findings.to_json());
        }
        findings.print(out)?;
        match &checked.outcome {
            Ok(config) => writeln!(out, "{name}: valid: {}", summarize(config)),
            Err(_) => Ok(()),
        }
    })?;
    let CheckedFile { outcome, .. } = checked;
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

/// Reads standard input, if that is the file.
fn stdin_text(input: &Input) -> Result<Option<String>, CliError> {
    if let Some(contradiction) = input.contradiction() {
        return Err(CliError::Usage(contradiction.to_owned()));
    }
    if !input.is_stdin() {
        return Ok(None);
    }
    let unreadable = |why: &dyn std::fmt::Display| {
        CliError::Usage(format!(
            "cannot read the configuration from standard input: {why}"
        ))
    };
    let mut bytes = Vec::new();
    // One more is an error of the file.
    let limit = CONFIG_BYTES as u64 + 1;
    let read = io::stdin().lock().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&"not text (UTF-8)"))?;
    Ok(Some(text))
}

/// Reads and compiles a file. `fits` returns an error for a rule that this program does not support.
fn compile_file(input: &Input, fits: &dyn Fn(&Rule) -> Result<(), String>) -> Result<CompiledFile, CliError> {
    let read = match stdin_text(input)? {
        Some(text) => file::read_text(input.path(), text),
        None => file::read(input.path()).map_err(|error| CliError::unreadable(&error))?,
    };
    let LoadedFile { mut loaded, .. } = read;
    let table = loaded.config.take();
    let table = table.map(|config| Table::compile(Arc::new(config), None, &mut |rule, _| fits(rule)));
    let wrong = loaded.all_errors(table.as_ref().map_or(&[], Table::problems));
    Ok(CompiledFile { table, wrong })
}
