//! The memory of an idle client, and the allocations of a publication with warm buffers, of which there must be none: on a real worker over
//! real sockets, counted by the allocator across all threads.

mod client;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use ringmain_engine::{Addr, Choice, Config, Engine, ListenOptions, Running};
use ringmain_push::{HistoryOptions, Namespace, Options, Publisher, Push, ThreadPublisher};
use ringmain_web::{App, Limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stats_alloc::Region;

use crate::ALLOCATOR;
use crate::cost::client::Client;

/// Clients that are connected before those that are counted: tables that grow by 256 entries or by doubling are nearly full before and
/// after these.
const FIRST: usize = 240;
const IDLE: usize = 1792;

/// Channels that they are subscribed to.
const CHANNELS: usize = 16;

/// Bytes of an idle client with one subscription at most, in the engine, web, push and the hub together.
const IDLE_BYTES: usize = 832;
/// The number of allocations of a hundred clients at most: each costs the allocator some bytes more.
const IDLE_PIECES: usize = 304;
/// On a busy machine a server retains the memory that it needed while many clients waited at once: one of so many servers must be within
/// the limit.
const IDLE_ATTEMPTS: usize = 4;

/// Subscribers of the channel, for each format.
const LISTENERS: usize = 16;
const WARM: usize = 300;
const ROUNDS: usize = 250;
/// A buffer may still grow in the first attempt, and on a busy machine pings and timers fall into every long one. Attempts are short, and
/// the one with the fewest allocations counts.
const ATTEMPTS: usize = 40;

/// The origin of a publication.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A task of the worker publishes in the channel of this number.
    Task(usize),
    /// Another thread publishes.
    ThreadPublisher,
}

/// A publication and its allowed allocations.
struct Case {
    name: &'static str,
    by: By,
    channel: &'static str,
    allowed: usize,
}

const CASES: [Case; 3] = [
    Case {
        name: "a publication",
        by: By::Task(0),
        channel: CHANNEL,
        allowed: 0,
    },
    Case {
        // Its bytes, their reference count, and the publication: it lives longer than others, and has memory of its own.
        name: "a publication that is kept",
        by: By::Task(1),
        channel: KEPT_CHANNEL,
        allowed: 3,
    },
    Case {
        // Its bytes, and their reference count.
        name: "a publication of another thread",
        by: By::ThreadPublisher,
        channel: CHANNEL,
        allowed: 2,
    },
];

const CHANNEL: &str = "news";
const KEPT_CHANNEL: &str = "kept:news";

/// Requests for publications from outside the worker, without allocations.
#[derive(Default)]
struct Gate {
    wanted: [AtomicUsize; 2],
    publisher: OnceLock<Waker>,
}

impl Gate {
    /// Publishes as often as requested, in turns of its worker.
    async fn publish(self: Arc<Gate>, publisher: Publisher) {
        let channels: [Arc<str>; 2] = [CHANNEL, KEPT_CHANNEL].map(Arc::from);
        poll_fn::<(), _>(|context| {
            self.publisher.get_or_init(|| context.waker().clone());
            for (wanted, channel) in self.wanted.iter().zip(&channels) {
                for _ in 0..wanted.swap(0, Ordering::AcqRel) {
                    publisher.publish(channel, JSON).expect("room for it");
                }
            }
            Poll::Pending
        })
        .await;
    }

    fn request(&self, channel: usize) {
        self.wanted[channel].fetch_add(1, Ordering::AcqRel);
        if let Some(publisher) = self.publisher.get() {
            publisher.wake_by_ref();
        }
    }
}

struct Server {
    running: Running<Infallible>,
    addr: SocketAddr,
    gate: Arc<Gate>,
    publisher: ThreadPublisher,
}

impl Server {
    fn end(self) {
        self.running.shut_down();
        self.running.join().expect("an orderly end");
    }
}

const JSON: &[u8] =
    br#"{"text":"something that has happened, in so many words","at":{"x":[1,2,3],"y":{"z":4}}}"#;

pub(crate) fn main() {
    let files = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, all).expect("as many as may be");
    for engine in [Choice::Uring, Choice::Epoll] {
        let config = Config {
            engine,
            workers: Some(1),
            pin: false,
            ..Config::default()
        };
        match Engine::new(config.clone()) {
            Ok(first) => check_all(first, || Engine::new(config.clone()).expect("as the first")),
            Err(error) => println!("SKIPPED {engine:?}: {error}"),
        }
    }
}

/// Channels without retention, and a namespace with little.
fn options() -> Options {
    let mut kept = Namespace::default();
    kept.channel_options.history = Some(HistoryOptions {
        publications: 10,
        bytes: 10_000,
        ttl: Duration::from_secs(60),
    });
    Options {
        anonymous: true,
        namespaces: [("kept".to_owned(), kept)].into(),
        ..Options::default()
    }
}

fn check_all(first: Engine, another: impl Fn() -> Engine) {
    let mut server = start(first);
    let mut holds = idle(&server);
    for _ in 1..IDLE_ATTEMPTS {
        if !holds {
            server.end();
            server = start(another());
            holds = idle(&server);
        }
    }
    for case in &CASES {
        holds &= publications(&mut server, case);
    }
    server.end();
    assert!(
        holds,
        "expected at most what the constants say, found more: see above"
    );
}

fn start(mut engine: Engine) -> Server {
    let gate: Arc<Gate> = Arc::default();
    let publishing = Arc::clone(&gate);
    let push = Push::new();
    push.replace(options()).expect("options that can be");
    let limits = Limits {
        connections_per_address: None,
        ..Limits::default()
    };
    let app = push.serve_with(App::new().limits(limits), move |cx, publisher| {
        let task = Arc::clone(&publishing).publish(publisher);
        cx.spawn(task).expect("room for a task");
    });
    let site = app.build().expect("an application");
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let addr = engine
        .listen(&any, &ListenOptions::default())
        .expect("a free port");
    let Addr::Inet(addr) = addr else {
        panic!("an internet address was asked for");
    };
    println!("on {}", engine.selection());
    let running = engine
        .start(move |start| site.server(start))
        .expect("the worker starts");
    Server {
        running,
        addr,
        gate,
        publisher: push.thread_publisher(),
    }
}

/// Returns the memory of the process, which includes the clients': printed only, if `COSTS` is set.
fn resident_bytes() -> Option<usize> {
    std::env::var_os("COSTS")?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Measures the memory of idle subscribers.
fn idle(server: &Server) -> bool {
    let mut channels = [*b"idle-00"; CHANNELS];
    for (number, channel) in channels.iter_mut().enumerate() {
        channel[5..].copy_from_slice(&[b'0' + number as u8 / 10, b'0' + number as u8 % 10]);
    }
    let open = |number: usize| {
        let mut client = Client::open(server.addr, number.is_multiple_of(2));
        client.subscribe(&channels[number % CHANNELS]);
        client
    };
    let mut clients = Vec::with_capacity(IDLE);
    // The first subscriber pays for the channel.
    let _first: Vec<Client> = (0..FIRST).map(open).collect();
    let resident = resident_bytes();
    let region = Region::new(ALLOCATOR);
    clients.extend((0..IDLE).map(open));
    let change = region.change();
    let bytes = (change.bytes_allocated - change.bytes_deallocated) / IDLE;
    let pieces = (change.allocations - change.deallocations) * 100 / IDLE;
    let made = change.allocations / IDLE;
    if let (Some(before), Some(now)) = (resident, resident_bytes()) {
        println!(
            "with all that the allocator keeps: {} bytes",
            now.saturating_sub(before) / IDLE
        );
    }
    println!(
        "an idle client: {bytes} bytes in {}.{:02} pieces; {made} allocations until it is one",
        pieces / 100,
        pieces % 100
    );
    bytes <= IDLE_BYTES && pieces <= IDLE_PIECES
}

/// Measures the allocations of a publication for clients of both formats.
fn publications(server: &mut Server, case: &Case) -> bool {
    let mut clients: Vec<Client> = (0..2 * LISTENERS)
        .map(|number| {
            let mut client = Client::open(server.addr, number.is_multiple_of(2));
            client.subscribe(case.channel.as_bytes());
            client
        })
        .collect();
    let channel: Arc<str> = Arc::from(case.channel);
    let mut buffer = [0; 16 * 1024];
    let mut rounds = |count: usize| {
        for _ in 0..count {
            match case.by {
                By::Task(channel) => server.gate.request(channel),
                By::ThreadPublisher => server.publisher.publish(&channel, JSON).expect("room for it"),
            }
            for client in &mut clients {
                let length = client.message(&mut buffer);
                assert!(length > JSON.len(), "a publication");
            }
        }
    };
    rounds(WARM);
    let mut found = usize::MAX;
    for _ in 0..ATTEMPTS {
        if found > case.allowed * ROUNDS {
            let region = Region::new(ALLOCATOR);
            rounds(ROUNDS);
            let change = region.change();
            found = found.min(change.allocations + change.reallocations);
        }
    }
    println!("{}: {:.3} allocations", case.name, found as f64 / ROUNDS as f64);
    found <= case.allowed * ROUNDS
}
