//! What goes out: frames of any length and order that may be, and none that may not.

use ringmain_wire::ws::{
    Close, CloseCode, Deflater, Deflation, Encoder, Limits, Mask, Message, Misuse, Role, Window,
};

use crate::ws::support::{Event, Rng, Setting, binary, takes, text};

#[test]
fn rule_5_what_a_client_sends_is_masked_with_a_new_key_each() {
    let mut client = Encoder::new(Role::Client, None, 3);
    let mut out = b"before".to_vec();
    let mut keys = [[1, 2, 3, 4], [5, 6, 7, 8]].into_iter();
    let mut key = || keys.next().expect("a key a frame");
    client
        .message(&mut out, Message::Text("Hello"), Mask::Keys(&mut key))
        .expect("open");
    let first = [0x01, 0x83, 1, 2, 3, 4, b'H' ^ 1, b'e' ^ 2, b'l' ^ 3];
    assert_eq!(out[..15], [&b"before"[..], &first].concat());
    assert_eq!(out[15..], [0x80, 0x82, 5, 6, 7, 8, b'l' ^ 5, b'o' ^ 6]);
    assert_eq!(keys.next(), None);
}

#[test]
fn rule_5_only_a_client_has_keys() {
    let mut out = Vec::new();
    let mut key = || [0; 4];
    let message = Message::Binary(b"a");
    let mut server = Encoder::new(Role::Server, None, usize::MAX);
    let mut client = Encoder::new(Role::Client, None, usize::MAX);
    assert_eq!(
        server.message(&mut out, message, Mask::Keys(&mut key)),
        Err(Misuse::Mask)
    );
    assert_eq!(client.message(&mut out, message, Mask::None), Err(Misuse::Mask));
    assert_eq!(client.ping(&mut out, b"", Mask::None), Err(Misuse::Mask));
    assert_eq!(client.close(&mut out, None, Mask::None), Err(Misuse::Mask));
    assert_eq!(client.check_shared(None), Err(Misuse::Mask));
    assert!(out.is_empty());
}

#[test]
fn rule_6_lengths_are_written_as_short_as_they_fit() {
    for (length, header) in [
        (0, &b"\x82\x00"[..]),
        (125, b"\x82\x7D"),
        (126, b"\x82\x7E\x00\x7E"),
        (65535, b"\x82\x7E\xFF\xFF"),
        (65536, b"\x82\x7F\0\0\0\0\0\x01\0\0"),
    ] {
        let mut server = Encoder::new(Role::Server, None, usize::MAX);
        let mut out = Vec::new();
        server
            .message(&mut out, Message::Binary(&vec![7; length]), Mask::None)
            .expect("open");
        assert_eq!(out.strip_prefix(header), Some(&vec![7; length][..]), "{length}");
    }
}

#[test]
fn rule_3_no_message_begins_within_another() {
    let mut server = Encoder::new(Role::Server, Some(Deflation::SHARED), usize::MAX);
    let mut out = Vec::new();
    server
        .fragment(&mut out, Message::Text("a"), false, Mask::None)
        .expect("open");
    let before = out.clone();
    let text_message = Message::Text("b");
    assert_eq!(
        server.message(&mut out, text_message, Mask::None),
        Err(Misuse::MessageOpen)
    );
    let mut deflater = Deflater::new(Window::MAX, 1);
    let deflated = server.deflated(&mut out, text_message, &mut deflater, Mask::None);
    assert_eq!(deflated, Err(Misuse::MessageOpen));
    assert_eq!(
        server.fragment(&mut out, Message::Binary(b"b"), true, Mask::None),
        Err(Misuse::MessageOpen)
    );
    assert_eq!(server.check_shared(None), Err(Misuse::MessageOpen));
    assert_eq!(out, before);
    server
        .ping(&mut out, b"p", Mask::None)
        .expect("control frames may stand there");
    server
        .fragment(&mut out, text_message, false, Mask::None)
        .expect("the same kind");
    server
        .fragment(&mut out, Message::Text(""), true, Mask::None)
        .expect("the same kind");
    server
        .message(&mut out, Message::Binary(b"c"), Mask::None)
        .expect("it is over");
    let kind = ringmain_wire::ws::Kind::Text;
    let expected = [
        Event::Data(kind, b"a".to_vec(), false),
        Event::Ping(b"p".to_vec()),
        Event::Data(kind, b"b".to_vec(), true),
        binary(b"c"),
    ];
    takes(&Setting::CLIENT, &out, &expected);
}

#[test]
fn rule_4_control_frames_are_bounded() {
    let mut server = Encoder::new(Role::Server, None, usize::MAX);
    let mut out = Vec::new();
    let long = [b'x'; 126];
    assert_eq!(
        server.ping(&mut out, &long, Mask::None),
        Err(Misuse::ControlTooLong)
    );
    assert_eq!(
        server.pong(&mut out, &long, Mask::None),
        Err(Misuse::ControlTooLong)
    );
    let reason = "x".repeat(124);
    let mut close = Close {
        code: CloseCode::NORMAL,
        reason: &reason,
    };
    assert_eq!(
        server.close(&mut out, Some(close), Mask::None),
        Err(Misuse::ReasonTooLong)
    );
    assert!(out.is_empty() && server.closing().may_send());
    server
        .ping(&mut out, &long[..125], Mask::None)
        .expect("short enough");
    server
        .pong(&mut out, &long[..125], Mask::None)
        .expect("short enough");
    close.reason = &reason[..123];
    server
        .close(&mut out, Some(close), Mask::None)
        .expect("short enough");
    let data = long[..125].to_vec();
    let close = Event::Close(Some((1000, reason[..123].to_owned())));
    takes(
        &Setting::CLIENT,
        &out,
        &[Event::Ping(data.clone()), Event::Pong(data), close],
    );
}

/// What one end sends, at random, arrives at the other as it was sent.
#[test]
fn round_trip() {
    for seed in 0..400 {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let role = [Role::Server, Role::Client][rng.below(2)];
        let deflation = [None, Some(Deflation::SHARED), Some(Deflation::CONTEXT)][rng.below(3)];
        let frame_bytes = [usize::MAX, 1 + rng.below(200)][rng.below(2)];
        let mut encoder = Encoder::new(role, deflation, frame_bytes);
        let mut deflater = Deflater::new(Window::MAX, 1 + rng.below(9) as u8);
        let setting = Setting {
            role: if role == Role::Server {
                Role::Client
            } else {
                Role::Server
            },
            limits: Limits {
                frame_bytes: frame_bytes as u64,
                ..Limits::default()
            },
            deflation,
            piece_bytes: 1 + rng.below(500),
        };
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..rng.below(20) {
            one(
                &mut rng,
                role,
                &mut encoder,
                &mut deflater,
                deflation.is_some(),
                &mut out,
                &mut expected,
            );
        }
        takes(&setting, &out, &expected);
    }
}

fn one(
    rng: &mut Rng,
    role: Role,
    encoder: &mut Encoder,
    deflater: &mut Deflater,
    deflates: bool,
    out: &mut Vec<u8>,
    expected: &mut Vec<Event>,
) {
    let length = [5, 130, 3000][rng.below(3)];
    let (chars, bytes) = (rng.text(length), rng.data(length));
    let (message, event) = match rng.below(2) {
        0 => (Message::Text(&chars), text(&chars)),
        _ => (Message::Binary(&bytes), binary(&bytes)),
    };
    let what = rng.below(4);
    let mut key = || rng.key();
    let mask = match role {
        Role::Server => Mask::None,
        Role::Client => Mask::Keys(&mut key),
    };
    let sent = match what {
        0 if deflates => encoder.deflated(out, message, deflater, mask),
        1 => {
            let data = &bytes[..bytes.len().min(125)];
            expected.push(Event::Ping(data.to_vec()));
            encoder.ping(out, data, mask).expect("short enough");
            return;
        }
        _ => encoder.message(out, message, mask),
    };
    sent.expect("in order");
    expected.push(event);
}
