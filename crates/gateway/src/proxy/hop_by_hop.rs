//! Fields of a head that are not forwarded: those of the connection (RFC 9110 §7.6.1), and those that any client may forge.
//!
//! Pure. Knows no configuration.

use ringmain_wire::h1::{Fields, Known};

use crate::fault::Fault;
use crate::limits;

/// The treatment of a request field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldTreatment {
    /// Forwarded unchanged.
    EndToEnd,
    /// Belongs to the connection.
    HopByHop,
    /// Identifies the client or its request: accepted from a trusted proxy only.
    Proxy(ProxyField),
}

/// A field in which proxies report the client or the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyField {
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
pub(crate) fn treatment(known: Option<Known>, name: &[u8]) -> FieldTreatment {
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
        ) => FieldTreatment::HopByHop,
        Some(Known::Via) => FieldTreatment::Proxy(ProxyField::Via),
        Some(Known::XForwardedFor) => FieldTreatment::Proxy(ProxyField::ForwardedFor),
        Some(_) => FieldTreatment::EndToEnd,
        None => treatment_by_name(name),
    }
}

fn treatment_by_name(name: &[u8]) -> FieldTreatment {
    // A cheap check that excludes almost all names.
    if !matches!(
        name.first().map(|byte| byte | 0x20),
        Some(b'x' | b'f' | b'p' | b'h')
    ) {
        return FieldTreatment::EndToEnd;
    }
    let is_name = |other: &str| eq_folded(name, other);
    if is_name("proxy-connection") || is_name("http2-settings") {
        return FieldTreatment::HopByHop;
    }
    // A name with underscores counts as the same: some programs (CGI) treat both alike.
    if is_name("x-forwarded-for") {
        FieldTreatment::Proxy(ProxyField::ForwardedFor)
    } else if is_name("x-forwarded-proto") {
        FieldTreatment::Proxy(ProxyField::ForwardedProto)
    } else if is_name("x-forwarded-host") {
        FieldTreatment::Proxy(ProxyField::ForwardedHost)
    } else if is_name("forwarded") {
        FieldTreatment::Proxy(ProxyField::Forwarded)
    } else if is_name("x-real-ip")
        || starts_with_folded(name, "x-forwarded-")
        || starts_with_folded(name, "x-envoy-")
    {
        FieldTreatment::Proxy(ProxyField::Other)
    } else {
        FieldTreatment::EndToEnd
    }
}

/// Returns whether two names are equal, ignoring case and treating `_` as `-`.
pub(crate) fn eq_folded(name: &[u8], other: &str) -> bool {
    name.len() == other.len() && starts_with_folded(name, other)
}

pub(super) fn starts_with_folded(name: &[u8], other: &str) -> bool {
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
            .all(|(&left, &right)| fold(left) == fold(right))
}

/// The fields that a message's `Connection` lists, which are not forwarded.
pub(crate) struct ConnectionOptions<'a> {
    /// Set if it lists any option besides the usual ones.
    any: bool,
    fields: Fields<'a>,
}

impl<'a> ConnectionOptions<'a> {
    /// Reads the `Connection` fields of a message. Fails with [`Fault::ConnectionOptions`] beyond [`limits::CONNECTION_OPTIONS`].
    pub(crate) fn parse(fields: &Fields<'a>) -> Result<ConnectionOptions<'a>, Fault> {
        let mut count = 0;
        let mut any = false;
        for value in fields.all_known(Known::Connection) {
            for option in list_elements(value) {
                count += 1;
                any |= !(option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close"));
            }
        }
        if count > limits::CONNECTION_OPTIONS {
            return Err(Fault::ConnectionOptions);
        }
        Ok(ConnectionOptions { any, fields: *fields })
    }

    /// Returns whether it lists this field. Fields that identify the client or describe the content are excepted: a client that lists them
    /// wants them to be missing upstream.
    pub(crate) fn lists(&self, known: Option<Known>, name: &[u8]) -> bool {
        if !self.any {
            return false;
        }
        let values = self.fields.all_known(Known::Connection);
        let options = values
            .flat_map(list_elements)
            .any(|option| option.eq_ignore_ascii_case(name));
        options && !is_protected(known, name)
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

pub(super) fn list_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
}
