//! An application whose workers publish records of sources, and a client that listens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{ChannelTemplate, Mapping, RecordFormat, Source, SourceKind};
use ringmain_hub::history::HistoryOptions;
use ringmain_push::{Namespace, Options, Push};
use ringmain_sources::{Report, Sources};
use ringmain_testkit::wait;
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient, TestEvent, TestSocket};
use ringmain_web::ws::OwnedMessage;
use serde_json::{Value, json};

/// An application with sources. Its workers have their turns only while the test waits.
pub(crate) struct Node {
    client: TestClient,
    push: Push,
    sources: Option<Sources>,
    socket: TestSocket,
    commands: u32,
    /// Channels with the data that was published there, as it arrived.
    pub(crate) received: Vec<(String, Value)>,
    /// Channels whose subscription the server has ended, since publications may be missing.
    pub(crate) unsubscribed: Vec<String>,
}

impl Node {
    /// With three workers. Channels of the namespace `kept` have a history.
    pub(crate) fn new() -> Node {
        Node::start(&[])
    }

    /// The same with sources that are there before the workers, as in a process that has just started: clients with positions wait for the
    /// records of before.
    pub(crate) fn start(sources: &[(&str, &Source)]) -> Node {
        let push = Push::new();
        push.replace(options()).expect("options");
        let running = (!sources.is_empty()).then(|| {
            let running = Sources::new(push.thread_publisher());
            running.follow(&named(sources));
            running
        });
        let setup = Setup {
            workers: 3,
            ..Setup::default()
        };
        let mut client = TestClient::with(push.serve(App::new()), setup).expect("an application");
        let mut socket = client.ws("/connection/websocket").open();
        socket.send_text(r#"{"id":1,"connect":{}}"#);
        assert!(socket.text().contains("connect"));
        Node {
            client,
            push,
            sources: running,
            socket,
            commands: 1,
            received: Vec::new(),
            unsubscribed: Vec::new(),
        }
    }

    /// Subscribes to channels.
    #[track_caller]
    pub(crate) fn subscribe(&mut self, channels: &[&str]) {
        for channel in channels {
            self.commands += 1;
            let command = json!({ "id": self.commands, "subscribe": { "channel": channel } });
            self.socket.send_text(command.to_string());
            let reply = self.socket.text();
            assert!(reply.contains(r#""subscribe""#), "{reply}");
        }
    }

    /// Subscribes with a position of another process. Returns the code of the error, if it is refused.
    pub(crate) fn recover(&mut self, channel: &str) -> Option<u64> {
        self.commands += 1;
        let subscribe =
            json!({ "channel": channel, "recover": true, "epoch": "0123456789abcdef", "offset": 7 });
        let command = json!({ "id": self.commands, "subscribe": subscribe });
        self.socket.send_text(command.to_string());
        let reply: Value = serde_json::from_str(&self.socket.text()).expect("JSON");
        reply["error"]["code"].as_u64()
    }

    /// Runs these sources, in place of those before.
    pub(crate) fn follow(&mut self, sources: &[(&str, &Source)]) {
        let running = self
            .sources
            .get_or_insert_with(|| Sources::new(self.push.thread_publisher()));
        running.follow(&named(sources));
    }

    /// Ends all sources.
    pub(crate) fn end_sources(&mut self) {
        self.sources = None;
    }

    /// The report of the only source.
    pub(crate) fn report(&self) -> Report {
        self.sources.as_ref().expect("sources").reports().remove(0)
    }

    /// The reports of all sources, by name.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.sources.as_ref().expect("sources").reports()
    }

    /// Lets workers have their turns, and receives.
    pub(crate) fn turn(&mut self) {
        self.client.advance(Duration::from_millis(1));
        while let Some(event) = self.socket.event_now().expect("the protocol") {
            let TestEvent::Message(OwnedMessage::Text(text)) = event else {
                continue;
            };
            for line in text.lines() {
                self.receive(line);
            }
        }
    }

    fn receive(&mut self, line: &str) {
        if line == "{}" {
            return self.socket.send_text("{}");
        }
        let mut message: Value = serde_json::from_str(line).expect("JSON");
        let push = &mut message["push"];
        let channel = push["channel"].as_str().unwrap_or_default().to_owned();
        if push["pub"].is_object() {
            self.received.push((channel, push["pub"]["data"].take()));
        } else if push["unsubscribe"].is_object() {
            self.unsubscribed.push(channel);
        } else {
            panic!("unexpected: {line}");
        }
    }

    /// Waits while workers have their turns.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut is_true: impl FnMut(&Node) -> bool) {
        wait::until(what, || {
            self.turn();
            is_true(self)
        });
    }

    /// Waits for so many publications, of all channels and since the start.
    #[track_caller]
    pub(crate) fn until_received(&mut self, count: usize) {
        wait::until_ok(&format!("{count} publications"), || {
            self.turn();
            match self.received.len() >= count {
                true => Ok(()),
                false => Err((self.received.len(), self.sources.as_ref().map(Sources::reports))),
            }
        });
    }

    /// The numbers that were published in a channel, in their order.
    pub(crate) fn numbers(&self, channel: &str) -> Vec<u64> {
        let found = self.received.iter().filter(|(name, _)| name == channel);
        found.filter_map(|(_, data)| data.as_u64()).collect()
    }
}

fn named(sources: &[(&str, &Source)]) -> BTreeMap<Arc<str>, Arc<Source>> {
    let sources = sources.iter();
    sources
        .map(|(name, source)| (Arc::from(*name), Arc::new((*source).clone())))
        .collect()
}

fn options() -> Options {
    let mut kept = Namespace {
        history: true,
        recovery: true,
        ..Namespace::default()
    };
    kept.channel_options.history = Some(HistoryOptions {
        publications: 10_000,
        bytes: 10_000_000,
        ttl: Duration::from_secs(600),
    });
    Options {
        namespaces: [("kept".to_owned(), kept)].into(),
        anonymous: true,
        ..Options::default()
    }
}

/// A source whose records are published in the channels of this template.
pub(crate) fn source(kind: SourceKind, channel: &str) -> Source {
    Source {
        kind,
        mapping: Mapping {
            channel: ChannelTemplate::parse(channel).expect("a template"),
            format: RecordFormat::Data,
            dead_letters: None,
            in_flight: 4096,
        },
        readiness: false,
    }
}
