//! The Huffman code of header strings (RFC 7541 §5.2, Appendix B), by tables that the compiler makes of its lengths.
//!
//! The code is canonical: codes of one length are consecutive and in the order of their symbols, so that the lengths say all. Knows
//! no fields.

/// Bits of each symbol's code; the last is EOS (RFC 7541 Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const EOS: u16 = 256;
/// Longest code.
const MOST: usize = 30;
/// Bits that one look-up decides; a longer code is found by its length.
const PEEK: u32 = 10;

struct Codes {
    /// Code and its bits, by symbol.
    codes: [(u32, u8); 257],
    /// All symbols in the order of their codes.
    sorted: [u16; 257],
    /// By length: the first code beyond those of that length, its bits at the top.
    limit: [u64; MOST + 1],
    /// By length: its first code, and where that stands in `sorted`.
    first: [(u32, u16); MOST + 1],
    /// By the next bits: the symbol and its length; 0 for a longer code.
    short: [(u8, u8); 1 << PEEK],
}

static TABLES: Codes = tables();

const fn tables() -> Codes {
    let mut tables = Codes {
        codes: [(0, 0); 257],
        sorted: [0; 257],
        limit: [0; MOST + 1],
        first: [(0, 0); MOST + 1],
        short: [(0, 0); 1 << PEEK],
    };
    let mut code: u64 = 0;
    let mut rank = 0;
    let mut length = 1;
    while length <= MOST {
        code <<= 1;
        tables.first[length] = (code as u32, rank as u16);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                tables.codes[symbol] = (code as u32, length as u8);
                tables.sorted[rank] = symbol as u16;
                if length <= PEEK as usize {
                    let spare = PEEK as usize - length;
                    let mut place = (code as usize) << spare;
                    let end = (code as usize + 1) << spare;
                    while place < end {
                        tables.short[place] = (symbol as u8, length as u8);
                        place += 1;
                    }
                }
                code += 1;
                rank += 1;
            }
            symbol += 1;
        }
        tables.limit[length] = code << (32 - length);
        length += 1;
    }
    assert!(code == 1 << MOST, "the code is complete");
    tables
}

/// What is no Huffman string: EOS within it, or a padding that is not the beginning of EOS, or longer than seven bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Decodes `input` behind what is in `out`.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    // The shortest code has five bits.
    out.reserve(input.len() * 8 / 5);
    let mut bits: u64 = 0;
    let mut count: u32 = 0;
    let mut rest = input;
    loop {
        if count <= 32 {
            (bits, count, rest) = refill(bits, count, rest);
        }
        let (symbol, length) = TABLES.short[(bits >> (64 - PEEK)) as usize];
        let (symbol, length) = match length {
            0 => match long(bits) {
                (EOS, length) if u32::from(length) <= count => return Err(Malformed),
                // EOS is cut here by the end.
                (symbol, length) => (symbol as u8, length),
            },
            _ => (symbol, length),
        };
        let length = u32::from(length);
        if length > count {
            break;
        }
        out.push(symbol);
        bits <<= length;
        count -= length;
    }
    // RFC 7541 §5.2: less than eight bits, all of them ones.
    let padded = count < 8 && bits == !(u64::MAX >> count);
    if padded { Ok(()) } else { Err(Malformed) }
}

#[inline]
fn refill(mut bits: u64, mut count: u32, rest: &[u8]) -> (u64, u32, &[u8]) {
    if let Some((word, rest)) = rest.split_first_chunk::<4>() {
        bits |= u64::from(u32::from_be_bytes(*word)) << (32 - count);
        return (bits, count + 32, rest);
    }
    let mut rest = rest;
    while let Some((&byte, behind)) = rest.split_first() {
        bits |= u64::from(byte) << (56 - count);
        count += 8;
        rest = behind;
    }
    (bits, count, rest)
}

/// The symbol of a code of more than [`PEEK`] bits.
#[cold]
fn long(bits: u64) -> (u16, u8) {
    let top = bits >> 32;
    let mut length = PEEK as usize + 1;
    while length < MOST && top >= TABLES.limit[length] {
        length += 1;
    }
    let (first, rank) = TABLES.first[length];
    let code = (top >> (32 - length)) as u32;
    let symbol = TABLES.sorted[usize::from(rank) + (code - first) as usize];
    (symbol, length as u8)
}

/// How many bytes `text` has when it is encoded.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Encodes `text` behind what is in `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let mut bits: u64 = 0;
    let mut count: u32 = 0;
    for &byte in text {
        let (code, length) = TABLES.codes[usize::from(byte)];
        bits = bits << length | u64::from(code);
        count += u32::from(length);
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        let spare = 8 - count;
        out.push((bits << spare) as u8 | 0xFF >> count);
    }
}

#[cfg(test)]
mod tests;
