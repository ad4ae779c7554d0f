//! An eventfd: ends another thread's wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::retry_on_intr;

/// A descriptor that is readable from [`Event::signal`] until [`Event::drain`].
///
/// `Waker::from(Arc<Event>)` signals it.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// A new one, not signalled; non-blocking, closed on exec.
    ///
    /// # Errors
    /// As `eventfd(2)`: `EMFILE` and `ENFILE` when a table is full.
    pub fn new() -> io::Result<Event> {
        Ok(Event {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Makes it readable. From any thread, any number of times.
    pub fn signal(&self) {
        // The one failure that can happen is EAGAIN, when the counter is at its end: then it is
        // readable already.
        let _ = retry_on_intr(|| rustix::io::write(&self.fd, &1u64.to_ne_bytes()));
    }

    /// Waits until it is signalled, and drains it.
    ///
    /// # Errors
    /// As `poll(2)`: `ENOMEM`.
    pub fn wait(&self) -> io::Result<()> {
        retry_on_intr(|| poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None))?;
        self.drain();
        Ok(())
    }

    /// Waits until it is signalled, and drains it, or until the time is over. Whether it was signalled.
    ///
    /// # Errors
    /// As `poll(2)`: `ENOMEM`.
    pub fn wait_for(&self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        let waited = retry_on_intr(|| poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&time)))?;
        self.drain();
        Ok(waited > 0)
    }

    /// Makes it unreadable until the next signal.
    pub fn drain(&self) {
        // EAGAIN: it was not signalled.
        let _ = retry_on_intr(|| rustix::io::read(&self.fd, &mut [0; 8][..]));
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Wake for Event {
    fn wake(self: Arc<Event>) {
        self.signal();
    }

    fn wake_by_ref(self: &Arc<Event>) {
        self.signal();
    }
}
