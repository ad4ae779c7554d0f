//! `ringmain bench` as a process: refused command lines, and loads on a real server.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

use crate::common::{Directory, Server, engines, fails, program, wait_end};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("bench").args(args);
    command
}

fn check(args: &[&str], code: i32, expect: &str) {
    let error = fails(&mut bench(args), code);
    assert!(error.contains(expect), "expected `{expect}` in: {error}");
    assert!(!error.contains('\x1b'), "{error:?}");
}

const URL: &str = "http://127.0.0.1:9/";

/// Command lines, and a part of the message about each.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "<URL|SCENARIO.yaml>"),
    (&[URL, URL], "unexpected argument"),
    (&["-c", "0", URL], "expected a whole number from 1 to 1000000"),
    (&["-t", "x", URL], "expected a whole number from 1 to 1024"),
    (&["-d", "10", URL], "write 10s for seconds"),
    (&["-r", "fast", URL], "expected requests per second"),
    (&["-r", "0", URL], "expected requests per second"),
    (&["--poisson", URL], "--poisson needs a rate"),
    (&["--rounds", "0", URL], "from 1 to 1000"),
    (&["-p", "5000", URL], "from 1 to 1024"),
    (&["-w", "1", URL], "write 1s for seconds"),
    (&["--reconnect-every", "0", URL], "expected a whole number from 1"),
    (&["-H", "Accept", URL], "expected NAME: VALUE"),
    (&["-H", "a b: c", URL], "a b"),
    (&["-X", "GET\n", URL], "GET"),
    (
        &["-b", "a", "--body-file", "b", URL],
        "'--body <TEXT>' cannot be used with '--body-file <FILE>'",
    ),
    (&["--body-file", "/nonexistent", URL], "cannot read /nonexistent"),
    (
        &["--expect-status", "ok", URL],
        "expected status codes from 100 to 599",
    ),
    (&["--threshold", "p99", URL], "'--threshold <RULE>'"),
    (&["--threshold", "p99<5", URL], "'--threshold <RULE>'"),
    (&["--find-max", URL], "add --slo"),
    (&["--slo", "p99<5ms", URL], "add --find-max"),
    (&["--cpus", "9999", URL], "expected CPUs from 0 to 1023"),
    (
        &["--cpus", "1023", URL],
        "CPU 1023 is not available to this process",
    ),
    (&["--server-cpus", "0", URL], "--server-cpus needs a server"),
    (
        &["--server", "x", "--server-pid", "1", URL],
        "cannot be used with",
    ),
    (&["--server-pid", "0", URL], "expected a whole number from 1"),
    (
        &["-t", "9", "-c", "8", URL],
        "--threads 9 is more than the 8 connections",
    ),
    (
        &["--source", "localhost", URL],
        "expected an IP address of this host",
    ),
    (&["--echo", "0", "tcp://127.0.0.1:9"], "expected bytes from 1"),
    (&["--echo", "5", URL], "--echo is for tcp:// and ws:// targets"),
    (&["-X", "PUT", "tcp://127.0.0.1:9"], "--method is for HTTP"),
    (
        &["--engine", "kqueue", URL],
        "possible values: auto, uring, epoll",
    ),
    (&["--json", "--hlog", "-", URL], "both write to standard output"),
    (
        &["--html", "/nonexistent/x.html", URL],
        "--html: cannot write /nonexistent/x.html",
    ),
    (
        &["--hlog", "/nonexistent/x.hlog", URL],
        "--hlog: cannot write /nonexistent/x.hlog",
    ),
    (&["h2://127.0.0.1/"], "write https:// and --http2"),
    (&["--streams", "5", URL], "--streams is for HTTP/2: add --http2"),
    (&["--http2", "-p", "5", URL], "write --streams N"),
    (
        &["--http2", "tcp://127.0.0.1:9"],
        "--http2 is for http:// and https:// targets",
    ),
    (
        &["--insecure", URL],
        "--insecure is for https:// and wss:// targets",
    ),
    (&["--ca", "x.pem", URL], "--ca is for https:// and wss:// targets"),
    (
        &["--ca", "/nonexistent/x.pem", "https://127.0.0.1:9/"],
        "--ca: /nonexistent/x.pem: expected a file that can be read",
    ),
    (
        &["--ca", "x.pem", "--insecure", "https://127.0.0.1:9/"],
        "cannot be used with",
    ),
    (&["--key", "x.pem", "https://127.0.0.1:9/"], "--cert <FILE>"),
    (
        &["--tls", "1.1", "https://127.0.0.1:9/"],
        "possible values: 1.2, 1.3",
    ),
    (
        &["compare", "a=:1", "b=:2", "--no-resume"],
        "--no-resume is for https:// and wss:// targets",
    ),
    (&["--deflate", URL], "--deflate is for ws:// targets"),
    (&["-X", "PUT", "ws://127.0.0.1:9/"], "--method is for HTTP"),
    (&["ftp://127.0.0.1/"], "`ftp` is not supported"),
    (&["localhost"], "write localhost:8080, or http://localhost"),
    (&["http://me:pw@localhost/"], "-H 'Authorization: …'"),
    (&["unix:/run/x"], "write http+unix:/run/x:/path"),
    (&["nonexistent.yaml"], "cannot read the scenario nonexistent.yaml"),
    (&["--scenario", "a.yaml", "b.yaml"], "are two scenarios"),
    (&["a.yaml", "-X", "PUT"], "--method describes a single request"),
    (&["check", "nonexistent.yaml"], "cannot read the scenario"),
    (&["check"], "<SCENARIO.yaml>"),
    (&["merge"], "<FILE.hlog>"),
    (&["compare", "a=:1"], "2"),
    (&["compare", ":1", ":2"], "then = and its value"),
    (&["compare", "a=:1", "a=:2"], "two targets have the name `a`"),
    (&["compare", "a=:1", "b=:2", "--server", "x"], "expected a name"),
    (
        &["compare", "a=:1", "b=:2", "--server-pid", "a=x"],
        "expected a process ID, found `x`",
    ),
    (
        &["-c", "5", "compare", "a=:1", "b=:2"],
        "write `ringmain bench compare`",
    ),
];

#[test]
fn a_wrong_command_line() {
    for (args, expect) in WRONG {
        check(args, 2, expect);
    }
}

#[test]
fn an_invalid_scenario_is_reported_with_its_position() {
    let directory = Directory::new();
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let step = "flows:\n  - name: a\n    steps:\n      - request: { path: / }\n";
    let right = write("right.yaml", step);
    let output = bench(&["check", &right]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.ends_with("right.yaml: valid, 1 flow with 1 request in total\n"),
        "{said}"
    );

    let unknown = write("unknown.yaml", &format!("flow: 1\n{step}"));
    check(&["check", &unknown], 2, "unknown.yaml:1:1");
    let rule = write("rule.yaml", &format!("thresholds:\n  - p99>fast\n{step}"));
    check(&["check", &rule], 2, "rule.yaml:2:5");
    let target = write("target.yaml", &format!("target: tcp://x:1\n{step}"));
    check(&["check", &target], 2, "target.yaml:1:9");
    check(&[&right], 2, "has no target: add");
    check(
        &["--scenario", &right, "http://127.0.0.1:9/x"],
        2,
        "the path /x has no meaning with a scenario",
    );
    check(
        &["--scenario", &right, "tcp://127.0.0.1:9"],
        2,
        "a scenario is for HTTP",
    );
    check(
        &["--scenario", &right, "ws://127.0.0.1:9/ws"],
        2,
        "a scenario is for HTTP, and the target is a WebSocket",
    );
}

#[test]
fn nothing_to_connect_to() {
    // Bound but not listening: no other process gets the port.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    check(
        &[&format!("127.0.0.1:{port}")],
        1,
        "connection refused, nothing listens there",
    );
    check(
        &[&format!("localhost:{port}")],
        1,
        &format!("cannot connect to 127.0.0.1:{port}: connection refused"),
    );
    check(&["http+unix:/nonexistent/x:/"], 1, "there is no such socket");
    check(&["name.invalid:80"], 1, "cannot resolve the host name.invalid");
    let closed = format!("127.0.0.1:{port}");
    check(
        &["--server-pid", "4194304", &closed],
        1,
        "found no process 4194304",
    );
    check(
        &["--server", "echo no such file; exit 3", &closed],
        1,
        "(exit code 3); its last output: no such file",
    );
    check(
        &["--server", "exec sleep 1000", "--server-wait", "200ms", &closed],
        1,
        "accepts no connections after 0.2s",
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    check(
        &["--server", "exec sleep 1000", &taken],
        1,
        "accepts connections before the server was started",
    );
    check(
        &["merge", "/nonexistent.hlog"],
        1,
        "cannot read /nonexistent.hlog",
    );
}

/// A server, its address and its process.
fn server() -> (Server, String) {
    let mut command = Command::new(program());
    command.args(["run", "--listen", "127.0.0.1:0", "--workers", "1"]);
    let (server, addrs) = Server::start(&mut command, 1);
    (server, addrs[0].clone())
}

/// Short, and long enough to count something on a busy machine.
const SHORT: [&str; 8] = ["-c", "4", "-d", "200ms", "-w", "50ms", "--rounds", "2"];

fn run(args: &[&str], code: i32) -> Output {
    let output = bench(&SHORT).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    output
}

fn json(args: &[&str], code: i32) -> Value {
    let output = run(&[args, &["--json"]].concat(), code);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The answers of each round.
fn answered(document: &Value) -> Vec<u64> {
    let rounds = document["run"]["rounds"]
        .as_array()
        .unwrap_or_else(|| panic!("{document:#}"));
    rounds
        .iter()
        .map(|round| round["counts"]["answered"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_closed_loop_on_each_engine() {
    let (server, addr) = server();
    for engine in engines() {
        let output = run(&["--engine", engine, &format!("http://{addr}/json")], 0);
        let summary = String::from_utf8(output.stdout).unwrap();
        for text in ["requests/s", "p99", "closed loop", engine] {
            assert!(summary.contains(text), "expected `{text}` in: {summary}");
        }
        let talk = String::from_utf8(output.stderr).unwrap();
        assert!(talk.contains("round 2 of 2"), "{talk}");
    }
    server.terminate();
}

#[test]
fn an_open_loop_with_its_server_watched() {
    let (server, addr) = server();
    let pid = server.pid().as_raw_nonzero().to_string();
    let document = json(
        &["-r", "500", "--server-pid", &pid, "-q", &format!("{addr}/json")],
        0,
    );
    assert_eq!(document["kind"], "run");
    let rounds = answered(&document);
    assert_eq!(rounds.len(), 2);
    assert!(rounds.iter().all(|answers| *answers > 0), "{rounds:?}");
    let server_use = &document["run"]["rounds"][0]["server"];
    assert!(
        server_use["peak_memory_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 1 << 20),
        "{server_use}"
    );
    server.terminate();
}

#[test]
fn a_server_that_is_started_is_ended() {
    let directory = Directory::new();
    let socket = directory.join("s").display().to_string();
    let command = format!(
        "echo $$ >{0}/pid; exec {1} run --echo --listen unix:{socket}",
        directory.path().display(),
        program().display()
    );
    let document = json(
        &[
            "--server",
            &command,
            "--echo",
            "100",
            &format!("tcp+unix:{socket}"),
        ],
        0,
    );
    assert!(
        answered(&document).iter().all(|answers| *answers > 0),
        "{document}"
    );
    let pid = fs::read_to_string(directory.join("pid")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    assert!(stat.is_err() || stat.unwrap().contains(") Z "), "it runs on");
    // It listens no more, so that the address is free.
    UnixListener::bind(&socket).unwrap();
}

#[test]
fn thresholds_set_the_exit_code() {
    let (server, addr) = server();
    run(&["--threshold", "errors<1%", "--threshold", "p50<10s", &addr], 0);
    let output = run(&["--threshold", "p50<1us", "--threshold", "rps>1", &addr], 1);
    let said = String::from_utf8(output.stderr).unwrap();
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("error: a threshold is missed: p50<1us missed: "),
        "{said}"
    );
    assert!(!output.stdout.is_empty(), "the figures are missing");
    // A status that is not right is an error.
    run(&["--threshold", "errors<1%", &format!("{addr}/nothing-there")], 1);
    server.terminate();
}

#[test]
fn a_count_is_kept() {
    let (server, addr) = server();
    let args = [
        "-n",
        "300",
        "-c",
        "4",
        "-w",
        "0s",
        "--rounds",
        "2",
        "--json",
        &format!("{addr}/plaintext"),
    ];
    let output = bench(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answered(&document), [300, 300]);
    server.terminate();
}

#[test]
fn files_hold_the_results() {
    let (server, addr) = server();
    let directory = Directory::new();
    let path = |name: &str| directory.join(name).display().to_string();
    let (json, html, hlog, merged) = (path("a.json"), path("a.html"), path("a.hlog"), path("m.hlog"));
    let json_file = format!("--json={json}");
    run(
        &["-r", "400", &json_file, "--html", &html, "--hlog", &hlog, &addr],
        0,
    );
    let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(fs::read_to_string(&html).unwrap().starts_with("<!doctype html>"));

    // The same file given twice counts twice; the written file can be read again.
    let output = bench(&["merge", &hlog, &hlog, "--output", &merged, "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let both = String::from_utf8(output.stdout).unwrap();
    let output = bench(&["merge", &merged, "--json"]).output().unwrap();
    let again = String::from_utf8(output.stdout).unwrap();
    let (both, again): (Value, Value) = (
        serde_json::from_str(&both).unwrap(),
        serde_json::from_str(&again).unwrap(),
    );
    assert_eq!(both["kind"], "merged");
    let answers: u64 = answered(&document).iter().sum();
    for tag in ["service", "response"] {
        assert_eq!(both["tags"][tag]["latency"]["count"], answers * 2, "{both:#}");
        assert_eq!(both["tags"][tag]["latency"], again["tags"][tag]["latency"]);
    }
    server.terminate();
}

#[test]
fn a_scenario_is_carried_out() {
    let (server, addr) = server();
    let directory = Directory::new();
    let path = directory.join("s.yaml");
    let text = format!(
        "target: http://{addr}\nconnections: 3\nrequests: 50\nwarmup: 0s\nthresholds: [errors<1%]\n\
         flows:\n  - name: read\n    weight: 2\n    steps:\n      - request: {{ path: /json }}\n  - name: write\n    \
         steps:\n      - request:\n          method: POST\n          path: /echo\n          body: 'number {{{{seq}}}}'\n"
    );
    fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    let output = bench(&["--rounds", "1", "--json", &path]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(answered(&serde_json::from_slice(&output.stdout).unwrap()), [50]);
    // The address on the command line counts more, and so does an option.
    let args = ["--scenario", &path, "-n", "30", "--rounds", "1", "--json", &addr];
    let output = bench(&args).output().unwrap();
    assert_eq!(answered(&serde_json::from_slice(&output.stdout).unwrap()), [30]);
    let schema = bench(&["schema"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert!(schema["properties"]["flows"].is_object(), "{schema}");
    server.terminate();
}

#[test]
fn two_targets_are_compared_in_turn() {
    let ((one, a), (other, b)) = (server(), server());
    let (a, b) = (
        format!("one=http://{a}/json"),
        format!("other=http://{b}/plaintext"),
    );
    let args = [
        "compare", &a, &b, "-c", "2", "-d", "60ms", "-w", "20ms", "--rounds", "5",
    ];
    let output = bench(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = String::from_utf8(output.stdout).unwrap();
    for text in ["A    one", "B    other", "requests/s", "95 % interval"] {
        assert!(summary.contains(text), "expected `{text}` in: {summary}");
    }
    // AB BA AB …
    let talk = String::from_utf8(output.stderr).unwrap();
    let order: Vec<&str> = talk
        .lines()
        .filter_map(|line| line.split_once(", round "))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        order[..6],
        ["one", "other", "other", "one", "one", "other"],
        "{talk}"
    );
    one.terminate();
    other.terminate();
}

#[test]
fn the_highest_rate_is_found() {
    let (server, addr) = server();
    let args = [
        "--find-max",
        "--slo",
        "p50<10s",
        "-c",
        "2",
        "-d",
        "30ms",
        "-w",
        "0s",
        "--json",
        &format!("{addr}/json"),
    ];
    let output = bench(&args).output().unwrap();
    // On a busy machine it may find that no rate is kept three times, which is an error.
    let said = String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(0) => {
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(document["kind"], "search");
            assert!(said.contains("highest rate: "), "{said}");
        }
        code => {
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains("error: no rate meets the objective"), "{said}");
        }
    }
    assert!(said.contains("requests/s (ramping up): "), "{said}");
    server.terminate();
}

#[test]
fn a_search_without_a_rate_reports_the_missed_objective() {
    let (server, addr) = server();
    let target = format!("{addr}/json");
    let args = [
        "--find-max",
        "--slo",
        "p50<1us",
        "-c",
        "1",
        "-d",
        "20ms",
        "-w",
        "0s",
        "--json",
        &target,
    ];
    let output = bench(&args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: no rate meets the objective"), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["kind"], "search");
    assert_eq!(document["run"], Value::Null);
    server.terminate();
}

#[test]
fn results_go_to_devices_too() {
    let (server, addr) = server();
    let output = run(&["--json=/dev/null", "--hlog", "/dev/null", &addr], 0);
    assert!(!output.stdout.is_empty(), "the summary is still shown");
    server.terminate();
}

#[test]
fn an_interrupt_reports_the_measured_rounds() {
    let (server, addr) = server();
    let mut child = bench(&[
        "-c",
        "2",
        "-d",
        "1h",
        "-w",
        "0s",
        "--interval",
        "50ms",
        "--hlog",
        "-",
        &addr,
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    // An interval is measured as soon as its histogram exists.
    let mut log = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("service") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut log, &mut line).unwrap() > 0,
            "it has ended"
        );
    }
    kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let rest = std::thread::spawn(move || std::io::Read::read_to_end(&mut log, &mut Vec::new()).unwrap());
    assert_eq!(wait_end(&mut child).code(), Some(1));
    rest.join().unwrap();
    server.terminate();
}
