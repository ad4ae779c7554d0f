//! Rule 9: text is UTF-8, judged byte by byte.

use ringmain_wire::ws::{FaultKind, Role};

use crate::ws::support::{
    BINARY, FIN, MORE, Reader, Setting, TEXT, binary, events, frames, masked, plain, refuses, takes, text,
};

/// Texts that are none, each with the number of bytes that could still begin one: Autobahn's 6.3, 6.6 to 6.23 and
/// RFC 3629's own list.
const INVALID: &[(&[u8], usize)] = &[
    (b"\x80", 0),
    (b"\xBF", 0),
    (b"\xC0\x80", 0),
    (b"\xC1\xBF", 0),
    (b"\xC3\x28", 1),
    (b"\xCE\xCE", 1),
    (b"\xE0\x80\x80", 1),
    (b"\xE0\x9F\xBF", 1),
    (b"\xE2\x82\x28", 2),
    (b"\xED\xA0\x80", 1),
    (b"\xED\xAD\xBF", 1),
    (b"\xED\xAF\xBF", 1),
    (b"\xED\xBF\xBF", 1),
    (b"\xED\xA0\x80\xED\xB0\x80", 1),
    (b"\xF0\x80\x80\x80", 1),
    (b"\xF0\x8F\xBF\xBF", 1),
    (b"\xF4\x90\x80\x80", 1),
    (b"\xF5\x80\x80\x80", 0),
    (b"\xF8\x88\x80\x80\x80", 0),
    (b"\xFC\x84\x80\x80\x80\x80", 0),
    (b"\xFE", 0),
    (b"\xFF", 0),
    (
        b"\xCE\xBA\xE1\xBD\xB9\xCF\x83\xCE\xBC\xCE\xB5\xED\xA0\x80\x65\x64\x69\x74\x65\x64",
        12,
    ),
    (
        b"\xCE\xBA\xE1\xBD\xB9\xCF\x83\xCE\xBC\xCE\xB5\xF4\x90\x80\x80\x65\x64\x69\x74\x65\x64",
        12,
    ),
];

/// Texts at the edges.
const VALID: &[&str] = &[
    "",
    "\0",
    "\x7F",
    "\u{80}",
    "\u{7FF}",
    "\u{800}",
    "\u{D7FF}",
    "\u{E000}",
    "\u{FFFD}",
    "\u{FFFE}",
    "\u{FFFF}",
    "\u{10000}",
    "\u{10FFFF}",
    "κόσμε",
    "Hello-µ@ßöäüàá-UTF-8!!",
    "0123456789012345678901234567890123456789012345678901234567890123456789 €",
];

#[test]
fn rule_9_text_is_utf_8() {
    for valid in VALID {
        takes(
            &Setting::SERVER,
            &masked(FIN | TEXT, valid.as_bytes()),
            &[text(valid)],
        );
        takes(
            &Setting::CLIENT,
            &plain(FIN | TEXT, valid.as_bytes()),
            &[text(valid)],
        );
    }
    for (invalid, _) in INVALID {
        refuses(&Setting::SERVER, &masked(FIN | TEXT, invalid), FaultKind::Text);
        let long = [&[b'a'; 100][..], invalid, &[b'b'; 100]].concat();
        refuses(&Setting::CLIENT, &plain(FIN | TEXT, &long), FaultKind::Text);
        takes(
            &Setting::SERVER,
            &masked(FIN | BINARY, invalid),
            &[binary(invalid)],
        );
    }
}

#[test]
fn rule_9_text_fails_at_the_first_byte_that_cannot_be_part_of_it() {
    for (invalid, valid) in INVALID {
        // Far from the end of the frame and of the message.
        let payload = [invalid, &[b'a'; 50][..]].concat();
        let frame = masked(TEXT, &payload);
        let header = frame.len() - payload.len();
        let mut reader = Reader::new(&Setting::SERVER);
        let fails_at = frame.iter().position(|byte| {
            reader.feed(&[*byte]);
            reader
                .take()
                .iter()
                .any(|event| matches!(event, crate::ws::support::Event::Fault(_)))
        });
        assert_eq!(fails_at, Some(header + valid), "`{}`", invalid.escape_ascii());
    }
}

#[test]
fn rule_9_characters_may_be_cut_by_fragments_but_not_by_the_end() {
    for valid in VALID {
        let bytes = valid.as_bytes();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let input = frames(
                    Role::Client,
                    &[(TEXT, parts[0]), (MORE, parts[1]), (FIN, parts[2])],
                );
                takes(&Setting::CLIENT, &input, &[text(valid)]);
            }
            if !valid.is_char_boundary(first) {
                refuses(
                    &Setting::CLIENT,
                    &plain(FIN | TEXT, &bytes[..first]),
                    FaultKind::Text,
                );
                let ended = frames(Role::Client, &[(TEXT, &bytes[..first]), (FIN, b"")]);
                refuses(&Setting::CLIENT, &ended, FaultKind::Text);
            }
        }
    }
}

#[test]
fn all_starts_of_two_bytes_are_judged_as_the_standard_library_does() {
    for start in 0..=u16::MAX {
        let text = [&start.to_be_bytes()[..], b"\x80\x80"].concat();
        for end in 1..=4 {
            let expected = std::str::from_utf8(&text[..end]).is_ok();
            let input = plain(FIN | TEXT, &text[..end]);
            for cuts in [&[][..], &[3], &[3, 4, 5]] {
                let cuts: Vec<usize> = cuts.iter().copied().filter(|cut| *cut <= input.len()).collect();
                let found = events(&Setting::CLIENT, &input, &cuts);
                let taken = matches!(found[..], [crate::ws::support::Event::Data(_, _, true)]);
                assert_eq!(
                    taken,
                    expected,
                    "`{}` {cuts:?}: {found:?}",
                    text[..end].escape_ascii()
                );
            }
        }
    }
}
