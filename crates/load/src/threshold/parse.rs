//! Reads thresholds. Errors name the place, what could stand there and what does.

use std::str::FromStr;

use super::{Clock, Measure, Point, Relation, Threshold};

/// Why a text is not a [`Threshold`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("threshold {text:?}: expected {expected} at character {position}, found {found}")]
pub struct ThresholdError {
    /// The whole text.
    pub text: String,
    /// Where, in characters, counted from one.
    pub position: usize,
    /// What could stand there.
    pub expected: &'static str,
    /// What does.
    pub found: String,
}

const NAMES: &str = "p50, p99.9 or another percentile, mean, max (each also after \"service.\" or \"response.\"), errors, rps \
                     or cpu";
const LATENCIES: &str = "p50, p99.9 or another percentile, mean or max";
const PERCENT: &str = "a percentile above 0, at most 100";
const RELATIONS: &str = "<, <=, > or >=";
const NUMBER: &str = "a number, not negative";
const TIMES: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Threshold, ThresholdError> {
        let mut reader = Reader { text, at: 0 };
        let measure = reader.measure()?;
        reader.spaces();
        let relation = reader.relation()?;
        reader.spaces();
        let number = reader.number()?;
        let limit = number * reader.unit(measure)?;
        reader.spaces();
        reader.end()?;
        Ok(Threshold {
            measure,
            relation,
            limit,
            text: text.trim().to_owned(),
        })
    }
}

/// Stands at a byte of the text.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn spaces(&mut self) {
        self.take(char::is_whitespace);
    }

    /// What fits, from here on.
    fn take(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|character| !fits(character)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn literal(&mut self, literal: &str) -> bool {
        let there = self.rest().starts_with(literal);
        if there {
            self.at += literal.len();
        }
        there
    }

    fn measure(&mut self) -> Result<Measure, ThresholdError> {
        self.spaces();
        let clock = match () {
            () if self.literal("service.") => Clock::Service,
            () if self.literal("response.") => Clock::Response,
            () => Clock::Felt,
        };
        let begin = self.at;
        let name = self.take(|character| character.is_ascii_alphanumeric() || character == '.');
        let point = match name {
            "mean" => Point::Mean,
            "max" => Point::Max,
            "errors" if clock == Clock::Felt => return Ok(Measure::Errors),
            "rps" if clock == Clock::Felt => return Ok(Measure::Throughput),
            "cpu" if clock == Clock::Felt => return Ok(Measure::ServerCpu),
            _ => match name
                .strip_prefix('p')
                .filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
            {
                Some(digits) => Point::Percent(self.percent(begin + 1, digits)?),
                None => return Err(self.error(begin, if clock == Clock::Felt { NAMES } else { LATENCIES })),
            },
        };
        Ok(Measure::Latency(clock, point))
    }

    fn percent(&self, begin: usize, digits: &str) -> Result<f64, ThresholdError> {
        let percent = digits
            .parse()
            .ok()
            .filter(|percent| *percent > 0.0 && *percent <= 100.0);
        percent.ok_or_else(|| self.error(begin, PERCENT))
    }

    fn relation(&mut self) -> Result<Relation, ThresholdError> {
        let relations = [
            ("<=", Relation::AtMost),
            (">=", Relation::AtLeast),
            ("<", Relation::Less),
            (">", Relation::Greater),
        ];
        let found = relations.into_iter().find(|(sign, _)| self.literal(sign));
        found
            .map(|(_, relation)| relation)
            .ok_or_else(|| self.error(self.at, RELATIONS))
    }

    fn number(&mut self) -> Result<f64, ThresholdError> {
        let begin = self.at;
        let digits = self.take(|character| character.is_ascii_digit() || character == '.');
        let number = digits.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.error(begin, NUMBER))
    }

    /// How many of [`Measure`]'s units the written unit is.
    fn unit(&mut self, measure: Measure) -> Result<f64, ThresholdError> {
        self.spaces();
        let begin = self.at;
        let unit = self.take(|character| character.is_alphabetic() || character == '%' || character == '/');
        let (factor, expected) = match measure {
            Measure::Latency(..) | Measure::ServerCpu => {
                let factor = TIMES
                    .iter()
                    .find(|(name, _)| *name == unit)
                    .map(|(_, factor)| *factor);
                (factor, "a unit: ns, us, ms or s")
            }
            Measure::Errors => ((unit == "%").then_some(0.01), "%"),
            Measure::Throughput => ((unit.is_empty() || unit == "/s").then_some(1.0), "nothing or /s"),
        };
        factor.ok_or_else(|| self.error(begin, expected))
    }

    fn end(&self) -> Result<(), ThresholdError> {
        if self.rest().is_empty() {
            Ok(())
        } else {
            Err(self.error(self.at, "the end"))
        }
    }

    fn error(&self, at: usize, expected: &'static str) -> ThresholdError {
        let rest = &self.text[at..];
        let found = if rest.is_empty() {
            "the end".to_owned()
        } else {
            format!("{rest:?}")
        };
        ThresholdError {
            text: self.text.to_owned(),
            position: self.text[..at].chars().count() + 1,
            expected,
            found,
        }
    }
}
