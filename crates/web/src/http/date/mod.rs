//! Formats of times in HTTP and in logs, from a duration since 1970-01-01 (UTC).
//!
//! Reads no clock.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// The last second with a year of four digits: 9999-12-31T23:59:59Z.
const LAST_SECOND: u64 = 253_402_300_799;
/// Days from 0000-03-01 to 1970-01-01: years that begin in March have the leap day last.
const EPOCH_DAY: u64 = 719_468;
/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;

const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";

/// Formats a time as `Sun, 06 Nov 1994 08:49:37 GMT` (IMF-fixdate, RFC 9110 §5.6.7). Times after the year 9999 are clamped to its
/// last second.
#[must_use]
pub fn http_date(since_epoch: Duration) -> [u8; 29] {
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let time = Calendar::of(since_epoch);
    text[..3].copy_from_slice(name(DAYS, time.weekday));
    time.day_month_year(&mut text[5..16]);
    time.clock(&mut text[17..25]);
    text
}

/// Formats a time as `06/Nov/1994:08:49:37 +0000`, the format of the Common Log Format.
pub(crate) fn log_date(since_epoch: Duration) -> [u8; 26] {
    let mut text = *b"01/Jan/1970:00:00:00 +0000";
    let time = Calendar::of(since_epoch);
    time.day_month_year(&mut text[..11]);
    (text[2], text[6]) = (b'/', b'/');
    time.clock(&mut text[12..20]);
    text
}

/// Formats a time as `1994-11-06T08:49:37.123Z` (RFC 3339).
pub(crate) fn timestamp(since_epoch: Duration) -> [u8; 24] {
    let mut text = *b"1970-01-01T00:00:00.000Z";
    let time = Calendar::of(since_epoch);
    digits(&mut text[..4], time.year);
    digits(&mut text[5..7], time.month + 1);
    digits(&mut text[8..10], time.day);
    time.clock(&mut text[11..19]);
    digits(&mut text[20..23], u64::from(since_epoch.subsec_millis()));
    text
}

struct Calendar {
    year: u64,
    /// From 0.
    month: u64,
    /// From 1.
    day: u64,
    /// From 0: Thursday, the first day of 1970.
    weekday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Calendar {
    fn of(since_epoch: Duration) -> Calendar {
        let seconds = since_epoch.as_secs().min(LAST_SECOND);
        let days = seconds / 86_400;
        let (era, day) = ((days + EPOCH_DAY) / ERA_DAYS, (days + EPOCH_DAY) % ERA_DAYS);
        // Leap days so far in the era: every 4th year, except every 100th, but including the 400th.
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // From March on, months have 31, 30, 31, 30, 31 days repeatedly: 153 days in five months.
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        Calendar {
            year: era * 400 + year + u64::from(month >= 10),
            month: (month + 2) % 12,
            day,
            weekday: days % 7,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }

    /// Writes `06 Nov 1994`.
    fn day_month_year(&self, text: &mut [u8]) {
        digits(&mut text[..2], self.day);
        text[3..6].copy_from_slice(name(MONTHS, self.month));
        digits(&mut text[7..11], self.year);
    }

    /// Writes `08:49:37`.
    fn clock(&self, text: &mut [u8]) {
        digits(&mut text[..2], self.hour);
        digits(&mut text[3..5], self.minute);
        digits(&mut text[6..8], self.second);
    }
}

fn name(names: &[u8], index: u64) -> &[u8] {
    let at = index as usize * 3;
    &names[at..at + 3]
}

/// Fills `place` with the last digits of `number`.
fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
