//! Listeners handed from one process to the next: the `LISTEN_FDS` protocol of systemd, both ends.
//!
//! The environment names how many descriptors begin at number 3 (`LISTEN_FDS`), what they are called
//! (`LISTEN_FDNAMES`) and for whom they are (`LISTEN_PID`), so that a process further down, which inherits the
//! environment but not the descriptors, leaves them alone. To this [`spawn_with`] adds two pipes: by one the
//! successor reports that it is ready, by the other it receives state.

mod spawn;
mod state;

use std::env;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{SocketType, sockopt};

use crate::addr::Addr;
use crate::socket;

pub(crate) use spawn::unblock_signals;
pub use spawn::{Successor, spawn_with};
pub use state::{StatePipe, state};

/// The number of the first descriptor that is handed over.
const FIRST: RawFd = 3;
/// Names the descriptor of the readiness pipe.
const READY: &str = "RINGMAIN_READY_FD";
/// Names the descriptor of the pipe by which state arrives.
const STATE: &str = "RINGMAIN_STATE_FD";
/// What a name is when none was given.
const UNKNOWN: &str = "unknown";

/// A listener from whoever started this process.
#[derive(Debug)]
pub struct Inherited {
    /// The listener, now non-blocking and closed on exec.
    pub fd: OwnedFd,
    /// What it is called (`FileDescriptorName=` in a systemd unit); `unknown` without a name.
    pub name: String,
    /// Where it listens.
    pub addr: Addr,
}

/// Why the listeners that were handed over cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InheritError {
    /// A variable does not hold a number.
    #[error("expected a number in the environment variable {variable}; found `{found}`")]
    Number {
        /// The variable's name.
        variable: &'static str,
        /// Its value.
        found: String,
    },
    /// As many names as descriptors are needed.
    #[error("expected {expected} names in LISTEN_FDNAMES, as LISTEN_FDS says; found {found}")]
    Names {
        /// The number of descriptors.
        expected: usize,
        /// The number of names.
        found: usize,
    },
    /// A descriptor is not a listening stream socket.
    #[error(
        "expected descriptor {fd} ({name}), handed over by LISTEN_FDS, to be a listening stream socket \
         (ListenStream= in a systemd unit); found {found}"
    )]
    NotListening {
        /// The descriptor.
        fd: RawFd,
        /// What it is called.
        name: String,
        /// What it is.
        found: String,
    },
}

/// Whether the descriptors have been taken over: they must have one owner only.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The pipe to whoever waits for this process, until [`ready`].
static WAITING: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Takes over the listeners that were handed to this process, in their order; none if none were, or on a
/// second call. Call it first of all in `main`: the descriptors are recognised by number.
///
/// # Errors
/// What is wrong with the environment or a descriptor. Those already taken are closed then.
pub fn take() -> Result<Vec<Inherited>, InheritError> {
    if number("LISTEN_PID")? != Some(std::process::id()) || TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS")?.unwrap_or(0) as usize;
    let names = names(count)?;
    *WAITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = pipe(READY)?;
    state::keep(pipe(STATE)?);
    (FIRST..)
        .zip(names)
        .map(|(fd, name)| listener(fd, name))
        .collect()
}

/// Tells the process that started this one that it may stop serving. Returns whether somebody waited
/// for that; nobody does a second time, or if this process was not started by [`spawn_with`].
pub fn ready() -> bool {
    let pipe = WAITING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .take();
    pipe.is_some_and(|pipe| rustix::io::retry_on_intr(|| rustix::io::write(&pipe, b"R")).is_ok())
}

/// Returns whether a process that serves the same addresses waits for [`ready`]. Only after [`take`].
#[must_use]
pub fn has_predecessor() -> bool {
    WAITING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .is_some()
}

/// The pipe of this variable, if it is open.
fn pipe(variable: &'static str) -> Result<Option<OwnedFd>, InheritError> {
    let pipe = number(variable)?.and_then(|fd| own(fd as RawFd));
    let is_pipe = |pipe: &OwnedFd| {
        fstat(pipe).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
    };
    Ok(pipe.filter(is_pipe))
}

fn number(variable: &'static str) -> Result<Option<u32>, InheritError> {
    let Some(value) = env::var_os(variable) else {
        return Ok(None);
    };
    let found = value.to_string_lossy().into_owned();
    match found.parse() {
        Ok(number) if number <= i32::MAX as u32 => Ok(Some(number)),
        _ => Err(InheritError::Number { variable, found }),
    }
}

fn names(count: usize) -> Result<Vec<String>, InheritError> {
    let Some(names) = env::var_os("LISTEN_FDNAMES") else {
        return Ok(vec![UNKNOWN.to_owned(); count]);
    };
    let names: Vec<_> = names.to_string_lossy().split(':').map(str::to_owned).collect();
    match names.len() {
        found if found == count => Ok(names),
        found => Err(InheritError::Names {
            expected: count,
            found,
        }),
    }
}

fn listener(fd: RawFd, name: String) -> Result<Inherited, InheritError> {
    let refuse = |found: String| InheritError::NotListening {
        fd,
        name: name.clone(),
        found,
    };
    let Some(owned) = own(fd) else {
        return Err(refuse("no open descriptor".to_owned()));
    };
    match sockopt::socket_type(&owned) {
        Ok(SocketType::STREAM) => {}
        Ok(SocketType::DGRAM) => return Err(refuse("a datagram socket".to_owned())),
        Ok(_) => return Err(refuse("a socket of another type".to_owned())),
        Err(_) => return Err(refuse("something that is not a socket".to_owned())),
    }
    if !sockopt::socket_acceptconn(&owned).unwrap_or(false) {
        return Err(refuse("a stream socket that does not listen".to_owned()));
    }
    let addr = match socket::local_addr(&owned) {
        Ok(Some(addr)) => addr,
        _ => {
            return Err(refuse(
                "a socket of another family than internet and Unix".to_owned(),
            ));
        }
    };
    let flags = fcntl_getfl(&owned).and_then(|now| fcntl_setfl(&owned, now | OFlags::NONBLOCK));
    flags.map_err(|error| refuse(format!("a socket that cannot be made non-blocking: {error}")))?;
    Ok(Inherited {
        fd: owned,
        name,
        addr,
    })
}

/// Becomes the owner of an open descriptor, and closes it on exec from now on.
fn own(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: the borrow ends below; a number that is not open is answered with EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = fcntl_getfd(borrowed).ok()?;
    fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open, and by the protocol it was handed to this process, which takes it once only.
    Some(unsafe { OwnedFd::from_raw_fd(borrowed.as_raw_fd()) })
}
