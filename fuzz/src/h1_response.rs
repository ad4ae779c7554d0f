//! Responses as a client reads them: ours against itself in pieces, against httparse and hyper.
//!
//! The first byte of an input says the request's method and whether the limits are small; the rest is what the
//! server sends before it closes. What differs must be listed in `differences`.

use ringmain_wire::h1::{
    FaultKind, FieldTable, HeadScanner, Limits, Method, Parsed, PeerFault, ResponseHead, parse_response,
};

use crate::conversation::{self, Conversation, Head, Seen};
use crate::differences::{Difference, Reader, is_listed_for_responses};
use crate::hyper_client;

/// Bytes read of an input: several responses, and no more than hyper's own limits.
const INPUT_LIMIT: usize = 4096;

/// Fields that httparse may hold: more than we take.
const HTTPARSE_FIELDS: usize = 128;

/// Limits that a small input reaches.
const SMALL: Limits = Limits {
    head_bytes: 256,
    start_line_bytes: 64,
    fields: 8,
    chunk_line_bytes: 32,
    chunk_extension_bytes: 48,
    trailer_bytes: 64,
    trailer_fields: 2,
    body_bytes: Some(64),
    connect: true,
};

/// Laws: no panic; cuts change nothing; what is kept of an input stays within the limits; what we take the others
/// take too and read the same; what they take and we refuse is listed.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    for difference in differences(input) {
        assert!(
            is_listed_for_responses(difference),
            "{difference:?} is not listed"
        );
    }
}

/// How the readers differ about an input.
///
/// # Panics
/// When a law is broken that has nothing to do with the list.
#[must_use]
pub fn differences(input: &[u8]) -> Vec<Difference> {
    let Some((&control, input)) = input.split_first() else {
        return Vec::new();
    };
    let input = &input[..input.len().min(INPUT_LIMIT)];
    let method = [Method::Get, Method::Head, Method::Connect, Method::Post][usize::from(control % 4)];
    let limits = if control & 4 == 0 {
        Limits::default()
    } else {
        SMALL
    };
    let read_head = |input: &[u8], limits: &Limits, scanner: &mut HeadScanner, table: &mut FieldTable| {
        read_head(input, method, limits, scanner, table)
    };
    let ours = conversation::read(input, &[], &limits, &read_head);
    let cuts = conversation::cuts(input);
    let in_pieces = conversation::read(input, &cuts, &limits, &read_head);
    assert_eq!(in_pieces, ours, "cut at {cuts:?}");

    for &(at, bytes) in &ours.heads {
        compare_head(&input[at..], method, bytes, &limits);
    }
    let mut differences = Vec::new();
    if let (Some(fault), Some(at)) = (ours.fault, ours.refused_at)
        && httparse_takes(&input[at..])
    {
        differences.push(Difference::Refused(Reader::Httparse, fault.kind));
    }
    let theirs = hyper_client::read(input, method.as_str());
    if let Some(fault) = compare_with_hyper(&ours, theirs) {
        differences.push(Difference::Refused(Reader::Hyper, fault));
    }
    differences
}

fn read_head(
    input: &[u8],
    method: Method<'_>,
    limits: &Limits,
    scanner: &mut HeadScanner,
    table: &mut FieldTable,
) -> Result<Option<Head>, PeerFault> {
    let parsed = parse_response(input, method, limits, scanner, table)?;
    Ok(conversation::whole(parsed, |head: ResponseHead<'_>, bytes| {
        Head {
            start: vec![head.status.to_string()],
            framing: head.framing,
            bytes,
            last: !head.keep_alive && !head.is_interim(),
        }
    }))
}

/// A head that we take: `bytes` at the start of `input`.
fn compare_head(input: &[u8], method: Method<'_>, bytes: usize, limits: &Limits) {
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(limits));
    let parsed = parse_response(input, method, limits, &mut scanner, &mut table);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        panic!("a head that was taken is taken again, not {parsed:?}");
    };
    assert!(bytes <= limits.head_bytes as usize, "a head within its limit");
    assert!(
        head.fields.iter().count() <= usize::from(limits.fields),
        "fields within their limit"
    );
    assert!(
        !(head.keep_alive && head.switches),
        "a tunnel carries no responses"
    );
    let mut headers = [httparse::EMPTY_HEADER; HTTPARSE_FIELDS];
    let mut theirs = httparse::Response::new(&mut headers);
    assert_eq!(
        theirs.parse(input),
        Ok(httparse::Status::Complete(bytes)),
        "httparse takes what we take"
    );
    assert_eq!(theirs.code, Some(head.status));
    assert_eq!(theirs.version, Some(head.version as u8));
    // httparse leaves out a reason that is not ASCII.
    if head.reason.is_ascii() {
        assert_eq!(theirs.reason.map(str::as_bytes), Some(head.reason));
    }
    let fields = head.fields.iter().map(|field| (field.name, field.value));
    let theirs = theirs
        .headers
        .iter()
        .map(|header| (header.name.as_bytes(), header.value));
    assert!(fields.eq(theirs), "the same fields");
}

fn httparse_takes(input: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; HTTPARSE_FIELDS];
    let taken = httparse::Response::new(&mut headers).parse(input);
    taken.is_ok_and(|status| status.is_complete())
}

/// `theirs` is the first final response. The fault with which we refuse what hyper takes.
fn compare_with_hyper(ours: &Conversation, theirs: Option<Seen>) -> Option<FaultKind> {
    let is_final = |seen: &&Seen| !seen.start[0].starts_with('1') || seen.start[0] == "101";
    match (ours.messages.iter().find(is_final), theirs, ours.fault) {
        (Some(ours), Some(theirs), _) => assert_eq!(ours, &theirs, "the same response"),
        (Some(ours), None, _) => panic!("hyper refuses {ours:?}"),
        (None, Some(_), Some(fault)) => return Some(fault.kind),
        (None, Some(theirs), None) => panic!("we wait for more, yet hyper read {theirs:?}"),
        (None, None, _) => {}
    }
    None
}
