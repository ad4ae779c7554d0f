//! Bodies out: data in, framed bytes out (RFC 9112 §6, §7.1). Holds what the head declared to its word.

use super::field_block::FieldBlock;
use super::framing::{Framing, LENGTH_LIMIT};
use super::misuse::Misuse;

/// Frames one body, as its head declared it. Data may go through [`data`](Self::data), or past it between
/// [`begin`](Self::begin) and [`end`](Self::end), so that a large piece need not be copied.
#[derive(Clone, Copy, Debug)]
#[must_use = "a body must be finished, else the peer waits for the rest"]
pub struct BodyEncoder {
    state: State,
    /// Data is counted and not sent: the answer to HEAD, and 304.
    silent: bool,
}

/// ```text
/// Length(left) ─┐
/// Chunked ──────┼─ finish ─▶ Over
/// UntilClose ───┘
/// ```
#[derive(Clone, Copy, Debug)]
enum State {
    Length(u64),
    Chunked,
    UntilClose,
    Over,
}

impl BodyEncoder {
    pub(super) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None => State::Length(0),
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, silent: false }
    }

    /// A body that the head describes and that is not sent.
    pub(super) fn silent(framing: Framing) -> Self {
        Self {
            silent: true,
            ..match framing {
                // Nothing was declared, so there is nothing to hold the body to.
                Framing::None => Self::new(Framing::UntilClose),
                framing => Self::new(framing),
            }
        }
    }

    /// Whether data is swallowed: then there is no need to produce it.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether it is sent in chunks, which trailers may follow.
    #[must_use]
    pub const fn is_chunked(&self) -> bool {
        matches!(self.state, State::Chunked)
    }

    /// Appends `data`, framed. Empty data writes nothing (an empty chunk would end the body).
    ///
    /// # Errors
    /// `BodyTooLong`, `BodyOver`; nothing was written.
    pub fn data(&mut self, out: &mut Vec<u8>, data: &[u8]) -> Result<(), Misuse> {
        if self.begin(out, data.len() as u64)? {
            out.extend_from_slice(data);
            self.end(out);
        }
        Ok(())
    }

    /// Appends what stands before a piece of `length` bytes. If `true`, the caller sends exactly these bytes and
    /// then calls [`end`](Self::end); if `false`, it does neither.
    ///
    /// # Errors
    /// `BodyTooLong`, `BodyOver`, and `LengthTooLarge` for a chunk; nothing was written.
    pub fn begin(&mut self, out: &mut Vec<u8>, length: u64) -> Result<bool, Misuse> {
        match self.state {
            State::Over => return Err(Misuse::BodyOver),
            State::Length(left) if length > left => return Err(Misuse::BodyTooLong { left }),
            State::Length(left) => self.state = State::Length(left - length),
            State::Chunked if length > LENGTH_LIMIT => return Err(Misuse::LengthTooLarge),
            State::Chunked | State::UntilClose => {}
        }
        let sends = !self.silent && length > 0;
        if sends && matches!(self.state, State::Chunked) {
            chunk_header(out, length);
        }
        Ok(sends)
    }

    /// Appends what stands after a piece.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if matches!(self.state, State::Chunked) {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Ends the body. After an error of the kind `BodyTooShort` only closing the connection tells the peer.
    ///
    /// # Errors
    /// `BodyTooShort`, `BodyOver`.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Misuse> {
        self.finish_with(out, None)
    }

    /// Ends a chunked body with trailers.
    ///
    /// # Errors
    /// `TrailersWithoutChunks`, `BodyOver`.
    pub fn finish_with_trailers(&mut self, out: &mut Vec<u8>, trailers: &FieldBlock) -> Result<(), Misuse> {
        self.finish_with(out, Some(trailers))
    }

    fn finish_with(&mut self, out: &mut Vec<u8>, trailers: Option<&FieldBlock>) -> Result<(), Misuse> {
        match self.state {
            State::Over => return Err(Misuse::BodyOver),
            State::Length(_) | State::UntilClose if trailers.is_some() => {
                return Err(Misuse::TrailersWithoutChunks);
            }
            // What is not sent may be left out.
            State::Length(left) if left > 0 && !self.silent => return Err(Misuse::BodyTooShort { left }),
            State::Chunked if !self.silent => {
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(trailers.map_or(&[], FieldBlock::as_bytes));
                out.extend_from_slice(b"\r\n");
            }
            State::Length(_) | State::Chunked | State::UntilClose => {}
        }
        self.state = State::Over;
        Ok(())
    }
}

/// `chunk-size CRLF`.
fn chunk_header(out: &mut Vec<u8>, length: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (u64::BITS - length.leading_zeros()).div_ceil(4);
    out.extend(
        (0..digits)
            .rev()
            .map(|place| DIGITS[(length >> (4 * place)) as usize & 15]),
    );
    out.extend_from_slice(b"\r\n");
}
