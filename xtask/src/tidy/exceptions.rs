//! Limits of size, and the list of what may exceed them: it only shrinks.

use super::Finding;

/// Longest file, lines.
pub(crate) const FILE_LINES: usize = 600;

/// Longest function from its `fn` to its closing brace, lines.
pub(crate) const FUNCTION_LINES: usize = 70;

/// How long something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// The file, relative to the root.
    pub(crate) path: String,
    /// The function's name; `None` for the whole file.
    pub(crate) function: Option<String>,
    /// Where it begins.
    pub(crate) line: usize,
    /// Its length.
    pub(crate) lines: usize,
}

impl Size {
    /// The name by which the list knows it: `path`, or `path::function`.
    fn name(&self) -> String {
        match &self.function {
            Some(function) => format!("{}::{function}", self.path),
            None => self.path.clone(),
        }
    }

    fn limit(&self) -> usize {
        if self.function.is_some() {
            FUNCTION_LINES
        } else {
            FILE_LINES
        }
    }
}

/// One line of the list: `LINES NAME REASON`.
struct Exception<'a> {
    line: usize,
    lines: usize,
    name: &'a str,
}

/// Compares every size with its limit or its line in `list` (the text of the file `list_path`).
pub(crate) fn compare(list_path: &str, list: &str, sizes: &[Size]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut exceptions = Vec::new();
    for (line, text) in (1..).zip(list.lines()) {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        match parse(line, text) {
            Some(exception) => exceptions.push(exception),
            None => findings.push(malformed(list_path, line, text)),
        }
    }
    for size in sizes.iter().filter(|size| size.lines > size.limit()) {
        let name = size.name();
        let allowed = exceptions.iter().find(|exception| exception.name == name);
        let limit = allowed.map_or(size.limit(), |exception| exception.lines);
        if size.lines > limit {
            findings.push(too_long(size, limit));
        }
    }
    findings.extend(
        exceptions
            .iter()
            .filter_map(|exception| outgrown(list_path, exception, sizes)),
    );
    findings
}

fn parse(line: usize, text: &str) -> Option<Exception<'_>> {
    let (lines, rest) = text.split_once(' ')?;
    let (name, reason) = rest.split_once(' ')?;
    (!reason.trim().is_empty()).then_some(Exception {
        line,
        lines: lines.parse().ok()?,
        name,
    })
}

fn malformed(path: &str, line: usize, text: &str) -> Finding {
    Finding::new(
        path,
        line,
        format!("`{text}` is no exception"),
        "`LINES PATH REASON` or `LINES PATH::FUNCTION REASON`",
        "write it so",
    )
}

fn too_long(size: &Size, limit: usize) -> Finding {
    let what = match &size.function {
        Some(function) => format!("function `{function}` has {} lines", size.lines),
        None => format!("file has {} lines", size.lines),
    };
    Finding::new(
        &size.path,
        size.line,
        what,
        format!("at most {limit}"),
        "cut it where a reader would pause",
    )
}

/// An exception that is not needed, or allows more than it must.
fn outgrown(path: &str, exception: &Exception<'_>, sizes: &[Size]) -> Option<Finding> {
    let Exception { line, lines, name } = exception;
    // Functions of one name in one file share an exception: the longest counts.
    let longest = sizes
        .iter()
        .filter(|size| size.name() == *name)
        .max_by_key(|size| size.lines);
    match longest {
        Some(size) if size.lines > size.limit() && size.lines < *lines => Some(Finding::new(
            path,
            *line,
            format!("`{name}` may have {lines} lines but has {}", size.lines),
            "exceptions only shrink",
            format!("lower the number to {}", size.lines),
        )),
        Some(size) if size.lines > size.limit() => None,
        _ => Some(Finding::new(
            path,
            *line,
            format!("`{name}` needs no exception any more"),
            "exceptions only shrink",
            "delete the line",
        )),
    }
}
