//! Every limit of the engine, with its unit and what happens when it is reached.

/// Pieces in one send (`iovec`s). More are sent in the next one.
pub const SEND_PIECES: usize = 8;

/// Bytes in one send. More are sent in the next one.
pub const SEND_BYTES: usize = 64 * 1024;

/// Completions that one turn reports. The rest comes in the next turn, which does not wait.
pub const TURN_COMPLETIONS: usize = 4096;

/// Connections on their way to one worker. Beyond it a give fails and the giver keeps its connection.
pub const GIVEN_CONNECTIONS: usize = 1024;

/// Datagrams that wait for room on one socket. Beyond it sending one fails with `ENOBUFS`.
pub const WAITING_DATAGRAMS: usize = 64;

/// Events taken from the kernel in one call (epoll). The rest comes with the next call.
pub const EPOLL_EVENTS: usize = 512;

/// Bytes of the receive buffer, one for each worker (epoll). It is what a socket may take
/// before others are served.
pub const EPOLL_BUFFER_BYTES: usize = 64 * 1024;

/// Connections of one listener, or datagrams of one socket, taken before others are served (epoll).
pub const EPOLL_SHARE: u16 = 64;

/// Waits in a row that report queued completions without asking the kernel (epoll).
pub const EPOLL_SKIPS: u32 = 4;
