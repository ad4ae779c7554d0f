//! From values with places to the structs of `document`, telling all that is wrong instead of the first of it.
//!
//! A serde deserializer whose errors were told already: whoever gets one only knows that there is no value. [`At`] catches
//! it, so that its neighbours are still read. Unknown keys are told and passed over.
//!
//! [`At`]: super::fields::At

use std::fmt;

use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{Errors, quoted, suggestion};
use super::yaml::{Node, Pair, Value};

/// The name by which a value asks for its place: a sequence of line, column, value, and whether all of it was right.
pub(super) const AT: &str = "\0at";
/// An enum of `Short` (a text, a number) and `Full` (keys, a list).
pub(super) const EITHER: &str = "\0either";
/// An enum of `One` and `Many` (a list). An empty list is an error: it would count as if the key were absent.
pub(super) const MANY: &str = "\0many";
/// The same, and the list may be empty.
pub(super) const MANY_OR_NONE: &str = "\0many_or_none";
/// An enum of `Switch` (true or false) and `Full`.
pub(super) const SWITCH: &str = "\0switch";

/// An enum of `Nothing`, `Bool`, `Number`, `Text`, `List` and `Map`: whatever stands there.
pub(super) const FREE: &str = "\0free";

/// A newtype whose values are secrets: no error repeats them, and the administration does not show them.
pub(super) const SECRET: &str = "\0secret";

/// There is no value.
#[derive(Debug)]
pub(super) enum NoValue {
    /// Why was told.
    Told,
    /// Why is in here.
    Message(String),
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoValue::Told => f.write_str("told"),
            NoValue::Message(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for NoValue {}

impl de::Error for NoValue {
    fn custom<T: fmt::Display>(message: T) -> NoValue {
        NoValue::Message(message.to_string())
    }

    fn missing_field(field: &'static str) -> NoValue {
        NoValue::Message(format!("expected the key `{field}` here, found none"))
    }
}

/// Reads one value.
#[derive(Clone, Copy)]
pub(super) struct Reader<'n> {
    node: &'n Node<'n>,
    errors: &'n Errors<'n>,
    /// The name, chosen by the user, that the value has in its map.
    pub(super) name: Option<&'n str>,
}

/// Keys that an error lists, at most.
const KEYS_LISTED: usize = 8;

impl<'n> Reader<'n> {
    pub(super) fn new(node: &'n Node<'n>, errors: &'n Errors<'n>) -> Reader<'n> {
        Reader {
            node,
            errors,
            name: None,
        }
    }

    fn at(self, node: &'n Node<'n>) -> Reader<'n> {
        Reader::new(node, self.errors)
    }

    /// The value, or why there is none is told.
    pub(super) fn told<T>(self, result: Result<T, NoValue>) -> Result<T, NoValue> {
        result.map_err(|error| {
            if let NoValue::Message(message) = &error {
                self.errors.tell_message(self.node.position, message);
            }
            NoValue::Told
        })
    }

    /// Marks a secret, and tells of one that is written as a shell puts variables in, which is a text here.
    fn secret(self) {
        let position = self.node.position;
        if let Value::Text(text) = &self.node.value
            && let Some(name) = shell_variable(text).filter(|_| !self.errors.is_put_in(position))
        {
            let expected = format!(
                "`${{env:{name}}}`, which stands for a variable of the environment (`${{file:PATH}}` for a secret that begins with `$`)"
            );
            self.errors.tell(position, expected, quoted(&format!("${name}")));
        }
        self.errors.mark_secret(position);
    }

    fn wrong(self, expected: &str) -> NoValue {
        let found = match &self.node.value {
            Value::Text(text) => quoted(text),
            other => other.kind().to_owned(),
        };
        self.errors.tell(self.node.position, expected, found);
        NoValue::Told
    }

    /// A list that a program filled, and filled with nothing, must not count as the key's default: it may mean "all".
    fn empty_list(self) -> NoValue {
        let expected = "at least one element, or no such key, for its default";
        self.errors.tell(self.node.position, expected, "an empty list");
        NoValue::Told
    }

    fn whole<T: std::str::FromStr>(
        self,
        least: impl fmt::Display,
        most: impl fmt::Display,
    ) -> Result<T, NoValue> {
        let number = match &self.node.value {
            Value::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong(&format!("a whole number from {least} to {most}")))
    }

    fn text(self) -> Result<&'n str, NoValue> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            Value::Bool(true) => Ok("true"),
            Value::Bool(false) => Ok("false"),
            Value::Nothing | Value::List(_) | Value::Map(_) => Err(self.wrong("a text")),
        }
    }

    /// The entries of a map with those keys.
    fn entries(self, fields: &[&str]) -> Result<&'n [Pair<'n>], NoValue> {
        let expected = match self.name {
            _ if matches!(self.node.value, Value::Map(_)) => return self.pairs(),
            Some(name) if fields.contains(&name) => {
                format!("a map under a name of your choice, such as `main: {{{name}: …}}`")
            }
            _ if fields.len() <= KEYS_LISTED => format!("a map with the keys {}", listed(fields)),
            _ => "keys with values".to_owned(),
        };
        Err(self.wrong(&expected))
    }

    fn pairs(self) -> Result<&'n [Pair<'n>], NoValue> {
        match &self.node.value {
            Value::Map(pairs) => Ok(pairs),
            _ => Err(self.wrong("keys with values")),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        match self.node.value {
            Value::Bool(value) => visitor.visit_bool(value),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_u8(self.whole(0, u8::MAX)?)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_u16(self.whole(0, u16::MAX)?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_u32(self.whole(0, u32::MAX)?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_u64(self.whole(0, u64::MAX)?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        let text = self.text()?;
        self.told(visitor.visit_borrowed_str(text))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        // A key without a value is a slip; one that is not there never comes here.
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        match &self.node.value {
            Value::List(list) => visitor.visit_seq(Elements {
                reader: self,
                rest: list.iter(),
            }),
            _ => Err(self.wrong("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_map(Entries {
            reader: self,
            rest: self.pairs()?.iter(),
            value: None,
            fields: None,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        let read = visitor.visit_map(Entries {
            reader: self,
            rest: self.entries(fields)?.iter(),
            value: None,
            fields: Some(fields),
        });
        self.told(read)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        debug_assert_eq!(name, AT, "the only one");
        visitor.visit_seq(Place {
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
    ) -> Result<V::Value, NoValue> {
        let value = &self.node.value;
        let kind = match name {
            EITHER => {
                if value.is_scalar() {
                    "Short"
                } else {
                    "Full"
                }
            }
            MANY | MANY_OR_NONE => {
                if let Value::List(list) = value {
                    if list.is_empty() && name == MANY {
                        return Err(self.empty_list());
                    }
                    "Many"
                } else {
                    "One"
                }
            }
            SWITCH => {
                if matches!(value, Value::Bool(_)) {
                    "Switch"
                } else {
                    "Full"
                }
            }
            FREE => match value {
                Value::Nothing => "Nothing",
                Value::Bool(_) => "Bool",
                Value::Text(_) if self.node.is_number() => "Number",
                Value::Text(_) => "Text",
                Value::List(_) => "List",
                Value::Map(_) => "Map",
            },
            _ => return self.variant(variants, visitor),
        };
        visitor.visit_enum(Variant {
            name: kind,
            content: (kind != "Nothing").then_some(self),
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        if name == SECRET {
            self.node.scalars(&mut |node| self.at(node).secret());
        }
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple identifier ignored_any
    }
}

impl<'de> Reader<'de> {
    /// `name`, or `name: value` alone.
    fn variant<V: Visitor<'de>>(
        self,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        let (name, place, content) = match &self.node.value {
            Value::Text(text) => (&**text, self, None),
            Value::Map(pairs) => match &pairs[..] {
                [(key, value)] => {
                    let place = self.at(key);
                    (place.text()?, place, Some(self.at(value)))
                }
                _ => return Err(self.wrong(&format!("one of {}", listed(variants)))),
            },
            _ => return Err(self.wrong(&format!("one of {}", listed(variants)))),
        };
        let Some(known) = variants.iter().find(|known| **known == name) else {
            place.unknown(name, variants, "one of");
            return Err(NoValue::Told);
        };
        visitor.visit_enum(Variant { name: known, content })
    }

    /// Tells that a word is none of those.
    fn unknown(self, word: &str, known: &[&str], expected: &str) {
        let not_yet = NOT_YET
            .iter()
            .find(|(not_yet, kind, _)| *not_yet == word && known.contains(kind));
        let meant = || suggestion(word, known.iter().copied()).map(|name| format!("did you mean `{name}`?"));
        let advice = not_yet.map(|(.., why)| (*why).to_owned()).or_else(meant);
        let expected = format!("{expected} {}", listed(known));
        let advice = advice.unwrap_or_default();
        self.errors
            .add(self.node.position, "", expected, quoted(word), &advice);
    }
}

/// Words that will be known and are not yet: each with one of its kind, and what becomes of it.
const NOT_YET: [(&str, &str, &str); 1] = [(
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

fn listed(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The values of a list.
struct Elements<'n> {
    reader: Reader<'n>,
    rest: std::slice::Iter<'n, Node<'n>>,
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = NoValue;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, NoValue> {
        let node = self.rest.next();
        node.map(|node| seed.deserialize(self.reader.at(node)))
            .transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Keys and values; with `fields` only those keys.
struct Entries<'n> {
    reader: Reader<'n>,
    rest: std::slice::Iter<'n, Pair<'n>>,
    /// The value of the key that was read last.
    value: Option<Reader<'n>>,
    fields: Option<&'static [&'static str]>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = NoValue;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NoValue> {
        for (key, value) in self.rest.by_ref() {
            let key = self.reader.at(key);
            let Ok(name) = key.text() else {
                continue;
            };
            if let Some(fields) = self.fields {
                if !fields.contains(&name) {
                    key.unknown(name, fields, "one of the keys");
                    continue;
                }
                self.value = Some(self.reader.at(value));
                let name: StrDeserializer<'_, NoValue> = name.into_deserializer();
                return seed.deserialize(name).map(Some);
            }
            self.value = Some(Reader {
                name: Some(name),
                ..self.reader.at(value)
            });
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, NoValue> {
        let value = self.value.take().expect("a key was asked for");
        seed.deserialize(value)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Line, column, value, whether all of it was right.
struct Place<'n> {
    reader: Reader<'n>,
    step: u8,
    before: usize,
}

impl<'de> SeqAccess<'de> for Place<'de> {
    type Error = NoValue;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, NoValue> {
        let Reader { node, errors, .. } = self.reader;
        self.step += 1;
        let value = match self.step {
            1 => seed.deserialize(node.position.line.into_deserializer()),
            2 => seed.deserialize(node.position.column.into_deserializer()),
            3 => self.reader.told(seed.deserialize(self.reader)),
            _ => seed.deserialize((errors.count() == self.before).into_deserializer()),
        };
        value.map(Some)
    }
}

/// A variant and what stands behind its name.
struct Variant<'n> {
    name: &'static str,
    content: Option<Reader<'n>>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = NoValue;
    type Variant = Variant<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Variant<'de>), NoValue> {
        let name: StrDeserializer<'_, NoValue> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = NoValue;

    fn unit_variant(self) -> Result<(), NoValue> {
        match self.content {
            None => Ok(()),
            Some(content) => Err(content.wrong(&format!("nothing behind `{}`: write it alone", self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, NoValue> {
        match self.content {
            Some(content) => seed.deserialize(content),
            // The name alone: all by default, where there is a default.
            None => {
                let empty = std::iter::empty::<(&str, &str)>();
                seed.deserialize(MapDeserializer::new(empty))
                    .map_err(|_: NoValue| {
                        let name = self.name;
                        NoValue::Message(format!("expected a value behind `{name}`, found nothing"))
                    })
            }
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::Message("expected one value, found several".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::Message("expected one value, found keys".to_owned()))
    }
}
