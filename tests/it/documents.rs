//! Facts of the README and of the pages against the program: the first application is the example, the limits are the defaults.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ringmain::Limits;
use ringmain::limits::WsLimits;

const README: &str = include_str!("../../README.md");
const RESULTS: &str = include_str!("../../bench/results-proxy.md");
const LOG_FIELDS: &str = include_str!("../../docs/reference/log-fields.md");
const LIMITS: &str = include_str!("../../docs/reference/limits.md");
const SYSTEMD: &str = include_str!("../../docs/how-to/systemd.md");
const ACCESS_LOG: &str = include_str!("../../docs/how-to/access-log.md");

#[test]
fn the_first_application_is_the_example() {
    let code = README.split("```rust\n").nth(1).unwrap();
    let code = code.split("```\n").next().unwrap();
    assert_eq!(code, include_str!("../../examples/hello.rs"));
}

/// Returns the first block of a page that begins with this line.
#[track_caller]
fn block<'a>(page: &'a str, opening: &str) -> &'a str {
    let rest = page.split_once(&format!("\n{opening}\n"));
    let (_, rest) = rest.unwrap_or_else(|| panic!("the page has no block `{opening}`"));
    &rest[..=rest.find("\n```").expect("the block ends")]
}

/// Pages for installations without a package show its files whole.
#[test]
fn pages_show_the_files_of_the_packages() {
    let unit = include_str!("../../packaging/systemd/ringmain.service");
    assert_eq!(block(SYSTEMD, "```ini file=ringmain.service"), unit);
    let rotation = ACCESS_LOG.split("\n## Rotate the file\n").nth(1).unwrap();
    assert_eq!(
        block(rotation, "```text"),
        include_str!("../../packaging/logrotate")
    );
}

/// Returns a YAML text without comments and empty lines.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty() && !line.trim_start().starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A guide that runs a file of `examples` shows parts of that file.
#[test]
fn guides_show_parts_of_the_examples_that_they_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compared = Vec::new();
    for entry in fs::read_dir(root.join("docs/how-to")).unwrap() {
        let path = entry.unwrap().path();
        let page = fs::read_to_string(&path).unwrap();
        let Some((_, rest)) = page.split_once("ringmain run examples/") else {
            continue;
        };
        let example = rest.split_whitespace().next().unwrap();
        let whole = fs::read_to_string(root.join("examples").join(example)).unwrap();
        let whole = format!("\n{}", without_comments(&whole));
        for part in page.split("\n```yaml\n").skip(1) {
            let part = without_comments(&part[..=part.find("\n```").expect("the block ends")]);
            assert!(
                whole.contains(&format!("\n{part}")),
                "{}: expected a part of examples/{example}, found\n{part}",
                path.display()
            );
            compared.push(example.to_owned());
        }
    }
    assert!(compared.len() >= 5, "{compared:?}");
}

/// The first comparison of the results is the one that the README shows: date, build, versions and every number.
#[test]
fn the_figures_of_the_readme_are_those_of_one_run() {
    let section = RESULTS.split("\n## Reverse proxies compared: ").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let (date, build) = section.split_once(", profile `dist` of ").unwrap();
    let date = date.lines().last().unwrap();
    let build = build.split_whitespace().next().unwrap();
    assert!(
        README.contains(&format!("on {date} with one build ({build})")),
        "{date} {build}"
    );

    let measured: BTreeMap<(&str, &str), &str> = section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let (connections, server, cpu) = (cells.next()?, cells.next()?, cells.next()?);
            Some(((server, connections), cpu.strip_prefix("**")?.strip_suffix("**")?))
        })
        .collect();
    let table = README
        .split("\n| proxy | 64 connections | 256 connections |\n")
        .nth(1)
        .unwrap();
    let rows = table.split("\n\n").next().unwrap().lines().skip(1);
    let shown: Vec<[&str; 3]> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
            cells.try_into().unwrap()
        })
        .collect();
    assert_eq!(shown.len(), 4);
    for [name, few, many] in shown {
        let server = match name.split_once(' ') {
            None => "ours-uring",
            Some(("a", _)) => "relay-uring",
            Some((peer, version)) => {
                assert!(
                    section
                        .lines()
                        .next()
                        .unwrap()
                        .contains(&format!("{peer} {version}")),
                    "{name}"
                );
                &peer.to_lowercase()
            }
        };
        assert_eq!(measured[&(server, "64")], few, "{name}");
        assert_eq!(measured[&(server, "256")], many, "{name}");
    }
}

/// The fields that templates accept are in the table of the page.
#[test]
fn the_page_of_log_fields_lists_those_of_every_line() {
    let table = LOG_FIELDS.split("Fields of every line:").nth(1).unwrap();
    let table = table.split("Fields of the gateway:").next().unwrap();
    let listed: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert_eq!(listed, ringmain::access_log::FIELDS);
}

#[test]
fn the_page_of_limits_lists_all_with_their_defaults() {
    let table = LIMITS.split("## Limits\n").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let name = cells.next().unwrap().trim_end_matches('`');
        (name.to_owned(), cells.next().unwrap().to_owned())
    });
    let said: BTreeMap<String, String> = rows.collect();
    assert_eq!(said, defaults());
}

/// Taken apart without `..`: a limit that is added does not compile here until the page has it.
fn defaults() -> BTreeMap<String, String> {
    let Limits {
        http1,
        handshake_timeout,
        header_timeout,
        idle_timeout,
        body_bytes,
        streamed_body_bytes,
        collected_bytes,
        rate_bytes,
        rate_grace,
        send_pause,
        discard_bytes,
        linger,
        linger_bytes,
        requests_per_connection,
        running_requests,
        streams,
        connections_per_address,
        max_queue_delay,
        json_depth,
        websocket,
    } = Limits::default();
    let count = |limit: Option<u32>| limit.map_or("none".into(), |limit| limit.to_string());
    let rows = [
        ("http1.head_bytes", bytes(http1.head_bytes.into())),
        ("http1.start_line_bytes", bytes(http1.start_line_bytes.into())),
        ("http1.fields", http1.fields.to_string()),
        ("http1.chunk_line_bytes", bytes(http1.chunk_line_bytes.into())),
        (
            "http1.chunk_extension_bytes",
            bytes(http1.chunk_extension_bytes.into()),
        ),
        ("http1.trailer_bytes", bytes(http1.trailer_bytes.into())),
        ("http1.trailer_fields", http1.trailer_fields.to_string()),
        ("http1.connect", if http1.connect { "yes" } else { "no" }.into()),
        ("handshake_timeout", seconds(handshake_timeout)),
        ("header_timeout", seconds(header_timeout)),
        ("idle_timeout", seconds(idle_timeout)),
        ("body_bytes", bytes(body_bytes)),
        (
            "streamed_body_bytes",
            streamed_body_bytes.map_or("none".into(), bytes),
        ),
        ("collected_bytes", bytes(collected_bytes as u64)),
        ("rate_bytes", format!("{}/s", bytes(rate_bytes.into()))),
        ("rate_grace", seconds(rate_grace)),
        ("send_pause", seconds(send_pause)),
        ("discard_bytes", bytes(discard_bytes)),
        ("linger", seconds(linger)),
        ("linger_bytes", bytes(linger_bytes)),
        ("requests_per_connection", count(requests_per_connection)),
        ("running_requests", running_requests.to_string()),
        ("streams", streams.to_string()),
        ("connections_per_address", count(connections_per_address)),
        ("max_queue_delay", max_queue_delay.map_or("none".into(), seconds)),
        ("json_depth", json_depth.to_string()),
    ];
    let rows = rows.map(|(name, value)| (name.to_owned(), value));
    rows.into_iter().chain(websocket_defaults(websocket)).collect()
}

fn websocket_defaults(limits: WsLimits) -> impl Iterator<Item = (String, String)> {
    let WsLimits {
        message_bytes,
        frame_bytes,
        control_frames,
        unsent_bytes,
        assembly_bytes,
        contexts,
        ping_interval,
        pong_timeout,
        close_timeout,
        message_timeout,
    } = limits;
    let rows = [
        ("message_bytes", bytes(message_bytes)),
        ("frame_bytes", bytes(frame_bytes)),
        ("control_frames", format!("{control_frames}/s")),
        ("unsent_bytes", bytes(unsent_bytes as u64)),
        ("assembly_bytes", bytes(assembly_bytes as u64)),
        ("contexts", contexts.to_string()),
        ("ping_interval", ping_interval.map_or("none".into(), seconds)),
        ("pong_timeout", seconds(pong_timeout)),
        ("close_timeout", seconds(close_timeout)),
        ("message_timeout", seconds(message_timeout)),
    ];
    rows.into_iter()
        .map(|(name, value)| (format!("websocket.{name}"), value))
}

fn bytes(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1024 * 1024) => format!("{} MiB", bytes / (1024 * 1024)),
        _ if bytes.is_multiple_of(1024) => format!("{} KiB", bytes / 1024),
        _ => format!("{bytes} B"),
    }
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_secs_f64())
}
