//! Clients in virtual time, on every transport: what they ask for, what they are told, and when they are sent away.

mod emulation;
mod listening;
mod paced;
mod sessions;
mod streams;
mod support;
