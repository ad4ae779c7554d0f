//! The engine on the real back-ends: contract, connections, streams, files, shutdown.
//!
//! One program, so that the engine's generic code is compiled and linked once.

#[macro_use]
mod scripted;
#[path = "support/scramble.rs"]
mod scramble;
mod support;

mod adapters;
mod addresses;
mod alarms;
mod behaviour;
mod blocking;
mod clients;
mod contract;
mod early_responses;
mod epoll;
mod features;
mod files;
mod holding;
mod layers;
mod listeners;
mod mailing;
mod overload;
mod panics;
mod shutdown;
mod stall;
mod streams;
mod udp;
