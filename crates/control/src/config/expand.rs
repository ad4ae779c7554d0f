//! Expansion of `${env:NAME}` and `${file:PATH}` in strings, before they are parsed. A string whose variable or file does not exist
//! stays unchanged, and this is its only error.

use std::borrow::Cow;

use super::ConfigEnvironment;
use super::error::{Diagnostics, FilePosition, quote};
use super::yaml::{YamlNode, YamlValue};
use crate::limits;

/// Expands all strings. Reports those that cannot be expanded, and leaves them unchanged.
pub(super) fn expand(
    node: &mut YamlNode<'_>,
    environment: &ConfigEnvironment<'_>,
    errors: &mut Diagnostics<'_>,
) {
    let position = node.position;
    expand_node(position, node, environment, errors);
}

/// Expands the strings of a value in the map at `holder`.
fn expand_node(
    holder: FilePosition,
    node: &mut YamlNode<'_>,
    environment: &ConfigEnvironment<'_>,
    errors: &mut Diagnostics<'_>,
) {
    match &mut node.value {
        // Searching for a single character is much faster.
        YamlValue::Text(text) if text.contains('$') && text.contains("${") => {
            let position = node.position;
            match expand_text(text, position, environment, errors) {
                Some((new, true)) => {
                    errors.record_expansion(position, text);
                    *text = Cow::Owned(new);
                }
                Some((new, false)) => *text = Cow::Owned(new),
                None => errors.leave_unexpanded(position, holder, text),
            }
        }
        YamlValue::List(list) => list
            .iter_mut()
            .for_each(|node| expand_node(holder, node, environment, errors)),
        YamlValue::Map(pairs) => {
            let holder = node.position;
            pairs
                .iter_mut()
                .for_each(|(_, node)| expand_node(holder, node, environment, errors));
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Text(_) => {}
    }
}

/// Returns the expanded text, and whether it had references. `None`: an error was reported.
fn expand_text(
    text: &str,
    position: FilePosition,
    environment: &ConfigEnvironment<'_>,
    errors: &Diagnostics<'_>,
) -> Option<(String, bool)> {
    let mut out = String::new();
    let mut rest = text;
    let mut any = false;
    while let Some(at) = rest.find("${") {
        let (before, tail) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out += before;
            out += "${";
            rest = &tail[2..];
            continue;
        }
        out += before;
        let Some((name, after)) = tail[2..].split_once('}') else {
            errors.report(position, "`}` after `${` (`$${` is a literal `${`)", quote(tail));
            return None;
        };
        out += &resolve(name, position, environment, errors)?;
        any = true;
        rest = after;
    }
    out += rest;
    Some((out, any))
}

fn resolve(
    name: &str,
    position: FilePosition,
    environment: &ConfigEnvironment<'_>,
    errors: &Diagnostics<'_>,
) -> Option<String> {
    if let Some(variable) = name.strip_prefix("env:") {
        let value = (environment.variable)(variable);
        if value.is_none() {
            let expected = format!("the variable {} in the environment", quote(variable));
            errors.report(position, expected, "none of that name in UTF-8");
        }
        return value;
    }
    if let Some(path) = name.strip_prefix("file:") {
        let bytes = read_named_file(path, position, environment, errors)?;
        let Ok(text) = String::from_utf8(bytes) else {
            errors.report(position, "a file of text (UTF-8)", quote(path));
            return None;
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        return Some(text.strip_suffix('\r').unwrap_or(text).to_owned());
    }
    let expected = "`${env:NAME}` or `${file:PATH}` (`$${` is a literal `${`)";
    errors.report(position, expected, quote(&format!("${{{name}}}")));
    None
}

/// Reads a file that a configuration names.
pub(super) fn read_named_file(
    path: &str,
    position: FilePosition,
    environment: &ConfigEnvironment<'_>,
    errors: &Diagnostics<'_>,
) -> Option<Vec<u8>> {
    match (environment.file)(path) {
        Ok(bytes) if bytes.len() <= limits::NAMED_FILE_BYTES => Some(bytes),
        Ok(_) => {
            let expected = format!("a file of at most {} bytes", limits::NAMED_FILE_BYTES);
            errors.report(position, expected, format!("{}, which is longer", quote(path)));
            None
        }
        Err(error) => {
            errors.report(
                position,
                "a file that can be read",
                format!("{}: {error}", quote(path)),
            );
            None
        }
    }
}
