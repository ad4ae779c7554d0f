//! Rules 1 to 8: frames, their order, their limits.

use ringmain_wire::ws::{Decoder, Event as Decoded, FaultKind, Found, Limits, PeerFault, Role};

use crate::ws::support::{
    BINARY, CLOSE, Event, FIN, KEY, MORE, PING, PONG, RSV1, Setting, TEXT, binary, frames, masked, plain,
    refuses, takes, text,
};

#[test]
fn rule_1_reserved_bits_are_zero() {
    for bits in 1..8_u8 {
        for opcode in [MORE, TEXT, BINARY, 0x8, 0x9, 0xA] {
            let first = FIN | bits << 4 | opcode;
            refuses(&Setting::SERVER, &masked(first, b""), FaultKind::ReservedBits);
            refuses(&Setting::CLIENT, &plain(first, b""), FaultKind::ReservedBits);
            let deflates = bits == 0b100 && matches!(opcode, TEXT | BINARY);
            let found = crate::ws::support::fault(&Setting::DEFLATE, &plain(first, b""));
            assert_eq!(
                found,
                (!deflates).then_some(FaultKind::ReservedBits),
                "{first:#x}"
            );
        }
    }
    // RFC 7692 §6.1: only the first frame of a message says that it is deflated.
    let continued = [plain(TEXT, b"a"), plain(FIN | RSV1, b"b")].concat();
    refuses(&Setting::DEFLATE, &continued, FaultKind::ReservedBits);
}

#[test]
fn rule_2_opcodes_have_a_meaning() {
    for opcode in 0..16_u8 {
        let input = masked(FIN | opcode, b"");
        match opcode {
            0 => refuses(&Setting::SERVER, &input, FaultKind::ContinuationAlone),
            1 => takes(&Setting::SERVER, &input, &[text("")]),
            2 => takes(&Setting::SERVER, &input, &[binary(b"")]),
            8 => takes(&Setting::SERVER, &input, &[Event::Close(None)]),
            9 => takes(&Setting::SERVER, &input, &[Event::Ping(vec![])]),
            10 => takes(&Setting::SERVER, &input, &[Event::Pong(vec![])]),
            _ => refuses(&Setting::SERVER, &input, FaultKind::Opcode),
        }
    }
}

#[test]
fn rule_3_fragments_are_of_one_message() {
    let check = |input: &[(u8, &[u8])], expected: &[Event]| {
        takes(&Setting::SERVER, &frames(Role::Server, input), expected);
    };
    check(&[(TEXT, b"a"), (MORE, b"b"), (FIN, b"c")], &[text("abc")]);
    check(&[(BINARY, b""), (MORE, b""), (FIN, b"")], &[binary(b"")]);
    check(
        &[(BINARY, b"a"), (FIN, b""), (FIN | BINARY, b"b")],
        &[binary(b"a"), binary(b"b")],
    );
    for (input, kind) in [
        (&[(FIN, b"a")][..], FaultKind::ContinuationAlone),
        (&[(MORE, b"a")], FaultKind::ContinuationAlone),
        (&[(FIN | TEXT, b"a"), (FIN, b"b")], FaultKind::ContinuationAlone),
        (
            &[(TEXT, b"a"), (FIN, b"b"), (FIN, b"c")],
            FaultKind::ContinuationAlone,
        ),
        (&[(TEXT, b"a"), (FIN | TEXT, b"b")], FaultKind::MessageInMessage),
        (&[(TEXT, b"a"), (BINARY, b"b")], FaultKind::MessageInMessage),
    ] {
        let input: Vec<(u8, &[u8])> = input.iter().map(|(first, data)| (*first, &data[..])).collect();
        refuses(&Setting::SERVER, &frames(Role::Server, &input), kind);
    }
}

#[test]
fn rule_3_control_frames_stand_between_fragments() {
    let input = frames(
        Role::Client,
        &[
            (TEXT, b"a"),
            (PING, b"1"),
            (MORE, b"b"),
            (PONG, b"2"),
            (FIN, b"c"),
            (CLOSE, b""),
        ],
    );
    let part = |data: &[u8], last| Event::Data(ringmain_wire::ws::Kind::Text, data.to_vec(), last);
    let expected = [
        part(b"a", false),
        Event::Ping(b"1".to_vec()),
        part(b"b", false),
        Event::Pong(b"2".to_vec()),
        part(b"c", true),
        Event::Close(None),
    ];
    takes(&Setting::CLIENT, &input, &expected);
}

#[test]
fn rule_4_control_frames_are_short_and_whole() {
    for first in [CLOSE, PING, PONG] {
        refuses(
            &Setting::SERVER,
            &masked(first & !FIN, b""),
            FaultKind::ControlFragmented,
        );
        refuses(
            &Setting::SERVER,
            &masked(first, &[b'a'; 126]),
            FaultKind::ControlTooLong,
        );
        refuses(&Setting::SERVER, &[first, 0xFF], FaultKind::ControlTooLong);
    }
    takes(
        &Setting::SERVER,
        &masked(PING, &[7; 125]),
        &[Event::Ping(vec![7; 125])],
    );
    takes(
        &Setting::SERVER,
        &masked(PONG, &[7; 125]),
        &[Event::Pong(vec![7; 125])],
    );
}

#[test]
fn rule_5_clients_mask_and_servers_do_not() {
    for first in [FIN | TEXT, FIN | BINARY, CLOSE, PING, PONG] {
        refuses(&Setting::SERVER, &plain(first, b""), FaultKind::MaskMissing);
        refuses(&Setting::CLIENT, &masked(first, b""), FaultKind::MaskForbidden);
    }
    // RFC 6455 §5.7.
    takes(
        &Setting::SERVER,
        b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58",
        &[text("Hello")],
    );
    takes(
        &Setting::CLIENT,
        b"\x81\x05\x48\x65\x6c\x6c\x6f",
        &[text("Hello")],
    );
}

#[test]
fn rule_5_input_is_unmasked_where_it_lies() {
    for length in 0..40_u8 {
        let payload: Vec<u8> = (0..length).collect();
        let mut input = masked(FIN | BINARY, &payload);
        let mut decoder = Decoder::new(Role::Server, &Limits::default(), None);
        let step = decoder.decode(&mut input, None).expect("valid");
        let Decoded::Piece(piece) = step.event else {
            panic!("{step:?}")
        };
        assert_eq!(piece.data, payload);
        assert_eq!(step.consumed, input.len());
        assert_eq!(input[input.len() - payload.len()..], payload);
        assert!(input[2..].starts_with(&KEY));
    }
}

#[test]
fn rule_6_lengths_are_minimal_and_below_2_to_the_63() {
    let long = |length: u64| [&[FIN | BINARY, 127][..], &length.to_be_bytes()].concat();
    for length in [0_u64, 1, 125] {
        let short = [&[FIN | BINARY, 126][..], &(length as u16).to_be_bytes()].concat();
        refuses(&Setting::CLIENT, &short, FaultKind::LengthNotMinimal);
    }
    for length in [0, 125, 126, 65535] {
        refuses(&Setting::CLIENT, &long(length), FaultKind::LengthNotMinimal);
    }
    for length in [1 << 63, u64::MAX] {
        refuses(&Setting::CLIENT, &long(length), FaultKind::LengthHighBit);
    }
    // Known from the first byte of it.
    refuses(
        &Setting::CLIENT,
        &[FIN | BINARY, 127, 0x80],
        FaultKind::LengthHighBit,
    );
    for length in [0, 1, 125, 126, 127, 65535, 65536, 65537] {
        let data = vec![b'*'; length];
        takes(&Setting::CLIENT, &plain(FIN | BINARY, &data), &[binary(&data)]);
        takes(&Setting::SERVER, &masked(FIN | BINARY, &data), &[binary(&data)]);
    }
}

#[test]
fn rule_7_frames_and_messages_are_within_limits() {
    let setting = Setting {
        limits: Limits {
            frame_bytes: 4,
            message_bytes: 6,
            control_frames: 9,
        },
        ..Setting::CLIENT
    };
    let check = |input: &[(u8, &[u8])], kind| {
        let input = frames(Role::Client, input);
        match kind {
            Some(kind) => refuses(&setting, &input, kind),
            None => assert_eq!(crate::ws::support::fault(&setting, &input), None),
        }
    };
    check(&[(FIN | BINARY, b"1234")], None);
    check(&[(FIN | BINARY, b"12345")], Some(FaultKind::FrameTooLarge));
    check(&[(BINARY, b"1234"), (FIN, b"56")], None);
    check(
        &[(BINARY, b"1234"), (FIN, b"567")],
        Some(FaultKind::MessageTooLarge),
    );
    check(
        &[(BINARY, b"1234"), (MORE, b"56"), (FIN, b"7")],
        Some(FaultKind::MessageTooLarge),
    );
    // Each message has the whole limit, and control frames take nothing of it.
    check(
        &[
            (FIN | BINARY, b"1234"),
            (PING, b"12345678"),
            (FIN | BINARY, b"1234"),
        ],
        None,
    );
    // Known from the header.
    let announced = [&[FIN | BINARY, 127][..], &(i64::MAX as u64).to_be_bytes()].concat();
    refuses(&setting, &announced, FaultKind::FrameTooLarge);
    let unlimited = Setting {
        limits: Limits {
            frame_bytes: u64::MAX,
            message_bytes: u64::MAX,
            control_frames: 9,
        },
        ..Setting::CLIENT
    };
    takes(&unlimited, &announced, &[]);
}

#[test]
fn rule_8_control_frames_have_a_budget() {
    let limits = Limits {
        control_frames: 2,
        ..Limits::default()
    };
    for idle in [
        &[(PING, &b""[..]), (PING, b"a"), (PONG, b"")][..],
        &[(PING, b""), (TEXT, b""), (MORE, b"")],
        &[(TEXT, b"a"), (MORE, b""), (MORE, b""), (MORE, b"")],
    ] {
        let setting = Setting {
            limits,
            ..Setting::CLIENT
        };
        refuses(
            &setting,
            &frames(Role::Client, idle),
            FaultKind::TooManyControlFrames,
        );
    }
    let mut decoder = Decoder::new(Role::Client, &limits, None);
    for _ in 0..9 {
        for _ in 0..2 {
            let mut input = [PING, 0];
            let step = decoder.decode(&mut input, None);
            assert_eq!(step.map(|step| step.event), Ok(Decoded::Ping(b"")));
        }
        decoder.renew_budget();
    }
    // A Close is always taken.
    let input = frames(Role::Client, &[(PING, b""), (PING, b""), (CLOSE, b"")]);
    let setting = Setting {
        limits,
        ..Setting::CLIENT
    };
    assert_eq!(crate::ws::support::fault(&setting, &input), None);
}

#[test]
fn rule_8_messages_cost_nothing_of_the_budget() {
    let setting = Setting {
        limits: Limits {
            control_frames: 0,
            ..Limits::default()
        },
        ..Setting::CLIENT
    };
    let input = frames(
        Role::Client,
        &[(FIN | TEXT, b""), (BINARY, b"a"), (MORE, b"b"), (FIN, b"")],
    );
    takes(&setting, &input, &[text(""), binary(b"ab")]);
}

#[test]
fn a_fault_says_where_and_what() {
    let input = [plain(FIN | TEXT, b"abc"), plain(0x83, b"")].concat();
    let fault = PeerFault {
        kind: FaultKind::Opcode,
        at: 5,
        found: Found::Byte(0x83),
    };
    takes(&Setting::CLIENT, &input, &[text("abc"), Event::Fault(fault)]);
    assert_eq!(
        fault.to_string(),
        "in the frame at byte 5: expected opcode 0, 1, 2, 8, 9 or 10; found 0x83 (RFC 6455 §5.2; close 1002)"
    );
    assert_eq!(fault.close_code().map(|code| code.number()), Some(1002));
}
