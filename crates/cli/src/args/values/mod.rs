//! The syntax of values on the command line: whole numbers, times with a unit, sizes, permission bits.
//!
//! Each parser checks its range and describes the expected value; clap adds the actual one and the option.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Units of times in microseconds, the largest first.
const TIMES: [(&str, u64); 5] = [
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1000),
    ("us", 1),
];

/// Units of sizes in bytes, the largest first; a `k` is 1024.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

/// Returns a parser of whole numbers in this range.
pub(super) fn number_in_range<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + std::fmt::Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            format!(
                "expected a whole number from {} to {}",
                range.start(),
                range.end()
            )
        })
    }
}

/// Returns a parser of times such as `10s` in this range.
pub(super) fn time_in_range(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Time, String> + Clone + Send + Sync + 'static {
    move |text| {
        let found = parse_scaled(text, |unit| {
            TIMES
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, factor)| *factor)
        });
        let found = found
            .map(Duration::from_micros)
            .filter(|time| range.contains(time));
        found.map(Time).ok_or_else(|| {
            let (least, most) = (Time(*range.start()), Time(*range.end()));
            let mut what =
                format!("expected a time from {least} to {most} with its unit, such as 500ms, 10s or 2m");
            if text.parse::<u64>().is_ok_and(|number| number > 0) {
                what += &format!("; write {text}s for seconds");
            }
            what
        })
    }
}

/// Returns a parser of sizes such as `64k` in this range of bytes.
pub(super) fn size_in_range(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<Size, String> + Clone + Send + Sync + 'static {
    move |text| {
        let found = parse_scaled(text, |unit| match unit.to_ascii_lowercase().as_str() {
            "" | "b" => Some(1),
            "k" | "kib" => Some(1 << 10),
            "m" | "mib" => Some(1 << 20),
            "g" | "gib" => Some(1 << 30),
            _ => None,
        });
        let found = found.filter(|bytes| range.contains(bytes)).map(Size);
        found.ok_or_else(|| {
            let (least, most) = (Size(*range.start()), Size(*range.end()));
            format!("expected bytes from {least} to {most}, such as 4096, 64k or 1MiB (a k is 1024)")
        })
    }
}

/// As [`size_in_range`], for sizes of 32 bits.
pub(super) fn size32_in_range(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    let parse = size_in_range(u64::from(*range.start())..=u64::from(*range.end()));
    move |text| parse(text).map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX))
}

/// Parses permission bits in octal.
pub(super) fn parse_unix_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "expected octal permission bits from 0 to 777, such as 660".into())
}

/// Parses a number of receive buffers.
pub(super) fn parse_receive_buffers(text: &str) -> Result<u16, String> {
    let count = text
        .parse()
        .ok()
        .filter(|n: &u16| n.is_power_of_two() && *n <= 32_768);
    count.ok_or_else(|| "expected a power of two from 1 to 32768".into())
}

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// No access log.
    Off,
    /// To standard output.
    StandardOutput,
    /// Appended to this file.
    File(PathBuf),
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Destination, String> {
        match text {
            "off" => Ok(Destination::Off),
            "-" => Ok(Destination::StandardOutput),
            "" => Err("expected a file's path, - for standard output, or off".into()),
            path => Ok(Destination::File(path.into())),
        }
    }
}

/// A duration; displayed in the largest unit without a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = self.0.as_micros();
        // Hours are the largest unit: time limits of servers are not given in days.
        let unit = TIMES
            .iter()
            .find(|(_, factor)| micros.is_multiple_of((*factor).into()));
        let (name, factor) = unit.filter(|_| micros > 0).unwrap_or(&("s", 1_000_000));
        write!(f, "{}{name}", micros / u128::from(*factor))
    }
}

/// A number of bytes; displayed in the largest unit without a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = SIZES.iter().find(|(_, factor)| self.0.is_multiple_of(*factor));
        let (name, factor) = unit.filter(|_| self.0 > 0).unwrap_or(&("", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

/// Parses a number with a unit; `None` if either is missing, unknown, or too large.
fn parse_scaled(text: &str, factor: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    number.parse::<u64>().ok()?.checked_mul(factor(unit)?)
}
