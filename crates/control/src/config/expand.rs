//! `${env:NAME}` and `${file:PATH}` in texts: put in before anything else reads them. A text whose variable or file does not exist stays
//! as it is written, and only that is reported of it.

use std::borrow::Cow;

use super::ConfigEnvironment;
use super::error::{Diagnostics, FilePosition, quote};
use super::yaml::{YamlNode, YamlValue};
use crate::limits;

/// Puts them into all texts. What cannot be put in is told, and the text stays as it is.
pub(super) fn expand(
    node: &mut YamlNode<'_>,
    environment: &ConfigEnvironment<'_>,
    errors: &mut Diagnostics<'_>,
) {
    let position = node.position;
    expand_node(position, node, environment, errors);
}

/// The same for a value in the map at `holder`.
fn expand_node(
    holder: FilePosition,
    node: &mut YamlNode<'_>,
    environment: &ConfigEnvironment<'_>,
    errors: &mut Diagnostics<'_>,
) {
    match &mut node.value {
        // A single character is found much sooner.
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

/// The text, and whether anything was put in. `None`: something could not be.
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
        let (before, behind) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out += before;
            out += "${";
            rest = &behind[2..];
            continue;
        }
        out += before;
        let Some((name, after)) = behind[2..].split_once('}') else {
            errors.report(position, "`}` behind `${` (`$${` stands for `${`)", quote(behind));
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
            errors.report(position, expected, "none of that name that is a text");
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
    let expected = "`${env:NAME}` or `${file:PATH}` (`$${` stands for `${`)";
    errors.report(position, expected, quote(&format!("${{{name}}}")));
    None
}

/// The contents of a file that a configuration names.
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
