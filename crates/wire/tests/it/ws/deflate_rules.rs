//! Rule 13: permessage-deflate within frames.

use ringmain_wire::ws::{
    Decoder, Deflater, Deflation, Encoder, Event as Decoded, FaultKind, Inflater, Kind, Limits, Mask,
    Message, Misuse, Role, Window, encode_shared,
};

use crate::ws::support::{
    BINARY, CLOSE, Event, FIN, MORE, PING, RSV1, Rng, Setting, TEXT, binary, events, fault, frames, plain,
    refuses, takes, text,
};

const HELLO: &[u8] = b"\xF2\x48\xCD\xC9\xC9\x07\x00";

#[test]
fn rule_13_the_examples_of_rfc_7692() {
    let first = FIN | RSV1 | TEXT;
    for payload in [
        HELLO,
        // A block without compression, a final block, two blocks.
        b"\x00\x05\x00\xFA\xFFHello\x00",
        b"\xF3\x48\xCD\xC9\xC9\x07\x00\x00",
        b"\xF2\x48\x05\x00\x00\x00\xFF\xFF\xCA\xC9\xC9\x07\x00",
    ] {
        for setting in [Setting::DEFLATE, Setting::CONTEXT] {
            takes(&setting, &plain(first, payload), &[text("Hello")]);
            let twice = [plain(first, payload), plain(first, payload)].concat();
            takes(&setting, &twice, &[text("Hello"), text("Hello")]);
        }
    }
    let fragments = frames(Role::Client, &[(RSV1 | TEXT, &HELLO[..3]), (FIN, &HELLO[3..])]);
    takes(&Setting::DEFLATE, &fragments, &[text("Hello")]);
    takes(&Setting::DEFLATE, &plain(first, b"\x00"), &[text("")]);
}

#[test]
fn rule_13_a_context_is_kept_only_where_that_was_agreed_on() {
    let first = FIN | RSV1 | TEXT;
    let again = frames(
        Role::Client,
        &[
            (first, HELLO),
            (FIN | TEXT, b"plain"),
            (first, b"\xF2\x00\x11\x00\x00"),
        ],
    );
    takes(
        &Setting::CONTEXT,
        &again,
        &[text("Hello"), text("plain"), text("Hello")],
    );
    refuses(&Setting::DEFLATE, &again, FaultKind::Deflate);
    // The first message refers to nothing, whoever used the inflater before.
    refuses(
        &Setting::CONTEXT,
        &plain(first, b"\xF2\x00\x11\x00\x00"),
        FaultKind::Deflate,
    );
}

#[test]
fn rule_13_what_is_not_deflate_is_refused() {
    let first = FIN | RSV1 | BINARY;
    // A block of the reserved type; lengths that do not match; a distance before the start.
    for payload in [
        &b"\x07"[..],
        b"\x00\x05\x00\xFA\xFEHello",
        b"\xF2\x00\x11\x00\x00",
    ] {
        refuses(&Setting::DEFLATE, &plain(first, payload), FaultKind::Deflate);
    }
    // What comes before is judged first, however it arrives: 0xFF is no text, then a reserved block type.
    let text_first = plain(FIN | RSV1 | TEXT, b"\x00\x01\x00\xFE\xFF\xFF\x07");
    for cut in 0..text_first.len() {
        let found = events(&Setting::DEFLATE, &text_first, &[cut]);
        assert!(
            matches!(found[..], [Event::Fault(fault)] if fault.kind == FaultKind::Text),
            "cut at {cut}: {found:?}"
        );
    }
    // Some peers send an empty message without the byte that it needs; nothing can be meant by it.
    takes(&Setting::CONTEXT, &plain(first, b""), &[binary(b"")]);
    let empty_between = frames(
        Role::Client,
        &[(first, HELLO), (first, b""), (first, b"\xF2\x00\x11\x00\x00")],
    );
    takes(
        &Setting::CONTEXT,
        &empty_between,
        &[binary(b"Hello"), binary(b""), binary(b"Hello")],
    );
}

/// `length` zeroes, deflated.
fn bomb(length: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut deflater = Deflater::new(Window::MAX, 9);
    encode_shared(&mut frame, Message::Binary(&vec![0; length]), Some(&mut deflater));
    frame
}

#[test]
fn rule_13_bombs_end_at_the_limit() {
    let limit = 100_000;
    for piece_bytes in [1, 7, 4096, 1 << 20] {
        let setting = Setting {
            limits: Limits {
                message_bytes: limit,
                ..Limits::default()
            },
            piece_bytes,
            ..Setting::DEFLATE
        };
        takes(&setting, &bomb(100_000), &[binary(&[0; 100_000])]);
        refuses(&setting, &bomb(100_001), FaultKind::MessageTooLarge);
        if piece_bytes >= 4096 {
            refuses(&setting, &bomb(50_000_000), FaultKind::MessageTooLarge);
        }
    }
    // Nothing beyond the limit is handed out, and little of the frame is looked at.
    let mut frame = bomb(50_000_000);
    let length = frame.len();
    let limits = Limits {
        message_bytes: limit,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(Role::Client, &limits, Some(Deflation::SHARED));
    let mut inflater = Inflater::new(4096);
    let (mut at, mut handed_out) = (0, 0);
    let end = loop {
        let step = match decoder.decode(&mut frame[at..], Some(&mut inflater)) {
            Ok(step) => step,
            Err(fault) => break fault,
        };
        at += step.consumed;
        if let Decoded::Piece(piece) = step.event {
            assert!(piece.data.len() <= 4096);
            handed_out += piece.data.len();
        }
    };
    assert_eq!(end.kind, FaultKind::MessageTooLarge);
    assert!(handed_out <= 100_000, "{handed_out} bytes");
    assert!(at * 100 < length, "{at} of {length} bytes");
}

#[test]
fn rule_13_an_inflater_is_needed_only_while_there_is_something_to_inflate() {
    let mut decoder = Decoder::new(Role::Client, &Limits::default(), Some(Deflation::SHARED));
    let mut input = frames(
        Role::Client,
        &[(FIN | TEXT, b"plain"), (FIN | RSV1 | TEXT, HELLO), (PING, b"")],
    );
    let step = decoder.decode(&mut input, None).expect("valid");
    assert!(matches!(step.event, Decoded::Piece(_)));
    let mut at = step.consumed;
    // A header alone brings nothing to inflate.
    let step = decoder.decode(&mut input[at..at + 2], None).expect("valid");
    assert_eq!((step.event, step.consumed), (Decoded::NeedMore, 2));
    at += 2;
    let step = decoder.decode(&mut input[at..], None).expect("valid");
    assert_eq!((step.event, step.consumed), (Decoded::NeedInflater, 0));
    assert!(!decoder.keeps_inflater());
    let mut inflater = Inflater::new(3);
    let mut got = Vec::new();
    loop {
        let step = decoder
            .decode(&mut input[at..], Some(&mut inflater))
            .expect("valid");
        at += step.consumed;
        let Decoded::Piece(piece) = step.event else {
            panic!("{step:?}")
        };
        assert!(piece.data.len() <= 3);
        got.extend_from_slice(piece.data);
        let last = piece.last;
        assert_eq!(decoder.keeps_inflater(), !last);
        if last {
            break;
        }
    }
    assert_eq!(got, b"Hello");
    let step = decoder.decode(&mut input[at..], None).expect("valid");
    assert_eq!(step.event, Decoded::Ping(b""));
}

#[test]
fn rule_13_an_inflater_is_kept_for_a_context_until_the_connection_is_over() {
    let hello = plain(FIN | RSV1 | TEXT, HELLO);
    for (deflation, end, kept) in [
        (Deflation::SHARED, plain(PING, b""), false),
        (Deflation::CONTEXT, plain(PING, b""), true),
        (Deflation::CONTEXT, plain(CLOSE, b""), false),
        (Deflation::CONTEXT, plain(0x83, b""), false),
        (Deflation::SHARED, plain(RSV1 | TEXT, HELLO), true),
        (Deflation::SHARED, plain(RSV1 | TEXT, b""), false),
    ] {
        let mut decoder = Decoder::new(Role::Client, &Limits::default(), Some(deflation));
        let mut inflater = Inflater::new(4096);
        assert!(!decoder.keeps_inflater());
        let mut input = [&hello[..], &end].concat();
        let mut at = 0;
        while let Ok(step) = decoder.decode(&mut input[at..], Some(&mut inflater)) {
            at += step.consumed;
            if step.event == Decoded::NeedMore {
                break;
            }
        }
        assert_eq!(decoder.keeps_inflater(), kept, "{deflation:?} {end:?}");
    }
}

#[test]
fn rule_13_one_inflater_serves_many_connections_in_turn() {
    let mut inflater = Inflater::new(4096);
    let mut decoders = vec![Decoder::new(Role::Client, &Limits::default(), Some(Deflation::SHARED)); 3];
    for _ in 0..4 {
        for decoder in &mut decoders {
            let mut input = plain(FIN | RSV1 | TEXT, HELLO);
            let step = decoder.decode(&mut input, Some(&mut inflater)).expect("valid");
            let Decoded::Piece(piece) = step.event else {
                panic!("{step:?}")
            };
            assert_eq!((piece.text, piece.first, piece.last), (Some("Hello"), true, true));
            assert!(!decoder.keeps_inflater());
        }
    }
}

#[test]
fn rule_13_what_is_sent_deflated_arrives() {
    let mut rng = Rng(13);
    for bits in 9..=15 {
        let window = Window::new(bits).expect("9 to 15");
        for context in [false, true] {
            let deflation = Deflation {
                own_context: context,
                peer_context: context,
                own_window: window,
                peer_window: window,
            };
            let mut encoder = Encoder::new(Role::Server, Some(deflation), 1000);
            let mut deflater = Deflater::new(window, 1 + bits - 8);
            let setting = Setting {
                deflation: Some(deflation),
                ..Setting::CLIENT
            };
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            for round in 0..20 {
                let data = if round % 5 == 0 { vec![] } else { rng.data(5000) };
                encoder
                    .deflated(&mut out, Message::Binary(&data), &mut deflater, Mask::None)
                    .expect("agreed on");
                expected.push(binary(&data));
            }
            assert!(out.len() > 1000);
            takes(&setting, &out, &expected);
        }
    }
}

#[test]
fn rule_13_a_context_makes_a_repeated_message_small() {
    let data: Vec<u8> = (0..2000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    let length_of_second = |deflation| {
        let mut encoder = Encoder::new(Role::Server, Some(deflation), usize::MAX);
        let mut deflater = Deflater::new(Window::MAX, 6);
        let mut out = Vec::new();
        for _ in 0..2 {
            out.clear();
            encoder
                .deflated(&mut out, Message::Binary(&data), &mut deflater, Mask::None)
                .expect("agreed on");
        }
        out.len()
    };
    assert!(length_of_second(Deflation::CONTEXT) * 50 < length_of_second(Deflation::SHARED));
}

#[test]
fn rule_13_large_messages_go_out_in_frames_of_a_size() {
    let data = b"abcdefghijklmnopqrstuvwxyz0123456789".repeat(3);
    for frame_bytes in [1, 2, 7, 20, 1000] {
        let mut encoder = Encoder::new(Role::Server, Some(Deflation::SHARED), frame_bytes);
        let mut out = b"before".to_vec();
        let mut deflater = Deflater::new(Window::MIN, 1);
        let message = Message::Binary(&data);
        encoder
            .deflated(&mut out, message, &mut deflater, Mask::None)
            .expect("agreed on");
        let setting = Setting {
            limits: Limits {
                frame_bytes: frame_bytes as u64,
                ..Limits::default()
            },
            ..Setting::DEFLATE
        };
        takes(
            &setting,
            out.strip_prefix(b"before").expect("appended"),
            &[binary(&data)],
        );
    }
}

#[test]
fn rule_13_nothing_is_deflated_beyond_what_was_agreed_on() {
    let message = Message::Text("a");
    let mut out = Vec::new();
    let mut large = Deflater::new(Window::MAX, 1);
    let mut small = Deflater::new(Window::MIN, 1);
    let mut none = Encoder::new(Role::Server, None, usize::MAX);
    assert_eq!(
        none.deflated(&mut out, message, &mut small, Mask::None),
        Err(Misuse::NotNegotiated)
    );
    assert_eq!(none.check_shared(Some(&small)), Err(Misuse::NotNegotiated));
    assert_eq!(none.check_shared(None), Ok(()));
    let narrow = Deflation {
        own_window: Window::MIN,
        ..Deflation::SHARED
    };
    let mut narrow = Encoder::new(Role::Server, Some(narrow), usize::MAX);
    assert_eq!(
        narrow.deflated(&mut out, message, &mut large, Mask::None),
        Err(Misuse::Window)
    );
    assert_eq!(narrow.check_shared(Some(&large)), Err(Misuse::Window));
    assert_eq!(narrow.check_shared(Some(&small)), Ok(()));
    let context = Encoder::new(Role::Server, Some(Deflation::CONTEXT), usize::MAX);
    assert_eq!(context.check_shared(Some(&small)), Err(Misuse::ContextKept));
    assert!(out.is_empty());
}

#[test]
fn rule_13_a_message_is_deflated_once_for_many() {
    let shared = Setting::DEFLATE;
    let mut deflater = Deflater::new(Window::MAX, 6);
    let (mut plain_frame, mut deflated) = (Vec::new(), Vec::new());
    let news = "news ".repeat(100);
    encode_shared(&mut plain_frame, Message::Text(&news), None);
    for _ in 0..2 {
        deflated.clear();
        encode_shared(&mut deflated, Message::Text(&news), Some(&mut deflater));
    }
    assert!(deflated.len() * 10 < plain_frame.len());
    for between in [&b""[..], &bomb(9)] {
        let input = [&deflated, between, &plain_frame, &deflated[..]].concat();
        let found = events(&shared, &input, &[]);
        assert_eq!(found.iter().filter(|event| **event == text(&news)).count(), 3);
        assert_eq!(fault(&shared, &input), None);
    }
    takes(&Setting::CLIENT, &plain_frame, &[text(&news)]);
}

#[test]
fn rule_13_control_frames_stand_between_deflated_fragments() {
    let input = frames(
        Role::Client,
        &[
            (RSV1 | TEXT, &HELLO[..3]),
            (PING, b"1"),
            (MORE, &HELLO[3..5]),
            (FIN, &HELLO[5..]),
        ],
    );
    let found = events(&Setting::DEFLATE, &input, &[]);
    let [
        Event::Data(Kind::Text, first, false),
        Event::Ping(_),
        Event::Data(Kind::Text, second, true),
    ] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!([&first[..], second].concat(), b"Hello");
}
