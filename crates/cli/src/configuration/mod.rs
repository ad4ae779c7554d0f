//! `ringmain check`, `explain` and `schema`: what a configuration file says, without serving it.
//!
//! Knows how findings are printed; not what keys mean.

mod explain;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use ringmain_control::config::{self, ConfigError};
use ringmain_control::file::{self, Reading};
use ringmain_gateway::filter::Filters;
use ringmain_gateway::model::Rule;
use ringmain_gateway::table::Table;
use serde_json::json;

pub(crate) use self::explain::explain;
use crate::args::configuration::Check;
use crate::failure::Failure;
use crate::print;

/// A file, read and compiled.
struct Checked {
    /// `None`: the file is wrong as a whole.
    table: Option<Table<()>>,
    wrong: Vec<ConfigError>,
    more: usize,
    left_out: Vec<String>,
}

/// Says whether a file is right.
pub(crate) fn check(args: &Check) -> Result<(), Failure> {
    // This program has no filters of its own; those that embed the gateway have.
    let filters = Filters::new();
    let checked = read(&args.file, &|rule| filters.check(rule))?;
    let count = checked.wrong.len() + checked.more;
    let name = args.file.display();
    print(|out| {
        if args.json {
            return writeln!(out, "{:#}", as_json(&checked));
        }
        for error in &checked.wrong {
            writeln!(out, "{error}")?;
        }
        for part in &checked.left_out {
            writeln!(out, "{name}: {part}")?;
        }
        match &checked.table {
            Some(table) if count == 0 => writeln!(out, "{name}: right: {}", amounts(table)),
            _ => Ok(()),
        }
    })?;
    match count {
        0 => Ok(()),
        1 => Err(Failure::Other(format!("{name}: 1 thing is wrong"))),
        _ => Err(Failure::Other(format!("{name}: {count} things are wrong"))),
    }
}

/// The JSON Schema of configuration files.
pub(crate) fn schema(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", config::schema())
}

fn amounts(table: &Table<()>) -> String {
    let config = table.config();
    let of = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    [
        of(config.listeners.len(), "listener"),
        of(config.routes.len() + config.streams.len(), "route"),
        of(config.upstreams.len(), "upstream"),
    ]
    .join(", ")
}

fn as_json(checked: &Checked) -> serde_json::Value {
    let errors = checked.wrong.iter().map(|error| {
        json!({
            "file": error.file,
            "line": error.position.line,
            "column": error.position.column,
            "what": error.what,
            "expected": error.expected,
            "found": error.found,
            "advice": error.advice,
        })
    });
    json!({
        "right": checked.wrong.is_empty(),
        "errors": errors.collect::<Vec<_>>(),
        "more": checked.more,
        "outcomes": checked.left_out,
    })
}

/// Reads a file. `fits`: whether this program has what a rule wants of it.
fn read(path: &Path, fits: &dyn Fn(&Rule) -> Result<(), String>) -> Result<Checked, Failure> {
    let Reading { mut loaded, .. } = file::read(path).map_err(|error| Failure::Usage(error.to_string()))?;
    let table = loaded.config.take();
    let table = table.map(|config| Table::compile(Arc::new(config), None, &mut |rule, _| fits(rule)));
    let wrong = loaded.wrong(table.as_ref().map_or(&[], Table::problems));
    Ok(Checked {
        table,
        wrong,
        more: loaded.more,
        left_out: loaded.outcomes().collect(),
    })
}
