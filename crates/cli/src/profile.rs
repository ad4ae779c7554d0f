//! `ringmain profile`: records a profile, and writes the results.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong command line. Knows nothing of sampling and drawing.

use std::fs::File as Opened;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ringmain_tune::profile::folded::Folded;
use ringmain_tune::profile::summary::{self, Summary};
use ringmain_tune::profile::{self, Options, Target, difference, limits};

use crate::args::bench::values::File;
use crate::args::profile::{Diff, Profile as Args, ProfileCommand};
use crate::bench::output::{Sink, to_standard_error, to_standard_output};
use crate::error::CliError;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<(), CliError> {
    match &args.command {
        Some(ProfileCommand::Diff(args)) => compare_profiles(args),
        None => take_profile(args),
    }
}

fn take_profile(args: Args) -> Result<(), CliError> {
    if let Some(contradiction) = args.contradiction() {
        return Err(CliError::Usage(format!(
            "{contradiction}; see `ringmain profile --help`"
        )));
    }
    let results = args.results;
    let open =
        |option: &str, file: &Option<File>| file.as_ref().map(|file| Sink::open(option, file)).transpose();
    let svg = open("--svg", &results.svg)?;
    let folded = open("--folded", &results.folded)?;
    let json = open("--json", &results.json)?;
    let files = [&results.svg, &results.folded, &results.json];
    let summary = !results.quiet && !files.into_iter().flatten().any(File::is_standard_output);
    let nothing = svg.is_none() && folded.is_none() && json.is_none();

    let interrupt = crate::bench::init_process(results.quiet)?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupt.set_on_interrupt(stop.clone());
    let options = Options {
        target: args.pid.map_or(Target::Command(args.run), Target::Process),
        duration: args.sampling.duration.map(|time| time.0),
        frequency: args.sampling.frequency,
        stacks: args.sampling.stacks.into(),
        stack_bytes: args.sampling.stack_bytes,
    };
    if !results.quiet {
        to_standard_error(&format!(
            "sampling {}; press Ctrl-C to stop",
            describe_target(&options)
        ));
    }
    let profile = profile::take(&options, &stop).map_err(CliError::other)?;

    if let Some(sink) = folded {
        sink.write(&profile.folded.write())?;
    }
    if let Some(sink) = svg {
        sink.write(&profile.draw())?;
    }
    let figures = Summary::of(&profile.folded);
    if let Some(sink) = json {
        sink.write(&summary::profile_json(&figures, &profile.facts))?;
    }
    if summary {
        to_standard_output(&summary::profile_text(&figures, Some(&profile.facts)))?;
        if nothing {
            to_standard_error("to write a flame graph, add --svg profile.svg");
        }
    }
    Ok(())
}

fn describe_target(options: &Options) -> String {
    match (&options.target, options.duration) {
        (Target::Process(pid), duration) => {
            let duration = duration.unwrap_or(limits::DURATION_DEFAULT);
            format!("process {pid} for {} s", duration.as_secs_f64())
        }
        (Target::Command(_), Some(duration)) => {
            format!("the command for at most {} s", duration.as_secs_f64())
        }
        (Target::Command(_), None) => "the command until it exits".into(),
    }
}

fn compare_profiles(args: &Diff) -> Result<(), CliError> {
    let before = read_folded(&args.before)?;
    let after = read_folded(&args.after)?;
    let sink =
        |option: &str, file: &Option<File>| file.as_ref().map(|file| Sink::open(option, file)).transpose();
    let (svg, json) = (sink("--svg", &args.svg)?, sink("--json", &args.json)?);
    let names = [&args.before, &args.after].map(|path| path.display().to_string());
    let names = [names[0].as_str(), names[1].as_str()];
    let found = difference::compare(&before, &after);
    let outputs = [&args.svg, &args.json].into_iter().flatten();
    let summary = !outputs.into_iter().any(File::is_standard_output);
    if let Some(sink) = svg {
        sink.write(&difference::draw([&before, &after], names))?;
    }
    if let Some(sink) = json {
        sink.write(&summary::difference_json(&found, names))?;
    }
    if summary {
        to_standard_output(&summary::difference_text(&found, names))?;
    }
    Ok(())
}

/// Reads a file of folded stacks.
fn read_folded(path: &Path) -> Result<Folded, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::Usage(format!("{}: {error}", path.display()));
    let file = Opened::open(path).map_err(|error| failed(&error))?;
    let mut text = String::new();
    // One byte more than the limit, to detect a longer file.
    file.take(limits::FOLDED_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| failed(&error))?;
    Folded::parse(&text).map_err(|error| failed(&error))
}
