//! The server under test: which processes it is, what they use while it is measured, and, if this program started
//! it, its end.
//!
//! A server is a *tree*: the process named, all that descend from it, and, of one started here, all in its process group.
//! What was once in the tree stays in it. Knows nothing of requests; reads the host's clock, for it watches real
//! processes.

mod child;
mod reach;
mod tree;

use std::io;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_sys::process::{self, Ending, Stat};

use self::child::Child;
pub use self::reach::{Unreachable, reach, reach_all};
use self::tree::Tree;
use crate::limits;
use crate::report::ServerUse;

#[cfg(test)]
mod tests;

/// A server whose use of CPU and memory is taken. Dropping it ends it, if it was started here.
#[derive(Debug)]
pub struct Server {
    tree: Tree,
    child: Option<Child>,
    /// CPU time that the tree had used when measuring began.
    began: Duration,
    peak_memory_bytes: u64,
}

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// A command of the shell (`sh -c`), which may hold several words, variables and redirections. Its standard output
    /// and error are read and forgotten but for the last lines.
    pub command: &'a str,
    /// The CPUs that it may use; empty leaves that as it is.
    pub cpus: &'a [usize],
    /// Where it will take connections, in the order in which they are tried; the first that does is taken.
    pub addrs: &'a [Addr],
    /// How long it may take until it does.
    pub patience: Duration,
}

/// Why there is no server to measure, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No process of this number.
    #[error("expected the number of a running process to watch; found no process {0} (`ps -e` lists them)")]
    NoProcess(u32),
    /// It would be measured without being the one that was started.
    #[error(
        "{0} accepts connections before the server was started: stop the process that listens there, or use another address"
    )]
    Taken(Addr),
    /// The shell could not be started.
    #[error("cannot start `{command}` by sh: {error}")]
    Start {
        /// As given.
        command: String,
        /// What the system said.
        error: io::Error,
    },
    /// It has ended before it took a connection.
    #[error("the server `{command}` exited before it accepted a connection ({status}){output}")]
    EndedEarly {
        /// As given.
        command: String,
        /// How it ended.
        status: String,
        /// What it said last, as the end of a sentence; empty if nothing.
        output: String,
    },
    /// It runs and takes no connections.
    #[error("the server `{command}` accepts no connections after {}s: {unreachable}{output}", patience.as_secs_f64())]
    Deaf {
        /// As given.
        command: String,
        /// How long it was waited for.
        patience: Duration,
        /// Each address with its reason.
        unreachable: Unreachable,
        /// What it said last, as the end of a sentence; empty if nothing.
        output: String,
    },
    /// Told to stop while waiting.
    #[error("interrupted while waiting for the server")]
    Interrupted,
    /// It exited while it was measured.
    #[error("the server (process {pid}) exited while it was measured{status}{output}")]
    Gone {
        /// Its process.
        pid: u32,
        /// How it ended, in parentheses; empty if it was not started here.
        status: String,
        /// What it said last, as the end of a sentence; empty if nothing.
        output: String,
    },
    /// There is no `/proc` to look at.
    #[error("cannot watch the server: /proc cannot be read: {0}")]
    NoProc(#[from] io::Error),
}

impl Server {
    /// One that runs already, with all that descends from this process.
    ///
    /// # Errors
    /// [`ServerError::NoProcess`], [`ServerError::NoProc`].
    pub fn watch(pid: u32) -> Result<Server, ServerError> {
        let root = process::stat(pid).filter(|root| !root.ended);
        let root = root.ok_or(ServerError::NoProcess(pid))?;
        Ok(Server::of(Tree::below(root), None))
    }

    /// Starts one and waits until it takes a connection; also says at which address. `pause` waits for so long and says
    /// whether to go on.
    ///
    /// # Errors
    /// All but [`ServerError::NoProcess`] and [`ServerError::Gone`]; it has been ended then.
    pub fn start(
        start: &Start<'_>,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<(Server, Addr), ServerError> {
        if let Ok(addr) = reach(start.addrs) {
            return Err(ServerError::Taken(addr));
        }
        let child = Child::start(start.command, start.cpus)?;
        // Even one that has ended is there until it is waited for.
        let Some(root) = process::stat(child.pid()) else {
            child.finish();
            return Err(ServerError::NoProc(io::ErrorKind::NotFound.into()));
        };
        let mut server = Server::of(Tree::group(root), Some(child));
        let addr = server.listening(start, pause)?;
        Ok((server, addr))
    }

    fn of(tree: Tree, child: Option<Child>) -> Server {
        Server {
            tree,
            child,
            began: Duration::ZERO,
            peak_memory_bytes: 0,
        }
    }

    fn listening(
        &mut self,
        start: &Start<'_>,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<Addr, ServerError> {
        let end = ringmain_sys::clock::monotonic() + start.patience;
        let command = || start.command.to_owned();
        loop {
            let child = self.child.as_mut().expect("called for a server that was started");
            // Looked at first: what takes a connection after its end is somebody else.
            if let Some(status) = child.ended() {
                return Err(ServerError::EndedEarly {
                    command: command(),
                    status,
                    output: child.last_words(),
                });
            }
            let unreachable = match reach(start.addrs) {
                Ok(addr) => return Ok(addr),
                Err(unreachable) => unreachable,
            };
            if ringmain_sys::clock::monotonic() >= end {
                return Err(ServerError::Deaf {
                    command: command(),
                    patience: start.patience,
                    unreachable,
                    output: child.last_words(),
                });
            }
            // What it starts before it listens belongs to it, whatever becomes of its parents.
            self.tree.look()?;
            if !pause(limits::SERVER_LOOK) {
                return Err(ServerError::Interrupted);
            }
        }
    }

    /// Its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.tree.root().pid
    }

    /// Measuring begins.
    ///
    /// # Errors
    /// [`ServerError::Gone`], [`ServerError::NoProc`].
    pub fn begin(&mut self) -> Result<(), ServerError> {
        self.look()?;
        self.began = self.tree.cpu();
        self.peak_memory_bytes = self.tree.memory();
        Ok(())
    }

    /// Measuring goes on: takes the memory, and notices processes that come and go. Once a second does for most; more
    /// often costs this program CPU time, and a server with much memory a lock now and then.
    ///
    /// # Errors
    /// [`ServerError::Gone`], [`ServerError::NoProc`].
    pub fn tick(&mut self) -> Result<(), ServerError> {
        self.look()?;
        self.peak_memory_bytes = self.peak_memory_bytes.max(self.tree.memory());
        Ok(())
    }

    /// CPU time used so far, for a span within what is measured.
    ///
    /// # Errors
    /// [`ServerError::Gone`], [`ServerError::NoProc`].
    pub fn cpu(&mut self) -> Result<Duration, ServerError> {
        self.look()?;
        Ok(self.tree.cpu())
    }

    /// Measuring ends: what was used since [`Server::begin`]. Exact to the nanosecond for processes that lived all the
    /// time, to a tick (10 ms) for each that ended.
    ///
    /// # Errors
    /// [`ServerError::Gone`], [`ServerError::NoProc`].
    pub fn end(&mut self) -> Result<ServerUse, ServerError> {
        self.look()?;
        // The memory is taken after the time, so that reading it is not measured.
        let cpu = self.tree.cpu().saturating_sub(self.began);
        Ok(ServerUse {
            cpu,
            peak_memory_bytes: self.peak_memory_bytes.max(self.tree.memory()),
            processes: self.tree.processes(),
        })
    }

    /// Memory resident now, bytes, summed over the processes.
    ///
    /// # Errors
    /// [`ServerError::Gone`], [`ServerError::NoProc`].
    pub fn memory(&mut self) -> Result<u64, ServerError> {
        self.look()?;
        Ok(self.tree.memory())
    }

    fn look(&mut self) -> Result<(), ServerError> {
        self.tree.look()?;
        let root = self.tree.root();
        if process::stat(root.pid).is_some_and(|now| now.start == root.start && !now.ended) {
            return Ok(());
        }
        let mut status = String::new();
        let mut output = String::new();
        if let Some(child) = &mut self.child {
            status = child
                .ended()
                .map_or_else(String::new, |status| format!(" ({status})"));
            output = child.last_words();
        }
        Err(ServerError::Gone {
            pid: root.pid,
            status,
            output,
        })
    }

    /// All that is left of the tree.
    fn left(&mut self) -> Vec<Stat> {
        // Without `/proc` nothing could have been started.
        let _ = self.tree.look();
        self.tree.running()
    }
}

impl Drop for Server {
    /// Asks all processes of the tree to end, waits for [`limits::SERVER_END`], and forces those that are left.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let asked_until = ringmain_sys::clock::monotonic() + limits::SERVER_END;
        let forced_until = asked_until + limits::SERVER_FORCED;
        let mut asked = Vec::new();
        loop {
            // Its parent must take notice of its end.
            child.ended();
            let left = self.left();
            let now = ringmain_sys::clock::monotonic();
            if left.is_empty() || now >= forced_until {
                break;
            }
            for process in &left {
                // What is not to be ended has become somebody else's, which cannot be helped.
                if now >= asked_until {
                    let _ = process::end(process, Ending::Force);
                } else if !asked.contains(&process.pid) {
                    let _ = process::end(process, Ending::Ask);
                    asked.push(process.pid);
                }
            }
            child::wait(limits::SERVER_LOOK);
        }
        child.finish();
    }
}
