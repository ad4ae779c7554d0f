//! Messages made smaller, and back: gzip (RFC 1952) and deflate (RFC 1950), each message by itself.
//!
//! What a message may become is bounded before it is made.

use std::fmt;

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

use super::encoding::Encoding;
use super::fault::{FaultKind, Found, PeerFault};

/// The largest window, which reads all smaller ones.
const WINDOW_BITS: u8 = 15;

/// What zlib adds to them for the header of gzip.
const GZIP: u8 = 16;

/// Room that an inflated message is given at first for each byte that came, as far as its limit goes.
const USUAL_RATIO: usize = 4;

/// Makes messages what they were. Holds about 48 KiB once there was one in `deflate`.
#[derive(Default)]
pub struct Inflater {
    zlib: Option<Inflate>,
}

impl Inflater {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { zlib: None }
    }

    /// Appends what `message` was, of which there may be `limit` bytes.
    ///
    /// # Errors
    /// `NotEncoded` for [`Encoding::Identity`], `Encoded` for what is not in its encoding or goes on behind it, `MessageTooLarge`. `out`
    /// is as before.
    pub fn inflate(
        &mut self,
        encoding: Encoding,
        message: &[u8],
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PeerFault> {
        let mut gzip;
        let stream = match encoding {
            Encoding::Identity => return Err(fault(FaultKind::NotEncoded, 0, Found::This)),
            Encoding::Deflate => {
                let stream = self.zlib.get_or_insert_with(|| Inflate::new(true, WINDOW_BITS));
                stream.reset(true);
                stream
            }
            // Begun anew it would read zlib's header.
            Encoding::Gzip => {
                gzip = Inflate::new(true, WINDOW_BITS + GZIP);
                &mut gzip
            }
        };
        let start = out.len();
        let outcome = inflate(stream, message, limit, out);
        if outcome.is_err() {
            out.truncate(start);
        }
        outcome
    }
}

fn inflate(stream: &mut Inflate, message: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), PeerFault> {
    let start = out.len();
    // One byte more, to see that there are too many.
    let most = limit.saturating_add(1);
    let mut room = message.len().saturating_mul(USUAL_RATIO).clamp(64, most.max(64));
    let mut filled = start;
    loop {
        out.resize(start.saturating_add(room.min(most)), 0);
        let used = stream.total_in() as usize;
        let status = stream.decompress(&message[used..], &mut out[filled..], InflateFlush::NoFlush);
        let now = start + stream.total_out() as usize;
        let (is_stuck, at) = (
            now == filled && stream.total_in() as usize == used,
            stream.total_in(),
        );
        filled = now;
        if filled - start > limit {
            return Err(fault(
                FaultKind::MessageTooLarge,
                at,
                Found::MoreThan(limit as u64),
            ));
        }
        match status {
            Ok(Status::StreamEnd) if at == message.len() as u64 => {
                out.truncate(filled);
                return Ok(());
            }
            // Something follows, or is missing.
            Ok(Status::StreamEnd) | Err(_) => return Err(fault(FaultKind::Encoded, at, Found::This)),
            Ok(_) if is_stuck && filled < out.len() => {
                return Err(fault(FaultKind::Encoded, at, Found::This));
            }
            Ok(_) if filled == out.len() => room = room.saturating_mul(2),
            Ok(_) => {}
        }
    }
}

#[cold]
fn fault(kind: FaultKind, at: u64, found: Found) -> PeerFault {
    PeerFault { kind, at, found }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inflater")
    }
}

/// Makes messages smaller. Holds some 270 KiB for each encoding that it was asked for.
pub struct Deflater {
    level: u8,
    gzip: Option<Deflate>,
    zlib: Option<Deflate>,
}

impl Deflater {
    /// Nothing yet. `level` is 1 (fast) to 9 (small); what lies outside is taken for the nearer end.
    #[must_use]
    pub const fn new(level: u8) -> Self {
        Self {
            level,
            gzip: None,
            zlib: None,
        }
    }

    /// Appends `message` in that encoding.
    pub fn deflate(&mut self, encoding: Encoding, message: &[u8], out: &mut Vec<u8>) {
        let (place, header) = match encoding {
            Encoding::Identity => return out.extend_from_slice(message),
            Encoding::Gzip => (&mut self.gzip, GZIP),
            Encoding::Deflate => (&mut self.zlib, 0),
        };
        let config = DeflateConfig {
            level: i32::from(self.level.clamp(1, 9)),
            window_bits: i32::from(WINDOW_BITS + header),
            ..DeflateConfig::default()
        };
        let stream = place.get_or_insert_with(|| Deflate::new_with_config(config));
        stream.reset();
        let start = out.len();
        let mut room = message.len() / 2 + 64;
        loop {
            out.resize(start + room, 0);
            let (used, filled) = (stream.total_in() as usize, start + stream.total_out() as usize);
            let status = stream.compress(&message[used..], &mut out[filled..], DeflateFlush::Finish);
            let status = status.expect("only a stream that was finished refuses input, and this one was not");
            if status == Status::StreamEnd {
                break;
            }
            room += room;
        }
        out.truncate(start + stream.total_out() as usize);
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater")
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}
