//! The descriptors of a request.

use std::net::IpAddr;
use std::slice;

use super::super::envoy_messages::value_text;
use super::super::{Cleared, PolicyInput, limit_key};
use super::messages::{Descriptor, Entry, Hits};
use crate::model::{RateDescriptor, RateEntryValue, RateKey};
use crate::proxy::{client_address, forwarded_uri};
use crate::table::{Headers, matches_header};

/// Returns the descriptors that apply to a request. One that lacks the value of an entry, unless the entry is optional, does not; neither
/// does one whose entries are all absent.
pub(super) fn descriptors(
    policy: &[RateDescriptor],
    at: &PolicyInput<'_, '_>,
    cleared: &Cleared,
) -> Vec<Descriptor> {
    let found = policy.iter().filter_map(|descriptor| {
        let mut entries = Vec::with_capacity(descriptor.entries.len());
        for entry in &descriptor.entries {
            match value(&entry.value, at, cleared) {
                // The service accepts no empty values.
                Some(value) if !value.is_empty() => entries.push(Entry {
                    key: entry.key.to_string(),
                    value,
                }),
                _ if entry.optional => {}
                _ => return None,
            }
        }
        let hits = descriptor.hits.map(|value| Hits { value });
        (!entries.is_empty()).then_some(Descriptor { entries, hits })
    });
    found.collect()
}

/// Returns the value of an entry; `None`: the request has none.
fn value(value: &RateEntryValue, at: &PolicyInput<'_, '_>, cleared: &Cleared) -> Option<String> {
    match value {
        RateEntryValue::Constant(text) => Some(text.to_string()),
        RateEntryValue::Match {
            text,
            headers,
            expect,
        } => {
            let fields = Headers::Fields(at.req.head().fields);
            let matches = headers.iter().all(|header| matches_header(header, &fields));
            (matches == *expect).then(|| text.to_string())
        }
        RateEntryValue::Request(RateKey::Source { v4, v6 }) => {
            let address = client_address(at.route.listener, at.req)?;
            Some(network_text(address.to_canonical(), *v4, *v6))
        }
        RateEntryValue::Request(RateKey::Path) => {
            // As it is forwarded, escaped: unlike the path that rules match, it is text without control characters.
            let mut path = forwarded_uri(at.route, at.req);
            path.truncate(path.find('?').unwrap_or(path.len()));
            Some(path)
        }
        RateEntryValue::Request(key) => {
            let mut text = None;
            limit_key::visit_parts(slice::from_ref(key), at, cleared, &mut |part| {
                text = part.map(value_text);
            });
            text
        }
        RateEntryValue::Route => Some(at.route.matched.route().route().name.to_string()),
    }
}

/// Returns an address, or its network with the length of the prefix.
fn network_text(address: IpAddr, v4: u8, v6: u8) -> String {
    let (network, bits) = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(v4.min(32))).unwrap_or(0);
            (IpAddr::V4((address.to_bits() & mask).into()), v4)
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(v6.min(128))).unwrap_or(0);
            (IpAddr::V6((address.to_bits() & mask).into()), v6)
        }
    };
    match (v4, v6) {
        (32, 128) => network.to_string(),
        _ => format!("{network}/{bits}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_a_prefix_length() {
        for (address, v4, v6, expect) in [
            ("192.0.2.7", 32, 128, "192.0.2.7"),
            ("2001:db8::7", 32, 128, "2001:db8::7"),
            ("192.0.2.7", 24, 64, "192.0.2.0/24"),
            ("192.0.2.7", 32, 64, "192.0.2.7/32"),
            ("192.0.2.7", 0, 128, "0.0.0.0/0"),
            ("2001:db8:0:0:1::7", 32, 64, "2001:db8::/64"),
            ("2001:db8::7", 32, 0, "::/0"),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(network_text(address, v4, v6), expect);
        }
    }
}
