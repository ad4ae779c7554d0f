//! `ringmain feed` to NATS, to a push server and to standard output, and the loss of each receiver.
//!
//! Tests with a real nats-server start it themselves, and are skipped without one (`.ci/run` installs it).
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{self, Directory, Server, fails, program};
use crate::proxy::{Proxy, until};
use ringmain_testkit::port::Reserved;
use ringmain_testkit::servers::Nats;
use ringmain_testkit::subscriber::Subscriber;
use ringmain_testkit::wait::Patience;
use rustix::process::Signal;
use serde_json::Value;

/// Clients connect by any path, programs publish, and `more` is what else `push` says.
fn file(listen: &str, more: &str) -> String {
    format!(
        "
listen: {listen}
admin: {{address: 127.0.0.1:0}}
push:
  anonymous: true
  api_key: owner
  namespaces: {{market: {{}}}}
{more}
routes:
  live:
    rules: [{{match: /, push: true}}]
"
    )
}

/// A consumer of the market at this port.
fn consumer(port: u16, more: &str) -> String {
    let server = format!("servers: 'nats://127.0.0.1:{port}'");
    format!("  nats: {{feed: {{{server}, subjects: market.*, channel: 'market:{{2}}'{more}}}}}")
}

fn feed(args: &[&str]) -> Server {
    Server::spawn(Command::new(program()).arg("feed").args(args))
}

/// It ends by Ctrl-C, as one that has done its work, and says so in its last line, which is returned.
fn interrupted(feed: Server) -> String {
    feed.signal(Signal::INT);
    let (status, mut said) = feed.finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    said.pop().expect("a last line")
}

#[test]
fn trades_reach_browsers_through_nats() {
    let reserved = Reserved::new();
    let port = reserved.port();
    let Some(_nats) = Nats::start(Some(port), &["--user", "ada", "--pass", "pass"]) else {
        return;
    };
    let more = consumer(port, ", user: ada, password: pass");
    let mut proxy = Proxy::start(&file("127.0.0.1:0", &more), &[]);
    proxy.server.line_with("NATS feed: subscribed at");
    let mut said = proxy.server.said.iter();
    let line = said.find_map(|line| line.split_once("administration at "));
    let admin = line.expect("an administration").1.to_owned();
    let mut subscriber = Subscriber::to(proxy.addr(), &["market:ARDN"]);
    let to = format!("nats://ada:pass@127.0.0.1:{port}");
    let mut feed = feed(&[&to, "--symbols", "1", "-r", "200", "-d", "500ms", "--seed", "1"]);
    let first = feed.wait_for("trades per second");
    assert!(first.contains("seed 1") && !first.contains("pass"), "{first}");
    let (status, said) = feed.finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    let last = said.last().expect("a last line");
    assert!(
        last.starts_with("100 trades in ") && !last.contains(';'),
        "{last}"
    );
    // The gateway may subscribe slightly after its log line; it receives all later trades.
    let mut number = subscriber.publication().1["n"].as_u64().expect("a number");
    while number < 99 {
        let (channel, trade) = subscriber.publication();
        number += 1;
        assert_eq!((&*channel, &trade["n"]), ("market:ARDN", &Value::from(number)));
    }
    let heard = "\nringmain_push_nats_messages_total{consumer=\"feed\"} 100\n";
    until(&admin, "localhost", "/metrics", |answer| {
        answer.body.contains(heard)
    });

    let url = format!("nats://127.0.0.1:{port}");
    let refused = fails(Command::new(program()).args(["feed", &url, "-d", "1s"]), 1);
    assert!(refused.contains("Authorization Violation"), "{refused}");
    proxy.server.terminate();
}

#[test]
fn a_feed_resumes_after_a_restart_of_nats() {
    let reserved = Reserved::new();
    let port = reserved.port();
    let Some(nats) = Nats::start(Some(port), &[]) else {
        return;
    };
    let mut proxy = Proxy::start(&file("127.0.0.1:0", &consumer(port, "")), &[]);
    proxy.server.line_with("NATS feed: subscribed at");
    let mut subscriber = Subscriber::to(proxy.addr(), &["market:ARDN"]);
    let to = format!("nats://127.0.0.1:{port}");
    let mut feed = feed(&[&to, "--symbols", "1", "-r", "100"]);
    let before = subscriber.publication().1["n"].as_u64().expect("a number");
    drop(nats);
    feed.wait_for("; reconnecting");
    proxy.server.wait_for("; retrying");
    let _nats = Nats::start(Some(port), &[]).expect("it was there before");
    feed.wait_for("reconnected");
    proxy.server.wait_for("NATS feed: subscribed at");
    // Trades in flight at the server's exit arrive first.
    let mut last = before;
    let patience = Patience::new();
    loop {
        let number = subscriber.publication().1["n"].as_u64().expect("a number");
        assert!(number > last, "{number} after {last}");
        if number > last + 1 {
            break;
        }
        last = number;
        assert!(!patience.is_over(), "none was lost, although the server was gone");
    }
    let said = interrupted(feed);
    assert!(said.contains("; connection lost 1 time"), "{said}");
    proxy.server.terminate();
}

#[test]
fn a_nats_that_denies_publishing_ends_it() {
    let folder = Directory::new();
    let config = folder.join("nats.conf");
    let user = "{user: ada, password: pass, permissions: {publish: {deny: \"market.>\"}}}";
    fs::write(&config, format!("authorization {{users: [{user}]}}\n")).expect("a file");
    let reserved = Reserved::new();
    let port = reserved.port();
    let Some(_nats) = Nats::start(Some(port), &["-c", &config.display().to_string()]) else {
        return;
    };
    let to = format!("nats://ada:pass@127.0.0.1:{port}");
    let said = fails(Command::new(program()).args(["feed", &to]), 1);
    assert!(said.contains("Permissions Violation for Publish"), "{said}");
    let said = fails(Command::new(program()).args(["feed", &to, "--subject", "a b"]), 1);
    assert!(said.contains("subject"), "{said}");
    let said = fails(
        Command::new(program()).args(["feed", "-d", "1s", "--ca", "none", &to]),
        1,
    );
    assert!(said.contains("none: No such file"), "{said}");
}

#[test]
fn trades_reach_a_push_server() {
    let proxy = Proxy::start(&file("127.0.0.1:0", ""), &[]);
    let mut subscriber = Subscriber::to(proxy.addr(), &["market:ARDN"]);
    let to = format!("http://{}", proxy.addr());
    let short = [&*to, "--symbols", "1", "-d", "300ms", "--api-key", "owner"];
    let (status, said) = feed(&[&short[..], &["-r", "1k"]].concat()).finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    let last = said.last().expect("a last line");
    assert!(
        last.starts_with("300 trades in ") && !last.contains(';'),
        "{last}"
    );
    for number in 0..300 {
        assert_eq!(subscriber.publication().1["n"], number);
    }
    for (args, expect) in [
        (&["--api-key", "wrong"][..], "; pass the API key with --api-key"),
        (
            &["--api-key", "owner", "--channel", "none:{symbol}"],
            "all trades were refused, the last one with error 102",
        ),
    ] {
        let said = fails(
            Command::new(program())
                .args(["feed", &to, "-d", "300ms"])
                .args(args),
            1,
        );
        assert!(said.contains(expect), "{said}");
    }
    let path = format!("{to}/nothing");
    let said = fails(
        Command::new(program()).args(["feed", &path, "--api-key", "owner"]),
        1,
    );
    assert!(said.contains("; no such endpoint"), "{said}");
    proxy.server.terminate();
}

#[test]
fn a_feed_resumes_after_a_restart_of_the_push_server() {
    let reserved = Reserved::new();
    let listen = reserved.addr().to_string();
    let text = file(&listen, "");
    let proxy = Proxy::start(&text, &[]);
    let to = format!("http://{listen}");
    let mut feed = feed(&[&to, "--symbols", "1", "-r", "100", "--api-key", "owner"]);
    let mut subscriber = Subscriber::to(proxy.addr(), &["market:ARDN"]);
    let before = subscriber.publication().1["n"].as_u64().expect("a number");
    drop(subscriber);
    proxy.server.terminate();
    feed.wait_for("; reconnecting");
    let proxy = Proxy::start(&text, &[]);
    feed.wait_for("reconnected");
    let mut subscriber = Subscriber::to(proxy.addr(), &["market:ARDN"]);
    let after = subscriber.publication().1["n"].as_u64().expect("a number");
    assert!(after > before, "{after} after {before}");
    let said = interrupted(feed);
    assert!(said.contains("; connection lost 1 time"), "{said}");
    proxy.server.terminate();
}

#[test]
fn ctrl_c_stops_a_feed_that_connects() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("nats://{}", silent.local_addr().expect("an address"));
    let feed = feed(&[&to]);
    // Signals are handled before it connects, and the server sends no greeting.
    let (_silent, _) = silent.accept().expect("a connection");
    feed.signal(Signal::INT);
    let (status, said) = feed.finish();
    assert_eq!((status.code(), said.len()), (Some(0), 0), "{said:#?}");
}

fn lines(path: &Path, more: &[&str]) -> Vec<String> {
    let out = fs::File::create(path).expect("a file");
    let mut command = Command::new(program());
    command
        .args(["feed", "-q", "-r", "1k", "-d", "200ms", "--seed", "5"])
        .args(more)
        .stdout(out);
    let status = command.status().expect("it runs");
    assert_eq!(status.code(), Some(0));
    let text = fs::read_to_string(path).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn standard_output_is_json_and_reproducible_by_seed() {
    let folder = Directory::new();
    let (one, two) = (lines(&folder.join("a"), &[]), lines(&folder.join("b"), &[]));
    assert_eq!(one.len(), 200);
    assert_eq!(one, two);
    for (number, line) in one.iter().enumerate() {
        let trade: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(trade["n"], number);
    }
    let sized = lines(&folder.join("c"), &["--size", "500"]);
    assert!(sized.iter().all(|line| line.len() == 500), "{}", sized[0]);
}

/// Its standard output is the test's to read.
fn piped(args: &[&str]) -> Child {
    let mut command = Command::new(program());
    command.arg("feed").args(args).stdin(Stdio::null());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().expect("it starts")
}

#[test]
fn unread_trades_are_skipped() {
    let mut child = piped(&["-r", "100k", "-s", "1k", "-d", "1500ms"]);
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let first = said.next().expect("a line").expect("text");
    let expect = "trades per second of 20 shares to standard output, seed ";
    assert!(first.contains(expect), "{first}");
    let last = said.next().expect("a line").expect("text");
    assert!(
        last.contains("skipped: the receiver, or this host, is too slow"),
        "{last}"
    );
    assert_eq!(common::wait_end(&mut child).code(), Some(0));
}

#[test]
fn a_reader_that_leaves_ends_it() {
    let mut child = piped(&["-q", "-r", "1k"]);
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    reader.read_line(&mut line).expect("a line");
    assert!(line.starts_with("{\"symbol\":"), "{line}");
    drop(reader);
    assert_eq!(common::wait_end(&mut child).code(), Some(0));
}

#[test]
fn invalid_receivers_are_refused() {
    let reserved = Reserved::new();
    let silent = format!("nats://{}", reserved.addr());
    for (args, code, expect) in [
        (&["feed", "ftp://a"][..], 2, "expected"),
        (
            &["feed", "https://a"],
            2,
            "expected -, nats://HOST, tls://HOST or http://HOST",
        ),
        (
            &["feed", "nats://"],
            2,
            "expected nats://[USER:PASSWORD@]HOST[:PORT]",
        ),
        (
            &["feed", "nats://a:b"],
            2,
            "expected nats://[USER:PASSWORD@]HOST[:PORT]",
        ),
        (&["feed", "-r", "0"], 2, "expected trades per second"),
        (&["feed", "--symbols", "0"], 2, "from 1 to 100000"),
        (&["feed", "--distribution", "even"], 2, "zipf, uniform"),
        (&["feed", &silent], 1, "refused"),
    ] {
        let said = fails(Command::new(program()).args(args), code);
        assert!(said.contains(expect), "{args:?}: {said}");
    }
}
