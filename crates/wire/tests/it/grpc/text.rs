//! The base64 of gRPC-Web's text: rules, every cut, round trips with padding in the middle.

use ringmain_wire::grpc::{FaultKind, TextDecoder, encode_text};

use crate::shared_rng::Rng;

/// What `text` stands for when it is cut at `cuts`, and the fault it ends in.
fn read(text: &[u8], cuts: &[usize]) -> (Vec<u8>, Option<(FaultKind, u64)>) {
    let (mut decoder, mut out, mut from) = (TextDecoder::new(), Vec::new(), 0);
    for &cut in cuts.iter().chain([&text.len()]) {
        if let Err(fault) = decoder.decode(&text[from..cut], &mut out) {
            assert_eq!(
                decoder.decode(b"AAAA", &mut out),
                Err(fault),
                "a fault is for ever"
            );
            assert_eq!(decoder.end_of_input(), Err(fault));
            return (out, Some((fault.kind, fault.at)));
        }
        from = cut;
    }
    let end = decoder.end_of_input();
    (out, end.err().map(|fault| (fault.kind, fault.at)))
}

/// Text, what it stands for, and the fault it ends in.
type Row = (&'static [u8], &'static [u8], Option<(FaultKind, u64)>);

const CORPUS: &[Row] = &[
    (b"", b"", None),
    (b"YWJj", b"abc", None),
    (b"YWJjZGVm", b"abcdef", None),
    (b"YQ==", b"a", None),
    (b"YQ==YmM=ZGVm", b"abcdef", None),
    (b"YWJjZA==YWJjZA==", b"abcdabcd", None),
    (b"/+8=", b"\xFF\xEF", None),
    (b"YWJjYWJj!WJj", b"abcabc", Some((FaultKind::Text, 8))),
    (b"YWJj\nYWJj", b"abc", Some((FaultKind::Text, 4))),
    (b"YWJj_-8=", b"abc", Some((FaultKind::Text, 4))),
    (b"Y===", b"", Some((FaultKind::Text, 0))),
    (b"====", b"", Some((FaultKind::Text, 0))),
    (b"YWJj=WJj", b"abc", Some((FaultKind::Text, 4))),
    (b"YQ=a", b"", Some((FaultKind::Text, 0))),
    // Bits that stand for nothing.
    (b"YR==", b"", Some((FaultKind::Text, 0))),
    (b"YWJjY", b"abc", Some((FaultKind::TextTruncated, 4))),
    (b"YWJjYQ", b"abc", Some((FaultKind::TextTruncated, 4))),
    (b"YWJjYQ=", b"abc", Some((FaultKind::TextTruncated, 4))),
];

#[test]
fn rules_and_every_cut() {
    for &(text, bytes, fault) in CORPUS {
        let all: Vec<usize> = (0..=text.len()).collect();
        let expected = (bytes.to_vec(), fault);
        assert_eq!(read(text, &all), expected, "{}", text.escape_ascii());
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let found = read(text, &[first, second]);
                assert_eq!(found, expected, "{} at {first}, {second}", text.escape_ascii());
            }
        }
    }
}

#[test]
fn what_was_written_in_parts_reads_as_the_same() {
    let mut rng = Rng(5);
    for _ in 0..500 {
        let (mut text, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..rng.below(6) {
            let part: Vec<u8> = (0..rng.below(100)).map(|_| rng.next() as u8).collect();
            encode_text(&mut text, &part);
            bytes.extend_from_slice(&part);
        }
        let mut cuts: Vec<usize> = (0..rng.below(8)).map(|_| rng.below(text.len() + 1)).collect();
        cuts.sort_unstable();
        assert_eq!(read(&text, &cuts), (bytes, None), "{cuts:?}");
    }
}
