//! The encoding of pushes: one for each variant, shared by all subscribers. Must not know subscribers.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_wire::ws::{Message, encode_shared};
use serde::Serialize;

use super::{ClientInfo, Format, NotJson, Publication, PushMessage, Reply, compacted};
use crate::delta::DeltaMemo;

/// The form in which a connection receives pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// JSON or Protobuf.
    pub format: Format,
    /// True if the push is sent without a reply around it, as over unidirectional transports.
    pub unidirectional: bool,
    /// True if the push is a complete WebSocket frame (RFC 6455 §5.2) rather than a message.
    pub framed: bool,
}

/// A publication before it is encoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// The application's data.
    pub data: Bytes,
    /// The publisher, if it is a client.
    pub info: Option<ClientInfo>,
    /// The tags by which subscribers may filter.
    pub tags: BTreeMap<String, String>,
    /// The time of publication in milliseconds since the Unix epoch; 0 if unknown.
    pub time: i64,
    /// The delta from the previous publication, once it was made.
    pub delta: DeltaMemo,
}

/// The form of a publication's data in a subscription.
#[derive(Clone, Copy, Debug)]
pub enum DataForm<'a> {
    /// As published.
    Plain,
    /// Complete, in a subscription with deltas.
    Whole,
    /// This delta from a publication that the client has ([`Published::delta_from`]).
    Delta(&'a Bytes),
}

impl Published {
    /// Returns the publication with its offset in the channel; 0 for none.
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

    /// Returns the publication with its offset in the channel, in a form of its data. In JSON, subscriptions with deltas have the data as a
    /// text, to which deltas apply byte by byte. Data that is not JSON is left as it is: the JSON format cannot encode it.
    #[must_use]
    pub fn in_form(&self, offset: u64, format: Format, form: DataForm<'_>) -> Publication {
        let mut publication = self.numbered(offset);
        let delta = match form {
            DataForm::Plain => return publication,
            DataForm::Whole => None,
            DataForm::Delta(delta) => Some(delta),
        };
        publication.delta = delta.is_some();
        let data = delta.unwrap_or(&self.data);
        publication.data = match (format, std::str::from_utf8(data)) {
            (Format::Json, Ok(text)) if publication.delta || compacted(data).is_ok() => json_text(text),
            _ => data.clone(),
        };
        publication
    }
}

/// Returns a text as a JSON string.
fn json_text(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4 + 2);
    // A string can be written to a `Vec`.
    serde_json::to_writer(&mut out, text).unwrap_or_else(|_| unreachable!("a text is JSON"));
    out.into()
}

impl Variant {
    /// All variants.
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

    const fn new(format: Format, unidirectional: bool, framed: bool) -> Variant {
        Variant {
            format,
            unidirectional,
            framed,
        }
    }

    /// Returns the index in [`Variant::ALL`].
    #[must_use]
    pub const fn number(self) -> usize {
        let format = match self.format {
            Format::Json => 0,
            Format::Protobuf => 2,
        };
        format + self.unidirectional as usize + 4 * self.framed as usize
    }

    /// Appends a push.
    ///
    /// # Errors
    /// [`NotJson`]: the format is JSON, and bytes of the push are not. `out` is unchanged.
    pub fn write(self, push: PushMessage, out: &mut Vec<u8>) -> Result<(), NotJson> {
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

    /// Encodes the push of a reply in reused buffers, whose contents are replaced. Returns the bytes to send.
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
                let result = publication_in_json(push, publication, self.unidirectional, out);
                if result.is_err() {
                    out.truncate(before);
                }
                result
            }
            _ if self.unidirectional => self.format.write(push, out),
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
        let push = PushMessage {
            channel: channel.to_owned(),
            pub_: Some(publication),
            ..PushMessage::default()
        };
        self.write(push, out)
    }
}

/// Encodes a publication in JSON: the same bytes as the serializer's, without parsing the data once more for each variant and without
/// allocating.
fn publication_in_json(
    push: &PushMessage,
    publication: &Publication,
    unidirectional: bool,
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
    out.extend_from_slice(if unidirectional { b"{" } else { br#"{"push":{"# });
    if push.id != 0 {
        out.extend_from_slice(br#""id":"#);
        append(&push.id, out)?;
        out.push(b',');
    }
    if !push.channel.is_empty() {
        out.extend_from_slice(br#""channel":"#);
        append(&push.channel, out)?;
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
    out.extend_from_slice(if unidirectional { b"}}" } else { b"}}}" });
    Ok(())
}

fn append(part: &(impl Serialize + ?Sized), out: &mut Vec<u8>) -> Result<(), NotJson> {
    serde_json::to_writer(out, part).map_err(|_| NotJson)
}
