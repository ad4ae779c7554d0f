//! Why the program ends early, in one line, and with which exit code.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::args::Cli;

#[cfg(test)]
mod tests;

/// The exit code of a command line that cannot be carried out as written.
const USAGE: u8 = 2;

/// Why the program ends early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// Everything else.
    Other(String),
}

impl Failure {
    /// The message.
    pub(crate) fn text(&self) -> &str {
        match self {
            Failure::Usage(text) | Failure::Other(text) => text,
        }
    }

    /// Anything that is not the fault of the command line.
    pub(crate) fn other(error: impl Display) -> Failure {
        Failure::Other(error.to_string())
    }

    /// What clap found, in one line instead of its paragraphs. `words` are those after the program's name.
    pub(crate) fn from_clap(error: &clap::Error, words: &[OsString]) -> Failure {
        let place = Place::of(words);
        let line = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(word)) if error.kind() == ErrorKind::ArgumentConflict => {
                place.late_command(word, words)
            }
            _ if error.kind() == ErrorKind::UnknownArgument && place.written == "ringmain profile" => {
                let line = one_line(&error.render().to_string());
                format!("{line}; a command to profile stands behind --: `ringmain profile -- COMMAND`")
            }
            _ => one_line(&error.render().to_string()),
        };
        Failure::Usage(format!("{line}; see `{} --help`", place.written))
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

/// The command that a line is for, as far as it has commands and help of its own.
struct Place {
    written: &'static str,
    definition: Command,
}

impl Place {
    fn of(words: &[OsString]) -> Place {
        let definition = Cli::command();
        let first = words.first().and_then(|word| word.to_str()).unwrap_or_default();
        let written = match first {
            "bench" => "ringmain bench",
            "feed" => "ringmain feed",
            "profile" => "ringmain profile",
            "tune" => "ringmain tune",
            _ => "ringmain",
        };
        let own = definition
            .find_subcommand(first)
            .filter(|_| written != "ringmain");
        Place {
            written,
            definition: own.cloned().unwrap_or(definition),
        }
    }

    /// A word after options: a command in the wrong place, what follows one there, or nothing that was expected.
    fn late_command(&self, word: &str, words: &[OsString]) -> String {
        let mut commands = words
            .iter()
            .filter_map(|word| self.definition.find_subcommand(word));
        match commands.next() {
            Some(command) => {
                let (written, command) = (self.written, command.get_name());
                format!("options belong after the command: write `{written} {command}`, then the options")
            }
            None => format!("unexpected argument '{word}' found: expected options only"),
        }
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
    out
}
