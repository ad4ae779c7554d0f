//! From values with places to the structs of `document`, telling all that is wrong instead of the first of it.
//!
//! A serde deserializer whose errors were told already: whoever gets one only knows that there is no value. [`Spanned`] catches
//! it, so that its neighbours are still read. Unknown keys are told and passed over.
//!
//! [`Spanned`]: super::fields::At

use std::fmt;

use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{Diagnostics, quote, suggest};
use super::yaml::{YamlEntry, YamlNode, YamlValue};

/// The name by which a value asks for its place: a sequence of line, column, value, and whether all of it was right.
pub(super) const SPANNED: &str = "\0at";
/// An enum of `Short` (a text, a number) and `Full` (keys, a list).
pub(super) const SHORT_OR_FULL: &str = "\0either";
/// An enum of `One` and `Many` (a list). An empty list is an error: it would count as if the key were absent.
pub(super) const MANY: &str = "\0many";
/// The same, and the list may be empty.
pub(super) const MANY_OR_NONE: &str = "\0many_or_none";
/// An enum of `Switch` (true or false) and `Full`.
pub(super) const SWITCH: &str = "\0switch";

/// An enum of `Nothing`, `Bool`, `Number`, `Text`, `List` and `Map`: whatever stands there.
pub(super) const ANY_VALUE: &str = "\0free";

/// A newtype whose values are secrets: no error repeats them, and the administration does not show them.
pub(super) const SECRET: &str = "\0secret";

/// There is no value.
#[derive(Debug)]
pub(super) enum ReadError {
    /// Why was told.
    Reported,
    /// Why is in here.
    Message(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Reported => f.write_str("told"),
            ReadError::Message(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> ReadError {
        ReadError::Message(message.to_string())
    }

    fn missing_field(field: &'static str) -> ReadError {
        ReadError::Message(format!("expected the key `{field}` here, found none"))
    }
}

/// Reads one value.
#[derive(Clone, Copy)]
pub(super) struct NodeDeserializer<'n> {
    node: &'n YamlNode<'n>,
    errors: &'n Diagnostics<'n>,
    /// The name, chosen by the user, that the value has in its map.
    pub(super) name: Option<&'n str>,
}

/// Keys that an error lists, at most.
const KEYS_LISTED: usize = 8;

impl<'n> NodeDeserializer<'n> {
    pub(super) fn new(node: &'n YamlNode<'n>, errors: &'n Diagnostics<'n>) -> NodeDeserializer<'n> {
        NodeDeserializer {
            node,
            errors,
            name: None,
        }
    }

    fn child(self, node: &'n YamlNode<'n>) -> NodeDeserializer<'n> {
        NodeDeserializer::new(node, self.errors)
    }

    /// The value, or why there is none is told.
    pub(super) fn report<T>(self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.map_err(|error| {
            if let ReadError::Message(message) = &error {
                self.errors.report_message(self.node.position, message);
            }
            ReadError::Reported
        })
    }

    /// Marks a secret, and tells of one that is written as a shell puts variables in, which is a text here.
    fn mark_secret(self) {
        let position = self.node.position;
        if let YamlValue::Text(text) = &self.node.value
            && let Some(name) = shell_variable(text).filter(|_| !self.errors.is_expanded(position))
        {
            let expected = format!(
                "`${{env:{name}}}`, which stands for a variable of the environment (`${{file:PATH}}` for a secret that begins with `$`)"
            );
            self.errors.report(position, expected, quote(&format!("${name}")));
        }
        self.errors.mark_secret(position);
    }

    fn type_error(self, expected: &str) -> ReadError {
        let found = match &self.node.value {
            YamlValue::Text(text) => quote(text),
            other => other.kind_name().to_owned(),
        };
        self.errors.report(self.node.position, expected, found);
        ReadError::Reported
    }

    /// A list that a program filled, and filled with nothing, must not count as the key's default: it may mean "all".
    fn empty_list_error(self) -> ReadError {
        let expected = "at least one element, or no such key, for its default";
        self.errors.report(self.node.position, expected, "an empty list");
        ReadError::Reported
    }

    fn parse_integer<T: std::str::FromStr>(
        self,
        min: impl fmt::Display,
        max: impl fmt::Display,
    ) -> Result<T, ReadError> {
        let number = match &self.node.value {
            YamlValue::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.type_error(&format!("a whole number from {min} to {max}")))
    }

    fn as_text(self) -> Result<&'n str, ReadError> {
        match &self.node.value {
            YamlValue::Text(text) => Ok(text),
            YamlValue::Bool(true) => Ok("true"),
            YamlValue::Bool(false) => Ok("false"),
            YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => Err(self.type_error("a text")),
        }
    }

    /// The entries of a map with those keys.
    fn struct_entries(self, fields: &[&str]) -> Result<&'n [YamlEntry<'n>], ReadError> {
        let expected = match self.name {
            _ if matches!(self.node.value, YamlValue::Map(_)) => return self.map_entries(),
            Some(name) if fields.contains(&name) => {
                format!("a map under a name of your choice, such as `main: {{{name}: …}}`")
            }
            _ if fields.len() <= KEYS_LISTED => format!("a map with the keys {}", quoted_list(fields)),
            _ => "keys with values".to_owned(),
        };
        Err(self.type_error(&expected))
    }

    fn map_entries(self) -> Result<&'n [YamlEntry<'n>], ReadError> {
        match &self.node.value {
            YamlValue::Map(pairs) => Ok(pairs),
            _ => Err(self.type_error("keys with values")),
        }
    }
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.node.value {
            YamlValue::Bool(value) => visitor.visit_bool(value),
            _ => Err(self.type_error("true or false")),
        }
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_u8(self.parse_integer(0, u8::MAX)?)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_u16(self.parse_integer(0, u16::MAX)?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_u32(self.parse_integer(0, u32::MAX)?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_u64(self.parse_integer(0, u64::MAX)?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let text = self.as_text()?;
        self.report(visitor.visit_borrowed_str(text))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        // A key without a value is a slip; one that is not there never comes here.
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.value {
            YamlValue::List(list) => visitor.visit_seq(ListAccess {
                reader: self,
                rest: list.iter(),
            }),
            _ => Err(self.type_error("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_map(MapEntries {
            reader: self,
            rest: self.map_entries()?.iter(),
            value: None,
            fields: None,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let read = visitor.visit_map(MapEntries {
            reader: self,
            rest: self.struct_entries(fields)?.iter(),
            value: None,
            fields: Some(fields),
        });
        self.report(read)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        debug_assert_eq!(name, SPANNED, "the only one");
        visitor.visit_seq(SpannedAccess {
            reader: self,
            step: 0,
            before: self.errors.count(),
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let value = &self.node.value;
        let kind = match name {
            SHORT_OR_FULL => {
                if value.is_scalar() {
                    "Short"
                } else {
                    "Full"
                }
            }
            MANY | MANY_OR_NONE => {
                if let YamlValue::List(list) = value {
                    if list.is_empty() && name == MANY {
                        return Err(self.empty_list_error());
                    }
                    "Many"
                } else {
                    "One"
                }
            }
            SWITCH => {
                if matches!(value, YamlValue::Bool(_)) {
                    "Switch"
                } else {
                    "Full"
                }
            }
            ANY_VALUE => match value {
                YamlValue::Null => "Nothing",
                YamlValue::Bool(_) => "Bool",
                YamlValue::Text(_) if self.node.is_number() => "Number",
                YamlValue::Text(_) => "Text",
                YamlValue::List(_) => "List",
                YamlValue::Map(_) => "Map",
            },
            _ => return self.deserialize_variant(variants, visitor),
        };
        visitor.visit_enum(VariantReader {
            name: kind,
            content: (kind != "Nothing").then_some(self),
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if name == SECRET {
            self.node
                .for_each_scalar(&mut |node| self.child(node).mark_secret());
        }
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple identifier ignored_any
    }
}

impl<'de> NodeDeserializer<'de> {
    /// `name`, or `name: value` alone.
    fn deserialize_variant<V: Visitor<'de>>(
        self,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let (name, place, content) = match &self.node.value {
            YamlValue::Text(text) => (&**text, self, None),
            YamlValue::Map(pairs) => match &pairs[..] {
                [(key, value)] => {
                    let place = self.child(key);
                    (place.as_text()?, place, Some(self.child(value)))
                }
                _ => return Err(self.type_error(&format!("one of {}", quoted_list(variants)))),
            },
            _ => return Err(self.type_error(&format!("one of {}", quoted_list(variants)))),
        };
        let Some(known) = variants.iter().find(|known| **known == name) else {
            place.report_unknown(name, variants, "one of");
            return Err(ReadError::Reported);
        };
        visitor.visit_enum(VariantReader { name: known, content })
    }

    /// Tells that a word is none of those.
    fn report_unknown(self, word: &str, known: &[&str], expected: &str) {
        let unsupported = UNSUPPORTED
            .iter()
            .find(|(unsupported, kind, _)| *unsupported == word && known.contains(kind));
        let meant = || suggest(word, known.iter().copied()).map(|name| format!("did you mean `{name}`?"));
        let advice = unsupported.map(|(.., why)| (*why).to_owned()).or_else(meant);
        let expected = format!("{expected} {}", quoted_list(known));
        let advice = advice.unwrap_or_default();
        self.errors
            .report_part(self.node.position, "", expected, quote(word), &advice);
    }
}

/// Words that will be known and are not yet: each with one of its kind, and what becomes of it.
const UNSUPPORTED: [(&str, &str, &str); 1] = [(
    "udp",
    "tls_passthrough",
    "datagrams are not served yet: no listener takes UDP, and nothing of it is passed on",
)];

/// The name in `$NAME` at the end of a text, as a shell has variables.
fn shell_variable(text: &str) -> Option<&str> {
    let word = text.rsplit(char::is_whitespace).next()?;
    let name = word.strip_prefix('$')?;
    let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = name.starts_with(|first: char| first.is_ascii_uppercase() || first == '_');
    (name.len() > 1 && begins && name.bytes().all(is_name)).then_some(name)
}

fn quoted_list(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The values of a list.
struct ListAccess<'n> {
    reader: NodeDeserializer<'n>,
    rest: std::slice::Iter<'n, YamlNode<'n>>,
}

impl<'de> SeqAccess<'de> for ListAccess<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let node = self.rest.next();
        node.map(|node| seed.deserialize(self.reader.child(node)))
            .transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Keys and values; with `fields` only those keys.
struct MapEntries<'n> {
    reader: NodeDeserializer<'n>,
    rest: std::slice::Iter<'n, YamlEntry<'n>>,
    /// The value of the key that was read last.
    value: Option<NodeDeserializer<'n>>,
    fields: Option<&'static [&'static str]>,
}

impl<'de> MapAccess<'de> for MapEntries<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        for (key, value) in self.rest.by_ref() {
            let key = self.reader.child(key);
            let Ok(name) = key.as_text() else {
                continue;
            };
            if let Some(fields) = self.fields {
                if !fields.contains(&name) {
                    key.report_unknown(name, fields, "one of the keys");
                    continue;
                }
                self.value = Some(self.reader.child(value));
                let name: StrDeserializer<'_, ReadError> = name.into_deserializer();
                return seed.deserialize(name).map(Some);
            }
            self.value = Some(NodeDeserializer {
                name: Some(name),
                ..self.reader.child(value)
            });
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        let value = self.value.take().expect("a key was asked for");
        seed.deserialize(value)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Line, column, value, whether all of it was right.
struct SpannedAccess<'n> {
    reader: NodeDeserializer<'n>,
    step: u8,
    before: usize,
}

impl<'de> SeqAccess<'de> for SpannedAccess<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let NodeDeserializer { node, errors, .. } = self.reader;
        self.step += 1;
        let value = match self.step {
            1 => seed.deserialize(node.position.line.into_deserializer()),
            2 => seed.deserialize(node.position.column.into_deserializer()),
            3 => self.reader.report(seed.deserialize(self.reader)),
            _ => seed.deserialize((errors.count() == self.before).into_deserializer()),
        };
        value.map(Some)
    }
}

/// A variant and what stands behind its name.
struct VariantReader<'n> {
    name: &'static str,
    content: Option<NodeDeserializer<'n>>,
}

impl<'de> EnumAccess<'de> for VariantReader<'de> {
    type Error = ReadError;
    type Variant = VariantReader<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, VariantReader<'de>), ReadError> {
        let name: StrDeserializer<'_, ReadError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for VariantReader<'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.content {
            None => Ok(()),
            Some(content) => {
                Err(content.type_error(&format!("nothing behind `{}`: write it alone", self.name)))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ReadError> {
        match self.content {
            Some(content) => seed.deserialize(content),
            // The name alone: all by default, where there is a default.
            None => {
                let empty = std::iter::empty::<(&str, &str)>();
                seed.deserialize(MapDeserializer::new(empty))
                    .map_err(|_: ReadError| {
                        let name = self.name;
                        ReadError::Message(format!("expected a value behind `{name}`, found nothing"))
                    })
            }
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, ReadError> {
        Err(ReadError::Message("expected one value, found several".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ReadError> {
        Err(ReadError::Message("expected one value, found keys".to_owned()))
    }
}
