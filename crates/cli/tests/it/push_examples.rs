//! The examples of sources, `examples/push-*.yaml`, each with a real broker: records that programs write arrive at a client.
//!
//! Only the ports differ from the files. Kafka's is run by `cargo xtask suite sources`, as are the tutorials.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

use ringmain_testkit::redis::DurableRedis;
use ringmain_testkit::servers::{Nats, Postgres};
use ringmain_testkit::subscriber::Subscriber;
use ringmain_testkit::wait;
use serde_json::json;

use crate::common::{Directory, PATIENCE, Server, program};
use crate::proxy::until;

/// `ringmain run` with an example.
struct Example {
    _server: Server,
    _folder: Directory,
    addr: String,
    admin: String,
}

impl Example {
    /// Starts it with the broker at this port in place of the file's, and waits until all of its sources deliver.
    #[track_caller]
    fn start(text: &str, port: u16, broker_port: u16, variables: &[(&str, &str)]) -> Example {
        let mut text = text.to_owned();
        for (from, to) in [(8080, 0), (9901, 0), (port, broker_port)] {
            let (from, to) = (format!("127.0.0.1:{from}"), format!("127.0.0.1:{to}"));
            let settings = text.lines().filter(|line| !line.starts_with('#'));
            assert!(
                settings.clone().any(|line| line.contains(&from)),
                "no {from} in {text}"
            );
            text = settings.map(|line| line.replace(&from, &to) + "\n").collect();
        }
        let folder = Directory::new();
        let file = folder.file("example.yaml", text);
        let mut command = Command::new(program());
        command.arg("run").arg(file).envs(variables.iter().copied());
        let (server, addrs) = Server::start(&mut command, 1);
        let mut said = server.said.iter();
        let admin = said.find_map(|line| line.split_once("administration at "));
        let (_, admin) = admin.expect("an address");
        let example = Example {
            addr: addrs[0].clone(),
            admin: admin.to_owned(),
            _server: server,
            _folder: folder,
        };
        until(&example.admin, "localhost", "/readyz", |answer| {
            answer.status == 200
        });
        example
    }

    /// Waits until a metric of a source has this value.
    #[track_caller]
    fn until_metric(&self, name: &str, labels: &str, value: u32) {
        let line = format!("\n{name}{{{labels}}} {value}\n");
        until(&self.admin, "localhost", "/metrics", |answer| {
            answer.body.contains(&line)
        });
    }

    fn subscribe(&self, channels: &[&str]) -> Subscriber {
        Subscriber::to(&self.addr, channels)
    }
}

#[test]
fn redis_example_delivers_entries_and_messages() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let text = include_str!("../../../../examples/push-redis.yaml");
    let example = Example::start(text, 6379, redis.port(), &[]);
    let mut client = example.subscribe(&["orders:7", "ticks:ARDN"]);
    let add = |data| redis.call(&["XADD", "orders", "*", "channel", "orders:7", "data", data]);
    add(r#"{"state":"paid"}"#);
    assert_eq!(
        client.publication(),
        ("orders:7".to_owned(), json!({"state": "paid"}))
    );
    redis.call(&["PUBLISH", "ticks.ARDN", r#"{"bid":101}"#]);
    assert_eq!(
        client.publication(),
        ("ticks:ARDN".to_owned(), json!({"bid": 101}))
    );
    // A dead letter does not hold up the entries behind it.
    add("not JSON");
    add(r#"{"state":"shipped"}"#);
    assert_eq!(
        client.publication(),
        ("orders:7".to_owned(), json!({"state": "shipped"}))
    );
    wait::until("the dead letter in its stream", || {
        format!("{:?}", redis.call(&["XRANGE", "rejected", "-", "+"])).contains("not JSON")
    });
}

#[test]
fn nats_example_delivers_messages() {
    let Some(nats) = Nats::start(None, &[]) else {
        return;
    };
    let text = include_str!("../../../../examples/push-nats.yaml");
    let example = Example::start(text, 4222, nats.port, &[]);
    let mut client = example.subscribe(&["market:ARDN"]);
    nats.publish(&[("market.ARDN", "not JSON"), ("market.ARDN", r#"{"bid":101}"#)]);
    assert_eq!(
        client.publication(),
        ("market:ARDN".to_owned(), json!({"bid": 101}))
    );
    let labels = r#"consumer="market",reason="not_json""#;
    example.until_metric("ringmain_push_nats_dropped_total", labels, 1);
}

/// A connection to NATS that has subscribed, and received the response to a request there.
struct Inbox(BufReader<TcpStream>);

impl Inbox {
    /// With the response, which is of one line.
    fn request(nats: &Nats, subscription: &str, subject: &str, request: &str) -> (Inbox, String) {
        let stream = TcpStream::connect(("127.0.0.1", nats.port)).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let (length, reply) = (request.len(), subscription.replace('>', "reply"));
        let commands = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB {subscription} 1\r\nPUB {subject} {reply} {length}\r\n{request}\r\n"
        );
        (&stream).write_all(commands.as_bytes()).expect("a connection");
        let mut inbox = Inbox(BufReader::new(stream));
        let response = inbox.receive();
        (inbox, response)
    }

    /// Returns the payload of the next message, of one line.
    fn receive(&mut self) -> String {
        let mut lines = (&mut self.0).lines().map(|line| line.expect("a line"));
        lines
            .find(|line| line.starts_with("MSG ") || line.starts_with("HMSG "))
            .expect("a message");
        let mut payload = lines.next().expect("a payload");
        // Headers end with an empty line.
        if payload.starts_with("NATS/1.0") {
            lines.find(String::is_empty).expect("the end of the headers");
            payload = lines.next().expect("a payload");
        }
        payload
    }
}

#[test]
fn jetstream_example_delivers_messages() {
    let store = Directory::new();
    let path = store.path().display().to_string();
    let Some(nats) = Nats::start(None, &["-js", "-sd", &path]) else {
        return;
    };
    let config = r#"{"name":"PRICES","subjects":["prices.>"],"storage":"file"}"#;
    let (mut rejected, created) = Inbox::request(&nats, "rejected.>", "$JS.API.STREAM.CREATE.PRICES", config);
    assert!(!created.contains("\"error\""), "{created}");
    // Before the first message of a channel, a client is notified once that it must subscribe again.
    nats.publish(&[("prices.ARDN", r#"{"bid":101}"#)]);
    let text = include_str!("../../../../examples/push-jetstream.yaml");
    let example = Example::start(text, 4222, nats.port, &[]);
    let labels = r#"source="prices",kind="jetstream""#;
    example.until_metric("ringmain_push_source_published_total", labels, 1);
    let mut client = example.subscribe(&["prices:ARDN"]);
    nats.publish(&[("prices.ARDN", "not JSON"), ("prices.ARDN", r#"{"bid":102}"#)]);
    assert_eq!(
        client.publication(),
        ("prices:ARDN".to_owned(), json!({"bid": 102}))
    );
    assert_eq!(rejected.receive(), "not JSON");
}

#[test]
fn postgres_example_delivers_committed_rows() {
    const ACCESS: &[u8] = b"host all ringmain 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    let Some(postgres) = Postgres::start(&[("pg_hba.conf", ACCESS)], &[]) else {
        return;
    };
    let mut shop = postgres.connect();
    shop.run("CREATE DATABASE shop;\n\\connect shop");
    shop.run(include_str!("../../../../docs/outbox.sql"));
    shop.run(
        "CREATE ROLE ringmain LOGIN PASSWORD 'secret';\n\
         GRANT SELECT, UPDATE, DELETE ON ringmain_outbox TO ringmain;\n\
         GRANT INSERT ON ringmain_outbox_dead TO ringmain;",
    );
    let text = include_str!("../../../../examples/push-postgres.yaml");
    let example = Example::start(text, 5432, postgres.port(), &[("PGPASSWORD", "secret")]);
    let mut client = example.subscribe(&["orders:7"]);
    shop.run(
        "BEGIN;\nINSERT INTO ringmain_outbox (channel, data) VALUES ('orders:7', '{\"state\": \"lost\"}');\nROLLBACK;\n\
         BEGIN;\nINSERT INTO ringmain_outbox (channel, data) VALUES ('orders:7', '{\"state\": \"paid\"}');\nCOMMIT;",
    );
    assert_eq!(
        client.publication(),
        ("orders:7".to_owned(), json!({"state": "paid"}))
    );
    shop.run("INSERT INTO ringmain_outbox (data) VALUES ('{\"state\": \"without a channel\"}');");
    wait::until("the dead letter in its table, and no row left", || {
        shop.run("SELECT reason FROM ringmain_outbox_dead; SELECT count(*) FROM ringmain_outbox;")
            == ["no_channel", "0"]
    });
}
