//! The client protocol, version 2, as far as one who listens speaks it: `connect`, `subscribe`, pings.
//!
//! Written from the protocol's definition and not with a server's code, so that both do not err alike. Publications are not
//! read here: `stamp` finds them in whatever is around.

mod json;
mod protobuf;
#[cfg(test)]
mod tests;

use super::plan::Format;

/// The id of `connect`; those of subscriptions follow.
pub(super) const CONNECT: u32 = 1;

/// What a part of a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Whether the connection is still there.
    Ping,
    /// The session stands.
    Connected {
        /// Pings are to be answered.
        pong: bool,
        /// Subscriptions that came with it, by their channels.
        subs: Vec<(String, Standing)>,
    },
    /// A subscription stands.
    Subscribed {
        /// Of the command.
        id: u32,
        /// Where.
        at: Standing,
    },
    /// A command came to nothing.
    Refused {
        /// Of the command.
        id: u32,
        /// Why.
        code: u32,
        /// The same in words.
        message: String,
        /// Whether it may be carried out a little later.
        temporary: bool,
    },
    /// The server ends a subscription.
    Unsubscribed {
        /// Whose.
        channel: String,
        /// Why. From 2500 on the client is to subscribe again.
        code: u32,
        /// The same in words.
        reason: String,
    },
    /// The server ends the session.
    Disconnected {
        /// Why.
        code: u32,
        /// The same in words.
        reason: String,
    },
    /// Something else.
    Other,
}

/// Where a subscription stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// What is missed later can be had.
    pub(super) recoverable: bool,
    /// All that was missed came with it.
    pub(super) recovered: bool,
    /// The last publication's offset.
    pub(super) offset: u64,
    /// What it is of; empty for nothing.
    pub(super) epoch: String,
    /// Offsets of the publications in the reply, in order; 0 where one has none.
    pub(super) offsets: Vec<u64>,
}

/// What a subscription is to be, besides standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish<'a> {
    /// What is missed later is to be had.
    pub(super) recoverable: bool,
    /// What was missed behind this offset of this epoch is wanted.
    pub(super) since: Option<(u64, &'a str)>,
}

/// The parts of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    format: Format,
    left: Option<&'a [u8]>,
}

/// A message that is none of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Parts<'a> {
    /// Of a whole message.
    pub(super) fn new(format: Format, message: &'a [u8]) -> Parts<'a> {
        Parts {
            format,
            left: Some(message),
        }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<&'a [u8], Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let left = self.left?;
        match self.format {
            Format::Json => match memchr::memchr(b'\n', left) {
                Some(end) => {
                    // A break at the end begins nothing.
                    self.left = Some(&left[end + 1..]).filter(|rest| !rest.is_empty());
                    Some(Ok(&left[..end]))
                }
                None => {
                    self.left = None;
                    Some(Ok(left))
                }
            },
            Format::Protobuf => {
                let part = protobuf::split(left);
                self.left = part
                    .as_ref()
                    .ok()
                    .map(|(_, rest)| *rest)
                    .filter(|rest| !rest.is_empty());
                Some(part.map(|(part, _)| part))
            }
        }
    }
}

/// What a part says.
pub(super) fn read(format: Format, part: &[u8]) -> Result<Said, Malformed> {
    match format {
        Format::Json => json::read(part),
        Format::Protobuf => protobuf::read(part).ok_or(Malformed),
    }
}

/// Appends a `connect`.
pub(super) fn connect(out: &mut Vec<u8>, format: Format, token: Option<&str>) {
    match format {
        Format::Json => json::connect(out, token),
        Format::Protobuf => protobuf::connect(out, token),
    }
}

/// The offset that a part says of its one publication, which ends at `end`; 0 where it says none.
pub(super) fn offset(format: Format, part: &[u8], end: usize) -> u64 {
    match format {
        Format::Json => json::offset(part, end),
        Format::Protobuf => protobuf::offset(part).unwrap_or(0),
    }
}

/// Appends a `subscribe`, to a channel whose name `name` appends.
pub(super) fn subscribe(
    out: &mut Vec<u8>,
    format: Format,
    id: u32,
    wish: Wish<'_>,
    name: &dyn Fn(&mut Vec<u8>),
) {
    match format {
        Format::Json => json::subscribe(out, id, wish, name),
        Format::Protobuf => protobuf::subscribe(out, id, wish, name),
    }
}

/// Appends the answer to a ping.
pub(super) fn pong(out: &mut Vec<u8>, format: Format) {
    match format {
        Format::Json => out.extend_from_slice(b"{}"),
        Format::Protobuf => out.push(0),
    }
}

/// Appends the query of one that only listens: a connect request with these channels.
pub(super) fn listening(out: &mut Vec<u8>, token: Option<&str>, channels: &[(Vec<u8>, Wish<'_>)]) {
    json::listening(out, token, channels);
}
