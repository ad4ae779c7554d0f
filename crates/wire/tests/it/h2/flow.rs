//! Windows, both ways.

use ringmain_wire::h2::{FaultKind, Limits, Role, Stream};

use crate::h2::support::*;

fn limits() -> Limits {
    Limits {
        stream_window: 1000,
        connection_window: 65_535,
        ..Limits::INTERNET
    }
}

fn asked(side: &mut Side, input: &[u8]) -> Stream {
    side.hear(input)
        .expect("a request")
        .last()
        .expect("an event")
        .0
        .expect("a stream")
}

#[test]
fn no_more_is_sent_than_the_windows_let_through() {
    let mut side = Side::server(&limits());
    side.hear(&settings(&[(4, 10)])).expect("settings");
    let stream = asked(&mut side, &get(1));
    side.out.clear();
    side.connection
        .respond(stream, 200, &mut side.out)
        .expect("a head")
        .finish(false);
    side.frames();
    assert_eq!(side.connection.window(stream), 10);
    assert_eq!(
        side.connection.data(stream, &[1; 25], true, &mut side.out),
        Ok(10)
    );
    let frames = side.frames();
    assert_eq!((frames[0].0, frames[0].1, frames[0].3.len()), (DATA, 0, 10));
    // Nothing fits: nothing is written.
    assert_eq!(side.connection.data(stream, &[1; 15], true, &mut side.out), Ok(0));
    assert!(side.out.is_empty());
    assert_eq!(
        texts(&side.hear(&window_update(1, 5)).expect("an update")),
        ["window Some(1)"]
    );
    assert_eq!(side.connection.data(stream, &[1; 15], true, &mut side.out), Ok(5));
    // A smaller window for all: this stream owes.
    side.hear(&settings(&[(4, 2)])).expect("settings");
    assert_eq!(side.connection.window(stream), 0);
    assert!(
        side.hear(&window_update(1, 8)).expect("an update").is_empty() || side.connection.window(stream) == 0
    );
    side.hear(&window_update(1, 10)).expect("an update");
    assert_eq!(side.connection.window(stream), 10);
    side.out.clear();
    assert_eq!(
        side.connection.data(stream, &[1; 10], true, &mut side.out),
        Ok(10)
    );
    let frames = side.frames();
    assert_eq!((frames[0].0, frames[0].1), (DATA, END_STREAM));
    assert!(side.connection.is_idle());
}

#[test]
fn an_end_without_data_needs_no_window() {
    let mut side = Side::server(&limits());
    side.hear(&settings(&[(4, 0)])).expect("settings");
    let stream = asked(&mut side, &get(1));
    side.out.clear();
    side.connection
        .respond(stream, 200, &mut side.out)
        .expect("a head")
        .finish(false);
    side.frames();
    assert_eq!(side.connection.data(stream, &[], true, &mut side.out), Ok(0));
    assert_eq!(side.frames(), [(DATA, END_STREAM, 1, vec![])]);
}

#[test]
fn the_connection_s_window_holds_for_all_streams() {
    let mut side = Side::server(&limits());
    side.hear(&settings(&[(4, 1 << 20)])).expect("settings");
    let first = asked(&mut side, &get(1));
    let second = asked(&mut side, &get(3));
    for stream in [first, second] {
        side.connection
            .respond(stream, 200, &mut side.out)
            .expect("a head")
            .finish(false);
    }
    assert_eq!(
        side.connection.data(first, &[0; 100_000], false, &mut side.out),
        Ok(65_535)
    );
    assert_eq!(side.connection.window(second), 0);
    assert_eq!(
        texts(&side.hear(&window_update(0, 7)).expect("an update")),
        ["window None"]
    );
    assert_eq!(side.connection.window(second), 7);
}

/// Servers have hung, or sent empty frames without end, with a connection window of one byte and two streams that want it.
#[test]
fn the_last_byte_of_the_connection_s_window_is_for_one_stream() {
    let mut side = Side::server(&limits());
    side.hear(&settings(&[(4, 1 << 20)])).expect("settings");
    let first = asked(&mut side, &get(1));
    let second = asked(&mut side, &get(3));
    for stream in [first, second] {
        side.connection
            .respond(stream, 200, &mut side.out)
            .expect("a head")
            .finish(false);
    }
    let data =
        |side: &mut Side, stream, bytes: &[u8]| side.connection.data(stream, bytes, true, &mut side.out);
    assert_eq!(data(&mut side, first, &[0; 65_534]), Ok(65_534));
    side.frames();
    assert_eq!(side.connection.window(second), 1);
    assert_eq!(data(&mut side, second, b"abc"), Ok(1));
    assert_eq!(side.frames(), [(DATA, 0, 3, b"a".to_vec())]);
    assert_eq!(data(&mut side, second, b"bc"), Ok(0));
    assert!(side.out.is_empty(), "no empty frame");
    side.hear(&window_update(0, 2)).expect("an update");
    assert_eq!(data(&mut side, second, b"bc"), Ok(2));
    assert_eq!(side.frames(), [(DATA, END_STREAM, 3, b"bc".to_vec())]);
}

#[test]
fn frames_of_data_are_no_larger_than_agreed() {
    let mut side = Side::server(&limits());
    side.hear(&settings(&[(4, 1 << 20), (5, 1 << 20)]))
        .expect("settings");
    let stream = asked(&mut side, &get(1));
    side.out.clear();
    side.connection
        .respond(stream, 200, &mut side.out)
        .expect("a head")
        .finish(false);
    assert_eq!(
        side.connection.data(stream, &[0; 40_000], true, &mut side.out),
        Ok(40_000)
    );
    let lengths: Vec<usize> = side.frames()[1..].iter().map(|frame| frame.3.len()).collect();
    assert_eq!(lengths, [16_384, 16_384, 7_232]);
}

#[test]
fn what_is_consumed_may_come_again_and_nothing_before() {
    let mut side = Side::server(&limits());
    let stream = asked(&mut side, &post(1));
    side.hear(&frame(DATA, 0, 1, &[0; 1000])).expect("data");
    side.connection.consume(stream, 400, &mut side.out);
    assert!(
        side.out.is_empty(),
        "less than half a window is not worth a frame"
    );
    side.connection.consume(stream, 400, &mut side.out);
    assert_eq!(
        side.frames(),
        [(WINDOW_UPDATE, 0, 1, 800_u32.to_be_bytes().to_vec())]
    );
    side.hear(&frame(DATA, 0, 1, &[0; 800])).expect("data");
    let heard = side.hear(&frame(DATA, 0, 1, &[0; 1])).expect("a stream's fault");
    assert_eq!(heard[0].1, "broken Window Stream(1)");
}

/// Who has not read that windows are smaller may fill the first one (RFC 9113 §6.9.2); from its word on it owes the rest.
#[test]
fn a_smaller_window_holds_from_when_it_was_read() {
    let mut side = Side::new(Role::Server, &limits());
    side.hear(&opening()).expect("an opening");
    side.out.clear();
    let stream = asked(&mut side, &post(1));
    for bytes in [16_384, 16_384] {
        side.hear(&frame(DATA, 0, 1, &vec![0; bytes])).expect("data");
    }
    side.connection.consume(stream, 32_768, &mut side.out);
    assert_eq!(
        side.frames(),
        [
            (WINDOW_UPDATE, 0, 1, 32_768_u32.to_be_bytes().to_vec()),
            (WINDOW_UPDATE, 0, 0, 32_768_u32.to_be_bytes().to_vec())
        ]
    );
    side.hear(&frame(DATA, 0, 1, &[0; 5000])).expect("data");
    side.hear(&frame(SETTINGS, ACK, 0, &[])).expect("word of it");
    // 1000 less the 5000 that are held.
    side.connection.consume(stream, 4500, &mut side.out);
    let heard = side.hear(&frame(DATA, 0, 1, &[0; 500])).expect("data");
    assert_eq!(texts(&heard).len(), 1);
    let heard = side.hear(&frame(DATA, 0, 1, &[0; 1])).expect("a stream's fault");
    assert_eq!(heard[0].1, "broken Window Stream(1)");
    // Streams behind it never had another one; a second word changes nothing.
    side.hear(&frame(SETTINGS, ACK, 0, &[])).expect("the same");
    asked(&mut side, &post(3));
    side.hear(&frame(DATA, 0, 3, &[0; 1000])).expect("data");
    let heard = side.hear(&frame(DATA, 0, 3, &[0; 1])).expect("a stream's fault");
    assert_eq!(heard[0].1, "broken Window Stream(3)");
}

#[test]
fn no_stream_has_more_than_the_first_window_before_and_less_behind() {
    let mut side = Side::new(Role::Server, &limits());
    side.hear(&opening()).expect("an opening");
    asked(&mut side, &post(1));
    for bytes in [16_384, 16_384, 16_384, 16_383] {
        side.hear(&frame(DATA, 0, 1, &vec![0; bytes])).expect("data");
    }
    let heard = side.hear(&frame(DATA, 0, 1, &[0; 1]));
    assert_eq!(heard.map_err(|fault| fault.kind), Err(FaultKind::Window));
}

#[test]
fn padding_is_given_back_at_once() {
    let mut side = Side::server(&limits());
    asked(&mut side, &post(1));
    let mut padded = vec![199];
    padded.extend_from_slice(&[7; 1]);
    padded.extend_from_slice(&[0; 199]);
    for _ in 0..100 {
        // A byte of data and 200 of padding each time: only the first counts for long.
        side.hear(&frame(DATA, PADDED, 1, &padded)).expect("data");
    }
    let updates: u32 = side
        .frames()
        .iter()
        .filter(|frame| frame.0 == WINDOW_UPDATE && frame.2 == 1)
        .map(|frame| u32::from_be_bytes(frame.3[..].try_into().expect("four bytes")))
        .sum();
    assert!((19_500..=20_000).contains(&updates), "{updates}");
}

#[test]
fn the_connection_s_window_is_held() {
    let limits = Limits {
        stream_window: 1 << 20,
        ..limits()
    };
    let mut side = Side::server(&limits);
    asked(&mut side, &post(1));
    for _ in 0..3 {
        side.hear(&frame(DATA, 0, 1, &[0; 16_384])).expect("data");
    }
    let heard = side.hear(&frame(DATA, 0, 1, &[0; 16_384]));
    assert_eq!(heard.map_err(|fault| fault.kind), Err(FaultKind::Window));
}

#[test]
fn data_that_nobody_wants_is_given_back() {
    let mut side = Side::server(&limits());
    let stream = asked(&mut side, &post(1));
    side.connection
        .reset(stream, ringmain_wire::h2::ErrorCode::NO_ERROR, &mut side.out);
    side.frames();
    for _ in 0..20 {
        side.hear(&frame(DATA, 0, 1, &[0; 16_384])).expect("late data");
    }
    assert!(
        side.frames()
            .iter()
            .any(|frame| frame.0 == WINDOW_UPDATE && frame.2 == 0)
    );
}

#[test]
fn what_was_not_consumed_of_a_stream_is_given_back_with_it() {
    let ends: [fn(&mut Side, Stream); 4] = [
        |side, _| drop(side.hear(&rst(1)).expect("a reset")),
        |side, stream| {
            side.connection
                .reset(stream, ringmain_wire::h2::ErrorCode::CANCEL, &mut side.out);
        },
        |side, _| drop(side.hear(&window_update(1, 0)).expect("a stream's fault")),
        |side, stream| {
            side.hear(&frame(DATA, END_STREAM, 1, &[])).expect("data");
            side.connection
                .respond(stream, 200, &mut side.out)
                .expect("a head")
                .finish(false);
            assert_eq!(side.connection.data(stream, b"done", true, &mut side.out), Ok(4));
        },
    ];
    for end in ends {
        let limits = Limits {
            stream_window: 1 << 20,
            ..limits()
        };
        let mut side = Side::server(&limits);
        let stream = asked(&mut side, &post(1));
        for _ in 0..3 {
            side.hear(&frame(DATA, 0, 1, &[0; 16_384])).expect("data");
        }
        assert!(side.connection.peer_window() < 16_384);
        // Nobody takes more than a part of it.
        side.connection.consume(stream, 100, &mut side.out);
        end(&mut side, stream);
        assert!(!side.connection.is_open(stream));
        assert_eq!(side.connection.peer_window(), 65_535);
        // What is said later of it changes nothing, and what was written is whole frames.
        side.connection.consume(stream, 10_000, &mut side.out);
        assert_eq!(side.connection.peer_window(), 65_535);
        assert!(!side.frames().is_empty());
    }
}

/// Bytes that a stream's peer was granted so far.
fn granted(side: &mut Side) -> u32 {
    let frames = side.frames();
    let updates = frames
        .iter()
        .filter(|frame| frame.0 == WINDOW_UPDATE && frame.2 == 1);
    updates
        .map(|frame| u32::from_be_bytes(frame.3[..].try_into().expect("four bytes")))
        .sum()
}

#[test]
fn a_stream_may_have_a_larger_window_once_half_of_its_first_was_consumed() {
    let mut side = Side::server(&limits());
    let stream = asked(&mut side, &post(1));
    let consume = |side: &mut Side, bytes: usize, window: u32| {
        side.hear(&frame(DATA, 0, 1, &vec![0; bytes])).expect("data");
        side.connection
            .consume_within(stream, bytes, window, &mut side.out);
        granted(side)
    };
    assert_eq!(consume(&mut side, 499, 4000), 0, "a short body costs no frame");
    // 500 of 1,000 are used up: 3,500 more make it 4,000.
    assert_eq!(consume(&mut side, 1, 4000), 3500);
    assert_eq!(consume(&mut side, 1999, 4000), 0, "less than half of it");
    assert_eq!(consume(&mut side, 1, 4000), 2000);
    // A smaller one takes effect as the larger is used up: 4,000, 3,000, 2,000, 1,000 are left, then 500.
    for _ in 0..3 {
        assert_eq!(consume(&mut side, 1000, 1000), 0);
    }
    assert_eq!(consume(&mut side, 500, 1000), 500);
    // Whatever was withheld, the peer can always send.
    for _ in 0..100 {
        let bytes = 1 + consume(&mut side, 400, 1000) as usize;
        side.hear(&frame(DATA, 0, 1, &vec![0; bytes.min(100)]))
            .expect("a window");
        side.connection
            .consume_within(stream, bytes.min(100), 1000, &mut side.out);
    }
}
