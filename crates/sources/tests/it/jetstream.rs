//! JetStream with a real server, whatever version the machine has.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use ringmain_gateway::model::{
    JetStream, NatsAccess, NatsLogin, NatsServer, Source, SourceKind, StartPosition,
};
use ringmain_testkit::PATIENCE;
use ringmain_testkit::folder::Folder;
use ringmain_testkit::port::Reserved;
use ringmain_testkit::servers::Nats;
use serde_json::Value;

use crate::support::{Node, source};

const STREAM: &str = "PRICES";

/// A server whose streams are in a folder, at a port that it keeps when it is started again. `None`: it is not installed here.
struct Server {
    folder: Folder,
    port: Reserved,
    running: Option<Nats>,
}

impl Server {
    fn start() -> Option<Server> {
        let mut server = Server {
            folder: Folder::new(),
            port: Reserved::new(),
            running: None,
        };
        server.restart()?;
        server.request(
            &format!("$JS.API.STREAM.CREATE.{STREAM}"),
            &format!(r#"{{"name":"{STREAM}","subjects":["prices.>"],"storage":"file"}}"#),
        );
        Some(server)
    }

    /// Kills the server, and starts another one with its folder.
    fn restart(&mut self) -> Option<()> {
        self.running = None;
        let store = self.folder.path().display().to_string();
        self.running = Some(Nats::start(Some(self.port.port()), &["-js", "-sd", &store])?);
        Some(())
    }

    /// Publishes, and returns the first response.
    fn request(&self, subject: &str, payload: &str) -> Value {
        let stream = TcpStream::connect(("127.0.0.1", self.port.port())).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let commands = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n{payload}\r\n",
            payload.len()
        );
        (&stream).write_all(commands.as_bytes()).expect("a connection");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
        lines.find(|line| line.starts_with("MSG ")).expect("a response");
        let response: Value = serde_json::from_str(&lines.next().expect("a payload")).expect("JSON");
        assert!(response["error"].is_null(), "{response}");
        response
    }

    fn publish(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.request("prices.a", &number.to_string());
        }
    }

    fn source(&self, durable: Option<&str>) -> Source {
        let kind = JetStream {
            access: NatsAccess {
                servers: vec![NatsServer {
                    host: "127.0.0.1".into(),
                    port: self.port.port(),
                    tls: false,
                }],
                login: NatsLogin::Anonymous,
                tls: None,
            },
            stream: STREAM.into(),
            subjects: Vec::new(),
            durable: durable.map(Arc::from),
            start: StartPosition::Latest,
        };
        source(SourceKind::JetStream(kind), "{2}")
    }
}

/// Publishes while the server is restarted: everything arrives once, in order.
fn survives_a_restart(durable: Option<&str>) {
    let Some(mut server) = Server::start() else {
        return;
    };
    let mut node = Node::new();
    node.subscribe(&["a"]);
    node.follow(&[("prices", &server.source(durable))]);
    node.until("the source delivers", |node| node.report().delivers);
    server.publish(0..50);
    node.until_received(50);
    server.restart();
    server.publish(50..100);
    node.until_received(100);
    assert_eq!(node.numbers("a"), (0..100).collect::<Vec<_>>());
    node.until("all are done", |node| node.report().published >= 100);
    let report = node.report();
    assert_eq!((report.published, report.gaps), (100, 0), "{report:?}");
}

#[test]
fn an_ordered_consumer_continues_after_a_restart_of_the_server() {
    survives_a_restart(None);
}

#[test]
fn a_durable_consumer_continues_after_a_restart_of_the_server() {
    survives_a_restart(Some("node"));
}

#[test]
fn what_was_published_without_a_source_is_delivered_by_the_durable_consumer() {
    let Some(server) = Server::start() else { return };
    let mut node = Node::new();
    node.subscribe(&["a"]);
    let source = server.source(Some("node"));
    node.follow(&[("prices", &source)]);
    node.until("the source delivers", |node| node.report().delivers);
    server.publish(0..20);
    node.until_received(20);
    node.until("all are acknowledged", |node| node.report().commits == 20);
    node.end_sources();
    server.publish(20..40);
    node.follow(&[("prices", &source)]);
    node.until_received(40);
    assert_eq!(node.numbers("a"), (0..40).collect::<Vec<_>>());
}

#[test]
fn messages_that_are_no_json_are_dead_letters() {
    let Some(server) = Server::start() else { return };
    let mut node = Node::new();
    node.subscribe(&["a"]);
    node.follow(&[("prices", &server.source(Some("node")))]);
    node.until("the source delivers", |node| node.report().delivers);
    server.request("prices.a", "{");
    server.publish(1..2);
    node.until_received(1);
    node.until("all are acknowledged", |node| node.report().commits == 2);
    assert_eq!(node.report().dead.iter().sum::<u64>(), 1);
}

#[test]
fn dead_letters_for_the_stream_that_is_read_are_refused() {
    let Some(server) = Server::start() else { return };
    let mut node = Node::new();
    let mut source = server.source(Some("node"));
    source.mapping.dead_letters = Some("prices.dead".into());
    server.request("prices.a", "{");
    node.follow(&[("prices", &source)]);
    node.until("a failure", |node| node.report().failures > 0);
    let report = node.report();
    assert_eq!((report.delivers, report.records), (false, 0), "{report:?}");
}

#[test]
fn dead_letters_wait_for_their_stream_and_hold_up_nothing() {
    let Some(mut server) = Server::start() else { return };
    let mut node = Node::new();
    node.subscribe(&["a"]);
    let mut source = server.source(Some("node"));
    source.mapping.dead_letters = Some("dead.prices".into());
    source.mapping.in_flight = 8;
    node.follow(&[("prices", &source)]);
    node.until("the source delivers", |node| node.report().delivers);
    // No stream has the subject.
    server.request("prices.a", "{");
    server.publish(0..100);
    node.until_received(100);
    node.until("a failure", |node| node.report().letters_fail);
    node.until("all others are acknowledged", |node| node.report().commits == 100);
    let report = node.report();
    assert_eq!(
        (report.letters_waiting, report.failures, report.paused),
        (1, 0, 0),
        "{report:?}"
    );
    // It is not forgotten with the connection.
    server.restart();
    node.until("a failure", |node| node.report().failures > 0);
    for _ in 0..7 {
        server.request("prices.a", "{");
    }
    node.until("the limit", |node| node.report().paused == 1);
    server.publish(100..110);
    server.request(
        "$JS.API.STREAM.CREATE.DEAD",
        r#"{"name":"DEAD","subjects":["dead.>"],"storage":"file"}"#,
    );
    node.until_received(110);
    node.until("the letters", |node| {
        let report = node.report();
        report.letters_waiting == 0 && !report.letters_fail
    });
    let info = server.request("$JS.API.STREAM.INFO.DEAD", "");
    assert_eq!(info["state"]["messages"], 8, "{info}");
    assert_eq!(node.numbers("a"), (0..110).collect::<Vec<_>>());
}
