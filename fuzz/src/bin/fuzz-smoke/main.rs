//! Runs every fuzz target on stable Rust: its corpus first, then seeded mutations of it.
//!
//! Owns the command line, the clock and the report. Without coverage to guide it this finds less
//! than libFuzzer, but it needs no nightly compiler and runs on every change.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it runs for a stretch of real time")]

mod mutate;

use std::fs;
use std::io;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mutate::Random;
use ringmain_fuzz::{TARGETS, Target};

const USAGE: &str = "usage: fuzz-smoke [--seconds N] [--seed N] [--target NAME [--input FILE]]
  --seconds  how long each target runs (default 5)
  --seed     of the mutations (default: from the clock, printed)
  --target   only this one
  --input    only this input, once";

/// What the command line asked for.
struct Options {
    seconds: u64,
    seed: u64,
    target: Option<String>,
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("{what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let chosen = |target: &&Target| options.target.as_deref().is_none_or(|name| name == target.name);
    let mut failed = false;
    for target in TARGETS.iter().filter(chosen) {
        let outcome = match &options.input {
            Some(path) => replay(target, path),
            None => fuzz(target, &options),
        };
        if let Err(what) = outcome {
            eprintln!("{}: {what}", target.name);
            failed = true;
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = u64::from(clock.subsec_nanos()) ^ (clock.as_secs() << 32);
    let mut options = Options {
        seconds: 5,
        seed,
        target: None,
        input: None,
    };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("`{flag}` needs a number, not `{value}`"))
        };
        match flag.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--target" if TARGETS.iter().any(|target| target.name == value) => options.target = Some(value),
            "--target" => return Err(format!("no target `{value}`; there are {}", names())),
            "--input" => options.input = Some(value.into()),
            _ => return Err(format!("`{flag}` is not known")),
        }
    }
    if options.input.is_some() && options.target.is_none() {
        return Err("`--input` needs `--target`".into());
    }
    Ok(options)
}

fn names() -> String {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.join(", ")
}

fn replay(target: &Target, path: &Path) -> Result<(), String> {
    let input = fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    run(target, &input)
}

/// The corpus, then mutations until the time is over.
fn fuzz(target: &Target, options: &Options) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let corpus = corpus(&folder).map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    if corpus.is_empty() {
        return Err(format!(
            "{} is empty; put at least one input there",
            folder.display()
        ));
    }
    for input in &corpus {
        run(target, input)?;
    }
    let started = Instant::now();
    let limit = Duration::from_secs(options.seconds);
    let mut random = Random::new(options.seed);
    let mut count = 0_u64;
    while started.elapsed() < limit {
        run(target, &mutate::input(&corpus, &mut random))
            .map_err(|what| format!("{what}\nseed {}, input {count}", options.seed))?;
        count += 1;
    }
    println!(
        "{}: {} of the corpus, {count} mutations, seed {}",
        target.name,
        corpus.len(),
        options.seed
    );
    Ok(())
}

/// All inputs in the folder, in order of their names, so that a seed means the same everywhere.
fn corpus(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// Runs one input; when it panics, keeps the input and says how to run it again.
fn run(target: &Target, input: &[u8]) -> Result<(), String> {
    if catch_unwind(|| (target.run)(input)).is_ok() {
        return Ok(());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("artifacts")
        .join(target.name);
    let path = folder.join("smoke-crash");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&path, input))
        .map_err(|error| format!("a law is broken, and the input could not be kept: {error}: {input:?}"))?;
    Err(format!(
        "a law is broken (see the panic above); run it again with `--target {} --input {}`",
        target.name,
        path.display()
    ))
}
