//! The completion contract: what a worker may ask of the kernel and what comes back.
//!
//! Owns the vocabulary ([`Backend`], [`Completion`], [`Slot`], [`Socket`], [`Lent`]) that all
//! back-ends share. Knows nothing of connections, tasks, timers or mail.
//! The rules, operation by operation, are in `docs/contract.md`. `crates/sim` has the cases that
//! show them and the simulated back-end; `tests/it/contract.rs` and `tests/sim/contract.rs` run the
//! cases on every back-end.

pub mod epoll;
pub mod uring;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::task::Waker;
use std::time::Duration;

use ringmain_sys::addr::Addr;
pub use ringmain_sys::datagram::{DatagramInfo, DatagramOptions};

use crate::limits;

/// Nanoseconds since the engine started, on a clock that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// Later than any time that comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// The time `span` after this one; saturates.
    #[must_use]
    pub fn after(self, span: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// The time `span` before this one; not before zero.
    #[must_use]
    pub fn before(self, span: Duration) -> Time {
        Time(
            self.0
                .saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Names one record of a worker's slab and one life of it.
///
/// A slot's index is the worker's own; it is never the kernel's table index. The generation
/// makes a late completion of a former life recognisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Position in the slab, below 2^24.
    pub index: u32,
    /// Life of that position.
    pub generation: u32,
}

impl Slot {
    /// The largest index plus one.
    pub const LIMIT: u32 = 1 << 24;
}

/// A socket as its back-end knows it: a descriptor, a direct descriptor or a simulated end.
///
/// It is a name, not an owner: the worker closes it by [`Backend::close`] exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Socket(pub(crate) u32);

/// For back-ends without a kernel, whose sockets are no descriptors.
#[cfg(feature = "testing")]
impl Socket {
    /// Names the socket that the back-end has under `number`.
    #[must_use]
    pub fn from_number(number: u32) -> Socket {
        Socket(number)
    }

    /// Returns the number that the back-end gave the socket.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// An operation that may be in flight, as named in [`Backend::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// [`Backend::accept`]
    Accept,
    /// [`Backend::recv`]
    Recv,
    /// [`Backend::send`]
    Send,
    /// [`Backend::connect`]
    Connect,
    /// [`Backend::recv_from`]
    RecvFrom,
}

/// Received bytes, lent to the worker until [`Backend::give_back`].
///
/// The memory belongs to this value alone while it lives. It must go back before the
/// next call of [`Backend::next`]; dropping it instead loses the buffer for good.
#[derive(Debug)]
#[must_use = "a lent buffer must be given back"]
pub struct Lent {
    start: NonNull<u8>,
    len: u32,
    id: u32,
}

impl Lent {
    /// Wraps `len` bytes at `start`; `id` is the back-end's own name for the buffer.
    ///
    /// # Safety
    /// The bytes must be initialised and valid for reads and writes, and nobody else may touch them
    /// until the value is given back.
    pub unsafe fn new(start: NonNull<u8>, len: u32, id: u32) -> Lent {
        Lent { start, len, id }
    }

    /// The received bytes; they may be changed in place (unmasking, decryption).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `new` was promised exclusive, initialised memory of this length.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }

    /// How many bytes were received; never zero.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Always false: an empty receipt is [`Completion::RecvEnded`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the back-end's name for the buffer, as given to [`Lent::new`].
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// Why a receive operation ended.
#[derive(Debug)]
pub enum RecvEnd {
    /// The peer has sent its last byte (half-close or close).
    Eof,
    /// No buffer was free; receive again when one has been given back.
    NoBuffers,
    /// [`Backend::cancel`] took effect.
    Cancelled,
    /// The connection failed (`ECONNRESET` and its like).
    Failed(io::Error),
}

/// What the kernel reports. The order in which they may follow each other is the contract.
#[derive(Debug)]
pub enum Completion {
    /// A connection arrived on the listener of `slot`; accepting goes on.
    Accepted {
        /// The listener's slot.
        slot: Slot,
        /// The new connection.
        socket: Socket,
    },
    /// Accepting ended: `None` by cancel, else the error (`EMFILE`, `ENFILE`, …). Final for `Accept`.
    AcceptEnded {
        /// The listener's slot.
        slot: Slot,
        /// What went wrong, if something did.
        error: Option<io::Error>,
    },
    /// Another worker gave this connection away by [`Backend::give`].
    Adopted {
        /// The tag that the giver named: the listener's number, alike on all workers.
        tag: u32,
        /// The connection, now this worker's.
        socket: Socket,
    },
    /// The outcome of [`Backend::give`]: on success the socket is gone from here. Final.
    Given {
        /// The slot that named the operation.
        slot: Slot,
        /// An error leaves the socket with the giver.
        result: io::Result<()>,
    },
    /// Bytes arrived. With `more` the operation goes on, without it this was final for `Recv`.
    Received {
        /// The connection's slot.
        slot: Slot,
        /// The bytes.
        data: Lent,
        /// Whether the operation is still armed.
        more: bool,
    },
    /// Receiving ended without bytes. Final for `Recv`.
    RecvEnded {
        /// The connection's slot.
        slot: Slot,
        /// Why.
        end: RecvEnd,
    },
    /// A send finished, perhaps short. Final for `Send` unless `held`.
    Sent {
        /// The connection's slot.
        slot: Slot,
        /// Bytes taken over by the kernel, counted over all pieces.
        result: io::Result<usize>,
        /// The kernel still reads the memory: keep it until [`Completion::Released`].
        held: bool,
    },
    /// The memory of a `held` send is free again. Final for `Send`.
    Released {
        /// The connection's slot.
        slot: Slot,
    },
    /// A connection attempt finished. Final.
    Connected {
        /// The connection's slot.
        slot: Slot,
        /// An error leaves the socket open; it must still be closed.
        result: io::Result<()>,
    },
    /// The socket is closed and its name free for reuse. Final.
    Closed {
        /// The slot that was named in [`Backend::close`].
        slot: Slot,
    },
    /// A datagram arrived. With `more` the operation goes on, without it this was final for `RecvFrom`.
    Datagram {
        /// The socket's slot.
        slot: Slot,
        /// The payload; an empty datagram is a valid one.
        data: Lent,
        /// The sender; `None` if the kernel reported no internet address.
        from: Option<SocketAddr>,
        /// The local address, and whether the payload is several datagrams that the kernel has joined.
        info: DatagramInfo,
        /// Whether the operation is still armed.
        more: bool,
    },
    /// Receiving datagrams ended. Final for `RecvFrom`.
    DatagramsEnded {
        /// The socket's slot.
        slot: Slot,
        /// Why; never `Eof`.
        end: RecvEnd,
    },
    /// A datagram was handed to the kernel, or refused. One for each [`Backend::send_to`], in any order.
    DatagramSent {
        /// The socket's slot.
        slot: Slot,
        /// Bytes sent.
        result: io::Result<usize>,
    },
}

/// A datagram to send, or several of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingDatagram<'a> {
    /// The destination.
    pub to: SocketAddr,
    /// The local address to send from, for a socket that is bound to every address. `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// The data are several datagrams of this size each, of which the last may be shorter: at most
    /// [`crate::limits::DATAGRAM_SEGMENTS`]. `None`: one datagram.
    pub segment: Option<u16>,
    /// The payload.
    pub data: &'a [u8],
}

impl<'a> OutgoingDatagram<'a> {
    /// A single datagram, from an address that the kernel chooses.
    #[must_use]
    pub fn new(to: SocketAddr, data: &'a [u8]) -> OutgoingDatagram<'a> {
        OutgoingDatagram {
            to,
            source: None,
            segment: None,
            data,
        }
    }
}

/// A socket option that can be changed on an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `TCP_NODELAY`
    NoDelay(bool),
    /// `TCP_NOTSENT_LOWAT`, bytes.
    NotSentLowWater(u32),
    /// `SO_SNDBUF`, bytes (the kernel doubles it).
    SendBuffer(u32),
    /// `SO_RCVBUF`, bytes (the kernel doubles it).
    ReceiveBuffer(u32),
    /// `SO_KEEPALIVE`
    KeepAlive(bool),
    /// `TCP_USER_TIMEOUT`, milliseconds: how long sent bytes may stay unacknowledged before the connection is closed; 0 is the kernel's
    /// own time, some 15 minutes.
    UserTimeout(u32),
    /// `SO_LINGER` with zero seconds: close sends RST and drops unsent bytes.
    ResetOnClose,
}

/// Work for the blocking pool.
pub type Job = Box<dyn FnOnce() + Send>;

/// Hands a job to the process's blocking pool, or returns it when the pool's queue is full.
pub type RunJob = std::sync::Arc<dyn Fn(Job) -> Result<(), PoolFull> + Send + Sync>;

/// The pool's queue was full; the job comes back.
pub struct PoolFull(pub Job);

impl std::fmt::Debug for PoolFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolFull")
    }
}

/// One worker's way to the kernel. Single-threaded; all calls come from the worker's thread.
///
/// Operations never fail at once: what goes wrong arrives as their final completion.
/// At most one operation of each [`Op`] may be in flight for a slot.
pub trait Backend {
    /// `"uring"`, `"epoll"` or `"sim"`.
    fn name(&self) -> &'static str;

    /// The time, read once per [`Backend::wait`].
    fn now(&self) -> Time;

    /// The time at this moment, on the clock of [`Backend::now`]; costs some tens of nanoseconds.
    fn clock(&self) -> Time;

    /// As [`Backend::clock`], at a fraction of its cost where the CPU has a constant tick counter: for telling within a turn
    /// how long it has lasted. Off by some microseconds.
    fn rough_clock(&self) -> Time {
        self.clock()
    }

    /// How long what is ready waits in the kernel, unseen, before it becomes a completion, as far as that is known. Zero
    /// where each wait reports all that is ready.
    fn lag(&self) -> Duration {
        Duration::ZERO
    }

    /// Wall-clock time since the Unix epoch, read once per [`Backend::wait`].
    fn wall(&self) -> Duration;

    /// A random number: from the kernel, or from the seed in a simulation.
    fn random(&mut self) -> u64;

    /// Submits everything queued, then waits until a completion is there, a waker was woken or
    /// `timeout` has passed. `None` waits for ever, zero does not wait. May return early for no reason.
    ///
    /// # Errors
    /// Only what makes the back-end useless from now on.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Hands everything queued to the kernel without waiting, in the middle of a turn. Completions are taken in their order
    /// as before.
    fn submit(&mut self) {}

    /// Tells that the worker holds so many bytes for slow readers that each connection is to bring in little at once: until
    /// told otherwise, a receive takes no more than [`crate::limits::FRUGAL_RECEIPT`] before the worker may stop it.
    fn set_frugal(&mut self, _frugal: bool) {}

    /// Has the allocator give back to the system what was freed. Nothing where the memory is only part of a simulation.
    fn give_memory_back(&mut self) {}

    /// From now on the timeouts of [`Backend::wait`] are kept as exactly as the kernel's timers can, for this thread. Until
    /// then they may be late by a millisecond.
    fn exact_timeouts(&mut self) {}

    /// The next completion, if one is there. Bytes lent before must have been given back.
    fn next(&mut self) -> Option<Completion>;

    /// Returns a lent buffer.
    fn give_back(&mut self, data: Lent);

    /// Whether a buffer is free, so that a receive parked by [`RecvEnd::NoBuffers`] may try again.
    fn buffers_free(&self) -> usize;

    /// Takes over a descriptor (stream, listener or datagram socket). On error it is closed.
    ///
    /// # Errors
    /// `ENFILE` when the descriptor table is full; `Unsupported` in a simulation.
    fn adopt(&mut self, fd: OwnedFd) -> io::Result<Socket>;

    /// Takes over a listening descriptor. It stays an ordinary, inheritable one.
    ///
    /// # Errors
    /// `Unsupported` in a simulation.
    fn adopt_listener(&mut self, fd: OwnedFd) -> io::Result<Socket>;

    /// Accepts one connection if one is waiting; used to empty a listener's queue before closing it.
    /// No [`Backend::accept`] may be in flight on it.
    ///
    /// # Errors
    /// As `accept(2)`, but for `EAGAIN`, which is `None`.
    fn accept_now(&mut self, listener: Socket) -> io::Result<Option<Socket>>;

    /// Opens an unconnected stream socket for [`Backend::connect`], bound to `source` if given.
    ///
    /// # Errors
    /// As `socket(2)` and `bind(2)`.
    fn open_stream(&mut self, to: &Addr, source: Option<&Addr>) -> io::Result<Socket>;

    /// Opens a datagram socket bound to `local`; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// As `socket(2)` and `bind(2)`.
    fn open_datagram(&mut self, local: SocketAddr, options: DatagramOptions) -> io::Result<Socket>;

    /// Accepts connections from `listener` until cancelled or failed.
    fn accept(&mut self, slot: Slot, listener: Socket);

    /// Accepts one connection and ends: `Accepted`, then `AcceptEnded { error: None }`. For the last
    /// places before a limit, since [`Backend::accept`] may bring a whole listen queue at once.
    fn accept_one(&mut self, slot: Slot, listener: Socket);

    /// Returns whether a receive may fail to report a reset that arrived right behind data. A receive that is started later reports it.
    fn may_miss_resets(&self) -> bool {
        false
    }

    /// Receives until ended. `poll_first`: do not try at once, no data is expected yet.
    fn recv(&mut self, slot: Slot, socket: Socket, poll_first: bool);

    /// Sends the pieces (at most [`crate::limits::SEND_PIECES`]) in order.
    ///
    /// # Safety
    /// The memory of all pieces must stay valid and unchanged until the final completion.
    unsafe fn send(&mut self, slot: Slot, socket: Socket, pieces: &[io::IoSlice<'_>]);

    /// Connects `socket` to `to`. For a datagram socket that sends no packet: it binds it to one peer.
    fn connect(&mut self, slot: Slot, socket: Socket, to: &Addr);

    /// Receives datagrams until ended.
    fn recv_from(&mut self, slot: Slot, socket: Socket);

    /// Sends one datagram, or several of one size; the data is copied. Several sends may be in flight.
    fn send_to(&mut self, slot: Slot, socket: Socket, datagram: &OutgoingDatagram<'_>);

    /// Ends the operation early. Its final completion still comes: its own or a cancelled one.
    /// Naming an operation that is not in flight does nothing.
    fn cancel(&mut self, op: Op, slot: Slot);

    /// Ends our direction of the stream once what the kernel holds is sent (FIN). No completion.
    fn shutdown_write(&mut self, socket: Socket);

    /// Ends both directions at once: operations in flight end soon. No completion.
    fn shutdown_both(&mut self, socket: Socket);

    /// Closes the socket. No operation may be in flight on it.
    fn close(&mut self, slot: Slot, socket: Socket);

    /// Gives an idle, just-accepted socket to another worker, who sees [`Completion::Adopted`].
    fn give(&mut self, slot: Slot, socket: Socket, worker: usize, tag: u32);

    /// The peer's address; `None` for an unnamed Unix socket.
    ///
    /// # Errors
    /// As `getpeername(2)`.
    fn peer_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>>;

    /// The local address.
    ///
    /// # Errors
    /// As `getsockname(2)`; `Unsupported` where the kernel cannot tell it of a direct descriptor.
    fn local_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>>;

    /// Sets one option.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    fn set_option(&mut self, socket: Socket, option: SocketOption) -> io::Result<()>;

    /// Runs `job` off the worker.
    ///
    /// # Errors
    /// The job itself when the pool's queue is full.
    fn run_blocking(&mut self, job: Job) -> Result<(), PoolFull>;

    /// Ends a present or the next [`Backend::wait`] from any thread.
    fn waker(&self) -> Waker;

    /// Ends a present or the next [`Backend::wait`] of another worker, in the cheapest way.
    fn wake_peer(&mut self, worker: usize);
}

/// Lets the calling thread's timers fire at once rather than up to 50 µs later, together with others.
pub(crate) fn sharpen_timers() {
    if let Err(error) = ringmain_sys::clock::set_timer_slack(limits::TIMER_SLACK) {
        log::warn!("alarms may be 50 µs late: PR_SET_TIMERSLACK: {error}");
    }
}

/// Accepts without waiting, also on a listener that is a blocking file. If another thread is faster, it waits for
/// [`crate::limits::ACCEPT_WAIT`] at most, which `Uring` sets on its listeners.
pub(crate) fn accept_waiting(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ready = [PollFd::new(&listener, PollFlags::IN)];
    if poll(
        &mut ready,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )? == 0
    {
        return Ok(None);
    }
    match ringmain_sys::socket::accept(listener) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
