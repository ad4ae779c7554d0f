//! Requests as a server reads them: ours against itself in pieces, against httparse, hyper and the guardian.
//!
//! What differs must be listed in `differences`.

use ringmain_wire::h1::{FaultKind, Limits, Parsed, PeerFault, RequestHead, parse_request};
use ringmain_wire::h1::{FieldTable, HeadScanner, Version};

use crate::conversation::{self, Conversation, Head, Seen};
use crate::differences::{Cause, Difference, Reader, is_listed_for_requests};
use crate::{guardian, hyper_server};

/// Bytes read of an input: pipelined requests, and no more than hyper's own limits.
const INPUT_LIMIT: usize = 4096;

/// Fields that httparse may hold: more than we take.
const HTTPARSE_FIELDS: usize = 128;

/// Laws: no panic; cuts change nothing; what we take the others take too and read the same; what they take and we
/// refuse is listed, and so is the little that we take and they do not.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    for difference in differences(input) {
        assert!(is_listed_for_requests(difference), "{difference:?} is not listed");
    }
}

/// How the readers differ about an input.
///
/// # Panics
/// When a law is broken that has nothing to do with the list.
#[must_use]
pub fn differences(input: &[u8]) -> Vec<Difference> {
    let input = &input[..input.len().min(INPUT_LIMIT)];
    let limits = Limits::default();
    let ours = conversation::read(input, &[], &limits, &read_head);
    let cuts = conversation::cuts(input);
    let in_pieces = conversation::read(input, &cuts, &limits, &read_head);
    assert_eq!(in_pieces, ours, "cut at {cuts:?}");

    let mut differences = Vec::new();
    for &(at, bytes) in &ours.heads {
        compare_head(&input[at..], bytes, &limits, &mut differences);
    }
    if let (Some(fault), Some(at)) = (ours.fault, ours.refused_at) {
        compare_refused_head(&input[at..], fault.kind, &mut differences);
    }
    compare_with_hyper(&ours, &hyper_server::read(input), &mut differences);
    differences
}

fn read_head(
    input: &[u8],
    limits: &Limits,
    scanner: &mut HeadScanner,
    table: &mut FieldTable,
) -> Result<Option<Head>, PeerFault> {
    let parsed = parse_request(input, limits, scanner, table)?;
    Ok(conversation::whole(parsed, |head: RequestHead<'_>, bytes| Head {
        start: vec![head.method.as_str().to_owned(), head.target_text.to_owned()],
        framing: head.framing,
        bytes,
        last: !head.keep_alive || head.upgrade.is_some(),
    }))
}

/// A head that we take: `bytes` at the start of `input`.
fn compare_head(input: &[u8], bytes: usize, limits: &Limits, differences: &mut Vec<Difference>) {
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(limits));
    let parsed = parse_request(input, limits, &mut scanner, &mut table);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        panic!("a head that was taken is taken again, not {parsed:?}");
    };
    let mut headers = [httparse::EMPTY_HEADER; HTTPARSE_FIELDS];
    let mut theirs = httparse::Request::new(&mut headers);
    assert_eq!(
        theirs.parse(input),
        Ok(httparse::Status::Complete(bytes)),
        "httparse takes what we take"
    );
    assert_eq!(theirs.method, Some(head.method.as_str()));
    assert_eq!(theirs.path, Some(head.target_text));
    assert_eq!(theirs.version, Some(head.version as u8));
    let fields = head.fields.iter().map(|field| (field.name, field.value));
    let theirs = theirs
        .headers
        .iter()
        .map(|header| (header.name.as_bytes(), header.value));
    assert!(fields.eq(theirs), "the same fields");

    compare_with_guardian(&head, differences);
}

/// A head that we take, without the names that the guardian misreads.
fn compare_with_guardian(head: &RequestHead<'_>, differences: &mut Vec<Difference>) {
    let version = match head.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => unreachable!("this reader knows no such line"),
    };
    let mut text = format!("{} {} {version}\r\n", head.method.as_str(), head.target_text).into_bytes();
    for field in head.fields.iter() {
        if guardian::is_look_alike(field.name) {
            differences.push(Difference::Taken(Reader::Guardian, Cause::LookAlike));
            continue;
        }
        for part in [field.name, b": ", field.value, b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    let judgement = guardian::judge(&text).expect("it looks at versions 1.0 and 1.1");
    if judgement.is_dangerous() {
        let cause = Cause::Judged(judgement.reason);
        differences.push(Difference::Taken(Reader::Guardian, cause));
    }
}

/// A head at the start of `input` that we refuse.
fn compare_refused_head(input: &[u8], fault: FaultKind, differences: &mut Vec<Difference>) {
    let mut headers = [httparse::EMPTY_HEADER; HTTPARSE_FIELDS];
    let taken = httparse::Request::new(&mut headers).parse(input);
    if taken.is_ok_and(|status| status.is_complete()) {
        differences.push(Difference::Refused(Reader::Httparse, fault));
    }
    if guardian::judge(input).is_some_and(guardian::Judgement::is_compliant) {
        differences.push(Difference::Refused(Reader::Guardian, fault));
    }
}

fn compare_with_hyper(ours: &Conversation, theirs: &[Seen], differences: &mut Vec<Difference>) {
    for (index, ours) in ours.messages.iter().enumerate() {
        match (through_hyper(ours), theirs.get(index)) {
            (Some(ours), Some(theirs)) => assert_eq!(&ours, theirs, "request {index}"),
            (Some(_), None) => panic!("hyper refuses request {index}: {ours:?}"),
            (None, Some(theirs)) => panic!("request {index} has no URI, yet hyper read {theirs:?}"),
            (None, None) => {
                differences.push(Difference::Taken(Reader::Hyper, Cause::Uri));
                // hyper reads no further.
                return;
            }
        }
    }
    if let Some(fault) = ours.fault
        && theirs.len() > ours.messages.len()
    {
        differences.push(Difference::Refused(Reader::Hyper, fault.kind));
    }
}

/// `ours` as hyper would say it; `None` if its target is no URI for the `http` crate.
fn through_hyper(ours: &Seen) -> Option<Seen> {
    let target = ours.start[1].parse::<hyper::Uri>().ok()?.to_string();
    Some(Seen {
        start: vec![ours.start[0].clone(), target],
        body: ours.body.clone(),
    })
}
