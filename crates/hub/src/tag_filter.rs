//! Filters of publications by their tags, as clients send them in `subscribe`. Pure.
//!
//! ```text
//! {"op":"and","nodes":[{"key":"ticker","cmp":"in","vals":["BTC","ETH"]},{"key":"price","cmp":"gte","val":"99.5"}]}
//! ```
//!
//! A filter saves bandwidth, and is no permission: clients can subscribe without one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use prost::Message;

use crate::limits::{FILTER_BYTES, FILTER_DEPTH, FILTER_NODES, FILTER_VALUES};
use crate::protocol::FilterNode;

/// The longest number, in characters.
const NUMBER_BYTES: usize = 200;
/// The digits of a number behind its point, at most.
const FRACTION_DIGITS: usize = 19;

/// The tags of a publication.
type Tags = BTreeMap<String, String>;

/// A valid filter.
#[derive(Clone, Debug, PartialEq)]
pub struct TagFilter {
    condition: Condition,
    /// The Protobuf encoding.
    key: Box<[u8]>,
}

/// A filter that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid filter by tags: {0}")]
pub struct FilterError(&'static str);

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    All(Box<[Condition]>),
    Any(Box<[Condition]>),
    Not(Box<Condition>),
    Compare(Box<Comparison>),
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    tag: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq)]
enum Operator {
    Equal(String),
    NotEqual(String),
    In(Box<[String]>),
    NotIn(Box<[String]>),
    Exists,
    NotExists,
    StartsWith(String),
    EndsWith(String),
    Contains(String),
    /// A number that is one of these in relation to the operand. No number matches an operand that is none (`None`).
    Number(Option<Operand>, &'static [Ordering]),
}

/// The operand of a comparison of numbers. Parsed once.
#[derive(Clone, Debug, PartialEq)]
struct Operand {
    is_negative: bool,
    integer: Box<str>,
    fraction: Box<str>,
}

/// The numbers of the parts of a filter, which are limited.
#[derive(Debug, Default)]
struct FilterSize {
    nodes: usize,
    values: usize,
}

impl TagFilter {
    /// Checks a client's filter.
    ///
    /// # Errors
    /// [`FilterError`]: it exceeds a limit ([`FILTER_BYTES`], [`FILTER_NODES`], [`FILTER_VALUES`], [`FILTER_DEPTH`]) or is incomplete.
    pub fn new(node: &FilterNode) -> Result<TagFilter, FilterError> {
        if node.encoded_len() > FILTER_BYTES {
            return Err(FilterError("it is too large"));
        }
        let condition = Condition::new(node, FILTER_DEPTH, &mut FilterSize::default())?;
        let key = node.encode_to_vec().into();
        Ok(TagFilter { condition, key })
    }

    /// Returns whether a publication with these tags matches.
    #[must_use]
    pub fn matches(&self, tags: &Tags) -> bool {
        self.condition.matches(tags)
    }

    /// Returns bytes that are equal for equal filters.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Condition {
    fn new(node: &FilterNode, depth: usize, size: &mut FilterSize) -> Result<Condition, FilterError> {
        size.nodes += 1;
        size.values += node.vals.len();
        if depth == 0 || size.nodes > FILTER_NODES {
            return Err(FilterError("it has too many nodes, or is nested too deeply"));
        }
        if size.values > FILTER_VALUES {
            return Err(FilterError("its lists have too many values"));
        }
        if node.op.is_empty() {
            return Comparison::new(node).map(|comparison| Condition::Compare(Box::new(comparison)));
        }
        let inner = node.nodes.iter();
        let inner: Result<Box<[Condition]>, FilterError> = inner
            .map(|inner| Condition::new(inner, depth - 1, size))
            .collect();
        let inner = inner?;
        match &*node.op {
            "and" if !inner.is_empty() => Ok(Condition::All(inner)),
            "or" if !inner.is_empty() => Ok(Condition::Any(inner)),
            "not" => match <[Condition; 1]>::try_from(Vec::from(inner)) {
                Ok([inner]) => Ok(Condition::Not(Box::new(inner))),
                Err(_) => Err(FilterError("`not` needs exactly one node")),
            },
            "and" | "or" => Err(FilterError("`and` and `or` need a node")),
            _ => Err(FilterError("unknown `op`")),
        }
    }

    fn matches(&self, tags: &Tags) -> bool {
        match self {
            Condition::All(inner) => inner.iter().all(|inner| inner.matches(tags)),
            Condition::Any(inner) => inner.iter().any(|inner| inner.matches(tags)),
            Condition::Not(inner) => !inner.matches(tags),
            Condition::Compare(comparison) => comparison.matches(tags),
        }
    }
}

impl Comparison {
    fn new(node: &FilterNode) -> Result<Comparison, FilterError> {
        let FilterNode {
            key, cmp, val, vals, ..
        } = node;
        let takes_list = matches!(&**cmp, "in" | "nin");
        let takes_nothing = matches!(&**cmp, "ex" | "nex");
        if val.is_empty() != (takes_list || takes_nothing) {
            return Err(FilterError(
                "a comparison needs `val`, and one of a list or of existence has none",
            ));
        }
        if vals.is_empty() == takes_list {
            return Err(FilterError(
                "a comparison with a list needs `vals`, and another one has none",
            ));
        }
        if key.is_empty() && !takes_nothing {
            return Err(FilterError("a comparison needs `key`"));
        }
        let operand = || val.clone();
        let number = || Decimal::parse(val).map(Operand::from);
        let operator = match &**cmp {
            "eq" => Operator::Equal(operand()),
            "neq" => Operator::NotEqual(operand()),
            "in" => Operator::In(vals.clone().into()),
            "nin" => Operator::NotIn(vals.clone().into()),
            "ex" => Operator::Exists,
            "nex" => Operator::NotExists,
            "sw" => Operator::StartsWith(operand()),
            "ew" => Operator::EndsWith(operand()),
            "ct" => Operator::Contains(operand()),
            "lt" => Operator::Number(number(), &[Ordering::Less]),
            "lte" => Operator::Number(number(), &[Ordering::Less, Ordering::Equal]),
            "gt" => Operator::Number(number(), &[Ordering::Greater]),
            "gte" => Operator::Number(number(), &[Ordering::Greater, Ordering::Equal]),
            _ => return Err(FilterError("unknown `cmp`")),
        };
        let tag = key.clone();
        Ok(Comparison { tag, operator })
    }

    fn matches(&self, tags: &Tags) -> bool {
        let value = tags.get(&self.tag);
        let is = |matches: &dyn Fn(&str) -> bool| value.is_some_and(|value| matches(value));
        // In a list, a tag that is not set counts as an empty one.
        let is_listed = |list: &[String]| {
            let value = value.map_or("", String::as_str);
            list.iter().any(|listed| listed == value)
        };
        match &self.operator {
            Operator::Equal(operand) => is(&|value| value == operand),
            Operator::NotEqual(operand) => !is(&|value| value == operand),
            Operator::In(list) => is_listed(list),
            Operator::NotIn(list) => !is_listed(list),
            Operator::Exists => value.is_some(),
            Operator::NotExists => value.is_none(),
            Operator::StartsWith(operand) => is(&|value| value.starts_with(&**operand)),
            Operator::EndsWith(operand) => is(&|value| value.ends_with(&**operand)),
            Operator::Contains(operand) => is(&|value| value.contains(&**operand)),
            Operator::Number(operand, expected) => is(&|value| {
                let operand = operand.as_ref().map(Operand::decimal);
                let numbers = operand.and_then(|operand| Some((Decimal::parse(value)?, operand)));
                numbers.is_some_and(|(value, operand)| expected.contains(&value.compare(operand)))
            }),
        }
    }
}

impl From<Decimal<'_>> for Operand {
    fn from(decimal: Decimal<'_>) -> Operand {
        Operand {
            is_negative: decimal.is_negative,
            integer: decimal.integer.into(),
            fraction: decimal.fraction.into(),
        }
    }
}

impl Operand {
    fn decimal(&self) -> Decimal<'_> {
        Decimal {
            is_negative: self.is_negative,
            integer: &self.integer,
            fraction: &self.fraction,
        }
    }
}

/// A decimal number of any size, as its digits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decimal<'a> {
    is_negative: bool,
    /// Without leading zeros.
    integer: &'a str,
    /// Without trailing zeros.
    fraction: &'a str,
}

impl<'a> Decimal<'a> {
    /// Parses a number as Centrifugo does: a sign, digits, and a point with digits behind it.
    fn parse(text: &'a str) -> Option<Decimal<'a>> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (integer, fraction) = match digits.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (digits, ""),
        };
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let is_valid = text.len() <= NUMBER_BYTES
            && fraction.len() <= FRACTION_DIGITS
            && !integer.is_empty()
            && is_number(integer)
            && is_number(fraction);
        let integer = integer.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        is_valid.then_some(Decimal {
            is_negative: text.starts_with('-') && !(integer.is_empty() && fraction.is_empty()),
            integer,
            fraction,
        })
    }

    fn compare(self, other: Decimal<'_>) -> Ordering {
        let size = (self.integer.len().cmp(&other.integer.len()))
            .then_with(|| self.integer.cmp(other.integer))
            .then_with(|| self.fraction.cmp(other.fraction));
        match (self.is_negative, other.is_negative) {
            (false, false) => size,
            (true, true) => size.reverse(),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests;
