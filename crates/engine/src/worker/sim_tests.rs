//! The real worker in the simulated world: many workers, connections, mail and faults under one seed.
//!
//! Shows that no byte is lost, doubled or crossed between connections, and that at shutdown every slot,
//! buffer, operation and job is returned. `SIM_SEEDS=10000` runs the long suite; `SIM_SEED=n` one seed.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ringmain_sys::addr::Addr;

use super::core::Via;
use super::cx::{Conn, ConnId, Cx};
use super::handler::Handler;
use super::record::Reason;
use super::shared::{Shared, State};
use super::{Parts, Post, Start, Worker};
use crate::backend::sim::tests::run::Client;
use crate::backend::sim::{Fault, Plan, Step, World};
use crate::mail::{PostError, grid};
use crate::stream::Stream;

/// Steps after which a run counts as stuck.
const STEP_LIMIT: usize = 400_000;
/// Rounds that clients have before time leaps.
const PATIENCE: usize = 64;
/// The handler's timer for mail that was refused.
const RETRY_MAIL: u64 = 0;

/// How a connection's bytes come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Write,
    Frame,
    /// By way of another worker.
    Mail,
    /// After a sleep in a task.
    Task,
    /// Through the blocking pool.
    Blocking,
    /// Consumed in part, paused, and offered again.
    Sip,
}

const MODES: [Mode; 6] = [
    Mode::Write,
    Mode::Frame,
    Mode::Mail,
    Mode::Task,
    Mode::Blocking,
    Mode::Sip,
];

/// Bytes on their way to another worker and back.
struct Letter {
    home: usize,
    key: u64,
    bytes: Vec<u8>,
}

struct Entry {
    id: ConnId,
    outstanding: usize,
    ended: bool,
}

/// The handler's connections, also for its tasks.
type Entries = Rc<RefCell<BTreeMap<u64, Entry>>>;

struct Echo {
    cx: Cx,
    post: Post<Letter>,
    entries: Entries,
    next_key: u64,
    /// Refused mail, oldest first.
    waiting: VecDeque<(usize, Letter)>,
}

impl Echo {
    fn new(start: Start<Letter>) -> Echo {
        let Start { cx, post } = start;
        Echo {
            cx,
            post,
            entries: Entries::default(),
            next_key: 0,
            waiting: VecDeque::new(),
        }
    }

    fn send(&mut self, to: usize, letter: Letter) {
        self.waiting.push_back((to, letter));
        self.send_waiting();
    }

    /// Sends in order; a full queue is tried again later.
    fn send_waiting(&mut self) {
        while let Some((to, letter)) = self.waiting.pop_front() {
            match self.post.send(to, letter) {
                // A worker that has ended takes its connections' bytes with it.
                Ok(()) | Err(PostError::Gone(_)) => {}
                Err(PostError::Full(letter)) => {
                    self.waiting.push_front((to, letter));
                    assert!(
                        self.cx.timer(Duration::from_millis(1), RETRY_MAIL),
                        "there are timers"
                    );
                    return;
                }
            }
        }
    }
}

/// Writes a reply, and closes behind the last one.
fn reply(cx: &Cx, entries: &Entries, key: u64, bytes: &[u8]) {
    let Some((id, last)) = entries.borrow_mut().get_mut(&key).map(|entry| {
        entry.outstanding -= 1;
        (entry.id, entry.ended && entry.outstanding == 0)
    }) else {
        return;
    };
    let conn = cx.conn(id);
    // A connection that broke in the meantime has no use for it.
    let _ = conn.write(bytes);
    conn.resume();
    if last {
        conn.close();
    }
}

/// Echoes a connection that was made a stream.
async fn echo(stream: Stream) {
    let mut buffer = [0; 300];
    while let Ok(count) = stream.read(&mut buffer).await {
        if count == 0 {
            let _ = stream.shutdown().await;
            return;
        }
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

impl Handler for Echo {
    type Conn = (u64, Mode);
    type Mail = Letter;

    fn open(&mut self, conn: Conn<'_>, via: Via) -> Option<(u64, Mode)> {
        assert!(matches!(via, Via::Listener(9)), "{via:?}");
        let choice = self.cx.random() as usize % (MODES.len() + 1);
        let Some(mode) = MODES.get(choice) else {
            let stream = conn.into_stream();
            self.cx.spawn(echo(stream)).expect("there is room for tasks");
            return None;
        };
        self.next_key += 1;
        let entry = Entry {
            id: conn.id(),
            outstanding: 0,
            ended: false,
        };
        self.entries.borrow_mut().insert(self.next_key, entry);
        Some((self.next_key, *mode))
    }

    fn data(&mut self, conn: Conn<'_>, state: &mut (u64, Mode), bytes: &mut [u8]) -> usize {
        let (key, mode) = *state;
        let later = matches!(mode, Mode::Mail | Mode::Task | Mode::Blocking);
        if later {
            self.entries
                .borrow_mut()
                .get_mut(&key)
                .expect("it is open")
                .outstanding += 1;
        }
        let copy = bytes.to_vec();
        let (cx, entries) = (self.cx.clone(), Rc::clone(&self.entries));
        match mode {
            Mode::Write => drop(conn.write(bytes)),
            Mode::Frame => drop(conn.write_frame(Bytes::from(copy))),
            Mode::Mail => {
                let home = self.cx.worker();
                // One way for all bytes of a connection, or they could overtake each other.
                let to = (home + 1) % self.cx.workers();
                self.send(
                    to,
                    Letter {
                        home,
                        key,
                        bytes: copy,
                    },
                );
            }
            Mode::Task => {
                conn.pause();
                let task = async move {
                    cx.sleep(Duration::from_millis(cx.random() % 3)).await;
                    reply(&cx, &entries, key, &copy);
                };
                self.cx.spawn(task).expect("there is room for tasks");
            }
            Mode::Blocking => {
                conn.pause();
                let task = async move {
                    let work = copy.clone();
                    let done = cx.blocking(move || work).await;
                    reply(&cx, &entries, key, &done.unwrap_or(copy));
                };
                self.cx.spawn(task).expect("there is room for tasks");
            }
            Mode::Sip => {
                let count = 1 + self.cx.random() as usize % bytes.len();
                let _ = conn.write(&bytes[..count]);
                if count < bytes.len() {
                    conn.pause();
                    assert!(self.cx.timer(Duration::from_millis(1), key), "there are timers");
                }
                return count;
            }
        }
        bytes.len()
    }

    fn end(&mut self, conn: Conn<'_>, state: &mut (u64, Mode)) {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(&state.0).expect("it is open");
        entry.ended = true;
        if entry.outstanding == 0 {
            drop(entries);
            conn.close();
        }
    }

    fn closed(&mut self, _cx: &Cx, state: (u64, Mode), _reason: Reason) {
        self.entries
            .borrow_mut()
            .remove(&state.0)
            .expect("closed comes once");
    }

    fn timer(&mut self, cx: &Cx, key: u64) {
        if key == RETRY_MAIL {
            return self.send_waiting();
        }
        let id = self.entries.borrow().get(&key).map(|entry| entry.id);
        if let Some(id) = id {
            cx.conn(id).resume();
        }
    }

    fn mail(&mut self, cx: &Cx, letter: Letter) {
        if letter.home == cx.worker() {
            reply(cx, &self.entries, letter.key, &letter.bytes);
        } else {
            self.send(letter.home, letter);
        }
    }
}

struct Run {
    seed: u64,
    world: World,
    shared: Arc<Shared>,
    workers: Vec<Option<Worker<Echo>>>,
    clients: Vec<Client>,
    wanted: usize,
    addr: Addr,
}

impl Run {
    fn new(seed: u64, plan: Plan) -> Run {
        let count = 1 + (seed % 4) as usize;
        let world = World::new(seed, plan, count);
        let crowded = world.below(2) == 0;
        let (capacity, most) = if crowded { (4, 10) } else { (1000, 4000) };
        let shared = Shared::new(count, most);
        let doorbells: Vec<_> = shared.workers.iter().map(|w| Arc::clone(&w.doorbell)).collect();
        let mailboxes = grid(&doorbells, 1 + world.below(4), 4);
        let addr = Addr::Inet(SocketAddr::from(([127, 0, 0, 1], 7)));
        let workers = mailboxes.into_iter().enumerate().map(|(index, mailbox)| {
            let backend = Box::new(world.backend(index));
            let (shared, grace) = (Arc::clone(&shared), Duration::from_secs(1));
            let mut worker = Worker::new(
                Parts {
                    backend,
                    mailbox,
                    shared,
                    index,
                    capacity,
                    queue_limit: 4096,
                    grace,
                    flush: crate::limits::FLUSH,
                },
                Echo::new,
            );
            worker
                .listen(world.listen(index, &addr), 9)
                .expect("there is room");
            worker.begin_wait().expect("the simulation goes on");
            Some(worker)
        });
        let workers = workers.collect();
        let wanted = 1 + world.below(24);
        Run {
            seed,
            world,
            shared,
            workers,
            clients: Vec::new(),
            wanted,
            addr,
        }
    }

    /// Runs to the end. Returns how many clients got every byte back, and the world.
    fn finish(mut self) -> (usize, World) {
        let early = self.world.below(4) == 0;
        let half = self.wanted.div_ceil(2);
        self.drive("serving", |run| {
            let done = run.clients.iter().filter(|client| client.done).count();
            done == run.wanted || (early && done >= half)
        });
        self.check_unbroken(early);
        self.shared.advance(State::Draining);
        self.drive("stopping", |run| run.workers.iter().all(Option::is_none));
        self.drive("settling", |run| run.world.next_event_time().is_none());
        assert_eq!(self.world.leaks(), Vec::<String>::new(), "seed {}", self.seed);
        (
            self.clients.iter().filter(|client| client.is_whole()).count(),
            self.world,
        )
    }

    /// Without a cause nobody's stream may have broken.
    fn check_unbroken(&self, early: bool) {
        let resets = self.world.count(Fault::Reset) + self.world.count(Fault::AcceptAborted);
        let refused = |w: &super::shared::WorkerShared| w.counters.refused.load(Ordering::Relaxed);
        let refused: u64 = self.shared.workers.iter().map(refused).sum();
        let broken = self
            .clients
            .iter()
            .filter(|client| client.done && !client.is_whole())
            .count() as u64;
        if !early && resets == 0 && broken > refused {
            let trace = self.world.trace_text();
            panic!(
                "seed {}: {broken} streams broke, {refused} refused\n{trace}",
                self.seed
            );
        }
    }

    fn drive(&mut self, phase: &str, until: impl Fn(&Run) -> bool) {
        let mut patience = PATIENCE;
        for _ in 0..STEP_LIMIT {
            if until(self) {
                return;
            }
            if !self.clients_first(&mut patience)
                && let Step::Turn(worker) = self.world.step()
            {
                self.turn(worker);
            }
            if self.clients.len() < self.wanted
                && phase == "serving"
                && let Ok(peer) = self.world.connect(&self.addr)
            {
                let total = self.world.below(4000);
                self.clients
                    .push(Client::new(peer, self.clients.len() as u64 + 1, total));
            }
            for client in &mut self.clients {
                client.act(&self.world, "client");
            }
        }
        panic!(
            "seed {}: stuck while {phase}; last of it:\n{}",
            self.seed,
            self.world.trace_text()
        );
    }

    /// Whether the clients, who take no virtual time, should act before time makes a leap: no
    /// deadline may pass only because they had no occasion to read.
    fn clients_first(&self, patience: &mut usize) -> bool {
        let now = self.world.now();
        let next = self.world.next_event_time();
        let leap = next.is_some_and(|at| at.since(now) > Duration::from_millis(1));
        if !leap || *patience == 0 {
            *patience = PATIENCE;
            return false;
        }
        *patience -= 1;
        true
    }

    fn turn(&mut self, index: usize) {
        let worker = self.workers[index]
            .as_mut()
            .expect("a worker that has ended is not scheduled");
        self.world.end_wait(index);
        self.shared.workers[index].doorbell.cancel_sleep();
        worker.work();
        if worker.is_done() {
            assert!(
                worker.handler.entries.borrow().is_empty(),
                "seed {}: closed() for all",
                self.seed
            );
            self.workers[index] = None;
        } else {
            worker.begin_wait().expect("the simulation goes on");
        }
    }
}

/// The number in an environment variable.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn seeds() -> std::ops::Range<u64> {
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(300),
    }
}

/// Says which seed a panic belongs to.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("reproduce with SIM_SEED={}", self.0);
        }
    }
}

#[test]
fn nothing_is_lost_doubled_or_crossed_under_faults() {
    let mut whole = 0;
    for seed in seeds() {
        let _named = Named(seed);
        whole += Run::new(seed, Plan::mixed(seed)).finish().0;
    }
    assert!(whole > 0, "some streams must come through");
}

#[test]
fn nothing_is_lost_in_calm_weather() {
    for seed in seeds() {
        let _named = Named(seed);
        Run::new(seed, Plan::calm()).finish();
    }
}

#[test]
fn a_seed_reproduces_a_run() {
    for seed in seeds().take(30) {
        let _named = Named(seed);
        let hash = |_| Run::new(seed, Plan::mixed(seed)).finish().1.trace_hash();
        assert_eq!(hash(1), hash(2), "seed {seed}");
    }
}
