//! The client's side of the NATS protocol: what a server says, and what is said to it.
//!
//! ```text
//! server: INFO {…}            client: CONNECT {…}
//!         MSG subject 1 5 …           SUB subject 1
//!         PING / PONG                 PUB subject 5 …
//!         +OK / -ERR '…'              PING / PONG
//! ```
//!
//! Of messages only those without headers are known: a client that does not say `headers` gets no others. Knows nothing of what
//! JSON says, of who signs in, or of when to come back.

mod decoder;
mod encode;
mod subject;

pub use decoder::{Decoder, ProtocolError, ServerEvent};
pub use encode::{EncodeError, encode_connect, encode_ping, encode_pong, encode_publish, encode_subscribe};
pub use subject::{is_filter, is_subject};

/// Bytes of a line, its end included: of what a server says the longest is its INFO, with the addresses of a whole cluster. A longer
/// one is a [`ProtocolError`].
pub const LINE_BYTES: usize = 64 << 10;

/// Bytes of a subject: servers take no longer lines from clients than 4 KiB.
pub const SUBJECT_BYTES: usize = 2048;
