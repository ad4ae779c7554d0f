//! Fields behind a body (RFC 9110 §6.5): which of them go further, and who is told that they come.
//!
//! Pure. An answer's go to clients that have said `TE: trailers`, a request's to every upstream; both only behind chunks.
//! What a recipient might merge into a head and act upon goes nowhere: a trailer is read by nobody who guards.

use ringmain_wire::h1::{FieldBlock, Fields, Known, Trailers};

use super::fields::{Claim, Sort, is_folded, options, sort, starts_folded};
use crate::model::HeaderName;
use crate::plan::Changes;

/// What must be known when an answer's trailers come, long after its head.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    /// Names that the rule has changed in the head.
    dropped: Box<[HeaderName]>,
    /// The values of the head's `Connection`.
    connection: Vec<u8>,
}

impl Sieve {
    /// For a head with these fields.
    pub(super) fn of(fields: &Fields<'_>, changes: &Changes) -> Sieve {
        let mut connection = Vec::new();
        for value in fields.all_known(Known::Connection) {
            connection.extend_from_slice(value);
            connection.push(b',');
        }
        Sieve {
            dropped: changes.dropped().into(),
            connection,
        }
    }

    /// Whether a field of that name goes further.
    pub(super) fn passes(&self, name: &[u8]) -> bool {
        let dropped = |own: &HeaderName| is_folded(name, own.as_str());
        is_allowed(name)
            && !self.dropped.iter().any(dropped)
            && !options(&self.connection).any(|option| option.eq_ignore_ascii_case(name))
    }

    /// What goes further of an answer's.
    pub(super) fn sift(&self, trailers: &Trailers<'_>) -> FieldBlock {
        let mut block = FieldBlock::new();
        for field in trailers.iter().filter(|field| self.passes(field.name)) {
            // Names are tokens, and values were checked when they were parsed.
            let name = str::from_utf8(field.name).unwrap_or_default();
            let _ = block.push(name, field.value);
        }
        block
    }

    /// What goes further of a request's.
    pub(super) fn sift_block(&self, trailers: &FieldBlock) -> FieldBlock {
        let mut block = FieldBlock::new();
        for (name, value) in trailers.iter().filter(|(name, _)| self.passes(name.as_bytes())) {
            let _ = block.push(name, value);
        }
        block
    }

    /// What a head's `Trailer` announces of what goes further, into `text`; empty: nothing.
    pub(super) fn announce(&self, fields: &Fields<'_>, text: &mut Vec<u8>) {
        text.clear();
        for name in fields.all_known(Known::Trailer).flat_map(options) {
            if self.passes(name) {
                if !text.is_empty() {
                    text.extend_from_slice(b", ");
                }
                text.extend_from_slice(name);
            }
        }
    }
}

/// Whether a client reads what follows an answer's body.
pub(super) fn wanted(fields: &Fields<'_>) -> bool {
    let mut members = fields.all_known(Known::Te).flat_map(options);
    members.any(|member| member.eq_ignore_ascii_case(b"trailers"))
}

/// Names that no trailer may have, besides those that begin as below: what frames and routes a message, modifies or authorises
/// a request, controls an answer or says how its content is to be read (RFC 9110 §6.5.1).
const FORBIDDEN: [&str; 22] = [
    "age",
    "alt-svc",
    "authentication-info",
    "clear-site-data",
    "early-data",
    "expires",
    "http2-settings",
    "link",
    "max-forwards",
    "pragma",
    "priority",
    "proxy-connection",
    "refresh",
    "retry-after",
    "set-cookie2",
    "strict-transport-security",
    "tk",
    "true-client-ip",
    "vary",
    "warning",
    "www-authenticate",
    "x-http-method-override",
];

const FORBIDDEN_STARTS: [&str; 9] = [
    "accept",
    "access-control-",
    "cf-",
    "content-encoding",
    "content-range",
    "content-security-",
    "if-",
    "proxy-",
    "sec-",
];

fn is_allowed(name: &[u8]) -> bool {
    // All that a head is read for here, but for what proxies add on their way.
    if Known::of(name).is_some() {
        return false;
    }
    match sort(None, name) {
        Sort::EndToEnd => {}
        Sort::HopByHop | Sort::Claim(Claim::Via | Claim::Other) | Sort::Claim(_) => return false,
    }
    let known = |other: &&str| is_folded(name, other);
    let starts = |start: &&str| starts_folded(name, start);
    // Whoever reads `_` as `-` sees a name that is known.
    let folded = || Known::ALL.iter().any(|known| is_folded(name, known.name()));
    !FORBIDDEN.iter().any(known) && !FORBIDDEN_STARTS.iter().any(starts) && !folded()
}
