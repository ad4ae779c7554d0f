//! Requests as a server reads them: ours against itself in pieces, against httparse and against hyper.
//!
//! What others take and we refuse is no finding: we are meant to be the strictest. The differences that are
//! allowed in the other direction are listed in `h1-differences.md`.

use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, FieldTable, HeadScanner, Limits, Parsed, PeerFault, RequestHead, parse_request,
};

use crate::hyper_server;

/// Bytes read of an input: pipelined requests, and no more than hyper's own limits.
const INPUT_LIMIT: usize = 4096;

/// A request with its body, as a server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
}

/// Laws: no panic; cuts change nothing; a head that we take httparse takes and reads the same; the requests that
/// we take hyper sees too, with the same bodies, in the same order.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let input = &input[..input.len().min(INPUT_LIMIT)];
    let whole = read(input, &[]);
    let cut = input
        .iter()
        .fold(7_usize, |hash, &byte| hash.wrapping_mul(31) ^ usize::from(byte));
    let cuts = [cut % (input.len() + 1), (cut >> 13) % (input.len() + 1)];
    assert_eq!(
        read(input, &[cuts[0].min(cuts[1]), cuts[0].max(cuts[1])]),
        whole,
        "cut at {cuts:?}"
    );

    let theirs = hyper_server::read(input);
    for (index, ours) in whole.requests.into_iter().enumerate() {
        match (through_hyper(ours.clone()), theirs.get(index)) {
            (Some(ours), Some(theirs)) => assert_eq!(&ours, theirs, "request {index}"),
            (Some(_), None) => panic!("hyper refuses request {index}: {ours:?}"),
            (None, Some(theirs)) => panic!("request {index} has no URI, yet hyper read {theirs:?}"),
            // Difference 1 of `h1-differences.md`; hyper reads no further.
            (None, None) => break,
        }
    }
}

/// `ours` as hyper would say it; `None` if its target is no URI for the `http` crate.
fn through_hyper(ours: Seen) -> Option<Seen> {
    let target = ours.target.parse::<hyper::Uri>().ok()?.to_string();
    Some(Seen { target, ..ours })
}

/// What came of an input.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    /// Requests that were read to their end, up to the first after which the connection closes or may switch.
    requests: Vec<Seen>,
    fault: Option<PeerFault>,
}

/// Reads `input` in the pieces that end at `cuts`.
fn read(input: &[u8], cuts: &[usize]) -> Read {
    let mut reader = Reader::new();
    let mut result = Ok(true);
    for end in cuts.iter().copied().chain([input.len()]) {
        while let Ok(true) = result {
            result = reader.step(&input[..end]);
        }
        if result == Ok(false) && !reader.over {
            result = Ok(true);
        }
    }
    Read {
        requests: reader.requests,
        fault: result.err(),
    }
}

struct Reader {
    limits: Limits,
    scanner: HeadScanner,
    table: FieldTable,
    /// Bytes consumed.
    at: usize,
    body: Option<BodyDecoder>,
    open: Option<Seen>,
    last: bool,
    over: bool,
    requests: Vec<Seen>,
}

impl Reader {
    fn new() -> Self {
        let limits = Limits::default();
        Self {
            limits,
            scanner: HeadScanner::new(),
            table: FieldTable::new(&limits),
            at: 0,
            body: None,
            open: None,
            last: false,
            over: false,
            requests: Vec::new(),
        }
    }

    /// Whether there was something to do with `input`, all that has arrived.
    fn step(&mut self, input: &[u8]) -> Result<bool, PeerFault> {
        if self.over || self.at == input.len() && self.body.is_none() {
            return Ok(false);
        }
        let rest = &input[self.at..];
        let Some(body) = &mut self.body else {
            return self.head(rest);
        };
        let step = body.decode(rest)?;
        self.at += step.consumed;
        match step.event {
            BodyEvent::Data(data) => {
                let open = self.open.as_mut().expect("a body has a head");
                open.body.extend_from_slice(data);
            }
            BodyEvent::NeedMore => return Ok(false),
            BodyEvent::Trailers(trailers) => assert!(trailers.iter().all(|field| !field.name.is_empty())),
            BodyEvent::End => {
                self.body = None;
                self.requests.extend(self.open.take());
                self.over = self.last;
            }
        }
        Ok(true)
    }

    fn head(&mut self, rest: &[u8]) -> Result<bool, PeerFault> {
        let parsed = parse_request(rest, &self.limits, &mut self.scanner, &mut self.table)?;
        let Parsed::Complete { head, bytes } = parsed else {
            return Ok(false);
        };
        compare_head(rest, &head, bytes);
        self.at += bytes;
        self.last = !head.keep_alive || head.upgrade.is_some();
        self.body = Some(BodyDecoder::new(head.framing, &self.limits)?);
        self.open = Some(Seen {
            method: head.method.as_str().to_owned(),
            target: head.target_text.to_owned(),
            body: Vec::new(),
        });
        Ok(true)
    }
}

fn compare_head(input: &[u8], head: &RequestHead<'_>, bytes: usize) {
    let mut headers = [httparse::EMPTY_HEADER; 100];
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
}
