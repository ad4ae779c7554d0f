//! Signed tokens (RFC 7519) without sockets and without a clock: taken apart, their signatures and times checked.
//!
//! ```text
//! bytes ─▶ Parsed ─▶ (whose is it? is its algorithm allowed? does it hold?) ─▶ KeySet::verify
//! ```
//!
//! What a token gives access to, and by which keys its issuer signs, whoever asks must know. Knows no other crate of ours.
#![forbid(unsafe_code)]

mod algorithm;
mod keys;
pub mod limits;
mod strict;
mod token;

#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub use keys::KeySet;
pub use token::{Claims, Parsed, Wrong};
