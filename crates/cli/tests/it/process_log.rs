//! The process log as JSON: each line is one object, with the format from the command line, the environment or the file.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::common::{Directory, Server, program};

const VARIABLE: &str = "RINGMAIN_LOG_FORMAT";

/// A gateway with an endpoint at a port without a listener: its health checks fail.
const GATEWAY: &str = "listen: 127.0.0.1:0\nto: app\nupstreams:\n  app:\n    endpoints: 127.0.0.1:1\n    health: {active: {path: /, every: 100ms}}\n";

fn run(file: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("run").arg(file).args(args).env_remove(VARIABLE);
    command
}

/// Parses a line of the log: an object with the members that every line has.
fn parse(line: &str) -> Json {
    let value: Json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    for name in ["time", "level", "logger", "message"] {
        assert!(value[name].is_string(), "expected the member {name}: {line}");
    }
    let time = value["time"].as_str().unwrap().as_bytes();
    assert!(
        time.len() == 24 && time[10] == b'T' && time[23] == b'Z',
        "expected RFC 3339 with milliseconds: {line}"
    );
    value
}

/// Returns the first line with this event.
fn event<'l>(lines: &'l [Json], name: &str) -> &'l Json {
    let found = lines.iter().find(|line| line["event"] == name);
    found.unwrap_or_else(|| panic!("expected the event {name}: {lines:#?}"))
}

fn in_folder(text: &str) -> (Directory, std::path::PathBuf) {
    let folder = Directory::new();
    let file = folder.join("ringmain.yaml");
    fs::write(&file, text).unwrap();
    (folder, file)
}

/// Replaces a file in one step.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

#[test]
fn every_line_from_start_to_shutdown_is_an_object_with_the_fields_of_its_event() {
    let (_folder, file) = in_folder(GATEWAY);
    let mut server = Server::spawn(&mut run(&file, &["--log-format", "json"]));
    server.wait_for_each(&["\"listening\"", "\"endpoint_unhealthy\""]);
    replace(&file, &GATEWAY.replace("endpoints", "endpoinds"));
    server.wait_for("\"configuration_rejected\"");
    replace(&file, &GATEWAY.replace("100ms", "200ms"));
    server.wait_for("\"configuration_reloaded\"");
    let said = server.terminate();
    let lines: Vec<Json> = said.iter().map(|line| parse(line)).collect();

    let name = file.to_str().unwrap();
    assert_eq!(lines[0]["event"], "started", "the first line: {}", said[0]);
    assert_eq!(lines[0]["version"], env!("CARGO_PKG_VERSION"));
    let listening = event(&lines, "listening");
    assert_eq!(listening["level"], "info");
    assert!(
        listening["address"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{listening}"
    );
    let unhealthy = event(&lines, "endpoint_unhealthy");
    assert_eq!(
        (
            &unhealthy["level"],
            &unhealthy["upstream"],
            &unhealthy["endpoint"]
        ),
        (&json!("warn"), &json!("app"), &json!("127.0.0.1:1"))
    );
    assert!(unhealthy["reason"].is_string(), "{unhealthy}");
    let is_typo = |line: &&Json| line["event"] == "configuration_error" && line["line"] == 5;
    let error = lines.iter().find(is_typo).expect("the error of the typo");
    assert_eq!(
        (&error["level"], &error["file"], &error["column"]),
        (&json!("error"), &json!(name), &json!(5))
    );
    assert_eq!(event(&lines, "configuration_rejected")["file"], name);
    let reloaded = event(&lines, "configuration_reloaded");
    assert!(reloaded["duration_us"].is_u64(), "{reloaded}");
    event(&lines, "stopped");
}

#[test]
fn the_option_precedes_the_environment_and_the_file() {
    let json = format!("log: {{format: json}}\n{GATEWAY}");
    // The contents of the file, the variable, the option; whether lines are JSON.
    for (text, variable, option, is_json) in [
        (GATEWAY, None, None, false),
        (GATEWAY, Some("json"), None, true),
        (&json, None, None, true),
        (&json, Some("text"), None, false),
        (&json, Some(""), None, true),
        (&json, Some("json"), Some("text"), false),
        (GATEWAY, Some("text"), Some("json"), true),
    ] {
        let (_folder, file) = in_folder(text);
        let mut command = run(&file, &[]);
        command.args(
            option
                .map(|format| ["--log-format", format])
                .into_iter()
                .flatten(),
        );
        command.envs(variable.map(|format| (VARIABLE, format)));
        let mut server = Server::spawn(&mut command);
        server.wait_for("listening on ");
        for line in server.terminate() {
            if is_json {
                parse(&line);
            } else {
                assert!(!line.starts_with('{'), "{line}");
            }
        }
    }
}

#[test]
fn a_reload_changes_the_format() {
    let json = format!("log: {{format: json}}\n{GATEWAY}");
    let (_folder, file) = in_folder(&json);
    let mut server = Server::spawn(&mut run(&file, &[]));
    server.wait_for("listening on ");
    replace(&file, GATEWAY);
    let line = server.wait_for("configuration reloaded");
    assert!(line.contains(" INFO "), "expected text: {line}");
    replace(&file, &json);
    parse(&server.wait_for("configuration reloaded"));
    // A rejected file changes nothing, the format included.
    replace(&file, "log: {format: text}\nlisten: 127.0.0.1:0\nlisten: 2\n");
    parse(&server.wait_for("keeping the previous configuration"));
    server.terminate();
}

/// Runs a command that fails; returns its lines.
fn failing(command: &mut Command, code: i32) -> Vec<String> {
    let (status, said) = Server::spawn(command).finish();
    assert_eq!(status.code(), Some(code), "{said:#?}");
    assert!(!said.is_empty());
    said
}

#[test]
fn errors_that_end_the_program_are_objects_too() {
    let missing = Path::new("/no/such/\"file\".yaml");
    let lines = failing(&mut run(missing, &["--log-format", "json"]), 2);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let error = parse(&lines[0]);
    assert_eq!(error["level"], "error");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("/no/such/\"file\".yaml"),
        "{error}"
    );

    // A command line that cannot be parsed, and one with a conflict.
    for args in [
        &["--log-format=json", "--no-such-option"][..],
        &["--log-format", "json", "--echo"],
    ] {
        let lines = failing(&mut run(missing, args), 2);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        parse(&lines[0]);
    }
    let lines = failing(run(missing, &["--no-such-option"]).env(VARIABLE, "json"), 2);
    parse(&lines[0]);

    // The errors of a file, in the format of its own key, which is valid.
    let (_folder, file) = in_folder("log: {format: json}\nlisten: 127.0.0.1:0\nlistenn: 1\n");
    let lines = failing(&mut run(&file, &[]), 2);
    let lines: Vec<Json> = lines.iter().map(|line| parse(line)).collect::<Vec<_>>();
    assert_eq!(event(&lines, "configuration_error")["line"], 3);
}

#[test]
fn an_unknown_format_is_an_error() {
    let (_folder, file) = in_folder(GATEWAY);
    let lines = failing(run(&file, &[]).env(VARIABLE, "logfmt"), 2);
    assert_eq!(
        lines,
        ["error: RINGMAIN_LOG_FORMAT: expected `text` or `json`, found \"logfmt\""]
    );
    let lines = failing(&mut run(&file, &["--log-format", "logfmt"]), 2);
    assert!(lines[0].contains("[possible values: text, json]"), "{lines:#?}");
}

#[test]
fn other_commands_ignore_the_variable() {
    let mut command = Command::new(program());
    let lines = failing(command.args(["check", "/no/such/file"]).env(VARIABLE, "json"), 2);
    assert!(lines[0].starts_with("error: "), "{lines:#?}");
}

#[test]
fn names_with_any_bytes_do_not_break_a_line() {
    let folder = Directory::new();
    let name = OsStr::from_bytes(b"a\xff\"b\n\x1b[2J\xe2\x28.yaml");
    let file = folder.join("file").with_file_name(name);
    fs::write(&file, "listen: \"127.0.0.1:0\\n\\u0007\"\n").unwrap();
    let lines = failing(&mut run(&file, &["--log-format", "json"]), 2);
    assert!(
        lines.len() >= 3,
        "expected the start, an error of the file, and the end: {lines:#?}"
    );
    for line in &lines {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        let line = parse(line);
        if line["event"] == "started" {
            continue;
        }
        let message = line["message"].as_str().unwrap();
        assert!(message.contains("a\u{fffd}\"b\n\u{1b}[2J"), "{message:?}");
    }
}
