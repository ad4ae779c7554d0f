//! `ringmain bench` from outside over WebSocket and TLS, against `ringmain run`.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::process::{Command, Output};

use crate::common::{Directory, Server, program};
use serde_json::Value;

/// A server, and its address.
fn server(args: &[&str]) -> (Server, String) {
    let mut command = Command::new(program());
    command.args(["run", "--listen", "127.0.0.1:0", "--workers", "1"]);
    let (server, addrs) = Server::start(command.args(args), 1);
    (server, addrs[0].clone())
}

/// A load of so many requests or messages.
fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(["bench", "-q", "-c", "4", "-n", "200", "-w", "0s", "--rounds", "1"]);
    command.args(args).output().unwrap()
}

/// The plan and the only round of a load that went well.
fn measured(args: &[&str]) -> (Value, Value) {
    let output = bench(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let (plan, round) = (&document["run"]["plan"], &document["run"]["rounds"][0]);
    let counts = &round["counts"];
    assert_eq!(
        (&counts["answered"], &counts["unexpected"]),
        (&200.into(), &0.into()),
        "{counts}"
    );
    (plan.clone(), round.clone())
}

fn check_failed(args: &[&str], expect: &str) {
    let output = bench(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(expect), "expected `{expect}` in: {said}");
}

#[test]
fn messages_over_websockets() {
    let (server, addr) = server(&[]);
    let url = format!("ws://{addr}/ws");
    let (plan, round) = measured(&["--echo", "300", &url]);
    assert_eq!(plan["protocol"], "websocket");
    assert_eq!(
        (&plan["message_bytes"], &plan["message_kind"]),
        (&300.into(), &"binary".into())
    );
    assert_eq!(round["opening"]["count"], 4);
    let (plan, round) = measured(&[
        "-b",
        "{{uuid}}",
        "--deflate",
        "-p",
        "3",
        "--reconnect-every",
        "20",
        &url,
    ]);
    assert_eq!(
        (&plan["message_bytes"], &plan["message_kind"]),
        (&36.into(), &"text".into())
    );
    assert_eq!(plan["deflate"], true);
    assert!(round["opening"]["count"].as_u64() >= Some(10), "{round}");
    check_failed(&[&format!("ws://{addr}/json")], "the server returned 200 OK");
    check_failed(&[&format!("ws://{addr}/nowhere")], "the server returned 404");
    check_failed(
        &["-H", "Origin: http://evil.example", &url],
        "the server returned 403",
    );
    server.terminate();
}

#[test]
fn everything_over_tls() {
    let (server, addr) = server(&["--tls-dev"]);
    let port = addr.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}/json");
    let (plan, round) = measured(&["--insecure", &url]);
    assert_eq!(
        (&plan["protocol"], &plan["tls"]["trust"]),
        (&"http1".into(), &"anybody".into())
    );
    let counts = &round["counts"];
    assert_eq!(counts["tls_versions"]["TLSv1.3"], 4);
    // The first one may be over before the others begin.
    assert!(counts["tls_resumed"].as_u64() < Some(4), "{counts}");
    assert_eq!(round["handshake"]["count"], 4);

    let often = ["--insecure", "--reconnect-every", "10", "--tls", "1.2", &url];
    let (_, round) = measured(&often);
    assert!(round["counts"]["tls_resumed"].as_u64() > Some(0), "{round}");
    assert!(
        round["counts"]["tls_versions"]["TLSv1.2"].as_u64() >= Some(20),
        "{round}"
    );
    let (_, round) = measured(&[&often[..], &["--no-resume"]].concat());
    assert_eq!(round["counts"]["tls_resumed"], 0);

    let socket = format!("wss://127.0.0.1:{port}/ws");
    let (plan, round) = measured(&["--insecure", &socket]);
    assert_eq!(
        (&plan["protocol"], &plan["tls"]["name"]),
        (&"websocket".into(), &"127.0.0.1".into())
    );
    assert_eq!(
        (&round["handshake"]["count"], &round["opening"]["count"]),
        (&4.into(), &4.into())
    );

    let directory = Directory::new();
    let scenario = directory.join("s.yaml");
    let steps = "flows:\n  - name: a\n    steps:\n      - request: { path: /json }\n";
    fs::write(&scenario, format!("target: https://localhost:{port}\n{steps}")).unwrap();
    measured(&["--insecure", &scenario.display().to_string()]);

    // Without trusted authorities on this host the message reports that.
    check_failed(&[&url], "certificate");
    server.terminate();
}
