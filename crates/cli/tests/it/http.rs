//! `ringmain run` as a web server: its paths, its live metrics, its limits, its shutdown.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::Command;

use crate::common::{self, Directory, Server, Stream, connect, engines, program};
use rustix::process::Signal;
use serde_json::Value;

/// `ringmain` and these arguments: without a command it serves HTTP.
fn http(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["--listen", "127.0.0.1:0"]).args(args);
    command
}

fn start(args: &[&str]) -> (Server, String) {
    let (server, mut addrs) = Server::start(&mut http(args), 1);
    (server, addrs.remove(0))
}

/// An answer, taken apart.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

/// Reads until the connection is closed.
fn rest(stream: &mut dyn Stream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// One request on a connection of its own.
fn ask(addr: &str, request: &str, fields: &str, body: &str) -> Answer {
    let mut stream = connect(addr);
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    rest(&mut *stream)
}

#[test]
fn json_and_plaintext_keep_the_rules_of_techempower() {
    for engine in engines() {
        let (server, addr) = start(&["--engine", engine]);
        for (path, kind, body) in [
            ("/json", "application/json", r#"{"message":"Hello, World!"}"#),
            ("/plaintext", "text/plain; charset=utf-8", "Hello, World!"),
        ] {
            let answer = ask(&addr, &format!("GET {path}"), "", "");
            assert_eq!((answer.status, &answer.body[..]), (200, body));
            assert_eq!(answer.field("content-type"), Some(kind));
            assert_eq!(answer.field("content-length"), Some(&body.len().to_string()[..]));
            assert_eq!(answer.field("server"), Some("ringmain"));
            assert!(
                answer.field("date").is_some_and(|date| date.ends_with(" GMT")),
                "{answer:?}"
            );
        }
        server.terminate();
    }
}

#[test]
fn echo_returns_body_and_type_for_every_method() {
    let (server, addr) = start(&["--body-limit", "64k"]);
    for method in ["POST", "PUT", "PATCH", "DELETE", "BREW"] {
        let body = method.repeat(10_000);
        let answer = ask(
            &addr,
            &format!("{method} /echo"),
            "Content-Type: x/y; z=1\r\n",
            &body,
        );
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert!(answer.body == body, "another body came back");
        assert_eq!(answer.field("content-type"), Some("x/y; z=1"));
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    }
    let answer = ask(&addr, "GET /echo", "", "");
    assert_eq!((answer.status, &answer.body[..]), (200, ""));
    assert_eq!(answer.field("content-type"), Some("application/octet-stream"));
    server.terminate();
}

#[test]
fn a_websocket_returns_its_messages() {
    for engine in engines() {
        let (server, addr) = start(&["--engine", engine]);
        let mut stream = connect(&addr);
        let request = "GET /ws HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        // A text, then a Close, both masked with zeroes.
        stream
            .write_all(b"\x81\x85\0\0\0\0hello\x88\x82\0\0\0\0\x03\xe8")
            .unwrap();
        let mut came = Vec::new();
        stream.read_to_end(&mut came).unwrap();
        let head = came.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert!(came.starts_with(b"HTTP/1.1 101 "), "{}", came.escape_ascii());
        assert_eq!(&came[head..], b"\x81\x05hello\x88\x02\x03\xe8");
        server.terminate();
    }
    let (server, addr) = start(&[]);
    let answer = ask(&addr, "GET /ws", "", "");
    assert_eq!((answer.status, answer.field("upgrade")), (426, Some("websocket")));
    server.terminate();
}

#[test]
fn health_is_answered_and_the_unknown_is_not_found() {
    let (server, addr) = start(&[]);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&addr, &format!("GET {path}"), "", "").status, 200);
    }
    let answer = ask(&addr, "GET /nothing", "", "");
    assert_eq!(answer.status, 404);
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    server.terminate();
}

#[test]
fn browsers_get_the_page_and_others_text() {
    let (server, addr) = start(&[]);
    let page = ask(
        &addr,
        "GET /",
        "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n",
        "",
    );
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert!(
        page.field("content-security-policy")
            .is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert!(page.body.starts_with("<!doctype html>") && page.body.ends_with("</html>\n"));
    let text = ask(&addr, "GET /", "Accept: */*\r\n", "");
    assert_eq!(text.field("content-type"), Some("text/plain; charset=utf-8"));
    assert!(
        text.body
            .starts_with(&format!("ringmain {}, ", env!("CARGO_PKG_VERSION"))),
        "{}",
        text.body
    );
    for answer in [&page, &text] {
        assert_eq!((answer.status, answer.field("vary")), (200, Some("Accept")));
    }
    server.terminate();
}

/// The documents of a stream of events.
struct Live(BufReader<Box<dyn Stream>>);

impl Live {
    fn open(addr: &str) -> Live {
        let mut stream = connect(addr);
        stream
            .write_all(b"GET /live HTTP/1.1\r\nHost: test\r\n\r\n")
            .unwrap();
        let mut live = Live(BufReader::new(stream));
        let head = live.until(|line| line.is_empty().then(String::new), "the end of the head");
        assert!(
            head.iter()
                .any(|line| line.eq_ignore_ascii_case("content-type: text/event-stream")),
            "{head:?}"
        );
        live
    }

    /// Reads lines up to one that matches; returns its value.
    fn until(&mut self, found: impl Fn(&str) -> Option<String>, what: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let count = self.0.read_line(&mut line).unwrap();
            assert!(count > 0, "{what} is missing: {lines:?}");
            let line = line.trim_end();
            if let Some(value) = found(line) {
                lines.push(value);
                return lines;
            }
            lines.push(line.to_owned());
        }
    }

    fn document(&mut self) -> Value {
        let lines = self.until(|line| line.strip_prefix("data: ").map(str::to_owned), "an event");
        serde_json::from_str(&lines[lines.len() - 1]).unwrap()
    }
}

#[test]
fn live_metrics_follow_requests() {
    for engine in engines() {
        let (server, addr) = start(&["--engine", engine, "--workers", "2"]);
        let mut live = Live::open(&addr);
        let first = live.document();
        assert_eq!((&first["engine"], &first["workers"]), (&engine.into(), &2.into()));
        assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
        assert!(
            first["memory_bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 100_000),
            "{first}"
        );
        for _ in 0..50 {
            assert_eq!(ask(&addr, "GET /json", "", "").status, 200);
        }
        // Metrics are updated each second: the requests are counted in one of the next events, exactly once.
        let counted = std::iter::repeat_with(|| live.document())
            .find(|now| now["requests"] == 50)
            .unwrap();
        assert_eq!(counted["accepted"], 51, "{counted}");
        assert_eq!(counted["connections"], 1, "{counted}");
        let rates = counted["rates"].as_array().unwrap();
        assert!(rates.iter().any(|rate| *rate != 0), "{counted}");
        assert!(
            counted["latency_us"]["p50"].as_f64().is_some_and(|us| us > 0.0),
            "{counted}"
        );
        assert!(counted["cpu_percent"].as_f64().is_some(), "{counted}");
        server.terminate();
    }
}

#[test]
fn head_of_the_stream_is_over_at_once() {
    let (server, addr) = start(&[]);
    let mut stream = connect(&addr);
    let head = "HEAD /live HTTP/1.1\r\nHost: test\r\n\r\n";
    let next = "GET /plaintext HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("{head}{next}").as_bytes()).unwrap();
    let answers = rest(&mut *stream);
    assert_eq!(answers.field("content-type"), Some("text/event-stream"));
    assert!(answers.body.ends_with("\r\n\r\nHello, World!"), "{answers:?}");
    server.terminate();
}

#[test]
fn a_viewer_does_not_hold_up_the_end() {
    let (server, addr) = start(&["--grace", "1h"]);
    let mut live = Live::open(&addr);
    live.document();
    server.terminate();
    let mut left = String::new();
    live.0.read_to_string(&mut left).unwrap();
    assert!(left.ends_with("\r\n0\r\n\r\n"), "the stream was cut: {left}");
}

#[test]
fn deadlines_of_the_command_line_hold() {
    let (server, addr) = start(&["--header-timeout", "100ms", "--idle-timeout", "100ms"]);
    let mut slow = connect(&addr);
    slow.write_all(b"GET / HTT").unwrap();
    assert_eq!(rest(&mut *slow).status, 408);
    let mut idle = connect(&addr);
    idle.write_all(b"GET /json HTTP/1.1\r\nHost: test\r\n\r\n")
        .unwrap();
    assert_eq!(rest(&mut *idle).status, 200);
    server.terminate();
}

#[test]
fn bodies_above_the_limit_are_refused() {
    let (server, addr) = start(&["--body-limit", "10"]);
    assert_eq!(ask(&addr, "POST /echo", "", "0123456789").body, "0123456789");
    assert_eq!(ask(&addr, "POST /echo", "", "0123456789a").status, 413);
    server.terminate();
}

#[test]
fn requests_are_logged_to_a_file_or_to_standard_output() {
    let directory = Directory::new();
    let path = directory.join("access.log").display().to_string();
    for (format, expect) in [
        (
            None,
            r#"127.0.0.1 - - [DATE] "GET /json HTTP/1.1" 200 27 "-" "test/1""#,
        ),
        (
            Some("common"),
            r#"127.0.0.1 - - [DATE] "GET /json HTTP/1.1" 200 27"#,
        ),
    ] {
        let mut args = vec!["--access-log", &path];
        args.extend(format.iter().flat_map(|format| ["--access-log-format", format]));
        let (server, addr) = start(&args);
        ask(&addr, "GET /json", "User-Agent: test/1\r\n", "");
        server.terminate();
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once('[').unwrap();
        let (_, after) = rest.split_once(']').unwrap();
        assert_eq!(format!("{before}[DATE]{after}"), format!("{expect}\n"));
        fs::remove_file(&path).unwrap();
    }
    let mut command = http(&["--access-log", "-", "--access-log-format", "json"]);
    let stdout = File::create(directory.join("stdout")).unwrap();
    let (server, addrs) = Server::start_with(&mut command, stdout, 1);
    let answer = ask(&addrs[0], "GET /nothing", "X-Request-Id: from-the-test-1\r\n", "");
    assert_eq!(answer.field("x-request-id"), Some("from-the-test-1"));
    server.terminate();
    let line: Value = serde_json::from_reader(File::open(directory.join("stdout")).unwrap()).unwrap();
    assert_eq!(
        (&line["status"], &line["target"]),
        (&404.into(), &"/nothing".into()),
        "{line}"
    );
    assert_eq!(line["request_id"], "from-the-test-1", "{line}");
}

#[test]
fn an_access_log_that_cannot_be_opened_ends_the_start() {
    let directory = Directory::new();
    let path = directory.join("nowhere").join("log").display().to_string();
    let error = common::fails(&mut http(&["--access-log", &path]), 1);
    for text in ["cannot open the access log", &path, "name a file"] {
        assert!(error.contains(text), "expected `{text}` in: {error}");
    }
}

#[test]
fn counters_name_requests() {
    let (mut server, addr) = start(&["--stats", "100ms"]);
    ask(&addr, "GET /json", "", "");
    server.wait_for("accepted=1 closed=1 requests=1 ");
    server.terminate();
}

#[test]
fn the_page_is_named_where_a_browser_can_reach_it() {
    let mut server = Server::spawn(Command::new(program()).args(["run", "--listen", ":0"]));
    let addr = server.listening();
    let port = addr.rsplit(':').next().unwrap();
    server.wait_for(&format!("http://[::1]:{port}/"));
    server.signal(Signal::TERM);
    let (status, said) = server.finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
}

#[test]
fn patience_is_deprecated_with_one_warning() {
    let warning = "`--patience` is deprecated, use `--max-queue-delay`";
    for (option, expected) in [("--patience", 1), ("--max-queue-delay", 0)] {
        let (server, addr) = start(&[option, "1h"]);
        let mut stream = connect(&addr);
        let request = "GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(rest(&mut *stream).status, 200);
        let lines = server.terminate();
        let found = lines.iter().filter(|line| line.contains(warning)).count();
        assert_eq!(found, expected, "{option}: {lines:#?}");
    }
}
