//! From the parser's events to values: what aliases and merges stand for is put in their place.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::core_schema::{self, Kind};
use super::{Node, Pair, Value};
use crate::config::error::{Errors, Position, quoted};
use crate::limits;

/// The file is no YAML that can be used, and why was told.
struct Told;

/// The key whose maps are taken into the map it stands in.
const MERGE: &str = "<<";

/// Maps with more keys have a set to find a second one of the same name.
const FEW: usize = 16;

pub(super) fn compose<'t>(text: &'t str, errors: &Errors<'_>) -> Option<Node<'t>> {
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
    composer.document().ok()
}

struct Composer<'t, 'e> {
    parser: Parser<'t, StrInput<'t>>,
    errors: &'e Errors<'e>,
    /// What aliases stand for.
    anchors: BTreeMap<usize, Anchored<'t>>,
    /// Of the whole file, copies too.
    values: usize,
    /// Aliases and the values that they stand for.
    aliased: usize,
    /// Bytes of texts that were copied for aliases.
    copied: usize,
}

struct Anchored<'t> {
    node: Node<'t>,
    size: Size,
}

/// What a value has in it, itself too.
#[derive(Clone, Copy, Default)]
struct Size {
    values: usize,
    bytes: usize,
    depth: usize,
}

impl<'t> Composer<'t, '_> {
    fn document(mut self) -> Result<Node<'t>, Told> {
        let mut whole = None;
        loop {
            let (event, position) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if whole.is_some() => {
                    return self.tell(position, "one YAML document", "a second one");
                }
                Event::DocumentStart(..) => {
                    let (event, position) = self.next()?;
                    whole = Some(self.node(event, position, 0)?);
                }
                _ => {}
            }
        }
        Ok(whole.unwrap_or(Node {
            value: Value::Nothing,
            position: Position::START,
            is_number: false,
        }))
    }

    fn next(&mut self) -> Result<(Event<'t>, Position), Told> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, position(span))),
            Some(Err(error)) => Err(self.no_yaml(&error)),
            None => Ok((Event::StreamEnd, Position::START)),
        }
    }

    fn node(&mut self, event: Event<'t>, position: Position, depth: usize) -> Result<Node<'t>, Told> {
        self.count(position, 1)?;
        if depth >= limits::CONFIG_DEPTH {
            return self.too_deep(position);
        }
        let (anchor, value, is_number) = match event {
            Event::Alias(anchor) => return self.alias(anchor, position, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let (value, is_number) = self.scalar(text, style, tag.as_deref(), position)?;
                (anchor, value, is_number)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.is_tagged(tag.as_deref(), "seq", position)?;
                (anchor, self.list(depth + 1)?, false)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.is_tagged(tag.as_deref(), "map", position)?;
                (anchor, self.map(depth + 1)?, false)
            }
            other => return self.tell(position, "a value", format!("{other:?}")),
        };
        let node = Node {
            value,
            position,
            is_number,
        };
        if anchor != 0 {
            let size = size(&node);
            self.copy(position, size)?;
            let node = node.clone();
            self.anchors.insert(anchor, Anchored { node, size });
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, position: Position, depth: usize) -> Result<Node<'t>, Told> {
        let Some(Anchored { node, size }) = self.anchors.get(&anchor) else {
            return self.tell(
                position,
                "an alias of a value that ends further up",
                "one inside of it",
            );
        };
        let (mut node, size) = (node.clone(), *size);
        if depth + size.depth > limits::CONFIG_DEPTH {
            return self.too_deep(position);
        }
        self.aliased += size.values;
        if self.aliased > limits::CONFIG_ALIASES {
            let expected = format!("aliases that stand for at most {} values", limits::CONFIG_ALIASES);
            return self.tell(position, expected, "one more");
        }
        self.copy(position, size)?;
        stand_at(&mut node, position);
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value<'t>, Told> {
        let mut values = Vec::new();
        loop {
            let (event, position) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                values.shrink_to_fit();
                return Ok(Value::List(values));
            }
            values.push(self.node(event, position, depth)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value<'t>, Told> {
        let (mut pairs, mut merged) = (Vec::new(), None);
        loop {
            let (event, position) = self.next()?;
            let is_merge = match &event {
                Event::MappingEnd => break,
                Event::Scalar(text, ScalarStyle::Plain, _, None) => text == MERGE,
                _ => false,
            };
            let key = self.node(event, position, depth)?;
            let (event, value_position) = self.next()?;
            let value = self.node(event, value_position, depth)?;
            if !is_merge {
                pairs.push((key, value));
            } else if merged.replace(value).is_some() {
                return self.second(MERGE, position);
            }
        }
        self.each_once(&pairs)?;
        if let Some(merged) = merged {
            self.merge(&mut pairs, merged)?;
        }
        pairs.shrink_to_fit();
        Ok(Value::Map(pairs))
    }

    fn each_once(&self, pairs: &[Pair<'t>]) -> Result<(), Told> {
        let few = pairs.len() <= FEW;
        let mut names = BTreeSet::new();
        for (at, (key, _)) in pairs.iter().enumerate() {
            let Some(name) = name(key) else { continue };
            let is_second = if few {
                pairs[..at].iter().any(|(key, _)| self::name(key) == Some(name))
            } else {
                !names.insert(name)
            };
            if is_second {
                return self.second(name, key.position);
            }
        }
        Ok(())
    }

    /// Takes in what a merge key names: keys that are there already stay, and an earlier map goes before a later one.
    fn merge(&self, pairs: &mut Vec<Pair<'t>>, merged: Node<'t>) -> Result<(), Told> {
        let maps = match merged.value {
            Value::List(maps) => maps,
            _ => vec![merged],
        };
        for map in maps {
            let Value::Map(more) = map.value else {
                let expected = format!("keys with values, or a list of such, behind `{MERGE}`");
                return self.tell(map.position, expected, map.value.kind());
            };
            let mut known: BTreeSet<String> = pairs
                .iter()
                .filter_map(|(key, _)| name(key))
                .map(str::to_owned)
                .collect();
            for (key, value) in more {
                if name(&key).is_none_or(|name| known.insert(name.to_owned())) {
                    pairs.push((key, value));
                }
            }
        }
        Ok(())
    }

    /// A value, and whether it is a number.
    fn scalar(
        &self,
        text: Cow<'t, str>,
        style: ScalarStyle,
        tag: Option<&Tag>,
        position: Position,
    ) -> Result<(Value<'t>, bool), Told> {
        let tag = match tag {
            None => None,
            Some(tag) if is_plain(tag) => Some("str"),
            Some(tag) => Some(self.known(tag, position)?),
        };
        let is_text = tag == Some("str") || (tag.is_none() && style != ScalarStyle::Plain);
        let kind = if is_text { Kind::Text } else { core_schema::kind(&text) };
        let as_tagged = match tag {
            None | Some("str") => true,
            Some("null") => kind == Kind::Null,
            Some("bool") => matches!(kind, Kind::Bool(_)),
            Some("int") => kind == Kind::Int,
            Some("float") => matches!(kind, Kind::Int | Kind::Float),
            Some(_) => false,
        };
        if !as_tagged {
            let expected = format!("what its tag `!!{}` says", tag.unwrap_or_default());
            return self.tell(position, expected, quoted(&text));
        }
        Ok(match kind {
            Kind::Null => (Value::Nothing, false),
            Kind::Bool(value) => (Value::Bool(value), false),
            Kind::Int | Kind::Float => (Value::Text(text), true),
            Kind::Text => (Value::Text(text), false),
        })
    }

    fn is_tagged(&self, tag: Option<&Tag>, wanted: &str, position: Position) -> Result<(), Told> {
        match tag {
            Some(tag) if !is_plain(tag) && self.known(tag, position)? != wanted => self.tell(
                position,
                format!("the tag `!!{wanted}`, or none"),
                quoted(&tag.original()),
            ),
            _ => Ok(()),
        }
    }

    fn known<'g>(&self, tag: &'g Tag, position: Position) -> Result<&'g str, Told> {
        match tag.core_suffix() {
            Some(name) => Ok(name),
            None => self.tell(
                position,
                "no tag, or one of `!!str`, `!!int`, `!!float`, `!!bool`, `!!null`, `!!seq`, `!!map`",
                quoted(&tag.original()),
            ),
        }
    }

    fn copy(&mut self, position: Position, size: Size) -> Result<(), Told> {
        self.copied += size.bytes;
        if self.copied > limits::CONFIG_BYTES {
            let expected = format!("aliases that stand for at most {} bytes", limits::CONFIG_BYTES);
            return self.tell(position, expected, "more");
        }
        self.count(position, size.values)
    }

    fn count(&mut self, position: Position, values: usize) -> Result<(), Told> {
        self.values += values;
        if self.values > limits::CONFIG_VALUES {
            let expected = format!("a file of at most {} values", limits::CONFIG_VALUES);
            return self.tell(position, expected, "more");
        }
        Ok(())
    }

    fn too_deep<T>(&self, position: Position) -> Result<T, Told> {
        let expected = format!("values nested at most {} deep", limits::CONFIG_DEPTH);
        self.tell(position, expected, "deeper ones")
    }

    fn second<T>(&self, name: &str, position: Position) -> Result<T, Told> {
        self.tell(
            position,
            "each key once",
            format!("{} a second time", quoted(name)),
        )
    }

    fn no_yaml(&self, error: &ScanError) -> Told {
        let mark = error.marker();
        let position = Position {
            line: mark.line().max(1) as u64,
            column: mark.col() as u64 + 1,
        };
        if matches!(error.kind(), ErrorKind::UnknownAnchor) {
            self.errors
                .tell(position, "an alias of an anchor further up", "another one");
        } else {
            let message = error.info();
            let message: Vec<_> = message.split_whitespace().collect();
            self.errors.tell(position, "valid YAML", message.join(" "));
        }
        Told
    }

    fn tell<T>(
        &self,
        position: Position,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Result<T, Told> {
        self.errors.tell(position, expected, found);
        Err(Told)
    }
}

/// Whether it only says that a value is not to be looked at any further (§6.9.1): `!`.
fn is_plain(tag: &Tag) -> bool {
    matches!(tag.suffix(), "" | "!")
}

pub(super) fn name<'n>(key: &'n Node<'_>) -> Option<&'n str> {
    match &key.value {
        Value::Text(name) => Some(name),
        Value::Bool(true) => Some("true"),
        Value::Bool(false) => Some("false"),
        Value::Nothing | Value::List(_) | Value::Map(_) => None,
    }
}

fn position(span: Span) -> Position {
    Position {
        line: span.start.line() as u64,
        column: span.start.col() as u64 + 1,
    }
}

fn size(node: &Node<'_>) -> Size {
    let all: Vec<&Node<'_>> = match &node.value {
        Value::Text(text) => {
            return Size {
                values: 1,
                bytes: text.len(),
                depth: 1,
            };
        }
        Value::Nothing | Value::Bool(_) => Vec::new(),
        Value::List(list) => list.iter().collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
    };
    let mut whole = Size::default();
    for size in all.into_iter().map(size) {
        whole.values += size.values;
        whole.bytes += size.bytes;
        whole.depth = whole.depth.max(size.depth);
    }
    whole.values += 1;
    whole.depth += 1;
    whole
}

/// What an alias stands for stands where the alias does.
fn stand_at(node: &mut Node<'_>, position: Position) {
    node.position = position;
    match &mut node.value {
        Value::Nothing | Value::Bool(_) | Value::Text(_) => {}
        Value::List(list) => list.iter_mut().for_each(|node| stand_at(node, position)),
        Value::Map(pairs) => {
            for (key, value) in pairs {
                stand_at(key, position);
                stand_at(value, position);
            }
        }
    }
}
