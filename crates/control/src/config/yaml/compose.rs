//! From events of the parser to values, with aliases and merge keys resolved.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::core_schema::{self, ScalarKind};
use super::{YamlEntry, YamlNode, YamlValue};
use crate::config::error::{Diagnostics, FilePosition, quote};
use crate::limits;

/// The file is not usable YAML; the error was reported.
struct InvalidYaml;

/// The key whose maps are merged into its map.
const MERGE: &str = "<<";

/// Maps with more keys use a set to find duplicates.
const LINEAR_SEARCH_MAX: usize = 16;

pub(super) fn compose<'t>(text: &'t str, errors: &Diagnostics<'_>) -> Option<YamlNode<'t>> {
    let mut options = granit_parser::options! {};
    options.set_emit_comments(false);
    let composer = Composer {
        parser: Parser::new_from_str_with_options(text, options),
        errors,
        anchors: BTreeMap::new(),
        values: 0,
        aliased: 0,
        copied: 0,
    };
    composer.compose_document().ok()
}

struct Composer<'t, 'e> {
    parser: Parser<'t, StrInput<'t>>,
    errors: &'e Diagnostics<'e>,
    /// The values of anchors.
    anchors: BTreeMap<usize, Anchored<'t>>,
    /// The number of values of the whole file, copies included.
    values: usize,
    /// The number of values that aliases resolve to.
    aliased: usize,
    /// Bytes of texts that were copied for aliases.
    copied: usize,
}

struct Anchored<'t> {
    node: YamlNode<'t>,
    size: NodeSize,
}

/// The size of a value, itself included.
#[derive(Clone, Copy, Default)]
struct NodeSize {
    values: usize,
    bytes: usize,
    depth: usize,
}

impl<'t> Composer<'t, '_> {
    fn compose_document(mut self) -> Result<YamlNode<'t>, InvalidYaml> {
        let mut whole = None;
        loop {
            let (event, position) = self.next_event()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if whole.is_some() => {
                    return self.fail(position, "one YAML document", "a second one");
                }
                Event::DocumentStart(..) => {
                    let (event, position) = self.next_event()?;
                    whole = Some(self.compose_node(event, position, 0)?);
                }
                _ => {}
            }
        }
        Ok(whole.unwrap_or(YamlNode {
            value: YamlValue::Null,
            position: FilePosition::START,
            is_number: false,
        }))
    }

    fn next_event(&mut self) -> Result<(Event<'t>, FilePosition), InvalidYaml> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span_position(span))),
            Some(Err(error)) => Err(self.syntax_error(&error)),
            None => Ok((Event::StreamEnd, FilePosition::START)),
        }
    }

    fn compose_node(
        &mut self,
        event: Event<'t>,
        position: FilePosition,
        depth: usize,
    ) -> Result<YamlNode<'t>, InvalidYaml> {
        self.count_values(position, 1)?;
        if depth >= limits::CONFIG_DEPTH {
            return self.too_deep(position);
        }
        let (anchor, value, is_number) = match event {
            Event::Alias(anchor) => return self.resolve_alias(anchor, position, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let (value, is_number) = self.compose_scalar(text, style, tag.as_deref(), position)?;
                (anchor, value, is_number)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq", position)?;
                (anchor, self.compose_list(depth + 1)?, false)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "map", position)?;
                (anchor, self.compose_map(depth + 1)?, false)
            }
            other => return self.fail(position, "a value", format!("{other:?}")),
        };
        let node = YamlNode {
            value,
            position,
            is_number,
        };
        if anchor != 0 {
            let size = measure(&node);
            self.count_copied(position, size)?;
            let node = node.clone();
            self.anchors.insert(anchor, Anchored { node, size });
        }
        Ok(node)
    }

    fn resolve_alias(
        &mut self,
        anchor: usize,
        position: FilePosition,
        depth: usize,
    ) -> Result<YamlNode<'t>, InvalidYaml> {
        let Some(Anchored { node, size }) = self.anchors.get(&anchor) else {
            return self.fail(
                position,
                "an alias of a value that ends further up",
                "one that contains it",
            );
        };
        let (mut node, size) = (node.clone(), *size);
        if depth + size.depth > limits::CONFIG_DEPTH {
            return self.too_deep(position);
        }
        self.aliased += size.values;
        if self.aliased > limits::CONFIG_ALIASES {
            let expected = format!("aliases of at most {} values", limits::CONFIG_ALIASES);
            return self.fail(position, expected, "one more");
        }
        self.count_copied(position, size)?;
        set_position(&mut node, position);
        Ok(node)
    }

    fn compose_list(&mut self, depth: usize) -> Result<YamlValue<'t>, InvalidYaml> {
        let mut values = Vec::new();
        loop {
            let (event, position) = self.next_event()?;
            if matches!(event, Event::SequenceEnd) {
                values.shrink_to_fit();
                return Ok(YamlValue::List(values));
            }
            values.push(self.compose_node(event, position, depth)?);
        }
    }

    fn compose_map(&mut self, depth: usize) -> Result<YamlValue<'t>, InvalidYaml> {
        let (mut pairs, mut merged) = (Vec::new(), None);
        loop {
            let (event, position) = self.next_event()?;
            let is_merge = match &event {
                Event::MappingEnd => break,
                Event::Scalar(text, ScalarStyle::Plain, _, None) => text == MERGE,
                _ => false,
            };
            let key = self.compose_node(event, position, depth)?;
            let (event, value_position) = self.next_event()?;
            let value = self.compose_node(event, value_position, depth)?;
            if !is_merge {
                pairs.push((key, value));
            } else if merged.replace(value).is_some() {
                return self.duplicate_key(MERGE, position);
            }
        }
        self.check_unique_keys(&pairs)?;
        if let Some(merged) = merged {
            self.merge(&mut pairs, merged)?;
        }
        pairs.shrink_to_fit();
        Ok(YamlValue::Map(pairs))
    }

    fn check_unique_keys(&self, pairs: &[YamlEntry<'t>]) -> Result<(), InvalidYaml> {
        let few = pairs.len() <= LINEAR_SEARCH_MAX;
        let mut names = BTreeSet::new();
        for (at, (key, _)) in pairs.iter().enumerate() {
            let Some(name) = key_name(key) else { continue };
            let is_second = if few {
                pairs[..at]
                    .iter()
                    .any(|(key, _)| self::key_name(key) == Some(name))
            } else {
                !names.insert(name)
            };
            if is_second {
                return self.duplicate_key(name, key.position);
            }
        }
        Ok(())
    }

    /// Merges the maps of a merge key: existing keys take precedence, and an earlier map over a later one.
    fn merge(&self, pairs: &mut Vec<YamlEntry<'t>>, merged: YamlNode<'t>) -> Result<(), InvalidYaml> {
        let maps = match merged.value {
            YamlValue::List(maps) => maps,
            _ => vec![merged],
        };
        for map in maps {
            let YamlValue::Map(more) = map.value else {
                let expected = format!("a map, or a list of maps, after `{MERGE}`");
                return self.fail(map.position, expected, map.value.kind_name());
            };
            let mut known: BTreeSet<String> = pairs
                .iter()
                .filter_map(|(key, _)| key_name(key))
                .map(str::to_owned)
                .collect();
            for (key, value) in more {
                if key_name(&key).is_none_or(|name| known.insert(name.to_owned())) {
                    pairs.push((key, value));
                }
            }
        }
        Ok(())
    }

    /// Composes a scalar. Returns its value, and whether it is a number.
    fn compose_scalar(
        &self,
        text: Cow<'t, str>,
        style: ScalarStyle,
        tag: Option<&Tag>,
        position: FilePosition,
    ) -> Result<(YamlValue<'t>, bool), InvalidYaml> {
        let tag = match tag {
            None => None,
            Some(tag) if is_non_specific(tag) => Some("str"),
            Some(tag) => Some(self.core_tag(tag, position)?),
        };
        let is_text = tag == Some("str") || (tag.is_none() && style != ScalarStyle::Plain);
        let kind = if is_text {
            ScalarKind::Text
        } else {
            core_schema::resolve_kind(&text)
        };
        let as_tagged = match tag {
            None | Some("str") => true,
            Some("null") => kind == ScalarKind::Null,
            Some("bool") => matches!(kind, ScalarKind::Bool(_)),
            Some("int") => kind == ScalarKind::Int,
            Some("float") => matches!(kind, ScalarKind::Int | ScalarKind::Float),
            Some(_) => false,
        };
        if !as_tagged {
            let expected = format!("a value of its tag `!!{}`", tag.unwrap_or_default());
            return self.fail(position, expected, quote(&text));
        }
        Ok(match kind {
            ScalarKind::Null => (YamlValue::Null, false),
            ScalarKind::Bool(value) => (YamlValue::Bool(value), false),
            ScalarKind::Int | ScalarKind::Float => (YamlValue::Text(text), true),
            ScalarKind::Text => (YamlValue::Text(text), false),
        })
    }

    fn check_tag(
        &self,
        tag: Option<&Tag>,
        expected: &str,
        position: FilePosition,
    ) -> Result<(), InvalidYaml> {
        match tag {
            Some(tag) if !is_non_specific(tag) && self.core_tag(tag, position)? != expected => self.fail(
                position,
                format!("the tag `!!{expected}`, or none"),
                quote(&tag.original()),
            ),
            _ => Ok(()),
        }
    }

    fn core_tag<'g>(&self, tag: &'g Tag, position: FilePosition) -> Result<&'g str, InvalidYaml> {
        match tag.core_suffix() {
            Some(name) => Ok(name),
            None => self.fail(
                position,
                "no tag, or one of `!!str`, `!!int`, `!!float`, `!!bool`, `!!null`, `!!seq`, `!!map`",
                quote(&tag.original()),
            ),
        }
    }

    fn count_copied(&mut self, position: FilePosition, size: NodeSize) -> Result<(), InvalidYaml> {
        self.copied += size.bytes;
        if self.copied > limits::CONFIG_BYTES {
            let expected = format!("aliases of at most {} bytes", limits::CONFIG_BYTES);
            return self.fail(position, expected, "more");
        }
        self.count_values(position, size.values)
    }

    fn count_values(&mut self, position: FilePosition, values: usize) -> Result<(), InvalidYaml> {
        self.values += values;
        if self.values > limits::CONFIG_VALUES {
            let expected = format!("a file of at most {} values", limits::CONFIG_VALUES);
            return self.fail(position, expected, "more");
        }
        Ok(())
    }

    fn too_deep<T>(&self, position: FilePosition) -> Result<T, InvalidYaml> {
        let expected = format!("values nested at most {} deep", limits::CONFIG_DEPTH);
        self.fail(position, expected, "deeper ones")
    }

    fn duplicate_key<T>(&self, name: &str, position: FilePosition) -> Result<T, InvalidYaml> {
        self.fail(
            position,
            "each key once",
            format!("{} a second time", quote(name)),
        )
    }

    fn syntax_error(&self, error: &ScanError) -> InvalidYaml {
        let mark = error.marker();
        let position = FilePosition {
            line: mark.line().max(1) as u64,
            column: mark.col() as u64 + 1,
        };
        if matches!(error.kind(), ErrorKind::UnknownAnchor) {
            self.errors
                .report(position, "an alias of an anchor further up", "another one");
        } else {
            let message = error.info();
            let message: Vec<_> = message.split_whitespace().collect();
            self.errors.report(position, "valid YAML", message.join(" "));
        }
        InvalidYaml
    }

    fn fail<T>(
        &self,
        position: FilePosition,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Result<T, InvalidYaml> {
        self.errors.report(position, expected, found);
        Err(InvalidYaml)
    }
}

/// Returns whether a tag is non-specific (§6.9.1): `!`.
fn is_non_specific(tag: &Tag) -> bool {
    matches!(tag.suffix(), "" | "!")
}

pub(super) fn key_name<'n>(key: &'n YamlNode<'_>) -> Option<&'n str> {
    match &key.value {
        YamlValue::Text(name) => Some(name),
        YamlValue::Bool(true) => Some("true"),
        YamlValue::Bool(false) => Some("false"),
        YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
    }
}

fn span_position(span: Span) -> FilePosition {
    FilePosition {
        line: span.start.line() as u64,
        column: span.start.col() as u64 + 1,
    }
}

fn measure(node: &YamlNode<'_>) -> NodeSize {
    let all: Vec<&YamlNode<'_>> = match &node.value {
        YamlValue::Text(text) => {
            return NodeSize {
                values: 1,
                bytes: text.len(),
                depth: 1,
            };
        }
        YamlValue::Null | YamlValue::Bool(_) => Vec::new(),
        YamlValue::List(list) => list.iter().collect(),
        YamlValue::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
    };
    let mut whole = NodeSize::default();
    for size in all.into_iter().map(measure) {
        whole.values += size.values;
        whole.bytes += size.bytes;
        whole.depth = whole.depth.max(size.depth);
    }
    whole.values += 1;
    whole.depth += 1;
    whole
}

/// Sets the position of a value and of its parts.
fn set_position(node: &mut YamlNode<'_>, position: FilePosition) {
    node.position = position;
    match &mut node.value {
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Text(_) => {}
        YamlValue::List(list) => list.iter_mut().for_each(|node| set_position(node, position)),
        YamlValue::Map(pairs) => {
            for (key, value) in pairs {
                set_position(key, position);
                set_position(value, position);
            }
        }
    }
}
