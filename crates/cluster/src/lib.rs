//! A node of a push cluster: a state machine without sockets, clocks, threads or futures, and, with the feature `links`, the
//! connections to other nodes.
//!
//! ```text
//! worker ─ NodeRequest ─▶ Node ─ frames ─▶ links to other nodes
//!        ◀─ Event ──     ◀─ frames ──
//! ```
//!
//! Each channel has one *owner*, chosen by rendezvous hashing ([`member`]). The owner assigns offsets, retains publications and knows the
//! members. Every node with local subscribers has a *mirror*: it subscribes at the owner with its position and receives the publications
//! that it missed, or a gap ([`node`]). Frames between nodes are in [`frame`]. With a log, a broker assigns the offsets ([`log`]).
//!
//! Time and randomness are parameters of the state machine. Must not know clients or configuration files.
#![forbid(unsafe_code)]

pub mod frame;
pub mod limits;
#[cfg(feature = "links")]
pub mod links;
pub mod log;
pub mod member;
pub mod node;
