//! Queueing disciplines as the kernel tells them.

use super::*;

fn message(interface: u32, handle: u32, parent: u32, kind: &str) -> Message {
    let mut payload = header(interface, handle, parent);
    put(&mut payload, KIND, format!("{kind}\0").as_bytes());
    put(&mut payload, OPTIONS, &[1, 2, 3, 4]);
    Message { kind: NEW, payload }
}

#[test]
fn a_discipline_is_read() {
    let found = parse(&message(3, 0x8001_0000, ROOT, "mq"), 3).unwrap();
    let expected = Qdisc {
        handle: 0x8001_0000,
        parent: ROOT,
        kind: "mq".into(),
        options: vec![1, 2, 3, 4],
    };
    assert_eq!(found, expected);
}

#[test]
fn those_of_others_and_for_arriving_packets_are_left_out() {
    assert_eq!(parse(&message(4, 0, ROOT, "mq"), 3), None);
    assert_eq!(parse(&message(3, 0xffff_0000, INGRESS, "ingress"), 3), None);
}

#[test]
fn a_cut_message_is_no_discipline() {
    let whole = message(3, 0, ROOT, "mq");
    for end in 0..HEADER {
        let cut = Message {
            kind: NEW,
            payload: whole.payload[..end].to_vec(),
        };
        assert_eq!(parse(&cut, 3), None, "{end} bytes");
    }
}

#[test]
fn the_loopback_interface_has_one_and_an_unknown_interface_is_an_error() {
    assert_eq!(list("lo").unwrap().len(), 1);
    let error = list("no-such-if").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}
