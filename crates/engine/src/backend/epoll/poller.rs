//! The epoll instance: which sockets are watched for what, and what it reported.
//!
//! Owns the instance and the block of events of the last wait. Knows nothing of operations.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::table::Record;
use crate::limits;

/// What a socket is watched for.
///
/// ```text
/// Nothing ──recv──▶ Read ──no room──▶ ReadWrite        (edge-triggered, stays until close)
///    └──accept──▶ Listener ──end of accept──▶ Nothing  (level-triggered)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watch {
    Nothing,
    Read,
    /// Only sockets that once found no room: others would be told of room all the time.
    ReadWrite,
    Listener,
}

const READ: EventFlags = EventFlags::ET
    .union(EventFlags::IN)
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI);

impl Watch {
    fn flags(self) -> EventFlags {
        match self {
            Watch::Nothing => EventFlags::empty(),
            Watch::Read => READ,
            Watch::ReadWrite => READ.union(EventFlags::OUT),
            // A listener shared by workers wakes one of them, not all.
            Watch::Listener => EventFlags::IN.union(EventFlags::EXCLUSIVE),
        }
    }
}

/// No socket has this index: descriptors are below 2^31.
const WAKE: u64 = u64::MAX;

pub(super) struct Poller {
    epoll: OwnedFd,
    events: Box<[MaybeUninit<Event>]>,
    /// How many of `events` are filled.
    count: usize,
    /// Timeouts are kept to the nanosecond, by `epoll_pwait2`.
    pub(super) exact: bool,
}

impl Poller {
    pub(super) fn new(wake: BorrowedFd<'_>) -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = EventFlags::IN.union(EventFlags::ET);
        epoll::add(&epoll, wake, EventData::new_u64(WAKE), flags)?;
        let events = vec![MaybeUninit::uninit(); limits::EPOLL_EVENTS].into_boxed_slice();
        Ok(Poller {
            epoll,
            events,
            count: 0,
            exact: false,
        })
    }

    /// Widens what `record` is watched for. Watching anew reports what is already there.
    pub(super) fn watch(&self, index: u32, record: &mut Record, watch: Watch) -> io::Result<()> {
        if record.watch >= watch {
            return Ok(());
        }
        let data = EventData::new_u64(u64::from(record.life) << 32 | u64::from(index));
        if record.watch == Watch::Nothing {
            epoll::add(&self.epoll, record.fd(), data, watch.flags())?;
        } else {
            epoll::modify(&self.epoll, record.fd(), data, watch.flags())?;
        }
        record.watch = watch;
        Ok(())
    }

    /// Stops watching; for sockets that live on elsewhere or whose descriptor may be shared with
    /// another process. Others stop by being closed.
    pub(super) fn unwatch(&self, record: &mut Record) {
        if record.watch != Watch::Nothing {
            record.watch = Watch::Nothing;
            // It is watched, so it can be removed.
            let _ = epoll::delete(&self.epoll, record.fd());
        }
    }

    /// Waits, at most `timeout`, which is rounded up to milliseconds unless `exact`; the number of events.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let fine = timeout.filter(|_| self.exact).and_then(fine);
        let waited = match fine {
            Some(timeout) => self.wait_exactly(timeout),
            None => {
                let timeout = timeout.map(whole_milliseconds);
                epoll::wait(self.epoll.as_fd(), &mut *self.events, timeout.as_ref())
                    .map(|(events, _)| events.len())
            }
        };
        self.count = match waited {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            // Linux before 5.11, or a seccomp filter that knows no `epoll_pwait2`.
            Err(Errno::NOSYS | Errno::PERM) if fine.is_some() => {
                log::warn!("alarms may be 1 ms late: epoll_pwait2 is refused here");
                self.exact = false;
                return self.wait(timeout);
            }
            Err(error) => return Err(error.into()),
        };
        Ok(self.count)
    }

    /// `rustix` calls it only when told that every kernel has it.
    fn wait_exactly(&mut self, timeout: Timespec) -> Result<usize, Errno> {
        // SAFETY: the kernel writes at most as many events as there is room for, in the layout that `Event` has, and
        // reads the timeout (two 64-bit numbers), all during the call. There is no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len(),
                std::ptr::from_ref(&timeout),
                std::ptr::null::<libc::sigset_t>(),
                0,
            )
        };
        usize::try_from(count).map_err(|_| {
            let error = io::Error::last_os_error();
            Errno::from_io_error(&error).expect("a system call's error has a number")
        })
    }

    /// Event `at` of the last wait: the socket's index and life, and the flags.
    pub(super) fn event(&self, at: usize) -> (u32, u32, EventFlags) {
        assert!(at < self.count);
        // SAFETY: the last wait filled `count` events, and `at` is below.
        let event = unsafe { self.events[at].assume_init() };
        let data = event.data.u64();
        (
            (data & u64::from(u32::MAX)) as u32,
            (data >> 32) as u32,
            event.flags,
        )
    }
}

/// A timeout for `epoll_pwait2`; `None` if whole milliseconds say the same.
///
/// The kernel lets a long wait be late by a thousandth, whatever the thread's slack: such a one ends a little early, and the
/// next one is exact.
fn fine(timeout: Duration) -> Option<Timespec> {
    if timeout.subsec_nanos().is_multiple_of(1_000_000) || timeout > limits::EPOLL_FINE {
        return None;
    }
    let span = if timeout > limits::EPOLL_EXACT {
        timeout - timeout / 256
    } else {
        timeout
    };
    Some(Timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: i64::from(span.subsec_nanos()),
    })
}

/// Rounded up, so that no wait is shorter than asked. Whole milliseconds up to 24 days go by plain
/// `epoll_pwait`, which every seccomp filter knows; some end the process for a call that they do not know. So nothing
/// else is tried before an alarm is set.
fn whole_milliseconds(timeout: Duration) -> Timespec {
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    }
}
