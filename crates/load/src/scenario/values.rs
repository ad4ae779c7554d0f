//! Kinds of values that a scenario file has and serde does not: where one stands, times with a unit, statuses, names in
//! order, one thing or a list of them. Each with its JSON Schema.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
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

/// One of a thing, or a list of them.
#[derive(Clone, Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany<T>, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping, or a list of mappings")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMany<T>, A::Error> {
                Ok(OneOrMany(vec![T::deserialize(MapAccessDeserializer::new(map))?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<OneOrMany<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(sequence)).map(OneOrMany)
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

/// Statuses: `200`, `2xx`, or a list of such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statuses(pub(super) Vec<RangeInclusive<u16>>);

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Statuses, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Statuses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status such as 200, a class such as 2xx, or a list of such")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Statuses, E> {
                let status = u16::try_from(number)
                    .ok()
                    .filter(|status| (200..=999).contains(status));
                let status = status.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))?;
                Ok(Statuses(vec![status..=status]))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Statuses, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Statuses, E> {
                if let Ok(number) = text.parse() {
                    return self.visit_u64(number);
                }
                match text.as_bytes() {
                    [class @ b'2'..=b'5', b'x', b'x'] => {
                        let first = u16::from(class - b'0') * 100;
                        Ok(Statuses(vec![first..=first + 99]))
                    }
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Statuses, A::Error> {
                let mut all = Vec::new();
                while let Some(Statuses(some)) = sequence.next_element()? {
                    all.extend(some);
                }
                if all.is_empty() {
                    return Err(A::Error::invalid_length(0, &self));
                }
                Ok(Statuses(all))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = [
            json_schema!({ "type": "integer", "minimum": 200, "maximum": 999 }),
            json_schema!({ "type": "string", "pattern": "^[2-5]xx$" }),
        ];
        json_schema!({
            "description": "A status such as 200, a class such as 2xx, or a list of such.",
            "anyOf": [one[0], one[1], { "type": "array", "minItems": 1, "items": { "anyOf": one } }],
        })
    }
}

/// A time with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

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
    fn parse(text: &str) -> Option<Time> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let time = Duration::from_micros(number.parse::<u64>().ok()?.checked_mul(*factor)?);
        (time <= LONGEST).then_some(Time(time))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        struct WithUnit;

        impl Visitor<'_> for WithUnit {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time with its unit (us, ms, s, m, h), such as 500ms, 10s or 2m")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                Time::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(WithUnit)
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
