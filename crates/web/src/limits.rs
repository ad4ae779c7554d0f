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
