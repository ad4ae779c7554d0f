//! A publication as its subscribers get it: written once for each variant, the same bytes for all.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_wire::ws::{Message, encode_shared};

use super::{ClientInfo, Format, NotJson, Publication, Push, Reply};

/// What a subscriber's connection wants a push to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// JSON or Protobuf.
    pub format: Format,
    /// Whether the push stands alone, as transports do that only bring, and not within a reply.
    pub bare: bool,
    /// Whether it is a WebSocket's frame, ready to be sent (RFC 6455 §5.2), and not the message alone.
    pub framed: bool,
}

/// What was published, not yet written for anybody.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// The application's.
    pub data: Bytes,
    /// Who published it, if it was a client.
    pub info: Option<ClientInfo>,
    /// What subscribers may filter by.
    pub tags: BTreeMap<String, String>,
    /// When, in milliseconds since 1970; 0 if that is not told.
    pub time: i64,
}

impl Published {
    /// With its number in the channel, 0 for none.
    #[must_use]
    pub fn numbered(&self, offset: u64) -> Publication {
        Publication {
            data: self.data.clone(),
            info: self.info.clone(),
            offset,
            tags: self.tags.clone(),
            delta: false,
            time: self.time,
        }
    }
}

impl Variant {
    /// All that there are.
    pub const ALL: [Variant; 8] = [
        Variant::new(Format::Json, false, false),
        Variant::new(Format::Json, true, false),
        Variant::new(Format::Protobuf, false, false),
        Variant::new(Format::Protobuf, true, false),
        Variant::new(Format::Json, false, true),
        Variant::new(Format::Json, true, true),
        Variant::new(Format::Protobuf, false, true),
        Variant::new(Format::Protobuf, true, true),
    ];

    const fn new(format: Format, bare: bool, framed: bool) -> Variant {
        Variant { format, bare, framed }
    }

    /// Its number among [`Variant::ALL`].
    #[must_use]
    pub const fn number(self) -> usize {
        let format = match self.format {
            Format::Json => 0,
            Format::Protobuf => 2,
        };
        format + self.bare as usize + 4 * self.framed as usize
    }

    /// Appends a push.
    ///
    /// # Errors
    /// Bytes of it are not JSON, and the format is. Nothing is appended.
    pub fn write(self, push: Push, out: &mut Vec<u8>) -> Result<(), NotJson> {
        if !self.framed {
            return self.message(push, out);
        }
        let mut message = Vec::new();
        self.message(push, &mut message)?;
        let message = match self.format {
            Format::Json => Message::Text(std::str::from_utf8(&message).map_err(|_| NotJson)?),
            Format::Protobuf => Message::Binary(&message),
        };
        encode_shared(out, message, None);
        Ok(())
    }

    fn message(self, push: Push, out: &mut Vec<u8>) -> Result<(), NotJson> {
        if self.bare {
            return self.format.write(&push, out);
        }
        let reply = Reply {
            push: Some(push),
            ..Reply::default()
        };
        self.format.write(&reply, out)
    }

    /// Appends a publication of a channel.
    ///
    /// # Errors
    /// As [`Variant::write`].
    pub fn publication(
        self,
        channel: &str,
        publication: Publication,
        out: &mut Vec<u8>,
    ) -> Result<(), NotJson> {
        let push = Push {
            channel: channel.to_owned(),
            pub_: Some(publication),
            ..Push::default()
        };
        self.write(push, out)
    }
}
