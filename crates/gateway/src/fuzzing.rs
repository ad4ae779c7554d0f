//! Access for fuzz targets to private parsers.

use ringmain_wire::h1::FieldBlock;

use crate::policy::authz_outcome;
use crate::rate::resp;

/// The most bytes of a Redis reply that are buffered before the reply is complete.
pub const REDIS_REPLY_BYTES: usize = resp::REPLY_BYTES;

/// A Redis reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// A string.
    Text,
    /// An error, by its first word.
    Error(String),
    /// An integer.
    Number(i64),
    /// An array of integers.
    Numbers(Vec<i64>),
}

/// Parses a reply at the start of `bytes`. Returns it with its length in bytes; `None`: it is incomplete.
///
/// # Errors
/// The bytes are not a reply of a kind that the gateway accepts.
#[expect(clippy::result_unit_err, reason = "nothing more is known of garbage")]
pub fn redis_reply(bytes: &[u8]) -> Result<Option<(RedisReply, usize)>, ()> {
    let parsed = resp::parse_reply(bytes).map_err(|resp::InvalidReply| ())?;
    Ok(parsed.map(|(reply, used)| {
        let reply = match reply {
            resp::RespReply::Text => RedisReply::Text,
            resp::RespReply::Error(word) => RedisReply::Error(word),
            resp::RespReply::Number(number) => RedisReply::Number(number),
            resp::RespReply::Numbers(numbers) => RedisReply::Numbers(numbers),
        };
        (reply, used)
    }))
}

/// The outcome of an authorization service's response over gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthzOutcome {
    /// Not a message, or a failure.
    Failed,
    /// The request is refused with this status and these headers.
    Denied(u16, FieldBlock),
    /// The request is allowed: the headers that are set, and the query.
    Allowed(FieldBlock, String),
}

/// Reads a response, and changes `query` as it demands.
#[must_use]
pub fn authz_response(message: &[u8], query: &str) -> AuthzOutcome {
    authz_outcome(message, query)
}
