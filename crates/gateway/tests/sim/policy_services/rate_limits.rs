//! The rate limit service, as [`super::grpc_authz`] serves it.

use super::rate_messages::Asked;

/// Returns whether a request exceeds its limit.
pub(super) fn limited(id: u64) -> bool {
    (id ^ 0x11a17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0
}

/// Returns the header that the upstream receives with an admitted request.
pub(super) fn plan(id: u64) -> String {
    format!("plan-{id}")
}

/// Reads a query: the request that it is about. Its descriptors must be right.
pub(super) fn question(framed: &[u8]) -> u64 {
    let Asked { domain, descriptors } = Asked::parse(framed);
    assert_eq!((&*domain, descriptors.len()), ("sim", 2));
    let id = descriptors[0].strip_prefix("path=/r/").expect("a path");
    assert_eq!(descriptors[1], format!("3*site=one;id={id}"));
    id.parse().expect("an id")
}
