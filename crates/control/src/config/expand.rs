//! `${env:NAME}` and `${file:PATH}` in texts: put in before anything else reads them. A text whose variable or file does not exist stays
//! as it is written, and only that is reported of it.

use std::borrow::Cow;

use super::Sources;
use super::error::{Errors, Position, quoted};
use super::yaml::{Node, Value};
use crate::limits;

/// Puts them into all texts. What cannot be put in is told, and the text stays as it is.
pub(super) fn expand(node: &mut Node<'_>, sources: &Sources<'_>, errors: &mut Errors<'_>) {
    let position = node.position;
    expand_in(position, node, sources, errors);
}

/// The same for a value in the map at `holder`.
fn expand_in(holder: Position, node: &mut Node<'_>, sources: &Sources<'_>, errors: &mut Errors<'_>) {
    match &mut node.value {
        // A single character is found much sooner.
        Value::Text(text) if text.contains('$') && text.contains("${") => {
            let position = node.position;
            match expanded(text, position, sources, errors) {
                Some((new, true)) => {
                    errors.hide(position, text);
                    *text = Cow::Owned(new);
                }
                Some((new, false)) => *text = Cow::Owned(new),
                None => errors.leave_unexpanded(position, holder, text),
            }
        }
        Value::List(list) => list
            .iter_mut()
            .for_each(|node| expand_in(holder, node, sources, errors)),
        Value::Map(pairs) => {
            let holder = node.position;
            pairs
                .iter_mut()
                .for_each(|(_, node)| expand_in(holder, node, sources, errors));
        }
        Value::Nothing | Value::Bool(_) | Value::Text(_) => {}
    }
}

/// The text, and whether anything was put in. `None`: something could not be.
fn expanded(
    text: &str,
    position: Position,
    sources: &Sources<'_>,
    errors: &Errors<'_>,
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
            errors.tell(
                position,
                "`}` behind `${` (`$${` stands for `${`)",
                quoted(behind),
            );
            return None;
        };
        out += &value(name, position, sources, errors)?;
        any = true;
        rest = after;
    }
    out += rest;
    Some((out, any))
}

fn value(name: &str, position: Position, sources: &Sources<'_>, errors: &Errors<'_>) -> Option<String> {
    if let Some(variable) = name.strip_prefix("env:") {
        let value = (sources.variable)(variable);
        if value.is_none() {
            let expected = format!("the variable {} in the environment", quoted(variable));
            errors.tell(position, expected, "none of that name that is a text");
        }
        return value;
    }
    if let Some(path) = name.strip_prefix("file:") {
        let bytes = read(path, position, sources, errors)?;
        let Ok(text) = String::from_utf8(bytes) else {
            errors.tell(position, "a file of text (UTF-8)", quoted(path));
            return None;
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        return Some(text.strip_suffix('\r').unwrap_or(text).to_owned());
    }
    let expected = "`${env:NAME}` or `${file:PATH}` (`$${` stands for `${`)";
    errors.tell(position, expected, quoted(&format!("${{{name}}}")));
    None
}

/// The contents of a file that a configuration names.
pub(super) fn read(
    path: &str,
    position: Position,
    sources: &Sources<'_>,
    errors: &Errors<'_>,
) -> Option<Vec<u8>> {
    match (sources.file)(path) {
        Ok(bytes) if bytes.len() <= limits::NAMED_FILE_BYTES => Some(bytes),
        Ok(_) => {
            let expected = format!("a file of at most {} bytes", limits::NAMED_FILE_BYTES);
            errors.tell(position, expected, format!("{}, which is longer", quoted(path)));
            None
        }
        Err(error) => {
            errors.tell(
                position,
                "a file that can be read",
                format!("{}: {error}", quoted(path)),
            );
            None
        }
    }
}
