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
    _directory: Directory,
}

impl Server {
    fn start(listen: &Reserved, other: &Reserved) -> Server {
        let directory = Directory::new();
        let text = format!(
            "listen: 127.0.0.1:0
push:
  anonymous: true
  api_key: key
  channels: {{retention: {{publications: 10, time: 1m}}, presence: true, recovery: true}}
  cluster: {{listen: '{}', nodes: '{}'}}
routes: {{live: {{rules: [{{match: /, push: true}}]}}}}
",
            listen.addr(),
            other.addr()
        );
        let mut program = start(&directory.file(&text), "");
        let address = program.listening();
        Server {
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
    let first = Server::start(&first_port, &second_port);
    let second = Server::start(&second_port, &first_port);
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
