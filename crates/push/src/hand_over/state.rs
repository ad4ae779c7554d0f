//! The state that a process leaves to its successor, as bytes: verified as a whole before any part is used.
//!
//! ```text
//! magic (8) ─ version (4) ─ wall time in ms (8) ─ { length (8) ─ CRC-32 (4) ─ section } … ─ 0 (8) ─ number of sections (4)
//! ```
//!
//! All numbers are little endian. Sections are encoded by the hub.

use std::time::Duration;

use ringmain_hub::shard::StateRecord;

use crate::limits;

const MAGIC: &[u8; 8] = b"RMPUSHST";
/// The version of this layout and of the records. Version 1 has no members of channels; other versions are not read.
const VERSION: u32 = 2;
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=VERSION;
const HEAD_BYTES: usize = 20;

/// The sections that workers have written ([`Push::freeze`](crate::Push::freeze)).
#[derive(Debug)]
pub struct HandOverState {
    head: [u8; HEAD_BYTES],
    /// Each with its head before it.
    sections: Vec<([u8; 12], Vec<u8>)>,
    tail: [u8; 12],
}

/// The reason why state cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The bytes are not state of channels.
    #[error("expected the state of channels, found other bytes")]
    Foreign,
    /// The version is not supported.
    #[error("expected version 1 or {VERSION} of the state of channels, found {0}")]
    Version(u32),
    /// The bytes are truncated, or were changed.
    #[error("the state of channels is damaged: expected {0}")]
    Damaged(&'static str),
    /// A section is invalid.
    #[error(transparent)]
    Unreadable(#[from] ringmain_hub::shard::InvalidState),
}

impl HandOverState {
    pub(crate) fn new(now: Duration) -> HandOverState {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        head[12..].copy_from_slice(&millis.to_le_bytes());
        HandOverState {
            head,
            sections: Vec::new(),
            tail: [0; 12],
        }
    }

    pub(crate) fn add(&mut self, section: Vec<u8>) {
        let mut head = [0; 12];
        if section.is_empty() {
            return;
        }
        head[..8].copy_from_slice(&(section.len() as u64).to_le_bytes());
        head[8..].copy_from_slice(&crc32fast::hash(&section).to_le_bytes());
        self.sections.push((head, section));
        let count = self.sections.len() as u32;
        self.tail[8..].copy_from_slice(&count.to_le_bytes());
    }

    /// Returns the bytes, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let sections = self.sections.iter();
        let sections = sections.flat_map(|(head, section)| [&head[..], section]);
        [&self.head[..]]
            .into_iter()
            .chain(sections)
            .chain([&self.tail[..]])
    }

    /// Parses state. Returns its records, and when it was written, since 1970.
    ///
    /// # Errors
    /// [`StateError`]: none of it can be used.
    pub fn read(bytes: &[u8]) -> Result<(Vec<StateRecord>, Duration), StateError> {
        let (head, mut rest) = bytes
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(StateError::Foreign)?;
        if head[..8] != *MAGIC {
            return Err(StateError::Foreign);
        }
        let version = read_number(&head[8..12]) as u32;
        if !VERSIONS.contains(&version) {
            return Err(StateError::Version(version));
        }
        let mut records = Vec::new();
        let mut count = 0;
        loop {
            let cut_off = || StateError::Damaged("more after a section");
            let (head, behind) = rest.split_first_chunk::<12>().ok_or_else(cut_off)?;
            let (length, check) = (read_number(&head[..8]), read_number(&head[8..]));
            if length == 0 {
                return if behind.is_empty() && check == count {
                    Ok((
                        records,
                        Duration::from_millis(read_number(&bytes[12..HEAD_BYTES])),
                    ))
                } else {
                    Err(StateError::Damaged("its end, and the number of sections in it"))
                };
            }
            let length = usize::try_from(length).map_err(|_| cut_off())?;
            let (section, behind) = behind.split_at_checked(length).ok_or_else(cut_off)?;
            if u64::from(crc32fast::hash(section)) != check {
                return Err(StateError::Damaged("the checksum of a section"));
            }
            records.append(&mut StateRecord::read_all(section)?);
            count += 1;
            rest = behind;
        }
    }
}

/// Reads a little-endian number of up to eight bytes.
fn read_number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

const _: () = assert!(limits::STATE_BYTES > ringmain_hub::limits::STATE_BYTES);

#[cfg(test)]
mod tests;
