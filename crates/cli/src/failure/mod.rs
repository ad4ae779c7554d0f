//! Why the program ends early, in one line, and with which exit code.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

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
    /// Anything that is not the fault of the command line.
    pub(crate) fn other(error: impl Display) -> Failure {
        Failure::Other(error.to_string())
    }

    /// What clap found, in one line instead of its paragraphs.
    pub(crate) fn from_clap(error: &clap::Error) -> Failure {
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            let what = "expected a command, such as: ringmain run --echo; see `ringmain --help`";
            return Failure::Usage(what.into());
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

/// Joins clap's paragraphs: what is wrong, the possible values and the tips; without the usage line.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    // Clap shows the usage of the command that it could not make sense of.
    let of_the_program = text.contains("Usage: ringmain <COMMAND>");
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
    let help = if of_the_program {
        "ringmain --help"
    } else {
        "ringmain run --help"
    };
    out + "; see `" + help + "`"
}
