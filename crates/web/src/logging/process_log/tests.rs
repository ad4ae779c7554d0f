//! Every line is one JSON object, whatever its texts are.

use serde_json::{Value as Json, json};

use super::*;

/// Parses a line, which must be one JSON object with a line break only at its end.
fn parse(line: &str) -> Json {
    let text = line.strip_suffix('\n').expect("a line ends with a line break");
    assert!(!text.chars().any(char::is_control), "{text:?}");
    let value: Json = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(value.is_object(), "{text}");
    value
}

fn line_of(message: &str) -> Json {
    let args = format_args!("{message}");
    let record = Record::builder()
        .level(Level::Warn)
        .target("ringmain_test")
        .args(args)
        .build();
    parse(&json_line(&record, Duration::from_millis(1_767_225_599_123)))
}

#[test]
fn a_line_has_time_level_logger_and_message() {
    let expected = json!({
        "time": "2025-12-31T23:59:59.123Z", "level": "warn", "logger": "ringmain_test", "message": "ready",
    });
    assert_eq!(line_of("ready"), expected);
}

#[test]
fn texts_are_escaped_and_keep_their_characters() {
    for text in [
        "a \"quoted\" word",
        "back\\slash, {braces}, 'quotes'",
        "two\nlines\r\nand a tab\t",
        "\0\u{1}\u{1b}[2J\u{7f}\u{85}\u{9b}31m",
        "\u{2028}\u{2029}\u{feff}",
        "grüße 数据 🚀 \u{fffd}",
        "\",\"level\":\"error",
        "",
    ] {
        assert_eq!(line_of(text)["message"], text, "{text:?}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_replaced() {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(b"/etc/\xff\"\n.yaml"));
    assert_eq!(
        line_of(&path.display().to_string())["message"],
        "/etc/\u{fffd}\"\n.yaml"
    );
}

#[test]
fn every_character_of_the_first_planes_is_escaped_correctly() {
    for first in (0..0x3000_u32).step_by(64) {
        let text: String = (first..first + 64).filter_map(char::from_u32).collect();
        assert_eq!(line_of(&text)["message"], text, "U+{first:04X}");
    }
}

#[test]
fn a_long_message_is_cut_between_characters() {
    // Sizes after escaping: 1, 2, 6 and 3 bytes, none of which but 1 and 2 divides the limit.
    for character in ["x", "\"", "\n", "数"] {
        let line = line_of(&character.repeat(PROCESS_LOG_TEXT_BYTES + 1));
        let message = line["message"].as_str().unwrap();
        let kept = message.strip_suffix('…').expect("a mark of the cut");
        assert_eq!(kept, character.repeat(kept.chars().count()));
        assert!(kept.len() <= PROCESS_LOG_TEXT_BYTES, "{} bytes", kept.len());
    }
    let whole = "x".repeat(PROCESS_LOG_TEXT_BYTES);
    assert_eq!(line_of(&whole)["message"], whole);
}

struct Failing;

impl Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as far as \"this")?;
        Err(fmt::Error)
    }
}

#[test]
fn a_display_that_fails_does_not_break_the_line() {
    let args = format_args!("{Failing}, not that");
    let record = Record::builder().args(args).build();
    assert_eq!(
        parse(&json_line(&record, Duration::ZERO))["message"],
        "as far as \"this"
    );
}

fn with_fields(fields: &[(&str, Value<'_>)]) -> Json {
    let record = Record::builder()
        .level(Level::Info)
        .target("t")
        .args(format_args!("m"))
        .key_values(&fields)
        .build();
    parse(&json_line(&record, Duration::ZERO))
}

#[test]
fn fields_have_their_types() {
    let line = with_fields(&[
        ("number", Value::from(7_u64)),
        ("negative", Value::from(-7_i64)),
        ("share", Value::from(0.25_f64)),
        ("infinite", Value::from(f64::INFINITY)),
        ("invalid", Value::from(f64::NAN)),
        ("is_first", Value::from(true)),
        ("word", Value::from("a \"b\"\n")),
        ("shown", Value::from_display(&Failing)),
        ("absent", Value::null()),
        ("na\"me", Value::from("x")),
    ]);
    let expected = json!({
        "time": "1970-01-01T00:00:00.000Z", "level": "info", "logger": "t", "message": "m",
        "number": 7, "negative": -7, "share": 0.25, "infinite": null, "invalid": null, "is_first": true,
        "word": "a \"b\"\n", "shown": "as far as \"this", "absent": null, "na\"me": "x",
    });
    assert_eq!(line, expected);
}

#[test]
fn fields_do_not_replace_members_and_their_number_is_limited() {
    let line = with_fields(&[("level", Value::from("error")), ("time", Value::from(1_u64))]);
    assert_eq!(
        (&line["level"], line.as_object().unwrap().len()),
        (&json!("info"), 4)
    );
    let names: Vec<String> = (0..PROCESS_LOG_FIELDS + 3).map(|n| format!("field{n}")).collect();
    let fields: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), Value::from(1_u64)))
        .collect();
    assert_eq!(
        with_fields(&fields).as_object().unwrap().len(),
        4 + PROCESS_LOG_FIELDS
    );
}

// The format is a property of the process: one test, since tests of a process may run at the same time.
#[test]
fn a_selected_format_takes_precedence_over_a_configured_one() {
    assert_eq!(format(), ProcessLogFormat::Text);
    assert_eq!(error_line("no \"file\"\n"), "error: no \"file\"\n\n");
    configure(ProcessLogFormat::Json);
    assert_eq!(format(), ProcessLogFormat::Json);
    let line = parse(&error_line("no \"file\"\n"));
    assert_eq!(
        (&line["level"], &line["message"]),
        (&json!("error"), &json!("no \"file\"\n"))
    );
    configure(ProcessLogFormat::Text);
    assert_eq!(format(), ProcessLogFormat::Text);
    select(ProcessLogFormat::Json);
    configure(ProcessLogFormat::Text);
    assert_eq!(format(), ProcessLogFormat::Json);
    select(ProcessLogFormat::Text);
    configure(ProcessLogFormat::Json);
    assert_eq!(format(), ProcessLogFormat::Text);
}
