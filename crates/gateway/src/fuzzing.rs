//! What fuzz targets look at and nobody else sees.

use crate::rate::resp;

/// Bytes that an answer of a Redis may have before it is known what it is.
pub const REDIS_REPLY_BYTES: usize = resp::MOST;

/// An answer of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// A text.
    Text,
    /// An error: its first word.
    Error(String),
    /// A number.
    Number(i64),
    /// Numbers.
    Numbers(Vec<i64>),
}

/// Reads an answer from the beginning of what has come: it, and its length in bytes. `None`: it is not all there.
///
/// # Errors
/// It is no answer that was asked for.
#[expect(clippy::result_unit_err, reason = "nothing more is known of garbage")]
pub fn redis_reply(bytes: &[u8]) -> Result<Option<(RedisReply, usize)>, ()> {
    let parsed = resp::parse(bytes).map_err(|resp::Garbage| ())?;
    Ok(parsed.map(|(reply, used)| {
        let reply = match reply {
            resp::Reply::Text => RedisReply::Text,
            resp::Reply::Error(word) => RedisReply::Error(word),
            resp::Reply::Number(number) => RedisReply::Number(number),
            resp::Reply::Numbers(numbers) => RedisReply::Numbers(numbers),
        };
        (reply, used)
    }))
}
