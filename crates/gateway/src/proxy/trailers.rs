//! Trailers (RFC 9110 §6.5): which are forwarded, and the fields that announce them.
//!
//! Pure. Response trailers are forwarded to clients that have sent `TE: trailers`, request trailers to every upstream; both only after a
//! chunked body. A field that a recipient might merge into the head and act upon is dropped, since policies do not inspect trailers.

use ringmain_wire::h1::{FieldBlock, Fields, Known, Trailers};

use super::hop_by_hop::{
    FieldTreatment, ProxyField, eq_folded, list_elements, starts_with_folded, treatment,
};
use crate::compile::plan::HeaderEdits;
use crate::model::HeaderName;

/// The filter of trailers, which arrive long after their head.
#[derive(Debug, Default)]
pub(super) struct TrailerFilter {
    /// Names that the rule has changed in the head.
    dropped: Box<[HeaderName]>,
    /// The values of the head's `Connection` fields.
    connection: Vec<u8>,
}

impl TrailerFilter {
    /// Creates a filter for a head with these fields.
    pub(super) fn for_head(fields: &Fields<'_>, changes: &HeaderEdits) -> TrailerFilter {
        let mut connection = Vec::new();
        for value in fields.all_known(Known::Connection) {
            connection.extend_from_slice(value);
            connection.push(b',');
        }
        TrailerFilter {
            dropped: changes.removed_names().into(),
            connection,
        }
    }

    /// Returns whether a field of this name is forwarded.
    pub(super) fn is_forwarded(&self, name: &[u8]) -> bool {
        let dropped = |dropped_name: &HeaderName| eq_folded(name, dropped_name.as_str());
        is_allowed(name)
            && !self.dropped.iter().any(dropped)
            && !list_elements(&self.connection).any(|option| option.eq_ignore_ascii_case(name))
    }

    /// Returns the fields to forward of a response.
    pub(super) fn filter_response(&self, trailers: &Trailers<'_>) -> FieldBlock {
        let mut block = FieldBlock::new();
        for field in trailers.iter().filter(|field| self.is_forwarded(field.name)) {
            // Names are tokens, and values were checked when they were parsed.
            let name = str::from_utf8(field.name).unwrap_or_default();
            let _ = block.push(name, field.value);
        }
        block
    }

    /// Returns the fields to forward of a request.
    pub(super) fn filter_request(&self, trailers: &FieldBlock) -> FieldBlock {
        let mut block = FieldBlock::new();
        for (name, value) in trailers
            .iter()
            .filter(|(name, _)| self.is_forwarded(name.as_bytes()))
        {
            let _ = block.push(name, value);
        }
        block
    }

    /// Writes to `text` the names in the head's `Trailer` that are forwarded; empty: none.
    pub(super) fn write_announcement(&self, fields: &Fields<'_>, text: &mut Vec<u8>) {
        text.clear();
        for name in fields.all_known(Known::Trailer).flat_map(list_elements) {
            if self.is_forwarded(name) {
                if !text.is_empty() {
                    text.extend_from_slice(b", ");
                }
                text.extend_from_slice(name);
            }
        }
    }
}

/// Returns whether a client accepts trailers.
pub(super) fn accepts_trailers(fields: &Fields<'_>) -> bool {
    let mut members = fields.all_known(Known::Te).flat_map(list_elements);
    members.any(|member| member.eq_ignore_ascii_case(b"trailers"))
}

/// Names that no trailer may have, besides those with the prefixes below: fields that frame or route a message, modify or authorize a
/// request, control a response or define how its content is processed (RFC 9110 §6.5.1).
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
    // Fields with a known name are meant for heads, except those that proxies add.
    if Known::of(name).is_some() {
        return false;
    }
    match treatment(None, name) {
        FieldTreatment::EndToEnd => {}
        FieldTreatment::HopByHop
        | FieldTreatment::Proxy(ProxyField::Via | ProxyField::Other)
        | FieldTreatment::Proxy(_) => return false,
    }
    let known = |other: &&str| eq_folded(name, other);
    let starts = |start: &&str| starts_with_folded(name, start);
    // A recipient that treats `_` as `-` reads a known name.
    let folded = || Known::ALL.iter().any(|known| eq_folded(name, known.name()));
    !FORBIDDEN.iter().any(known) && !FORBIDDEN_STARTS.iter().any(starts) && !folded()
}
