//! The client's side of the NATS protocol.
//!
//! ```text
//! server: INFO {…}            client: CONNECT {…}
//!         MSG subject 1 5 …           SUB subject 1
//!         PING / PONG                 PUB subject 5 …
//!         +OK / -ERR '…'              PING / PONG
//! ```
//!
//! Only messages without headers are supported: a server sends no others to a client that does not announce `headers`. Does not
//! know the contents of JSON, authentication, or reconnects.

mod decoder;
mod encode;
mod subject;

pub use decoder::{Decoder, ProtocolError, ServerEvent};
pub use encode::{EncodeError, encode_connect, encode_ping, encode_pong, encode_publish, encode_subscribe};
pub use subject::{is_filter, is_subject};

/// The maximum length of a line in bytes, its end included: the longest is INFO, with the addresses of a whole cluster. A longer
/// one is a [`ProtocolError`].
pub const LINE_BYTES: usize = 64 << 10;

/// The maximum length of a subject in bytes: servers accept lines of at most 4 KiB.
pub const SUBJECT_BYTES: usize = 2048;
