//! `ringmain bench push --publish-to`: records in real brokers, read by the sources of a server of ours.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

use ringmain_testkit::redis::DurableRedis;
use ringmain_testkit::servers::Nats;
use serde_json::Value;

use crate::common::{Directory, PATIENCE, fails, program};
use crate::proxy::{Proxy, until};

/// A server with this source that delivers.
fn server(source: &str) -> Proxy {
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: {{address: 127.0.0.1:0}}\npush:\n  anonymous: true\n  {source}\n\
         routes: {{all: {{rules: [{{push: true}}]}}}}\n"
    );
    let proxy = Proxy::start(&text, &[]);
    let mut said = proxy.server.said.iter();
    let admin = said.find_map(|line| line.split_once("administration at "));
    let (_, admin) = admin.expect("an address");
    until(admin, "localhost", "/readyz", |answer| answer.status == 200);
    proxy
}

fn push(url: &str, to: &str, more: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["bench", "push", url, "--publish-to", to]);
    command.args([
        "-c",
        "20",
        "--channels",
        "10",
        "--each",
        "3",
        "-r",
        "200",
        "-d",
        "500ms",
        "-w",
        "100ms",
        "--settle",
        "30s",
    ]);
    command.args(more);
    command
}

/// A hundred records arrive at six clients each, and at a plain consumer.
#[track_caller]
fn delivers_all(server: &Proxy, to: &str, more: &[&str]) {
    let url = format!("ws://{}", server.addr());
    let output = push(&url, to, &[more, &["--plain-consumer", "--json"]].concat())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (published, deliveries, broker) = (&found["published"], &found["deliveries"], &found["broker"]);
    assert_eq!(
        (&published["due"], &published["accepted"]),
        (&100.into(), &100.into()),
        "{found:#}"
    );
    assert_eq!(deliveries["expected"], 600, "{found:#}");
    assert_eq!(deliveries["delivered"], 600, "{found:#}");
    for none in ["lost", "doubled", "reordered", "misdelivered", "changed"] {
        assert_eq!(deliveries[none], 0, "{found:#}");
    }
    assert_eq!(broker["url"], to, "{found:#}");
    for times in ["acknowledged", "to_last_client", "to_consumer"] {
        assert_eq!(broker[times]["count"], 100, "{found:#}");
    }
}

#[test]
fn entries_of_a_redis_stream_are_delivered_and_counted() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let port = redis.port();
    let server = server(&format!(
        "redis_streams: {{s: {{servers: '127.0.0.1:{port}', streams: prices}}}}"
    ));
    delivers_all(&server, &format!("redis://127.0.0.1:{port}/prices"), &[]);
}

#[test]
fn commands_in_a_redis_stream_are_carried_out() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let port = redis.port();
    let server = server(&format!(
        "redis_streams: {{s: {{servers: '127.0.0.1:{port}', streams: prices, format: commands}}}}"
    ));
    let to = format!("redis://127.0.0.1:{port}/prices");
    delivers_all(&server, &to, &["--record-format", "commands"]);
}

/// Creates a stream with the subjects `prices.>`.
fn create_stream(nats: &Nats) {
    let stream = TcpStream::connect(("127.0.0.1", nats.port)).expect("a server");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let config = r#"{"name":"PRICES","subjects":["prices.>"],"storage":"file"}"#;
    let commands = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB $JS.API.STREAM.CREATE.PRICES answer {}\r\n{config}\r\n",
        config.len()
    );
    (&stream).write_all(commands.as_bytes()).expect("a connection");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    lines.find(|line| line.starts_with("MSG ")).expect("a response");
    let response = lines.next().expect("a payload");
    assert!(!response.contains("\"error\""), "{response}");
}

#[test]
fn messages_of_jetstream_are_delivered_and_counted() {
    let store = Directory::new();
    let path = store.path().display().to_string();
    let Some(nats) = Nats::start(None, &["-js", "-sd", &path]) else {
        return;
    };
    create_stream(&nats);
    let port = nats.port;
    let server = server(&format!(
        "jetstream: {{s: {{servers: 'nats://127.0.0.1:{port}', stream: PRICES, channel: '{{2}}'}}}}"
    ));
    delivers_all(
        &server,
        &format!("nats://127.0.0.1:{port}/prices.{{channel}}"),
        &[],
    );
    // Without a stream of the subject nothing acknowledges.
    let error = fails(
        &mut push(
            &format!("ws://{}", server.addr()),
            &format!("nats://127.0.0.1:{port}/other.{{channel}}"),
            &[],
        ),
        1,
    );
    assert!(error.contains("does not accept publications"), "{error}");
}

#[test]
fn brokers_that_cannot_be_used_are_reported() {
    let server = Proxy::start(
        "listen: 127.0.0.1:0\npush: {anonymous: true}\nroutes: {all: {rules: [{push: true}]}}\n",
        &[],
    );
    let url = format!("ws://{}", server.addr());
    let port = ringmain_testkit::port::unused().port();
    for to in [
        format!("kafka://127.0.0.1:{port}/prices"),
        format!("nats://127.0.0.1:{port}/prices.{{channel}}"),
        format!("redis://127.0.0.1:{port}/prices"),
    ] {
        let error = fails(&mut push(&url, &to, &[]), 1);
        assert!(error.contains(&format!("{to} cannot be written to")), "{error}");
    }
    let error = fails(&mut push(&url, "amqp://a/b", &[]), 2);
    assert!(
        error.contains("--publish-to: amqp://a/b: expected kafka://HOST"),
        "{error}"
    );
}
