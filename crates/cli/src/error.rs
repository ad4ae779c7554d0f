//! The errors of commands: a message of one line, and the exit code.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use ringmain_control::file::UnreadableFile;
use ringmain_web::process_log;

use crate::args::Cli;

#[cfg(test)]
mod tests;

/// The exit code of a wrong command line.
const USAGE: u8 = 2;

/// An error that ends the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CliError {
    /// The command line, or a file that it names, is wrong.
    Usage(String),
    /// Any other error.
    Other(String),
}

impl CliError {
    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        match self {
            CliError::Usage(text) | CliError::Other(text) => text,
        }
    }

    /// Wraps an error that the command line has not caused.
    pub(crate) fn other(error: impl Display) -> CliError {
        CliError::Other(error.to_string())
    }

    /// A configuration file that cannot be read.
    pub(crate) fn unreadable(error: &UnreadableFile) -> CliError {
        let advice = match error.path.try_exists() {
            Ok(false) => "; `ringmain init gateway` writes one to start with",
            _ => "",
        };
        CliError::Usage(format!("{error}{advice}"))
    }

    /// Converts an error of clap to one line. `words` are the arguments after the program's name.
    pub(crate) fn from_clap(error: &clap::Error, words: &[OsString]) -> CliError {
        let context = CommandContext::from_words(words);
        let line = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(word)) if error.kind() == ErrorKind::ArgumentConflict => {
                context.misplaced_command(word, words)
            }
            _ if error.kind() == ErrorKind::UnknownArgument && context.written == "ringmain profile" => {
                let line = join_lines(&error.render().to_string());
                format!("{line}; write a command to profile after --: `ringmain profile -- COMMAND`")
            }
            _ => join_lines(&error.render().to_string()),
        };
        CliError::Usage(format!("{line}; see `{} --help`", context.written))
    }

    /// Prints the message to standard error, and returns the exit code.
    pub(crate) fn print(&self) -> ExitCode {
        let (line, code) = match self {
            CliError::Usage(line) => (line, ExitCode::from(USAGE)),
            CliError::Other(line) => (line, ExitCode::FAILURE),
        };
        // A broken standard error cannot be reported.
        let _ = std::io::stderr().write_all(process_log::error_line(line).as_bytes());
        code
    }
}

/// The command with its own subcommands or help that a command line selects.
struct CommandContext {
    written: &'static str,
    definition: Command,
}

impl CommandContext {
    fn from_words(words: &[OsString]) -> CommandContext {
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
        CommandContext {
            written,
            definition: own.cloned().unwrap_or(definition),
        }
    }

    /// Describes an unexpected word after options: a command there, or another word.
    fn misplaced_command(&self, word: &str, words: &[OsString]) -> String {
        let mut commands = words
            .iter()
            .filter_map(|word| self.definition.find_subcommand(word));
        match commands.next() {
            Some(command) => {
                let (written, command) = (self.written, command.get_name());
                format!("expected options after the command: write `{written} {command}`, then the options")
            }
            None => format!("unexpected argument '{word}' found: expected options only"),
        }
    }
}

/// Joins the paragraphs of clap (error, possible values, tips), without the usage line.
fn join_lines(text: &str) -> String {
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
