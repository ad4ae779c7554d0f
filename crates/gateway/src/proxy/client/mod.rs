//! The client as trusted proxies report it: its address ([`ClientAddress`]), and the URL that it requested (`url`).

mod url;

use std::net::{IpAddr, SocketAddr};

use ringmain_web::Request;
use ringmain_wire::h1::{Fields, Known};

pub(super) use self::url::RequestUrl;
use crate::model::{ClientAddress, ClientHeader};

/// Returns the client's address. `None`: on a Unix socket whose peer is not trusted, and for a client that a trusted proxy does not name.
pub(super) fn address(config: &ClientAddress, req: &Request<'_>) -> Option<IpAddr> {
    let peer = req.remote()?.ip().to_canonical();
    find_address(config, peer, &req.head().fields)
}

/// Returns the client's address as a peer reports it. `None`: a trusted proxy sends a value that is not an address (`unknown`, an
/// obfuscated name, an empty element), so the client is unknown. It must not count as the proxy, which rules may allow more.
pub(super) fn find_address(config: &ClientAddress, peer: IpAddr, fields: &Fields<'_>) -> Option<IpAddr> {
    search_fields(config, peer, fields, &mut |_| {})
}

/// Returns the client's address as a peer reports it, and passes each element of `Forwarded` that names an address on the way to `visit`,
/// the nearest first; the other headers have one element of one address for each call.
fn search_fields<'v>(
    config: &ClientAddress,
    peer: IpAddr,
    fields: &Fields<'v>,
    visit: &mut dyn FnMut(&'v [u8]),
) -> Option<IpAddr> {
    let trusted = |address: IpAddr| config.trusted.iter().any(|network| network.contains(address));
    if !trusted(peer) {
        return Some(peer);
    }
    let mut client = Some(peer);
    let mut hops = 1;
    // Returns whether the search has finished.
    let mut check = |element: Option<&'v [u8]>, address: Option<IpAddr>| {
        client = address;
        let (Some(element), Some(address)) = (element, address) else {
            client = None;
            return true;
        };
        visit(element);
        hops += 1;
        !trusted(address) || config.hops.is_some_and(|limit| hops > limit)
    };
    match &config.header {
        ClientHeader::Named(name) => {
            // Exactly one value: a peer that can add a second one could choose the address.
            let mut values = fields.all(name.as_str());
            match (values.next(), values.next()) {
                (Some(value), None) => {
                    check(Some(value), parse_address(value));
                }
                (Some(_), Some(_)) => {
                    check(None, None);
                }
                (None, _) => {}
            }
        }
        ClientHeader::XForwardedFor => {
            visit_backwards(fields.all_known(Known::XForwardedFor), &mut |element| {
                check(element, element.and_then(parse_address))
            });
        }
        ClientHeader::Forwarded => {
            visit_backwards(fields.all("Forwarded"), &mut |element| {
                check(element, element.and_then(element_address))
            });
        }
    }
    client
}

/// Passes the elements of a list to `visit`, from the last to the first, until it returns `true`. `None`: the list has more elements than
/// are read.
fn visit_backwards<'v>(
    values: impl Iterator<Item = &'v [u8]>,
    visit: &mut dyn FnMut(Option<&'v [u8]>) -> bool,
) {
    // Reverses the fields without allocating: almost always there is one.
    let mut lines = [&b""[..]; FIELD_LINES];
    let mut count = 0;
    for value in values {
        lines[count % FIELD_LINES] = value;
        count += 1;
    }
    for index in (count.saturating_sub(FIELD_LINES)..count).rev() {
        for element in lines[index % FIELD_LINES].rsplit(|&byte| byte == b',') {
            if visit(Some(element.trim_ascii())) {
                return;
            }
        }
    }
    if count > FIELD_LINES {
        visit(None);
    }
}

/// Lines of a list that are read, from the last one. A client that is named in an earlier line is unknown.
const FIELD_LINES: usize = 16;

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let unbracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address: Option<IpAddr> = text.parse().ok().or_else(unbracketed);
    address
        .or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
        .map(|address| address.to_canonical())
}

/// Returns the address in the `for` parameter of an element of `Forwarded`.
fn element_address(element: &[u8]) -> Option<IpAddr> {
    parse_address(element_parameter(element, b"for=")?)
}

/// Returns a parameter of an element of `Forwarded` (RFC 7239 §4), without its quotation marks. `name` ends with `=`.
fn element_parameter<'v>(element: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
    let mut pairs = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let value = pairs.find_map(|pair| {
        let (start, value) = pair.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then_some(value)
    })?;
    let quoted = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    Some(quoted.unwrap_or(value))
}

#[cfg(test)]
mod tests;
