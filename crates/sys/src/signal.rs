//! Signals as something to wait for, instead of code that interrupts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::clock;

/// A signal that a service is steered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGHUP`
    Hangup,
    /// `SIGINT`
    Interrupt,
    /// `SIGQUIT`
    Quit,
    /// `SIGTERM`
    Terminate,
    /// `SIGUSR1`
    User1,
    /// `SIGUSR2`
    User2,
}

impl Signal {
    const ALL: [Signal; 6] = [
        Signal::Hangup,
        Signal::Interrupt,
        Signal::Quit,
        Signal::Terminate,
        Signal::User1,
        Signal::User2,
    ];

    fn number(self) -> i32 {
        match self {
            Signal::Hangup => libc::SIGHUP,
            Signal::Interrupt => libc::SIGINT,
            Signal::Quit => libc::SIGQUIT,
            Signal::Terminate => libc::SIGTERM,
            Signal::User1 => libc::SIGUSR1,
            Signal::User2 => libc::SIGUSR2,
        }
    }
}

/// Signals that arrive here instead of ending the process.
///
/// Readable when one is there. Programs that a blocking thread starts by `std::process::Command` begin with the
/// signals blocked too; those of [`crate::inherit::spawn_with`] do not.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals in this thread and in those that it starts from now on. Call it before any other
    /// thread exists: one that does not block a signal would still be ended by it. They stay blocked for good.
    ///
    /// # Errors
    /// As `signalfd(2)`: `EMFILE` and `ENFILE` when a table is full.
    pub fn block(signals: &[Signal]) -> io::Result<Signals> {
        // SAFETY: all bytes zero is a valid `sigset_t`, and sigemptyset makes it an empty one.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a set of ours; the numbers are valid signals, so that nothing can fail.
        unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, signal.number());
            }
        }
        // SAFETY: reads `set`, writes nothing.
        let status = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status));
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: reads `set`; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd })
    }

    /// Waits for the next signal, at most `timeout`; `None` waits for ever. Several arrivals of one signal
    /// before it is taken count once.
    ///
    /// # Errors
    /// As `poll(2)` and `read(2)`: `ENOMEM`.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<Signal>> {
        let end = timeout.map(|timeout| clock::monotonic().saturating_add(timeout));
        loop {
            if let Some(signal) = self.take()? {
                return Ok(Some(signal));
            }
            let left = end.map(|end| end.saturating_sub(clock::monotonic()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], left.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&self) -> io::Result<Option<Signal>> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match retry_on_intr(|| rustix::io::read(&self.fd, &mut info)) {
            Err(Errno::AGAIN) => return Ok(None),
            result => result?,
        };
        // `ssi_signo` is the first field.
        let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        Ok(Signal::ALL
            .into_iter()
            .find(|signal| signal.number() as u32 == number))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
