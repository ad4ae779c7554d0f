//! A program's symbols in a file of their own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::release::{output, run};

/// A program without symbols, and the file with them.
#[derive(Debug)]
pub(crate) struct Split {
    /// The program.
    pub(crate) program: Vec<u8>,
    /// The symbols.
    pub(crate) debug: Vec<u8>,
}

/// Splits a program; `work` is a folder for the two files, `ringmain` and `ringmain.debug`.
///
/// `ringmain profile`, gdb and perf find the second by the build ID, or by the link in the first.
pub(crate) fn split(root: &Path, program: &Path, work: &Path) -> Result<Split, String> {
    let (tool, libraries) = objcopy(root)?;
    let failed =
        |error: std::io::Error| format!("cannot split the symbols of {}: {error}", program.display());
    fs::create_dir_all(work).map_err(failed)?;
    let (stripped, debug) = (work.join("ringmain"), work.join("ringmain.debug"));
    let objcopy = |args: &[&str], from: &Path, to: &Path| {
        run(Command::new(&tool)
            .env("LD_LIBRARY_PATH", &libraries)
            .args(args)
            .args([from, to]))
    };
    objcopy(&["--only-keep-debug"], program, &debug)?;
    // The link holds the name and the checksum of the file, which must exist by then.
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], program, &stripped)?;
    Ok(Split {
        program: fs::read(&stripped).map_err(failed)?,
        debug: fs::read(&debug).map_err(failed)?,
    })
}

/// Returns an objcopy that knows every target, and the folder of its libraries: rustc's own, else LLVM's.
fn objcopy(root: &Path) -> Result<(PathBuf, PathBuf), String> {
    let sysroot = output(
        Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(root),
    )?;
    let lib = Path::new(sysroot.trim()).join("lib");
    let hosts = fs::read_dir(lib.join("rustlib")).into_iter().flatten().flatten();
    let own = hosts.map(|host| host.path().join("bin/rust-objcopy"));
    let paths = env::var_os("PATH").unwrap_or_default();
    let others = env::split_paths(&paths)
        .map(|folder| folder.join("llvm-objcopy"))
        .collect::<Vec<_>>();
    let found = own.chain(others).find(|path| path.exists());
    let found = found.ok_or("expected rust-objcopy in rustc's folder or llvm-objcopy, found neither: rustup component add llvm-tools")?;
    Ok((found, lib))
}
