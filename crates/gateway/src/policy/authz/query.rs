//! Changes of a request's query by an authorization service. Pure.
//!
//! Parameters are compared by their decoded names, as applications read them. Parameters that are not changed keep their spelling and
//! their order. Names and values of the service may be percent-encoded, as Envoy expects them; other characters are encoded here.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::messages::QueryParameter;

/// Returns the query with parameters set, then others removed; names are case-sensitive. A parameter that is set replaces all of its
/// name; its position is the end of the query.
pub(super) fn change_query(query: &str, set: &[QueryParameter], remove: &[String]) -> String {
    let is_removed = |name: &[u8]| remove.iter().any(|removed| *decode(removed) == *name);
    let is_set = |name: &[u8], set: &[QueryParameter]| set.iter().any(|set| *decode(&set.key) == *name);
    let mut changed = String::with_capacity(query.len());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let name = decode(pair.split('=').next().unwrap_or_default());
        if !is_removed(&name) && !is_set(&name, set) {
            push_pair(&mut changed, |out| out.push_str(pair));
        }
    }
    for (position, parameter) in set.iter().enumerate() {
        let name = decode(&parameter.key);
        if is_removed(&name) || is_set(&name, &set[position + 1..]) {
            continue;
        }
        push_pair(&mut changed, |out| {
            encode(out, &parameter.key);
            out.push('=');
            encode(out, &parameter.value);
        });
    }
    changed
}

fn push_pair(out: &mut String, write: impl FnOnce(&mut String)) {
    if !out.is_empty() {
        out.push('&');
    }
    write(out);
}

/// Decodes `%` escapes, and `+` as a space.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text.as_bytes());
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let escaped = escaped.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let escaped = escaped.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        let (byte, length) = match (escaped, bytes[at]) {
            (Some(byte), _) => (byte, 3),
            (None, b'+') => (b' ', 1),
            (None, byte) => (byte, 1),
        };
        decoded.push(byte);
        at += length;
    }
    Cow::Owned(decoded)
}

/// Appends a text in which escapes and unreserved characters (RFC 3986 §2.3) are retained, and all others are escaped.
fn encode(out: &mut String, text: &str) {
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        let is_escape = byte == b'%'
            && bytes
                .get(at + 1..at + 3)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        if is_escape || byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, set: &[(&str, &str)], remove: &[&str], expect: &str) {
        let set: Vec<_> = set
            .iter()
            .map(|(key, value)| QueryParameter {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
            })
            .collect();
        let remove: Vec<_> = remove.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            change_query(query, &set, &remove),
            expect,
            "{query} {set:?} {remove:?}"
        );
    }

    #[test]
    fn parameters_are_set_and_removed() {
        check("a=1&b=2", &[], &[], "a=1&b=2");
        check("a=1&b=2&a=3", &[("a", "4")], &[], "b=2&a=4");
        check("a=1&b=2&a=3", &[], &["a", "c"], "b=2");
        check("", &[("x y", "ä&=")], &[], "x%20y=%C3%A4%26%3D");
        check("", &[("x%20y", "a%26b%2")], &[], "x%20y=a%26b%252");
        check("a", &[("a", ""), ("a", "2")], &[], "a=2");
        check("A=1", &[("a", "2")], &["A"], "a=2");
        check("a=1", &[("a", "2")], &["a"], "");
        check("&&a=1&", &[], &[], "a=1");
    }

    #[test]
    fn an_escaped_name_is_the_same_name() {
        check("%61dmin=1&x=%zz&a%2", &[], &["admin"], "x=%zz&a%2");
        check("a+b=1&a%20b=2&a%2Bb=3", &[], &["a b"], "a%2Bb=3");
        check("%ff=1", &[], &["\u{fffd}"], "%ff=1");
        check("a=1", &[("%61", "2")], &[], "%61=2");
    }
}
