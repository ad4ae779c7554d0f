//! How the figures of several targets stand to each other: plain rows, judged elsewhere.

use super::amount;

/// Targets compared with the first of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonTable {
    /// What the user calls them; the first is what the others are compared with.
    pub targets: Vec<String>,
    /// Where each of them is, as the user wrote it, in the same order.
    pub places: Vec<String>,
    /// Rounds of each, taken in turn.
    pub rounds: u32,
    /// How sure the intervals are, such as 0.95.
    pub confidence: f64,
    /// One a figure.
    pub rows: Vec<Row>,
}

/// One figure of all targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is, such as `requests/s` or `p99 service`.
    pub metric: String,
    /// What it is counted in.
    pub unit: Unit,
    /// The median over the rounds, in the order of [`ComparisonTable::targets`]; `None` where it was not measured.
    pub values: Vec<Option<f64>>,
    /// How each target but the first stands to the first, in the same order; `None` where one of them has no figure.
    pub against: Vec<Option<Against>>,
}

/// One target's figure divided by the first one's.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// The ratio.
    pub ratio: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
    /// What follows, in a word or two: `12 % more`, `within noise`.
    pub verdict: String,
    /// For whom that is good.
    pub tone: Tone,
}

/// Whether a difference is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Better than the first target.
    Better,
    /// Worse than the first target.
    Worse,
    /// Nothing to be said, or neither good nor bad.
    Neutral,
}

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many, or so many a second.
    Number,
    /// Seconds.
    Seconds,
    /// Bytes over a wire.
    Bytes,
    /// Bytes of memory.
    Memory,
}

impl Unit {
    /// `value` as people read it.
    #[must_use]
    pub fn write(self, value: f64) -> String {
        match self {
            Unit::Number => amount::number(value),
            Unit::Seconds => amount::seconds(value),
            Unit::Bytes => amount::bytes(value),
            Unit::Memory if value.is_finite() => amount::memory(value as u64),
            Unit::Memory => amount::NONE.into(),
        }
    }
}

/// The letter that stands for a target where its name has no room: A, B, … Z, then numbers.
#[must_use]
pub fn letter(target: usize) -> String {
    match u8::try_from(target) {
        Ok(at @ 0..26) => char::from(b'A' + at).to_string(),
        _ => format!("#{}", target + 1),
    }
}
