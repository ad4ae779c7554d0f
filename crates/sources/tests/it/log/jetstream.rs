//! A stream of JetStream as a log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ringmain_cluster::log::{AppendOutcome, FollowFrom, LogRequest, Partition};
use ringmain_gateway::model::{JetStreamLog, NatsAccess, NatsLogin, NatsServer, PushLogEngine};
use ringmain_testkit::PATIENCE;
use ringmain_testkit::folder::Folder;
use ringmain_testkit::port::Reserved;
use ringmain_testkit::servers::Nats;
use ringmain_testkit::wait;
use serde_json::Value;

use super::{Node, all, contents};

const FROM_START: FollowFrom = FollowFrom::Number(0);

/// A server with its folder, at a port that it keeps.
struct Server {
    name: &'static str,
    folder: Folder,
    port: Reserved,
    /// For the other servers of its cluster.
    route: Reserved,
    routes: Vec<String>,
    running: Option<Nats>,
}

impl Server {
    fn new(name: &'static str) -> Server {
        Server {
            name,
            folder: Folder::new(),
            port: Reserved::new(),
            route: Reserved::new(),
            routes: Vec::new(),
            running: None,
        }
    }

    /// Kills it if it runs, and starts it with its folder. `None`: it is not installed here.
    fn restart(&mut self) -> Option<()> {
        self.running = None;
        let store = self.folder.path().display().to_string();
        let mut arguments = vec!["-js".to_owned(), "-sd".to_owned(), store];
        if !self.routes.is_empty() {
            let listen = format!("nats://127.0.0.1:{}", self.route.port());
            for (name, value) in [
                ("-n", self.name.to_owned()),
                ("-cluster_name", "tests".to_owned()),
                ("-cluster", listen),
                ("-routes", self.routes.join(",")),
            ] {
                arguments.extend([name.to_owned(), value]);
            }
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.running = Some(Nats::start(Some(self.port.port()), &arguments)?);
        Some(())
    }

    /// Sends a request. Returns the response, unless there is none.
    fn request(&self, subject: &str, payload: &str) -> Option<Value> {
        self.request_within(PATIENCE, subject, payload)
    }

    fn request_within(&self, time: Duration, subject: &str, payload: &str) -> Option<Value> {
        let stream = TcpStream::connect(("127.0.0.1", self.port.port())).ok()?;
        stream.set_read_timeout(Some(time)).ok()?;
        let commands = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n{payload}\r\n",
            payload.len()
        );
        (&stream).write_all(commands.as_bytes()).ok()?;
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.find(|line| line.starts_with("MSG "))?;
        serde_json::from_str(&lines.next()?).ok()
    }
}

fn start() -> Option<Server> {
    let mut server = Server::new("one");
    server.restart()?;
    Some(server)
}

fn engine(servers: &[&Server], replicas: u16) -> PushLogEngine {
    let ports: Vec<u16> = servers.iter().map(|server| server.port.port()).collect();
    engine_at(&ports, replicas)
}

fn engine_at(ports: &[u16], replicas: u16) -> PushLogEngine {
    PushLogEngine::JetStream(JetStreamLog {
        access: NatsAccess {
            servers: ports
                .iter()
                .map(|port| NatsServer {
                    host: "127.0.0.1".into(),
                    port: *port,
                    tls: false,
                })
                .collect(),
            login: NatsLogin::Anonymous,
            tls: None,
        },
        stream: "LOG".into(),
        prefix: "log".into(),
        replicas,
    })
}

fn number(outcome: &AppendOutcome) -> u64 {
    match outcome {
        AppendOutcome::Appended(number) => *number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn entries_are_acknowledged_and_read_by_all_nodes_with_the_same_numbers() {
    let Some(server) = start() else { return };
    let (mut one, mut other) = (Node::new(engine(&[&server], 1)), Node::new(engine(&[&server], 1)));
    let opened = one.open(0, FROM_START);
    assert_eq!((opened.first, opened.end, opened.from), (1, 0, 1));
    one.append_all(0, 0..1000);
    other.append_all(1, 1000..2000);
    for node in [&mut one, &mut other] {
        node.until("all outcomes", |node| node.outcomes.len() == 1000);
    }
    let same = other.open(0, FROM_START);
    assert_eq!(same.binding, opened.binding);
    let numbers: Vec<u64> = one.outcomes.values().map(number).collect();
    for node in [&mut one, &mut other] {
        node.until_content(0, 999);
        assert_eq!(node.contents(0), all(0..1000));
        let read = node.records[&Partition(0)].iter().map(|record| record.number);
        assert!(
            read.eq(numbers.iter().copied()),
            "numbers are those that were acknowledged"
        );
    }
    one.open(1, FROM_START);
    one.until_content(1, 1999);
    assert_eq!(one.contents(1), all(1000..2000));
}

#[test]
fn reading_begins_with_the_requested_number_or_with_recent_records() {
    let Some(server) = start() else { return };
    let mut node = Node::new(engine(&[&server], 1));
    node.append_all(0, 0..10);
    node.append_all(1, 100..110);
    node.until("all outcomes", |node| node.outcomes.len() == 20);
    let fifth = number(&node.outcomes[&5]);
    let opened = node.open(0, FollowFrom::Number(fifth));
    assert_eq!((opened.from, opened.end), (fifth, number(&node.outcomes[&9])));
    node.until_content(0, 9);
    assert_eq!(node.contents(0), all(5..10));
    let opened = node.open(0, FollowFrom::Recent(Duration::from_secs(300)));
    assert_eq!((opened.first, opened.from), (1, 1));
    node.until_content(0, 9);
    assert_eq!(node.contents(0), all(0..10));
    let opened = node.open(0, FollowFrom::Recent(Duration::ZERO));
    assert_eq!(opened.from, opened.end + 1, "the next record");
    let tail = |bytes| LogRequest::Tail {
        partition: Partition(0),
        before: fifth,
        bytes,
    };
    node.request(vec![tail(1)]);
    node.until("a part", |node| node.older.len() == 1);
    let (_, from, records, is_first) = &node.older[0];
    assert_eq!((contents(records), *is_first), (vec![4], false));
    assert_eq!(*from, records[0].number);
    node.request(vec![tail(1 << 20)]);
    node.until("the rest", |node| node.older.len() == 2);
    let (_, _, records, is_first) = &node.older[1];
    assert_eq!((contents(records), *is_first), (all(0..5), true));
    node.request(vec![
        LogRequest::Unfollow {
            partition: Partition(0),
        },
        tail(1),
    ]);
    node.until_closed(0);
}

/// Copies the commands of a client to a server, without requests for messages that do not wait for some: those for older ones.
fn drop_fetches(client: &TcpStream, server: &TcpStream) -> Option<()> {
    let mut commands = BufReader::new(client);
    loop {
        let mut frame = Vec::new();
        if commands.read_until(b'\n', &mut frame).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&frame).into_owned();
        if line.starts_with("PUB ") || line.starts_with("HPUB ") {
            let length: usize = line.split_whitespace().next_back()?.parse().ok()?;
            let start = frame.len();
            frame.resize(start + length + 2, 0);
            commands.read_exact(&mut frame[start..]).ok()?;
        }
        let is_fetch = line.contains(".CONSUMER.MSG.NEXT.")
            && String::from_utf8_lossy(&frame).contains("\"no_wait\":true");
        if !is_fetch {
            let mut server = server;
            server.write_all(&frame).ok()?;
        }
    }
}

/// Relays one connection after the other to a server, through [`drop_fetches`].
#[expect(clippy::disallowed_methods, reason = "a relay for a real broker")]
fn relay_without_fetches(server: &Server) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let (port, server) = (listener.local_addr().expect("bound").port(), server.port.port());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                return;
            };
            let (mut from, mut to) = (
                server.try_clone().expect("a socket"),
                client.try_clone().expect("a socket"),
            );
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || drop_fetches(&client, &server));
        }
    });
    port
}

#[test]
fn older_messages_that_do_not_arrive_are_not_the_end_of_the_log() {
    let Some(server) = start() else { return };
    let mut writer = Node::new(engine(&[&server], 1));
    writer.append_all(0, 0..10);
    writer.until("all outcomes", |node| node.outcomes.len() == 10);
    let fifth = number(&writer.outcomes[&5]);
    let mut node = Node::new(engine_at(&[relay_without_fetches(&server)], 1));
    node.open(0, FollowFrom::Number(fifth));
    node.until_content(0, 9);
    node.request(vec![LogRequest::Tail {
        partition: Partition(0),
        before: fifth,
        bytes: 1 << 20,
    }]);
    node.until("a reply", |node| {
        !node.closed.is_empty() || !node.older.is_empty()
    });
    assert_eq!(node.closed, [Partition(0)], "{:?}", node.older);
}

#[test]
fn a_message_above_the_size_of_the_stream_is_refused_alone() {
    let Some(server) = start() else { return };
    let config = r#"{"name":"LOG","subjects":["log.*"],"max_age":600000000000,"storage":"file","num_replicas":1,"retention":"limits","discard":"old","max_msg_size":1000}"#;
    server
        .request("$JS.API.STREAM.CREATE.LOG", config)
        .expect("a response");
    let mut node = Node::new(engine(&[&server], 1));
    node.open(0, FROM_START);
    node.append_until_done(0, 1);
    let larger = node.append_bytes(0, vec![0; 2000]);
    assert_eq!(node.outcome(larger), AppendOutcome::Refused);
    node.append_until_done(0, 2);
    node.until_content(0, 2);
    let is_connected: Vec<bool> = node.health.iter().map(|health| health.is_connected).collect();
    assert_eq!(is_connected, [true], "others are accepted");
}

#[test]
fn a_subject_that_is_empty_begins_above_the_messages_of_others() {
    let Some(server) = start() else { return };
    let mut node = Node::new(engine(&[&server], 1));
    node.append_all(1, 0..10);
    node.until("all outcomes", |node| node.outcomes.len() == 10);
    // The retention has deleted them.
    server
        .request("$JS.API.STREAM.PURGE.LOG", r#"{"seq":8}"#)
        .expect("a response");
    for from in [FROM_START, FollowFrom::Recent(Duration::from_secs(300))] {
        let opened = node.open(0, from);
        assert_eq!((opened.first, opened.end, opened.from), (8, 7, 8), "{from:?}");
    }
    node.append_until_done(0, 7);
    node.until_content(0, 7);
}

#[test]
fn a_key_is_appended_once() {
    let Some(server) = start() else { return };
    let mut node = Node::new(engine(&[&server], 1));
    node.open(0, FROM_START);
    let first = node.append_once(0, 1, "a");
    let number = number(&node.outcome(first));
    let again = node.append_once(0, 2, "a");
    assert_eq!(node.outcome(again), AppendOutcome::Repeated(number));
    let other = node.append_once(0, 3, "b");
    node.outcome(other);
    node.until_content(0, 3);
    assert_eq!(node.contents(0), [1, 3]);
}

#[test]
fn a_server_that_is_killed_has_the_same_stream_when_it_is_back() {
    let Some(mut server) = start() else { return };
    let mut node = Node::new(engine(&[&server], 1));
    let before = node.open(0, FROM_START);
    let number = node.append_until_done(0, 1);
    node.until_content(0, 1);
    server.running = None;
    node.until_closed(0);
    assert!(!node.health.last().expect("health").is_connected);
    let lost = node.append(0, 2);
    let outcome = node.outcome(lost);
    assert!(
        matches!(outcome, AppendOutcome::Refused | AppendOutcome::Unknown),
        "{outcome:?}"
    );
    server.restart();
    let after = node.open(0, FollowFrom::Number(number));
    assert_eq!((after.binding, after.from), (before.binding, number));
    node.append_until_done(0, 3);
    node.until_content(0, 3);
    assert_eq!(
        node.contents(0).first(),
        Some(&1),
        "the requested number is included"
    );
    assert!(node.health.last().expect("health").is_connected);
}

#[test]
fn a_stream_that_is_created_again_is_another_state() {
    let Some(server) = start() else { return };
    let mut node = Node::new(engine(&[&server], 1));
    let before = node.open(0, FROM_START);
    node.append_until_done(0, 1);
    server
        .request("$JS.API.STREAM.DELETE.LOG", "")
        .expect("a response");
    node.until_closed(0);
    let after = node.open(0, FROM_START);
    assert_ne!(after.binding, before.binding);
    assert_eq!(after.end, 0);
    node.append_until_done(0, 2);
    node.until_content(0, 2);
    assert_eq!(node.contents(0), [2]);
}

#[test]
fn a_stream_of_another_subject_is_refused() {
    let Some(server) = start() else { return };
    let config = r#"{"name":"LOG","subjects":["other.>"],"storage":"file"}"#;
    server
        .request("$JS.API.STREAM.CREATE.LOG", config)
        .expect("a response");
    let mut node = Node::new(engine(&[&server], 1));
    node.until("a reason", |node| {
        let health = node.health.last();
        health.is_some_and(|health| {
            !health.is_connected && health.reason.contains("stream LOG has no subject log.0")
        })
    });
    let append = node.append(0, 1);
    assert_eq!(node.outcome(append), AppendOutcome::Refused);
}

#[test]
fn an_entry_above_the_limit_of_the_server_is_refused_alone() {
    let Some(server) = start() else { return };
    let mut node = Node::new(engine(&[&server], 1));
    node.open(0, FROM_START);
    node.append_until_done(0, 0);
    let appends = node.append_all(0, 1..3);
    let large = node.append_bytes(0, vec![0; 2 << 20]);
    node.append_all(0, 3..5);
    assert_eq!(node.outcome(large), AppendOutcome::Refused);
    node.until("the others", |node| node.outcomes.len() as u64 == large + 3);
    for append in [appends, large - 1, large + 1, large + 2] {
        number(&node.outcomes[&append]);
    }
    node.until_content(0, 4);
    assert_eq!(node.contents(0), all(0..5));
    assert_eq!((node.closed.len(), node.opened.len()), (0, 1), "it remains open");
}

#[test]
fn outcomes_are_reported_in_time_if_nothing_is_acknowledged() {
    const APPENDS: u64 = 100;
    let Some(server) = start() else { return };
    let config = r#"{"name":"LOG","subjects":["log.*"],"storage":"file","no_ack":true}"#;
    server
        .request("$JS.API.STREAM.CREATE.LOG", config)
        .expect("a response");
    let mut node = Node::new(engine(&[&server], 1));
    node.open(0, FROM_START);
    // One after the other they would take longer than this waits.
    node.append_all(0, 0..APPENDS);
    node.until("all outcomes", |node| node.outcomes.len() as u64 == APPENDS);
    assert!(
        node.outcomes
            .values()
            .all(|outcome| *outcome == AppendOutcome::Unknown)
    );
    node.until_content(0, APPENDS - 1);
}

#[test]
fn acknowledged_entries_survive_the_leader_of_three_servers() {
    let mut servers = [Server::new("one"), Server::new("two"), Server::new("three")];
    let routes: Vec<String> = servers
        .iter()
        .map(|server| format!("nats://127.0.0.1:{}", server.route.port()))
        .collect();
    for server in &mut servers {
        server.routes.clone_from(&routes);
        if server.restart().is_none() {
            return;
        }
    }
    wait::until("a cluster", || {
        // Nothing responds before there is a leader.
        let info = servers[0].request_within(Duration::from_millis(500), "$JS.API.INFO", "");
        info.is_some_and(|info| info["error"].is_null())
    });
    let mut node = Node::new(engine(&[&servers[0], &servers[1], &servers[2]], 3));
    node.open(0, FROM_START);
    node.append_all(0, 0..2000);
    node.until("some outcomes", |node| node.outcomes.len() >= 500);
    let info = servers[0]
        .request("$JS.API.STREAM.INFO.LOG", "")
        .expect("a response");
    let leader = info["cluster"]["leader"].as_str().expect("a leader").to_owned();
    let index = servers
        .iter()
        .position(|server| server.name == leader)
        .expect("one of three");
    node.append_all(0, 2000..4000);
    servers[index].running = None;
    let mut content = 4000;
    loop {
        content += 1;
        let append = node.append(0, content);
        if matches!(node.outcome(append), AppendOutcome::Appended(_)) {
            break;
        }
    }
    node.until("all outcomes", |node| {
        (0..4000).all(|append| node.outcomes.contains_key(&append))
    });
    wait::until("an open partition", || {
        node.turn();
        if node.closed.pop().is_some() {
            node.follow(0, FROM_START);
        }
        node.contents(0).last() == Some(&content)
    });
    let received = node.contents(0);
    let lost: Vec<u64> = (0..4000)
        .filter(|content| {
            let is_acknowledged = matches!(node.outcomes[content], AppendOutcome::Appended(_));
            is_acknowledged && received.binary_search(content).is_err()
        })
        .collect();
    assert_eq!(lost, [0; 0]);
}
