//! Each kind of flood ends after its budget, with ENHANCE_YOUR_CALM, and what comes at a usual rate does not.

use std::time::Duration;

use ringmain_wire::h2::{ErrorCode, FaultKind, Limits, Stream};

use crate::h2::support::*;

/// How many rounds of `round` a server bears, up to `most`, and why it bears no more.
fn borne(
    limits: &Limits,
    most: u32,
    pause: Duration,
    round: impl FnMut(u32) -> Vec<u8>,
) -> (u32, Option<FaultKind>) {
    let mut side = Side::server(limits);
    borne_by(&mut side, most, pause, round)
}

fn borne_by(
    side: &mut Side,
    most: u32,
    pause: Duration,
    mut round: impl FnMut(u32) -> Vec<u8>,
) -> (u32, Option<FaultKind>) {
    for count in 0..most {
        side.now += pause;
        if let Err(fault) = side.hear(&round(count)) {
            assert_eq!(fault.code(), ErrorCode::ENHANCE_YOUR_CALM);
            return (count, Some(fault.kind));
        }
        side.out.clear();
        side.heads = ringmain_wire::h2::HeadBuffer::new(&Limits::INTERNET);
    }
    (most, None)
}

const NOW: Duration = Duration::ZERO;

#[test]
fn rapid_reset_ends() {
    let limits = Limits::INTERNET;
    let round = |count: u32| [get(1 + 2 * count), rst(1 + 2 * count)].concat();
    assert_eq!(
        borne(&limits, 1000, NOW, round),
        (100, Some(FaultKind::TooManyResets))
    );
    // Also at a pace that the budget would bear: no response is left to begin.
    assert_eq!(
        borne(&limits, 1000, Duration::from_millis(100), round),
        (100, Some(FaultKind::TooManyResets))
    );
    // One a second is what people do.
    assert_eq!(borne(&limits, 1000, Duration::from_secs(1), round), (1000, None));
}

/// Resets one stream for each `answered` streams that are answered to their end; returns how many were reset, up to 1000.
fn resets_between_answers(answered: u32, pause: Duration) -> u32 {
    let mut side = Side::server(&Limits::INTERNET);
    let mut id = 1;
    for count in 0..1000 {
        side.now += pause;
        for _ in 0..answered {
            let heard = side.hear(&get(id)).expect("no flood");
            let stream = heard[0].0.expect("a stream");
            side.connection
                .respond(stream, 200, &mut side.out)
                .expect("a head")
                .finish(true);
            side.out.clear();
            id += 2;
        }
        if let Err(fault) = side.hear(&[get(id), rst(id)].concat()) {
            assert_eq!(fault.kind, FaultKind::TooManyResets);
            return count;
        }
        id += 2;
    }
    1000
}

#[test]
fn cheap_requests_do_not_pay_for_resets() {
    assert_eq!(resets_between_answers(1, NOW), 100, "half of the streams");
    assert_eq!(resets_between_answers(1, Duration::from_millis(100)), 100);
    assert_eq!(resets_between_answers(4, NOW), 200, "eight answers give one back");
    assert_eq!(resets_between_answers(8, NOW), 1000);
    assert_eq!(resets_between_answers(1, Duration::from_secs(1)), 1000);
}

#[test]
fn made_you_reset_ends() {
    // Each breaks a rule on its stream, which makes the server reset it.
    let kinds: [fn(u32) -> Vec<u8>; 6] = [
        |id| window_update(id, 0),
        |id| window_update(id, i32::MAX as u32),
        |id| frame(PRIORITY, 0, id, &[0; 4]),
        |id| frame(PRIORITY, 0, id, &[&id.to_be_bytes()[..], &[0]].concat()),
        |id| frame(DATA, 0, id, b"behind the end"),
        |id| frame(HEADERS, END_HEADERS | END_STREAM, id, GET),
    ];
    for make in kinds {
        let round = |count: u32| [get(1 + 2 * count), make(1 + 2 * count)].concat();
        assert_eq!(
            borne(&Limits::INTERNET, 1000, NOW, round),
            (100, Some(FaultKind::TooManyResets))
        );
    }
}

#[test]
fn malformed_requests_end() {
    let block = get_with(&[("X-Upper", "a")]);
    let round = |count: u32| frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * count, &block);
    assert_eq!(
        borne(&Limits::INTERNET, 1000, NOW, round),
        (100, Some(FaultKind::TooManyResets))
    );
}

#[test]
fn streams_beyond_the_limit_end() {
    let limits = Limits {
        streams: 10,
        ..Limits::INTERNET
    };
    assert_eq!(
        borne(&limits, 1000, NOW, |count| get(1 + 2 * count)),
        (110, Some(FaultKind::TooManyResets))
    );
}

#[test]
fn continuation_flood_ends() {
    let limits = Limits::INTERNET;
    let begun = |count: u32, rest: Vec<u8>| {
        if count == 0 {
            frame(HEADERS, 0, 1, GET)
        } else {
            rest
        }
    };
    let full = borne(&limits, 100, NOW, |count| {
        begun(count, frame(CONTINUATION, 0, 1, &[0x82; 16_000]))
    });
    assert_eq!(full, (3, Some(FaultKind::BlockTooLarge)));
    let tiny = borne(&limits, 100, NOW, |count| {
        begun(count, frame(CONTINUATION, 0, 1, &[0x82]))
    });
    assert_eq!(tiny, (9, Some(FaultKind::BlockTooLarge)));
    let empty = borne(&limits, 100, NOW, |count| {
        begun(count, frame(CONTINUATION, 0, 1, &[]))
    });
    assert_eq!(empty, (9, Some(FaultKind::BlockTooLarge)));
}

#[test]
fn control_floods_end() {
    let limits = Limits::INTERNET;
    let ping = frame(PING, 0, 0, &[0; 8]);
    let kinds = [
        ping.clone(),
        frame(PING, ACK, 0, &[1; 8]),
        settings(&[(1, 0), (1, 4096)]),
        frame(SETTINGS, ACK, 0, &[]),
        frame(PRIORITY, 0, 77, &[0; 5]),
        frame(0xEE, 0, 0, b"unknown"),
    ];
    for kind in &kinds {
        let flood = borne(&limits, 10_000, NOW, |_| kind.clone());
        // SETTINGS and their answer were the first.
        assert_eq!(flood.0, 998, "{flood:?}");
        assert_eq!(flood.1, Some(FaultKind::TooManyControlFrames));
    }
    let calm = borne(&limits, 10_000, Duration::from_millis(10), |_| ping.clone());
    assert_eq!(calm, (10_000, None));
}

#[test]
fn pings_beside_answers_and_late_resets_are_no_flood() {
    let mut side = Side::server(&Limits::INTERNET);
    for count in 0..5000 {
        let id = 1 + 2 * count;
        let heard = side.hear(&get(id)).expect("no flood");
        let stream = heard[0].0.expect("a stream");
        side.connection
            .respond(stream, 200, &mut side.out)
            .expect("a head")
            .finish(false);
        assert_eq!(side.connection.data(stream, b"a", true, &mut side.out), Ok(1));
        side.hear(&[frame(PING, 0, 0, &[0; 8]), rst(id), window_update(0, 1)].concat())
            .expect("no flood");
        side.out.clear();
    }
}

#[test]
fn window_update_flood_ends() {
    let limits = Limits::INTERNET;
    let flood = borne(&limits, 10_000, NOW, |_| window_update(0, 1));
    assert_eq!(flood, (2000, Some(FaultKind::TooManyWindowUpdates)));
    let calm = borne(&limits, 10_000, Duration::from_millis(1), |_| window_update(0, 1));
    assert_eq!(calm, (10_000, None));
}

#[test]
fn empty_frame_flood_ends() {
    let limits = Limits::INTERNET;
    let empty = |count: u32| {
        if count == 0 {
            post(1)
        } else {
            frame(DATA, 0, 1, &[])
        }
    };
    assert_eq!(
        borne(&limits, 1000, NOW, empty),
        (101, Some(FaultKind::TooManyEmptyFrames))
    );
    let padded = |count: u32| {
        if count == 0 {
            post(1)
        } else {
            frame(DATA, PADDED, 1, &[0; 1])
        }
    };
    assert_eq!(
        borne(&limits, 1000, NOW, padded),
        (101, Some(FaultKind::TooManyEmptyFrames))
    );
}

#[test]
fn small_data_flood_ends() {
    let limits = Limits::INTERNET;
    let mut side = Side::server(&limits);
    let heard = side.hear(&post(1)).expect("a request");
    let stream = heard[0].0.expect("a stream");
    let round = dripping(b"a");
    let flood = drip(&mut side, stream, 200_000, &round);
    assert_eq!(flood, (100_000, Some(FaultKind::TooManySmallFrames)));
    // Frames that bring something are none.
    let mut side = Side::server(&limits);
    let stream = side.hear(&post(1)).expect("a request")[0].0.expect("a stream");
    assert_eq!(
        drip(&mut side, stream, 200_000, &dripping(&[0; 32])),
        (200_000, None)
    );
}

fn dripping(bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, 1, bytes)
}

/// As `borne`, with what came consumed.
fn drip(side: &mut Side, stream: Stream, most: u32, round: &[u8]) -> (u32, Option<FaultKind>) {
    for count in 0..most {
        if let Err(fault) = side.hear(round) {
            return (count, Some(fault.kind));
        }
        side.connection.consume(stream, round.len() - 9, &mut side.out);
        side.out.clear();
    }
    (most, None)
}

#[test]
fn an_hpack_bomb_holds_no_more_than_its_limit() {
    let mut side = Side::server(&Limits::INTERNET);
    // One entry of almost a whole table, then a reference to it by each byte.
    let mut block = GET.to_vec();
    block.extend_from_slice(b"\x40\x01a\x7f\xa9\x1e");
    block.extend_from_slice(&[b'b'; 4008]);
    block.extend_from_slice(&[0xBE; 12_000]);
    let heard = side
        .hear(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block))
        .expect("no fault");
    assert_eq!(texts(&heard), ["1 too large end=true"]);
    assert!(
        side.connection.memory() < 16 * 1024,
        "{}",
        side.connection.memory()
    );
}

#[test]
fn table_size_churn_is_refused() {
    let block = [&[0x20, 0x3f, 0xe1, 0x1f, 0x20][..], GET].concat();
    let mut side = Side::server(&Limits::INTERNET);
    let heard = side.hear(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    assert_eq!(heard.map_err(|fault| fault.kind), Err(FaultKind::TableSizeUpdate));
    // Two a block are allowed, and cost nothing that stays.
    let block = [&[0x20, 0x3f, 0xe1, 0x1f][..], GET].concat();
    let mut side = Side::server(&Limits::INTERNET);
    for count in 0..1000 {
        let heard = side
            .hear(&frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * count, &block))
            .expect("no fault");
        let stream = heard[0].0.expect("a stream");
        side.connection
            .respond(stream, 200, &mut side.out)
            .expect("a head")
            .finish(true);
    }
    assert!(
        side.connection.memory() < 8 * 1024,
        "{}",
        side.connection.memory()
    );
}

#[test]
fn late_frames_of_a_stream_that_was_reset_here_are_ignored() {
    let mut side = Side::server(&Limits::INTERNET);
    let stream = side.hear(&post(1)).expect("a request")[0].0.expect("a stream");
    side.connection.reset(stream, ErrorCode::CANCEL, &mut side.out);
    side.out.clear();
    let late = [
        frame(DATA, 0, 1, &[0; 100]),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &literals(&[("a", "b")])),
        window_update(1, 5),
        rst(1),
    ];
    assert_eq!(side.hear(&late.concat()), Ok(vec![]));
    assert!(side.out.is_empty());
}
