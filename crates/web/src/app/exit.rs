//! The result of `main`: success, or one line and exit code 1.

use crate::logging::process_log;

/// The outcome of a program; on failure it prints one line to standard error and ends with exit code 1.
#[derive(Debug)]
pub enum Exit {
    /// All went well.
    Success,
    /// The line to print.
    Failure(String),
}

impl std::process::Termination for Exit {
    fn report(self) -> std::process::ExitCode {
        match self {
            Exit::Success => std::process::ExitCode::SUCCESS,
            Exit::Failure(line) => {
                use std::io::Write;
                // A failure to write to standard error cannot be reported.
                let _ = std::io::stderr().write_all(process_log::error_line(&line).as_bytes());
                std::process::ExitCode::FAILURE
            }
        }
    }
}

impl From<Result<(), Box<dyn std::error::Error>>> for Exit {
    fn from(outcome: Result<(), Box<dyn std::error::Error>>) -> Exit {
        outcome.map_or_else(|error| Exit::Failure(error.to_string()), |()| Exit::Success)
    }
}
