//! Header blocks in (RFC 7541 §3, §6): each field goes behind the arena's end, name and value, and is told where.
//!
//! Decides nothing about messages: whether a field is kept is the caller's, and a block is decoded to its end in either case,
//! for the next one builds on it.

use super::huffman;
use super::integer;
use super::static_table;
use super::table::Table;
use crate::h2::fault::FaultKind;
use crate::h2::limits::TABLE_BYTES;
use crate::h2::tag::{Kind, Tag};

/// A field at the arena's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    /// Where its name begins.
    pub(crate) at: usize,
    /// Bytes of the name.
    pub(crate) name: usize,
    /// Bytes of the value, which follows.
    pub(crate) value: usize,
    pub(crate) tag: Tag,
}

/// One direction's memory.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder {
            table: Table::new(TABLE_BYTES),
        }
    }

    /// Changes whenever a block may mean something else than before.
    pub(crate) fn version(&self) -> u64 {
        self.table.version()
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Decodes a whole block. `on` may cut the arena back to where the field began.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        arena: &mut Vec<u8>,
        on: &mut impl FnMut(&mut Vec<u8>, Decoded),
    ) -> Result<(), FaultKind> {
        let mut rest = block;
        self.resize(&mut rest)?;
        while let Some(&first) = rest.first() {
            let at = arena.len();
            let decoded = if first & 0x80 != 0 {
                self.indexed(&mut rest, arena)?
            } else if first & 0x40 != 0 {
                let decoded = self.literal(&mut rest, 6, arena)?;
                let (name, value) = arena[at..].split_at(decoded.name);
                self.table.insert(name, value, 0, decoded.tag);
                decoded
            } else if first & 0x20 != 0 {
                // RFC 7541 §4.2: at the beginning of a block only.
                return Err(FaultKind::TableSizeUpdate);
            } else {
                self.literal(&mut rest, 4, arena)?
            };
            on(arena, decoded);
        }
        Ok(())
    }

    /// Changes of the table's size, two at most (RFC 7541 §4.2): the least and the last.
    fn resize(&mut self, rest: &mut &[u8]) -> Result<(), FaultKind> {
        let mut updates = 0;
        while rest.first().is_some_and(|first| first & 0xE0 == 0x20) {
            let size = integer::decode(rest, 5).map_err(|_| FaultKind::HeaderBlock)? as usize;
            updates += 1;
            if size > TABLE_BYTES || updates > 2 {
                return Err(FaultKind::TableSizeUpdate);
            }
            if size != self.table.most() {
                self.table.resize(size);
            }
        }
        Ok(())
    }

    #[inline]
    fn indexed(&self, rest: &mut &[u8], arena: &mut Vec<u8>) -> Result<Decoded, FaultKind> {
        let index = integer::decode(rest, 7).map_err(|_| FaultKind::HeaderBlock)? as usize;
        let at = arena.len();
        if let Some(place) = index.checked_sub(static_table::COUNT + 1) {
            let entry = self.table.get(place).ok_or(FaultKind::TableIndex)?;
            arena.extend_from_slice(self.table.text(entry));
            return Ok(Decoded {
                at,
                name: entry.name_len(),
                value: entry.value_len(),
                tag: entry.tag,
            });
        }
        let place = index.checked_sub(1).ok_or(FaultKind::TableIndex)?;
        let (name, value) = static_table::ENTRIES[place];
        arena.extend_from_slice(name);
        arena.extend_from_slice(value);
        let tag = match index {
            // Those that browsers send in each request.
            2 | 3 => tag(Kind::Method),
            4 | 5 => tag(Kind::Path),
            6 | 7 => tag(Kind::Scheme),
            8..=14 => tag(Kind::Status),
            _ => Tag::of(name, value),
        };
        Ok(Decoded {
            at,
            name: name.len(),
            value: value.len(),
            tag,
        })
    }

    fn literal(&self, rest: &mut &[u8], prefix: u32, arena: &mut Vec<u8>) -> Result<Decoded, FaultKind> {
        let index = integer::decode(rest, prefix).map_err(|_| FaultKind::HeaderBlock)? as usize;
        let at = arena.len();
        let mut named = None;
        if index == 0 {
            string(rest, arena)?;
        } else if let Some(place) = index.checked_sub(static_table::COUNT + 1) {
            let entry = self.table.get(place).ok_or(FaultKind::TableIndex)?;
            arena.extend_from_slice(self.table.name(entry));
            named = Some(entry.tag);
        } else {
            arena.extend_from_slice(static_table::ENTRIES[index - 1].0);
        }
        let name = arena.len() - at;
        string(rest, arena)?;
        let (name_text, value_text) = arena[at..].split_at(name);
        let tag = match named {
            Some(tag) => tag.with_value(value_text),
            None => Tag::of(name_text, value_text),
        };
        Ok(Decoded {
            at,
            name,
            value: value_text.len(),
            tag,
        })
    }
}

fn tag(kind: Kind) -> Tag {
    Tag {
        kind,
        known: None,
        fault: None,
    }
}

/// A string literal (RFC 7541 §5.2).
#[inline]
fn string(rest: &mut &[u8], arena: &mut Vec<u8>) -> Result<(), FaultKind> {
    let huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer::decode(rest, 7).map_err(|_| FaultKind::HeaderBlock)? as usize;
    let (text, behind) = rest.split_at_checked(length).ok_or(FaultKind::HeaderBlock)?;
    *rest = behind;
    if huffman {
        return huffman::decode(text, arena).map_err(|_| FaultKind::HeaderBlock);
    }
    arena.extend_from_slice(text);
    Ok(())
}
