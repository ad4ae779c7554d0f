//! `--check`: the release a second time, from a clone of the commit in another folder.

use std::fs;
use std::process::Command;

use crate::args::Request;
use crate::package::{self, Files};
use crate::release::{Release, run as run_command};
use crate::tools::Tools;

/// Builds the release again and compares every byte.
pub(crate) fn run(release: &Release, request: &Request, tools: &Tools, files: &Files) -> Result<(), String> {
    if release.modified {
        return Err("`--check` compares with a clone of the commit: commit first".into());
    }
    let clone = release.root.join("target/package-check");
    let _ = fs::remove_dir_all(&clone);
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks", "."])
        .arg(&clone)
        .current_dir(&release.root);
    run_command(&mut git)?;
    run_command(
        Command::new("git")
            .args(["checkout", "--quiet", &release.commit])
            .current_dir(&clone),
    )?;
    let second = package::build(&Release::read(&clone)?, request, tools)?;
    let differences = differences(files, &second);
    if !differences.is_empty() {
        return Err(format!("a second build differs:\n  {}", differences.join("\n  ")));
    }
    let given = if request.binaries.is_empty() {
        ""
    } else {
        "; the given programs were packaged twice, not built"
    };
    println!(
        "a second build in another folder has the same bytes: {} files{given}",
        files.len()
    );
    Ok(())
}

/// Returns the files that differ, with the position of the first different byte.
pub(crate) fn differences(first: &Files, second: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (name, data) in first {
        match second.get(name) {
            None => found.push(format!("{name}: only in the first build")),
            Some(other) if other != data => {
                let at = data.iter().zip(other).take_while(|(a, b)| a == b).count();
                found.push(format!(
                    "{name}: differs from byte {at} on ({} and {} bytes)",
                    data.len(),
                    other.len()
                ));
            }
            Some(_) => {}
        }
    }
    let extra = second.keys().filter(|name| !first.contains_key(*name));
    found.extend(extra.map(|name| format!("{name}: only in the second build")));
    found
}
