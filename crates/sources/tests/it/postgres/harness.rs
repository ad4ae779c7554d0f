//! Workers in virtual time with a client that listens, beside sources and servers in real time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    BrokerLogin, ChannelTemplate, Mapping, Postgres, RecordFormat, Secret, Source, SourceKind,
};
use ringmain_push::{DataFormat, Namespace, Options, Push, ThreadPublisher};
use ringmain_sources::{Report, Sources, limits};
use ringmain_testkit::{servers, wait};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient, TestEvent, TestSocket};
use ringmain_web::ws::OwnedMessage;
use serde_json::Value;

/// Long enough that it never fires: rows are found by notifications alone.
pub(crate) const NO_POLLING: Duration = Duration::from_secs(600);

/// A process: its workers, and what its client has received.
pub(crate) struct Process {
    client: TestClient,
    socket: TestSocket,
    pub(crate) inlet: ThreadPublisher,
    /// Publications by channel, in the order of arrival: the data, and the tags.
    pub(crate) received: BTreeMap<String, Vec<(Value, Value)>>,
}

impl Process {
    /// With a client that is subscribed to these channels.
    pub(crate) fn new(workers: usize, channels: &[String]) -> Process {
        let binary = Namespace {
            data_format: DataFormat::Binary,
            ..Namespace::default()
        };
        let options = Options {
            namespaces: [("binary".to_owned(), binary)].into(),
            anonymous: true,
            ..Options::default()
        };
        let push = Push::new();
        push.replace(options).expect("options");
        let inlet = push.thread_publisher();
        let setup = Setup {
            workers,
            ..Setup::default()
        };
        let mut client = TestClient::with(push.serve(App::new()), setup).expect("an application");
        let mut socket = client.ws("/connection/websocket").open();
        socket.send_text(r#"{"id":1,"connect":{}}"#);
        assert!(socket.text().contains("connect"));
        for (id, channel) in (2..).zip(channels) {
            socket.send_text(format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#));
            let reply = socket.text();
            assert!(reply.contains(r#""subscribe""#), "{reply}");
        }
        Process {
            client,
            socket,
            inlet,
            received: BTreeMap::new(),
        }
    }

    /// Lets the workers run for a moment, and notes what the client receives.
    pub(crate) fn step(&mut self) {
        self.client.advance(Duration::from_millis(1));
        while let Some(event) = self.socket.event_now().expect("the protocol") {
            match event {
                TestEvent::Message(OwnedMessage::Text(text)) => self.note(&text),
                TestEvent::Ping(_) => {}
                other => panic!("expected a text, found {other:?}"),
            }
        }
    }

    fn note(&mut self, text: &str) {
        for line in text.lines() {
            if line == "{}" {
                self.socket.send_text("{}");
                continue;
            }
            let mut message: Value = serde_json::from_str(line).expect("JSON");
            let channel = message["push"]["channel"].as_str().expect("a channel").to_owned();
            let publication = &mut message["push"]["pub"];
            let found = (publication["data"].take(), publication["tags"].take());
            self.received.entry(channel).or_default().push(found);
        }
    }

    /// Runs the workers until a condition of this process is met.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut is_met: impl FnMut(&Process) -> bool) {
        wait::until(what, || {
            self.step();
            is_met(self)
        });
    }

    /// Publications that have arrived.
    pub(crate) fn count(&self) -> usize {
        self.received.values().map(Vec::len).sum()
    }

    /// The numbers that arrived in a channel, whose data is `{"n":NUMBER}`.
    pub(crate) fn numbers(&self, channel: &str) -> Vec<u64> {
        let received = self.received.get(channel).into_iter().flatten();
        received
            .map(|(data, _)| data["n"].as_u64().unwrap_or_else(|| panic!("a number in {data}")))
            .collect()
    }
}

/// A server with the outbox of the documentation. `None`, reported: it is not installed.
pub(crate) fn server() -> Option<servers::Postgres> {
    let server = servers::Postgres::start(&[], &[])?;
    server.run(ringmain_sources::outbox_sql());
    Some(server)
}

/// The source of that outbox.
pub(crate) fn source(server: &servers::Postgres, partitions: u16) -> Source {
    let postgres = Postgres {
        server: format!("127.0.0.1:{}", server.port()).into(),
        database: "postgres".into(),
        login: BrokerLogin {
            user: "postgres".into(),
            password: Secret::new(&b""[..]),
        },
        tls: None,
        table: "ringmain_outbox".into(),
        partitions,
        poll_interval: NO_POLLING,
        notify: Some("ringmain_outbox".into()),
    };
    Source {
        kind: SourceKind::Postgres(postgres),
        mapping: Mapping {
            channel: ChannelTemplate::header("channel"),
            format: RecordFormat::Data,
            dead_letters: None,
            in_flight: limits::IN_FLIGHT,
        },
        readiness: true,
    }
}

/// The settings of its broker.
pub(crate) fn settings(source: &mut Source) -> &mut Postgres {
    match &mut source.kind {
        SourceKind::Postgres(postgres) => postgres,
        other => panic!("expected postgres, found {other:?}"),
    }
}

/// Starts it in a process.
pub(crate) fn run(process: &Process, source: &Source) -> Sources {
    let sources = Sources::new(process.inlet.clone());
    sources.follow(&BTreeMap::from([(Arc::from("outbox"), Arc::new(source.clone()))]));
    sources
}

/// Its state.
pub(crate) fn report(sources: &Sources) -> Report {
    sources.reports().remove(0)
}

/// The names of so many channels.
pub(crate) fn channels(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("c{number}")).collect()
}

/// Inserts the numbers of a range, each into the channel and the partition that follow from it.
pub(crate) fn insert(range: std::ops::Range<u64>, channels: usize, partitions: u16) -> String {
    format!(
        "INSERT INTO ringmain_outbox (partition, channel, data) \
         SELECT n % {channels} % {partitions}, 'c' || n % {channels}, json_build_object('n', n) \
         FROM generate_series({}, {}) AS n ORDER BY n;",
        range.start,
        range.end - 1
    )
}

/// The rows in the table.
pub(crate) fn rows(server: &servers::Postgres) -> usize {
    server.run("SELECT count(*) FROM ringmain_outbox")[0]
        .parse()
        .expect("a number")
}

/// Asserts that all numbers of the range have arrived once, in their order.
#[track_caller]
pub(crate) fn assert_once_in_order(process: &Process, range: std::ops::Range<u64>, channels: u64) {
    for channel in 0..channels {
        let expected: Vec<u64> = range
            .clone()
            .filter(|number| number % channels == channel)
            .collect();
        assert_eq!(process.numbers(&format!("c{channel}")), expected, "c{channel}");
    }
}
