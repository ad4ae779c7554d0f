//! Every limit of this crate, with its unit and what happens when it is reached.

/// The deepest nesting of a JSON document that can be asked for: beyond it the parser's own guard for the stack
/// answers first. A higher limit counts as this one.
pub const JSON_DEPTH_MOST: usize = 127;

/// Bytes of a client's own text that an error sends back to it. Longer ones are cut in the middle.
pub const ERROR_TEXT_BYTES: usize = 256;

/// Pairs of a query string or a form. More: 400. As many as other frameworks take by default.
pub const PAIRS: usize = 1000;

/// Bytes of a cookie's name and value together. More: it is not written, for clients would ignore it
/// (RFC 6265bis §5.6).
pub const COOKIE_BYTES: usize = 4096;

/// Bytes of a cookie's path and of its domain. More: it is not written, for clients would ignore the attribute.
pub const COOKIE_ATTRIBUTE_BYTES: usize = 1024;

/// Bytes of a request's id. A longer one that a client says is not taken over.
pub const REQUEST_ID_BYTES: usize = 128;

/// Bytes of a client's text in the access log, before escapes. Longer ones are cut and end in `...`.
pub const ACCESS_LOG_FIELD_BYTES: usize = 2048;

/// Bytes of lines after which a worker hands them over to the access log's writer without waiting for the turn's end.
pub const ACCESS_LOG_BLOCK_BYTES: usize = 16 * 1024;

/// Blocks of lines that wait for the access log's writer: 4 MiB of usual lines, at most 20 MiB when each block ends in
/// the longest line there can be. More: their lines are dropped, counted, and the count is logged.
pub const ACCESS_LOG_BLOCKS: usize = 256;

/// Bytes of lines that the access log's writer gathers for one write.
pub const ACCESS_LOG_WRITE_BYTES: usize = 64 * 1024;
