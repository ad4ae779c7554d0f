//! Header blocks out (RFC 7541 §6).
//!
//! What goes into the table: a field that was sent before, not long ago. So `Server`, `Content-Type` and a second's `Date` are
//! one byte from their third time on, and what is different each time never pushes them out. What is secret never goes in,
//! and tells proxies to do as much (RFC 7541 §7.1.3).

use super::huffman;
use super::integer;
use super::static_table;
use super::table::Table;
use crate::h1::Known;
use crate::h2::limits::TABLE_BYTES;
use crate::h2::tag::{Kind, Tag};

/// Places for hashes of fields that were sent; a power of two. Each has the last two, so that two fields of one place, of which one may be
/// different each time, do not push each other out for ever.
const SEEN: usize = 32;

/// Bytes of a name that is brought into lower case without allocating.
const NAME: usize = 64;

/// Bytes of a field that may go into the table: more would push out too much.
const ENTRY_MOST: usize = 512;

/// Bytes of a run of fields that is remembered.
const MEMO: usize = 12;

/// A run of fields that was nothing but indices: the same bytes as long as the table is the same.
#[derive(Debug)]
struct Memo {
    id: u64,
    version: u64,
    length: u8,
    bytes: [u8; MEMO],
}

/// One direction's memory.
#[derive(Debug)]
pub(crate) struct Encoder {
    table: Table,
    /// Least and last size since the last block, to be told at the beginning of the next (RFC 7541 §4.2).
    update: Option<(usize, usize)>,
    seen: [[u16; 2]; SEEN],
    /// Literals so far.
    literals: u64,
    memo: Memo,
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        Encoder {
            table: Table::new(TABLE_BYTES),
            update: None,
            seen: [[0; 2]; SEEN],
            literals: 0,
            memo: Memo {
                id: 0,
                version: 0,
                length: 0,
                bytes: [0; MEMO],
            },
        }
    }

    /// Appends the run of fields that goes by the number `id`, which is not 0, if it was remembered and is still right.
    #[inline]
    pub(crate) fn recall(&self, id: u64, out: &mut Vec<u8>) -> bool {
        let memo = &self.memo;
        let right = memo.id == id && memo.version == self.table.version();
        if right {
            out.extend_from_slice(&memo.bytes[..usize::from(memo.length)]);
        }
        right
    }

    /// What to remember a run by, before it is written.
    pub(crate) fn mark(&self) -> (u64, u64) {
        (self.table.version(), self.literals)
    }

    /// Remembers a run that was written since `mark`, if all of it was indices.
    pub(crate) fn remember(&mut self, id: u64, mark: (u64, u64), run: &[u8]) {
        if mark == self.mark() && run.len() <= MEMO {
            self.memo.id = id;
            self.memo.version = mark.0;
            self.memo.length = run.len() as u8;
            self.memo.bytes[..run.len()].copy_from_slice(run);
        }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }

    /// The peer's `SETTINGS_HEADER_TABLE_SIZE`; not more is used than [`TABLE_BYTES`].
    pub(crate) fn set_most(&mut self, bytes: u32) {
        let most = (bytes as usize).min(TABLE_BYTES);
        let last = self.update.map_or(self.table.most(), |(_, last)| last);
        if most != last {
            // Only what was set since the last block: Go takes two changes in one block for an error where one would do.
            let least = self.update.map_or(most, |(least, _)| least.min(most));
            self.update = Some((least, most));
        }
    }

    /// Changes whenever a block may come out otherwise than before; `None` while a change of the table's size is to be told.
    pub(crate) fn version(&self) -> Option<u64> {
        self.update.is_none().then(|| self.table.version())
    }

    /// Begins a block.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((least, last)) = self.update.take() {
            self.table.resize(least);
            if least < last {
                integer::encode(least, 5, 0x20, out);
                self.table.resize(last);
            }
            integer::encode(last, 5, 0x20, out);
        }
    }

    /// `:status`.
    #[inline]
    pub(crate) fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digits = [100, 10, 1].map(|unit| b'0' + (status / unit % 10) as u8);
                return self.field(b":status", &digits, out);
            }
        };
        out.push(0x80 | index);
    }

    /// A field; its name in any case, sent in lower case.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let index = static_table::index_of(name);
        if is_secret(name, value) {
            return self.literal(0x10, 4, index, name, value, out);
        }
        if let Some(index) = index.and_then(|index| static_entry(index, value)) {
            return out.push(0x80 | index as u8);
        }
        let hash = hash(name, value);
        if let Some(place) = self.find(hash, name, value) {
            return integer::encode(static_table::COUNT + 1 + place, 7, 0x80, out);
        }
        let seen = &mut self.seen[hash as usize % SEEN];
        let mark = (hash >> 16) as u16 | 1;
        let again = seen.contains(&mark);
        if !again {
            *seen = [mark, seen[0]];
        }
        if !again || name.len() + value.len() > ENTRY_MOST {
            return self.literal(0, 4, index, name, value, out);
        }
        self.literal(0x40, 6, index, name, value, out);
        let lower: &mut [u8] = &mut [0; ENTRY_MOST];
        let lower = &mut lower[..name.len()];
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.table.insert(lower, value, hash, PLAIN);
    }

    /// A number as a field that is never the same for long.
    pub(crate) fn number(&mut self, name: &[u8], number: u64, out: &mut Vec<u8>) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.field(name, &digits[at..], out);
    }

    #[inline]
    fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let mut places = self.table.newest_first().enumerate();
        places
            .find(|(_, entry)| {
                let same = |text: &[u8]| {
                    let (found, there) = text.split_at(entry.name_len());
                    found.eq_ignore_ascii_case(name) && there == value
                };
                entry.hash == hash && same(self.table.text(entry))
            })
            .map(|(place, _)| place)
    }

    fn literal(
        &mut self,
        pattern: u8,
        bits: u32,
        index: Option<usize>,
        name: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        self.literals += 1;
        let index = index.or_else(|| {
            let mut places = self.table.newest_first().enumerate();
            let named = places.find(|(_, entry)| self.table.name(entry).eq_ignore_ascii_case(name));
            named.map(|(place, _)| static_table::COUNT + 1 + place)
        });
        integer::encode(index.unwrap_or(0), bits, pattern, out);
        if index.is_none() {
            match [0; NAME].get_mut(..name.len()) {
                Some(lower) => {
                    lower.copy_from_slice(name);
                    lower.make_ascii_lowercase();
                    string(lower, out);
                }
                None => string(&name.to_ascii_lowercase(), out),
            }
        }
        string(value, out);
    }
}

const PLAIN: Tag = Tag {
    kind: Kind::Plain,
    known: None,
    fault: None,
};

/// The index of a static entry with this value, if one with this name and no lower index has it.
#[inline]
fn static_entry(index: usize, value: &[u8]) -> Option<usize> {
    let (name, _) = static_table::ENTRIES[index - 1];
    let same_name = static_table::ENTRIES[index - 1..]
        .iter()
        .take_while(|entry| entry.0 == name);
    let place = same_name.into_iter().position(|entry| entry.1 == value)?;
    Some(index + place)
}

/// Fields that tell who somebody is: a proxy that compresses for several clients must not mix them. Short cookies could be
/// guessed by what others make of the size.
fn is_secret(name: &[u8], value: &[u8]) -> bool {
    match Known::of(name) {
        Some(Known::Authorization | Known::SetCookie) => true,
        Some(Known::Cookie) => value.len() < 20,
        Some(_) => false,
        None => name.eq_ignore_ascii_case(b"proxy-authorization"),
    }
}

/// Of the ends of name and value: what differs elsewhere is told apart by comparing.
#[inline]
fn hash(name: &[u8], value: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    // The case bit of each byte: names come in any case.
    const CASE: u64 = 0x2020_2020_2020_2020;
    let mut hash = (name.len() as u64) << 32 | value.len() as u64;
    for word in [head(name) | CASE, tail(name) | CASE, head(value), tail(value)] {
        hash = (hash ^ word).wrapping_mul(FACTOR).rotate_left(23);
    }
    (hash >> 32) as u32
}

#[inline]
fn head(text: &[u8]) -> u64 {
    match text.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => short(text),
    }
}

#[inline]
fn tail(text: &[u8]) -> u64 {
    match text.last_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

fn short(text: &[u8]) -> u64 {
    text.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// A string literal, by Huffman's code where that is shorter.
fn string(text: &[u8], out: &mut Vec<u8>) {
    let length = huffman::encoded_len(text);
    if length < text.len() {
        integer::encode(length, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        integer::encode(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}
