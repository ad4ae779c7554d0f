//! Channels, their history and the protocol of their clients.

mod history;
mod hub;
mod protocol;
