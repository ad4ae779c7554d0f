//! The attributes of a request, as an authorization service over gRPC receives them.
//!
//! They describe the request as the upstream receives it: fields of the connection and those that a client may forge are absent, and
//! fields that earlier policies write have the values of these policies.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_engine::Addr;
use ringmain_wire::h1::{Framing, Version};

use super::super::envoy_messages::value_text;
use super::super::{Cleared, PolicyInput};
use super::ExternalAuthz;
use super::messages::{
    Address, AttributeContext, AttributePeer, AttributeRequest, CheckRequest, HttpAttributes, PipeAddress,
    SocketAddress, Timestamp, TlsSession,
};
use crate::fault::Fault;
use crate::model::{GrpcCheck, HeaderName};
use crate::proxy::{
    ConnectionOptions, FieldTreatment, ProxyField, client_address, client_scheme, eq_folded, forwarded_uri,
    is_trusted_peer, treatment,
};

/// The header by which a service recognizes that it has a part of the body.
const PARTIAL_BODY: &str = "x-envoy-auth-partial-body";

/// Builds the query for a request.
///
/// # Errors
/// [`Fault::ConnectionOptions`]: the request's `Connection` lists too many options.
pub(super) fn check_request(
    authz: &ExternalAuthz,
    check: &GrpcCheck,
    at: &PolicyInput<'_, '_>,
    cleared: &Cleared,
) -> Result<CheckRequest, Fault> {
    let wall = at.worker.cx.wall();
    let tls = at.req.tls();
    let sni = tls.as_ref().and_then(|facts| facts.server_name.clone());
    let attributes = AttributeContext {
        source: Some(source(check, at)),
        destination: Some(destination(at)),
        request: Some(AttributeRequest {
            time: Some(Timestamp {
                seconds: wall.as_secs() as i64,
                nanos: wall.subsec_nanos() as i32,
            }),
            http: Some(http(authz, check, at, cleared)?),
        }),
        context_extensions: check.context.iter().cloned().collect(),
        tls_session: sni.map(|sni| TlsSession { sni }),
    };
    Ok(CheckRequest {
        attributes: Some(attributes),
    })
}

/// Returns the client, as trusted proxies report it, with the name in its certificate.
fn source(check: &GrpcCheck, at: &PolicyInput<'_, '_>) -> AttributePeer {
    let remote = at.req.remote();
    let address = client_address(at.route.listener, at.req).map(|client| {
        let port = remote.filter(|remote| remote.ip().to_canonical() == client);
        socket_address(SocketAddr::new(client, port.map_or(0, |remote| remote.port())))
    });
    let facts = at.req.tls();
    let certificate = facts.as_ref().and_then(|facts| facts.peer_certificates.first());
    AttributePeer {
        address,
        principal: facts
            .as_ref()
            .and_then(|facts| facts.peer_principal())
            .unwrap_or_default()
            .to_owned(),
        certificate: match certificate.filter(|_| check.certificate) {
            Some(der) => escaped_pem(der),
            None => String::new(),
        },
    }
}

/// Returns the side of the connection that the client has connected to.
fn destination(at: &PolicyInput<'_, '_>) -> AttributePeer {
    let conn = at.req.cx().conn(at.req.connection());
    let address = match conn.local_addr() {
        Ok(Some(Addr::Inet(address))) => Some(socket_address(address)),
        Ok(Some(Addr::Unix(path))) => Some(Address {
            pipe: Some(PipeAddress {
                path: path.to_string_lossy().into_owned(),
            }),
            socket: None,
        }),
        _ => None,
    };
    AttributePeer {
        address,
        ..AttributePeer::default()
    }
}

fn socket_address(address: SocketAddr) -> Address {
    Address {
        socket: Some(SocketAddress {
            address: address.ip().to_canonical().to_string(),
            port: address.port().into(),
        }),
        pipe: None,
    }
}

fn http(
    authz: &ExternalAuthz,
    check: &GrpcCheck,
    at: &PolicyInput<'_, '_>,
    cleared: &Cleared,
) -> Result<HttpAttributes, Fault> {
    let head = at.req.head();
    let mut attributes = HttpAttributes {
        id: at.req.id().map(ToString::to_string).unwrap_or_default(),
        method: head.method.as_str().to_owned(),
        path: forwarded_uri(at.route, at.req),
        host: at.req.host().unwrap_or_default().to_owned(),
        scheme: client_scheme(at.route.listener, at.req).to_owned(),
        size: match head.framing {
            Framing::None => 0,
            Framing::Length(length) => length as i64,
            Framing::Chunked | Framing::UntilClose => match cleared.complete_body() {
                Some(body) => body.len() as i64,
                None => -1,
            },
        },
        protocol: match at.req.version() {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        }
        .to_owned(),
        ..HttpAttributes::default()
    };
    attributes.headers = headers(authz, at, cleared, &attributes)?;
    let all = authz.body(cleared);
    let is_empty = all.is_empty() && cleared.complete_body().is_some();
    if authz.policy.body > 0 && cleared.body().is_some() && !is_empty {
        let part = &all[..all.len().min(authz.policy.body as usize)];
        let is_partial = part.len() < all.len() || cleared.complete_body().is_none();
        let value = if is_partial { "true" } else { "false" };
        attributes
            .headers
            .insert(PARTIAL_BODY.to_owned(), value.to_owned());
        // A body that is not UTF-8 can only be sent as bytes. The end of a part may be within a character.
        match str::from_utf8(part) {
            Ok(text) if !check.raw_body => text.clone_into(&mut attributes.body),
            _ => attributes.raw_body = part.to_vec(),
        }
    }
    Ok(attributes)
}

/// Returns the request's headers by name, in lower case; pseudo-header fields have a colon in front.
fn headers(
    authz: &ExternalAuthz,
    at: &PolicyInput<'_, '_>,
    cleared: &Cleared,
    attributes: &HttpAttributes,
) -> Result<BTreeMap<String, String>, Fault> {
    let mut headers = BTreeMap::new();
    let head = at.req.head();
    let trusted = is_trusted_peer(at.route.listener, at.req);
    let options = ConnectionOptions::parse(&head.fields)?;
    for (known, field) in head.fields.iter_known() {
        let is_forwarded = match treatment(known, field.name) {
            FieldTreatment::EndToEnd => true,
            FieldTreatment::Proxy(ProxyField::Other | ProxyField::Via) => trusted,
            FieldTreatment::Proxy(_) | FieldTreatment::HopByHop => false,
        };
        if is_forwarded && !options.lists(known, field.name) && authz.sends(field.name, cleared) {
            add(&mut headers, field.name, field.value);
        }
    }
    if let Framing::Length(length) = head.framing
        && authz.sends(b"content-length", cleared)
    {
        headers.insert("content-length".to_owned(), length.to_string());
    }
    for (name, value) in [
        (":method", &attributes.method),
        (":path", &attributes.path),
        (":authority", &attributes.host),
        (":scheme", &attributes.scheme),
        ("x-forwarded-proto", &attributes.scheme),
        ("x-forwarded-host", &attributes.host),
    ] {
        headers.insert(name.to_owned(), value.clone());
    }
    if let Some(client) = client_address(at.route.listener, at.req) {
        headers.insert("x-forwarded-for".to_owned(), client.to_string());
    }
    for (name, value) in cleared.upstream_headers().iter() {
        add(&mut headers, name.as_bytes(), value);
    }
    Ok(headers)
}

impl ExternalAuthz {
    /// Returns whether the service receives this field of the client.
    fn sends(&self, name: &[u8], cleared: &Cleared) -> bool {
        let is_name = |own: &HeaderName| eq_folded(name, own.as_str());
        let is_listed = || {
            let listed = &self.policy.request_headers;
            let is_listed = |own: &HeaderName| name.eq_ignore_ascii_case(own.as_str().as_bytes());
            listed.is_empty() || listed.iter().any(is_listed)
        };
        let is_hidden_cookie = !self.policy.cookies && name.eq_ignore_ascii_case(b"cookie");
        let is_replaced = self.written.iter().any(is_name) || cleared.has_replaced(name);
        !is_replaced && !is_hidden_cookie && !eq_folded(name, PARTIAL_BODY) && is_listed()
    }
}

/// Adds a value. Several of a name are joined, as in one field (RFC 9110 §5.3, RFC 6265 §5.4).
fn add(headers: &mut BTreeMap<String, String>, name: &[u8], value: &[u8]) {
    // Names are tokens, and so ASCII.
    let mut name = String::from_utf8_lossy(name).into_owned();
    name.make_ascii_lowercase();
    let value = value_text(value);
    match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(value);
        }
        Entry::Occupied(mut entry) => {
            let separator = if entry.key() == "cookie" { "; " } else { "," };
            let joined = entry.get_mut();
            joined.push_str(separator);
            joined.push_str(&value);
        }
    }
}

/// Returns a certificate as PEM, percent-encoded.
fn escaped_pem(der: &[u8]) -> String {
    const NEW_LINE: &str = "%0A";
    let base64 = STANDARD.encode(der);
    let mut text = format!("-----BEGIN%20CERTIFICATE-----{NEW_LINE}");
    for line in base64.as_bytes().chunks(64) {
        for &byte in line {
            match byte {
                b'+' => text.push_str("%2B"),
                b'/' => text.push_str("%2F"),
                b'=' => text.push_str("%3D"),
                byte => text.push(char::from(byte)),
            }
        }
        text.push_str(NEW_LINE);
    }
    text.push_str("-----END%20CERTIFICATE-----");
    text.push_str(NEW_LINE);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_name_are_joined() {
        let mut headers = BTreeMap::new();
        for (name, value) in [
            ("X-A", &b"1"[..]),
            ("cookie", b"a=b"),
            ("x-a", b"2"),
            ("Cookie", b"c=d"),
            ("x-b", b"caf\xe9\xff"),
        ] {
            add(&mut headers, name.as_bytes(), value);
        }
        let expect = [("cookie", "a=b; c=d"), ("x-a", "1,2"), ("x-b", "caf!!")];
        let found: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_certificate_is_percent_encoded() {
        assert_eq!(
            escaped_pem(&[0xfb, 0xff, 0xfe, 0x00]),
            "-----BEGIN%20CERTIFICATE-----%0A%2B%2F%2F%2BAA%3D%3D%0A-----END%20CERTIFICATE-----%0A"
        );
    }
}
