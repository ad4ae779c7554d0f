//! Limits of this crate, with their unit and what happens beyond them. Those of sessions are `ringmain_wire::tls::limits`.

/// Bytes of a file of certificates or keys. More: it is refused as none of these.
pub const PEM_FILE: u64 = 4 * 1024 * 1024;

/// Days that a development certificate is valid; browsers take no more than 398.
pub const DEVELOPMENT_DAYS: u32 = 90;
