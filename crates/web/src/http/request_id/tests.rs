//! Ids of our own, and which of others' are taken over.

use super::*;

#[test]
fn an_id_of_our_own_is_its_bits() {
    let table = [
        (0, 0, "00000000000000000000000000000000"),
        (u64::MAX, u64::MAX, "ffffffffffffffffffffffffffffffff"),
        (
            0x0123_4567_89AB_CDEF,
            0xFEDC_BA98_7654_3210,
            "0123456789abcdeffedcba9876543210",
        ),
    ];
    for (high, low, expected) in table {
        let id = RequestId::new(high, low);
        assert_eq!(id.as_str(), expected);
        assert_eq!(
            RequestId::accept(expected.as_bytes()),
            Some(id),
            "ours are taken over"
        );
    }
}

#[test]
fn only_harmless_ids_are_taken_over() {
    let longest = "a".repeat(limits::REQUEST_ID_BYTES);
    for value in [
        "a",
        "3f1c-77",
        "Root=1-67891233-abcdef012345678912345678",
        "a.b_c~d:e/f+g=@",
        &longest,
    ] {
        let id = RequestId::accept(value.as_bytes());
        assert_eq!(id.as_ref().map(RequestId::as_str), Some(value));
    }
    let too_long = format!("{longest}a");
    for value in [
        "", " ", "a b", "a\tb", "a\"b", "a\\b", "a,b", "a;b", "a<b", "${jndi}", "a%0a", "a'b", "é",
        "a\u{7f}", &too_long,
    ] {
        assert_eq!(RequestId::accept(value.as_bytes()), None, "{value}");
    }
    // One table over all bytes: nothing that could end a line, a field or a quotation.
    for byte in 0..=u8::MAX {
        let taken = RequestId::accept(&[byte]).is_some();
        assert_eq!(
            taken,
            byte.is_ascii_alphanumeric() || b"-_.~:/+=@".contains(&byte),
            "{byte}"
        );
    }
}
