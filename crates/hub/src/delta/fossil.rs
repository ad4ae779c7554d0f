//! Deltas in the format of Fossil, which Centrifuge's SDKs apply.
//!
//! ```text
//! delta     LENGTH \n command… CHECKSUM ;        of the target; numbers in base 64
//! command   COUNT @ OFFSET ,                     copies bytes of the source
//!           COUNT : BYTES                        inserts bytes
//! ```
//!
//! Copies begin and end at characters of UTF-8: the delta of two texts is a text, as the JSON format requires. Takes a time that is
//! linear in both lengths. Must not know publications.

use crate::limits::{DELTA_BYTES, DELTA_PROBES};

/// The length of the source's blocks that are searched for in the target.
const BLOCK: usize = 16;
/// The shortest copy: its command is about as long as the bytes.
const MIN_COPY: usize = 8;
/// No block.
const NONE: u32 = u32::MAX;

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// A delta that cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid delta: {0}")]
pub struct DeltaError(&'static str);

/// A range of the target that equals one of the source.
#[derive(Clone, Copy, Debug)]
struct CopyRange {
    source: usize,
    target: usize,
    length: usize,
}

/// Returns a delta from `source` to `target`. `None`: it would not be shorter than the target, or one of the two is longer than
/// [`DELTA_BYTES`].
#[must_use]
pub fn create(source: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if source.is_empty() || source.len().max(target.len()) > DELTA_BYTES {
        return None;
    }
    let prefix = common_prefix(source, target);
    let suffix = common_suffix(&source[prefix..], &target[prefix..]);
    let mut copies = vec![CopyRange {
        source: 0,
        target: 0,
        length: prefix,
    }];
    find_copies(source, target, prefix..target.len() - suffix, &mut copies);
    copies.push(CopyRange {
        source: source.len() - suffix,
        target: target.len() - suffix,
        length: suffix,
    });
    let delta = write(target, &copies);
    (delta.len() < target.len()).then_some(delta)
}

/// Applies a delta. `limit` bounds the length of the result.
///
/// # Errors
/// [`DeltaError`]: the delta is malformed, is of another source, or has a longer result.
pub fn apply(source: &[u8], delta: &[u8], limit: usize) -> Result<Vec<u8>, DeltaError> {
    let mut reader = Reader { remaining: delta };
    let length = reader.number()? as usize;
    reader.expect(b'\n', "expected a line break behind the length")?;
    if length > limit {
        return Err(DeltaError("the result is longer than the limit"));
    }
    let mut target = Vec::new();
    loop {
        let count = reader.number()?;
        let bytes = match reader.byte()? {
            b'@' => {
                let offset = reader.number()? as usize;
                reader.expect(b',', "expected a comma behind the offset of a copy")?;
                let end = offset.checked_add(count as usize);
                let range = end.and_then(|end| source.get(offset..end));
                range.ok_or(DeltaError("a copy exceeds the source"))?
            }
            b':' => reader.take(count as usize)?,
            b';' if target.len() != length => {
                return Err(DeltaError("the result has another length than announced"));
            }
            b';' if checksum(&target) != count => return Err(DeltaError("the checksum differs")),
            b';' => return Ok(target),
            _ => return Err(DeltaError("unknown command")),
        };
        if bytes.len() > length - target.len() {
            return Err(DeltaError("the result is longer than announced"));
        }
        target.extend_from_slice(bytes);
    }
}

struct Reader<'a> {
    remaining: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, DeltaError> {
        self.take(1).map(|byte| byte[0])
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DeltaError> {
        let split = self.remaining.split_at_checked(count);
        let (taken, remaining) = split.ok_or(DeltaError("it is truncated"))?;
        self.remaining = remaining;
        Ok(taken)
    }

    fn expect(&mut self, byte: u8, error: &'static str) -> Result<(), DeltaError> {
        if self.byte()? == byte {
            Ok(())
        } else {
            Err(DeltaError(error))
        }
    }

    /// Reads a number of 32 bits; without digits it is 0.
    fn number(&mut self) -> Result<u32, DeltaError> {
        let mut number = 0_u32;
        while let Some((first, rest)) = self.remaining.split_first()
            && let Some(digit) = digit_value(*first)
        {
            if number >> 26 != 0 {
                return Err(DeltaError("a number exceeds 32 bits"));
            }
            number = (number << 6) | digit;
            self.remaining = rest;
        }
        Ok(number)
    }
}

fn digit_value(byte: u8) -> Option<u32> {
    Some(match byte {
        b'0'..=b'9' => u32::from(byte - b'0'),
        b'A'..=b'Z' => u32::from(byte - b'A') + 10,
        b'_' => 36,
        b'a'..=b'z' => u32::from(byte - b'a') + 37,
        b'~' => 63,
        _ => return None,
    })
}

/// Appends the copies within a range of the target, in order. Each position is looked up among the source's blocks, at most
/// [`DELTA_PROBES`] of one hash are compared, and the target continues behind the longest match.
fn find_copies(source: &[u8], target: &[u8], range: std::ops::Range<usize>, copies: &mut Vec<CopyRange>) {
    if range.len() < BLOCK || source.len() < BLOCK {
        return;
    }
    let index = BlockIndex::new(source);
    let (mut at, mut literal) = (range.start, range.start);
    while let Some(block) = target[..range.end].get(at..at + BLOCK) {
        let mut longest: Option<CopyRange> = None;
        for candidate in index.candidates(block).take(DELTA_PROBES) {
            if source[candidate..candidate + BLOCK] != *block {
                continue;
            }
            let ahead = common_prefix(&source[candidate..], &target[at..range.end]);
            let behind = common_suffix(&source[..candidate], &target[literal..at]);
            if longest.is_none_or(|longest| longest.length < ahead + behind) {
                longest = Some(CopyRange {
                    source: candidate - behind,
                    target: at - behind,
                    length: ahead + behind,
                });
            }
        }
        match longest {
            Some(copy) => {
                at = copy.target + copy.length;
                literal = at;
                copies.push(copy);
            }
            None => at += 1,
        }
    }
}

/// The blocks of the source by their hash.
struct BlockIndex {
    heads: Vec<u32>,
    next: Vec<u32>,
    shift: u32,
}

impl BlockIndex {
    fn new(source: &[u8]) -> BlockIndex {
        let blocks = source.len() / BLOCK;
        let bits = (2 * blocks).next_power_of_two().ilog2();
        let mut index = BlockIndex {
            heads: vec![NONE; 1 << bits],
            next: vec![NONE; blocks],
            shift: u64::BITS - bits,
        };
        // The first blocks are found first.
        for (number, block) in source.chunks_exact(BLOCK).enumerate().rev() {
            let head = &mut index.heads[hash(block, index.shift)];
            index.next[number] = std::mem::replace(head, number as u32);
        }
        index
    }

    /// Returns the offsets of blocks with the same hash.
    fn candidates(&self, block: &[u8]) -> impl Iterator<Item = usize> {
        let mut number = self.heads[hash(block, self.shift)];
        std::iter::from_fn(move || {
            let found = number;
            number = *self.next.get(found as usize)?;
            Some(found as usize * BLOCK)
        })
    }
}

/// Returns the hash of a block, of `64 - shift` bits (at least one).
fn hash(block: &[u8], shift: u32) -> usize {
    let (first, second) = block.split_at(8);
    let mixed = word(first).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ word(second).rotate_left(32).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> shift) as usize
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let words = one.chunks_exact(8).zip(other.chunks_exact(8));
    let equal = 8 * words.take_while(|(one, other)| word(one) == word(other)).count();
    let rest = one[equal..].iter().zip(&other[equal..]);
    equal + rest.take_while(|(one, other)| one == other).count()
}

fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let words = one.rchunks_exact(8).zip(other.rchunks_exact(8));
    let equal = 8 * words.take_while(|(one, other)| word(one) == word(other)).count();
    let one = one[..one.len() - equal].iter().rev();
    let other = other[..other.len() - equal].iter().rev();
    equal + one.zip(other).take_while(|(one, other)| one == other).count()
}

/// Writes a delta with these copies, which are in the order of the target and do not overlap.
fn write(target: &[u8], copies: &[CopyRange]) -> Vec<u8> {
    let mut delta = Vec::with_capacity(64);
    write_number(target.len() as u32, &mut delta);
    delta.push(b'\n');
    let mut written = 0;
    for copy in copies.iter().filter_map(|copy| within_characters(*copy, target)) {
        write_insert(&target[written..copy.target], &mut delta);
        write_number(copy.length as u32, &mut delta);
        delta.push(b'@');
        write_number(copy.source as u32, &mut delta);
        delta.push(b',');
        written = copy.target + copy.length;
    }
    write_insert(&target[written..], &mut delta);
    write_number(checksum(target), &mut delta);
    delta.push(b';');
    delta
}

/// Shortens a copy to whole characters of UTF-8. `None`: it is too short.
fn within_characters(copy: CopyRange, target: &[u8]) -> Option<CopyRange> {
    let continues = |at: usize| target.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let (mut start, mut end) = (copy.target, copy.target + copy.length);
    while start < end && continues(start) {
        start += 1;
    }
    while end > start && continues(end) {
        end -= 1;
    }
    (end - start >= MIN_COPY).then(|| CopyRange {
        source: copy.source + (start - copy.target),
        target: start,
        length: end - start,
    })
}

fn write_insert(bytes: &[u8], delta: &mut Vec<u8>) {
    if !bytes.is_empty() {
        write_number(bytes.len() as u32, delta);
        delta.push(b':');
        delta.extend_from_slice(bytes);
    }
}

fn write_number(number: u32, out: &mut Vec<u8>) {
    let digits = number.max(1).ilog2() / 6 + 1;
    for digit in (0..digits).rev() {
        out.push(DIGITS[(number >> (6 * digit)) as usize & 63]);
    }
}

/// Returns the sum of the bytes as big-endian words of 32 bits; the last one is padded with zeros.
fn checksum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(4);
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    let last = u32::from_be_bytes(last);
    words
        .map(|word| word.first_chunk().map_or(0, |word| u32::from_be_bytes(*word)))
        .fold(last, u32::wrapping_add)
}

const _: () = assert!(DELTA_BYTES < u32::MAX as usize, "numbers have 32 bits");
