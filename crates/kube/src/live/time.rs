//! Instants as the API server writes them (RFC 3339). Knows no clock.

use std::time::Duration;

/// Writes an instant, given since 1970, with microseconds.
pub(super) fn micro_time(since_1970: Duration) -> String {
    let (date, time) = split(since_1970);
    format!("{date}T{time}.{:06}Z", since_1970.subsec_micros())
}

/// Writes an instant, given since 1970, with seconds.
pub(super) fn time(since_1970: Duration) -> String {
    let (date, time) = split(since_1970);
    format!("{date}T{time}Z")
}

fn split(since_1970: Duration) -> (String, String) {
    let seconds = since_1970.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hours, minutes) = (rest / 3600, rest % 3600 / 60);
    (date(days), format!("{hours:02}:{minutes:02}:{:02}", rest % 60))
}

/// The Gregorian date of a day since 1970, by eras of 400 years that begin in March, so that a leap day is the last of its year.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
