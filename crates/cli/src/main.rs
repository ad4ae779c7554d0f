//! The binary `ringmain`: parses the command line, runs the command, and returns its exit code: 0 done, 1 failed, 2 wrong
//! command line.
//!
//! Data goes to standard output, messages to standard error. Knows nothing of protocols.
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::bare_urls,
    reason = "doc comments of arguments are help texts, with brackets and addresses"
)]

mod args;
mod bench;
mod configuration;
mod echo;
mod error;
mod feed;
mod init;
mod limits;
mod logging;
mod market;
mod profile;
mod reference;
mod run;
mod secret;
mod stats;
mod ticker;
mod tune;
mod version;
mod welcome;

use std::ffi::OsString;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::process::ExitCode;

use ringmain_sys::inherit::{self, Inherited};

use crate::args::{Cli, Command, Serve};
use crate::error::CliError;

/// Publications and snapshots are allocated by one worker and freed by another: that must not take a lock (decision 0021).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before any descriptor is opened: inherited listeners are recognised by their number.
    let inherited = inherit::take();
    std::panic::set_hook(Box::new(report_panic));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| run_command(inherited)));
    logging::flush();
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => failure.print(),
        // The hook has reported it.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run_command(inherited: Result<Vec<Inherited>, inherit::InheritError>) -> Result<(), CliError> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::parse_args(words.clone()) {
        Ok(cli) => cli,
        Err(answer) if !answer.use_stderr() => {
            // Help or version.
            return print_output(|_| answer.print());
        }
        Err(error) => {
            let words = words.get(1..).unwrap_or_default();
            logging::format::select_for_error(words);
            return Err(CliError::from_clap(&error, words));
        }
    };
    let without = Serve {
        file: None,
        run: cli.run,
    };
    match cli.command.unwrap_or_else(|| Command::Run(Box::new(without))) {
        Command::Run(serve) => run::run(&serve, inherited.map_err(CliError::other)?),
        Command::Bench(args) => bench::run_bench(*args),
        Command::Feed(args) => feed::run(&args),
        Command::Profile(args) => profile::run(*args),
        Command::Tune(args) => tune::run(*args),
        Command::Check(args) => configuration::check_file(&args),
        Command::Explain(args) => configuration::explain(&args),
        Command::Init(args) => init::run(&args),
        Command::Help { command } => print_help(command),
        Command::Schema => print_output(|out| configuration::print_schema(out)),
        Command::Completions { shell } => print_output(|out| reference::write_completions(shell, out)),
        Command::Man { dir: None } => print_output(|out| reference::write_manual(out)),
        Command::Man { dir: Some(dir) } => reference::write_manual_pages(&dir).map_err(|error| {
            CliError::Other(format!(
                "cannot write the manual pages to {}: {error}",
                dir.display()
            ))
        }),
    }
}

/// `ringmain help COMMAND` is `ringmain COMMAND --help`.
fn print_help(command: Vec<OsString>) -> Result<(), CliError> {
    let words = [OsString::from("ringmain")].into_iter().chain(command);
    let words: Vec<OsString> = words.chain([OsString::from("--help")]).collect();
    match Cli::parse_args(words.clone()) {
        Err(answer) if !answer.use_stderr() => print_output(|_| answer.print()),
        Err(error) => Err(CliError::from_clap(&error, words.get(1..).unwrap_or_default())),
        // The last word is an argument of an operand before it.
        Ok(_) => Err(CliError::Usage(
            "expected a command after `ringmain help`; see `ringmain help`".to_owned(),
        )),
    }
}

/// Writes to standard output. Fails on every error but a closed pipe: its reader needs no more.
fn print_output(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Other(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Logs a panic in one line: a backtrace is of no use to operators.
fn report_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("no message");
    let place = info.location().map_or_else(String::new, |l| format!(" at {l}"));
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed").to_owned();
    let fields = [("event", "panic"), ("thread", name.as_str())];
    logging::log_or_print(
        &log::Record::builder()
            .level(log::Level::Error)
            .target("ringmain")
            .key_values(&fields)
            .args(format_args!(
                "panic in thread {name}{place}: {message}; this is a bug, please report it"
            ))
            .build(),
    );
}
