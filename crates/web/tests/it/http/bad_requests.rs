//! Every row of `docs/bad-requests.md`, sent to a server: the page is the one definition, this reads it.

use std::time::Duration;

use ringmain_web::ws::Message;
use ringmain_web::{App, Limits, Result, Socket, Ws};
use ringmain_wire::h1::FaultKind;

use crate::support::{Answer, Server, Setting, get, serve};

in_every_way!(every_row_gets_its_documented_response);

const PAGE: &str = include_str!("../../../../../docs/bad-requests.md");

/// Not a server's, as the page says.
const ELSEWHERE: [FaultKind; 2] = [FaultKind::StatusLine, FaultKind::ConnectContent];

/// The client's next step after the bytes of the example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// With a request that is right.
    Next,
    End,
    Wait,
}

#[derive(Debug)]
struct Row {
    what: &'static str,
    bytes: Vec<u8>,
    then: Then,
    /// `None`: no answer.
    status: Option<u16>,
    closes: bool,
}

fn rows() -> Vec<Row> {
    let lines = PAGE
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'));
    lines.map(row).collect()
}

fn row(line: &'static str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [what, example, status, connection] = cells[..] else {
        panic!("four cells: {line}");
    };
    let example = example.trim_matches('`');
    let (example, then) = match (example.strip_suffix("{end}"), example.strip_suffix("{wait}")) {
        (Some(example), _) => (example, Then::End),
        (_, Some(example)) => (example, Then::Wait),
        _ => (example, Then::Next),
    };
    Row {
        what: what.trim_matches('`'),
        bytes: bytes(example),
        then,
        status: (status != "none").then(|| status.parse().expect("a status")),
        closes: match connection {
            "closes" => true,
            "stays open" => false,
            _ => panic!("`closes` or `stays open`: {line}"),
        },
    }
}

/// Returns the bytes that an example represents.
fn bytes(mut example: &str) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(first) = example.chars().next() {
        let repeated = first == '{' && example.contains('*');
        if let Some((inner, rest)) = example[1..].split_once('}').filter(|_| repeated) {
            let (piece, count) = inner.rsplit_once('*').expect("a count");
            out.extend(bytes(piece).repeat(count.parse().expect("a number")));
            example = rest;
        } else if let Some(rest) = example.strip_prefix("\\r") {
            out.push(b'\r');
            example = rest;
        } else if let Some(rest) = example.strip_prefix("\\n") {
            out.push(b'\n');
            example = rest;
        } else if let Some(rest) = example.strip_prefix("\\x") {
            out.push(u8::from_str_radix(&rest[..2], 16).expect("two digits"));
            example = &rest[2..];
        } else {
            out.push(u8::try_from(first).expect("ASCII"));
            example = &example[1..];
        }
    }
    out
}

/// No row opens one.
struct Unwanted;

impl Socket for Unwanted {
    fn message(&mut self, _: &Ws, _: Message<'_>) -> Result {
        unreachable!("no row opens a socket")
    }
}

fn app() -> App {
    let limits = Limits {
        header_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        rate_grace: Duration::ZERO,
        // A client that is held up ends its side all the same.
        linger: Duration::from_secs(60),
        running_requests: 3,
        ..Limits::default()
    };
    App::new()
        .limits(limits)
        .get("/", |_, reply| reply.text("ok"))
        .post("/", |_, reply| reply.text("ok"))
        .get("/query", |req, reply| {
            let pairs = req.query()?.iter().count();
            reply.text(pairs.to_string())
        })
        .post("/json", |req, reply| {
            reply.json(&req.json::<serde_json::Value>()?)
        })
        .ws("/ws", |_| Ok(Unwanted))
        .get("/panic", |_, _| panic!("as the row says"))
        .get_async("/wait", async |req, reply| {
            req.cx().draining().await;
            reply.text("ok")
        })
        .post_streamed("/streamed", async |req, reply| {
            while req.chunk().await?.is_some() {}
            reply.text("ok")
        })
        .group("/small", |small| {
            small
                .body_limit(4)
                .post("", |_, reply| reply.text("ok"))
                .post_streamed("/streamed", async |req, reply| {
                    while req.chunk().await?.is_some() {}
                    reply.text("ok")
                })
        })
}

fn every_row_gets_its_documented_response(config: Setting) {
    let server = serve(config, app());
    for row in rows() {
        let mut busy = Vec::new();
        if row.what.contains("running_requests") {
            busy.extend((0..3).map(|_| {
                let mut client = server.client();
                client.send(get("/wait"));
                client
            }));
            server.get("/").expect(200, "ok");
        }
        check(&server, &row);
    }
}

fn check(server: &Server, row: &Row) {
    let mut client = server.client();
    client.send(&row.bytes);
    match row.then {
        Then::Next => client.send(get("/")),
        Then::End => client.finish(),
        Then::Wait => {}
    }
    if let Some(status) = row.status {
        let answer = client.answer();
        assert_eq!(answer.status, status, "{row:?}: {answer:?}");
        if status >= 400 {
            assert_eq!(answer.closes(), row.closes, "{row:?}: {answer:?}");
            check_words(row, &answer);
        }
    }
    if !row.closes {
        client.answer().expect(200, "ok");
        client.finish();
    } else if row.then == Then::Next {
        client.finish();
    }
    client.expect_end();
}

/// A fault's answer says what would have been right.
fn check_words(row: &Row, answer: &Answer) {
    let detail = answer.detail();
    assert!(!detail.is_empty() || answer.status == 500, "{row:?}");
    if let Some(kind) = FaultKind::ALL.iter().find(|kind| format!("{kind:?}") == row.what) {
        assert_eq!(answer.status, kind.status());
        assert!(detail.contains(kind.expected()), "{row:?}: {detail}");
    }
}

#[test]
fn every_fault_has_a_row() {
    let rows = rows();
    for kind in FaultKind::ALL {
        let expected = usize::from(!ELSEWHERE.contains(kind));
        let name = format!("{kind:?}");
        let found = rows.iter().filter(|row| row.what == name).count();
        assert_eq!(found, expected, "rows of {name} in docs/bad-requests.md");
    }
}
