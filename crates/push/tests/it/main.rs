//! Clients in virtual time, on every transport: what they ask for, what they are told, and when they are sent away.

mod api;
mod application;
mod asked;
mod asking;
mod calls;
mod emulation;
mod expiring;
mod formats;
mod hand_over;
mod http2;
mod inlet;
mod listening;
mod ordering;
mod paced;
mod permits;
mod questions;
mod recovery;
mod refreshing;
mod servers;
mod sessions;
mod signing;
mod sockets;
mod storms;
mod streams;
mod support;
mod tokens;
