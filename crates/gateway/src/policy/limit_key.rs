//! Keys of limits: the parts of a request that are counted separately.

use std::net::IpAddr;

use super::{Cleared, PolicyInput};
use crate::model::RateKey;
use crate::proxy::client_address;
use crate::rate::key_table::KeyHasher;

/// Returns whether a key depends on the identity that other policies establish.
pub(super) fn needs_identity(by: &[RateKey]) -> bool {
    by.iter()
        .any(|key| matches!(key, RateKey::Identity | RateKey::Claim(_)))
}

/// Returns the hash of a request's key.
pub(super) fn hash_key(by: &[RateKey], secret: u64, at: &PolicyInput<'_, '_>, cleared: &Cleared) -> u64 {
    let mut hasher = KeyHasher::new(secret);
    visit_parts(by, at, cleared, &mut |part| hasher.add_part(part));
    hasher.finish()
}

/// Passes the parts of a request's key to `add`; `None`: the request has no such part.
pub(super) fn visit_parts(
    by: &[RateKey],
    at: &PolicyInput<'_, '_>,
    cleared: &Cleared,
    add: &mut dyn FnMut(Option<&[u8]>),
) {
    let req = at.req;
    for key in by {
        match key {
            RateKey::Source { v4, v6 } => match client_address(at.route.listener, req) {
                Some(address) => add(Some(&network_bytes(address, *v4, *v6))),
                None => add(None),
            },
            RateKey::Header(name) => add(req.head().fields.all(name.as_str()).next()),
            RateKey::Cookie(name) => add(req.cookies().get(name).map(str::as_bytes)),
            RateKey::Identity => add(cleared.identity().map(|identity| identity.as_bytes())),
            RateKey::Claim(path) => {
                // Allocates nothing for the most common kind of claim, a string.
                let mut text = String::new();
                let claims = cleared.claims();
                add(claims
                    .and_then(|claims| claims.header_value(path, &mut text))
                    .map(str::as_bytes));
            }
            RateKey::Host => match req.host() {
                Some(host) => add(Some(lower_host(host, &mut [0; 256]))),
                None => add(None),
            },
            RateKey::Path => add(Some(at.route.matched_path(req).as_bytes())),
            RateKey::Method => add(Some(req.method().as_str().as_bytes())),
        }
    }
}

/// Returns the network of an address, as bytes that include the address family.
fn network_bytes(address: IpAddr, v4: u8, v6: u8) -> [u8; 17] {
    let (kind, number, bits) = match address.to_canonical() {
        IpAddr::V4(address) => (4, u128::from(address.to_bits()) << 96, v4),
        IpAddr::V6(address) => (6, address.to_bits(), v6),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
    let mut bytes = [kind; 17];
    bytes[1..].copy_from_slice(&(number & mask).to_be_bytes());
    bytes
}

/// Lowercases a host; one that is longer than any valid name is truncated.
fn lower_host<'m>(host: &str, memory: &'m mut [u8; 256]) -> &'m [u8] {
    let length = host.len().min(memory.len());
    let part = &mut memory[..length];
    part.copy_from_slice(&host.as_bytes()[..length]);
    part.make_ascii_lowercase();
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_both_families() {
        let net = |text: &str, v4, v6| network_bytes(text.parse().expect("an address"), v4, v6);
        assert_eq!(net("192.0.2.1", 24, 64), net("192.0.2.200", 24, 64));
        assert_ne!(net("192.0.2.1", 32, 64), net("192.0.2.200", 32, 64));
        assert_eq!(net("::ffff:192.0.2.1", 32, 64), net("192.0.2.1", 32, 64));
        assert_eq!(net("2001:db8::1", 32, 64), net("2001:db8::ffff:1", 32, 64));
        assert_ne!(net("2001:db8::1", 32, 128), net("2001:db8::2", 32, 128));
        assert_eq!(net("2001:db8::1", 32, 0), net("::1", 32, 0));
        assert_ne!(net("0.0.0.0", 0, 0), net("::1", 0, 0));
    }
}
