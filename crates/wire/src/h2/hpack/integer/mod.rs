//! Integers with a prefix (RFC 7541 §5.1). Knows nothing of what they mean.

/// More bytes than a 32-bit number needs, or a larger number, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads the integer whose prefix is the lower `bits` of the first byte, and takes it from `input`.
#[inline]
pub(super) fn decode(input: &mut &[u8], bits: u32) -> Result<u32, Malformed> {
    let (&first, rest) = input.split_first().ok_or(Malformed)?;
    let mask = (1_u32 << bits) - 1;
    let value = u32::from(first) & mask;
    *input = rest;
    if value < mask {
        Ok(value)
    } else {
        decode_rest(input, mask)
    }
}

fn decode_rest(input: &mut &[u8], base: u32) -> Result<u32, Malformed> {
    let mut value = u64::from(base);
    // Four groups of seven bits hold every length that any limit lets through.
    for shift in [0, 7, 14, 21] {
        let (&byte, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        value += u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).map_err(|_| Malformed);
        }
    }
    Err(Malformed)
}

/// Appends `value`, whose prefix shares its byte with `pattern`.
#[inline]
pub(super) fn encode(value: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = (1_usize << bits) - 1;
    if value < mask {
        return out.push(pattern | value as u8);
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests;
