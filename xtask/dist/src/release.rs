//! The identity of a release: version, commit and time, and the repository that they are read from.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A release.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// The repository.
    pub(crate) root: PathBuf,
    /// The version of the workspace.
    pub(crate) version: String,
    /// The commit.
    pub(crate) commit: String,
    /// The commit's time in seconds since 1970: the time of everything that is packaged.
    pub(crate) time: u64,
    /// True if files differ from the commit.
    pub(crate) modified: bool,
}

impl Release {
    /// Reads the identity of the repository at `root`.
    pub(crate) fn read(root: &Path) -> Result<Release, String> {
        let git = |args: &[&str]| output(Command::new("git").args(args).current_dir(root));
        let manifest = std::fs::read_to_string(root.join("Cargo.toml"));
        let manifest = manifest.map_err(|error| format!("cannot read Cargo.toml: {error}"))?;
        let time = git(&["log", "-1", "--format=%ct"])?;
        Ok(Release {
            root: root.to_owned(),
            version: workspace_version(&manifest)
                .ok_or("Cargo.toml has no version in [workspace.package]")?,
            commit: git(&["rev-parse", "HEAD"])?.trim().to_owned(),
            time: time
                .trim()
                .parse()
                .map_err(|_| format!("not a time of git: {time}"))?,
            modified: !git(&["status", "--porcelain", "--untracked-files=no"])?
                .trim()
                .is_empty(),
        })
    }

    /// Returns the name of a file of the release: `ringmain-0.1.0-REST`.
    pub(crate) fn file(&self, rest: &str) -> String {
        format!("ringmain-{}-{rest}", self.version)
    }

    /// Returns the time as RFC 3339 writes it.
    pub(crate) fn rfc3339(&self) -> String {
        rfc3339(self.time)
    }
}

/// Returns the version of the workspace in its manifest.
pub(crate) fn workspace_version(manifest: &str) -> Option<String> {
    let (_, section) = manifest.split_once("[workspace.package]")?;
    let section = section.split("\n[").next()?;
    let line = section
        .lines()
        .find_map(|line| line.trim().strip_prefix("version"))?;
    let version = line.trim_start().strip_prefix('=')?.trim();
    version.strip_prefix('"')?.strip_suffix('"').map(str::to_owned)
}

/// Formats seconds since 1970 as RFC 3339, in UTC.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!(
        "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        days + 1
    )
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output = command
        .output()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{shown}: {}: {message}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{shown}: the output is not UTF-8"))
}

/// Runs a command that must succeed; its output goes to this program's.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let status = command
        .status()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{shown}: {status}"))
    }
}
