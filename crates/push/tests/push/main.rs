//! Clients in virtual time, on every transport: what they ask for, what they are told, and when they are sent away.

mod emulation;
mod expiring;
mod inlet;
mod listening;
mod paced;
mod permits;
mod servers;
mod sessions;
mod signing;
mod streams;
mod support;
mod tokens;
