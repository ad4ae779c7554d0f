//! What a peer may make a session hold or do. Every limit with its unit and what happens beyond it.

/// Bytes of a record's header.
pub(super) const HEADER: usize = 5;

/// Bytes of plain text that a record carries at most (RFC 8446 §5.1). More is sent in several records.
pub const RECORD_PLAIN: usize = 16 * 1024;

/// Bytes of a whole record, header and protection included (RFC 5246 §6.2.3, which allows more than RFC 8446). A longer one is
/// refused as [`Record`](super::FaultKind::Record) when its header is there: before more of it is kept by anybody.
pub const RECORD: usize = HEADER + RECORD_PLAIN + 2048;

/// Bytes that a peer may send until the handshake is over; that many are kept by the caller at most, where a message of the
/// handshake comes in several records. Certificate chains are the bulk of it. More:
/// [`HandshakeTooLong`](super::FaultKind::HandshakeTooLong).
pub const HANDSHAKE: usize = 40 * 1024;

/// Bytes of a message that comes after the handshake, which are tickets and updates of keys; a part of one is kept in the
/// session. More: [`HandshakeTooLong`](super::FaultKind::HandshakeTooLong).
pub const LATE_MESSAGE: usize = 16 * 1024;

/// Messages and records without data, between records with data, once the handshake is over: updates of keys, tickets, warnings,
/// empty records. They cost work and bring nothing. More: [`Flood`](super::FaultKind::Flood).
pub const IDLE_RECORDS: u32 = 32;

/// Bytes of a connection in which a ClientHello has to end that is read without being answered ([`HelloScanner`](super::HelloScanner)),
/// record headers included. Those of browsers with post-quantum keys and ECH have 2 KiB; more is
/// [`TooLong`](super::NoHello::TooLong).
pub const HELLO_BYTES: usize = 16 * 1024;

/// Bytes of the name of a server that such a message may have (RFC 1035 §2.3.4).
pub const SERVER_NAME_BYTES: usize = 253;

/// Characters of a name, a peer's or a certificate's, that a message repeats; a longer one is cut.
pub(super) const NAME_SHOWN: usize = 100;

/// Names of a certificate that a message repeats; of more, their number is said.
pub(super) const NAMES_SHOWN: usize = 10;

const _: () = assert!(
    RECORD <= HANDSHAKE && LATE_MESSAGE <= HANDSHAKE,
    "a record is kept whole"
);
