//! Rounding at the edges, where units and digits change.

use std::time::Duration;

use super::*;

#[test]
fn counts_set_thousands_apart() {
    for (given, written) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (1_234_567, "1,234,567"),
        (u64::MAX, "18,446,744,073,709,551,615"),
    ] {
        assert_eq!(count(given), written);
    }
}

#[test]
fn numbers_keep_four_digits() {
    for (given, written) in [
        (0.0, "0"),
        (0.012_345, "0.01235"),
        (9.999_6, "10.00"),
        (98.764, "98.76"),
        (999.96, "1,000"),
        (9_998.7, "9,999"),
        (412_345.6, "412,300"),
        (-1_234.0, "-1,234"),
        (f64::NAN, "–"),
        (f64::INFINITY, "–"),
    ] {
        assert_eq!(number(given), written, "{given}");
    }
}

#[test]
fn times_take_the_unit_that_fits() {
    for (nanoseconds, written) in [
        (0, "0 µs"),
        (1, "1.00 ns"),
        (812, "812 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (45_312, "45.3 µs"),
        (999_499, "999 µs"),
        (999_501, "1.00 ms"),
        (12_345_678, "12.3 ms"),
        (3_600_000_000_000, "3,600 s"),
    ] {
        assert_eq!(time(Duration::from_nanos(nanoseconds)), written);
    }
}

#[test]
fn spans_are_exact() {
    for (span_ns, written) in [
        (0, "0 s"),
        (1_500_000, "1,500 µs"),
        (500_000_000, "500 ms"),
        (59_000_000_000, "59 s"),
        (60_000_000_000, "1 min"),
        (90_000_000_000, "1 min 30 s"),
        (90_500_000_000, "90,500 ms"),
        (7_200_000_000_000, "2 h"),
    ] {
        assert_eq!(span(Duration::from_nanos(span_ns)), written);
    }
}

#[test]
fn bytes_and_memory_differ_in_their_thousand() {
    assert_eq!(bytes(0.0), "0 B");
    assert_eq!(bytes(999.4), "999 B");
    assert_eq!(bytes(999.6), "1.00 kB");
    assert_eq!(bytes(52_123_456.0), "52.1 MB");
    assert_eq!(memory(1023), "1023 B");
    assert_eq!(memory(1024), "1.00 KiB");
    assert_eq!(memory(12_900_000), "12.3 MiB");
    assert_eq!(memory(5 << 30), "5.00 GiB");
}

#[test]
fn parts_are_never_rounded_to_all_or_nothing() {
    for (part, whole, written) in [
        (0, 0, "–"),
        (0, 7, "0 %"),
        (7, 7, "100 %"),
        (1, 3, "33.3 %"),
        (1, 1_000_000_000, "< 0.001 %"),
        (999_999_999, 1_000_000_000, "> 99.999 %"),
        (99_995, 100_000, "99.995 %"),
        (1, 100, "1.00 %"),
    ] {
        assert_eq!(percent(part, whole), written, "{part} of {whole}");
    }
}

#[test]
fn ratios_keep_three_places_around_one() {
    assert_eq!(ratio(0.966_4), "0.966");
    assert_eq!(ratio(1.0), "1.000");
    assert_eq!(ratio(9.999_9), "10.00");
    assert_eq!(ratio(123.456), "123.5");
    assert_eq!(ratio(f64::NAN), "–");
}
