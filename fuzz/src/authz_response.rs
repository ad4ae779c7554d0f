//! Responses of an authorization service over gRPC: the decision, and the changes of headers and query that it demands.
//!
//! The first byte of an input is the length of the request's query, which follows; the rest is the message.

use ringmain_gateway::fuzzing::{AuthzOutcome, authz_response};
use ringmain_wire::h1::FieldBlock;

/// Laws: no panic; a denial has a final status; a changed query is one that was sent, or has only characters that a query may have; the same
/// response changes a changed query to itself; headers can be sent.
///
/// # Panics
/// A law is broken.
pub fn run(input: &[u8]) {
    let Some((&length, rest)) = input.split_first() else {
        return;
    };
    let (query, message) = rest.split_at(usize::from(length).min(rest.len()));
    // Queries of requests are visible ASCII without `#`.
    let is_query = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
    let Some(query) = str::from_utf8(query)
        .ok()
        .filter(|query| query.bytes().all(|byte| is_query(&byte)))
    else {
        return;
    };
    let outcome = authz_response(message, query);
    match &outcome {
        AuthzOutcome::Failed => {}
        AuthzOutcome::Denied(status, fields) => {
            assert!((200..=599).contains(status), "{status}");
            check_fields(fields);
        }
        AuthzOutcome::Allowed(fields, changed) => {
            assert!(changed.bytes().all(|byte| is_query(&byte)), "{changed:?}");
            let again = authz_response(message, changed);
            assert_eq!(again, outcome, "the query is changed once");
            check_fields(fields);
        }
    }
}

/// Names are tokens, values have no control characters.
fn check_fields(fields: &FieldBlock) {
    for (name, value) in fields.iter() {
        assert!(
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()),
            "{name:?}"
        );
        let is_valid = |byte: &u8| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f;
        assert!(value.iter().all(is_valid), "{value:?}");
    }
}
