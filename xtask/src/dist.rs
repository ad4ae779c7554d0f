//! `cargo xtask dist`: runs the crate `ringmain-dist`, whose dependencies this one does not have.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs the packer with these arguments.
pub(crate) fn run(root: &Path, args: &[&str]) -> ExitCode {
    let mut cargo = Command::new("cargo");
    // Optimised: it compresses some hundred megabytes of symbols.
    cargo.args([
        "run",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "ringmain-dist",
        "--",
    ]);
    match cargo.args(args).current_dir(root).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)),
        Err(error) => {
            eprintln!("dist: cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
