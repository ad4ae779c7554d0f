//! The fan-out floor: what sending one message to many connections must cost on this kernel, over io_uring.
//!
//! A subscriber sends the number of its channel, four bytes, once, and receives them back, then messages. One publisher sends records of a
//! channel (all ones: every subscriber) and a message. There is no framing, no queue and no check; each subscriber gets
//! one send from the shared bytes of the message. Several rings of one thread hold more connections than a process may
//! have descriptors. When a subscriber leaves, all are forgotten: it is the end of a run. A connection
//! that ends without a channel is a check whether the floor listens.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{cqueue, opcode, squeue, types, IoUring};

use crate::uring::build_ring;

const MESSAGE: usize = 210;
const RECORD: usize = 4 + MESSAGE;
/// The channel of every subscriber.
const ALL: u32 = u32::MAX;
/// Messages that may be on their way: a send reads its bytes until it completes.
const MESSAGES: usize = 65_536;
/// Bytes received from the publisher at once.
const PUBLISHED: usize = 1 << 20;
/// Sends handed to the kernel at once.
const BATCH: usize = 1024;

/// Time after which the other rings are looked at in any case: the poll of a ring by another one can miss work that the kernel has deferred.
const LOOK_AFTER: Duration = Duration::from_millis(10);

/// Kind of a completion, in the upper bits of its user data; the lower half is the slot, or the ring that is ready.
const ACCEPT: u64 = 1 << 32;
const CHANNEL: u64 = 2 << 32;
const WATCH: u64 = 3 << 32;
const PUBLISHER: u64 = 4 << 32;
const PUBLICATION: u64 = 5 << 32;
const SEND: u64 = 6 << 32;
const READY: u64 = 7 << 32;

/// A ring with its own listener and table of connections.
struct Ring {
    uring: IoUring,
    listener: i32,
    /// The target that receives each connection's channel.
    channels: Vec<[u8; 4]>,
}

impl Ring {
    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            let mut queue = self.uring.submission();
            // SAFETY: channels and messages are neither moved nor freed while the process lives.
            let pushed = unsafe { queue.push(entry) };
            let waiting = queue.len();
            drop(queue);
            if pushed.is_ok() && waiting < BATCH {
                return;
            }
            self.submit(0);
            if pushed.is_ok() {
                return;
            }
        }
    }

    /// Hands over every entry, and waits for `want` completions.
    fn submit(&mut self, want: usize) {
        match self.uring.submit_and_wait(want) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(e) => panic!("submit and wait: {e}"),
        }
    }

    /// Hands over every entry, and waits for a completion or [`LOOK_AFTER`].
    fn wait(&mut self) {
        let after = types::Timespec::from(LOOK_AFTER);
        let until = types::SubmitArgs::new().timespec(&after);
        match self.uring.submitter().submit_with_args(1, &until) {
            Ok(_) => {}
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(e) => panic!("submit and wait: {e}"),
        }
    }

    /// Hands over every entry, and runs the work that the kernel has deferred to this thread.
    fn poll(&mut self) {
        const GET_EVENTS: u32 = 1;
        let entries = self.uring.submission().len() as u32;
        // SAFETY: no argument is passed.
        let entered = unsafe {
            self.uring
                .submitter()
                .enter::<libc::sigset_t>(entries, 0, GET_EVENTS, None)
        };
        match entered {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(e) => panic!("enter: {e}"),
        }
    }

    fn accept(&mut self) {
        let multishot = opcode::AcceptMulti::new(types::Fd(self.listener)).allocate_file_index(true);
        self.push(&multishot.build().user_data(ACCEPT));
    }

    /// Receives four bytes of a subscriber: its channel, then the end of the connection.
    fn receive(&mut self, slot: u32, kind: u64) {
        let bytes = &mut self.channels[slot as usize];
        let one = opcode::Recv::new(types::Fixed(slot), bytes.as_mut_ptr(), 4);
        self.push(&one.build().user_data(kind | u64::from(slot)));
    }

    /// Sends the four bytes of the channel back: publications that follow reach this subscriber.
    fn confirm(&mut self, slot: u32) {
        let bytes = &self.channels[slot as usize];
        let one = opcode::Send::new(types::Fixed(slot), bytes.as_ptr(), 4).flags(libc::MSG_NOSIGNAL);
        self.push(&one.build().flags(squeue::Flags::SKIP_SUCCESS).user_data(0));
    }

    fn send(&mut self, slot: u32, message: &[u8; MESSAGE]) {
        let one = opcode::Send::new(types::Fixed(slot), message.as_ptr(), MESSAGE as u32);
        // Without MSG_WAITALL a short send would count as a success, and show no completion.
        let one = one.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build();
        self.push(
            &one.flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(SEND | u64::from(slot)),
        );
    }
}

/// A subscriber: its ring, and its slot there.
type Subscriber = (usize, u32);

struct Floor {
    rings: Vec<Ring>,
    /// The port of the publisher's connection.
    publishers: i32,
    publisher: i32,
    published: Box<[u8]>,
    kept: usize,
    messages: Box<[[u8; MESSAGE]]>,
    next: usize,
    every: Vec<Subscriber>,
    by_channel: HashMap<u32, Vec<Subscriber>>,
}

/// Serves until the process is ended: a ring for each listener, with `slots` connections.
pub fn run(listeners: Vec<i32>, publishers: i32, slots: u32) -> ! {
    let ring = |listener| Ring {
        uring: build_ring(slots),
        listener,
        channels: vec![[0; 4]; slots as usize],
    };
    let mut floor = Floor {
        rings: listeners.into_iter().map(ring).collect(),
        publishers,
        publisher: -1,
        published: vec![0; PUBLISHED].into(),
        kept: 0,
        messages: vec![[0; MESSAGE]; MESSAGES].into(),
        next: 0,
        every: Vec::new(),
        by_channel: HashMap::new(),
    };
    floor.await_publisher();
    for ring in 0..floor.rings.len() {
        floor.rings[ring].accept();
        if ring > 0 {
            floor.rings[ring].submit(0);
            floor.watch(ring);
        }
    }
    loop {
        if floor.rings.len() == 1 {
            floor.rings[0].submit(1);
        } else {
            floor.rings[0].wait();
        }
        for ring in 0..floor.rings.len() {
            floor.turn(ring);
        }
    }
}

impl Floor {
    fn turn(&mut self, ring: usize) {
        if ring > 0 {
            self.rings[ring].poll();
        }
        let found: Vec<cqueue::Entry> = self.rings[ring].uring.completion().collect();
        for completion in found {
            self.on(ring, &completion);
        }
        if ring > 0 && !self.rings[ring].uring.submission().is_empty() {
            self.rings[ring].poll();
        }
    }

    fn on(&mut self, ring: usize, completion: &cqueue::Entry) {
        let slot = completion.user_data() as u32;
        let (result, more) = (completion.result(), cqueue::more(completion.flags()));
        match completion.user_data() & !0xffff_ffff {
            ACCEPT => {
                assert!(
                    result >= 0,
                    "accept: {}",
                    std::io::Error::from_raw_os_error(-result)
                );
                self.rings[ring].receive(result as u32, CHANNEL);
                if !more {
                    self.rings[ring].accept();
                }
            }
            CHANNEL if result == 4 => self.subscribe(ring, slot),
            CHANNEL => self.close(ring, slot),
            WATCH => self.forget(ring, slot),
            PUBLISHER => {
                assert!(
                    result >= 0,
                    "publisher: {}",
                    std::io::Error::from_raw_os_error(-result)
                );
                self.publisher = result;
                self.kept = 0;
                self.await_publications();
            }
            PUBLICATION => self.on_publications(result),
            READY if !more => self.watch(slot as usize),
            SEND => assert!(
                result < 0 || result == MESSAGE as i32,
                "a send was short: {result} bytes"
            ),
            _ => {}
        }
    }

    fn subscribe(&mut self, ring: usize, slot: u32) {
        let channel = u32::from_ne_bytes(self.rings[ring].channels[slot as usize]);
        self.every.push((ring, slot));
        self.by_channel.entry(channel).or_default().push((ring, slot));
        self.rings[ring].confirm(slot);
        self.rings[ring].receive(slot, WATCH);
    }

    fn forget(&mut self, ring: usize, slot: u32) {
        self.every.clear();
        self.by_channel.clear();
        self.close(ring, slot);
    }

    fn close(&mut self, ring: usize, slot: u32) {
        let close = opcode::Close::new(types::Fixed(slot)).build();
        self.rings[ring].push(&close.flags(squeue::Flags::SKIP_SUCCESS).user_data(0));
    }

    /// Ring 0 says when another one has completions.
    fn watch(&mut self, ring: usize) {
        let fd = types::Fd(self.rings[ring].uring.as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        self.rings[0].push(&poll.user_data(READY | ring as u64));
    }

    fn await_publisher(&mut self) {
        let listener = types::Fd(self.publishers);
        let accept = opcode::Accept::new(listener, std::ptr::null_mut(), std::ptr::null_mut());
        self.rings[0].push(&accept.build().user_data(PUBLISHER));
    }

    fn await_publications(&mut self) {
        let rest = &mut self.published[self.kept..];
        let one = opcode::Recv::new(types::Fd(self.publisher), rest.as_mut_ptr(), rest.len() as u32);
        self.rings[0].push(&one.build().user_data(PUBLICATION));
    }

    fn on_publications(&mut self, result: i32) {
        if result <= 0 {
            // SAFETY: the descriptor is this connection's alone.
            unsafe { libc::close(self.publisher) };
            self.await_publisher();
            return;
        }
        let whole = self.kept + result as usize;
        let mut used = 0;
        while whole - used >= RECORD {
            let record = &self.published[used..used + RECORD];
            let channel = u32::from_ne_bytes(record[..4].try_into().expect("four bytes"));
            self.messages[self.next].copy_from_slice(&record[4..]);
            self.publish(channel);
            used += RECORD;
        }
        self.published.copy_within(used..whole, 0);
        self.kept = whole - used;
        self.await_publications();
        for ring in &mut self.rings {
            ring.submit(0);
        }
    }

    /// Sends the message at `next`.
    fn publish(&mut self, channel: u32) {
        let message = &self.messages[self.next];
        self.next = (self.next + 1) % MESSAGES;
        let subscribers = match channel {
            ALL => &self.every[..],
            channel => self.by_channel.get(&channel).map_or(&[][..], Vec::as_slice),
        };
        for &(ring, slot) in subscribers {
            self.rings[ring].send(slot, message);
        }
    }
}
