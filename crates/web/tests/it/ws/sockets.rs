//! Messages in every form, and every way in which a socket ends.

use std::time::Duration;

use ringmain_web::WsOptions;
use ringmain_web::testing::{ConnectionEnd, Fault, Plan, Setup, TestClient, TestEvent};
use ringmain_web::ws::{CloseCause, FaultKind, Message, Window};
use ringmain_web::{App, Limits};
use ringmain_wire::ws::Deflation;

use crate::ws::support::{Echo, Ends, echo, echo_with};

#[test]
fn messages_are_echoed() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_text("ringmain");
    assert_eq!(socket.text(), "ringmain");
    for length in [0, 1, 125, 126, 65_535, 65_536, 1_000_000] {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        socket.send_binary(&bytes);
        assert!(socket.message().data() == bytes, "{length} bytes");
    }
    let totals = client.app().stats().totals();
    assert_eq!(
        (totals.sockets, totals.messages_in, totals.messages_out),
        (1, 8, 8)
    );
    assert_eq!(totals.classes[1], 1, "the 101");
    socket.close(1000, "bye");
    assert_eq!(socket.closed(), (1000, String::new()));
    assert_eq!(socket.event().unwrap(), TestEvent::End);
    assert_eq!(ends.only(), (1000, "bye".into(), CloseCause::Client));
    assert_eq!(client.app().stats().totals().sockets, 0);
    client.finish().unwrap();
}

#[test]
fn fragments_are_one_message_and_pings_stand_between() {
    let (mut client, _) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_fragment(Message::Text("one, "), false);
    socket.ping("still there?");
    socket.send_fragment(Message::Text(""), false);
    socket.send_fragment(Message::Text("two"), true);
    assert_eq!(socket.event().unwrap(), TestEvent::Pong(b"still there?".into()));
    assert_eq!(socket.text(), "one, two");
    drop(socket);
    client.finish().unwrap();
}

#[test]
fn messages_are_deflated_where_both_agree() {
    let kinds = [
        WsOptions::new().deflate(),
        WsOptions::new().deflate_with_context(Window::MAX),
        WsOptions::new().deflate_with_context(Window::MIN),
    ];
    for (at, options) in kinds.into_iter().enumerate() {
        let (mut client, _) = echo_with(Limits::default(), &options);
        let mut socket = client.ws("/echo").deflate(Deflation::CONTEXT).open();
        let agreed = socket.deflation().unwrap();
        assert_eq!((agreed.own_context, agreed.peer_context), (at > 0, at > 0));
        for length in [0, 10, 200, 20_000, 500_000] {
            let text = "an echo, ".repeat(length / 9);
            socket.send_text(&text);
            assert!(socket.text() == text, "{length}");
        }
        let mut plain = client.ws("/echo").open();
        assert_eq!(plain.deflation(), None);
        plain.send_text("plain");
        assert_eq!(plain.text(), "plain");
        drop((socket, plain));
        client.finish().unwrap();
    }
}

#[test]
fn a_network_that_cuts_and_delays_changes_nothing() {
    for seed in 0..20 {
        let faults = [
            Fault::CutRead,
            Fault::ReceiveStops,
            Fault::ShortSend,
            Fault::HeldSend,
        ];
        let plan = faults
            .into_iter()
            .fold(Plan::calm(), |plan, fault| plan.with(fault, 300));
        let setup = Setup {
            seed,
            plan,
            ..Setup::default()
        };
        let app = App::new().state(Ends::default());
        let app = app.ws_with("/echo", &WsOptions::new().deflate(), Echo::open);
        let mut client = TestClient::with(app, setup).unwrap();
        for deflation in [None, Some(Deflation::SHARED)] {
            let upgrade = client.ws("/echo");
            let mut socket = match deflation {
                Some(wish) => upgrade.deflate(wish).open(),
                None => upgrade.open(),
            };
            let texts: Vec<String> = (0..30).map(|at| "ünïcödé ".repeat(at * at)).collect();
            for text in &texts {
                socket.send_text(text);
            }
            for text in &texts {
                assert_eq!(&socket.text(), text, "seed {seed}");
            }
        }
        client.finish().unwrap();
    }
}

#[test]
fn the_application_closes() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_text("close");
    assert_eq!(socket.closed(), (4000, "as was asked".into()));
    assert_eq!(socket.event().unwrap(), TestEvent::End);
    assert_eq!(ends.only(), (4000, String::new(), CloseCause::Application));
    client.finish().unwrap();
}

#[test]
fn what_was_on_its_way_still_arrives() {
    let (mut client, _) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_text("close");
    socket.send_text("late");
    assert_eq!(socket.closed().0, 4000);
    assert_eq!(socket.event().unwrap(), TestEvent::End);
    assert_eq!(client.app().stats().totals().messages_in, 2);
}

#[test]
fn errors_and_panics_close() {
    for (order, code, reason) in [
        ("fail", 1008, "as was asked"),
        ("break", 1011, ""),
        ("panic", 1011, ""),
    ] {
        let (mut client, ends) = echo();
        let mut socket = client.ws("/echo").open();
        socket.send_text(order);
        assert_eq!(socket.closed(), (code, reason.into()), "{order}");
        assert_eq!(socket.event().unwrap(), TestEvent::End);
        assert_eq!(ends.only(), (code, String::new(), CloseCause::Application));
        client.finish().unwrap();
    }
}

#[test]
fn broken_rules_close_with_their_code() {
    // Unmasked; a reserved bit; text that is none.
    let cases: [(&[u8], u16, FaultKind); 3] = [
        (b"\x81\x01a", 1002, FaultKind::MaskMissing),
        (b"\xC1\x81\0\0\0\0a", 1002, FaultKind::ReservedBits),
        (b"\x81\x81\0\0\0\0\xff", 1007, FaultKind::Text),
    ];
    for (bytes, code, kind) in cases {
        let (mut client, ends) = echo();
        let mut socket = client.ws("/echo").open();
        socket.connection().send(bytes);
        assert_eq!(socket.closed().0, code);
        assert_eq!(socket.event().unwrap(), TestEvent::End);
        assert_eq!(ends.only(), (code, String::new(), CloseCause::Fault(kind)));
        client.finish().unwrap();
    }
}

#[test]
fn a_connection_that_ends_without_a_close_is_lost() {
    for reset in [false, true] {
        let (mut client, ends) = echo();
        let mut socket = client.ws("/echo").open();
        if reset {
            socket.connection().reset();
        } else {
            socket.connection().end();
        }
        client.advance(Duration::from_secs(1));
        assert_eq!(ends.only(), (1006, String::new(), CloseCause::Lost));
        client.finish().unwrap();
    }
}

#[test]
fn frames_sent_with_the_handshake_are_read() {
    let (mut client, _) = echo();
    let mut raw = client.raw();
    let mut bytes = b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        .to_vec();
    bytes.extend_from_slice(b"\x81\x82\0\0\0\0hi\x88\x80\0\0\0\0");
    raw.send(&bytes);
    let (answer, ending) = raw.read_to_end().unwrap();
    let text = answer.escape_ascii().to_string();
    assert!(
        text.starts_with("HTTP/1.1 101 Switching Protocols\\r\\n"),
        "{text}"
    );
    assert!(
        text.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "{text}"
    );
    assert!(answer.ends_with(b"\r\n\r\n\x81\x02hi\x88\x00"), "{text}");
    assert_eq!(ending, ConnectionEnd::Closed);
    client.finish().unwrap();
}

#[test]
fn a_shutdown_sends_a_close_and_waits_for_the_reply() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    let mut silent = client.ws("/echo").open();
    client.shut_down();
    // Messages in flight still arrive.
    assert_eq!(socket.closed(), (1012, String::new()));
    assert_eq!(socket.event().unwrap(), TestEvent::End);
    assert_eq!(ends.only(), (1012, String::new(), CloseCause::Shutdown));
    assert!(!client.is_shut_down());
    client.advance(Duration::from_secs(6));
    assert!(client.is_shut_down());
    assert_eq!(ends.count(), 2);
    assert_eq!(silent.connection().ending(), None, "its Close was not taken");
    assert_eq!(silent.closed().0, 1012);
}

#[test]
fn what_waits_keeps_its_order() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_text("burst");
    for length in [400_000, 3, 300_000, 0, 500_000, 5] {
        assert!(
            socket.message().data() == vec![length as u8; length],
            "{length} bytes"
        );
    }
    assert_eq!(socket.closed().0, 1000);
    assert_eq!(socket.event().unwrap(), TestEvent::End);
    assert_eq!(ends.only(), (1000, String::new(), CloseCause::Application));
    client.finish().unwrap();
}

#[test]
fn a_slow_reader_is_told_apart_from_a_dead_one() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_text("much");
    client.advance(Duration::from_millis(10));
    assert_eq!(ends.only(), (1006, String::new(), CloseCause::SlowReader));
    let (_, ending) = socket.connection().read_to_end().unwrap();
    assert_eq!(ending, ConnectionEnd::Reset);
}
