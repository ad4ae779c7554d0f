//! Tests of `Range` fields.

use super::Range;

#[test]
fn ranges() {
    let part = |from, to| Range::Part { from, to };
    for (value, expected) in [
        ("bytes=0-0", part(0, 1)),
        ("bytes=0-99", part(0, 10)),
        ("Bytes=2-", part(2, 10)),
        ("bytes=-3", part(7, 10)),
        ("bytes=-30", part(0, 10)),
        ("bytes=9-9", part(9, 10)),
        ("bytes=10-", Range::Outside),
        ("bytes=-0", Range::Outside),
        ("bytes=5-4", Range::All),
        ("bytes=0-1,3-4", Range::All),
        ("bytes=-", Range::All),
        ("bytes=a-b", Range::All),
        ("bytes=+1-2", Range::All),
        ("bytes=99999999999999999999-", Range::All),
        ("lines=1-2", Range::All),
        ("", Range::All),
    ] {
        assert_eq!(Range::of(value.as_bytes(), 10), expected, "{value}");
    }
    assert_eq!(Range::of(b"bytes=0-", 0), Range::Outside);
}
