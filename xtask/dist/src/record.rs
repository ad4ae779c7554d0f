//! The record of a build: the inputs that another machine needs to build the same bytes.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::compile::{FEATURES, FLAGS};
use crate::elf::Facts;
use crate::release::{Release, output};
use crate::target::Target;
use crate::tree;

/// A program of the release, as far as the record names it.
#[derive(Debug)]
pub(crate) struct Built {
    /// The target.
    pub(crate) target: &'static Target,
    /// The facts of its ELF headers.
    pub(crate) facts: Facts,
    /// The SHA-256 sum of the stripped program.
    pub(crate) sha256: String,
    /// The SHA-256 sum of the profile that it was built with.
    pub(crate) profile_data: Option<String>,
    /// True if it was built by this run; else it was given.
    pub(crate) built_here: bool,
}

/// Returns the record.
pub(crate) fn build(release: &Release, profile: &str, programs: &[Built]) -> Result<Vec<u8>, String> {
    let rustc = output(Command::new("rustc").arg("-vV").current_dir(&release.root))?;
    let tools = String::from_utf8(tree::read(release, "packaging/tools/requirements.txt")?)
        .map_err(|error| error.to_string())?;
    let mut targets = BTreeMap::new();
    for program in programs {
        targets.insert(program.target.triple, describe(program));
    }
    let record = json!({
        "version": release.version,
        "commit": release.commit,
        "modified": release.modified,
        "source_date_epoch": release.time,
        "cargo_profile": profile,
        "features": FEATURES,
        "rustflags": FLAGS,
        "rustc": rustc.lines().next().unwrap_or_default(),
        "linker": pinned(&tools),
        "programs": targets,
    });
    let mut text = serde_json::to_vec_pretty(&record).map_err(|error| error.to_string())?;
    text.push(b'\n');
    Ok(text)
}

fn describe(program: &Built) -> Value {
    let facts = &program.facts;
    json!({
        "sha256": program.sha256,
        "build_id": facts.build_id,
        "position_independent": facts.position_independent,
        "libraries": facts.libraries,
        "glibc": facts.glibc.map(|(major, minor)| format!("{major}.{minor}")),
        "profile_data_sha256": program.profile_data,
        "built_here": program.built_here,
    })
}

/// Returns the pinned packages among the requirements: `ziglang==0.15.2`.
fn pinned(requirements: &str) -> Vec<&str> {
    let words = requirements
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    words.filter(|word| word.contains("==")).collect()
}
