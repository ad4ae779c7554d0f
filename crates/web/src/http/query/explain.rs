//! Errors about pairs that do not match a type: the pairs are parsed again, by a deserializer that knows the type of each value.
//! Not used for valid pairs.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::decode;
use crate::http::client_text;
use crate::http::expected_type;
use crate::http::json::plainly;

/// Returns the path of the first pair that does not match, and the reason; `None` if this deserializer accepts every pair.
pub(super) fn fault<'a, T: Deserialize<'a>>(raw: &'a [u8]) -> Option<(String, String)> {
    let pairs = Pairs::new(raw);
    let error = serde_path_to_error::deserialize::<_, T>(pairs).err()?;
    let path = error.path().to_string();
    Some((path, plainly(&error.inner().to_string())))
}

/// The pairs by their names, in the order of their first appearance.
struct Pairs<'a> {
    left: std::vec::IntoIter<(Cow<'a, str>, Vec<Cow<'a, str>>)>,
    values: Vec<Cow<'a, str>>,
}

impl<'a> Pairs<'a> {
    fn new(raw: &'a [u8]) -> Pairs<'a> {
        let mut all: Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)> = Vec::new();
        for pair in raw.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
            let (name, value) = decode::halves(pair);
            let (name, value) = (decode::text(name), decode::text(value));
            match all.iter_mut().find(|(key, _)| *key == name) {
                Some((_, values)) => values.push(value),
                None => all.push((name, vec![value])),
            }
        }
        Pairs {
            left: all.into_iter(),
            values: Vec::new(),
        }
    }
}

impl<'de> Deserializer<'de> for Pairs<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Pairs<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, values)) = self.left.next() else {
            return Ok(None);
        };
        self.values = values;
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(ValueList(std::mem::take(&mut self.values)))
    }
}

/// The values of one name.
struct ValueList<'a>(Vec<Cow<'a, str>>);

impl<'a> ValueList<'a> {
    fn one(mut self) -> Result<Cow<'a, str>, Error> {
        match (self.0.pop(), self.0.len()) {
            (Some(value), 0) => Ok(value),
            (_, others) => Err(Error::custom(format_args!(
                "expected it once, found it {} times",
                others + 1
            ))),
        }
    }

    fn parsed<T: std::str::FromStr>(self) -> Result<T, Error> {
        let value = self.one()?;
        value.parse().map_err(|_| {
            let expected = expected_type::describe::<T>().unwrap_or("another value");
            Error::custom(format_args!(
                "expected {expected}, found `{}`",
                client_text::truncate(&value)
            ))
        })
    }
}

/// Defines the methods for types that are parsed from text.
macro_rules! parsed {
    ($($type:ty => $method:ident $visit:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.parsed::<$type>()?)
        })*
    };
}

impl<'de> Deserializer<'de> for ValueList<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.one()? {
            Cow::Borrowed(value) => visitor.visit_borrowed_str(value),
            Cow::Owned(value) => visitor.visit_string(value),
        }
    }

    parsed! {
        i8 => deserialize_i8 visit_i8,
        i16 => deserialize_i16 visit_i16,
        i32 => deserialize_i32 visit_i32,
        i64 => deserialize_i64 visit_i64,
        i128 => deserialize_i128 visit_i128,
        u8 => deserialize_u8 visit_u8,
        u16 => deserialize_u16 visit_u16,
        u32 => deserialize_u32 visit_u32,
        u64 => deserialize_u64 visit_u64,
        u128 => deserialize_u128 visit_u128,
        f32 => deserialize_f32 visit_f32,
        f64 => deserialize_f64 visit_f64,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // HTML forms send `on` for a checked checkbox.
        match &*self.one()? {
            "true" | "on" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            found => Err(Error::custom(format_args!(
                "expected `true`, `on` or `false`, found `{}`",
                client_text::truncate(found)
            ))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0[..] {
            [one] if one.is_empty() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SequenceItems(self.0.into_iter()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.one()?
            .into_deserializer()
            .deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct map struct identifier ignored_any
    }
}

/// The values of a name that fills a sequence.
struct SequenceItems<'a>(std::vec::IntoIter<Cow<'a, str>>);

impl<'de> SeqAccess<'de> for SequenceItems<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.0.next() else {
            return Ok(None);
        };
        seed.deserialize(ValueList(vec![value])).map(Some)
    }
}
