//! Amounts as people read them: as many digits as mean something, a unit that fits, thousands set apart.
//!
//! Owns rounding and units. Knows nothing of what is measured or where it is shown.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// What stands where there is no figure.
pub const NONE: &str = "–";

/// A count in full: `1,234,567`.
#[must_use]
pub fn count(count: u64) -> String {
    grouped(&count.to_string())
}

/// A number with four meaningful digits: `412,300`, `98.76`, `0.012`. Not a number or infinite is [`NONE`].
#[must_use]
pub fn number(number: f64) -> String {
    if !number.is_finite() {
        return NONE.into();
    }
    digits(number, 4)
}

/// A time with three meaningful digits, as histograms keep them: `812 ns`, `45.3 µs`, `1.23 ms`, `12.3 s`.
#[must_use]
pub fn time(time: Duration) -> String {
    seconds(time.as_secs_f64())
}

/// As [`time`], of seconds. Not a number or infinite is [`NONE`].
#[must_use]
pub fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return NONE.into();
    }
    if seconds == 0.0 {
        return "0 µs".into();
    }
    scaled(
        seconds,
        3,
        &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
    )
}

/// A time that somebody chose, exactly: `500 ms`, `10 s`, `1 min 30 s`, `2 h`.
#[must_use]
pub fn span(span: Duration) -> String {
    if span < Duration::from_mins(1) || span.subsec_nanos() != 0 {
        return exact(span);
    }
    let (hours, minutes, seconds) = (
        span.as_secs() / 3600,
        span.as_secs() / 60 % 60,
        span.as_secs() % 60,
    );
    let parts = [(hours, "h"), (minutes, "min"), (seconds, "s")];
    let parts = parts.iter().filter(|(amount, _)| *amount > 0);
    let parts: Vec<_> = parts.map(|(amount, unit)| format!("{amount} {unit}")).collect();
    parts.join(" ")
}

/// Bytes that went over a wire, in powers of 1000: `52.1 MB`.
#[must_use]
pub fn bytes(bytes: f64) -> String {
    if !bytes.is_finite() {
        return NONE.into();
    }
    if bytes < 999.5 {
        return format!("{bytes:.0} B");
    }
    scaled(bytes, 3, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")])
}

/// Memory, in powers of 1024: `12.3 MiB`.
#[must_use]
pub fn memory(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let units = [(KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB")];
    scaled(bytes as f64, 3, &units)
}

/// A part of a whole: `99.9 %`; what is not all is never shown as `100 %`, and what is not nothing never as `0 %`.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return NONE.into();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        _ if part == 0 => "0 %".into(),
        _ if part == whole => "100 %".into(),
        small if small < 0.001 => "< 0.001 %".into(),
        large if large > 99.999 => "> 99.999 %".into(),
        large if large > 99.9 => format!("{large:.3} %"),
        other => format!("{} %", digits(other, 3)),
    }
}

/// How one figure stands to another: `0.966`, `12.3`.
#[must_use]
pub fn ratio(ratio: f64) -> String {
    if !ratio.is_finite() {
        return NONE.into();
    }
    if ratio < 9.9995 {
        return format!("{ratio:.3}");
    }
    digits(ratio, 4)
}

/// In the largest of `units` (the largest first) that leaves at least one before the point.
fn scaled(amount: f64, meaningful: usize, units: &[(f64, &str)]) -> String {
    let last = units.last().expect("callers give at least one unit");
    // The unit follows from the rounded amount: 999.96 µs are 1.00 ms.
    let fits = units
        .iter()
        .find(|(size, _)| rounded(amount / size, meaningful) >= 1.0);
    let (size, unit) = fits.unwrap_or(last);
    format!("{} {unit}", digits(amount / size, meaningful))
}

/// Rounded to so many meaningful digits, and no more zeros after the point than they need.
fn digits(number: f64, meaningful: usize) -> String {
    if number == 0.0 {
        return "0".into();
    }
    let rounded = rounded(number, meaningful);
    let before = rounded.abs().log10().floor() as i32 + 1;
    let after = (meaningful as i32 - before).clamp(0, 12) as usize;
    let written = format!("{rounded:.after$}");
    let (whole, fraction) = written.split_once('.').unwrap_or((&written, ""));
    if fraction.is_empty() {
        return grouped(whole);
    }
    format!("{}.{fraction}", grouped(whole))
}

/// To so many meaningful digits.
fn rounded(number: f64, meaningful: usize) -> f64 {
    let written = format!("{number:.*e}", meaningful - 1);
    written
        .parse()
        .expect("a number that was just written can be read")
}

/// Exactly, in the largest unit that leaves a whole number.
fn exact(span: Duration) -> String {
    let nanoseconds = span.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
    let fits = units.iter().find(|(size, _)| nanoseconds.is_multiple_of(*size));
    let (size, unit) = fits.expect("everything is a multiple of one");
    format!("{} {unit}", grouped(&(nanoseconds / size).to_string()))
}

/// Digits with a comma between thousands.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits
        .strip_prefix('-')
        .map_or(("", digits), |digits| ("-", digits));
    let mut grouped = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
