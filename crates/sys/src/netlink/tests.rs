//! Messages and attributes of netlink, written and read.

use super::*;

fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = encode(kind, flags, sequence, payload);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

#[test]
fn an_answer_in_parts_is_gathered_until_its_end() {
    let mut gathered = Gathered::default();
    let mut datagram = message(16, MULTI, 7, b"one");
    datagram.extend(message(16, MULTI, 7, b"two"));
    gathered.take(&datagram, 7).unwrap();
    assert!(!gathered.whole);
    gathered.take(&message(DONE, MULTI, 7, &[0; 4]), 7).unwrap();
    assert!(gathered.whole && !gathered.disturbed);
    let payloads: Vec<&[u8]> = gathered.messages.iter().map(|m| &m.payload[..]).collect();
    assert_eq!(payloads, [b"one", b"two"]);
}

#[test]
fn late_answers_to_former_requests_are_dropped() {
    let mut gathered = Gathered::default();
    gathered.take(&message(16, 0, 6, b"late"), 7).unwrap();
    assert!(gathered.messages.is_empty() && !gathered.whole);
    gathered.take(&message(16, 0, 7, b"mine"), 7).unwrap();
    assert!(gathered.whole);
}

#[test]
fn a_refusal_is_an_error_with_its_number_and_an_ack_is_none() {
    let refusal = (-libc::EPERM).to_ne_bytes();
    let error = Gathered::default()
        .take(&message(ERROR, 0, 1, &refusal), 1)
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    let mut gathered = Gathered::default();
    gathered.take(&message(ERROR, 0, 1, &[0; 4]), 1).unwrap();
    assert!(gathered.whole);
}

#[test]
fn a_disturbed_dump_is_seen() {
    let mut gathered = Gathered::default();
    gathered
        .take(&message(16, MULTI | INTERRUPTED, 1, b"x"), 1)
        .unwrap();
    assert!(gathered.disturbed);
}

#[test]
fn lengths_that_lie_are_errors_and_never_panics() {
    let mut bytes = message(16, MULTI, 1, b"payload");
    let whole = bytes.len();
    for length in [0, 1, 15, whole as u32 + 1, u32::MAX] {
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        assert!(Gathered::default().take(&bytes, 1).is_err(), "length {length}");
    }
    for end in 0..whole {
        bytes[..4].copy_from_slice(&(whole as u32).to_ne_bytes());
        let _ = Gathered::default().take(&bytes[..end], 1);
    }
}

#[test]
fn attributes_come_back_as_they_were_put() {
    let mut bytes = Vec::new();
    put(&mut bytes, 1, b"fq_codel\0");
    put(&mut bytes, 2 | 0x8000, &[1, 2, 3]);
    put(&mut bytes, 3, &[]);
    let found: Vec<_> = attributes(&bytes).collect();
    assert_eq!(found, [(1, &b"fq_codel\0"[..]), (2, &[1, 2, 3]), (3, &[])]);
    assert_eq!(text(find(&bytes, 1).unwrap()), "fq_codel");
    assert_eq!(find(&bytes, 9), None);
    // Cut anywhere, what is whole before the cut is still told.
    for end in 0..bytes.len() {
        assert!(attributes(&bytes[..end]).count() <= 3);
    }
}

#[test]
fn a_value_too_long_for_an_attribute_is_left_out() {
    let mut bytes = Vec::new();
    put(&mut bytes, 1, &vec![0; 1 << 16]);
    assert!(bytes.is_empty());
}
