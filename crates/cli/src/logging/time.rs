//! Timestamps of log lines: UTC, RFC 3339, milliseconds.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Days from 0000-03-01 to 1970-01-01: in years that begin in March the leap day is the last day.
const EPOCH_DAY: u64 = 719_468;
/// Days of 400 years, the period of the calendar.
const ERA_DAYS: u64 = 146_097;

/// A time displayed as `2026-01-31T12:00:00.123Z`; one before 1970 is displayed as 1970.
pub(super) struct Rfc3339(pub(super) SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (year, month, day) = civil_date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let millis = since.subsec_millis();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

/// Returns year, month and day of the proleptic Gregorian calendar, `days` after 1970-01-01.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAY;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    // Leap days so far in the era: every 4th year, not every 100th, but the 400th.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, twice and a bit: 153 days in five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + carry, month, day)
}
