//! Deserialization of filter options.
//!
//! A serde deserializer over [`Options`]. A number may be written as a text, since `${env:…}` yields texts. A text may be written as a
//! number, and keeps its form.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::FilterError;
use crate::model::Options;

impl Options {
    /// Deserializes the options: into a struct with `#[derive(Deserialize)]`, preferably with `#[serde(deny_unknown_fields)]`, so that
    /// typing errors are reported. Without options the type is deserialized from an empty map, so that a struct whose fields all have
    /// defaults needs none.
    ///
    /// # Errors
    /// An option is missing, unknown or invalid. The message names its key.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FilterError> {
        let nothing = Options::Map(Vec::new());
        let options = match self {
            Options::Nothing => &nothing,
            told => told,
        };
        serde_path_to_error::deserialize(OptionsReader(options)).map_err(|error| {
            let (path, why) = (error.path().to_string(), error.inner());
            match path.as_str() {
                "." => why.to_string().into(),
                _ => format!("at `{path}`: {why}").into(),
            }
        })
    }
}

type OptionsError = serde::de::value::Error;

#[derive(Clone, Copy)]
struct OptionsReader<'o>(&'o Options);

impl<'o> IntoDeserializer<'o, OptionsError> for OptionsReader<'o> {
    type Deserializer = OptionsReader<'o>;

    fn into_deserializer(self) -> OptionsReader<'o> {
        self
    }
}

impl<'o> OptionsReader<'o> {
    /// Returns the number that is written here, if it fits the type.
    fn number<T: std::str::FromStr>(self) -> Option<T> {
        match self.0 {
            Options::Number(text) | Options::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $kind:ty,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionsError> {
            match self.number::<$kind>() {
                Some(number) => visitor.$visit(number),
                None => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for OptionsReader<'de> {
    type Error = OptionsError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionsError> {
        match self.0 {
            Options::Nothing => visitor.visit_unit(),
            Options::Bool(value) => visitor.visit_bool(*value),
            Options::Text(text) => visitor.visit_borrowed_str(text),
            Options::Number(text) => {
                if let Some(number) = self.number() {
                    visitor.visit_u64(number)
                } else if let Some(number) = self.number() {
                    visitor.visit_i64(number)
                } else if let Some(number) = self.number() {
                    visitor.visit_f64(number)
                } else {
                    visitor.visit_borrowed_str(text)
                }
            }
            Options::List(list) => visitor.visit_seq(SeqDeserializer::new(list.iter().map(OptionsReader))),
            Options::Map(pairs) => {
                let pairs = pairs.iter().map(|(name, value)| (&**name, OptionsReader(value)));
                visitor.visit_map(MapDeserializer::new(pairs))
            }
        }
    }

    numbers! {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_f32 visit_f32 f32,
        deserialize_f64 visit_f64 f64,
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionsError> {
        match self.0 {
            Options::Number(text) => visitor.visit_borrowed_str(text),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionsError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionsError> {
        match self.0 {
            Options::Nothing => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, OptionsError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, OptionsError> {
        match self.0 {
            Options::Text(text) | Options::Number(text) => visitor.visit_enum((&**text).into_deserializer()),
            Options::Map(pairs) => match &pairs[..] {
                [(name, value)] => {
                    let one = std::iter::once((&**name, OptionsReader(value)));
                    visitor.visit_enum(serde::de::value::MapAccessDeserializer::new(
                        MapDeserializer::new(one),
                    ))
                }
                _ => Err(OptionsError::custom(
                    "expected one name, alone or with a value behind it",
                )),
            },
            _ => Err(OptionsError::custom(
                "expected one name, alone or with a value behind it",
            )),
        }
    }

    forward_to_deserialize_any! {
        bool i128 u128 char bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
