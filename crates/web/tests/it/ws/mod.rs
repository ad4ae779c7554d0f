//! WebSockets of an application, in virtual time: handshakes, messages, the end, and what each limit does.

mod async_handlers;
mod handshake;
mod limits;
mod sockets;
mod support;
