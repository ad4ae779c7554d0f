//! Every limit of the engine, with its unit and what happens when it is reached.

/// Pieces in one send (`iovec`s). More are sent in the next one.
pub const SEND_PIECES: usize = 8;

/// Bytes in one send. More are sent in the next one.
pub const SEND_BYTES: usize = 64 * 1024;
