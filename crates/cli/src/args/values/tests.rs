//! Table tests of valid and invalid values.

use super::*;

fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn times_have_a_unit() {
    let parse = time_in_range(Duration::ZERO..=second(86_400));
    for (text, expect) in [
        ("10s", second(10)),
        ("500ms", Duration::from_millis(500)),
        ("2m", second(120)),
        ("24h", second(86_400)),
        ("40us", Duration::from_micros(40)),
        ("0s", Duration::ZERO),
    ] {
        assert_eq!(parse(text), Ok(Time(expect)), "{text}");
    }
    for text in [
        "",
        "s",
        "10",
        "-1s",
        "1.5s",
        "10 s",
        "10S",
        "25h",
        "1d",
        "99999999999999999999s",
        "9999999999999999999h",
    ] {
        let said = parse(text).unwrap_err();
        assert!(
            said.starts_with("expected a time from 0s to 24h with its unit, such as 500ms"),
            "{text}: {said}"
        );
    }
    assert!(parse("10").unwrap_err().ends_with("; write 10s for seconds"));
}

#[test]
fn size_units_are_powers_of_1024() {
    let parse = size_in_range(1..=1 << 30);
    for (text, expect) in [
        ("1", 1),
        ("4096", 4096),
        ("64k", 65_536),
        ("64KiB", 65_536),
        ("1MiB", 1_048_576),
        ("1m", 1_048_576),
        ("1g", 1 << 30),
        ("100b", 100),
    ] {
        assert_eq!(parse(text), Ok(Size(expect)), "{text}");
    }
    for text in [
        "",
        "k",
        "0",
        "-1",
        "1.5k",
        "1 k",
        "1MB",
        "2g",
        "1TiB",
        "99999999999999999999",
    ] {
        assert_eq!(
            parse(text).unwrap_err(),
            "expected bytes from 1 to 1GiB, such as 4096, 64k or 1MiB (a k is 1024)",
            "{text}"
        );
    }
}

#[test]
fn displayed_values_can_be_parsed() {
    for text in [
        "0s", "1us", "40us", "1500us", "500ms", "10s", "90s", "2m", "25m", "24h",
    ] {
        let parsed = time_in_range(Duration::ZERO..=second(86_400))(text).unwrap();
        assert_eq!(parsed.to_string(), text);
    }
    for (bytes, text) in [
        (0, "0"),
        (1, "1"),
        (1000, "1000"),
        (65_536, "64KiB"),
        (1 << 30, "1GiB"),
        (3 << 19, "1536KiB"),
    ] {
        assert_eq!(Size(bytes).to_string(), text);
        assert_eq!(size_in_range(0..=u64::MAX)(text), Ok(Size(bytes)));
    }
}

#[test]
fn whole_numbers_have_a_range() {
    let parse = number_in_range(1u16..=1024);
    assert_eq!((parse("1"), parse("1024")), (Ok(1), Ok(1024)));
    for text in ["", "0", "1025", "99999", "-1", "two", "1.0"] {
        assert_eq!(
            parse(text).unwrap_err(),
            "expected a whole number from 1 to 1024",
            "{text}"
        );
    }
}

#[test]
fn destinations_of_the_access_log() {
    for (text, expect) in [
        ("off", Destination::Off),
        ("-", Destination::StandardOutput),
        ("/var/log/x", Destination::File("/var/log/x".into())),
        ("./off", Destination::File("./off".into())),
    ] {
        assert_eq!(text.parse(), Ok(expect));
    }
    assert!("".parse::<Destination>().is_err());
}
