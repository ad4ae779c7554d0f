//! Query strings and forms: ours against a reader that repairs what we refuse.

use std::str;

use ringmain_web::{Query, media_type};

/// Laws: no panic; what we take has only escapes and UTF-8 in it, and reads the same in `form_urlencoded`; what we
/// refuse it reads as something that was repaired, or is too much; looking a name up finds what going through all
/// pairs finds.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let theirs: Vec<_> = form_urlencoded::parse(input).collect();
    let query = match Query::form(Some(media_type::FORM.as_bytes()), input) {
        Ok(query) => query,
        Err(error) => {
            assert_eq!(error.status(), 400);
            assert!(!error.detail().is_empty(), "an error says what is wrong");
            let too_many = theirs.len() > ringmain_web::limits::QUERY_PAIRS;
            assert!(too_many || is_repaired(input), "refused: {}", error.detail());
            return;
        }
    };
    assert!(!is_repaired(input), "taken");
    let ours: Vec<_> = query.iter().collect();
    assert_eq!(ours, theirs);
    for (name, _) in &ours {
        let all: Vec<_> = query.all(name).collect();
        let expected: Vec<_> = ours
            .iter()
            .filter(|(other, _)| other == name)
            .map(|(_, value)| value.clone())
            .collect();
        assert_eq!(all, expected, "`{name}`");
        assert_eq!(query.get(name).as_ref(), expected.first());
        let parsed = query.parse::<String>(name);
        assert_eq!(parsed.is_ok(), expected.len() == 1, "`{name}`");
    }
    let typed: Vec<(String, String)> = query.read().expect("pairs of text");
    assert_eq!(typed.len(), ours.len());
}

/// Whether a lenient reader has to change something: by brute force, without the code under test.
fn is_repaired(input: &[u8]) -> bool {
    let is_escape = |rest: &[u8]| rest.len() >= 3 && rest[1..3].iter().all(u8::is_ascii_hexdigit);
    let stray = (0..input.len()).any(|at| input[at] == b'%' && !is_escape(&input[at..]));
    // A name or value ends at `&`, and at the first `=` of its pair.
    let halves = input.split(|&byte| byte == b'&').flat_map(|pair| {
        let mut halves = pair.splitn(2, |&byte| byte == b'=');
        [
            halves.next().unwrap_or_default(),
            halves.next().unwrap_or_default(),
        ]
    });
    let mut decoded = halves.map(|half| {
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < half.len() {
            let text = str::from_utf8(half.get(at + 1..at + 3).unwrap_or_default()).unwrap_or_default();
            match u8::from_str_radix(text, 16) {
                Ok(byte) if half[at] == b'%' && is_escape(&half[at..]) => {
                    bytes.push(byte);
                    at += 3;
                }
                _ => {
                    bytes.push(half[at]);
                    at += 1;
                }
            }
        }
        bytes
    });
    stray || decoded.any(|bytes| str::from_utf8(&bytes).is_err())
}
