//! The `.deb` and the `.rpm`, by nfpm from `packaging/nfpm.yaml`.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::archive::Entry;
use crate::release::{Release, output};
use crate::target::{Libc, Target};
use crate::tools::Tools;
use crate::tree;

/// The scripts that dpkg and rpm run.
const SCRIPTS: &[&str] = &["postinstall.sh", "preremove.sh", "postremove.sh"];

/// Returns both packages with their file names; `work` is a folder for the files.
pub(crate) fn build(
    release: &Release,
    tools: &Tools,
    target: &Target,
    files: &[Entry],
    work: &Path,
) -> Result<Vec<(String, Vec<u8>)>, String> {
    let _ = fs::remove_dir_all(work);
    for file in files {
        write(work, file, release.time)?;
    }
    for script in SCRIPTS {
        let text = tree::read(release, &format!("packaging/scripts/{script}"))?;
        write(
            work,
            &Entry::file(format!("scripts/{script}"), 0o755, text),
            release.time,
        )?;
    }
    let template =
        String::from_utf8(tree::read(release, "packaging/nfpm.yaml")?).map_err(|error| error.to_string())?;
    write(
        work,
        &Entry::file("nfpm.yaml", 0o644, settings(&template, &release.version, target)),
        release.time,
    )?;
    let (nfpm, out) = (tools.nfpm()?, work.join("out"));
    fs::create_dir_all(&out).map_err(|error| format!("cannot create {}: {error}", out.display()))?;
    let mut packages = Vec::new();
    for format in ["deb", "rpm"] {
        let mut command = Command::new(&nfpm);
        command.args([
            "package",
            "--config",
            "nfpm.yaml",
            "--packager",
            format,
            "--target",
            "out",
        ]);
        output(
            command
                .current_dir(work)
                .env("SOURCE_DATE_EPOCH", release.time.to_string()),
        )?;
    }
    for package in fs::read_dir(&out).map_err(|error| error.to_string())?.flatten() {
        let data = fs::read(package.path()).map_err(|error| error.to_string())?;
        packages.push((package.file_name().to_string_lossy().into_owned(), data));
    }
    packages.sort();
    Ok(packages)
}

/// Fills in the settings of nfpm.
pub(crate) fn settings(template: &str, version: &str, target: &Target) -> String {
    let needs_glibc = target.libc == Libc::Glibc;
    // A static program needs no library.
    let lines = template
        .lines()
        .filter(|line| needs_glibc || !line.contains("_LIBC@"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.replace("@VERSION@", version)
        .replace("@GOARCH@", target.arch.go_name())
        .replace("@DEB_LIBC@", "libc6 (>= 2.31)")
        .replace("@RPM_LIBC@", "libc.so.6(GLIBC_2.31)(64bit)")
}

/// Writes a file with its permissions, and with the release's time.
fn write(work: &Path, entry: &Entry, time: u64) -> Result<(), String> {
    let path = work.join(&entry.path);
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(work))?;
        fs::write(&path, entry.data.as_deref().unwrap_or_default())?;
        fs::set_permissions(&path, Permissions::from_mode(entry.mode))?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(time);
        File::options()
            .write(true)
            .open(&path)?
            .set_times(FileTimes::new().set_modified(time))
    };
    write().map_err(|error| format!("cannot write {}: {error}", path.display()))
}
