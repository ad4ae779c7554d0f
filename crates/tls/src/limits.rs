//! Limits of this crate. Those of sessions are in `ringmain_wire::tls::limits`.

/// The size of a file of certificates or keys, in bytes. A larger file is rejected.
pub const PEM_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The validity of a development certificate, in days. Browsers accept at most 398.
pub const DEV_CERTIFICATE_DAYS: u32 = 90;
