//! Every form of a time, and every day of 8,030 years against another implementation.

use std::time::UNIX_EPOCH;

use super::*;

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[test]
fn the_three_forms() {
    // 1994-11-06T08:49:37.123Z, the example of RFC 9110.
    let time = Duration::from_millis(784_111_777_123);
    assert_eq!(text(&http_date(time)), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(text(&log_date(time)), "06/Nov/1994:08:49:37 +0000");
    assert_eq!(text(&timestamp(time)), "1994-11-06T08:49:37.123Z");
}

#[test]
fn the_ends_of_time_and_of_leap_years() {
    let table = [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
        (978_307_199, "Sun, 31 Dec 2000 23:59:59 GMT"),
        (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        (LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (LAST_SECOND + 1, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ];
    for (seconds, expected) in table {
        assert_eq!(
            text(&http_date(Duration::from_secs(seconds))),
            expected,
            "{seconds}"
        );
    }
}

#[test]
fn every_day_matches_httpdate() {
    // A step of a day and a second passes through all days, hours, minutes and seconds.
    for seconds in (0..LAST_SECOND).step_by(86_401) {
        let time = Duration::from_secs(seconds);
        let theirs = httpdate::fmt_http_date(UNIX_EPOCH + time);
        assert_eq!(text(&http_date(time)), theirs, "{seconds}");
    }
}
