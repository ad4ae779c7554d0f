//! Types of values that serde does not have: with positions, ordered maps, one value or a list, a short or a full form. Each has a
//! JSON Schema.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::deserializer::{SECRET, SPANNED};
use super::error::{FilePosition, quote};

/// A value with its position.
#[derive(Debug)]
pub(super) struct Spanned<T> {
    /// `None`: invalid; the error was reported.
    pub(super) value: Option<T>,
    pub(super) position: FilePosition,
    /// No error was reported in it.
    pub(super) is_valid: bool,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spanned<T>, D::Error> {
        struct SpannedVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its place")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Spanned<T>, A::Error> {
                let incomplete = || A::Error::custom("a part of a place");
                let line = elements.next_element()?.ok_or_else(incomplete)?;
                let column = elements.next_element()?.ok_or_else(incomplete)?;
                // The error has been reported.
                let value = elements.next_element().ok().flatten();
                let is_valid = elements.next_element()?.ok_or_else(incomplete)?;
                Ok(Spanned {
                    value,
                    position: FilePosition { line, column },
                    is_valid,
                })
            }
        }

        deserializer.deserialize_tuple_struct(SPANNED, 4, SpannedVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Reads a field whose value is a secret (`#[serde(deserialize_with = "deserialize_secret")]`): errors do not quote it, and the
/// administration redacts it. In the schema such a field is `writeOnly`.
pub(super) fn deserialize_secret<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct SecretVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for SecretVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a secret")
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
            T::deserialize(deserializer)
        }
    }

    deserializer.deserialize_newtype_struct(SECRET, SecretVisitor(PhantomData))
}

/// A map in the order of the file.
#[derive(Debug)]
pub(super) struct OrderedMap<V>(pub(super) Vec<(Spanned<String>, Spanned<V>)>);

impl<V> Default for OrderedMap<V> {
    fn default() -> OrderedMap<V> {
        OrderedMap(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for OrderedMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrderedMap<V>, D::Error> {
        struct OrderedMapVisitor<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for OrderedMapVisitor<V> {
            type Value = OrderedMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with a value each")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedMap<V>, A::Error> {
                // Exact, since the number of entries is known: spare capacity would be large for many routes.
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or_default());
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(OrderedMap(pairs))
            }
        }

        deserializer.deserialize_map(OrderedMapVisitor(PhantomData))
    }
}

impl<V: JsonSchema> JsonSchema for OrderedMap<V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Names_of_{}", V::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<V>() })
    }
}

/// One value or a list.
#[derive(Debug, Deserialize)]
#[serde(rename = "\0many")]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<Spanned<T>>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> OneOrMany<T> {
        OneOrMany::Many(Vec::new())
    }
}

impl<T> Spanned<OneOrMany<T>> {
    /// Returns the values as a list.
    pub(super) fn into_list(self) -> Vec<Spanned<T>> {
        let Spanned {
            value,
            position,
            is_valid,
        } = self;
        match value {
            Some(OneOrMany::One(value)) => vec![Spanned {
                value: Some(value),
                position,
                is_valid,
            }],
            Some(OneOrMany::Many(list)) => list,
            None => Vec::new(),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Some_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

/// One value or a list that may be empty: for keys with the value "none".
#[derive(Debug, Deserialize)]
#[serde(rename = "\0many_or_none")]
pub(super) enum OneManyOrNone<T> {
    One(T),
    Many(Vec<Spanned<T>>),
}

impl<T> OneManyOrNone<T> {
    /// Returns all values that could be read.
    pub(super) fn into_values(self) -> Vec<T> {
        match self {
            OneManyOrNone::One(value) => vec![value],
            OneManyOrNone::Many(list) => list.into_iter().filter_map(|at| at.value).collect(),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OneManyOrNone<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Any_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// A short form, which is a text or a number, or the full one.
#[derive(Debug, Deserialize)]
#[serde(rename = "\0either")]
pub(super) enum ShortOrFull<S, F> {
    Short(S),
    Full(F),
}

impl<S: JsonSchema, F: JsonSchema> JsonSchema for ShortOrFull<S, F> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", S::schema_name(), F::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (short, full) = (generator.subschema_for::<S>(), generator.subschema_for::<F>());
        json_schema!({ "anyOf": [short, full] })
    }
}

/// On with all defaults, off, or on with settings.
#[derive(Debug, Deserialize)]
#[serde(rename = "\0switch")]
pub(super) enum Switch<F> {
    Switch(bool),
    Full(F),
}

impl<F: Default> Switch<F> {
    /// Returns the settings; `None`: off.
    pub(super) fn settings(self) -> Option<F> {
        match self {
            Switch::Switch(on) => on.then(F::default),
            Switch::Full(settings) => Some(settings),
        }
    }
}

impl<F: JsonSchema> JsonSchema for Switch<F> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Switch_{}", F::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let full = generator.subschema_for::<F>();
        json_schema!({ "anyOf": [{ "type": "boolean" }, full] })
    }
}

/// Any value, for options of custom filters.
#[derive(Debug, Deserialize)]
#[serde(rename = "\0free")]
pub(super) enum AnyValue {
    Nothing,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<AnyValue>),
    Map(OrderedMap<AnyValue>),
}

impl JsonSchema for AnyValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Anything".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// A value that is written as a string or a number, and parsed.
pub(super) trait ParseScalar: Sized {
    /// The name in the schema and on the reference page.
    const NAME: &'static str;
    /// The description in the schema.
    const DESCRIPTION: &'static str;
    /// Valid values; a test parses each.
    const EXAMPLES: &'static [&'static str];
    /// A regular expression that all values match; empty: none.
    const PATTERN: &'static str = "";
    /// Numbers need no quotes.
    const ALLOWS_NUMBER: bool = false;

    /// Parses a value.
    ///
    /// # Errors
    /// Returns `expected …, found …` for an invalid one.
    fn parse(text: &str) -> Result<Self, String>;
}

/// A parsed scalar.
#[derive(Debug)]
pub(super) struct Parsed<T>(pub(super) T);

impl<'de, T: ParseScalar> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parsed<T>, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        T::parse(&text).map(Parsed).map_err(D::Error::custom)
    }
}

impl<T: ParseScalar> JsonSchema for Parsed<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds = if T::ALLOWS_NUMBER {
            serde_json::json!(["string", "integer"])
        } else {
            serde_json::json!("string")
        };
        let mut schema =
            json_schema!({ "description": T::DESCRIPTION, "type": kinds, "examples": T::EXAMPLES });
        if !T::PATTERN.is_empty() {
            schema.insert("pattern".to_owned(), T::PATTERN.into());
        }
        schema
    }
}

/// A number, or `off`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberOrOff(pub(super) Option<u32>);

impl ParseScalar for NumberOrOff {
    const NAME: &'static str = "number or off";
    const DESCRIPTION: &'static str = "A whole number from 1 to 4294967295, or `off`: unlimited.";
    const EXAMPLES: &'static [&'static str] = &["256", "off"];
    const PATTERN: &'static str = "^([1-9][0-9]*|off)$";
    const ALLOWS_NUMBER: bool = true;

    fn parse(text: &str) -> Result<NumberOrOff, String> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            _ if text == "off" => Ok(NumberOrOff(None)),
            Ok(number @ 1..) if digits => Ok(NumberOrOff(Some(number))),
            _ => Err(format!(
                "expected `off`, or a whole number from 1 to {}, found {}",
                u32::MAX,
                quote(text)
            )),
        }
    }
}
