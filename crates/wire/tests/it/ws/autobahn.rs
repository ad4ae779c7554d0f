//! The cases of Autobahn|Testsuite that a codec can decide, by their numbers: what a fuzzing client sends to an echo
//! server, and what it must get. Sizes of category 9 are smaller than the suite's.

use ringmain_wire::ws::{
    Close, CloseCode, Deflater, Deflation, Encoder, FaultKind, Kind, Limits, Mask, Message, Role, Window,
};

use crate::ws::support::{
    BINARY, CLOSE, Event, FIN, MORE, PING, PONG, Reader, Rng, Setting, TEXT, binary, frames, masked, text,
};

const LARGE: Limits = Limits {
    frame_bytes: 16 << 20,
    message_bytes: 16 << 20,
    control_frames: 1000,
};

/// A server that says again what it hears.
struct Echo {
    reader: Reader,
    encoder: Encoder,
    deflater: Option<Deflater>,
    message: Vec<u8>,
    out: Vec<u8>,
}

impl Echo {
    fn new(deflation: Option<Deflation>, frame_bytes: usize) -> Self {
        let setting = Setting {
            limits: LARGE,
            deflation,
            ..Setting::SERVER
        };
        Self {
            reader: Reader::new(&setting),
            encoder: Encoder::new(Role::Server, deflation, frame_bytes),
            deflater: deflation.map(|deflation| Deflater::new(deflation.own_window, 6)),
            message: Vec::new(),
            out: Vec::new(),
        }
    }

    fn feed(&mut self, input: &[u8]) {
        self.reader.feed(input);
        for event in self.reader.take() {
            self.answer(event);
        }
    }

    fn answer(&mut self, event: Event) {
        let out = &mut self.out;
        match event {
            Event::Data(kind, data, last) => {
                self.message.extend_from_slice(&data);
                if last {
                    let data = std::mem::take(&mut self.message);
                    let message = match kind {
                        Kind::Text => Message::Text(std::str::from_utf8(&data).expect("text")),
                        Kind::Binary => Message::Binary(&data),
                    };
                    let sent = match &mut self.deflater {
                        Some(deflater) => self.encoder.deflated(out, message, deflater, Mask::None),
                        None => self.encoder.message(out, message, Mask::None),
                    };
                    sent.expect("open");
                }
            }
            Event::Ping(data) => self.encoder.pong(out, &data, Mask::None).expect("open"),
            Event::Pong(_) => {}
            Event::Close(said) => {
                self.encoder.close_received();
                let close = said.as_ref().map(|(code, reason)| Close {
                    code: CloseCode::new(*code).expect("it was received"),
                    reason,
                });
                self.encoder
                    .close(out, close, Mask::None)
                    .expect("not yet closed");
            }
            Event::Fault(fault) => {
                let close = fault.close_code().map(|code| Close { code, reason: "" });
                self.encoder
                    .close(out, close, Mask::None)
                    .expect("not yet closed");
            }
        }
    }

    /// What the client sees.
    fn heard(self, deflation: Option<Deflation>) -> Vec<Event> {
        let setting = Setting {
            limits: LARGE,
            deflation,
            ..Setting::CLIENT
        };
        crate::ws::support::events(&setting, &self.out, &[])
    }
}

fn check(case: &str, input: &[u8], expected: &[Event]) {
    for chop in [usize::MAX, 997, 1] {
        if chop == 1 && input.len() > 2000 {
            continue;
        }
        let mut echo = Echo::new(None, usize::MAX);
        input
            .chunks(chop.min(input.len().max(1)))
            .for_each(|chunk| echo.feed(chunk));
        assert_eq!(echo.heard(None), expected, "case {case}");
    }
}

fn check_frames(case: &str, sent: &[(u8, &[u8])], expected: &[Event]) {
    check(case, &frames(Role::Server, sent), expected);
}

fn closed(code: u16) -> Event {
    Event::Close(Some((code, String::new())))
}

fn pong(data: &[u8]) -> Event {
    Event::Pong(data.to_vec())
}

#[test]
fn category_1_messages_of_any_size_come_back() {
    for size in [0, 125, 126, 127, 128, 65535, 65536] {
        let data = vec![b'*'; size];
        let case = format!("1.1 and 1.2 with {size}");
        check_frames(&case, &[(FIN | TEXT, &data)], &[text(&"*".repeat(size))]);
        check_frames(&case, &[(FIN | BINARY, &data)], &[binary(&data)]);
    }
}

#[test]
fn category_2_pings_are_answered_and_pongs_are_not() {
    let bytes = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff";
    check_frames("2.1", &[(PING, b"")], &[pong(b"")]);
    check_frames("2.2", &[(PING, b"Hello, world!")], &[pong(b"Hello, world!")]);
    check_frames("2.3", &[(PING, bytes)], &[pong(bytes)]);
    check_frames("2.4, 2.6", &[(PING, &[0xFE; 125])], &[pong(&[0xFE; 125])]);
    check_frames("2.5", &[(PING, &[0xFE; 126])], &[closed(1002)]);
    check_frames("2.7", &[(PONG, b"")], &[]);
    check_frames("2.8", &[(PONG, b"unsolicited")], &[]);
    check_frames(
        "2.9",
        &[(PONG, b"unsolicited"), (PING, b"ours")],
        &[pong(b"ours")],
    );
    let ten: Vec<[u8; 1]> = (b'0'..=b'9').map(|digit| [digit]).collect();
    let pings: Vec<(u8, &[u8])> = ten.iter().map(|data| (PING, &data[..])).collect();
    let pongs: Vec<Event> = ten.iter().map(|data| pong(data)).collect();
    check_frames("2.10, 2.11", &pings, &pongs);
}

#[test]
fn category_3_reserved_bits_end_the_connection() {
    let hello = text("Hello, world!");
    let first = (FIN | TEXT, &b"Hello, world!"[..]);
    for bits in 1..8_u8 {
        let rsv = bits << 4;
        for (case, sent, before) in [
            ("3.1", (FIN | TEXT | rsv, first.1), None),
            ("3.2 to 3.4", (FIN | TEXT | rsv, first.1), Some(hello.clone())),
            ("3.5", (FIN | BINARY | rsv, &b"\x00\xFF"[..]), None),
            ("3.6", (PING | rsv, first.1), None),
            ("3.7", (CLOSE | rsv, b""), None),
        ] {
            let mut sends = vec![sent, (PING, b"")];
            if before.is_some() {
                sends.insert(0, first);
            }
            let expected: Vec<Event> = before.into_iter().chain([closed(1002)]).collect();
            check_frames(case, &sends, &expected);
        }
    }
}

#[test]
fn category_4_reserved_opcodes_end_the_connection() {
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        for payload in [&b""[..], b"reserved opcode payload"] {
            let sent = [(FIN | TEXT, &b"Hello"[..]), (FIN | opcode, payload), (PING, b"")];
            check_frames("4.1, 4.2", &sent, &[text("Hello"), closed(1002)]);
        }
    }
}

#[test]
fn category_5_fragments() {
    let whole = text("fragment1fragment2");
    let (one, two) = ((TEXT, &b"fragment1"[..]), (FIN, &b"fragment2"[..]));
    check_frames("5.1", &[(PING & !FIN, b"a"), (FIN, b"b")], &[closed(1002)]);
    check_frames("5.2", &[(PONG & !FIN, b"a"), (FIN, b"b")], &[closed(1002)]);
    check_frames("5.3 to 5.5", &[one, two], std::slice::from_ref(&whole));
    check_frames(
        "5.6 to 5.8",
        &[one, (PING, b"ping payload"), two],
        &[pong(b"ping payload"), whole],
    );
    let hello = (FIN | TEXT, &b"Hello, world!"[..]);
    check_frames(
        "5.9 to 5.11",
        &[(FIN, b"non-continuation payload"), hello],
        &[closed(1002)],
    );
    check_frames(
        "5.12 to 5.14",
        &[(MORE, b"non-continuation payload"), hello],
        &[closed(1002)],
    );
    check_frames(
        "5.15",
        &[one, two, (MORE, b"fragment3"), (FIN, b"fragment4")],
        &[text("fragment1fragment2"), closed(1002)],
    );
    for first in [MORE, FIN] {
        check_frames("5.16, 5.17", &[(first, b"fragment1"), one, two], &[closed(1002)]);
    }
    check_frames("5.18", &[one, (FIN | TEXT, b"fragment2")], &[closed(1002)]);
    check_frames(
        "5.19, 5.20",
        &[
            one,
            (MORE, b"fragment2"),
            (PING, b"pongme 1!"),
            (MORE, b"fragment3"),
            (MORE, b"fragment4"),
            (PING, b"pongme 2!"),
            (FIN, b"fragment5"),
        ],
        &[
            pong(b"pongme 1!"),
            pong(b"pongme 2!"),
            text("fragment1fragment2fragment3fragment4fragment5"),
        ],
    );
}

#[test]
fn category_6_text() {
    check_frames("6.1.1", &[(FIN | TEXT, b"")], &[text("")]);
    check_frames("6.1.2", &[(TEXT, b""), (MORE, b""), (FIN, b"")], &[text("")]);
    check_frames(
        "6.1.3",
        &[(TEXT, b""), (MORE, b"middle frame payload"), (FIN, b"")],
        &[text("middle frame payload")],
    );
    let hello = "Hello-µ@ßöäüàá-UTF-8!!";
    let bytes = hello.as_bytes();
    check_frames("6.2.1", &[(FIN | TEXT, bytes)], &[text(hello)]);
    check_frames(
        "6.2.2",
        &[(TEXT, &bytes[..14]), (FIN, &bytes[14..])],
        &[text(hello)],
    );
    let single: Vec<(u8, &[u8])> = bytes.chunks(1).map(|byte| (MORE, byte)).collect();
    let single = [&[(TEXT, &b""[..])], &single[..], &[(FIN, b"")]].concat();
    check_frames("6.2.3, 6.2.4", &single, &[text(hello)]);
    let broken = b"\xCE\xBA\xE1\xBD\xB9\xCF\x83\xCE\xBC\xCE\xB5\xED\xA0\x80\x65\x64\x69\x74\x65\x64";
    check_frames("6.3.1", &[(FIN | TEXT, broken)], &[closed(1007)]);
    let single: Vec<(u8, &[u8])> = broken.chunks(1).map(|byte| (MORE, byte)).collect();
    check_frames(
        "6.3.2",
        &[&[(TEXT, &b""[..])], &single[..]].concat(),
        &[closed(1007)],
    );
    // Fail fast: before the rest of the message, and of the frame, is there.
    let beyond = &b"\xCE\xBA\xE1\xBD\xB9\xCF\x83\xCE\xBC\xCE\xB5"[..];
    check_frames(
        "6.4.1",
        &[(TEXT, beyond), (MORE, b"\xF4\x90\x80\x80")],
        &[closed(1007)],
    );
    check_frames("6.4.2", &[(TEXT, beyond), (MORE, b"\xF4\x90")], &[closed(1007)]);
    let frame = masked(FIN | TEXT, &[beyond, b"\xF4\x90\x80\x80edited"].concat());
    check("6.4.3", &frame[..6 + 15], &[closed(1007)]);
    check("6.4.4", &frame[..6 + 13], &[closed(1007)]);
}

#[test]
fn category_7_close() {
    let close = |code: u16, reason: &[u8]| [&code.to_be_bytes()[..], reason].concat();
    let normal = close(1000, b"");
    let said = |code, reason: &str| Event::Close(Some((code, reason.to_owned())));
    check_frames(
        "7.1.1",
        &[(FIN | TEXT, b"Hello World!"), (CLOSE, &normal)],
        &[text("Hello World!"), closed(1000)],
    );
    check_frames("7.1.2", &[(CLOSE, &normal), (CLOSE, &normal)], &[closed(1000)]);
    check_frames("7.1.3", &[(CLOSE, &normal), (PING, b"")], &[closed(1000)]);
    check_frames(
        "7.1.4",
        &[(CLOSE, &normal), (FIN | TEXT, b"Hello World!")],
        &[closed(1000)],
    );
    check_frames(
        "7.1.5",
        &[(TEXT, b"fragment1"), (CLOSE, &normal), (FIN, b"fragment2")],
        &[closed(1000)],
    );
    check_frames("7.3.1", &[(CLOSE, b"")], &[Event::Close(None)]);
    check_frames("7.3.2", &[(CLOSE, b"a")], &[closed(1002)]);
    check_frames("7.3.3", &[(CLOSE, &normal)], &[closed(1000)]);
    check_frames(
        "7.3.4",
        &[(CLOSE, &close(1000, b"Hello World!"))],
        &[said(1000, "Hello World!")],
    );
    check_frames(
        "7.3.5",
        &[(CLOSE, &close(1000, &[b'*'; 123]))],
        &[said(1000, &"*".repeat(123))],
    );
    check_frames("7.3.6", &[(CLOSE, &close(1000, &[b'*'; 124]))], &[closed(1002)]);
    check_frames(
        "7.5.1",
        &[(CLOSE, &close(1000, b"\xCE\xBA\xED\xA0\x80"))],
        &[closed(1007)],
    );
    for code in [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999,
    ] {
        check_frames("7.7", &[(CLOSE, &close(code, b""))], &[closed(code)]);
    }
    for code in [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535] {
        check_frames("7.9, 7.13", &[(CLOSE, &close(code, b""))], &[closed(1002)]);
    }
}

#[test]
fn category_9_and_10_large_messages_and_small_fragments() {
    for size in [1 << 16, 1 << 18, 1 << 20] {
        let data = Rng(size as u64).data(size);
        check_frames("9.2", &[(FIN | BINARY, &data)], &[binary(&data)]);
        for fragment in [64, 1024, 1 << 16] {
            let mut sent: Vec<(u8, &[u8])> = data.chunks(fragment).map(|part| (MORE, part)).collect();
            sent[0].0 = BINARY;
            sent.push((FIN, b""));
            let mut echo = Echo::new(None, usize::MAX);
            frames(Role::Server, &sent)
                .chunks(1 << 14)
                .for_each(|receipt| echo.feed(receipt));
            assert_eq!(echo.heard(None), [binary(&data)], "9.4 with {fragment}");
        }
    }
    let mut echo = Echo::new(None, 1300);
    echo.feed(&masked(FIN | TEXT, &[b'*'; 65536]));
    assert_eq!(
        echo.out[..4],
        [TEXT, 126, 0x05, 0x14],
        "a first frame of 1300 bytes"
    );
    assert_eq!(echo.heard(None), [text(&"*".repeat(65536))], "10.1.1");
}

#[test]
fn category_12_and_13_deflated_messages() {
    let window = |bits| Window::new(bits).expect("9 to 15");
    for (own_context, peer_context) in [(true, true), (false, true), (true, false), (false, false)] {
        for bits in [9, 15] {
            let deflation = Deflation {
                own_context,
                peer_context,
                own_window: window(bits),
                peer_window: window(bits),
            };
            let theirs = Some(Deflation {
                own_context: peer_context,
                peer_context: own_context,
                ..deflation
            });
            for frame_bytes in [256, usize::MAX] {
                let mut client = Encoder::new(Role::Client, theirs, frame_bytes);
                let mut deflater = Deflater::new(window(bits), 6);
                let mut echo = Echo::new(Some(deflation), frame_bytes);
                let (mut rng, mut expected) = (Rng(12), Vec::new());
                for size in [16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131_072] {
                    let data = rng.data(size);
                    let mut input = Vec::new();
                    let mut key = || rng.key();
                    let message = Message::Binary(&data);
                    let sent = client.deflated(&mut input, message, &mut deflater, Mask::Keys(&mut key));
                    sent.expect("agreed on");
                    input.chunks(4096).for_each(|receipt| echo.feed(receipt));
                    expected.push(binary(&data));
                }
                assert!(echo.heard(theirs) == expected, "{deflation:?} {frame_bytes}");
            }
        }
    }
}

#[test]
fn every_fault_is_told_with_its_code() {
    for kind in FaultKind::ALL {
        let told = matches!(kind.close_code().map(CloseCode::number), Some(1002 | 1007..=1009));
        assert_eq!(told, *kind != FaultKind::Truncated, "{kind:?}");
        assert!(kind.section().starts_with("RFC ") && !kind.expected().is_empty());
    }
}
