//! The differences between HTTP/1.1 readers that are allowed. `h1-differences.md` shows this list, and a test
//! holds the two together. What is not listed here fails.

use std::fmt;

use http_desync_guardian::ClassificationReason;
use ringmain_wire::h1::FaultKind;

/// A reader that ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Heads.
    Httparse,
    /// Whole conversations.
    Hyper,
    /// Judgements of request heads.
    Guardian,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Httparse => "httparse",
            Self::Hyper => "hyper",
            Self::Guardian => "guardian",
        })
    }
}

/// Why another reader does not take what we take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// hyper's `Uri` does not parse the target.
    Uri,
    /// The guardian takes a field's name for a misspelling of a framing field's.
    LookAlike,
    /// The guardian's reason for a tier of Ambiguous or Severe.
    Judged(ClassificationReason),
}

/// That a reader and ours differ about an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// We take what the reader refuses for this cause.
    Taken(Reader, Cause),
    /// We refuse with this fault what the reader takes.
    Refused(Reader, FaultKind),
}

/// Something that we take and another does not.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// What it is.
    pub input: &'static str,
    /// Who refuses it.
    pub refused_by: Reader,
    /// How it is recognised.
    pub cause: Cause,
    /// Why we take it.
    pub why: &'static str,
}

/// Something that we refuse and others take.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// What it is.
    pub input: &'static str,
    /// Who takes it.
    pub taken_by: &'static [Reader],
    /// What we say.
    pub faults: &'static [FaultKind],
    /// Why we refuse it.
    pub why: &'static str,
}

impl fmt::Display for Taken {
    /// A row of the file's table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} | {} |", self.input, self.refused_by, self.why)
    }
}

impl fmt::Display for Refused {
    /// A row of the file's table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readers: Vec<String> = self.taken_by.iter().map(Reader::to_string).collect();
        let mut statuses: Vec<u16> = self.faults.iter().map(|fault| fault.status()).collect();
        statuses.sort_unstable();
        statuses.dedup();
        let statuses: Vec<String> = statuses.iter().map(u16::to_string).collect();
        let (readers, statuses) = (readers.join(", "), statuses.join(", "));
        write!(f, "| {} | {readers} | {statuses} | {} |", self.input, self.why)
    }
}

/// The differences that two lists allow.
pub fn listed(taken: &[Taken], refused: &[Refused]) -> Vec<Difference> {
    let taken = taken
        .iter()
        .map(|row| Difference::Taken(row.refused_by, row.cause));
    let refused = refused.iter().flat_map(|row| {
        let faults = move |&reader: &Reader| {
            row.faults
                .iter()
                .map(move |&fault| Difference::Refused(reader, fault))
        };
        row.taken_by.iter().flat_map(faults)
    });
    taken.chain(refused).collect()
}

/// Whether a difference about requests is listed.
#[must_use]
pub fn is_listed_for_requests(difference: Difference) -> bool {
    listed(REQUESTS_TAKEN, REQUESTS_REFUSED).contains(&difference)
}

/// Whether a difference about responses is listed.
#[must_use]
pub fn is_listed_for_responses(difference: Difference) -> bool {
    listed(&[], RESPONSES_REFUSED).contains(&difference)
}

/// Requests that we take and another does not.
pub const REQUESTS_TAKEN: &[Taken] = &[
    Taken {
        input: "`<`, `>`, `` ` `` in a path; `<`, `>`, `\"` in a query",
        refused_by: Reader::Hyper,
        cause: Cause::Uri,
        why: "no recipient ends a target there, old clients send them unescaped, and the router compares bytes",
    },
    Taken {
        input: "GET or HEAD with `Content-Length` above 0",
        refused_by: Reader::Guardian,
        cause: Cause::Judged(ClassificationReason::UndefinedContentLengthSemantics),
        why: "RFC 9110 §9.3.1: no meaning, but framed like any body (RFC 9112 §6); search servers live by it. \
              We read or close; we never ignore it",
    },
    Taken {
        input: "GET or HEAD with `Transfer-Encoding: chunked`",
        refused_by: Reader::Guardian,
        cause: Cause::Judged(ClassificationReason::UndefinedTransferEncodingSemantics),
        why: "as above",
    },
    Taken {
        input: "`ContentLength`, `Content--Length`, `Content-Length.`, `Transfer-Encodin'` and the like as names",
        refused_by: Reader::Guardian,
        cause: Cause::LookAlike,
        why: "no recipient is known that drops or doubles characters; those that replace one are provided for",
    },
];

const ALL: &[Reader] = &[Reader::Httparse, Reader::Hyper, Reader::Guardian];
const PARSERS: &[Reader] = &[Reader::Httparse, Reader::Hyper];
const HYPER: &[Reader] = &[Reader::Hyper];

/// Requests that we refuse and others take.
pub const REQUESTS_REFUSED: &[Refused] = &[
    Refused {
        input: "LF instead of CRLF",
        taken_by: PARSERS,
        faults: &[FaultKind::BareLineFeed],
        why: "a line to one recipient, a value to another (RFC 9112 §2.2 is a MAY)",
    },
    Refused {
        input: "more than one empty line before a request",
        taken_by: PARSERS,
        faults: &[FaultKind::Method],
        why: "RFC 9112 §2.2 says one",
    },
    Refused {
        input: "an empty method",
        taken_by: &[Reader::Guardian],
        faults: &[FaultKind::Method],
        why: "RFC 9112 §3.1",
    },
    Refused {
        input: "`#`, or bytes above 0x7E, in a target",
        taken_by: ALL,
        faults: &[FaultKind::Target],
        why: "fragments are never sent (RFC 9110 §7.1); no URI has such bytes",
    },
    Refused {
        input: "`*` without OPTIONS, `a`, `ftp://a/` as target",
        taken_by: ALL,
        faults: &[FaultKind::TargetForm],
        why: "RFC 9112 §3.2",
    },
    Refused {
        input: "user information in an absolute target; `Host: a b`; CONNECT without a port",
        taken_by: ALL,
        faults: &[FaultKind::Authority],
        why: "RFC 9110 §4.2.4: phishing, and two hosts in one line; RFC 9112 §3.2; RFC 9110 §9.3.6",
    },
    Refused {
        input: "no Host",
        taken_by: ALL,
        faults: &[FaultKind::HostMissing],
        why: "RFC 9112 §3.2",
    },
    Refused {
        input: "two Hosts",
        taken_by: ALL,
        faults: &[FaultKind::HostRepeated],
        why: "RFC 9112 §3.2: recipients take the first or the last",
    },
    Refused {
        input: "CONNECT",
        taken_by: ALL,
        faults: &[FaultKind::ConnectRefused],
        why: "a tunnel must be asked for by the operator",
    },
    Refused {
        input: "more than 100 fields; anything but CRLF behind 100",
        taken_by: ALL,
        faults: &[FaultKind::TooManyFields],
        why: "a limit; others have others",
    },
    Refused {
        input: "more than 32 trailer fields, or 256 bytes of a chunk's size line",
        taken_by: HYPER,
        faults: &[FaultKind::TooManyTrailers, FaultKind::ChunkLineTooLong],
        why: "limits; others have others",
    },
    Refused {
        input: "`Content-Length` that is empty, a list, or above 2⁶³ − 1",
        taken_by: &[Reader::Httparse, Reader::Guardian],
        faults: &[FaultKind::ContentLength],
        why: "RFC 9110 §8.6; above, recipients with signed numbers differ",
    },
    Refused {
        input: "`Content-Length: 5` twice",
        taken_by: PARSERS,
        faults: &[FaultKind::ContentLengthRepeated],
        why: "recipients that take the first and the last are both out there",
    },
    Refused {
        input: "Content-Length with Transfer-Encoding",
        taken_by: PARSERS,
        faults: &[FaultKind::TransferEncodingAndLength],
        why: "request smuggling; RFC 9112 §6.1 allows both answers",
    },
    Refused {
        input: "`chunked, chunked`; an empty member before `chunked`; `chunked` not last; parameters",
        taken_by: ALL,
        faults: &[FaultKind::TransferEncoding],
        why: "RFC 9112 §6.1: not more than once, and last; §5.6.1's empty members help only attackers here",
    },
    Refused {
        input: "`gzip, chunked`",
        taken_by: ALL,
        faults: &[FaultKind::TransferCodingUnknown],
        why: "we do not undo it, so the body would be a lie",
    },
    Refused {
        input: "Transfer-Encoding in HTTP/1.0",
        taken_by: &[Reader::Httparse],
        faults: &[FaultKind::TransferEncodingOldVersion],
        why: "RFC 9112 §6.1: a framing error",
    },
    Refused {
        input: "`Transfer_Encoding`, `Content.Length`: another character for the hyphen",
        taken_by: PARSERS,
        faults: &[FaultKind::FramingNameVariant],
        why: "CGI-like recipients write `_` for it",
    },
    Refused {
        input: "an expectation other than `100-continue`",
        taken_by: ALL,
        faults: &[FaultKind::Expectation],
        why: "RFC 9110 §10.1.1",
    },
    Refused {
        input: "blanks after a chunk size without an extension; more than 16 digits",
        taken_by: HYPER,
        faults: &[FaultKind::ChunkSize],
        why: "RFC 9112 §7.1.1 has blanks before `;` only; the digits cannot be told from an attempt to overflow",
    },
    Refused {
        input: "control characters in chunk extensions",
        taken_by: HYPER,
        faults: &[FaultKind::ChunkExtension],
        why: "RFC 9110 §5.6.4",
    },
    Refused {
        input: "`Host`, `Content-Length`, `Transfer-Encoding` as trailers",
        taken_by: HYPER,
        faults: &[FaultKind::TrailerForbidden],
        why: "RFC 9110 §6.5.1; smuggling where trailers are merged",
    },
];

/// Responses that we refuse and others take.
pub const RESPONSES_REFUSED: &[Refused] = &[
    Refused {
        input: "LF instead of CRLF",
        taken_by: PARSERS,
        faults: &[FaultKind::BareLineFeed],
        why: "a line to one recipient, a value to another: response splitting",
    },
    Refused {
        input: "an empty line before a response",
        taken_by: PARSERS,
        faults: &[FaultKind::Version],
        why: "RFC 9112 §2.2 lets servers skip one, not clients",
    },
    Refused {
        input: "a status below 100",
        taken_by: &[Reader::Httparse],
        faults: &[FaultKind::StatusLine],
        why: "RFC 9110 §15: invalid",
    },
    Refused {
        input: "a start line, a head, fields, or a body beyond the small limits of the test",
        taken_by: PARSERS,
        faults: &[
            FaultKind::StartLineTooLong,
            FaultKind::HeadTooLarge,
            FaultKind::TooManyFields,
            FaultKind::BodyTooLarge,
        ],
        why: "others have other limits",
    },
    Refused {
        input: "a chunk's size line, extensions, or trailers beyond the small limits of the test",
        taken_by: HYPER,
        faults: &[
            FaultKind::ChunkLineTooLong,
            FaultKind::ChunkExtensionsTooLong,
            FaultKind::TrailersTooLarge,
            FaultKind::TooManyTrailers,
        ],
        why: "others have other limits",
    },
    Refused {
        input: "`Content-Length` that is no number, a list, or above 2⁶³ − 1",
        taken_by: PARSERS,
        faults: &[FaultKind::ContentLength],
        why: "RFC 9112 §6.3: unrecoverable",
    },
    Refused {
        input: "`Content-Length: 5` twice",
        taken_by: PARSERS,
        faults: &[FaultKind::ContentLengthRepeated],
        why: "recipients that take the first and the last are both out there",
    },
    Refused {
        input: "`chunked` doubled, not last, or with parameters; an empty member",
        taken_by: PARSERS,
        faults: &[FaultKind::TransferEncoding],
        why: "RFC 9112 §6.1; where it is not last hyper reads until close",
    },
    Refused {
        input: "`gzip, chunked`",
        taken_by: PARSERS,
        faults: &[FaultKind::TransferCodingUnknown],
        why: "we do not undo it, and did not ask for it",
    },
    Refused {
        input: "Transfer-Encoding in HTTP/1.0",
        taken_by: PARSERS,
        faults: &[FaultKind::TransferEncodingOldVersion],
        why: "RFC 9112 §6.1: treat the framing as faulty",
    },
    Refused {
        input: "`Transfer_Encoding`, `Content.Length`: another character for the hyphen",
        taken_by: PARSERS,
        faults: &[FaultKind::FramingNameVariant],
        why: "what passes them on may frame by them",
    },
    Refused {
        input: "blanks after a chunk size without an extension; more than 16 digits",
        taken_by: HYPER,
        faults: &[FaultKind::ChunkSize],
        why: "RFC 9112 §7.1.1 has blanks before `;` only; the digits cannot be told from an attempt to overflow",
    },
    Refused {
        input: "control characters in chunk extensions",
        taken_by: HYPER,
        faults: &[FaultKind::ChunkExtension],
        why: "RFC 9110 §5.6.4",
    },
    Refused {
        input: "`Host`, `Content-Length`, `Transfer-Encoding` as trailers",
        taken_by: HYPER,
        faults: &[FaultKind::TrailerForbidden],
        why: "RFC 9110 §6.5.1; smuggling where trailers are merged",
    },
];
