//! The two contexts of permessage-deflate (RFC 7692 §7.2). Neither knows frames; both are the caller's to keep, lend
//! and pool, so that a connection without a message under way needs none.

use std::fmt;

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

use super::extension::Window;

/// What every deflated message ends with before it is framed, and what is taken off there (RFC 7692 §7.2.1).
pub(super) const TAIL: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];

/// Raw DEFLATE streams are inflated with the largest window, whatever was agreed on: it reads all smaller ones.
const WINDOW_BITS: u8 = 15;

/// Inflates one peer's messages, a bounded piece at a time.
///
/// About 48 KiB and the room for pieces. It may serve another connection once
/// [`keeps_inflater`](super::Decoder::keeps_inflater) says that this one does not need what it remembers.
pub struct Inflater {
    stream: Inflate,
    pieces: Box<[u8]>,
}

/// What came of inflating some input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inflated {
    /// Input bytes that are done with.
    pub(super) used: usize,
    /// Bytes that were put out.
    pub(super) made: usize,
    /// A final block ended; what follows needs a new stream.
    pub(super) ended: bool,
    /// What follows is not DEFLATE.
    pub(super) failed: bool,
}

impl Inflater {
    /// A context that hands out pieces of at most `piece_bytes` (at least one).
    #[must_use]
    pub fn new(piece_bytes: usize) -> Self {
        Self {
            stream: Inflate::new(false, WINDOW_BITS),
            pieces: vec![0; piece_bytes.max(1)].into_boxed_slice(),
        }
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        self.stream.reset(false);
    }

    /// Room in the piece that begins with `filled` bytes.
    pub(super) fn room(&self, filled: usize) -> usize {
        self.pieces.len() - filled
    }

    pub(super) fn piece(&self, length: usize) -> &[u8] {
        &self.pieces[..length]
    }

    /// Inflates as much of `input` as fits behind the `filled` bytes.
    pub(super) fn run(&mut self, input: &[u8], filled: usize) -> Inflated {
        let (before_in, before_out) = (self.stream.total_in(), self.stream.total_out());
        let status = self
            .stream
            .decompress(input, &mut self.pieces[filled..], InflateFlush::SyncFlush);
        Inflated {
            used: (self.stream.total_in() - before_in) as usize,
            made: (self.stream.total_out() - before_out) as usize,
            ended: status == Ok(Status::StreamEnd),
            failed: status.is_err(),
        }
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater")
            .field("piece_bytes", &self.pieces.len())
            .finish_non_exhaustive()
    }
}

/// Deflates messages: those of one connection, or, without a context between messages, those of any number.
///
/// Its memory depends on the window: 372 KiB with 15 bits, 135 KiB with 9.
pub struct Deflater {
    stream: Deflate,
    window: Window,
}

impl Deflater {
    /// A context with `window`. `level` is 1 (fast) to 9 (small); what lies outside is taken for the nearer end.
    #[must_use]
    pub fn new(window: Window, level: u8) -> Self {
        let config = DeflateConfig {
            level: i32::from(level.clamp(1, 9)),
            // Negative: raw DEFLATE.
            window_bits: -i32::from(window.bits()),
            // A smaller window needs smaller tables.
            mem_level: i32::from(window.bits() - 7),
            ..DeflateConfig::default()
        };
        Self {
            stream: Deflate::new_with_config(config),
            window,
        }
    }

    /// Its window.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        self.stream.reset();
    }

    /// Appends `message`, deflated and without its tail.
    pub(super) fn message(&mut self, message: &[u8], out: &mut Vec<u8>) {
        if message.is_empty() {
            // RFC 7692 §7.2.3.6; a second flush in a row would put out nothing.
            out.push(TAIL[0]);
            return;
        }
        let mut input = message;
        let mut filled = out.len();
        loop {
            out.resize(filled + input.len() / 2 + 64, 0);
            let (before_in, before_out) = (self.stream.total_in(), self.stream.total_out());
            let status = self
                .stream
                .compress(input, &mut out[filled..], DeflateFlush::SyncFlush);
            status.expect("only a stream that was finished refuses input, and this one never is");
            input = &input[(self.stream.total_in() - before_in) as usize..];
            filled += (self.stream.total_out() - before_out) as usize;
            // Room left: nothing is held back.
            if input.is_empty() && filled < out.len() {
                break;
            }
        }
        debug_assert!(out[..filled].ends_with(&TAIL), "a flush ends in an empty block");
        out.truncate(filled - TAIL.len());
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater")
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
