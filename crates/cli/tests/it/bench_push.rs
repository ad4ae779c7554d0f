//! `ringmain bench push` as a process: refused command lines, and runs against a push server of the test.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::common::{Directory, fails, program};
use ringmain_engine::{Addr, Config, Engine, ListenOptions, Running};
use ringmain_hub::history::HistoryOptions;
use ringmain_push::{Namespace, Options};
use ringmain_tls::{Acceptor, DevCertificate, ServerSettings};
use ringmain_web::{App, ListenerProtocol};
use serde_json::Value;

fn push(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["bench", "push"]).args(args);
    command
}

/// Command lines, and a part of the message about each.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "<URL>"),
    (
        &["ws://127.0.0.1:9", "--insecure", "--idle"],
        "--insecure is for https:// and wss:// targets",
    ),
    (&["wss://127.0.0.1:9", "--ca", "/nowhere"], "--ca: /nowhere"),
    (&["tcp://127.0.0.1:9"], "expected ws://HOST"),
    (
        &["ws://127.0.0.1:9", "--clients", "0"],
        "expected a whole number from 1 to 1000000",
    ),
    (
        &["ws://127.0.0.1:9", "--each", "2"],
        "--each 2 is more than the 1 channels",
    ),
    (
        &["ws://127.0.0.1:9", "--rate", "fast"],
        "expected a number per second",
    ),
    (
        &["ws://127.0.0.1:9", "--slow", "200%"],
        "expected a share from 0 to 1",
    ),
    (&["ws://127.0.0.1:9", "--size", "10"], "48"),
    (
        &["ws://127.0.0.1:9", "--idle", "--rate", "5"],
        "cannot be used with",
    ),
    (
        &["ws://127.0.0.1:9", "--plain-consumer"],
        "required arguments were not provided",
    ),
    (
        &["ws://127.0.0.1:9", "--publish-to", "amqp://a/b"],
        "--publish-to: ",
    ),
    (
        &["ws://127.0.0.1:9", "--publish-to", "redis://a/b", "--batch", "2"],
        "cannot be used with",
    ),
    (
        &["ws://127.0.0.1:9", "--publish", "ws://a"],
        "--publish: expected http://",
    ),
    (
        &["ws://127.0.0.1:9", "-c", "2", "-t", "3"],
        "--threads 3 is more than the 2 clients",
    ),
    (
        &["ws://127.0.0.1:9", "--find-max", "--idle"],
        "--idle cannot be used with --find-max",
    ),
    (
        &["ws://127.0.0.1:9", "--slo", "p99<1s"],
        "--slo is the objective of --find-max",
    ),
    (
        &["ws://127.0.0.1:9", "--find-max"],
        "--find-max needs an objective",
    ),
    (
        &["ws://127.0.0.1:9", "--kill-every", "1s"],
        "required arguments were not provided",
    ),
    (
        &["ws://127.0.0.1:9", "--kill", "2s", "-d", "2s"],
        "--kill 2s is not within the measured duration of 2s",
    ),
    (
        &["ws://127.0.0.1:9", "--server-cpus", "0"],
        "--server-cpus needs a server",
    ),
];

#[test]
fn wrong_command_lines_are_reported() {
    for (args, expect) in WRONG {
        let error = fails(&mut push(args), 2);
        assert!(
            error.contains(expect),
            "{args:?}: expected `{expect}` in: {error}"
        );
    }
}

/// A push server in this process, with the key `K`, a namespace with conflation, and two with history: one with enough
/// publications, one with too few.
struct Server {
    running: Option<Running<Infallible>>,
    addr: SocketAddr,
}

impl Server {
    fn new(anonymous: bool) -> Server {
        Server::of(App::new(), anonymous)
    }

    /// Over TLS, by a certificate of this authority's.
    fn secured(made: &DevCertificate) -> Server {
        let settings = ServerSettings {
            certificates: vec![made.pair.clone()],
            ..ServerSettings::default()
        };
        let acceptor = Acceptor::new(&settings, ringmain_sys::clock::realtime()).unwrap();
        Server::of(App::new().listener(0, ListenerProtocol::https(&acceptor)), true)
    }

    fn of(app: App, anonymous: bool) -> Server {
        let mut paced = Namespace::default();
        paced.channel_options.conflation_interval = Some(Duration::from_millis(50));
        let keeps = |publications| {
            let mut keeps = Namespace {
                recovery: true,
                ..Namespace::default()
            };
            keeps.channel_options.history = Some(HistoryOptions {
                publications,
                bytes: 1 << 20,
                ttl: Duration::from_mins(5),
            });
            keeps
        };
        let namespaces = [("paced", paced), ("kept", keeps(1000)), ("scant", keeps(1))];
        let options = Options {
            namespaces: namespaces
                .map(|(name, namespace)| (name.to_owned(), namespace))
                .into(),
            anonymous,
            api_key: Some("K".to_owned()),
            ..Options::default()
        };
        let site = ringmain_push::serve(app, options).build().unwrap();
        let config = Config {
            workers: Some(1),
            pin: false,
            ..Config::default()
        };
        let mut engine = Engine::new(config).unwrap();
        let listen = Addr::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let Addr::Inet(addr) = engine.listen(&listen, &ListenOptions::default()).unwrap() else {
            panic!("an address of TCP");
        };
        let running = engine.start(move |start| site.server(start)).unwrap();
        Server {
            running: Some(running),
            addr,
        }
    }

    fn url(&self, path: &str) -> String {
        let scheme = if path.contains("sse") { "http" } else { "ws" };
        format!("{scheme}://{}{path}", self.addr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
            // A test that has failed already says so itself.
            let _ = running.join();
        }
    }
}

const SHORT: [&str; 9] = [
    "-c", "20", "-d", "300ms", "-w", "100ms", "--settle", "30s", "--json",
];

#[track_caller]
fn document(url: &str, args: &[&str]) -> Value {
    let output = push(&[&[url][..], args, &SHORT].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_transport_of_our_own_server_delivers_all() {
    let server = Server::new(true);
    let cases: [(&str, &[&str]); 3] = [
        ("/connection/websocket", &[]),
        ("/connection/websocket", &["--protobuf"]),
        ("/connection/uni_sse", &[]),
    ];
    for (path, args) in cases {
        let load = [
            "--channels",
            "10",
            "--each",
            "3",
            "-r",
            "200",
            "--common",
            "20",
            "--api-key",
            "K",
        ];
        let found = document(&server.url(path), &[&load, args].concat());
        // 60 publications to six clients each, and six to all.
        let deliveries = &found["deliveries"];
        assert_eq!(deliveries["expected"], 60 * 6 + 6 * 20, "{found:#}");
        assert_eq!(deliveries["delivered"], deliveries["expected"], "{found:#}");
        for none in [
            "lost",
            "doubled",
            "reordered",
            "misdelivered",
            "changed",
            "without_last",
        ] {
            assert_eq!(deliveries[none], 0, "{found:#}");
        }
        assert_eq!(found["latency"]["count"], deliveries["expected"]);
        assert_eq!(
            (&found["last"]["count"], &found["last_common"]["count"]),
            (&60.into(), &6.into())
        );
        assert_eq!(found["clients"]["disconnects"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn conflated_channels_are_reported_as_such() {
    let server = Server::new(true);
    let args = [
        "-r",
        "400",
        "--prefix",
        "paced:",
        "--conflated",
        "50ms",
        "--settle",
        "1s",
        "--api-key",
        "K",
    ];
    let url = server.url("/connection/websocket");
    let output = push(&[&[&url[..]][..], &args, &SHORT[..6], &["--json"]].concat())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let deliveries = &found["deliveries"];
    assert_eq!(
        (&deliveries["lost"], &deliveries["without_last"]),
        (&0.into(), &0.into()),
        "{found:#}"
    );
    assert!(
        deliveries["conflated"].as_u64() > deliveries["delivered"].as_u64(),
        "{found:#}"
    );
    assert!(found["behind"]["count"].as_u64() > Some(0), "{found:#}");
}

/// A hundred publications a second to each of two channels, and all clients are cut off among them.
const KILLED: [&str; 14] = [
    "-c",
    "20",
    "--channels",
    "2",
    "-r",
    "200",
    "-d",
    "500ms",
    "-w",
    "0s",
    "--kill",
    "100ms",
    "--api-key",
    "K",
];

#[test]
fn clients_that_are_cut_off_recover_all_over_every_transport() {
    let server = Server::new(true);
    let cases: [(&str, &[&str]); 3] = [
        ("/connection/websocket", &[]),
        ("/connection/websocket", &["--protobuf"]),
        ("/connection/uni_sse", &[]),
    ];
    for (path, args) in cases {
        let args = [&KILLED, args, &["--prefix", "kept:", "--settle", "30s", "--json"]].concat();
        let output = push(&[&[&server.url(path)[..]][..], &args].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (deliveries, recovery) = (&found["deliveries"], &found["recovery"]);
        assert_eq!(deliveries["expected"], 100 * 10, "{found:#}");
        assert_eq!(deliveries["delivered"], deliveries["expected"], "{found:#}");
        for none in ["lost", "doubled", "reordered", "misdelivered", "changed"] {
            assert_eq!(deliveries[none], 0, "{found:#}");
        }
        let counted = ["clients_cut", "clients_back", "subscriptions_recovered"].map(|key| &recovery[key]);
        assert_eq!(counted, [20, 20, 20], "{found:#}");
        assert_eq!(recovery["subscriptions_unrecovered"], 0, "{found:#}");
        assert!(recovery["all_back_s"].as_f64() > Some(0.0), "{found:#}");
    }
}

/// The file of an authority's certificate.
fn authority(directory: &Directory, name: &str) -> (DevCertificate, String) {
    let made = DevCertificate::new(&[], ringmain_sys::clock::realtime()).unwrap();
    let path = directory.join(name);
    std::fs::write(&path, &made.authority.bytes).unwrap();
    (made, path.to_str().unwrap().to_owned())
}

#[test]
fn clients_and_publish_requests_use_tls() {
    let directory = Directory::new();
    let (made, ours) = authority(&directory, "ours.pem");
    let server = Server::secured(&made);
    let port = server.addr.port();
    let sockets = format!("wss://localhost:{port}");
    let events = format!("https://localhost:{port}/connection/uni_sse");
    let args = [&KILLED[..], &["--prefix", "kept:", "--settle", "30s", "--json"]].concat();
    let cases: [(&str, &[&str]); 4] = [
        (&sockets, &["--ca", &ours]),
        (&sockets, &["--ca", &ours, "--protobuf", "--tls", "1.2"]),
        (&sockets, &["--insecure", "--no-resume"]),
        (&events, &["--ca", &ours]),
    ];
    for (url, more) in cases {
        let output = push(&[&[url][..], &args, more].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (deliveries, clients) = (&found["deliveries"], &found["clients"]);
        assert_eq!(
            (&deliveries["delivered"], &deliveries["lost"]),
            (&1000.into(), &0.into()),
            "{found:#}"
        );
        assert_eq!(found["recovery"]["clients_back"], 20, "{found:#}");
        // Each client connects, and reconnects.
        let agreed = clients["tls"].as_object().unwrap();
        let handshakes: u64 = agreed.values().filter_map(Value::as_u64).sum();
        assert_eq!(
            (handshakes, &found["joined"]["handshake"]["count"]),
            (40, &40.into()),
            "{found:#}"
        );
        let version = ["TLSv1.3", "TLSv1.2"][usize::from(more.contains(&"1.2"))];
        assert!(agreed.keys().all(|name| name.starts_with(version)), "{found:#}");
        if more.contains(&"--no-resume") {
            assert_eq!(clients["tls_resumed"], 0);
        } else {
            // Every client that reconnects resumes a session.
            assert!(clients["tls_resumed"].as_u64() > Some(0), "{found:#}");
        }
    }
}

#[test]
fn untrusted_servers_are_refused_for_clients_and_publish_requests() {
    let directory = Directory::new();
    let (made, ours) = authority(&directory, "ours.pem");
    let (_, others) = authority(&directory, "others.pem");
    let server = Server::secured(&made);
    let port = server.addr.port();
    let sockets = format!("wss://localhost:{port}");
    let events = format!("https://localhost:{port}/connection/uni_sse");
    let check = |args: &[&str], expect: &str| {
        let error = fails(
            &mut push(&[args, &["-c", "5", "-q", "--api-key", "K"]].concat()),
            1,
        );
        assert!(error.contains(expect), "expected `{expect}` in: {error}");
    };
    for url in [&sockets, &events] {
        check(&[url, "--ca", &others], "expected a certificate");
        check(&[url, "--ca", &ours, "--sni", "other.test"], "other.test");
    }
    // Publish requests are refused, too: no trusted server listens there.
    let clear = Server::new(true);
    let posts = format!("https://localhost:{port}/api/publish");
    check(
        &[
            &clear.url("/connection/websocket"),
            "--publish",
            &posts,
            "--ca",
            &others,
        ],
        "publishing to https://localhost",
    );
    // A server without TLS is reported as such.
    let silent = format!("wss://127.0.0.1:{}", clear.addr.port());
    check(&[&silent, "--insecure"], "TLS");
}

#[test]
fn publications_without_history_are_lost_on_disconnects_and_reported() {
    let server = Server::new(true);
    let url = server.url("/connection/websocket");
    // The last client is back 200 ms later, when its channel has had some twenty publications and kept one.
    let args = [
        &KILLED[..],
        &["--connect-rate", "100", "--prefix", "scant:", "--settle", "300ms"],
    ]
    .concat();
    let output = push(&[&[&url[..]][..], &args, &["--json"]].concat())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (deliveries, recovery) = (&found["deliveries"], &found["recovery"]);
    let recovered = recovery["subscriptions_recovered"].as_u64().unwrap();
    let unrecovered = recovery["subscriptions_unrecovered"].as_u64().unwrap();
    assert!(unrecovered > 0 && recovered + unrecovered == 20, "{found:#}");
    assert!(deliveries["lost"].as_u64() >= Some(unrecovered), "{found:#}");
    // A channel that keeps nothing is no silent zero.
    let error = fails(&mut push(&[&[&url[..]][..], &KILLED, &["-q"]].concat()), 1);
    assert!(
        error.contains("clients cannot recover publications of bench"),
        "{error}"
    );
}

#[test]
fn refusals_of_the_server_are_reported_with_advice() {
    let server = Server::new(true);
    let url = server.url("/connection/websocket");
    let check = |url: &str, args: &[&str], expect: &str| {
        let error = fails(&mut push(&[&[url], args, &["-c", "5", "-q"]].concat()), 1);
        assert!(error.contains(expect), "expected `{expect}` in: {error}");
    };
    check(
        &url,
        &[],
        "401, expected the API key in X-API-Key, or as `Authorization: apikey KEY`; give its key by --api-key",
    );
    check(
        &server.url("/nothing"),
        &["--api-key", "K"],
        "/nothing returns 404",
    );
    check(
        &url,
        &["--publish", &format!("http://{}/none", server.addr)],
        "no such endpoint",
    );
    check(
        &url,
        &["--api-key", "K", "--prefix", "none:"],
        "102 unknown channel",
    );
    let closed = Server::new(false);
    check(
        &closed.url("/connection/websocket"),
        &["--api-key", "K"],
        "--token",
    );
    check(&closed.url("/connection/uni_sse"), &["--api-key", "K"], "--token");
}
