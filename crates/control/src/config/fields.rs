//! Kinds of values that a configuration has and serde does not: where one stands, names in order, one thing or a list of
//! them, a short form and a full one. Each with its JSON Schema.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::error::{Position, quoted};
use super::deserializer::{AT, SECRET};

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct At<T> {
    /// `None`: it is not what it should be, which was told.
    pub(super) value: Option<T>,
    pub(super) position: Position,
    /// Nothing in it was told to be wrong.
    pub(super) clean: bool,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At<T>, D::Error> {
        struct Parts<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = At<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its place")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<At<T>, A::Error> {
                let missing = || A::Error::custom("a part of a place");
                let line = parts.next_element()?.ok_or_else(missing)?;
                let column = parts.next_element()?.ok_or_else(missing)?;
                // Why there is none was told.
                let value = parts.next_element().ok().flatten();
                let clean = parts.next_element()?.ok_or_else(missing)?;
                Ok(At {
                    value,
                    position: Position { line, column },
                    clean,
                })
            }
        }

        deserializer.deserialize_tuple_struct(AT, 4, Parts(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Reads a field whose value is a secret (`#[serde(deserialize_with = "secret")]`): no error repeats it, and the administration
/// does not show it. In the schema such a field is `writeOnly`.
pub(super) fn secret<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Inner<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Inner<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a secret")
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
            T::deserialize(deserializer)
        }
    }

    deserializer.deserialize_newtype_struct(SECRET, Inner(PhantomData))
}

/// Names and what belongs to them, in the order of the file.
#[derive(Debug)]
pub(super) struct Pairs<V>(pub(super) Vec<(At<String>, At<V>)>);

impl<V> Default for Pairs<V> {
    fn default() -> Pairs<V> {
        Pairs(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs<V>, D::Error> {
        struct Names<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Names<V> {
            type Value = Pairs<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with a value each")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                // It is bounded by what was read; more than there is would take memory that is large for many routes.
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or_default());
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Names(PhantomData))
    }
}

impl<V: JsonSchema> JsonSchema for Pairs<V> {
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

/// One of a thing, or a list of them. One alone stands where the whole does.
#[derive(Debug, Deserialize)]
#[serde(rename = "\0many")]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<At<T>>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> OneOrMany<T> {
        OneOrMany::Many(Vec::new())
    }
}

impl<T> At<OneOrMany<T>> {
    /// All of them.
    pub(super) fn into_list(self) -> Vec<At<T>> {
        let At {
            value,
            position,
            clean,
        } = self;
        match value {
            Some(OneOrMany::One(value)) => vec![At {
                value: Some(value),
                position,
                clean,
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

/// One of a thing, or a list of them that may be empty: for keys where "none" is a value.
#[derive(Debug, Deserialize)]
#[serde(rename = "\0many_or_none")]
pub(super) enum OneManyOrNone<T> {
    One(T),
    Many(Vec<At<T>>),
}

impl<T> OneManyOrNone<T> {
    /// All values that could be read.
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
pub(super) enum Either<S, F> {
    Short(S),
    Full(F),
}

impl<S: JsonSchema, F: JsonSchema> JsonSchema for Either<S, F> {
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
    /// The settings; `None`: off.
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

/// Whatever stands there, for who knows what it means.
#[derive(Debug, Deserialize)]
#[serde(rename = "\0free")]
pub(super) enum Free {
    Nothing,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Free>),
    Map(Pairs<Free>),
}

impl JsonSchema for Free {
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

/// What is written as a text and read into something else.
pub(super) trait Parse: Sized {
    /// Its name in the schema and the reference.
    const NAME: &'static str;
    /// What it looks like.
    const ABOUT: &'static str;
    /// A regular expression that all of them match; empty: none.
    const SHAPE: &'static str = "";
    /// A number may be written without quotes.
    const NUMBER: bool = false;

    /// Reads one; the error is `expected …, found …`.
    fn parse(text: &str) -> Result<Self, String>;
}

/// A text that was read.
#[derive(Debug)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: Parse> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<T>, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        T::parse(&text).map(Text).map_err(D::Error::custom)
    }
}

impl<T: Parse> JsonSchema for Text<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds = if T::NUMBER {
            serde_json::json!(["string", "integer"])
        } else {
            serde_json::json!("string")
        };
        let mut schema = json_schema!({ "description": T::ABOUT, "type": kinds });
        if !T::SHAPE.is_empty() {
            schema.insert("pattern".to_owned(), T::SHAPE.into());
        }
        schema
    }
}

/// A number, or `off`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberOrOff(pub(super) Option<u32>);

impl Parse for NumberOrOff {
    const NAME: &'static str = "number or off";
    const ABOUT: &'static str = "A whole number from 1 to 4294967295; or `off` for any number.";
    const SHAPE: &'static str = "^([1-9][0-9]*|off)$";
    const NUMBER: bool = true;

    fn parse(text: &str) -> Result<NumberOrOff, String> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            _ if text == "off" => Ok(NumberOrOff(None)),
            Ok(number @ 1..) if digits => Ok(NumberOrOff(Some(number))),
            _ => Err(format!(
                "expected `off`, or a whole number from 1 to {}, found {}",
                u32::MAX,
                quoted(text)
            )),
        }
    }
}
