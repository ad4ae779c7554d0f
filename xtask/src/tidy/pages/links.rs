//! Each relative link of a page resolves to a file or folder, and its fragment to a heading.
//!
//! Works on pages and a function that tests for existence; knows nothing of the file system, and checks no address of the network.

use std::collections::BTreeMap;

use super::super::Finding;
use super::Page;

/// The target of a relative link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Path from the root of the repository.
    pub(crate) path: String,
    /// The text behind `#`.
    pub(crate) fragment: Option<String>,
}

/// Checks the links of every page.
pub(crate) fn inspect(pages: &[Page], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let anchors: BTreeMap<&str, &[String]> = pages
        .iter()
        .map(|page| (page.path.as_str(), page.anchors.as_slice()))
        .collect();
    let mut findings = Vec::new();
    for page in pages {
        for link in &page.links {
            let Some(target) = resolve(&page.path, &link.address) else {
                continue;
            };
            let Target { path, fragment } = target;
            let (what, expected) = if path.starts_with("../") || !exists(&path) {
                (
                    format!("link to `{}`: {path} does not exist", link.address),
                    "a file of the repository".to_owned(),
                )
            } else if let (Some(fragment), Some(anchors)) = (fragment, anchors.get(path.as_str())) {
                if anchors.contains(&fragment) {
                    continue;
                }
                (
                    format!("link to `{}`: {path} has no heading `{fragment}`", link.address),
                    closest(&fragment, anchors),
                )
            } else {
                continue;
            };
            findings.push(Finding::new(
                &page.path,
                link.line,
                what,
                expected,
                "correct the address",
            ));
        }
    }
    findings
}

/// Returns the target of a link in the page at `from`; `None` for an address with a scheme and for an absolute path.
pub(crate) fn resolve(from: &str, address: &str) -> Option<Target> {
    let address = address.trim_matches(['<', '>']);
    let has_scheme = address.split_once(':').is_some_and(|(scheme, _)| {
        scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
    });
    if address.is_empty() || has_scheme || address.starts_with('/') {
        return None;
    }
    let (path, fragment) = match address.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment.to_owned())),
        None => (address, None),
    };
    let path = if path.is_empty() {
        from.to_owned()
    } else {
        normalize(from, path)
    };
    Some(Target { path, fragment })
}

/// Joins the folder of the page at `from` with `path`; a result outside the repository begins with `../`.
fn normalize(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the headings that share a word with the missing one, else all.
fn closest(fragment: &str, anchors: &[String]) -> String {
    let shares_word = |anchor: &&String| {
        fragment
            .split('-')
            .any(|word| word.len() > 2 && anchor.split('-').any(|other| other == word))
    };
    let similar: Vec<&str> = anchors.iter().filter(shares_word).map(String::as_str).collect();
    if similar.is_empty() {
        return format!("one of: {}", anchors.join(", "));
    }
    format!("one of: {}", similar.join(", "))
}
