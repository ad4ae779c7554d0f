//! The client as trusted proxies report it: its address ([`ClientAddress`]), and the URL that it requested (`url`).

mod url;

use std::net::{IpAddr, SocketAddr};

use ringmain_web::Request;
use ringmain_wire::h1::{Fields, Known};

pub(super) use self::url::RequestUrl;
use crate::model::{ClientAddress, ClientHeader};

/// The client's address; `None` on a Unix socket whose word is not taken.
pub(super) fn address(config: &ClientAddress, req: &Request<'_>) -> Option<IpAddr> {
    let peer = req.remote()?.ip().to_canonical();
    Some(find(config, peer, &req.head().fields))
}

/// Returns the client's address as a peer reports it.
pub(super) fn find(config: &ClientAddress, peer: IpAddr, fields: &Fields<'_>) -> IpAddr {
    search(config, peer, fields, &mut |_| {})
}

/// Returns the client's address as a peer reports it, and shows each element of `Forwarded` that names an address on the way to it,
/// the nearest first; the other headers have one element of one address for each call.
fn search<'v>(
    config: &ClientAddress,
    peer: IpAddr,
    fields: &Fields<'v>,
    visit: &mut dyn FnMut(&'v [u8]),
) -> IpAddr {
    let trusted = |address: IpAddr| config.trusted.iter().any(|network| network.contains(address));
    if !trusted(peer) {
        return peer;
    }
    let mut client = peer;
    let mut hops = 1;
    let mut look = |element: &'v [u8], address: Option<IpAddr>| {
        let Some(address) = address else { return true };
        visit(element);
        client = address;
        hops += 1;
        !trusted(address) || config.hops.is_some_and(|most| hops > most)
    };
    match &config.header {
        ClientHeader::Named(name) => {
            // One address, said once: who could add a second could choose.
            let mut values = fields.all(name.as_str());
            if let (Some(value), None) = (values.next(), values.next()) {
                look(value, plain(value));
            }
        }
        ClientHeader::XForwardedFor => {
            backwards(fields.all_known(Known::XForwardedFor), &mut |element| {
                look(element, plain(element))
            });
        }
        ClientHeader::Forwarded => {
            backwards(fields.all("Forwarded"), &mut |element| {
                look(element, of_element(element))
            });
        }
    }
    client
}

/// Shows the elements of a list from the last to the first, until `look` has seen enough.
fn backwards<'v>(values: impl Iterator<Item = &'v [u8]>, look: &mut dyn FnMut(&'v [u8]) -> bool) {
    // Fields in reverse without memory: almost always there is one.
    let mut lines = [&b""[..]; LINES];
    let mut count = 0;
    for value in values {
        lines[count % LINES] = value;
        count += 1;
    }
    for index in (count.saturating_sub(LINES)..count).rev() {
        for element in lines[index % LINES].rsplit(|&byte| byte == b',') {
            if look(element.trim_ascii()) {
                return;
            }
        }
    }
}

/// Lines of a list that are looked at, from the last on; those before are as if they were not there.
const LINES: usize = 16;

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn plain(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address: Option<IpAddr> = text.parse().ok().or_else(bare);
    address
        .or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
        .map(|address| address.to_canonical())
}

/// Returns the address in the `for` parameter of an element of `Forwarded`.
fn of_element(element: &[u8]) -> Option<IpAddr> {
    plain(parameter(element, b"for=")?)
}

/// Returns a parameter of an element of `Forwarded` (RFC 7239 §4), without its quotation marks. `name` ends with `=`.
fn parameter<'v>(element: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
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
