//! Whatever head we take, httparse takes too and reads the same from it. What it takes beyond that is listed in
//! `fuzz/h1-differences.md`.

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Method, Parsed, parse_request, parse_response};

use crate::h1::corpus::{REQUESTS, RESPONSES};
use crate::h1::support::Rng;

fn check_request(limits: &Limits, input: &[u8]) -> bool {
    let mut table = FieldTable::new(limits);
    let Ok(Parsed::Complete { head, bytes }) =
        parse_request(input, limits, &mut HeadScanner::new(), &mut table)
    else {
        return false;
    };
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut theirs = httparse::Request::new(&mut headers);
    let parsed = theirs.parse(input);
    assert_eq!(
        parsed,
        Ok(httparse::Status::Complete(bytes)),
        "`{}`",
        input.escape_ascii()
    );
    assert_eq!(theirs.method, Some(head.method.as_str()));
    assert_eq!(theirs.path, Some(head.target_text));
    assert_eq!(theirs.version, Some(head.version as u8));
    let fields = head.fields.iter().map(|field| (field.name, field.value));
    assert!(
        fields.eq(theirs.headers.iter().map(|h| (h.name.as_bytes(), h.value))),
        "`{}`",
        input.escape_ascii()
    );
    true
}

fn check_response(limits: &Limits, input: &[u8]) -> bool {
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(limits));
    let Ok(Parsed::Complete { head, bytes }) =
        parse_response(input, Method::Get, limits, &mut scanner, &mut table)
    else {
        return false;
    };
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut theirs = httparse::Response::new(&mut headers);
    let parsed = theirs.parse(input);
    assert_eq!(
        parsed,
        Ok(httparse::Status::Complete(bytes)),
        "`{}`",
        input.escape_ascii()
    );
    assert_eq!(theirs.code, Some(head.status));
    let fields = head.fields.iter().map(|field| (field.name, field.value));
    assert!(
        fields.eq(theirs.headers.iter().map(|h| (h.name.as_bytes(), h.value))),
        "`{}`",
        input.escape_ascii()
    );
    true
}

/// Changes some bytes of `input`, mostly to ones that mean something.
fn mutate(rng: &mut Rng, input: &str) -> Vec<u8> {
    let mut input = input.as_bytes().to_vec();
    for _ in 0..rng.below(4) {
        let at = rng.below(input.len());
        let byte = if rng.below(3) == 0 {
            rng.next() as u8
        } else {
            b"\r\n\t :/?#%\0\x7f\x80aZ0"[rng.below(15)]
        };
        match rng.below(3) {
            0 => input[at] = byte,
            1 => input.insert(at, byte),
            _ if input.len() > 1 => drop(input.remove(at)),
            _ => {}
        }
    }
    input
}

#[test]
fn what_we_take_httparse_takes() {
    let limits = Limits {
        connect: true,
        ..Limits::default()
    };
    let mut taken = (0, 0);
    for seed in 0..40_000 {
        let mut rng = Rng(seed);
        let request = mutate(&mut rng, REQUESTS[seed as usize % REQUESTS.len()]);
        taken.0 += usize::from(check_request(&limits, &request));
        let response = mutate(&mut rng, RESPONSES[seed as usize % RESPONSES.len()].1);
        taken.1 += usize::from(check_response(&limits, &response));
    }
    assert!(
        taken.0 > 4000 && taken.1 > 4000,
        "most inputs are refused, so nothing is compared: {taken:?}"
    );
}
