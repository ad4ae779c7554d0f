//! Two processes, each with a configuration file, that share the channels of push.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of a real program have real threads and real time"
)]

use std::io::{Read, Write};
use std::net::TcpStream;

use ringmain_testkit::port::Reserved;
use ringmain_testkit::program::Program;
use ringmain_testkit::subscriber::Subscriber;
use ringmain_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::edge::program::{Directory, start};

/// The channels, enough that each node owns some.
const CHANNELS: usize = 32;

struct Server {
    program: Program,
    address: String,
    admin: String,
    _directory: Directory,
}

impl Server {
    fn start(name: &str, listen: &Reserved, other: &Reserved) -> Server {
        Server::start_with(name, listen, other, "")
    }

    /// Starts a node with more keys of `cluster`.
    fn start_with(name: &str, listen: &Reserved, other: &Reserved, keys: &str) -> Server {
        let directory = Directory::new();
        let text = format!(
            "listen: 127.0.0.1:0
admin: {{address: 127.0.0.1:0}}
limits: {{drain: 20s, drain_spread: 200ms}}
push:
  anonymous: true
  api_key: key
  channels: {{retention: {{publications: 10, time: 1m}}, presence: true, recovery: true}}
  cluster: {{listen: '{}', nodes: '{}', name: {name}{keys}}}
routes: {{live: {{rules: [{{match: /, push: true}}]}}}}
",
            listen.addr(),
            other.addr()
        );
        let mut program = start(&directory.file(&text), "");
        let address = program.listening();
        let line = program.line_with("administration at ");
        let (_, admin) = line.split_once("administration at ").expect("it was waited for");
        Server {
            admin: admin.to_owned(),
            program,
            address,
            _directory: directory,
        }
    }

    fn api(&self, method: &str, body: &Value) -> Option<Value> {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).expect("a server");
        let request = format!(
            "POST /api/{method} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-API-Key: key\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (_, body) = response.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// Returns the status and the body of a page of the administration.
    fn admin(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.admin).expect("an administration");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        (head[9..12].to_owned(), body.to_owned())
    }

    fn cluster_status(&self) -> Value {
        serde_json::from_str(&self.admin("/push-cluster").1).expect("JSON")
    }

    fn nodes(&self) -> usize {
        self.cluster_status()["nodes"].as_array().expect("nodes").len()
    }

    fn publish(&self, channel: &str, number: u32) {
        until("the owner publishes", || {
            let published = self.api("publish", &json!({"channel": channel, "data": number}));
            published.is_some_and(|published| published["result"]["offset"].is_u64())
        });
    }
}

#[test]
fn two_processes_share_channels_and_one_continues_alone() {
    let (first_port, second_port) = (Reserved::new(), Reserved::new());
    let first = Server::start("a", &first_port, &second_port);
    let second = Server::start("b", &second_port, &first_port);
    until("the nodes are linked", || {
        let reached = first.api("disconnect", &json!({"user": "u1"}));
        reached.is_some_and(|reached| reached["result"]["num_nodes"] == 2)
    });
    let names: Vec<String> = (0..CHANNELS).map(|number| format!("c{number}")).collect();
    let channels: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut subscriber = Subscriber::to(&second.address, &channels);
    for channel in &channels {
        first.publish(channel, 1);
        assert_eq!(subscriber.publication(), ((*channel).to_owned(), json!(1)));
        let presence = first.api("presence_stats", &json!({"channel": channel}));
        assert_eq!(presence.expect("a response")["result"]["num_clients"], 1);
    }

    first.program.signal(Signal::KILL);
    let push = subscriber.receive();
    assert_eq!(push["push"]["unsubscribe"]["code"], 2500, "{push}");
    let channel = push["push"]["channel"].as_str().expect("a channel").to_owned();
    let mut other = Subscriber::to(&second.address, &[&channel]);
    second.publish(&channel, 2);
    assert_eq!(other.publication(), (channel, json!(2)));
}

#[test]
fn a_node_that_stops_leaves_and_sends_its_clients_away() {
    let (first_port, second_port) = (Reserved::new(), Reserved::new());
    let first = Server::start("a", &first_port, &second_port);
    let second = Server::start("b", &second_port, &first_port);
    for server in [&first, &second] {
        until("the nodes are linked", || server.nodes() == 1);
    }
    let mut leaving = Subscriber::to(&first.address, &["news"]);
    let mut staying = Subscriber::to(&second.address, &["news"]);
    second.publish("news", 1);
    for subscriber in [&mut leaving, &mut staying] {
        assert_eq!(subscriber.publication(), ("news".to_owned(), json!(1)));
    }
    let listed = second.api("channels", &json!({})).expect("a response");
    let expected = json!({"channels": {"news": {"num_clients": 2}}, "num_nodes": 2, "num_missing_nodes": 0});
    assert_eq!(listed["result"], expected);

    first.program.signal(Signal::TERM);
    until("it is not ready", || first.admin("/readyz").0 == "503");
    assert_eq!(leaving.disconnect(), 3001);
    drop(leaving);
    let (status, lines) = first.program.finish();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.contains("this node has left")),
        "{lines:#?}"
    );
    until("the node is gone", || second.nodes() == 0);
    second.publish("news", 2);
    assert_eq!(staying.publication(), ("news".to_owned(), json!(2)));
}

#[test]
fn clients_move_to_a_node_that_has_joined() {
    const CLIENTS: u64 = 12;
    let (first_port, second_port) = (Reserved::new(), Reserved::new());
    let keys = ", rebalance: {above: 1.2, until: 1.05, rate: 20%}";
    let first = Server::start_with("a", &first_port, &second_port, keys);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| Some(Subscriber::to(&first.address, &[])))
        .collect();
    let second = Server::start_with("b", &second_port, &first_port, keys);
    let mut moved = Vec::new();
    until("both nodes have their share", || {
        for client in &mut clients {
            // As SDKs do: reconnect at once.
            if let Some(code) = client.as_mut().and_then(Subscriber::try_disconnect) {
                assert_eq!(code, 3011);
                *client = None;
                moved.push(Subscriber::to(&second.address, &[]));
            }
        }
        let here =
            [&first, &second].map(|server| server.cluster_status()["clients"].as_u64().expect("a number"));
        let has_share = |clients: u64| 10 * clients <= 12 * CLIENTS / 2;
        here.iter().sum::<u64>() == CLIENTS && here.into_iter().all(has_share)
    });
    until("each node knows the clients of the other", || {
        let [first, second] = [&first, &second].map(Server::cluster_status);
        first["nodes"][0]["clients"] == second["clients"] && second["nodes"][0]["clients"] == first["clients"]
    });
    assert_eq!(first.cluster_status()["name"], "a");
}

#[test]
fn roles_decide_about_clients_and_readiness() {
    let (first_port, second_port) = (Reserved::new(), Reserved::new());
    let gateway = Server::start_with("g", &first_port, &second_port, ", role: push-gateway");
    let (status, body) = gateway.admin("/readyz");
    assert_eq!(status, "503", "{body}");
    let server = Server::start_with("s", &second_port, &first_port, ", role: push-server");
    until("the gateway has a server", || gateway.admin("/readyz").0 == "200");
    let mut subscriber = Subscriber::to(&gateway.address, &["news"]);
    server.publish("news", 1);
    assert_eq!(subscriber.publication(), ("news".to_owned(), json!(1)));
    until("the server owns the channel, and the gateway mirrors it", || {
        let (gateway, server) = (gateway.cluster_status(), server.cluster_status());
        gateway["mirrors"] == 1 && gateway["owned_channels"] == 0 && server["owned_channels"] == 1
    });
    assert_eq!(server.cluster_status()["nodes"][0]["role"], "push-gateway");

    let mut stream = TcpStream::connect(&server.address).expect("a server");
    let request = "POST /connection/http_stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 21\r\n\r\n\
                   {\"id\":1,\"connect\":{}}";
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(
        response.starts_with("HTTP/1.1 503 ") && response.contains("push-server"),
        "{response}"
    );
}
