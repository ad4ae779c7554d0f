//! Every limit of tokens and keys.

/// The length of a token, in bytes. A longer token is rejected.
pub const TOKEN_BYTES: usize = 8 * 1024;

/// The length of a key set, and of the response that contains it, in bytes. A longer key set is rejected.
pub const KEY_SET_BYTES: usize = 256 * 1024;

/// The number of keys that are used of a set. Further keys are skipped.
pub const KEYS_PER_SET: usize = 100;
