//! Publications as records of a broker: acknowledged, refused, and without an outcome.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_load::push::broker::{Acknowledgement, Broker, Producer, Record, Reports};
use ringmain_load::push::report::{Run, json, text};
use ringmain_load::push::{BrokerPlan, Plan};
use ringmain_load::report::text::Style;
use serde_json::Value;

use super::server::{Manner, Server, right};
use super::{ALL, all_right, fails, plan, run};

/// The behaviour of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Acknowledges all records.
    Right,
    /// The same, and a plain consumer reads them.
    Consumed,
    /// Refuses the records of the channel `test:3`, which no client receives.
    Refuses,
    /// Writes the records of the channel `test:3`, and does not acknowledge them.
    Silent,
    /// Cannot be used.
    Unreachable,
    /// Refuses every record.
    ReadOnly,
}

/// A broker in a thread that posts each record to a server, as a source of that server would read it.
#[derive(Debug)]
struct Fake {
    server: SocketAddr,
    behaviour: Behaviour,
}

impl Broker for Fake {
    fn url(&self) -> &str {
        "fake://broker/topic"
    }

    fn acknowledges(&self) -> &'static str {
        "at once"
    }

    fn start(&self, reports: Reports) -> io::Result<Box<dyn Producer>> {
        let (sender, receiver) = mpsc::channel();
        let (server, behaviour) = (self.server, self.behaviour);
        let thread = std::thread::spawn(move || write(server, behaviour, &receiver, &reports));
        Ok(Box::new(Handle {
            sender: Some(sender),
            thread: Some(thread),
        }))
    }
}

#[derive(Debug)]
struct Handle {
    sender: Option<Sender<Vec<Record>>>,
    thread: Option<JoinHandle<()>>,
}

impl Producer for Handle {
    fn send(&mut self, records: Vec<Record>) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(records);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.sender = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write(server: SocketAddr, behaviour: Behaviour, batches: &Receiver<Vec<Record>>, reports: &Reports) {
    if behaviour == Behaviour::Unreachable {
        return reports.failed("fake://broker/topic cannot be written to: no broker".into());
    }
    let stream = TcpStream::connect(server).expect("a server");
    let mut reader = BufReader::new(stream);
    for Record {
        token,
        channel,
        value,
    } in batches.iter().flatten()
    {
        let refused = match behaviour {
            Behaviour::ReadOnly => true,
            Behaviour::Refuses => channel == "test:3",
            _ => false,
        };
        if !refused {
            let body = publish(&channel, &value);
            post(&mut reader, &body);
        }
        if behaviour == Behaviour::Consumed {
            reports.consumed([&value[..]], Reports::now());
        }
        if behaviour != Behaviour::Silent || channel != "test:3" {
            reports.acknowledged([Acknowledgement {
                token,
                at: Reports::now(),
                refused: refused.then(|| "no room".to_owned()),
            }]);
        }
    }
}

/// The request that publishes a record: its value is the data, or a command that has it.
fn publish(channel: &str, value: &[u8]) -> String {
    let value: Value = serde_json::from_slice(value).expect("JSON");
    match value.get("method") {
        Some(method) => {
            assert_eq!(
                (method, &value["payload"]["channel"]),
                (&"publish".into(), &channel.into())
            );
            value["payload"].to_string()
        }
        None => serde_json::json!({"channel": channel, "data": value}).to_string(),
    }
}

fn post(reader: &mut BufReader<TcpStream>, body: &str) {
    let head = format!(
        "POST /api/publish HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let stream = reader.get_mut();
    stream.write_all((head + body).as_bytes()).expect("a connection");
    let mut length = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).expect("a response");
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
}

/// The plan of the other tests, with records instead of requests.
fn written(server: &Server, behaviour: Behaviour) -> Plan {
    let broker = Fake {
        server: server.addr,
        behaviour,
    };
    Plan {
        publishing: None,
        broker: Some(BrokerPlan {
            broker: Arc::new(broker),
            commands: false,
        }),
        ..plan(server)
    }
}

#[track_caller]
fn document(run: &Run) -> Value {
    serde_json::from_str(&json::run(run, "test", &[])).expect("JSON")
}

#[test]
fn records_are_counted_from_their_acknowledgements() {
    let server = Server::new(Manner::Right, right);
    let run = run(written(&server, Behaviour::Right));
    all_right(&run, ALL);
    let totals = &run.totals;
    assert_eq!(
        (totals.acknowledged.count(), totals.last_after.count()),
        (100, 100)
    );
    assert_eq!((totals.consumed.count(), totals.consumed_after.count()), (0, 0));
    assert_eq!(
        (run.published.answer.count(), run.published.lag.count()),
        (100, 100)
    );
    assert!(totals.last_after.max() <= totals.last.max());
    // The one that tries, and all others.
    assert_eq!(server.requests(), 101);
    let found = document(&run);
    assert_eq!(found["broker"]["url"], "fake://broker/topic");
    assert_eq!(found["broker"]["to_last_client"]["count"], 100);
    assert!(found["broker"]["to_consumer"].is_null());
    let text = text::run(&run, "test", &[], Style::default());
    assert!(text.contains("written to fake://broker/topic"), "{text}");
    assert!(text.contains("From the broker's acknowledgement to"), "{text}");
}

#[test]
fn values_may_be_commands() {
    let server = Server::new(Manner::Right, right);
    let mut plan = written(&server, Behaviour::Right);
    plan.broker.as_mut().expect("a broker").commands = true;
    all_right(&run(plan), ALL);
}

#[test]
fn a_plain_consumer_is_reported_beside_clients() {
    let server = Server::new(Manner::Right, right);
    let run = run(written(&server, Behaviour::Consumed));
    all_right(&run, ALL);
    let totals = &run.totals;
    assert_eq!(
        (totals.consumed.count(), totals.consumed_after.count()),
        (100, 100)
    );
    // The broker's thread reports the consumer first.
    assert_eq!(totals.consumed_after.max(), Duration::ZERO);
    assert!(totals.consumed.min() > Duration::ZERO);
    let text = text::run(&run, "test", &[], Style::default());
    assert!(text.contains("a plain consumer"), "{text}");
}

#[test]
fn records_that_a_broker_refuses_are_not_expected() {
    let server = Server::new(Manner::Right, right);
    let run = run(written(&server, Behaviour::Refuses));
    assert_eq!((run.published.accepted, run.published.refused.total()), (75, 25));
    assert_eq!((run.totals.expected, run.lost()), (75 * 4, 0));
}

#[test]
fn records_without_an_acknowledgement_are_expected_where_a_client_has_them() {
    let server = Server::new(Manner::Right, right);
    let run = run(Plan {
        timeout: Duration::from_millis(300),
        settle: Duration::from_millis(300),
        ..written(&server, Behaviour::Silent)
    });
    assert_eq!((run.published.accepted, run.published.unanswered), (75, 25));
    assert_eq!((run.totals.expected, run.lost()), (ALL, 0));
    assert_eq!(
        (run.totals.last.count(), run.totals.last_after.count()),
        (100, 75)
    );
}

#[test]
fn a_broker_that_cannot_be_used_ends_the_run() {
    let server = Server::new(Manner::Right, right);
    fails(
        written(&server, Behaviour::Unreachable),
        "fake://broker/topic cannot be written to: no broker",
    );
    fails(
        written(&server, Behaviour::ReadOnly),
        "fake://broker/topic does not accept publications: no room",
    );
}
