//! `ringmain bench merge`: merges the histograms of several runs without loss.

use std::fs;
use std::path::{Path, PathBuf};

use ringmain_load::figures::Latency;
use ringmain_load::record::{self, Head, Recorded, Writer};
use ringmain_load::report::{json, text};

use super::output;
use crate::error::CliError;

/// Reads the files, prints the merged histogram, and writes it to `output` if there is one.
pub(super) fn run(files: &[PathBuf], output: Option<&Path>, json: bool) -> Result<(), CliError> {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut all = Vec::new();
    for (path, name) in files.iter().zip(&names) {
        let bytes =
            fs::read(path).map_err(|error| CliError::Other(format!("cannot read {name}: {error}")))?;
        all.push(record::read(name, &bytes).map_err(CliError::other)?);
    }
    let merged = record::merge(all).map_err(|problem| CliError::Other(format!("cannot merge: {problem}")))?;
    if let Some(path) = output {
        write_merged(path, &merged, &names)
            .map_err(|error| CliError::Other(format!("cannot write {}: {error}", path.display())))?;
    }
    if json {
        return output::to_standard_output(&json::merged(&merged));
    }
    let latencies: Vec<(&str, Latency)> = merged
        .tags
        .iter()
        .map(|(tag, tagged)| (tag_label(tag), Latency::of(&tagged.histogram)))
        .collect();
    let columns: Vec<(&str, &Latency)> = latencies.iter().map(|(tag, latency)| (*tag, latency)).collect();
    output::to_standard_output(&text::merged(&names, &columns, output::terminal_style()))
}

/// Returns the column heading of a tag.
fn tag_label(tag: &str) -> &str {
    if tag.is_empty() { "untagged" } else { tag }
}

fn write_merged(path: &Path, merged: &Recorded, names: &[String]) -> std::io::Result<()> {
    let head = Head {
        target: &names.join(" + "),
        engine: "merged",
        rate: None,
        began: merged.from(),
    };
    let mut writer = Writer::new(fs::File::create(path)?, &head)?;
    for (tag, tagged) in &merged.tags {
        let length = tagged.until.saturating_sub(tagged.from);
        writer.line(
            tag,
            tagged.from.saturating_sub(merged.from()),
            length,
            &tagged.histogram,
        )?;
    }
    writer.finish()?;
    Ok(())
}
