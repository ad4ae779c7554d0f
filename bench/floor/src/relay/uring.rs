//! The bare relay on io_uring: multishot accept and receive, sends out of the receive buffers without a copy.
//!
//! Must not know of the epoll one. A send tells of failure only: its buffer is free again when an answer, or the next
//! request, shows that it went. Holds at most [`CLIENTS`] connections of each side.

use super::{answer_length, connect, is_one_head};
use crate::uring::{build_ring, BufferRing, SLOTS};
use io_uring::{cqueue, opcode, squeue, types, IoUring, Submitter};
use std::os::fd::AsRawFd;

/// Slots from here on are upstream connections.
const CLIENTS: u32 = SLOTS / 2;

/// Kind of a completion, in the upper half of its user data; the lower half is the slot.
const ACCEPT: u64 = 1 << 32;
const FROM_CLIENT: u64 = 2 << 32;
const FROM_UPSTREAM: u64 = 3 << 32;
const TO_CLIENT: u64 = 4 << 32;
const TO_UPSTREAM: u64 = 5 << 32;
const CLOSE: u64 = 6 << 32;

const REGISTER_FILE_ALLOC_RANGE: u32 = 25;

/// A connection of either side, by its slot.
#[derive(Clone, Default)]
struct Connection {
    open: bool,
    /// Whom it is exchanging with.
    other: Option<u32>,
    /// Bytes of the answer that have not come.
    left: usize,
    /// The buffer that was sent to it last.
    lent: Option<u16>,
}

struct Relay {
    listener: i32,
    upstream: u16,
    buffers: BufferRing,
    gave_buffers: bool,
    connections: Vec<Connection>,
    upstreams: u32,
    idle: Vec<u32>,
}

fn accept(listener: i32) -> squeue::Entry {
    let multishot = opcode::AcceptMulti::new(types::Fd(listener)).allocate_file_index(true);
    multishot.build().user_data(ACCEPT)
}

fn receive(slot: u32) -> squeue::Entry {
    let kind = if slot < CLIENTS {
        FROM_CLIENT
    } else {
        FROM_UPSTREAM
    };
    let multishot = opcode::RecvMulti::new(types::Fixed(slot), 0);
    multishot.build().user_data(kind | u64::from(slot))
}

fn send(slot: u32, bytes: &[u8]) -> squeue::Entry {
    let kind = if slot < CLIENTS { TO_CLIENT } else { TO_UPSTREAM };
    let one = opcode::Send::new(types::Fixed(slot), bytes.as_ptr(), bytes.len() as u32);
    let one = one.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build();
    one.user_data(kind | u64::from(slot))
        .flags(squeue::Flags::SKIP_SUCCESS)
}

/// Accepted connections get the slots below [`CLIENTS`].
fn reserve(ring: &IoUring) {
    let range: [u32; 4] = [0, CLIENTS, 0, 0];
    // SAFETY: the kernel reads the range during the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_FILE_ALLOC_RANGE,
            range.as_ptr(),
            0,
        )
    };
    assert_eq!(done, 0, "a range of slots for accepted connections");
}

impl Relay {
    fn give(&mut self, id: Option<u16>) {
        if let Some(id) = id {
            self.buffers.give(id);
            self.gave_buffers = true;
        }
    }

    fn take_back(&mut self, slot: u32) {
        let lent = self.connections[slot as usize].lent.take();
        self.give(lent);
    }

    /// Sends what a buffer holds, which is kept until `take_back`.
    fn lend(&mut self, slot: u32, id: u16, length: usize, push: &mut impl FnMut(squeue::Entry)) {
        self.take_back(slot);
        self.connections[slot as usize].lent = Some(id);
        push(send(slot, self.buffers.bytes(id, length)));
    }

    fn on_accept(&mut self, result: i32, more: bool, push: &mut impl FnMut(squeue::Entry)) {
        if result >= 0 {
            self.connections[result as usize] = Connection {
                open: true,
                ..Connection::default()
            };
            push(receive(result as u32));
        }
        if !more {
            push(accept(self.listener));
        }
    }

    #[inline]
    fn on_receive(
        &mut self,
        slot: u32,
        (result, flags): (i32, u32),
        submitter: &Submitter<'_>,
        push: &mut impl FnMut(squeue::Entry),
    ) {
        if result <= 0 {
            return match result {
                code if code == -libc::ENOBUFS => push(receive(slot)),
                _ => self.close(slot, push),
            };
        }
        let id = cqueue::buffer_select(flags).expect("a receive names its buffer");
        if !self.connections[slot as usize].open {
            return self.give(Some(id));
        }
        let length = result as usize;
        let is_right = match slot < CLIENTS {
            true => self.ask(slot, id, length, submitter, push),
            false => self.answer(slot, id, length, push),
        };
        if !is_right {
            self.give(Some(id));
            self.close(slot, push);
        } else if !cqueue::more(flags) {
            push(receive(slot));
        }
    }

    fn ask(
        &mut self,
        client: u32,
        id: u16,
        length: usize,
        submitter: &Submitter<'_>,
        push: &mut impl FnMut(squeue::Entry),
    ) -> bool {
        self.take_back(client);
        let is_asking = self.connections[client as usize].other.is_some();
        if is_asking || !is_one_head(self.buffers.bytes(id, length)) {
            return false;
        }
        let upstream = match self.idle.pop() {
            Some(upstream) => upstream,
            None => self.dial(submitter, push),
        };
        self.connections[client as usize].other = Some(upstream);
        let connection = &mut self.connections[upstream as usize];
        (connection.other, connection.left) = (Some(client), 0);
        self.lend(upstream, id, length, push);
        true
    }

    fn dial(&mut self, submitter: &Submitter<'_>, push: &mut impl FnMut(squeue::Entry)) -> u32 {
        let fd = connect(self.upstream);
        let slot = CLIENTS + self.upstreams;
        self.upstreams += 1;
        submitter.register_files_update(slot, &[fd]).expect("a free slot");
        // SAFETY: the ring has its own reference to the file.
        unsafe { libc::close(fd) };
        self.connections[slot as usize].open = true;
        push(receive(slot));
        slot
    }

    fn answer(
        &mut self,
        upstream: u32,
        id: u16,
        length: usize,
        push: &mut impl FnMut(squeue::Entry),
    ) -> bool {
        let Some(client) = self.connections[upstream as usize].other else {
            return false;
        };
        if self.connections[upstream as usize].left == 0 {
            let whole = answer_length(self.buffers.bytes(id, length));
            self.connections[upstream as usize].left = whole.expect("a head with a length in one receive");
            // It has the request.
            self.take_back(upstream);
        }
        let connection = &mut self.connections[upstream as usize];
        connection.left -= length;
        if connection.left == 0 {
            connection.other = None;
            self.connections[client as usize].other = None;
            self.idle.push(upstream);
        }
        self.lend(client, id, length, push);
        true
    }

    fn close(&mut self, slot: u32, push: &mut impl FnMut(squeue::Entry)) {
        for slot in [Some(slot), self.connections[slot as usize].other]
            .into_iter()
            .flatten()
        {
            if !std::mem::take(&mut self.connections[slot as usize].open) {
                continue;
            }
            self.take_back(slot);
            self.connections[slot as usize].other = None;
            self.idle.retain(|idle| *idle != slot);
            push(opcode::Close::new(types::Fixed(slot)).build().user_data(CLOSE));
        }
    }
}

/// Serves until the process is ended.
pub fn run(listener: i32, upstream: u16) -> ! {
    let mut ring = build_ring(SLOTS);
    reserve(&ring);
    let mut relay = Relay {
        listener,
        upstream,
        buffers: BufferRing::new(&ring),
        gave_buffers: false,
        connections: vec![Connection::default(); SLOTS as usize],
        upstreams: 0,
        idle: Vec::new(),
    };
    // SAFETY: the entry names no memory.
    unsafe { ring.submission().push(&accept(listener)) }.expect("an empty queue has room");
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            Err(e) => panic!("submit and wait: {e}"),
        }
        let (submitter, mut queue, completions) = ring.split();
        let mut push = |entry: squeue::Entry| {
            // SAFETY: a send reads a buffer that is not given back before it is known to have gone.
            while unsafe { queue.push(&entry) }.is_err() {
                queue.sync();
                submitter.submit().expect("submit");
                queue.sync();
            }
        };
        for completion in completions {
            let slot = completion.user_data() as u32;
            let (result, flags) = (completion.result(), completion.flags());
            match completion.user_data() & !0xffff_ffff {
                ACCEPT => relay.on_accept(result, cqueue::more(flags), &mut push),
                FROM_CLIENT | FROM_UPSTREAM => relay.on_receive(slot, (result, flags), &submitter, &mut push),
                // Only those that failed are told of.
                TO_CLIENT | TO_UPSTREAM => relay.close(slot, &mut push),
                _ => {}
            }
        }
        if std::mem::take(&mut relay.gave_buffers) {
            relay.buffers.publish();
        }
    }
}
