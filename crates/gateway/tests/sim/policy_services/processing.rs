//! The external processor, as [`super::grpc_authz`] serves it: it receives both heads.

use super::authz::told;
use super::proc_messages::{self as proto, Message, REQUEST_HEAD, RESPONSE_HEAD, reply};

/// Returns whether a request is refused.
pub(super) fn refused(id: u64) -> bool {
    (id ^ 0x9406).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0
}

/// Returns the header that the upstream receives with a request that passes.
pub(super) fn passed(id: u64) -> String {
    format!("passed-{id}")
}

/// Reads a message of the stream about `id`, 0: not known yet. Returns the request that it is about, and whether it is the head of the
/// response. Its facts must be right.
pub(super) fn question(framed: &[u8], id: u64) -> (u64, bool) {
    let message = Message::parse(&framed[5..]);
    if message.part == RESPONSE_HEAD {
        assert!(message.get(":status").is_some() && message.protocol.is_none());
        return (id, true);
    }
    assert_eq!(message.part, REQUEST_HEAD);
    let path = message.get(":path").expect("a path");
    let id = path.strip_prefix("/r/").and_then(|rest| rest.split('?').next());
    let id = id.expect("an id");
    assert_eq!(message.get("x-passed"), None, "what only it may say");
    assert_eq!(message.get("x-id"), Some(id));
    (id.parse().expect("an id"), false)
}

/// Returns the true response to the head of a request, and whether it passes.
pub(super) fn truth(id: u64, favoured: bool) -> (Vec<u8>, bool) {
    if refused(id) && !favoured {
        let changes = [proto::set("x-refused", "yes")];
        return (proto::immediate(403, &changes, &told(id)), false);
    }
    let changes = proto::headers(&[proto::set("x-passed", &passed(id))]);
    (reply(REQUEST_HEAD, &[changes]), true)
}

/// Returns the response to the head of a response.
pub(super) fn response() -> Vec<u8> {
    reply(RESPONSE_HEAD, &[])
}

/// Returns a response that would let a request pass with another identity.
pub(super) fn root() -> Vec<u8> {
    reply(REQUEST_HEAD, &[proto::headers(&[proto::set("x-passed", "root")])])
}

/// Returns a response to the other head.
pub(super) fn misplaced(is_response: bool) -> Vec<u8> {
    let part = if is_response { REQUEST_HEAD } else { RESPONSE_HEAD };
    reply(part, &[proto::headers(&[proto::set("x-passed", "root")])])
}

/// Returns a response to the head of a request with a header that cannot be sent.
pub(super) fn forbidden() -> Vec<u8> {
    let changes = [proto::set("x-passed", "root"), proto::set("a b", "1")];
    reply(REQUEST_HEAD, &[proto::headers(&changes)])
}
