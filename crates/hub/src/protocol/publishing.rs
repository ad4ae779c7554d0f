//! A publication as its subscribers get it: written once for each variant, the same bytes for all.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_wire::ws::{Message, encode_shared};
use serde::Serialize;

use super::{ClientInfo, Format, NotJson, Publication, Push, Reply, compacted};

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
        let reply = Reply {
            push: Some(push),
            ..Reply::default()
        };
        if !self.framed {
            return self.message(&reply, out);
        }
        let mut message = Vec::new();
        self.message(&reply, &mut message)?;
        self.frame(&message, out)
    }

    /// The push of a reply, written in memory that is lent: what was there goes. Returns what is to be sent.
    pub(crate) fn write_in<'a>(
        self,
        reply: &Reply,
        message: &'a mut Vec<u8>,
        frame: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], NotJson> {
        message.clear();
        self.message(reply, message)?;
        if !self.framed {
            return Ok(message);
        }
        frame.clear();
        self.frame(message, frame)?;
        Ok(frame)
    }

    fn frame(self, message: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
        let message = match self.format {
            Format::Json => Message::Text(std::str::from_utf8(message).map_err(|_| NotJson)?),
            Format::Protobuf => Message::Binary(message),
        };
        encode_shared(out, message, None);
        Ok(())
    }

    fn message(self, reply: &Reply, out: &mut Vec<u8>) -> Result<(), NotJson> {
        let Some(push) = &reply.push else {
            return Ok(());
        };
        match push.publication() {
            Some(publication) if self.format == Format::Json => {
                let before = out.len();
                self.format.separate(out);
                let written = publication_in_json(&push.channel, publication, self.bare, out);
                if written.is_err() {
                    out.truncate(before);
                }
                written
            }
            _ if self.bare => self.format.write(push, out),
            _ => self.format.write(reply, out),
        }
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

/// What most pushes are, by hand: the bytes that the messages' own writer makes, without reading the data once more for each
/// variant, and without memory of its own.
fn publication_in_json(
    channel: &str,
    publication: &Publication,
    bare: bool,
    out: &mut Vec<u8>,
) -> Result<(), NotJson> {
    let Publication {
        data,
        info,
        offset,
        tags,
        delta,
        time,
    } = publication;
    out.extend_from_slice(if bare { b"{" } else { br#"{"push":{"# });
    if !channel.is_empty() {
        out.extend_from_slice(br#""channel":"#);
        append(channel, out)?;
        out.push(b',');
    }
    out.extend_from_slice(br#""pub":{"#);
    let first = out.len();
    if !data.is_empty() {
        out.extend_from_slice(br#""data":"#);
        out.extend_from_slice(compacted(data)?.trim_ascii());
    }
    let name = |name: &str, out: &mut Vec<u8>| {
        if out.len() > first {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
    };
    if let Some(info) = info {
        name(r#""info":"#, out);
        append(info, out)?;
    }
    if *offset != 0 {
        name(r#""offset":"#, out);
        append(offset, out)?;
    }
    if !tags.is_empty() {
        name(r#""tags":"#, out);
        append(tags, out)?;
    }
    if *delta {
        name(r#""delta":true"#, out);
    }
    if *time != 0 {
        name(r#""time":"#, out);
        append(time, out)?;
    }
    out.extend_from_slice(if bare { b"}}" } else { b"}}}" });
    Ok(())
}

fn append(part: &(impl Serialize + ?Sized), out: &mut Vec<u8>) -> Result<(), NotJson> {
    serde_json::to_writer(out, part).map_err(|_| NotJson)
}
