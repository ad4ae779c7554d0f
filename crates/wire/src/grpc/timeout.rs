//! `grpc-timeout`: how long a client waits, in at most eight digits and a unit.

use std::fmt::Write as _;
use std::time::Duration;

/// Digits that a value has at most.
const DIGITS: usize = 8;
const MOST: u128 = 99_999_999;

/// Units by their letters, the finest first, in nanoseconds.
const UNITS: [(u8, u128); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60_000_000_000),
    (b'H', 3_600_000_000_000),
];

/// The time that a value of `grpc-timeout` says; `None` for what is none.
#[must_use]
pub fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (&unit, digits) = value.split_last()?;
    let (_, nanos) = UNITS.into_iter().find(|(letter, _)| *letter == unit)?;
    if digits.is_empty() || digits.len() > DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits
        .iter()
        .fold(0, |number, digit| number * 10 + u128::from(digit - b'0'));
    let nanos = number * nanos;
    // Eight digits of hours fit.
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// Appends a time as the value of `grpc-timeout`: in the finest unit that has room for it, rounded up, at most eight digits of hours.
pub fn write_timeout(out: &mut String, timeout: Duration) {
    let nanos = timeout.as_nanos();
    let fits = |(_, unit): &(u8, u128)| nanos.div_ceil(*unit) <= MOST;
    let (letter, unit) = UNITS.into_iter().find(fits).unwrap_or(UNITS[UNITS.len() - 1]);
    let number = nanos.div_ceil(unit).min(MOST);
    // Writing to a string does not fail.
    let _ = write!(out, "{number}{}", char::from(letter));
}
