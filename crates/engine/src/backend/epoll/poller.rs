//! The epoll instance: which sockets are watched for what, and what it reported.
//!
//! Owns the instance and the block of events of the last wait. Knows nothing of operations.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

    /// Waits, at most `timeout` rounded up to milliseconds; the number of events.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.map(whole_milliseconds);
        self.count = match epoll::wait(self.epoll.as_fd(), &mut *self.events, timeout.as_ref()) {
            Ok((events, _)) => events.len(),
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(self.count)
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

/// Rounded up, so that no wait is shorter than asked. Whole milliseconds up to 24 days go by plain
/// `epoll_pwait`, which every seccomp filter knows.
fn whole_milliseconds(timeout: Duration) -> Timespec {
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    }
}
