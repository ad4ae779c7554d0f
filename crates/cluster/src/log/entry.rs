//! The entries of a log, as bytes.
//!
//! ```text
//! version: u8 │ kind: u8 │ writer: u64 │ append: u64 │ fields of the kind
//! ```
//!
//! Integers are little endian, and fields are encoded as in frames. Entries outlive the program that wrote them: a version is never
//! changed, and unknown ones are left out by readers.

use super::{Binding, Life};
use crate::frame::{Fields, Publish, write_publish};
use crate::member::Uid;

const VERSION: u8 = 1;

const PUBLICATION: u8 = 0;
const BEAT: u8 = 1;
const LIFE: u8 = 2;

/// The append of an entry: its writer recognizes it when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// The node that appended it.
    pub writer: Uid,
    /// Its request.
    pub append: u64,
}

/// An entry of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A publication, with the options of its channel and its idempotency key.
    Publication {
        /// Its append.
        id: EntryId,
        /// The publication.
        publish: Publish,
    },
    /// A sign of life of a partition's owner.
    Beat {
        /// Its append.
        id: EntryId,
        /// Its content.
        beat: Beat,
    },
    /// A partition starts a new life with the next record.
    Life {
        /// Its append.
        id: EntryId,
        /// Its content.
        life: LifeEntry,
    },
}

/// The content of a beat: where the writer has read the partition up to `seen`, the life is `life`. A reader that begins at or before
/// that record knows the life from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The life.
    pub life: Life,
    /// The binding of that life.
    pub binding: Binding,
    /// The number of the last record that the writer had read.
    pub seen: u64,
}

/// The start of a life: of the records above this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeEntry {
    /// The new life.
    pub life: Life,
    /// The broker's state that it is bound to.
    pub binding: Binding,
}

/// The reason why a record is not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The version is not this program's.
    #[error("an entry of version {0}; this program reads version {VERSION}")]
    UnknownVersion(u8),
    /// The fields are incomplete or invalid.
    #[error("an invalid entry")]
    Invalid,
}

impl Entry {
    /// Returns its append.
    #[must_use]
    pub fn id(&self) -> EntryId {
        match self {
            Entry::Publication { id, .. } | Entry::Beat { id, .. } | Entry::Life { id, .. } => *id,
        }
    }

    /// Returns the bytes of the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self {
            Entry::Publication { .. } => PUBLICATION,
            Entry::Beat { .. } => BEAT,
            Entry::Life { .. } => LIFE,
        };
        let mut out = vec![VERSION, kind];
        let id = self.id();
        out.extend(id.writer.0.to_le_bytes());
        out.extend(id.append.to_le_bytes());
        match self {
            Entry::Publication { publish, .. } => write_publish(&mut out, publish),
            Entry::Beat { beat, .. } => {
                out.extend(beat.life.0.to_le_bytes());
                out.extend(beat.binding.0.to_le_bytes());
                out.extend(beat.seen.to_le_bytes());
            }
            Entry::Life { life, .. } => {
                out.extend(life.life.0.to_le_bytes());
                out.extend(life.binding.0.to_le_bytes());
            }
        }
        out
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn decode(bytes: &[u8]) -> Result<Entry, EntryError> {
        match bytes.first() {
            None => Err(EntryError::Invalid),
            Some(&VERSION) => {
                let mut fields = Fields(&bytes[1..]);
                let entry = read(&mut fields).ok_or(EntryError::Invalid)?;
                let is_whole = fields.0.is_empty();
                is_whole.then_some(entry).ok_or(EntryError::Invalid)
            }
            Some(&version) => Err(EntryError::UnknownVersion(version)),
        }
    }
}

fn read(fields: &mut Fields<'_>) -> Option<Entry> {
    let kind = fields.byte()?;
    let id = EntryId {
        writer: Uid(fields.u64()?),
        append: fields.u64()?,
    };
    Some(match kind {
        PUBLICATION => {
            let publish = fields.publish()?;
            // Others have no place in a log.
            (!publish.options.transient).then_some(())?;
            Entry::Publication { id, publish }
        }
        BEAT => Entry::Beat {
            id,
            beat: Beat {
                life: Life(fields.u64()?),
                binding: Binding(fields.u64()?),
                seen: fields.u64()?,
            },
        },
        LIFE => Entry::Life {
            id,
            life: LifeEntry {
                life: Life(fields.u64()?),
                binding: Binding(fields.u64()?),
            },
        },
        _ => return None,
    })
}
