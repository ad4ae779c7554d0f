//! Messages with their length in front: rules, every cut, round trips.

use ringmain_wire::grpc::{Code, Decoder, Event, FaultKind, Found, Frame, Limits, PeerFault, Slot};

use crate::shared_rng::Rng;

pub(crate) const TIGHT: Limits = Limits {
    message_bytes: 12,
    trailer_bytes: 8,
};

/// What a reader of a body sees, with neighbouring pieces merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Message(Vec<u8>, bool),
    Trailers(Vec<u8>),
    Fault(PeerFault),
}

/// All of `body`, cut at `cuts` (rising), then its end.
pub(crate) fn read(mut decoder: Decoder, body: &[u8], cuts: &[usize]) -> Vec<Seen> {
    let (mut seen, mut payload, mut frame, mut from) = (Vec::new(), Vec::new(), None, 0);
    for &cut in cuts.iter().chain([&body.len()]) {
        let mut rest = &body[from..cut];
        from = cut;
        loop {
            let step = match decoder.decode(rest) {
                Ok(step) => step,
                Err(fault) => {
                    assert_eq!(decoder.decode(b"x"), Err(fault), "a fault is for ever");
                    assert_eq!(decoder.end_of_input(), Err(fault));
                    seen.push(Seen::Fault(fault));
                    return seen;
                }
            };
            rest = &rest[step.consumed..];
            match step.event {
                Event::Begin { frame: begun, bytes } => {
                    assert_eq!(frame.replace((begun, bytes)), None, "one after the other");
                }
                Event::Data(data) => {
                    assert!(!data.is_empty(), "pieces bring something");
                    payload.extend_from_slice(data);
                }
                Event::End => {
                    let (frame, bytes) = frame.take().expect("it has begun");
                    assert_eq!(payload.len(), bytes as usize, "as announced");
                    let payload = std::mem::take(&mut payload);
                    seen.push(match frame {
                        Frame::Message { compressed } => Seen::Message(payload, compressed),
                        Frame::Trailers => Seen::Trailers(payload),
                    });
                }
                Event::NeedMore => {
                    assert_eq!(rest, b"", "all of it is done with");
                    break;
                }
            }
        }
    }
    if let Err(fault) = decoder.end_of_input() {
        seen.push(Seen::Fault(fault));
    }
    seen
}

fn fault(kind: FaultKind, at: u64, found: Found) -> Seen {
    Seen::Fault(PeerFault { kind, at, found })
}

fn message(bytes: &[u8]) -> Seen {
    Seen::Message(bytes.into(), false)
}

/// Bodies, whether trailers may come, and what is seen in them.
fn corpus() -> Vec<(&'static [u8], bool, Vec<Seen>)> {
    vec![
        (b"", false, vec![]),
        (b"\0\0\0\0\0", false, vec![message(b"")]),
        (
            b"\0\0\0\0\x02ab\x01\0\0\0\x01c",
            false,
            vec![message(b"ab"), Seen::Message(b"c".into(), true)],
        ),
        (b"\0\0\0\0\x0c123456789012", false, vec![message(b"123456789012")]),
        (
            b"\0\0\0\0\x0d1234567890123",
            false,
            vec![fault(FaultKind::MessageTooLarge, 0, Found::Number(13))],
        ),
        (
            b"\0\0\0\0\0\0\xFF\xFF\xFF\xFF",
            false,
            vec![
                message(b""),
                fault(FaultKind::MessageTooLarge, 5, Found::Number(0xFFFF_FFFF)),
            ],
        ),
        (
            b"\x02\0\0\0\0",
            false,
            vec![fault(FaultKind::Flag, 0, Found::Byte(2))],
        ),
        (
            b"\0\0\0\0\x01a\x80\0\0\0\0",
            false,
            vec![message(b"a"), fault(FaultKind::Flag, 6, Found::Byte(0x80))],
        ),
        (
            b"\x81\0\0\0\0",
            true,
            vec![fault(FaultKind::Flag, 0, Found::Byte(0x81))],
        ),
        (
            b"\0\0\0\0\x01a\x80\0\0\0\x06a: b\r\n",
            true,
            vec![message(b"a"), Seen::Trailers(b"a: b\r\n".into())],
        ),
        (b"\x80\0\0\0\0", true, vec![Seen::Trailers(vec![])]),
        (
            b"\x80\0\0\0\x09abcdefghi",
            true,
            vec![fault(FaultKind::TrailersTooLarge, 0, Found::Number(9))],
        ),
        (
            b"\x80\0\0\0\0\0",
            true,
            vec![
                Seen::Trailers(vec![]),
                fault(FaultKind::AfterTrailers, 5, Found::Byte(0)),
            ],
        ),
        (
            b"\0\0\0",
            false,
            vec![fault(FaultKind::Truncated, 3, Found::This)],
        ),
        (
            b"\0\0\0\0\0\0\0\0\0\x02a",
            true,
            vec![message(b""), fault(FaultKind::Truncated, 11, Found::This)],
        ),
    ]
}

fn decoder(trailers: bool) -> Decoder {
    if trailers {
        Decoder::with_trailers(&TIGHT)
    } else {
        Decoder::new(&TIGHT)
    }
}

#[test]
fn rules() {
    for (body, trailers, expected) in corpus() {
        let found = read(decoder(trailers), body, &[]);
        assert_eq!(found, expected, "{}", body.escape_ascii());
    }
}

#[test]
fn no_cut_changes_what_is_seen() {
    for (body, trailers, expected) in corpus() {
        let bytes: Vec<usize> = (0..=body.len()).collect();
        assert_eq!(
            read(decoder(trailers), body, &bytes),
            expected,
            "{}",
            body.escape_ascii()
        );
        for first in 0..=body.len() {
            for second in first..=body.len() {
                let found = read(decoder(trailers), body, &[first, second]);
                assert_eq!(found, expected, "{} at {first}, {second}", body.escape_ascii());
            }
        }
    }
}

#[test]
fn what_was_written_reads_as_the_same_however_it_is_cut() {
    let mut rng = Rng(3);
    for _ in 0..500 {
        let (mut body, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..rng.below(6) {
            let compressed = rng.below(2) == 1;
            let payload: Vec<u8> = (0..rng.below(300)).map(|_| rng.next() as u8).collect();
            let slot = Slot::open(&mut body);
            body.extend_from_slice(&payload);
            assert_eq!(slot.bytes(&body), payload.len());
            slot.close(&mut body, compressed).unwrap();
            expected.push(Seen::Message(payload, compressed));
        }
        let mut cuts: Vec<usize> = (0..rng.below(8)).map(|_| rng.below(body.len() + 1)).collect();
        cuts.sort_unstable();
        assert_eq!(
            read(Decoder::new(&Limits::INTERNET), &body, &cuts),
            expected,
            "{cuts:?}"
        );
    }
}

#[test]
fn each_fault_has_a_code_and_says_what_to_expect() {
    for kind in FaultKind::ALL {
        let exhausted = matches!(kind, FaultKind::MessageTooLarge | FaultKind::TrailersTooLarge);
        let code = if exhausted {
            Code::ResourceExhausted
        } else {
            Code::Internal
        };
        assert_eq!(kind.code(), code, "{kind:?}");
        let fault = PeerFault {
            kind: *kind,
            at: 7,
            found: Found::MoreThan(3),
        };
        let text = fault.to_string();
        let start = format!("at byte 7: expected {}; found more than 3 (", kind.expected());
        assert!(
            text.starts_with(&start) && text.ends_with(&format!("{})", kind.section())),
            "{text}"
        );
    }
}
