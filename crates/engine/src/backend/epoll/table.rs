//! The worker's sockets: descriptor, what the kernel said last, what is in flight.
//!
//! Owns the descriptors and the names ([`Socket`]) they go by. Makes no system call.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringmain_sys::datagram::SendControl;
use rustix::event::epoll::EventFlags;

use super::poller::Watch;
use crate::backend::{Op, Slot, Socket};
use crate::limits;

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct $name(u8);

        impl $name {
            $($(#[$flag_doc])* pub(super) const $flag: $name = $name(1 << $bit);)+

            pub(super) const fn or(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            pub(super) fn has(self, any: $name) -> bool {
                self.0 & any.0 != 0
            }

            pub(super) fn insert(&mut self, other: $name) {
                self.0 |= other.0;
            }

            pub(super) fn remove(&mut self, other: $name) {
                self.0 &= !other.0;
            }
        }
    };
}

flags! {
    /// Operations in flight.
    Armed {
        ACCEPT = 0,
        RECV = 1,
        SEND = 2,
        CONNECT = 3,
        RECV_FROM = 4,
        /// Datagrams wait for room.
        SEND_TO = 5,
    }
}

flags! {
    /// What the kernel said and no call has disproved since.
    Ready {
        /// Bytes or connections are there.
        READ = 0,
        /// There is room, or the connection failed.
        WRITE = 1,
        /// The peer's end, an error or urgent data is there: a short receive does not mean drained.
        END = 2,
    }
}

impl Armed {
    pub(super) const READERS: Armed = Armed::ACCEPT.or(Armed::RECV).or(Armed::RECV_FROM);
    pub(super) const WRITERS: Armed = Armed::SEND.or(Armed::CONNECT).or(Armed::SEND_TO);
}

impl From<Op> for Armed {
    fn from(op: Op) -> Armed {
        match op {
            Op::Accept => Armed::ACCEPT,
            Op::Recv => Armed::RECV,
            Op::Send => Armed::SEND,
            Op::Connect => Armed::CONNECT,
            Op::RecvFrom => Armed::RECV_FROM,
        }
    }
}

impl Ready {
    pub(super) const READABLE: Ready = Ready::READ.or(Ready::END);
}

impl From<EventFlags> for Ready {
    fn from(flags: EventFlags) -> Ready {
        let failed = EventFlags::ERR | EventFlags::HUP;
        let mut ready = Ready::default();
        if flags.contains(EventFlags::IN) {
            ready.insert(Ready::READ);
        }
        if flags.intersects(failed | EventFlags::OUT) {
            ready.insert(Ready::WRITE);
        }
        if flags.intersects(failed | EventFlags::RDHUP | EventFlags::PRI) {
            ready.insert(Ready::END);
        }
        ready
    }
}

/// The pieces of a send that found no room.
pub(super) struct Pieces {
    pub(super) iovecs: [libc::iovec; limits::SEND_PIECES],
    pub(super) count: usize,
}

/// A datagram that found no room.
pub(super) struct WaitingDatagram {
    pub(super) to: SocketAddr,
    pub(super) control: SendControl,
    pub(super) data: Box<[u8]>,
}

/// What waits for room.
pub(super) enum Waiting {
    Nothing,
    Pieces(Box<Pieces>),
    #[expect(clippy::box_collection, reason = "a rare state must not widen every record")]
    Datagrams(Box<VecDeque<WaitingDatagram>>),
}

/// One socket.
pub(super) struct Record {
    /// `None` while the name is free.
    pub(super) fd: Option<OwnedFd>,
    /// Goes up with every socket of this name: an event of a former one is recognised.
    pub(super) life: u32,
    /// Whose completions these are.
    pub(super) slot: Slot,
    pub(super) armed: Armed,
    pub(super) ready: Ready,
    /// Stands in the ready list.
    pub(super) queued: bool,
    /// A short receive does not mean drained: on Unix sockets passed descriptors cut it, datagrams always do.
    pub(super) probe: bool,
    /// Connections or datagrams it may still take before others are served.
    pub(super) share: u16,
    /// Accepting ends with the next connection.
    pub(super) one: bool,
    pub(super) watch: Watch,
    pub(super) waiting: Waiting,
}

impl Record {
    /// Whether something in flight can go on.
    pub(super) fn due(&self) -> bool {
        (self.armed.has(Armed::READERS) && self.ready.has(Ready::READABLE))
            || (self.armed.has(Armed::WRITERS) && self.ready.has(Ready::WRITE))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd
            .as_ref()
            .expect("the table hands out open records only")
            .as_fd()
    }
}

/// What an idle connection costs this back-end beside its descriptor.
const _: () = assert!(size_of::<Record>() <= 48);

const UNUSED: Slot = Slot {
    index: u32::MAX,
    generation: 0,
};

#[derive(Default)]
pub(super) struct Table {
    records: Vec<Record>,
    free: Vec<u32>,
    /// Socket index by slot index, for cancel. May be stale: the record's slot decides.
    by_slot: Vec<u32>,
}

impl Table {
    pub(super) fn insert(&mut self, fd: OwnedFd, probe: bool) -> Socket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.records.push(Record {
                fd: None,
                life: 0,
                slot: UNUSED,
                armed: Armed::default(),
                ready: Ready::default(),
                queued: false,
                one: false,
                probe: false,
                share: 0,
                watch: Watch::Nothing,
                waiting: Waiting::Nothing,
            });
            u32::try_from(self.records.len() - 1).expect("descriptors are below 2^31")
        });
        let record = &mut self.records[index as usize];
        record.fd = Some(fd);
        record.life = record.life.wrapping_add(1);
        record.probe = probe;
        Socket(index)
    }

    /// Closes the socket and frees its name.
    pub(super) fn remove(&mut self, index: u32) {
        if let Some(record) = self.get_mut(index) {
            record.fd = None;
            self.release(index);
        }
    }

    /// Frees the name of a socket whose descriptor is gone. `queued` stays as it is: an entry in the
    /// ready list will find nothing to do.
    pub(super) fn release(&mut self, index: u32) {
        let record = &mut self.records[index as usize];
        debug_assert!(record.fd.is_none());
        record.slot = UNUSED;
        record.armed = Armed::default();
        record.ready = Ready::default();
        record.watch = Watch::Nothing;
        record.waiting = Waiting::Nothing;
        self.free.push(index);
    }

    /// The record of an open socket.
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Record> {
        self.records
            .get_mut(index as usize)
            .filter(|record| record.fd.is_some())
    }

    /// The record, open or not.
    pub(super) fn any_mut(&mut self, index: u32) -> &mut Record {
        &mut self.records[index as usize]
    }

    pub(super) fn fd(&self, index: u32) -> Option<BorrowedFd<'_>> {
        self.records.get(index as usize)?.fd.as_ref().map(AsFd::as_fd)
    }

    /// Lets `slot` name the socket.
    pub(super) fn bind(&mut self, slot: Slot, index: u32) {
        assert!(
            slot.index < Slot::LIMIT,
            "{slot:?}: slots are below {}",
            Slot::LIMIT
        );
        let at = slot.index as usize;
        if at >= self.by_slot.len() {
            self.by_slot.resize(at + 1, u32::MAX);
        }
        self.by_slot[at] = index;
        if let Some(record) = self.get_mut(index) {
            record.slot = slot;
        }
    }

    /// The socket that has `op` in flight under exactly this slot.
    pub(super) fn armed(&mut self, op: Armed, slot: Slot) -> Option<u32> {
        let index = *self.by_slot.get(slot.index as usize)?;
        let record = self.get_mut(index)?;
        (record.slot == slot && record.armed.has(op)).then_some(index)
    }
}
