//! Listeners: opened for all workers before they start, or while they serve; closed again, and handed over.
//!
//! ```text
//! open ─▶ bound, one socket a worker or one for all ─▶ an order to each worker ─▶ all have it
//! close ─▶ no copy is kept ─▶ an order to each worker ─▶ accepted what had come, closed
//! ```

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_sys::addr::Addr;
use ringmain_sys::listen::{self, ListenOptions};
use ringmain_sys::socket;

use super::{EngineError, system};
use crate::limits;
use crate::worker::shared::{Kept, Opened, Order, Shared, SocketFile, State};

/// The names of listeners that this program opened begin so when they are handed over. Others, from
/// a service manager, keep theirs, and their socket files are not ours to remove.
pub(super) const OWN_NAME: &str = "ringmain/";

/// The longest name of a listener that can be handed over, bytes.
const NAME_BYTES: usize = 255;

/// One address, opened for all workers.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) addr: Addr,
    pub(super) name: String,
    /// One for each worker, in worker order, or fewer that are shared.
    pub(super) fds: Vec<OwnedFd>,
    /// Connections that its queue may hold.
    pub(super) backlog: u32,
    pub(super) file: Option<SocketFile>,
}

/// What opening depends on, besides the address.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) workers: usize,
    /// The interface whose queues connections are steered by.
    pub(super) steer: Option<String>,
    pub(super) pins: Vec<usize>,
}

impl Opening {
    /// Opens an address.
    pub(super) fn bind(&self, addr: &Addr, options: &ListenOptions) -> Result<Bound, EngineError> {
        let Addr::Inet(_) = addr else {
            // The kernel balances no group of Unix listeners: all workers accept from one.
            let fd = listen::listen(addr, options)?;
            let file = addr.path().map(|path| SocketFile::new(path, &fd, true));
            return Ok(Bound {
                addr: addr.clone(),
                name: own_name(addr),
                file: file.transpose().map_err(system("dup"))?,
                fds: vec![fd],
                backlog: options.backlog,
            });
        };
        let alone = self.workers == 1;
        if !alone {
            // A port that others hold with SO_REUSEPORT would be joined silently: look first.
            drop(listen::listen(
                addr,
                &ListenOptions {
                    reuse_port: false,
                    ..options.clone()
                },
            )?);
        }
        let options = ListenOptions {
            reuse_port: !alone,
            ..options.clone()
        };
        let first = listen::listen(addr, &options)?;
        let bound = socket::local_addr(&first)
            .map_err(system("getsockname"))?
            .unwrap_or(addr.clone());
        let mut fds = vec![first];
        // In worker order: the kernel numbers a group in the order of joining.
        for _ in 1..self.workers {
            fds.push(listen::listen(&bound, &options)?);
        }
        self.steer(&fds)?;
        Ok(Bound {
            addr: bound.clone(),
            name: own_name(&bound),
            fds,
            backlog: options.backlog,
            file: None,
        })
    }

    /// Attaches CPU steering if it was asked for and would do good.
    fn steer(&self, fds: &[OwnedFd]) -> Result<(), EngineError> {
        let Some(interface) = &self.steer else {
            return Ok(());
        };
        let unmet = if self.pins.is_empty() {
            Some("the workers are not pinned to CPUs of their own".to_string())
        } else {
            let root = std::path::Path::new("/");
            ringmain_sys::steering::check(root, interface, &self.pins)
                .err()
                .map(|e| e.to_string())
        };
        match unmet {
            Some(why) => log::warn!("CPU steering is off, the kernel spreads connections by hash: {why}"),
            None => listen::attach_cpu_steering(&fds[0], fds.len() as u32)
                .map_err(system("SO_ATTACH_REUSEPORT_CBPF"))?,
        }
        Ok(())
    }
}

impl Bound {
    /// Gives every worker its listener: its own of a group, or a copy of one that is shared. No listener of
    /// a larger group goes without a worker.
    pub(super) fn spread(&self, tag: u32, all: &mut [Vec<(u32, OwnedFd)>]) -> io::Result<()> {
        let workers = all.len();
        for turn in 0..workers.max(self.fds.len()) {
            let fd = self.fds[turn % self.fds.len()].as_fd().try_clone_to_owned()?;
            all[turn % workers].push((tag, fd));
        }
        Ok(())
    }

    /// The process's own copies. Its file goes with them.
    pub(super) fn keep(&mut self, tag: u32, workers: usize) -> io::Result<Vec<Kept>> {
        let mut all = Vec::new();
        for (index, fd) in self.fds.iter().enumerate() {
            let turns = (0..workers.max(self.fds.len()))
                .skip(index)
                .step_by(self.fds.len());
            all.push(Kept {
                tag,
                workers: turns.map(|turn| turn % workers).collect(),
                fd: fd.try_clone()?,
                name: self.name.clone(),
                file: self.file.take(),
            });
        }
        Ok(all)
    }
}

/// What a listener of ours is called when it is handed over: for people. A name takes printable ASCII
/// without a colon.
fn own_name(addr: &Addr) -> String {
    let fits = |c: char| c.is_ascii_graphic() && c != ':';
    let text = addr.to_string();
    let name = text.chars().map(|c| if fits(c) { c } else { '_' });
    OWN_NAME.chars().chain(name).take(NAME_BYTES).collect()
}

/// Opens and closes listeners of an engine that runs, from any thread but its workers. Clones are the same; calls wait for each
/// other, and for a process that is just taking the listeners over.
#[derive(Clone, Debug)]
pub struct Listeners(Arc<Inner>);

/// An address that is bound and that no worker accepts from yet.
#[derive(Debug)]
pub struct BoundListener(Bound);

impl BoundListener {
    /// The address, with the port that the kernel chose.
    #[must_use]
    pub fn addr(&self) -> &Addr {
        &self.0.addr
    }
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    opening: Opening,
    /// Queues of those that are open, by their numbers.
    backlogs: Mutex<BTreeMap<u32, u32>>,
}

impl Listeners {
    pub(super) fn new(shared: Arc<Shared>, opening: Opening, opened: &[Bound]) -> Listeners {
        let backlogs = (0..).zip(opened).map(|(tag, bound)| (tag, bound.backlog));
        Listeners(Arc::new(Inner {
            shared,
            opening,
            backlogs: Mutex::new(backlogs.collect()),
        }))
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.opening.workers
    }

    /// Opens an address on every worker: [`Listeners::bind`], then [`Listeners::start`].
    ///
    /// # Errors
    /// Those of both; nothing is open then.
    pub fn open(&self, number: u32, addr: &Addr, options: &ListenOptions) -> Result<Addr, EngineError> {
        self.start(number, self.bind(addr, options)?)
    }

    /// Binds an address. The kernel queues its connections from now on; they are accepted after [`Listeners::start`]. Dropping the
    /// result closes it. With port 0 the kernel chooses, see [`BoundListener::addr`].
    ///
    /// # Errors
    /// The address is in use, invalid or not permitted; the process is shutting down.
    pub fn bind(&self, addr: &Addr, options: &ListenOptions) -> Result<BoundListener, EngineError> {
        let Inner { shared, opening, .. } = &*self.0;
        let _turn = shared.doors();
        if shared.state() >= State::Draining {
            return Err(refused(addr, "the process is shutting down"));
        }
        Ok(BoundListener(opening.bind(addr, options)?))
    }

    /// Has every worker accept connections of a bound address; they carry this number
    /// ([`Via::Listener`](crate::Via::Listener)), which must be no open listener's. When this returns, all workers accept.
    ///
    /// # Errors
    /// Another listener has the number, the process is shutting down, or a worker does not respond within
    /// [`limits::LISTENER_PATIENCE`]; nothing is open then.
    pub fn start(&self, number: u32, bound: BoundListener) -> Result<Addr, EngineError> {
        let BoundListener(mut bound) = bound;
        let Inner { shared, opening, .. } = &*self.0;
        let _turn = shared.doors();
        if shared.state() >= State::Draining {
            return Err(refused(&bound.addr, "the process is shutting down"));
        }
        if self.backlogs().contains_key(&number) {
            return Err(refused(&bound.addr, "another listener has its number"));
        }
        let mut shares: Vec<Vec<(u32, OwnedFd)>> = (0..opening.workers).map(|_| Vec::new()).collect();
        bound.spread(number, &mut shares).map_err(system("dup"))?;
        let kept = bound.keep(number, opening.workers).map_err(system("dup"))?;
        shared.kept().extend(kept);
        self.backlogs().insert(number, bound.backlog);
        let (addr, backlog) = (bound.addr.clone(), bound.backlog);
        drop(bound);
        let (told, outcomes) = mpsc::channel();
        let mut wanted = 0;
        for (worker, fds) in shares.into_iter().enumerate() {
            for (tag, fd) in fds {
                wanted += 1;
                let order = Order::Open {
                    tag,
                    listener: Opened::Descriptor(fd),
                    backlog,
                    told: told.clone(),
                };
                shared.order(worker, order);
            }
        }
        drop(told);
        for _ in 0..wanted {
            let outcome = wait(&outcomes, shared).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = outcome {
                self.close_now(number);
                return Err(refused(&addr, &error.to_string()));
            }
        }
        Ok(addr)
    }

    /// Closes the listener of this number on every worker. Connections that are there go on, those that wait in its queue are
    /// accepted. When this returns nobody listens there any more, unless a worker is held for longer than
    /// [`limits::LISTENER_PATIENCE`]. A number that no listener has is none to close.
    pub fn close(&self, number: u32) {
        let _turn = self.0.shared.doors();
        self.close_now(number);
    }

    fn close_now(&self, number: u32) {
        let Inner { shared, opening, .. } = &*self.0;
        let Some(backlog) = self.backlogs().remove(&number) else {
            return;
        };
        // A listener is closed only when nobody holds it.
        shared.kept().retain(|kept| kept.tag != number);
        let (told, closed) = mpsc::channel();
        for worker in 0..opening.workers {
            let order = Order::Close {
                tag: number,
                backlog,
                told: told.clone(),
            };
            shared.order(worker, order);
        }
        drop(told);
        // Nothing is ever sent: who has closed it drops its end.
        let _: Option<()> = wait(&closed, shared);
    }

    fn backlogs(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, u32>> {
        self.0.backlogs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for what workers say, as long as there are any.
fn wait<T>(outcomes: &mpsc::Receiver<T>, shared: &Shared) -> Option<T> {
    const LOOK: Duration = Duration::from_millis(50);
    let looks = limits::LISTENER_PATIENCE.as_millis() / LOOK.as_millis();
    for _ in 0..looks {
        match outcomes.recv_timeout(LOOK) {
            Ok(outcome) => return Some(outcome),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if shared.state() == State::Stopping => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    None
}

fn refused(addr: &Addr, why: &str) -> EngineError {
    EngineError::System {
        what: format!("listening at {addr}"),
        source: io::Error::other(why.to_owned()),
    }
}
