//! `ringmain bench push` over several nodes: a server that is killed, and publications of an external producer.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::common::{Directory, PATIENCE, Server, fails, program};
use crate::proxy::Proxy;
use serde_json::Value;

const FILE: &str = "
listen: 127.0.0.1:0
push:
  anonymous: true
  api_key: K
  namespaces: {kept: {retention: {}, recovery: true}}
routes:
  live:
    rules: [{match: /, push: true}]
";

fn push(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["bench", "push"]).args(args);
    command
}

fn url(node: &Proxy) -> String {
    format!("ws://{}", node.addr())
}

/// The figures of a run that succeeds.
#[track_caller]
fn document(bench: Server, results: &std::path::Path) -> Value {
    let (status, output) = bench.finish();
    assert_eq!(status.code(), Some(0), "{output:#?}");
    serde_json::from_slice(&std::fs::read(results).unwrap()).unwrap()
}

#[test]
fn clients_of_a_killed_server_connect_to_the_other_one() {
    let directory = Directory::new();
    let results = directory.join("results.json");
    let nodes = [Proxy::start(FILE, &[]), Proxy::start(FILE, &[])];
    let kill = format!("{}@500ms", nodes[1].server.pid().as_raw_nonzero());
    let json = format!("--json={}", results.display());
    let [one, other] = [url(&nodes[0]), url(&nodes[1])];
    let args = [
        &one,
        &other,
        "-c",
        "20",
        "--channels",
        "2",
        "--prefix",
        "kept:",
        "--idle",
        "-w",
        "0s",
        "-d",
        "3s",
        "--settle",
        "1m",
        "--kill-server",
        &kill,
        &json,
    ];
    let found = document(Server::spawn(&mut push(&args)), &results);
    let [survivor, killed] = [&found["nodes"][0], &found["nodes"][1]];
    assert_eq!(
        (&survivor["url"], &killed["url"]),
        (&one.as_str().into(), &other.as_str().into())
    );
    let counts = |node: &Value| {
        [
            "clients",
            "clients_at_end",
            "sessions_ended",
            "sessions_ended_by_kill",
        ]
        .map(|key| node[key].clone())
    };
    assert_eq!(counts(survivor), [10, 20, 0, 0], "{found:#}");
    assert_eq!(counts(killed), [10, 0, 10, 10], "{found:#}");
    let recovery = &found["recovery"];
    assert_eq!(
        (&recovery["clients_cut"], &recovery["clients_back"]),
        (&10.into(), &10.into())
    );
    assert!(recovery["all_back_s"].as_f64() > Some(0.0), "{found:#}");
    assert!(
        recovery["server_killed_after_s"].as_f64() >= Some(0.5),
        "{found:#}"
    );
    // Epochs of a history in memory are a process's own: the other node reports that it does not know them.
    assert_eq!(
        (
            &recovery["subscriptions_resumed"],
            &recovery["subscriptions_unrecovered"]
        ),
        (&10.into(), &10.into()),
        "{found:#}"
    );
    assert_eq!(found["deliveries"]["falsely_recovered"], 0, "{found:#}");
}

/// A producer that publishes at a node.
struct Producer(TcpStream);

impl Producer {
    fn to(node: &Proxy) -> Producer {
        let stream = TcpStream::connect(node.addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Producer(stream)
    }

    fn publish(&mut self, channel: u32, sequence: u32) {
        let stamp = format!("{{\"b\":\"{:08x}{channel:08x}{sequence:08x}{:016x}", 0x2A, 0);
        let body = format!("{{\"channel\":\"kept:{channel}\",\"data\":{stamp:x<62}\"}}}}");
        let length = body.len();
        let head =
            "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: K\r\nContent-Type: application/json\r\n";
        write!(self.0, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let (mut response, mut piece) = (Vec::new(), [0; 1024]);
        while !response.ends_with(b"}") {
            let count = self.0.read(&mut piece).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&response));
            response.extend_from_slice(&piece[..count]);
        }
        assert!(
            response.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&response)
        );
    }
}

#[test]
fn publications_of_an_external_producer_are_checked() {
    let directory = Directory::new();
    let results = directory.join("results.json");
    let node = Proxy::start(FILE, &[]);
    let json = format!("--json={}", results.display());
    let args = [
        &url(&node),
        "-c",
        "6",
        "--channels",
        "2",
        "--prefix",
        "kept:",
        "--size",
        "64",
        "--listen-only=0000002a",
        "-d",
        "3s",
        &json,
    ];
    let mut bench = Server::spawn(&mut push(&args));
    bench.wait_for("measuring");
    let mut producer = Producer::to(&node);
    // In the first channel 1002 is missing, 1003 is doubled and 1005 is out of order; the second one is right.
    for sequence in [1000, 1001, 1003, 1003, 1004, 1006, 1005, 1007] {
        producer.publish(0, sequence);
    }
    for sequence in 7..17 {
        producer.publish(1, sequence);
    }
    let found = document(bench, &results);
    let deliveries = &found["deliveries"];
    let counts = [
        "expected",
        "delivered",
        "lost",
        "doubled",
        "reordered",
        "conflicting",
    ];
    assert_eq!(
        counts.map(|key| deliveries[key].clone()),
        [3 * 8 + 3 * 10, 3 * 7 + 3 * 10, 3, 3, 3, 0],
        "{found:#}"
    );
    assert_eq!(found["plan"]["listening_run"], "0000002a");
    assert_eq!(deliveries["delivered_per_s"], Value::Null);
    // Nothing of another run is taken for one of this.
    let args = [
        &url(&node),
        "-c",
        "2",
        "--prefix",
        "kept:",
        "--listen-only",
        "-d",
        "10ms",
        "--settle",
        "0s",
        "-q",
    ];
    let error = fails(&mut push(&args), 1);
    assert!(
        error.contains("no publication of run 00000000 arrived"),
        "{error}"
    );
}

/// Command lines, and a part of the message about each.
const WRONG: &[(&[&str], &str)] = &[
    (
        &["ws://127.0.0.1:9", "http://127.0.0.1:9"],
        "http://127.0.0.1:9: expected the transport of the first URL, ws://127.0.0.1:9",
    ),
    (
        &["ws://127.0.0.1:9", "--kill-server", "7"],
        "expected a process ID, @ and a time, such as 4711@3s",
    ),
    (
        &["ws://127.0.0.1:9", "--kill-server", "7@3"],
        "expected a time from 0s to 24h",
    ),
    (
        &["ws://127.0.0.1:9", "--kill-server", "7@2s", "-d", "2s"],
        "--kill-server 7@2s is not within the measured duration of 2s",
    ),
    (
        &["ws://127.0.0.1:9", "--kill-server", "7@1s", "--server-pid", "7"],
        "--kill-server 7@1s is the process that --server-pid measures",
    ),
    (
        &["ws://127.0.0.1:9", "--kill-server", "7@1s", "--kill", "1s"],
        "cannot be used with",
    ),
    (
        &["ws://127.0.0.1:9", "--listen-only", "--rate", "5"],
        "cannot be used with",
    ),
    (
        &["ws://127.0.0.1:9", "--listen-only=12"],
        "expected 8 hexadecimal digits, such as 0000002a",
    ),
];

#[test]
fn wrong_command_lines_are_refused() {
    for (args, expect) in WRONG {
        let error = fails(&mut push(args), 2);
        assert!(
            error.contains(expect),
            "{args:?}: expected `{expect}` in: {error}"
        );
    }
    let node = Proxy::start(FILE, &[]);
    let args = [&url(&node), "--kill-server", "4294967295@1s", "-q"];
    let error = fails(&mut push(&args), 2);
    assert!(
        error.contains("kill-server: expected the number of a running process, found no process 4294967295"),
        "{error}"
    );
}
