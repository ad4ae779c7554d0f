//! Bytes to messages and back, without a socket, a clock, a thread or a future.
//!
//! Every codec here is fed bytes and returns events that borrow them; encoding appends to the caller's
//! buffer; limits are mandatory arguments. Errors carry blame: a `PeerFault` is the other side's, a
//! `Misuse` is the caller's. Nothing here knows who reads or writes the bytes, or what a message is for.
#![forbid(unsafe_code)]

pub mod dns;
mod faults;
pub mod grpc;
pub mod h1;
pub mod h2;
pub mod proxy;
pub mod sse;
pub mod tls;
pub mod ws;
