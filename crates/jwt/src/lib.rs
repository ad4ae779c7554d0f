//! Signed tokens (RFC 7519): strict parsing, and verification of signatures and validity periods, without sockets or a clock.
//!
//! ```text
//! bytes ─▶ ParsedToken ─▶ (issuer, algorithm, validity period) ─▶ KeySet::verify
//! ```
//!
//! The caller decides on access, which keys its issuer uses, and supplies the time. Must not know any other crate of
//! this workspace.
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
pub use token::{Claims, ParsedToken, TokenError};
