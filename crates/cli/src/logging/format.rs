//! The choice of the log's format by the command line, or by the environment.
//!
//! A configuration file is the third source, with the lowest precedence: `ringmain_control` applies it.

use std::ffi::{OsStr, OsString};

use clap::{CommandFactory, ValueEnum};
use ringmain_web::process_log;

use crate::args::{Cli, LogFormat};
use crate::error::CliError;

/// The variable with the format of the log of `ringmain run`, unless the command line has it.
const VARIABLE: &str = "RINGMAIN_LOG_FORMAT";

/// Selects the format of the command line, or of the environment.
///
/// # Errors
/// The variable has an unknown value.
pub(crate) fn select(option: Option<LogFormat>) -> Result<(), CliError> {
    let format = match option {
        Some(format) => Some(format),
        None => from_variable(std::env::var_os(VARIABLE).as_deref()).map_err(CliError::Usage)?,
    };
    if let Some(format) = format {
        process_log::select(format.into());
    }
    Ok(())
}

/// Selects the format for the error of a command line that could not be parsed. `words` are the arguments after the program's name.
pub(crate) fn select_for_error(words: &[OsString]) {
    if !is_run(words) {
        return;
    }
    let variable = std::env::var_os(VARIABLE);
    // An unknown value of the variable is not the error to report now.
    let format = from_words(words).or_else(|| from_variable(variable.as_deref()).ok().flatten());
    if let Some(format) = format {
        process_log::select(format.into());
    }
}

/// Parses the variable; unset and empty: `None`.
fn from_variable(value: Option<&OsStr>) -> Result<Option<LogFormat>, String> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let format = value.to_str().and_then(parse);
    format.map(Some).ok_or_else(|| {
        let found = value.to_string_lossy();
        format!("{VARIABLE}: expected `text` or `json`, found {found:?}")
    })
}

/// Returns the value of the option `--log-format` in words that were not parsed.
fn from_words(words: &[OsString]) -> Option<LogFormat> {
    let mut words = words.iter().map_while(|word| match word.to_str() {
        Some("--") => None,
        word => Some(word.unwrap_or_default()),
    });
    while let Some(word) = words.next() {
        if let Some(rest) = word.strip_prefix("--log-format") {
            let value = match rest.strip_prefix('=') {
                Some(value) => Some(value),
                None if rest.is_empty() => words.next(),
                None => continue,
            };
            return value.and_then(parse);
        }
    }
    None
}

fn parse(text: &str) -> Option<LogFormat> {
    LogFormat::from_str(text, false).ok()
}

/// Returns whether a command line is one of `ringmain run`: also without a command.
fn is_run(words: &[OsString]) -> bool {
    let first = words.first().map(OsString::as_os_str).unwrap_or_default();
    first == "run" || Cli::command().find_subcommand(first).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_variable_is_a_format_or_an_error() {
        let parsed = |value: &str| from_variable(Some(OsStr::new(value)));
        assert_eq!(from_variable(None), Ok(None));
        assert_eq!(parsed(""), Ok(None));
        assert_eq!(parsed("json"), Ok(Some(LogFormat::Json)));
        assert_eq!(parsed("text"), Ok(Some(LogFormat::Text)));
        for unknown in ["JSON", "logfmt", " json"] {
            let error = format!("RINGMAIN_LOG_FORMAT: expected `text` or `json`, found {unknown:?}");
            assert_eq!(parsed(unknown), Err(error));
        }
    }

    #[test]
    fn the_option_is_found_in_words_that_cannot_be_parsed() {
        let json = Some(LogFormat::Json);
        for (line, expected) in [
            ("run --bad --log-format json", json),
            ("--log-format=json --bad", json),
            ("run a.yaml --log-format", None),
            ("run --log-format xml", None),
            ("run --log-formats json", None),
            ("run -- --log-format json", None),
            ("run", None),
        ] {
            assert_eq!(from_words(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn other_commands_have_no_format() {
        for (line, expected) in [
            ("run x", true),
            ("", true),
            ("--listen :80", true),
            ("bench", false),
            ("check a.yaml", false),
        ] {
            assert_eq!(is_run(&words(line)), expected, "{line}");
        }
    }
}
