//! gzip and deflate: round trips, what others have written, and bombs.

use ringmain_wire::grpc::{Deflater, Encoding, FaultKind, Found, Inflater};

use crate::shared_rng::Rng;

const BOTH: [Encoding; 2] = [Encoding::Gzip, Encoding::Deflate];

fn inflate(encoding: Encoding, message: &[u8], limit: usize) -> Result<Vec<u8>, (FaultKind, Found)> {
    let mut out = b"before ".to_vec();
    let done = Inflater::new().inflate(encoding, message, limit, &mut out);
    let rest = out.strip_prefix(b"before ").expect("what was there stays");
    match done {
        Ok(()) => Ok(rest.to_vec()),
        Err(fault) => {
            assert_eq!(rest, b"", "nothing of a broken message");
            assert!(fault.at <= message.len() as u64);
            Err((fault.kind, fault.found))
        }
    }
}

#[test]
fn what_was_deflated_is_as_before_also_by_one_pair() {
    let mut rng = Rng(9);
    let (mut inflater, mut deflater) = (Inflater::new(), Deflater::new(2));
    for round in 0..400 {
        let spread = 1 + rng.below(256);
        let length = if round % 40 == 0 { 300_000 } else { rng.below(3000) };
        let message: Vec<u8> = (0..length).map(|_| rng.below(spread) as u8).collect();
        for encoding in BOTH {
            let mut deflated = b"x".to_vec();
            deflater.deflate(encoding, &message, &mut deflated);
            let mut out = Vec::new();
            inflater
                .inflate(encoding, &deflated[1..], message.len(), &mut out)
                .unwrap();
            assert_eq!(out, message, "round {round}");
        }
    }
}

#[test]
fn what_others_have_written() {
    // Python's gzip.compress(b"hello hello hello", mtime=0) and zlib.compress of it.
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x80\x88\xf9\xe5\x11\x00\x00\x00";
    let zlib = b"\x78\x9c\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x3a\x2e\x06\x7d";
    assert_eq!(inflate(Encoding::Gzip, gzip, 17).unwrap(), b"hello hello hello");
    assert_eq!(
        inflate(Encoding::Deflate, zlib, 17).unwrap(),
        b"hello hello hello"
    );
    let broken = Err((FaultKind::Encoded, Found::This));
    // Each in the other's place, raw, cut at every byte, with a wrong checksum, with something behind it.
    assert_eq!(inflate(Encoding::Deflate, gzip, 100), broken);
    assert_eq!(inflate(Encoding::Gzip, zlib, 100), broken);
    assert_eq!(inflate(Encoding::Deflate, &zlib[2..zlib.len() - 4], 100), broken);
    for (encoding, message) in [(Encoding::Gzip, &gzip[..]), (Encoding::Deflate, &zlib[..])] {
        for end in 0..message.len() {
            assert_eq!(
                inflate(encoding, &message[..end], 100),
                broken,
                "{encoding:?} cut at {end}"
            );
        }
        assert_eq!(inflate(encoding, &[message, b"\0"].concat(), 100), broken);
        assert_eq!(inflate(encoding, &[message, message].concat(), 100), broken);
        let mut wrong = message.to_vec();
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(inflate(encoding, &wrong, 100), broken);
    }
    let plain = Err((FaultKind::NotEncoded, Found::This));
    assert_eq!(inflate(Encoding::Identity, b"abc", 100), plain);
}

#[test]
fn the_limit_is_exact() {
    for encoding in BOTH {
        for length in [0, 1, 63, 64, 65, 1000, 100_000] {
            let mut deflated = Vec::new();
            Deflater::new(9).deflate(encoding, &vec![7; length], &mut deflated);
            assert_eq!(inflate(encoding, &deflated, length).unwrap().len(), length);
            if length > 0 {
                let limit = length - 1;
                let found = inflate(encoding, &deflated, limit);
                assert_eq!(
                    found,
                    Err((FaultKind::MessageTooLarge, Found::MoreThan(limit as u64)))
                );
            }
        }
    }
}
