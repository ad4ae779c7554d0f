//! Integers of RFC 7541 §5.1, both ways.

use super::*;

fn decoded(mut input: &[u8], bits: u32) -> Result<(u32, usize), Malformed> {
    let before = input.len();
    let value = decode(&mut input, bits)?;
    Ok((value, before - input.len()))
}

#[test]
fn examples_of_the_rfc_hold() {
    // RFC 7541 Appendix C.1.
    let rows: &[(usize, u32, &[u8])] = &[(10, 5, &[10]), (1337, 5, &[31, 154, 10]), (42, 8, &[42])];
    for &(value, bits, bytes) in rows {
        let mut out = Vec::new();
        encode(value, bits, 0, &mut out);
        assert_eq!(out, bytes);
        assert_eq!(decoded(bytes, bits), Ok((value as u32, bytes.len())));
    }
}

#[test]
fn every_prefix_comes_back() {
    for bits in 4..=7 {
        for value in (0..600).chain([1 << 14, (1 << 21) + 5, (1 << 28) - 1]) {
            let mut out = Vec::new();
            encode(value, bits, 0, &mut out);
            assert_eq!(decoded(&out, bits), Ok((value as u32, out.len())));
            for cut in 0..out.len() {
                assert_eq!(decoded(&out[..cut], bits), Err(Malformed));
            }
        }
    }
}

#[test]
fn numbers_that_go_on_are_refused() {
    assert_eq!(decoded(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x01], 7), Err(Malformed));
    assert_eq!(
        decoded(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 7),
        Err(Malformed)
    );
    // Zeroes behind the number are a longer form of it.
    assert_eq!(decoded(&[0x7f, 0x80, 0x00], 7), Ok((127, 3)));
}
