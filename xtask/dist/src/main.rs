//! `cargo xtask dist`: the archives, packages and container image of a release.
//!
//! Owns the order of the work: binaries, their checks, packages, checksums. A crate of its own, because `xtask` is compiled first in every
//! CI run and needs none of these dependencies. Knows nothing of the product but the names of its package and binary.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks")]

mod archive;
mod args;
mod check;
mod checksums;
mod compile;
mod elf;
mod image;
mod package;
mod record;
mod release;
mod sbom;
mod symbols;
mod system_package;
mod target;
#[cfg(test)]
mod tests;
mod tools;
mod tree;

use std::process::ExitCode;

use args::Request;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match Request::parse(&words) {
        Ok(Some(request)) => package::run(&request),
        Ok(None) => {
            println!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dist: {error}");
            ExitCode::FAILURE
        }
    }
}
