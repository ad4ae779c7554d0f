//! The pipe by which a process passes state to its successor: bytes of any kind, bounded in time and size.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::clock;

/// The pipe from the process before this one, until it is taken.
static INCOMING: Mutex<Option<StatePipe>> = Mutex::new(None);

/// One end of the pipe. Closing the sending end is the end of the state.
#[derive(Debug)]
pub struct StatePipe(OwnedFd);

pub(super) fn keep(pipe: Option<OwnedFd>) {
    *INCOMING.lock().unwrap_or_else(PoisonError::into_inner) = pipe.map(StatePipe::new);
}

/// Takes the pipe by which the process that started this one sends its state; `None` without such a process, and on a second call.
/// [`take`](super::take) must have been called before.
#[must_use]
pub fn state() -> Option<StatePipe> {
    INCOMING.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl StatePipe {
    pub(super) fn new(fd: OwnedFd) -> StatePipe {
        StatePipe(fd)
    }

    /// Sends all of the pieces, and closes the pipe.
    ///
    /// # Errors
    /// As `write(2)`; `TimedOut` if the other process has not taken all within this time. It has a part then.
    pub fn send<'p>(self, pieces: impl IntoIterator<Item = &'p [u8]>, within: Duration) -> io::Result<()> {
        self.set_nonblocking()?;
        let end = clock::monotonic().saturating_add(within);
        for mut left in pieces {
            while !left.is_empty() {
                match rustix::io::write(&self.0, left) {
                    Ok(count) => left = &left[count..],
                    Err(Errno::AGAIN) => self.wait(PollFlags::OUT, end)?,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Receives until the other process has closed the pipe.
    ///
    /// # Errors
    /// As `read(2)`; `TimedOut` if the end is not there within this time; `InvalidData` beyond `limit` bytes.
    pub fn receive(self, limit: usize, within: Duration) -> io::Result<Vec<u8>> {
        const PIECE: usize = 256 << 10;
        self.set_nonblocking()?;
        let end = clock::monotonic().saturating_add(within);
        let mut received = Vec::new();
        let mut piece = vec![0; PIECE];
        loop {
            match rustix::io::read(&self.0, &mut piece[..]) {
                Ok(0) => return Ok(received),
                Ok(count) if received.len() + count > limit => {
                    let text = format!("expected at most {limit} bytes of state, found more");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Ok(count) => received.extend_from_slice(&piece[..count]),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, end)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        let flags = fcntl_getfl(&self.0)?;
        Ok(fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?)
    }

    fn wait(&self, wanted: PollFlags, end: Duration) -> io::Result<()> {
        let left = end.saturating_sub(clock::monotonic());
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&self.0.as_fd(), wanted)], Some(&left)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
