//! One histogram as it stands in a line: base64 of HdrHistogram's version 2, deflated or not.
//!
//! hdrhistogram decodes it, but trusts the length in it and subtracts without a look: what comes from a file is
//! inflated within bounds and checked here first.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use super::Problem;
use crate::limits;

/// The first four bytes of a deflated histogram of version 2.
const DEFLATED: u32 = 0x1c84_9314;

/// The same of one that is not deflated, such as after inflating.
const PLAIN: u32 = 0x1c84_9313;

/// Bytes before the counters: cookie, their length, offset, digits, lowest, highest, ratio.
const HEAD: usize = 40;

/// Decodes one histogram.
pub(super) fn decode(text: &str) -> Result<Histogram<u64>, Problem> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| bad(&format!("not base64: {error}")))?;
    let plain = match number(&bytes, 0)? {
        DEFLATED => inflate(bytes.get(8..).unwrap_or_default(), number(&bytes, 4)?)?,
        PLAIN => bytes,
        other => {
            return Err(bad(&format!(
                "it begins with {other:#010x}, expected {DEFLATED:#010x} or {PLAIN:#010x}"
            )));
        }
    };
    check(&plain)?;
    let mut rest = plain.as_slice();
    Deserializer::new()
        .deserialize(&mut rest)
        .map_err(|error| bad(&error.to_string()))
}

fn inflate(deflated: &[u8], length: u32) -> Result<Vec<u8>, Problem> {
    let deflated = deflated.get(..length as usize);
    let deflated =
        deflated.ok_or_else(|| bad(&format!("its end is missing: expected {length} deflated bytes")))?;
    let mut plain = Vec::new();
    let bound = limits::RECORD_INFLATED_BYTES as u64 + 1;
    let inflated = ZlibDecoder::new(deflated).take(bound).read_to_end(&mut plain);
    inflated.map_err(|error| bad(&format!("not deflated: {error}")))?;
    if plain.len() > limits::RECORD_INFLATED_BYTES {
        return Err(bad(&format!(
            "it inflates to more than {} MiB",
            limits::RECORD_INFLATED_BYTES >> 20
        )));
    }
    if number(&plain, 0)? != PLAIN {
        return Err(bad("the deflated data is not a histogram of version 2"));
    }
    Ok(plain)
}

/// The length is that of what is there, and the counts can be added up.
fn check(plain: &[u8]) -> Result<(), Problem> {
    let counters = plain.get(HEAD..).ok_or_else(|| bad("its head is cut off"))?;
    let length = number(plain, 4)? as usize;
    if length != counters.len() {
        return Err(bad(&format!(
            "expected {length} bytes of counters, found {}",
            counters.len()
        )));
    }
    let mut total = 0u64;
    let mut rest = counters;
    while !rest.is_empty() {
        // Zigzag: odd numbers are runs of zeros, even ones twice a count.
        let encoded = varint(&mut rest)?;
        if encoded & 1 == 1 {
            if encoded >> 1 >= counters_at_most() {
                return Err(bad("it skips more counters than a histogram has"));
            }
        } else {
            total = total.checked_add(encoded >> 1).ok_or(Problem::Count)?;
        }
    }
    Ok(())
}

/// More counters than the format's finest histogram has.
fn counters_at_most() -> u64 {
    limits::RECORD_INFLATED_BYTES as u64
}

/// LEB128 of at most nine bytes, all eight bits of the last.
fn varint(rest: &mut &[u8]) -> Result<u64, Problem> {
    let mut value = 0;
    for place in 0..9 {
        let (byte, after) = rest
            .split_first()
            .ok_or_else(|| bad("its last counter is cut off"))?;
        *rest = after;
        if place == 8 || byte & 0x80 == 0 {
            return Ok(value | u64::from(*byte) << (7 * place));
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
    }
    Ok(value)
}

fn number(bytes: &[u8], at: usize) -> Result<u32, Problem> {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map(u32::from_be_bytes)
        .ok_or_else(|| bad("its head is cut off"))
}

fn bad(what: &str) -> Problem {
    Problem::Histogram(what.to_owned())
}
