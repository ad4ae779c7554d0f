//! Rules 10 and 11: the closing handshake.

use ringmain_wire::ws::{Close, CloseCode, Closing, Encoder, FaultKind, Mask, Message, Misuse, Role};

use crate::ws::support::{
    CLOSE, Event, FIN, PING, Reader, Setting, TEXT, frames, masked, plain, refuses, takes, text,
};

fn payload(code: u16, reason: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], reason].concat()
}

#[test]
fn rule_10_a_close_says_a_code_that_may_be_sent() {
    takes(&Setting::CLIENT, &plain(CLOSE, b""), &[Event::Close(None)]);
    refuses(&Setting::CLIENT, &plain(CLOSE, b"\x03"), FaultKind::CloseLength);
    for code in 0..=u16::MAX {
        let input = plain(CLOSE, &payload(code, b"why"));
        let may = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        assert_eq!(CloseCode::new(code).map(CloseCode::number), may.then_some(code));
        if may {
            takes(
                &Setting::CLIENT,
                &input,
                &[Event::Close(Some((code, "why".to_owned())))],
            );
        } else {
            refuses(&Setting::CLIENT, &input, FaultKind::CloseCode);
        }
    }
}

#[test]
fn rule_10_a_close_gives_a_reason_in_utf_8() {
    for reason in ["", "κόσμε", &"x".repeat(123)] {
        let input = masked(CLOSE, &payload(1000, reason.as_bytes()));
        takes(
            &Setting::SERVER,
            &input,
            &[Event::Close(Some((1000, reason.to_owned())))],
        );
    }
    for reason in [&b"\xFF"[..], b"\xCE", b"\xED\xA0\x80"] {
        refuses(
            &Setting::SERVER,
            &masked(CLOSE, &payload(1000, reason)),
            FaultKind::CloseReason,
        );
    }
}

#[test]
fn rule_10_nothing_is_read_after_a_close() {
    let after: &[(u8, &[u8])] = &[(FIN | TEXT, b"a"), (PING, b""), (0xFF, b""), (CLOSE, b"")];
    let mut input = frames(Role::Client, &[(FIN | TEXT, b"b"), (CLOSE, b"")]);
    input.extend_from_slice(&frames(Role::Client, after));
    takes(&Setting::CLIENT, &input, &[text("b"), Event::Close(None)]);
    // In the middle of a message too.
    let input = frames(Role::Client, &[(TEXT, b""), (CLOSE, b""), (FIN, b"a")]);
    takes(&Setting::CLIENT, &input, &[Event::Close(None)]);
}

#[test]
fn rule_11_a_connection_ends_with_a_close() {
    let frame = masked(FIN | TEXT, b"abc");
    let close = masked(CLOSE, b"");
    for (input, expected) in [
        (&b""[..], Err(FaultKind::Truncated)),
        (&frame, Err(FaultKind::Truncated)),
        (&frame[..frame.len() - 1], Err(FaultKind::Truncated)),
        (&frame[..1], Err(FaultKind::Truncated)),
        (&close[..close.len() - 1], Err(FaultKind::Truncated)),
        (&close, Ok(())),
        (&b"\xFF"[..], Err(FaultKind::ReservedBits)),
    ] {
        let mut reader = Reader::new(&Setting::SERVER);
        reader.feed(input);
        let end = reader.decoder.end_of_input();
        assert_eq!(
            end.map_err(|fault| fault.kind),
            expected,
            "`{}`",
            input.escape_ascii()
        );
        assert_eq!(reader.decoder.is_closed(), end.is_ok());
        assert_eq!(reader.decoder.end_of_input(), end, "for ever");
        if let Err(fault) = end {
            assert_eq!(reader.decoder.decode(&mut [0x81, 0x80], None), Err(fault));
        }
    }
    assert_eq!(FaultKind::Truncated.close_code(), None, "there is nobody to tell");
}

#[test]
fn rule_12_the_closing_handshake_is_one_close_from_each_side() {
    use Closing::{Open, Over, Received, Sent};
    for (state, sent, received, may_send) in [
        (Open, Sent, Received, true),
        (Sent, Sent, Over, false),
        (Received, Over, Received, true),
        (Over, Over, Over, false),
    ] {
        assert_eq!(
            (state.sent(), state.received(), state.may_send()),
            (sent, received, may_send)
        );
        assert!(!state.disconnects(Role::Client), "the server disconnects first");
        assert_eq!(state.disconnects(Role::Server), state == Over);
    }
    let close = Some(Close {
        code: CloseCode::GOING_AWAY,
        reason: "bye",
    });
    // Either side may begin.
    let mut server = Encoder::new(Role::Server, None, usize::MAX);
    let mut client = Encoder::new(Role::Client, None, usize::MAX);
    let mut out = Vec::new();
    server.close(&mut out, close, Mask::None).expect("open");
    assert_eq!(out, b"\x88\x05\x03\xE9bye");
    assert_eq!((server.closing(), client.close_received()), (Sent, Received));
    out.clear();
    client
        .close(&mut out, close, Mask::Keys(&mut || [0; 4]))
        .expect("to be answered");
    assert_eq!(out, b"\x88\x85\0\0\0\0\x03\xE9bye");
    assert_eq!((server.close_received(), client.closing()), (Over, Over));
}

#[test]
fn rule_12_nothing_is_sent_after_a_close() {
    let mut server = Encoder::new(Role::Server, None, usize::MAX);
    let mut out = Vec::new();
    server.close(&mut out, None, Mask::None).expect("open");
    let before = out.clone();
    let hello = Message::Text("a");
    assert_eq!(
        server.message(&mut out, hello, Mask::None),
        Err(Misuse::AfterClose)
    );
    assert_eq!(
        server.fragment(&mut out, hello, true, Mask::None),
        Err(Misuse::AfterClose)
    );
    assert_eq!(server.ping(&mut out, b"", Mask::None), Err(Misuse::AfterClose));
    assert_eq!(server.pong(&mut out, b"", Mask::None), Err(Misuse::AfterClose));
    assert_eq!(server.close(&mut out, None, Mask::None), Err(Misuse::AfterClose));
    assert_eq!(server.check_shared(None), Err(Misuse::AfterClose));
    assert_eq!(out, before);
}
