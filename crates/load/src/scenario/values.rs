//! Kinds of values that a scenario file has and serde does not: where one stands, times with a unit, statuses, names in
//! order, one thing or a list of them. Each with its JSON Schema.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A line and a column of a file, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: u64,
    pub(super) column: u64,
}

/// A value and where it stands. Where an alias stands for it, that is meant.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) position: Position,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At<T>, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(At {
            value: spanned.value,
            position: Position {
                line: spanned.referenced.line(),
                column: spanned.referenced.column(),
            },
        })
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

/// Names and what belongs to them, in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Pairs<V>(pub(super) Vec<(String, V)>);

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
                let mut pairs = Vec::new();
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
#[derive(Clone, Debug)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<At<T>>),
}

impl<T> At<OneOrMany<T>> {
    /// All of them.
    pub(super) fn into_list(self) -> Vec<At<T>> {
        match self.value {
            OneOrMany::One(value) => vec![At {
                value,
                position: self.position,
            }],
            OneOrMany::Many(list) => list,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany<T>, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one, or a list of such")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<OneOrMany<T>, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<OneOrMany<T>, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<OneOrMany<T>, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<OneOrMany<T>, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<OneOrMany<T>, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMany<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMany::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<OneOrMany<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(sequence)).map(OneOrMany::Many)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
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
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// `200` or `2xx`, as it is written; [`range`](Status::range) says whether it is a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) String);

impl Status {
    /// The statuses that it names.
    pub(super) fn range(&self) -> Option<RangeInclusive<u16>> {
        if let [class @ b'2'..=b'5', b'x', b'x'] = self.0.as_bytes() {
            let first = u16::from(class - b'0') * 100;
            return Some(first..=first + 99);
        }
        let status = self.0.parse().ok()?;
        (200..=999).contains(&status).then_some(status..=status)
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Status;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status such as 200 or a class such as 2xx")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Status, E> {
                Ok(Status(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Status, E> {
                Ok(Status(number.to_string()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Status, E> {
                Ok(Status(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Status {
    fn schema_name() -> Cow<'static, str> {
        "Status".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A status such as 200, or a class such as 2xx.",
            "anyOf": [
                { "type": "integer", "minimum": 200, "maximum": 999 },
                { "type": "string", "pattern": "^[2-5]xx$" },
            ],
        })
    }
}

/// A time with its unit, as it is written; [`duration`](Time::duration) says whether it is one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Time(pub(super) String);

/// Units of times, in microseconds: the ones of the command line.
const UNITS: [(&str, u64); 5] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
];

/// The longest time that makes sense here; what follows computes with times without care for overflow.
const LONGEST: Duration = Duration::from_hours(24 * 365);

impl Time {
    /// The time that it names.
    pub(super) fn duration(&self) -> Option<Duration> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = self.0.split_at(digits);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let time = Duration::from_micros(number.parse::<u64>().ok()?.checked_mul(*factor)?);
        (time <= LONGEST).then_some(time)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A time with its unit, such as 500ms, 10s or 2m.",
            "type": "string",
            "pattern": "^[0-9]+(us|ms|s|m|h)$",
        })
    }
}
