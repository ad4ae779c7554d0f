//! The io_uring back-end: multishot accept and receive, a ring of shared buffers, direct descriptors.
//!
//! Owns one ring and what its operations need while they are in flight. Knows nothing of
//! connections. Floor: Linux 6.1; what is used beyond it is decided by [`probe`](crate::probe).

/// Runs an expression with the right descriptor type for a socket of either kind.
macro_rules! with_fd {
    ($socket:expr, |$fd:ident| $body:expr) => {{
        let socket: $crate::backend::Socket = $socket;
        if socket.0 & $crate::backend::uring::DIRECT != 0 {
            let $fd = io_uring::types::Fixed(socket.0 & !$crate::backend::uring::DIRECT);
            $body
        } else {
            let $fd = io_uring::types::Fd(socket.0 as i32);
            $body
        }
    }};
}

mod buffers;
mod canary;
mod complete;
mod config;
mod datagram;
mod group;
mod ring;
mod socket;
mod user_data;

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use ringmain_sys::addr::{Addr, SockAddr};
use ringmain_sys::clock;
use ringmain_sys::ticks::TickClock;

use self::buffers::Buffers;
use self::canary::Canary;
pub use self::config::UringConfig;
use self::datagram::Datagrams;
pub use self::group::Group;
use self::ring::Ring;
use self::user_data::{Kind, pack, plain};
use super::{
    Backend, Completion, DatagramOptions, Job, Lent, Op, OutgoingDatagram, PoolFull, Slot, Socket,
    SocketOption, Time,
};
use crate::features::{Feature, Features};
use crate::limits;

/// Marks a [`Socket`] that is an index of the ring's table rather than a descriptor.
const DIRECT: u32 = 1 << 31;

/// One worker's ring.
pub struct Uring {
    // Dropped in this order: the kernel lets go of the buffers when the ring is gone.
    ring: Ring,
    buffers: Buffers,
    datagrams: Datagrams,
    config: UringConfig,
    direct: bool,
    group: Arc<Group>,
    index: usize,
    accepts: Vec<Accepting>,
    gifts: Vec<Option<(Slot, Socket)>>,
    ready: VecDeque<Completion>,
    random: clock::Random,
    /// Message headers and addresses that the kernel copies when it takes the operation over.
    headers: Headers,
    run_job: super::RunJob,
    now: Time,
    wall: Duration,
    ticks: TickClock,
    /// Zero-copy sends in a row that the kernel copied after all.
    copied_sends: u32,
    canary: Canary,
}

struct Accepting {
    slot: Slot,
    listener: Socket,
    cancelled: bool,
    one: bool,
}

#[derive(Default)]
struct Headers {
    #[expect(clippy::vec_box, reason = "the addresses must hold while the list grows")]
    messages: Vec<Box<(libc::msghdr, [MaybeUninit<libc::iovec>; limits::SEND_PIECES])>>,
    #[expect(clippy::vec_box, reason = "the addresses must hold while the list grows")]
    addresses: Vec<Box<SockAddr>>,
    used: usize,
}

impl Uring {
    /// Builds the ring of worker `index` of `group`; must be called on the worker's thread.
    ///
    /// # Errors
    /// As `io_uring_setup(2)` and `io_uring_register(2)`.
    pub fn new(
        config: UringConfig,
        group: Arc<Group>,
        index: usize,
        run_job: super::RunJob,
    ) -> io::Result<Uring> {
        let io_uring = build(&config)?;
        let direct = config.features.has(Feature::DirectDescriptors);
        if direct {
            io_uring.submitter().register_files_sparse(config.table)?;
        }
        if let Some(span) = config.napi {
            let micros = u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
            let mut napi = types::Napi::new().set_busy_poll_timeout(micros);
            io_uring.submitter().register_napi(&mut napi)?;
        }
        let buffers = Buffers::register(
            &io_uring,
            0,
            config.receive_buffers,
            config.receive_buffer_bytes,
            limits::RECEIVE_WINDOW,
        )?;
        let register = config.features.has(Feature::RegisteredRing);
        let ring = Ring::new(io_uring, register, config.short_submit_every);
        group.join(index, ring.as_raw_fd());
        let mut uring = Uring {
            ring,
            buffers,
            datagrams: Datagrams::default(),
            direct,
            group,
            index,
            accepts: Vec::new(),
            gifts: Vec::new(),
            ready: VecDeque::new(),
            random: clock::Random::new(),
            headers: Headers::default(),
            run_job,
            now: Time(0),
            wall: Duration::ZERO,
            ticks: TickClock::new(),
            copied_sends: 0,
            canary: Canary::default(),
            config,
        };
        uring.read_clocks();
        uring.arm_bell();
        Ok(uring)
    }

    /// What is in use: what was asked for, but for a registration that the thread had no place for.
    #[must_use]
    pub fn in_use(&self) -> Features {
        let mut features = self.config.features;
        if !self.ring.is_registered() {
            features = features.without(Feature::RegisteredRing);
        }
        features
    }

    fn read_clocks(&mut self) {
        self.now = self.group.now();
        self.ticks.anchor(self.now.0);
        self.wall = clock::realtime();
    }

    /// Watches the event descriptor that other threads signal. It is never read: every signal
    /// is a new edge, and one worker cannot count to 2^64.
    fn arm_bell(&mut self) {
        let fd = types::Fd(self.group.event(self.index).as_fd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        // SAFETY: points to no memory; the descriptor lives in the group, which outlives the ring.
        unsafe { self.ring.push(poll.user_data(plain(Kind::Bell, 0))) };
    }

    fn begin_accept(&mut self, slot: Slot, listener: Socket, one: bool) {
        self.accepts.push(Accepting {
            slot,
            listener,
            cancelled: false,
            one,
        });
        self.push_accept(slot, listener, one);
    }

    fn push_accept(&mut self, slot: Slot, listener: Socket, one: bool) {
        let user_data = pack(Kind::Accept, slot);
        let multishot = self.config.features.has(Feature::MultishotAccept) && !one;
        let direct = self.direct;
        let entry = with_fd!(listener, |fd| if multishot {
            let accept = opcode::AcceptMulti::new(fd).allocate_file_index(direct);
            let flags = if direct { 0 } else { libc::SOCK_CLOEXEC };
            accept.flags(flags).build()
        } else {
            accept_once(listener, direct)
        });
        // SAFETY: no address is asked for, so the entry points to no memory.
        unsafe { self.ring.push(entry.user_data(user_data)) };
    }

    /// Queues an operation that points to no memory and whose result nobody reads.
    fn push_ignored(&mut self, entry: squeue::Entry) {
        // SAFETY: the callers pass entries without pointers (cancel, close).
        unsafe { self.ring.push(entry.user_data(plain(Kind::Ignored, 0))) };
    }

    fn close_silently(&mut self, socket: Socket) {
        let entry = with_fd!(socket, |fd| opcode::Close::new(fd).build());
        self.push_ignored(entry);
    }

    fn zero_copy_for(&self, bytes: usize) -> bool {
        self.copied_sends < limits::ZERO_COPY_PATIENCE
            && self.config.zero_copy.is_some_and(|from| bytes >= from as usize)
    }
}

/// An accept of one connection.
fn accept_once(listener: Socket, direct: bool) -> squeue::Entry {
    with_fd!(listener, |fd| {
        let accept = opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut());
        if direct {
            let target = types::DestinationSlot::auto_target();
            accept.file_index(Some(target)).build()
        } else {
            accept.flags(libc::SOCK_CLOEXEC).build()
        }
    })
}

fn build(config: &UringConfig) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(config.completion_entries)
        .setup_clamp()
        .setup_single_issuer()
        .setup_submit_all();
    match config.sqpoll {
        // Task work runs on the poller's side there; DEFER_TASKRUN would be refused.
        Some(idle) => builder.setup_sqpoll(u32::try_from(idle.as_millis()).unwrap_or(u32::MAX)),
        None => builder.setup_defer_taskrun().setup_coop_taskrun(),
    };
    builder.build(config.submission_entries)
}

impl Headers {
    /// The kernel has taken everything over that was queued: the memory may be used again.
    fn reset(&mut self) {
        self.used = 0;
        self.addresses.clear();
    }

    fn message(&mut self, pieces: &[io::IoSlice<'_>]) -> *const libc::msghdr {
        assert!(
            pieces.len() <= limits::SEND_PIECES,
            "at most {} pieces a send",
            limits::SEND_PIECES
        );
        if self.used == self.messages.len() {
            // SAFETY: all-zero is a valid msghdr: null pointers and zero lengths.
            let header = unsafe { std::mem::zeroed() };
            self.messages.push(Box::new((
                header,
                [const { MaybeUninit::uninit() }; limits::SEND_PIECES],
            )));
        }
        let (header, vectors) = &mut *self.messages[self.used];
        self.used += 1;
        for (vector, piece) in vectors.iter_mut().zip(pieces) {
            vector.write(libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            });
        }
        header.msg_iov = vectors.as_mut_ptr().cast();
        header.msg_iovlen = pieces.len() as _;
        header
    }

    fn address(&mut self, address: SockAddr) -> &SockAddr {
        self.addresses.push(Box::new(address));
        self.addresses.last().expect("pushed above")
    }
}

impl Backend for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn now(&self) -> Time {
        self.now
    }

    fn clock(&self) -> Time {
        self.group.now()
    }

    fn rough_clock(&self) -> Time {
        self.ticks.read().map_or_else(|| self.clock(), Time)
    }

    fn lag(&self) -> Duration {
        self.canary.lag(self.now)
    }

    fn wall(&self) -> Duration {
        self.wall
    }

    fn random(&mut self) -> u64 {
        self.random.draw()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = if self.ready.is_empty() {
            timeout
        } else {
            Some(Duration::ZERO)
        };
        self.buffers.adapt();
        let outcome = self.ring.wait(timeout);
        if self.ring.submission_is_empty() {
            self.headers.reset();
        }
        self.read_clocks();
        if self.canary.should_fly(self.now) {
            self.group.event(self.index).signal();
        }
        if self.ring.lost() > 0 {
            // The kernel had no memory to keep a completion: what it was about will never end.
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the kernel dropped a completion",
            ));
        }
        outcome
    }

    fn submit(&mut self) {
        self.ring.submit();
        if self.ring.submission_is_empty() {
            self.headers.reset();
        }
    }

    fn set_frugal(&mut self, frugal: bool) {
        self.buffers.set_frugal(frugal);
    }

    fn give_memory_back(&mut self) {
        ringmain_sys::memory::give_back();
    }

    fn exact_timeouts(&mut self) {
        super::sharpen_timers();
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.ready.pop_front() {
                return Some(completion);
            }
            let entry = self.ring.next()?;
            self.canary.batch += 1;
            if let Some(completion) = self.complete(&entry) {
                return Some(completion);
            }
        }
    }

    fn give_back(&mut self, data: Lent) {
        let id = data.id() as u16;
        match data.id() >> 16 {
            0 => self.buffers.give_back(id),
            _ => self.datagrams.give_back(id),
        }
    }

    fn buffers_free(&self) -> usize {
        self.buffers.free()
    }

    fn adopt(&mut self, fd: OwnedFd) -> io::Result<Socket> {
        // A non-blocking file makes io_uring fail with EAGAIN instead of waiting.
        rustix::io::ioctl_fionbio(&fd, false)?;
        if !self.direct {
            return Ok(Socket(fd.into_raw_fd() as u32));
        }
        self.install(fd)
    }

    fn adopt_listener(&mut self, fd: OwnedFd) -> io::Result<Socket> {
        // A non-blocking file makes io_uring fail with EAGAIN instead of waiting.
        rustix::io::ioctl_fionbio(&fd, false)?;
        // For `accept_waiting`; what io_uring waits for knows no such limit.
        let wait = Some(limits::ACCEPT_WAIT);
        rustix::net::sockopt::set_socket_timeout(&fd, rustix::net::sockopt::Timeout::Recv, wait)?;
        Ok(Socket(fd.into_raw_fd() as u32))
    }

    fn accept_now(&mut self, listener: Socket) -> io::Result<Option<Socket>> {
        loop {
            // SAFETY: no address is asked for, so the entry points to no memory.
            let accepted = unsafe { self.ring.call_once(accept_once(listener, self.direct)) };
            return match accepted {
                Ok(name) => Ok(Some(self.socket_of(name))),
                Err(error) if complete::is_lost_connection(&error) => continue,
                Err(error) if matches!(error.raw_os_error(), Some(libc::ECANCELED | libc::EAGAIN)) => {
                    Ok(None)
                }
                Err(error) => Err(error),
            };
        }
    }

    fn open_stream(&mut self, to: &Addr, source: Option<&Addr>) -> io::Result<Socket> {
        let fd = ringmain_sys::socket::stream(to, source)?;
        self.adopt(fd)
    }

    fn open_datagram(&mut self, local: SocketAddr, options: DatagramOptions) -> io::Result<Socket> {
        let fd = ringmain_sys::datagram::open(local, options)?;
        self.adopt(fd)
    }

    fn accept(&mut self, slot: Slot, listener: Socket) {
        self.begin_accept(slot, listener, false);
    }

    fn accept_one(&mut self, slot: Slot, listener: Socket) {
        self.begin_accept(slot, listener, true);
    }

    /// Linux (observed on 6.18) merges the wake-ups for data and for an RST that follows it. A multishot receive then completes with the data
    /// and polls again, for a wake-up that has already passed. After a FIN the socket stays readable, so the end of the stream is reported.
    fn may_miss_resets(&self) -> bool {
        self.config.features.has(Feature::MultishotRecv)
    }

    fn recv(&mut self, slot: Slot, socket: Socket, poll_first: bool) {
        let group = self.buffers.group();
        let multishot = self.config.features.has(Feature::MultishotRecv);
        let entry = with_fd!(socket, |fd| if multishot {
            opcode::RecvMulti::new(fd, group).build()
        } else {
            let bytes = self.config.receive_buffer_bytes;
            opcode::Recv::new(fd, std::ptr::null_mut(), bytes)
                .buf_group(group)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        });
        let entry = if poll_first {
            socket::poll_first(entry)
        } else {
            entry
        };
        // SAFETY: the buffers are the group's, which lives as long as the ring.
        unsafe { self.ring.push(entry.user_data(pack(Kind::Recv, slot))) };
    }

    unsafe fn send(&mut self, slot: Slot, socket: Socket, pieces: &[io::IoSlice<'_>]) {
        // MSG_WAITALL: the kernel goes on by itself after a short write.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let bytes: usize = pieces.iter().map(|p| p.len()).sum();
        let zero_copy = self.zero_copy_for(bytes);
        let entry = if let [piece] = pieces {
            let (start, len) = (piece.as_ptr(), piece.len() as u32);
            with_fd!(socket, |fd| if zero_copy {
                opcode::SendZc::new(fd, start, len)
                    .flags(flags)
                    .zc_flags(socket::REPORT_USAGE)
                    .build()
            } else {
                opcode::Send::new(fd, start, len).flags(flags).build()
            })
        } else {
            let message = self.headers.message(pieces);
            with_fd!(socket, |fd| if zero_copy {
                opcode::SendMsgZc::new(fd, message)
                    .flags(flags as u32)
                    .ioprio(socket::REPORT_USAGE)
                    .build()
            } else {
                opcode::SendMsg::new(fd, message).flags(flags as u32).build()
            })
        };
        // SAFETY: the caller keeps the pieces; the header stays until the kernel has copied it (`reset`).
        unsafe { self.ring.push(entry.user_data(pack(Kind::Send, slot))) };
    }

    fn connect(&mut self, slot: Slot, socket: Socket, to: &Addr) {
        let address = match to.to_sockaddr() {
            Ok(address) => self.headers.address(address),
            Err(error) => {
                self.ready.push_back(Completion::Connected {
                    slot,
                    result: Err(error),
                });
                return;
            }
        };
        let (pointer, len) = (address.as_ptr(), address.len());
        let entry = with_fd!(socket, |fd| opcode::Connect::new(fd, pointer, len).build());
        // SAFETY: the address stays until the kernel has copied it (`reset`).
        unsafe { self.ring.push(entry.user_data(pack(Kind::Connect, slot))) };
    }

    fn recv_from(&mut self, slot: Slot, socket: Socket) {
        self.push_recv_from(slot, socket);
    }

    fn send_to(&mut self, slot: Slot, socket: Socket, datagram: &OutgoingDatagram<'_>) {
        self.push_send_to(slot, socket, datagram);
    }

    fn cancel(&mut self, op: Op, slot: Slot) {
        let kind = match op {
            Op::Accept => {
                for accept in self.accepts.iter_mut().filter(|a| a.slot == slot) {
                    accept.cancelled = true;
                }
                Kind::Accept
            }
            Op::Recv => Kind::Recv,
            Op::Send => Kind::Send,
            Op::Connect => Kind::Connect,
            Op::RecvFrom => Kind::RecvFrom,
        };
        self.push_ignored(opcode::AsyncCancel::new(pack(kind, slot)).build());
    }

    fn shutdown_write(&mut self, socket: Socket) {
        self.shutdown(socket, libc::SHUT_WR);
    }

    fn shutdown_both(&mut self, socket: Socket) {
        self.shutdown(socket, libc::SHUT_RDWR);
    }

    fn close(&mut self, slot: Slot, socket: Socket) {
        let entry = with_fd!(socket, |fd| opcode::Close::new(fd).build());
        // SAFETY: points to no memory.
        unsafe { self.ring.push(entry.user_data(pack(Kind::Close, slot))) };
    }

    fn give(&mut self, slot: Slot, socket: Socket, worker: usize, tag: u32) {
        self.give_away(slot, socket, worker, tag);
    }

    fn peer_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>> {
        self.peer_of(socket)
    }

    fn local_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>> {
        self.with_descriptor(socket, |fd| ringmain_sys::socket::local_addr(fd))
    }

    fn set_option(&mut self, socket: Socket, option: SocketOption) -> io::Result<()> {
        self.set(socket, option)
    }

    fn run_blocking(&mut self, job: Job) -> Result<(), PoolFull> {
        (self.run_job)(job)
    }

    fn waker(&self) -> Waker {
        self.group.waker(self.index)
    }

    fn wake_peer(&mut self, worker: usize) {
        let ring = self.group.ring(worker);
        match ring.filter(|_| self.config.features.has(Feature::MessageRing)) {
            Some(fd) => {
                let wake = plain(Kind::Wake, 0);
                let entry = opcode::MsgRingData::new(types::Fd(fd), 0, wake, None).build();
                // A peer that has ended in between answers with an error, which is as good.
                self.push_ignored(entry.flags(squeue::Flags::SKIP_SUCCESS));
            }
            None => self.group.signal(worker),
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.group.leave(self.index);
    }
}
