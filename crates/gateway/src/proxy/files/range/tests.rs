//! Tests of `Range` fields.

use super::FileRange;

#[test]
fn ranges() {
    let part = |from, to| FileRange::Part { from, to };
    for (value, expected) in [
        ("bytes=0-0", part(0, 1)),
        ("bytes=0-99", part(0, 10)),
        ("Bytes=2-", part(2, 10)),
        ("bytes=-3", part(7, 10)),
        ("bytes=-30", part(0, 10)),
        ("bytes=9-9", part(9, 10)),
        ("bytes=10-", FileRange::Unsatisfiable),
        ("bytes=-0", FileRange::Unsatisfiable),
        ("bytes=5-4", FileRange::All),
        ("bytes=0-1,3-4", FileRange::All),
        ("bytes=-", FileRange::All),
        ("bytes=a-b", FileRange::All),
        ("bytes=+1-2", FileRange::All),
        ("bytes=99999999999999999999-", FileRange::All),
        ("lines=1-2", FileRange::All),
        ("", FileRange::All),
    ] {
        assert_eq!(FileRange::from_field(value.as_bytes(), 10), expected, "{value}");
    }
    assert_eq!(FileRange::from_field(b"bytes=0-", 0), FileRange::Unsatisfiable);
}
