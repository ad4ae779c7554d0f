//! Adapters of the log behind a cluster's channels, with real brokers.

#[cfg(feature = "jetstream")]
mod jetstream;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "redis")]
mod redis;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_cluster::log::{
    Append, AppendKey, AppendOutcome, Beat, Binding, Entry, EntryId, FollowFrom, Health, Life, LogEvent,
    LogRequest, NodePort, Opened, Partition, Record, ports,
};
use ringmain_cluster::member::Uid;
use ringmain_gateway::model::{PushLog, PushLogEngine, PushTakeover};
use ringmain_sources::log;
use ringmain_sources::supervisor;
use ringmain_testkit::wait;
use tokio::sync::mpsc::error::TryRecvError;

/// Partitions of the logs of these tests.
const PARTITIONS: u16 = 4;

/// The node's side of an adapter that runs.
struct Node {
    port: Option<NodePort>,
    thread: Option<JoinHandle<()>>,
    appends: u64,
    /// The outcomes of appends, by request.
    outcomes: BTreeMap<u64, AppendOutcome>,
    opened: Vec<Opened>,
    closed: Vec<Partition>,
    trimmed: Vec<(Partition, u64)>,
    /// The records of each partition since it was last opened.
    records: BTreeMap<Partition, Vec<Record>>,
    older: Vec<(Partition, u64, Vec<Record>, bool)>,
    health: Vec<Health>,
}

impl Node {
    fn new(engine: PushLogEngine) -> Node {
        let settings = Arc::new(PushLog {
            engine,
            partitions: PARTITIONS,
            retention: Duration::from_secs(600),
            takeover: PushTakeover {
                time: Duration::from_secs(2),
                bytes: 1 << 20,
            },
        });
        Node::with(settings)
    }

    fn with(settings: Arc<PushLog>) -> Node {
        let (port, adapter) = ports();
        #[expect(clippy::disallowed_methods, reason = "the adapter waits for real brokers")]
        let thread = std::thread::spawn(move || {
            let runtime = supervisor::runtime().expect("descriptors");
            runtime.block_on(log::run(settings, adapter));
        });
        Node {
            port: Some(port),
            thread: Some(thread),
            appends: 0,
            outcomes: BTreeMap::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            trimmed: Vec::new(),
            records: BTreeMap::new(),
            older: Vec::new(),
            health: Vec::new(),
        }
    }

    fn request(&self, requests: Vec<LogRequest>) {
        let port = self.port.as_ref().expect("it runs");
        port.requests.send(requests).expect("the adapter runs");
    }

    /// Requests an append of a beat with this content. Returns the number of the request.
    fn append(&mut self, partition: u16, content: u64) -> u64 {
        self.append_all(partition, content..content + 1)
    }

    /// Requests appends of beats with these contents. Returns the number of the first request; others follow.
    fn append_all(&mut self, partition: u16, contents: std::ops::Range<u64>) -> u64 {
        let first = self.appends;
        let appends = contents.map(|content| {
            self.appends += 1;
            LogRequest::Append(Append {
                id: self.appends - 1,
                partition: Partition(partition),
                entry: entry(content).encode().into(),
                decoded: Box::new(entry(content)),
                key: None,
            })
        });
        let appends = appends.collect();
        self.request(appends);
        first
    }

    /// Requests an append of bytes. Returns the number of the request.
    fn append_bytes(&mut self, partition: u16, bytes: Vec<u8>) -> u64 {
        self.appends += 1;
        let append = Append {
            id: self.appends - 1,
            partition: Partition(partition),
            entry: bytes.into(),
            decoded: Box::new(entry(0)),
            key: None,
        };
        self.request(vec![LogRequest::Append(append)]);
        self.appends - 1
    }

    /// The same with the key of a publication.
    fn append_once(&mut self, partition: u16, content: u64, key: &str) -> u64 {
        self.appends += 1;
        let append = Append {
            id: self.appends - 1,
            partition: Partition(partition),
            entry: entry(content).encode().into(),
            decoded: Box::new(entry(content)),
            key: Some(AppendKey {
                channel: "news".into(),
                key: key.into(),
                window: Duration::from_secs(60),
            }),
        };
        self.request(vec![LogRequest::Append(append)]);
        self.appends - 1
    }

    fn follow(&self, partition: u16, from: FollowFrom) {
        let partition = Partition(partition);
        self.request(vec![LogRequest::Follow { partition, from }]);
    }

    /// Receives what there is.
    fn turn(&mut self) {
        loop {
            let port = self.port.as_mut().expect("it runs");
            match port.events.try_recv() {
                Ok(events) => events.into_iter().for_each(|event| self.receive(event)),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => panic!("the adapter has ended"),
            }
        }
    }

    fn receive(&mut self, event: LogEvent) {
        match event {
            LogEvent::Appended { id, outcome } => {
                assert_eq!(
                    self.outcomes.insert(id, outcome),
                    None,
                    "one outcome for each request"
                );
            }
            LogEvent::Opened(opened) => {
                self.records.insert(opened.partition, Vec::new());
                self.opened.push(opened);
            }
            LogEvent::Records {
                partition, records, ..
            } => {
                let received = self.records.get_mut(&partition).expect("an open partition");
                received.extend(records);
                let is_ascending = received.is_sorted_by(|one, other| one.number < other.number);
                assert!(is_ascending, "each number once, in order");
            }
            LogEvent::Older {
                partition,
                from,
                records,
                is_first,
                ..
            } => self.older.push((partition, from, records, is_first)),
            LogEvent::Trimmed { partition, first } => self.trimmed.push((partition, first)),
            LogEvent::Closed { partition } => {
                self.closed.push(partition);
            }
            LogEvent::Health(health) => self.health.push(health),
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut is_true: impl FnMut(&Node) -> bool) {
        wait::until_ok(what, || {
            self.turn();
            let text = format!(
                "opened {:?}, closed {:?}, health {:?}",
                self.opened, self.closed, self.health
            );
            is_true(self).then_some(()).ok_or(text)
        });
    }

    /// Waits for the outcome of an append.
    #[track_caller]
    fn outcome(&mut self, append: u64) -> AppendOutcome {
        self.until("an outcome", |node| node.outcomes.contains_key(&append));
        self.outcomes[&append]
    }

    /// Appends, again where nothing was, until the broker has acknowledged it. Returns the number.
    #[track_caller]
    fn append_until_done(&mut self, partition: u16, content: u64) -> u64 {
        loop {
            let append = self.append(partition, content);
            if let AppendOutcome::Appended(number) = self.outcome(append) {
                return number;
            }
        }
    }

    /// Follows a partition until it is open.
    #[track_caller]
    fn open(&mut self, partition: u16, from: FollowFrom) -> Opened {
        let before = self.opened.len();
        self.follow(partition, from);
        self.until("an open partition", |node| node.opened.len() > before);
        self.opened[before]
    }

    /// The contents of a partition's records since it was opened.
    fn contents(&self, partition: u16) -> Vec<u64> {
        self.records
            .get(&Partition(partition))
            .map_or(Vec::new(), |records| contents(records))
    }

    /// Waits for the content that is the last one.
    #[track_caller]
    fn until_content(&mut self, partition: u16, last: u64) {
        self.until("a record", |node| node.contents(partition).last() == Some(&last));
    }

    #[track_caller]
    fn until_closed(&mut self, partition: u16) {
        self.until("a closed partition", |node| {
            node.closed.contains(&Partition(partition))
        });
        self.closed.retain(|closed| *closed != Partition(partition));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.port = None;
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("a thread").expect("the adapter ends with its node");
        }
    }
}

fn entry(content: u64) -> Entry {
    Entry::Beat {
        id: EntryId {
            writer: Uid(7),
            append: content,
        },
        beat: Beat {
            life: Life(1),
            binding: Binding(2),
            seen: content,
        },
    }
}

fn contents(records: &[Record]) -> Vec<u64> {
    let contents = records.iter().map(|record| match &record.entry {
        Ok(Entry::Beat { beat, .. }) => beat.seen,
        other => panic!("{other:?}"),
    });
    contents.collect()
}

fn all(contents: std::ops::Range<u64>) -> Vec<u64> {
    contents.collect()
}
