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
