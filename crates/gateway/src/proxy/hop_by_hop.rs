//! Fields of a head that are not forwarded: those of the connection (RFC 9110 §7.6.1), and those that any client may forge.
//!
//! Pure. Knows no configuration.

use ringmain_wire::h1::{Fields, Known};

use crate::fault::Fault;
use crate::limits;

/// The treatment of a request field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Forwarded unchanged.
    EndToEnd,
    /// Belongs to the connection.
    HopByHop,
    /// Identifies the client or its request: accepted from a trusted proxy only.
    Claim(Claim),
}

/// A field in which proxies report the client or the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    ForwardedFor,
    ForwardedProto,
    ForwardedHost,
    Forwarded,
    /// `X-Real-IP`, `X-Forwarded-Port` and the like: forwarded or dropped, never written.
    Other,
    /// The path of the request; extended, never dropped.
    Via,
}

/// Returns the treatment of a request field.
pub(super) fn sort(known: Option<Known>, name: &[u8]) -> Sort {
    match known {
        Some(
            Known::Connection
            | Known::ContentLength
            | Known::Expect
            | Known::Host
            | Known::KeepAlive
            | Known::Te
            | Known::Trailer
            | Known::TransferEncoding
            | Known::Upgrade,
        ) => Sort::HopByHop,
        Some(Known::Via) => Sort::Claim(Claim::Via),
        Some(Known::XForwardedFor) => Sort::Claim(Claim::ForwardedFor),
        Some(_) => Sort::EndToEnd,
        None => sort_unknown(name),
    }
}

fn sort_unknown(name: &[u8]) -> Sort {
    // A cheap check that excludes almost all names.
    if !matches!(
        name.first().map(|byte| byte | 0x20),
        Some(b'x' | b'f' | b'p' | b'h')
    ) {
        return Sort::EndToEnd;
    }
    let is = |other: &str| is_folded(name, other);
    if is("proxy-connection") || is("http2-settings") {
        return Sort::HopByHop;
    }
    // A name with underscores counts as the same: some programs (CGI) treat both alike.
    if is("x-forwarded-for") {
        Sort::Claim(Claim::ForwardedFor)
    } else if is("x-forwarded-proto") {
        Sort::Claim(Claim::ForwardedProto)
    } else if is("x-forwarded-host") {
        Sort::Claim(Claim::ForwardedHost)
    } else if is("forwarded") {
        Sort::Claim(Claim::Forwarded)
    } else if is("x-real-ip") || starts_folded(name, "x-forwarded-") || starts_folded(name, "x-envoy-") {
        Sort::Claim(Claim::Other)
    } else {
        Sort::EndToEnd
    }
}

/// Returns whether two names are equal, ignoring case and treating `_` as `-`.
pub(crate) fn is_folded(name: &[u8], other: &str) -> bool {
    name.len() == other.len() && starts_folded(name, other)
}

pub(super) fn starts_folded(name: &[u8], other: &str) -> bool {
    let fold = |byte: u8| {
        if byte == b'_' {
            b'-'
        } else {
            byte.to_ascii_lowercase()
        }
    };
    name.len() >= other.len()
        && name
            .iter()
            .zip(other.as_bytes())
            .all(|(&one, &two)| fold(one) == fold(two))
}

/// The fields that a message's `Connection` lists, which are not forwarded.
pub(super) struct Named<'a> {
    /// Set if it lists any option besides the usual ones.
    any: bool,
    fields: Fields<'a>,
}

impl<'a> Named<'a> {
    /// Reads the `Connection` fields of a message. Fails with [`Fault::ConnectionOptions`] beyond [`limits::CONNECTION_OPTIONS`].
    pub(super) fn of(fields: &Fields<'a>) -> Result<Named<'a>, Fault> {
        let mut count = 0;
        let mut any = false;
        for value in fields.all_known(Known::Connection) {
            for option in options(value) {
                count += 1;
                any |= !(option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close"));
            }
        }
        if count > limits::CONNECTION_OPTIONS {
            return Err(Fault::ConnectionOptions);
        }
        Ok(Named { any, fields: *fields })
    }

    /// Returns whether it lists this field. Fields that identify the client or describe the content are excepted: a client that lists them
    /// wants them to be missing upstream.
    pub(super) fn has(&self, known: Option<Known>, name: &[u8]) -> bool {
        if !self.any {
            return false;
        }
        let values = self.fields.all_known(Known::Connection);
        let named = values
            .flat_map(options)
            .any(|option| option.eq_ignore_ascii_case(name));
        named && !is_protected(known, name)
    }
}

fn is_protected(known: Option<Known>, name: &[u8]) -> bool {
    match known {
        // A well-known field is end-to-end, or was treated before.
        Some(_) => true,
        None => {
            name.get(..8)
                .is_some_and(|start| start.eq_ignore_ascii_case(b"content-"))
                || name.eq_ignore_ascii_case(b"proxy-authorization")
        }
    }
}

pub(super) fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
}
