//! Every limit of the engine, with its unit and what happens when it is reached.

/// Pieces in one send (`iovec`s). More are sent in the next one.
pub const SEND_PIECES: usize = 8;

/// Pieces of shared memory that one turn of the loop may queue for a connection: behind them shared frames of up to
/// [`JOINED_FRAME_BYTES`] are copied one behind the other, and larger ones are pieces still.
pub const SHARED_PIECES: usize = 4;

/// See [`SHARED_PIECES`].
pub const JOINED_FRAME_BYTES: usize = 2048;

/// Bytes in one send. More are sent in the next one.
pub const SEND_BYTES: usize = 64 * 1024;

/// Operations queued between two entries of the kernel. More: the kernel is entered in between.
pub const SUBMISSION_ENTRIES: u32 = 1024;

/// Completions in the ring. More: the kernel keeps them in a list and hands them over later.
pub const COMPLETION_ENTRIES: u32 = 8192;

/// Receive buffers of a worker on `uring`. None free: connections with data wait their turn,
/// first in, first out, and are armed again one by one as buffers come back.
pub const RECEIVE_BUFFERS: u16 = 256;

/// Bytes of one receive buffer. Larger receipts arrive in several. With the number above 4 MiB a worker, of which
/// small messages touch the first page of each. Against 1,024 buffers of 4 KiB, in four noisy pairs: echoes of
/// 60,000 bytes cost 13 to 44 % less CPU, of 512 and 1,024 bytes no more.
pub const RECEIVE_BUFFER_BYTES: u32 = 16_384;

/// Free receive buffers that the kernel has at a time on `uring` (128 KiB): as much as one connection may take before its
/// worker can stop it. Used up by many connections at once: the number doubles, up to all of [`RECEIVE_BUFFERS`], and
/// halves again when one of them took more than this, or when [`QUIET_BATCHES`] batches in a row used less than a quarter.
pub const RECEIVE_WINDOW: u16 = 8;

/// The same while slow readers hold half of the worker's share of [`HELD_BYTES`] (32 KiB).
pub const FRUGAL_WINDOW: u16 = 2;

/// See [`RECEIVE_WINDOW`].
pub const QUIET_BATCHES: u16 = 64;

/// Datagram buffers of a worker on `uring`. None free: receiving ends with `NoBuffers` and starts again
/// when one is back; the kernel's socket buffer holds or drops what comes meanwhile.
pub const DATAGRAM_BUFFERS: u16 = 32;

/// The largest payload of a datagram, and of several that are received or sent at once, bytes. Longer: `InvalidInput`.
pub const DATAGRAM_BYTES: usize = 65_507;

/// Datagrams in one send (`UDP_SEGMENT`). More: `InvalidInput`.
pub const DATAGRAM_SEGMENTS: usize = ringmain_sys::datagram::MAX_SEGMENTS;

/// Finished datagram sends of a worker whose memory is retained for the next ones (`uring`). More: freed.
pub const DATAGRAM_SENDS_POOLED: usize = 256;

/// The largest buffer that such a send retains, bytes.
pub const DATAGRAM_SENDS_POOLED_BYTES: usize = 4096;

/// Buffers of received datagrams that a worker retains for the next ones. More: freed.
pub const DATAGRAMS_POOLED: usize = 256;

/// The largest such buffer, bytes.
pub const DATAGRAMS_POOLED_BYTES: usize = 4096;

/// Sockets on their way to another worker. More: the giver keeps the connection.
pub const GIFTS_IN_FLIGHT: usize = 256;

/// Zero-copy sends that the kernel copied all the same, in a row, after which the worker stops asking.
pub const ZERO_COPY_PATIENCE: u32 = 16;

/// The interval at which connections that have received bytes are checked for a reset that the kernel did not report: one that was quiet
/// for one to two of these begins to receive again.
pub const RESET_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Places that the list of these connections keeps when it is shorter.
pub const RESET_CHECK_KEPT: usize = 1024;

/// Unsent bytes above which a connection stops reading and a writer should wait for `drained`.
pub const WRITE_MARK: usize = 64 * 1024;

/// Unsent bytes that a connection may hold. A write beyond it fails with `Full` and closes the
/// connection with `Reason::WriteLimit`.
pub const WRITE_LIMIT: usize = 1024 * 1024;

/// Received bytes that wait unconsumed, above which receiving pauses. What one entry of the kernel has received before the
/// pause takes effect comes on top: one buffer on `epoll` ([`EPOLL_BUFFER_BYTES`]), [`RECEIVE_WINDOW`] buffers on `uring`
/// (128 KiB), and there more only while many connections use up the window at once.
pub const READ_MARK: usize = 64 * 1024;

/// Bytes that the connections of a process hold together for slow readers, unsent or unread; each worker has an equal share. When half of
/// a share is in use, [`WRITE_MARK`] and [`READ_MARK`] count as [`FRUGAL_MARK`] on that worker, until three quarters of it are free. So some
/// 500 stalled downloads are buffered in full, and the other half of the limit has room for 1,600 more with [`FRUGAL_MARK`] and
/// [`FRUGAL_RECEIPT`] each. No connection is refused or closed for it: a slow reader has less in advance. The resident memory of these buffers
/// is at most twice this number: allocators round sizes up and keep some pages.
pub const HELD_BYTES: usize = 128 * 1024 * 1024;

/// See [`HELD_BYTES`].
pub const FRUGAL_MARK: usize = 8 * 1024;

/// Bytes that one receive brings in while that holds, before the worker may stop it.
pub const FRUGAL_RECEIPT: usize = 32 * 1024;

/// Bytes of freed buffers from which on a worker has the allocator return memory to the system.
pub const RECLAIM_BYTES: usize = 8 * 1024 * 1024;

/// The delay after that: memory that is freed and used again in between is not returned for nothing.
pub const RECLAIM_AFTER: std::time::Duration = std::time::Duration::from_millis(1500);

/// Time within a turn of the loop after which what was written leaves before the turn ends. Checked between two steps:
/// completions, polls of tasks, letters.
pub const FLUSH_WITHIN: std::time::Duration = std::time::Duration::from_millis(1);

/// Connections written to within one step after which that is checked in the middle of it: a fan-out is one step.
pub const FLUSH_CHECK: usize = 64;

/// A step of a turn that lasts so long is a long one: bytes that were there before it ended have not waited in a queue, and
/// [`Cx::queued`](crate::Cx::queued) does not count it.
pub const LONG_STEP: std::time::Duration = std::time::Duration::from_millis(25);

/// Long steps of a worker that are remembered for that, the last ones. More: the oldest count as time in the queue.
pub const LONG_STEPS: usize = 64;

/// Bytes that one connection may take in one loop turn while others wait; then it pauses until the next turn.
pub const READ_PER_TURN: usize = 256 * 1024;

/// Bytes of an output or input buffer for small messages.
pub const SMALL_BUFFER_BYTES: usize = 2048;

/// Bytes of an output or input buffer for more. An output longer than that takes several.
pub const LARGE_BUFFER_BYTES: usize = 16 * 1024;

/// Small buffers that a worker keeps for reuse (2 MiB). More are freed.
pub const POOLED_SMALL_BUFFERS: usize = 1024;

/// Queues of up to [`SEND_PIECES`] pieces that a worker keeps for reuse (72 KiB). More, and longer ones, are freed.
pub const POOLED_QUEUES: usize = 256;

/// Large buffers that a worker keeps for reuse (4 MiB). More are freed.
pub const POOLED_LARGE_BUFFERS: usize = 256;

/// Connections of one worker: slots of its slab. More: accepting pauses.
pub const CONNECTIONS_PER_WORKER: u32 = 1 << 20;

/// Descriptors of a worker's table that stay free for what arrives while accepting stops.
pub const TABLE_RESERVE: u32 = 128;

/// Milliseconds until accepting is tried again after `EMFILE`, `ENFILE`, `ENOBUFS` or `ENOMEM`.
pub const ACCEPT_BACKOFF_MS: u64 = 100;

/// Milliseconds between two log lines of a worker about paused accepting. Pauses in between are only counted.
pub const WARN_MS: u64 = 60_000;

/// Connections by which a worker must exceed the least loaded one before it gives new ones away.
pub const SKEW_CONNECTIONS: u32 = 32;

/// Tasks of one worker. More: `spawn` fails with `TooManyTasks`.
pub const TASKS_PER_WORKER: u32 = 1 << 20;

/// Tasks polled in one loop turn; the rest is polled in the next.
pub const TASKS_PER_TURN: usize = 1024;

/// Completions handled in one loop turn; the rest is handled in the next.
pub const COMPLETIONS_PER_TURN: usize = 4096;

/// Bytes of a worker's buffer for what layers want sent, kept between uses.
pub const WIRE_SCRATCH_BYTES: usize = 64 * 1024;

/// Costly steps of layers ([`crate::Layer::is_costly`]) done in one loop turn. More wait for the next turn, first in, first
/// out, with their bytes: a burst of handshakes holds nobody else up by more than this. What one of them has to say leaves at
/// the end of its turn, so with many the first client would wait for the work of all, and then all clients at once for nobody;
/// with one, a worker sleeps and is woken for each. Of 1, 2, 4 and 16, taking turns, two cost the least CPU a handshake
/// (bench/results-tls.md).
pub const HANDSHAKE_STEPS_PER_TURN: usize = 2;

/// Letters taken from the mail in one loop turn; the rest is taken in the next.
pub const MAIL_PER_TURN: usize = 1024;

const _: () = assert!(WRITE_MARK < WRITE_LIMIT && SEND_BYTES <= WRITE_MARK);
const _: () = assert!(SHARED_PIECES < SEND_PIECES && JOINED_FRAME_BYTES <= SMALL_BUFFER_BYTES);
const _: () = assert!(SMALL_BUFFER_BYTES < LARGE_BUFFER_BYTES && LARGE_BUFFER_BYTES <= SEND_BYTES);
const _: () = assert!(FRUGAL_WINDOW < RECEIVE_WINDOW && RECEIVE_WINDOW <= RECEIVE_BUFFERS);
const _: () = assert!(FRUGAL_RECEIPT == FRUGAL_WINDOW as usize * RECEIVE_BUFFER_BYTES as usize);
const _: () = assert!(FRUGAL_MARK < WRITE_MARK && FRUGAL_MARK < READ_MARK && READ_MARK == WRITE_MARK);
const _: () = assert!(RECEIVE_BUFFERS.is_power_of_two() && DATAGRAM_BUFFERS.is_power_of_two());
const _: () = assert!(CONNECTIONS_PER_WORKER <= crate::backend::Slot::LIMIT);

/// Timers armed at once in one worker. One more is refused: [`crate::timer::Wheel::insert`] gives `None`.
pub const TIMERS_PER_WORKER: usize = 1 << 20;

/// Timers fired in one loop turn of a worker. More fire in the next turn, which then does not wait.
pub const TIMERS_PER_TURN: usize = 1024;

/// Timers moved to a finer level of the wheel in one loop turn. More move in the next turn, which
/// then does not wait; a burst beyond this may delay firing by those turns.
pub const TIMER_MOVES_PER_TURN: usize = 4096;
const _: () = assert!(TIMER_MOVES_PER_TURN >= TIMERS_PER_TURN);

/// Task slots of one [`crate::wake::WakeSet`]. A larger capacity is a bug of the caller and panics.
pub const WAKE_SLOTS: u32 = crate::backend::Slot::LIMIT;

/// How long a listener that is opened or closed while serving is waited for: until each worker has it, or has let go of it. A
/// worker that a handler holds for longer makes opening fail, and closing come later than told.
pub const LISTENER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// How long a closed connection may take to hand its last bytes to the kernel, unless
/// [`Config::flush`](crate::Config::flush) says otherwise. Longer: they are dropped and it ends with
/// `Reason::FlushTimeout`.
pub const FLUSH: std::time::Duration = std::time::Duration::from_secs(30);

/// Messages under way from one worker to one other. One more is refused: [`crate::mail::PostError::Full`].
pub const MAIL_PER_PAIR: usize = 1024;

/// Messages from foreign threads waiting at one worker, all senders together. One more is refused:
/// [`crate::mail::PostError::Full`].
pub const INBOX: usize = 4096;

/// Messages taken from one sender before the next sender has its turn.
pub const MAIL_IN_A_ROW: usize = 16;

/// A worker that is longer than this in one step is given no connections by others.
pub const GIVE_PATIENCE: std::time::Duration = std::time::Duration::from_millis(10);

/// How often the listen queues of a worker that is held are emptied for it, at least.
pub const RESCUE_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// How long an accept may wait when another thread has taken the connection that was there.
pub const ACCEPT_WAIT: std::time::Duration = std::time::Duration::from_millis(1);

/// Threads of the process's blocking pool. Further jobs wait in its queue.
pub const BLOCKING_THREADS: usize = 16;

/// Jobs that wait for a thread of the blocking pool. One more is refused:
/// [`crate::backend::PoolFull`].
pub const BLOCKING_QUEUE: usize = 1024;

/// How long a thread of the blocking pool lives without a job.
pub const BLOCKING_IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// Characters of a status line for the service manager. The rest is cut off.
pub const SERVICE_STATUS_CHARS: usize = 300;

/// The shortest time between two checks whether the workers turn, for the pings to the service manager.
pub const SERVICE_PING_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Names of steps in one [`crate::watchdog::Names`]. Further ones are all called "other".
pub const STEP_NAMES: usize = 1024;

/// Datagrams received and not yet taken, for one socket. More stay in the kernel's socket buffer, which drops
/// what it cannot hold.
pub const DATAGRAMS_QUEUED: usize = 64;

/// Datagrams in flight to the kernel for one socket. More: `send_to` waits.
pub const DATAGRAM_SENDS: u32 = 64;

/// Events taken from the kernel in one call (epoll). The rest comes with the next call.
pub const EPOLL_EVENTS: usize = 4096;

/// Bytes of the receive buffer, one for each worker (epoll). It is what a socket may take
/// before others are served.
pub const EPOLL_BUFFER_BYTES: usize = 64 * 1024;

/// Connections of one listener, or datagrams of one socket, taken before others are served (epoll).
pub const EPOLL_SHARE: u16 = 64;

/// Waits in a row that report queued completions without asking the kernel (epoll).
pub const EPOLL_SKIPS: u32 = 4;

/// Waits up to here end as exactly as the thread's timer slack allows; the kernel's own thousandth is less (epoll).
pub const EPOLL_EXACT: std::time::Duration = std::time::Duration::from_millis(1);

/// Longer waits are kept to the millisecond even where an alarm is set (epoll).
pub const EPOLL_FINE: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// How late a thread's timers may fire once an alarm was set on it.
pub const TIMER_SLACK: std::time::Duration = std::time::Duration::from_micros(1);

/// Workers of one process. More are refused as a setting out of range.
pub const WORKERS: usize = 1024;

/// Descriptors below which an engine does not start.
pub const DESCRIPTORS_MIN: u32 = 64;

/// Descriptors kept for what is no connection (listeners, files, logs) where connections are descriptors.
pub const DESCRIPTORS_RESERVE: u32 = 128;

/// Bytes of one read of a file. A larger buffer is filled up to it; on a worker a read takes a copy of so many.
pub const FILE_READ_BYTES: usize = 256 * 1024;

/// Sleeping futures of one `adapters::hyper::HyperTimer` and its clones. One more ends at once, and a warning says so.
pub const HYPER_SLEEPS: usize = 1 << 20;

/// The longest time over which the ends of connections are spread in a shutdown, unless the configuration names another; half of the
/// grace time if that is less.
pub const DRAIN_SPREAD: std::time::Duration = std::time::Duration::from_secs(10);

/// The time from the start of a shutdown to the first of these ends. Until then this process still accepts from queues that it shares with a
/// successor, and would reject a client that reconnects.
pub const DRAIN_SPREAD_START: std::time::Duration = std::time::Duration::from_millis(100);

/// The shortest time between two instants at which [`Cx::end_in_turns`](crate::Cx::end_in_turns) ends connections; those that are due
/// meanwhile end together.
pub const DRAIN_TURN_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

/// Turns without waiting between the beginning of a shutdown, or a connection's opening in it, and its being told: enough
/// for every back-end to report what the peer had sent before.
pub const SETTLE_TURNS: u32 = EPOLL_SKIPS + 2;
