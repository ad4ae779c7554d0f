//! The io_uring floor: multishot accept into direct descriptors, multishot receive from a
//! provided-buffer ring, one submit-and-wait per turn, DEFER_TASKRUN.
//!
//! Must not know of the epoll floor. Holds at most [`SLOTS`] connections.

use crate::app::{self, App};
use io_uring::{cqueue, opcode, squeue, types, IoUring};
use std::sync::atomic::{AtomicU16, Ordering};

pub const SLOTS: u32 = 16_384;
const BUFFERS: u16 = 4096;
const BUFFER_BYTES: usize = 4096;

/// Kind of a completion, in the upper half of its user data; the lower half is the slot.
const ACCEPT: u64 = 1 << 32;
const RECEIVE: u64 = 2 << 32;
const SEND: u64 = 3 << 32;
const CLOSE: u64 = 4 << 32;

#[derive(Default)]
struct Connection {
    open: bool,
    sending: bool,
    /// What the send under way reads from.
    out: Vec<u8>,
    /// What is to be sent after it.
    next: Vec<u8>,
    /// The beginning of a request that has not arrived whole.
    rest: Vec<u8>,
}

/// The buffers that the kernel receives into, and the ring that gives them to it.
pub struct BufferRing {
    ring: *mut types::BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

impl BufferRing {
    pub fn new(uring: &IoUring) -> Self {
        let entries = BUFFERS as usize * size_of::<types::BufRingEntry>();
        let ring: *mut types::BufRingEntry = map(entries).cast();
        // SAFETY: the mapping is page-aligned, large enough and never unmapped.
        let registered = unsafe {
            uring
                .submitter()
                .register_buf_ring_with_flags(ring as u64, BUFFERS, 0, 0)
        };
        registered.expect("register the buffer ring");
        let memory = map(BUFFERS as usize * BUFFER_BYTES);
        let mut buffers = BufferRing {
            ring,
            memory,
            tail: 0,
        };
        for id in 0..BUFFERS {
            buffers.give(id);
        }
        buffers.publish();
        buffers
    }

    #[inline]
    pub fn bytes(&self, id: u16, length: usize) -> &[u8] {
        // SAFETY: the kernel handed buffer `id` to us with `length` bytes written to it, and
        // does not touch it again before `give`.
        unsafe { std::slice::from_raw_parts(self.memory.add(id as usize * BUFFER_BYTES), length) }
    }

    #[inline]
    pub fn give(&mut self, id: u16) {
        // SAFETY: the index is within the ring; the kernel reads the entry after `publish`.
        unsafe {
            let entry = &mut *self.ring.add((self.tail & (BUFFERS - 1)) as usize);
            entry.set_addr(self.memory.add(id as usize * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    pub fn publish(&self) {
        // SAFETY: the tail is shared with the kernel, which reads it with acquire.
        let tail = unsafe { &*types::BufRingEntry::tail(self.ring).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

fn map(bytes: usize) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_POPULATE;
    // SAFETY: a fresh anonymous mapping.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert!(p != libc::MAP_FAILED, "map {bytes} bytes");
    p.cast()
}

/// A ring with a table of so many connections.
pub fn build_ring(slots: u32) -> IoUring {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(16_384)
        .setup_single_issuer()
        .setup_defer_taskrun();
    builder.setup_coop_taskrun().setup_submit_all();
    let ring: IoUring = builder.build(4096).expect("set up the ring");
    ring.submitter()
        .register_files_sparse(slots)
        .expect("register the file table");
    ring
}

fn accept(listener: i32) -> squeue::Entry {
    let multishot = opcode::AcceptMulti::new(types::Fd(listener)).allocate_file_index(true);
    multishot.build().user_data(ACCEPT)
}

fn receive(slot: u32) -> squeue::Entry {
    let multishot = opcode::RecvMulti::new(types::Fixed(slot), 0);
    multishot.build().user_data(RECEIVE | u64::from(slot))
}

fn send(slot: u32, bytes: &[u8]) -> squeue::Entry {
    let one = opcode::Send::new(types::Fixed(slot), bytes.as_ptr(), bytes.len() as u32);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
    one.flags(flags).build().user_data(SEND | u64::from(slot))
}

/// Everything that a completion may change, but for the ring itself.
struct Server<A> {
    app: A,
    listener: i32,
    buffers: BufferRing,
    gave_buffers: bool,
    connections: Vec<Connection>,
}

impl<A: App> Server<A> {
    fn on_accept(&mut self, result: i32, more: bool, mut push: impl FnMut(squeue::Entry)) {
        if result >= 0 {
            let connection = &mut self.connections[result as usize];
            connection.open = true;
            connection.sending = false;
            connection.next.clear();
            connection.rest.clear();
            push(receive(result as u32));
        }
        if !more {
            push(accept(self.listener));
        }
    }

    #[inline]
    fn on_receive(&mut self, slot: u32, result: i32, flags: u32, mut push: impl FnMut(squeue::Entry)) {
        let connection = &mut self.connections[slot as usize];
        if result > 0 {
            let id = cqueue::buffer_select(flags).expect("a receive names its buffer");
            let data = self.buffers.bytes(id, result as usize);
            if connection.sending {
                app::take(&self.app, &mut connection.rest, data, &mut connection.next);
            } else {
                connection.out.clear();
                app::take(&self.app, &mut connection.rest, data, &mut connection.out);
                if !connection.out.is_empty() {
                    connection.sending = true;
                    push(send(slot, &connection.out));
                }
            }
            self.buffers.give(id);
            self.gave_buffers = true;
            if !cqueue::more(flags) {
                push(receive(slot));
            }
        } else if result == -libc::ENOBUFS {
            push(receive(slot));
        } else if connection.open {
            connection.open = false;
            push(opcode::Close::new(types::Fixed(slot)).build().user_data(CLOSE));
        }
    }

    #[inline]
    fn on_send(&mut self, slot: u32, result: i32, mut push: impl FnMut(squeue::Entry)) {
        let connection = &mut self.connections[slot as usize];
        connection.sending = false;
        if result > 0 && !connection.next.is_empty() && connection.open {
            std::mem::swap(&mut connection.out, &mut connection.next);
            connection.next.clear();
            connection.sending = true;
            push(send(slot, &connection.out));
        }
    }
}

/// Serves until the process is ended.
pub fn run(listener: i32, app: impl App) -> ! {
    let mut ring = build_ring(SLOTS);
    let mut server = Server {
        app,
        listener,
        buffers: BufferRing::new(&ring),
        gave_buffers: false,
        connections: (0..SLOTS).map(|_| Connection::default()).collect(),
    };
    // SAFETY: the entry names no memory.
    unsafe { ring.submission().push(&accept(listener)) }.expect("an empty queue has room");
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            Err(e) => panic!("submit and wait: {e}"),
        }
        server.app.begin_turn();
        let (submitter, mut queue, completions) = ring.split();
        let mut push = |entry: squeue::Entry| {
            // SAFETY: a send reads `Connection::out`, which is not changed until it completes.
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
                ACCEPT => server.on_accept(result, cqueue::more(flags), &mut push),
                RECEIVE => server.on_receive(slot, result, flags, &mut push),
                SEND => server.on_send(slot, result, &mut push),
                _ => {}
            }
        }
        if std::mem::take(&mut server.gave_buffers) {
            server.buffers.publish();
        }
    }
}
