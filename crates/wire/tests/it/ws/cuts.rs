//! Cut invariance, and no panic on any input: how a connection was cut into receipts changes no event, valid or not.

use ringmain_wire::ws::{Deflation, Limits, Role};

use crate::ws::support::{
    BINARY, CLOSE, FIN, MORE, PING, PONG, RSV1, Rng, Setting, TEXT, events, frames, masked,
};

/// Frames that meet every rule: each row is what one peer sends.
const CORPUS: &[&[(u8, &[u8])]] = &[
    &[
        (FIN | TEXT, b"Hello"),
        (FIN | BINARY, b""),
        (CLOSE, b"\x03\xE8bye"),
        (PING, b"ignored"),
    ],
    &[
        (TEXT, b"\xE2"),
        (PING, b"p"),
        (MORE, b"\x82\xAC \xF0\x9F"),
        (PONG, b""),
        (FIN, b"\x98\x80"),
    ],
    &[(TEXT, b"ab\xF0\x9F"), (FIN, b"")],
    &[(TEXT, b"abc\xF0\x9F"), (MORE, b"\x98\x80\xFF"), (FIN, b"")],
    &[(FIN | TEXT, b"abcdefg\xED\xA0\x80hij")],
    &[(BINARY, b""), (MORE, b""), (MORE, b""), (MORE, b""), (FIN, b"a")],
    &[
        (FIN | BINARY, b"12345678901234567890"),
        (BINARY, b"1234567890"),
        (FIN, b"12345678901234567890123"),
    ],
    &[(FIN | BINARY, b"1234567890123456789012345")],
    &[(BINARY, b"a"), (FIN | TEXT, b"b")],
    &[(FIN | TEXT, b"a"), (FIN, b"b")],
    &[
        (PING, b""),
        (PING, b"1"),
        (PONG, b"2"),
        (PING, b"3"),
        (PING, b"4"),
    ],
    &[(CLOSE, b"\x03")],
    &[(CLOSE, b"\x03\xEE")],
    &[(CLOSE, b"\x03\xE8\xFF")],
    &[(0x83, b"")],
    &[(0x09, b"")],
    &[(FIN | 0x20 | TEXT, b"")],
    &[
        (FIN | RSV1 | TEXT, b"\xF2\x48\xCD\xC9\xC9\x07\x00"),
        (FIN | RSV1 | TEXT, b"\xF2\x00\x11\x00\x00"),
    ],
    &[
        (RSV1 | TEXT, b"\xF2\x48\x05\x00\x00"),
        (PING, b"p"),
        (MORE, b"\x00\xFF\xFF\xCA"),
        (FIN, b"\xC9\xC9\x07\x00"),
    ],
    &[
        (FIN | RSV1 | TEXT, b"\xF3\x48\xCD\xC9\xC9\x07\x00\x00"),
        (FIN | TEXT, b"b"),
    ],
    &[(FIN | RSV1 | BINARY, b""), (RSV1 | BINARY, b""), (FIN, b"")],
    // Text that is none, then what is not DEFLATE; too much, then text that is none.
    &[(FIN | RSV1 | TEXT, b"\x00\x01\x00\xFE\xFF\xFF\x07")],
    &[(
        FIN | RSV1 | TEXT,
        b"\x00\x1B\x00\xE4\xFF123456789012345678901234567\x07",
    )],
    &[(
        FIN | RSV1 | TEXT,
        b"\x00\x1B\x00\xE4\xFF12345678901234567890123456\xFF\x07",
    )],
    &[(FIN | RSV1 | BINARY, b"\x00\x0A\x00\xF5\xFF1234567890\x07")],
];

fn settings(role: Role) -> Vec<Setting> {
    let tight = Limits {
        frame_bytes: 40,
        message_bytes: 24,
        control_frames: 3,
    };
    let mut settings = Vec::new();
    for limits in [Limits::default(), tight] {
        for deflation in [None, Some(Deflation::SHARED), Some(Deflation::CONTEXT)] {
            for piece_bytes in [1, 5, 1000] {
                settings.push(Setting {
                    role,
                    limits,
                    deflation,
                    piece_bytes,
                });
            }
        }
    }
    settings
}

fn each(check: impl Fn(&Setting, &[u8])) {
    for role in [Role::Server, Role::Client] {
        for setting in settings(role) {
            for row in CORPUS {
                check(&setting, &frames(role, row));
            }
        }
    }
}

fn same(setting: &Setting, input: &[u8], cuts: &[usize]) {
    let whole = events(setting, input, &[]);
    let parts = events(setting, input, cuts);
    assert_eq!(
        parts,
        whole,
        "`{}` cut at {cuts:?}, {setting:?}",
        input.escape_ascii()
    );
}

#[test]
fn one_cut_anywhere() {
    each(|setting, input| (0..=input.len()).for_each(|cut| same(setting, input, &[cut])));
}

#[test]
fn two_cuts_anywhere() {
    for setting in settings(Role::Server).iter().step_by(4) {
        for row in CORPUS {
            let input = frames(Role::Server, row);
            for first in 0..=input.len() {
                (first..=input.len()).for_each(|second| same(setting, &input, &[first, second]));
            }
        }
    }
}

#[test]
fn byte_by_byte() {
    each(|setting, input| same(setting, input, &(1..input.len()).collect::<Vec<_>>()));
}

/// The size of the inflater's pieces is a cut of a kind too.
#[test]
fn pieces_of_any_size() {
    each(|setting, input| {
        let whole = Setting {
            piece_bytes: 4096,
            ..*setting
        };
        assert_eq!(
            events(setting, input, &[]),
            events(&whole, input, &[]),
            "{setting:?}"
        );
    });
}

#[test]
fn many_cuts_of_long_and_mutated_connections() {
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let role = [Role::Server, Role::Client][rng.below(2)];
        let mut input = Vec::new();
        for _ in 0..1 + rng.below(4) {
            input.extend(frames(role, CORPUS[rng.below(CORPUS.len())]));
        }
        for _ in 0..rng.below(4) {
            // A frame has two bytes at least, and three mutations may take them.
            let at = rng.below(input.len().max(1));
            match rng.below(3) {
                _ if input.is_empty() => {}
                0 => input[at] = rng.next() as u8,
                1 => input[at] ^= 1 << rng.below(8),
                _ => drop(input.remove(at)),
            }
        }
        let all = settings(role);
        let setting = &all[rng.below(all.len())];
        let mut cuts: Vec<usize> = (0..rng.below(8)).map(|_| rng.below(input.len() + 1)).collect();
        cuts.sort_unstable();
        println!("seed {seed}");
        same(setting, &input, &cuts);
    }
}

#[test]
fn noise_does_no_harm() {
    for seed in 0..3000 {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let noise = rng.data(300);
        let role = [Role::Server, Role::Client][rng.below(2)];
        let all = settings(role);
        let setting = &all[rng.below(all.len())];
        same(setting, &noise, &(1..noise.len()).collect::<Vec<_>>());
        // As the payload of a deflated message it gets further.
        let setting = Setting {
            deflation: Some(Deflation::SHARED),
            role: Role::Server,
            ..*setting
        };
        let frame = masked(FIN | RSV1 | TEXT, &noise);
        let cut = rng.below(frame.len());
        same(&setting, &frame, &[cut]);
    }
}
