//! Limits on the memory and the time that a client can make a socket use, and their effects.

use std::time::Duration;

use ringmain_web::testing::{ConnectionEnd, TestEvent};
use ringmain_web::ws::{CloseCause, FaultKind, Message};
use ringmain_web::{Limits, WsOptions};
use ringmain_wire::ws::Deflation;

use crate::ws::support::{echo, echo_with};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn limits(change: impl FnOnce(&mut ringmain_web::limits::WsLimits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits.websocket);
    limits
}

#[test]
fn messages_and_frames_are_bounded() {
    let bounds = limits(|ws| (ws.message_bytes, ws.frame_bytes) = (1000, 600));
    for (pieces, kind) in [
        (&[601][..], FaultKind::FrameTooLarge),
        (&[600, 401], FaultKind::MessageTooLarge),
    ] {
        let (mut client, ends) = echo_with(bounds.clone(), &WsOptions::new());
        let mut socket = client.ws("/echo").open();
        socket.send_fragment(Message::Binary(&[1; 600]), false);
        socket.send_fragment(Message::Binary(&[1; 400]), true);
        assert_eq!(socket.message().data().len(), 1000);
        for &bytes in pieces {
            socket.send_fragment(Message::Binary(&vec![1; bytes]), false);
        }
        assert_eq!(socket.closed().0, 1009);
        assert_eq!(ends.only().2, CloseCause::Fault(kind));
        drop(socket);
        client.finish().unwrap();
    }
}

#[test]
fn a_bomb_is_not_inflated_beyond_the_limit() {
    let (mut client, ends) = echo_with(Limits::default(), &WsOptions::new().deflate());
    let mut socket = client.ws("/echo").deflate(Deflation::SHARED).open();
    let bomb = vec![0; 100_000_000];
    socket.send_binary(&bomb);
    assert_eq!(socket.closed().0, 1009);
    assert_eq!(ends.only().2, CloseCause::Fault(FaultKind::MessageTooLarge));
    drop(socket);
    client.finish().unwrap();
}

#[test]
fn control_frames_have_a_budget_that_time_fills() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    for _ in 0..3 {
        for _ in 0..100 {
            socket.ping("");
        }
        for _ in 0..100 {
            assert_eq!(socket.event().unwrap(), TestEvent::Pong(Vec::new()));
        }
        socket.advance(seconds(2));
    }
    for _ in 0..101 {
        socket.ping("");
    }
    assert_eq!(socket.closed().0, 1008);
    assert_eq!(ends.only().2, CloseCause::Fault(FaultKind::TooManyControlFrames));
}

#[test]
fn silence_is_followed_by_a_ping_and_the_end() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    socket.advance(seconds(29));
    assert_eq!(socket.event_now().unwrap(), None);
    // Whatever arrives puts it off.
    socket.send_text("here");
    assert_eq!(socket.text(), "here");
    socket.advance(seconds(29));
    assert_eq!(socket.event_now().unwrap(), None);
    assert_eq!(socket.event().unwrap(), TestEvent::Ping(Vec::new()));
    socket.advance(seconds(29));
    assert_eq!(ends.count(), 0, "the pong was a sign of life");
    socket.advance(seconds(22));
    assert_eq!(ends.only(), (1006, String::new(), CloseCause::Silent));
    let (_, ending) = socket.connection().read_to_end().unwrap();
    assert_eq!(ending, ConnectionEnd::Reset);
    client.finish().unwrap();
}

#[test]
fn a_close_that_is_not_answered_is_given_up() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_text("close");
    socket.advance(seconds(4));
    assert_eq!(ends.count(), 0);
    socket.advance(seconds(2));
    assert_eq!(ends.only(), (1006, String::new(), CloseCause::Application));
    client.finish().unwrap();
}

#[test]
fn a_message_becomes_whole_in_time() {
    let (mut client, ends) = echo();
    let mut socket = client.ws("/echo").open();
    socket.send_fragment(Message::Text("slow"), false);
    for _ in 0..5 {
        socket.advance(seconds(11));
        socket.ping("");
        assert_eq!(socket.event().unwrap(), TestEvent::Pong(Vec::new()));
    }
    assert_eq!(ends.count(), 0);
    socket.advance(seconds(6));
    assert_eq!(socket.closed().0, 1008);
    assert_eq!(ends.only(), (1008, String::new(), CloseCause::SlowMessage));
    drop(socket);
    client.finish().unwrap();
}

#[test]
fn parts_of_messages_are_bounded_for_a_worker() {
    let (mut client, ends) = echo_with(limits(|ws| ws.assembly_bytes = 100_000), &WsOptions::new());
    let mut first = client.ws("/echo").open();
    let mut second = client.ws("/echo").open();
    first.send_fragment(Message::Binary(&[1; 60_000]), false);
    second.send_fragment(Message::Binary(&[1; 60_000]), false);
    assert_eq!(second.closed().0, 1013);
    assert_eq!(ends.only(), (1013, String::new(), CloseCause::Overloaded));
    // Its memory is free again.
    first.send_fragment(Message::Binary(&[1; 40_000]), true);
    assert_eq!(first.message().data().len(), 100_000);
    let mut third = client.ws("/echo").open();
    third.send_fragment(Message::Binary(&[1; 90_000]), false);
    third.send_fragment(Message::Binary(&[1; 9_000]), true);
    assert_eq!(third.message().data().len(), 99_000);
    drop((first, second, third));
    client.finish().unwrap();
}

#[test]
fn inflaters_count_while_in_use() {
    let bounds = limits(|ws| ws.assembly_bytes = 64 * 1024);
    let (mut client, ends) = echo_with(bounds, &WsOptions::new().deflate());
    for _ in 0..3 {
        let mut socket = client.ws("/echo").deflate(Deflation::SHARED).open();
        socket.send_text("one at a time");
        assert_eq!(socket.text(), "one at a time");
        socket.close(1000, "");
        assert_eq!(socket.closed().0, 1000);
    }
    assert_eq!(ends.count(), 3);
    client.finish().unwrap();
}

#[test]
fn contexts_are_bounded_for_a_worker() {
    let options = WsOptions::new().deflate_with_context(ringmain_web::ws::Window::MAX);
    let (mut client, _) = echo_with(limits(|ws| ws.contexts = 1), &options);
    let keeps = |socket: &ringmain_web::testing::TestSocket| {
        let agreed = socket.deflation().unwrap();
        agreed.own_context || agreed.peer_context
    };
    let first = client.ws("/echo").deflate(Deflation::CONTEXT).open();
    let second = client.ws("/echo").deflate(Deflation::CONTEXT).open();
    assert_eq!((keeps(&first), keeps(&second)), (true, false));
    drop(first);
    client.advance(seconds(1));
    let third = client.ws("/echo").deflate(Deflation::CONTEXT).open();
    assert!(keeps(&third), "the first one's place is free");
}

#[test]
fn a_slow_reader_is_not_a_silent_one() {
    let bounds = limits(|ws| ws.unsent_bytes = 4_000_000);
    let (mut client, ends) = echo_with(bounds, &WsOptions::new());
    let mut socket = client.ws("/echo").open();
    socket.send_binary(vec![1; 1_000_000]);
    let mut taken = 0;
    // For minutes, a little at a time; the fate of bytes in the kernel is unknown.
    while taken < 800_000 {
        socket.advance(seconds(5));
        taken += socket.connection().take(8_000).len();
        assert_eq!(ends.count(), 0, "after {taken} bytes");
    }
    drop(socket);
    client.finish().unwrap();
}

/// The pong follows the queued messages, and neither ends the connection nor is lost.
#[test]
fn a_ping_is_answered_while_the_client_reads_nothing() {
    let bounds = limits(|ws| ws.unsent_bytes = 4_000_000);
    let (mut client, ends) = echo_with(bounds, &WsOptions::new());
    let mut socket = client.ws("/echo").open();
    socket.send_binary(vec![1; 1_000_000]);
    socket.ping("still here");
    socket.send_text("next");
    assert_eq!(ends.count(), 0);
    assert_eq!(socket.message().data().len(), 1_000_000);
    assert_eq!(socket.event().unwrap(), TestEvent::Pong(b"still here".to_vec()));
    assert_eq!(socket.text(), "next");
    drop(socket);
    client.finish().unwrap();
}

#[test]
fn large_messages_wait_until_they_are_taken() {
    let bounds = limits(|ws| {
        ws.message_bytes = 20_000_000;
        ws.frame_bytes = 20_000_000;
        ws.unsent_bytes = 20_000_100;
    });
    let (mut client, _) = echo_with(bounds, &WsOptions::new());
    let mut socket = client.ws("/echo").open();
    let bytes: Vec<u8> = (0..17_000_000).map(|at| (at % 251) as u8).collect();
    socket.send_text("tell me");
    socket.send_binary(&bytes);
    // The socket was slow for a while; it is notified when it no longer is.
    assert!(socket.message().data() == bytes);
    assert_eq!(socket.text(), "drained");
    socket.close(1000, "");
    assert_eq!(socket.closed().0, 1000);
    assert_eq!(socket.event().unwrap(), TestEvent::End);
    client.finish().unwrap();
}
