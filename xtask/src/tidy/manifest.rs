//! Every dependency of the workspace says why it is here rather than code of our own.

use super::Finding;

const SECTION: &str = "[workspace.dependencies";

/// `text` is the root `Cargo.toml`.
pub(crate) fn explained(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut inside = false;
    let mut depth = 0;
    let mut above = "";
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let mut name = None;
        if depth == 0 && line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
            name = line.strip_prefix(SECTION).and_then(|rest| rest.strip_prefix('.'));
            name = name.map(|rest| rest.trim_end_matches(']'));
        } else {
            if depth == 0 && inside && !line.starts_with('#') {
                name = line.split_once('=').map(|(key, _)| key.trim());
            }
            depth = depth_after(depth, line);
        }
        if let Some(name) = name
            && !above.starts_with('#')
            && !line.contains("path =")
        {
            findings.push(Finding::new(
                "Cargo.toml",
                number,
                format!("dependency `{name}` does not say why it is here"),
                "a comment on the line above it",
                "write there what it does for us that our own code should not",
            ));
        }
        above = line;
    }
    findings
}

/// Open brackets after `line`, so that the lines of an array are not taken for dependencies.
fn depth_after(depth: usize, line: &str) -> usize {
    let code = line.split('#').next().unwrap_or_default();
    let opened = code.matches(['[', '{']).count();
    let closed = code.matches([']', '}']).count();
    (depth + opened).saturating_sub(closed)
}
