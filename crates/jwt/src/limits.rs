//! Every limit of tokens and keys, with its unit and what happens there.

/// Bytes of a token; longer ones are refused.
pub const TOKEN_BYTES: usize = 8 * 1024;

/// Bytes of a set of keys, and of the answer that has it; more is no set.
pub const KEY_SET_BYTES: usize = 256 * 1024;

/// Keys of a set that are used; more are passed over.
pub const KEYS: usize = 100;
