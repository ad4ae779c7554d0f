//! Compression of header fields (RFC 7541), both directions.
//!
//! ```text
//! block ─▶ Decoder ─▶ name and value at the arena's end, a tag      Encoder ◀─ name, value ─▶ block
//!            └─ Table: what came before                                └─ Table: what was sent before
//! ```

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod static_table;
mod table;

pub(crate) use decoder::{Decoded, Decoder};
pub(crate) use encoder::Encoder;

#[cfg(test)]
mod tests;
