//! Developer tasks: `cargo xtask test|tidy|english|spell|book|ci|deny|dist|suite`.
//!
//! Owns the meaning of "clean" for this repository and the order of the checks.
//! Knows nothing of what the product does.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks")]

mod book;
mod ci;
mod dist;
mod steps;
mod suite;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  test [NAME]...            all tests, by cargo nextest where it is installed; with names, those that contain one
  tidy                      structure, style, language, pages and subjects of commits, which the compiler does not check
  tidy --lower              lowers the ceilings of the rule `english`, then checks
  english [CRATE]...        the language of each crate in figures; with names, fails if these crates
                            together exceed the limits of CONTRIBUTING.md
  spell                     spelling of the documents, by hunspell and docs/words.txt
  book [COMMAND [ARGS]...]  the documentation site in target/book, by mdbook; with a command, that one (`serve`)
  ci [--except STEP]...     everything that a change must pass
  ci --list                 the steps of `ci` and their commands
  deny                      licences, bans, sources and advisories of the dependencies
  dist [--help]             the packages of a release: archives, .deb, .rpm, container image, checksums
  suite [NAME [ARGS]...]    the slower suites; without a name it lists them
  suite all [--except NAME]...
                            every suite in turn, then a table of times";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    match words.as_slice() {
        ["test", filters @ ..] => test::run(&root, filters),
        ["tidy"] => tidy::run(&root),
        ["tidy", "--lower"] => tidy::run_lower(&root),
        ["english", crates @ ..] => tidy::print_english(&root, crates),
        ["spell"] => tidy::pages::spelling::run(&root),
        ["book", "preprocess", "supports", _] => ExitCode::SUCCESS,
        ["book", "preprocess"] => book::preprocess(&root),
        ["book", rest @ ..] => book::build(&root, rest),
        ["ci", rest @ ..] => ci::run(&root, rest),
        ["deny"] => deny(&root),
        ["dist", rest @ ..] => dist::run(&root, rest),
        ["suite"] => suite::list(),
        ["suite", name, rest @ ..] => suite::run(&root, name, rest),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => usage_error("a task is missing"),
        _ => usage_error(&format!("no such task: `{}`", words.join(" "))),
    }
}

fn deny(root: &Path) -> ExitCode {
    match ci::deny(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("deny: {what}");
            ExitCode::FAILURE
        }
    }
}

/// The repository: the parent of this crate's folder, as cargo names it when it runs this.
///
/// The folder at compile time would be another one where several work trees share a target folder.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here)
        .parent()
        .expect("xtask lies inside the repository")
        .to_path_buf()
}

/// Reports an error of the command line; exit code 2.
fn usage_error(what: &str) -> ExitCode {
    eprintln!("{what}\n{USAGE}");
    ExitCode::from(2)
}
