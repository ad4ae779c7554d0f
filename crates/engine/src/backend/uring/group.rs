//! The rings of one process: how workers find, wake and give sockets to each other.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::Waker;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use io_uring::{cqueue, opcode, types};
use ringmain_sys::clock;
use ringmain_sys::event::Event;

use super::complete::outcome;
use super::user_data::{Kind, pack, plain};
use super::{DIRECT, Uring};
use crate::backend::{Completion, Slot, Socket, Time};
use crate::features::Feature;
use crate::limits;

/// In place of a ring's descriptor.
const NOT_STARTED: RawFd = -1;
const ENDED: RawFd = -2;

/// One entry a worker; made before the workers start.
pub struct Group {
    members: Vec<Member>,
    origin: Duration,
}

struct Member {
    /// The ring's descriptor, or why there is none.
    ring: AtomicI32,
    event: Arc<Event>,
    /// Sockets given away where the rings cannot pass them themselves.
    gifts: ArrayQueue<(u32, OwnedFd)>,
}

impl Group {
    /// A group of `workers`.
    ///
    /// # Errors
    /// As `eventfd(2)`.
    pub fn new(workers: usize) -> io::Result<Arc<Group>> {
        let member = || {
            Ok(Member {
                ring: AtomicI32::new(NOT_STARTED),
                event: Arc::new(Event::new()?),
                gifts: ArrayQueue::new(limits::GIFTS_IN_FLIGHT),
            })
        };
        let members = (0..workers).map(|_| member()).collect::<io::Result<_>>()?;
        Ok(Arc::new(Group {
            members,
            origin: clock::monotonic(),
        }))
    }

    /// The time since the group was made: the zero of all its workers' clocks.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::default().after(clock::monotonic().saturating_sub(self.origin))
    }

    /// Wakes worker `index`; works before and after its life too.
    #[must_use]
    pub fn waker(&self, index: usize) -> Waker {
        Waker::from(Arc::clone(&self.members[index].event))
    }

    /// Brings a connection to worker `worker` from any thread, as if it had been given to it with this `tag`. A
    /// worker that has ended closes it.
    ///
    /// # Errors
    /// The connection, when too many are on their way to that worker.
    pub fn hand(&self, worker: usize, tag: u32, fd: OwnedFd) -> Result<(), OwnedFd> {
        let member = &self.members[worker];
        member.gifts.push((tag, fd)).map_err(|(_, fd)| fd)?;
        member.event.signal();
        Ok(())
    }

    pub(super) fn event(&self, index: usize) -> &Event {
        &self.members[index].event
    }

    /// Wakes worker `index`; a number that is no worker is ignored.
    pub(super) fn signal(&self, index: usize) {
        if let Some(member) = self.members.get(index) {
            member.event.signal();
        }
    }

    /// `None` while there is no such worker.
    pub(super) fn ring(&self, index: usize) -> Option<RawFd> {
        let fd = self.members.get(index)?.ring.load(Ordering::Acquire);
        (fd >= 0).then_some(fd)
    }

    /// Whether connections may be queued for that worker: it is yet to start, or at work.
    fn expects(&self, index: usize) -> bool {
        let member = self.members.get(index);
        member.is_some_and(|member| member.ring.load(Ordering::Acquire) != ENDED)
    }

    pub(super) fn join(&self, index: usize, ring: RawFd) {
        self.members[index].ring.store(ring, Ordering::Release);
    }

    pub(super) fn leave(&self, index: usize) {
        self.members[index].ring.store(ENDED, Ordering::Release);
        // What was still on its way is closed.
        while self.members[index].gifts.pop().is_some() {}
    }
}

impl Uring {
    /// A direct descriptor goes from table to table (MSG_RING, Linux 6.0), any other by the queue.
    pub(super) fn give_away(&mut self, slot: Slot, socket: Socket, worker: usize, tag: u32) {
        if worker == self.index {
            // Nothing moves, so the kernel need not hear of it.
            self.ready.push_back(Completion::Adopted { tag, socket });
            self.ready.push_back(Completion::Given { slot, result: Ok(()) });
            return;
        }
        if !self.group.expects(worker) {
            let result = Err(io::Error::from_raw_os_error(libc::EBADF));
            self.ready.push_back(Completion::Given { slot, result });
            return;
        }
        let target = self.group.ring(worker);
        let target = target.filter(|_| self.config.features.has(Feature::MessageRing));
        if socket.0 & DIRECT == 0 || target.is_none() {
            let result = self.queue_gift(socket, worker, tag);
            self.ready.push_back(Completion::Given { slot, result });
            return;
        }
        let index = self.gifts.iter().position(Option::is_none).unwrap_or_else(|| {
            self.gifts.push(None);
            self.gifts.len() - 1
        });
        self.gifts[index] = Some((slot, socket));
        let entry = opcode::MsgRingSendFd::new(
            types::Fd(target.expect("checked above")),
            types::Fixed(socket.0 & !DIRECT),
            types::DestinationSlot::auto_target(),
            plain(Kind::Adopt, tag),
        );
        let name = pack(
            Kind::Give,
            Slot {
                index: index as u32,
                generation: 0,
            },
        );
        // SAFETY: points to no memory.
        unsafe { self.ring.push(entry.build().user_data(name)) };
    }

    pub(super) fn given(&mut self, index: u32, entry: &cqueue::Entry) -> Completion {
        let (slot, socket) = self.gifts[index as usize].take().expect("completes once");
        let result = outcome(entry).map(drop);
        if result.is_ok() {
            self.close_silently(socket);
        }
        Completion::Given { slot, result }
    }

    fn queue_gift(&mut self, socket: Socket, worker: usize, tag: u32) -> io::Result<()> {
        let missing = || io::Error::from_raw_os_error(libc::ESRCH);
        if worker >= self.group.members.len() {
            return Err(missing());
        }
        let copy = self.with_descriptor(socket, |fd| fd.try_clone_to_owned())?;
        let handed = self.group.hand(worker, tag, copy);
        handed.map_err(|_| io::Error::from_raw_os_error(libc::ENOBUFS))?;
        self.close_silently(socket);
        Ok(())
    }

    /// Takes over what other workers queued for this one.
    pub(super) fn take_gifts(&mut self) {
        while let Some((tag, fd)) = self.group.members[self.index].gifts.pop() {
            match crate::backend::Backend::adopt(self, fd) {
                Ok(socket) => self.ready.push_back(Completion::Adopted { tag, socket }),
                Err(error) => log::warn!("a connection handed over by another worker was closed: {error}"),
            }
        }
    }
}
