//! Why the program ends early, in one line, and with which exit code.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;

#[cfg(test)]
mod tests;

/// The exit code of a command line that cannot be carried out as written.
const USAGE: u8 = 2;

/// What to do when a line is not enough.
const SEE_HELP: &str = "see `ringmain --help`";

/// Why the program ends early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// Everything else.
    Other(String),
}

impl Failure {
    /// Anything that is not the fault of the command line.
    pub(crate) fn other(error: impl Display) -> Failure {
        Failure::Other(error.to_string())
    }

    /// What clap found, in one line instead of its paragraphs.
    pub(crate) fn from_clap(error: &clap::Error) -> Failure {
        if error.kind() == ErrorKind::ArgumentConflict
            && let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand)
        {
            return Failure::Usage(late_command(command));
        }
        Failure::Usage(one_line(&error.render().to_string()))
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        let (line, code) = match self {
            Failure::Usage(line) => (line, ExitCode::from(USAGE)),
            Failure::Other(line) => (line, ExitCode::FAILURE),
        };
        // Nobody is left to hear of a broken standard error.
        let _ = writeln!(std::io::stderr(), "error: {line}");
        code
    }
}

/// A word after options: a command in the wrong place, or nothing that was expected.
fn late_command(word: &str) -> String {
    if Cli::command().find_subcommand(word).is_some() {
        format!("options belong after the command: write `ringmain {word}`, then the options; {SEE_HELP}")
    } else {
        format!("unexpected argument '{word}' found: expected options only; {SEE_HELP}")
    }
}

/// Joins clap's paragraphs: what is wrong, the possible values and the tips; without the usage line.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut out = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        if !out.is_empty() {
            out.push_str(if line.starts_with("tip:") { "; " } else { " " });
        }
        out.push_str(line);
    }
    out + "; " + SEE_HELP
}
