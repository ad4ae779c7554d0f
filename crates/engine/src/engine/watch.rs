//! The thread that watches the workers: it names what holds one too long, and meanwhile brings the
//! connections that wait for that worker to the others.
//!
//! The kernel goes on to spread new connections over all listeners, also over those of a worker that
//! does not come to accept. Only while a worker is held, and only from listeners that no other
//! worker serves, this thread accepts in its place. Knows nothing of why a worker is held.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Fabric;
use crate::backend::accept_waiting;
use crate::limits;
use crate::watchdog::{Event, Watch};
use crate::worker::shared::Shared;

/// Stops the thread when dropped and joined.
pub(super) type Watchdog = (mpsc::Sender<()>, JoinHandle<()>);

/// Starts the thread. A step of `threshold` or longer is a stall.
pub(super) fn watch(shared: Arc<Shared>, fabric: Fabric, threshold: Duration) -> io::Result<Watchdog> {
    let (stop, stopped) = mpsc::channel::<()>();
    let body = move || {
        let mut watch = Watch::new(threshold);
        let mut rescue = Rescue::new(shared.workers.len());
        let mut pause = threshold / 4;
        while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
            for event in watch.check(&shared.beats, fabric.now()) {
                tell(&shared, event, &fabric, rescue.rescued);
                rescue.follow(event);
            }
            pause = threshold / 4;
            if rescue.is_needed() {
                rescue.run(&shared, &fabric);
                pause = pause.min(limits::RESCUE_PAUSE);
            }
        }
    };
    let builder = std::thread::Builder::new().name("ringmain-watchdog".into());
    #[expect(
        clippy::disallowed_methods,
        reason = "this is where a process starts its watchdog"
    )]
    let thread = builder.spawn(body)?;
    Ok((stop, thread))
}

fn tell(shared: &Shared, event: &Event, fabric: &Fabric, rescued: u64) {
    match event {
        Event::Stalled { worker, what, since } => log::warn!(
            "worker {worker} is held by {} for {:?}: its other connections wait; move blocking or long work to \
             Cx::blocking",
            shared.names.text(*what),
            fabric.now().since(*since)
        ),
        Event::Recovered { worker, held, .. } => log::info!(
            "worker {worker} goes on after {held:?}; other workers took {rescued} new connections meanwhile"
        ),
    }
}

/// Accepts in the place of workers that are held.
struct Rescue {
    /// By worker.
    held: Vec<bool>,
    /// Accepted, and no worker had room yet.
    homeless: VecDeque<(u32, OwnedFd)>,
    /// Connections handed over since the first of the present stalls began.
    rescued: u64,
    /// The connections of each worker that is not held and has room, in one round.
    loads: Vec<Option<u32>>,
}

impl Rescue {
    fn new(workers: usize) -> Rescue {
        Rescue {
            held: vec![false; workers],
            homeless: VecDeque::new(),
            rescued: 0,
            loads: Vec::with_capacity(workers),
        }
    }

    fn follow(&mut self, event: &Event) {
        let (worker, held) = match *event {
            Event::Stalled { worker, .. } => (worker, true),
            Event::Recovered { worker, .. } => (worker, false),
        };
        if held && !self.held.contains(&true) {
            self.rescued = 0;
        }
        self.held[worker] = held;
    }

    fn is_needed(&self) -> bool {
        self.held.contains(&true) || !self.homeless.is_empty()
    }

    /// Empties the listen queues that nobody serves, as far as the others have room.
    fn run(&mut self, shared: &Shared, fabric: &Fabric) {
        self.read_loads(shared);
        while let Some((tag, fd)) = self.homeless.pop_front() {
            if let Err(fd) = self.hand(fabric, tag, fd) {
                return self.homeless.push_front((tag, fd));
            }
        }
        // Held for no longer than this: the queues are looked at, never waited for.
        let kept = shared.kept();
        for listener in kept.iter() {
            if !listener.workers.iter().all(|&worker| self.held[worker]) {
                continue;
            }
            while self.loads.iter().any(Option::is_some)
                && shared.connections() < shared.max_connections
                && let Ok(Some(fd)) = accept_waiting(listener.fd.as_fd())
            {
                if let Err(fd) = self.hand(fabric, listener.tag, fd) {
                    return self.homeless.push_back((listener.tag, fd));
                }
            }
        }
    }

    fn read_loads(&mut self, shared: &Shared) {
        let workers = shared.workers.iter().zip(&self.held);
        let load = |(worker, held): (&crate::worker::shared::WorkerShared, &bool)| {
            let load = worker.load.load(Ordering::Relaxed);
            let fits = load < worker.capacity.load(Ordering::Relaxed);
            (fits && !held).then_some(load)
        };
        self.loads.clear();
        self.loads.extend(workers.map(load));
    }

    /// To the least loaded one; those whose queues are full are not asked again in this round.
    fn hand(&mut self, fabric: &Fabric, tag: u32, mut fd: OwnedFd) -> Result<(), OwnedFd> {
        loop {
            let open = self
                .loads
                .iter()
                .enumerate()
                .filter_map(|(i, load)| Some((i, (*load)?)));
            let Some((worker, load)) = open.min_by_key(|(_, load)| *load) else {
                return Err(fd);
            };
            match fabric.hand(worker, tag, fd) {
                Ok(()) => {
                    self.loads[worker] = Some(load + 1);
                    self.rescued += 1;
                    return Ok(());
                }
                Err(back) => {
                    self.loads[worker] = None;
                    fd = back;
                }
            }
        }
    }
}
