//! Every limit of the engine, with its unit and what happens when it is reached.

/// Pieces in one send (`iovec`s). More are sent in the next one.
pub const SEND_PIECES: usize = 8;

/// Bytes in one send. More are sent in the next one.
pub const SEND_BYTES: usize = 64 * 1024;

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

/// Messages under way from one worker to one other. One more is refused: [`crate::mail::PostError::Full`].
pub const MAIL_PER_PAIR: usize = 1024;

/// Messages from foreign threads waiting at one worker, all senders together. One more is refused:
/// [`crate::mail::PostError::Full`].
pub const INBOX: usize = 4096;

/// Messages taken from one sender before the next sender has its turn.
pub const MAIL_IN_A_ROW: usize = 16;

/// Threads of the process's blocking pool. Further jobs wait in its queue.
pub const BLOCKING_THREADS: usize = 16;

/// Jobs that wait for a thread of the blocking pool. One more is refused:
/// [`crate::backend::PoolFull`].
pub const BLOCKING_QUEUE: usize = 1024;

/// How long a thread of the blocking pool lives without a job.
pub const BLOCKING_IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// Names of steps in one [`crate::watchdog::Names`]. Further ones are all called "other".
pub const STEP_NAMES: usize = 1024;
