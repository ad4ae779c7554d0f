//! The positions of an event stream's client, as the `id` of its events: a browser that reconnects sends the last one as `Last-Event-ID`,
//! and recovers from there whatever its URL is (WHATWG HTML §9.2).
//!
//! ```text
//! id: prices:a=12.4c2f3195501ee0cf&news=3.77ab…       channel, offset, epoch; of all channels that have positions
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use ringmain_hub::protocol::{Command, ConnectRequest, SubscribeRequest};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::limits;

/// The flag of a subscription that the client has not requested itself: it is used only if the server subscribes the client.
pub(crate) const RESUMED: i64 = i64::MIN;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    channels: BTreeMap<String, EventPosition>,
    /// The channels whose pushes have a number in place of the name.
    numbers: BTreeMap<i64, String>,
    /// Channels of commands without a reply, by number.
    commands: BTreeMap<u32, String>,
    /// Set if the last event had an `id`.
    has_id: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct EventPosition {
    offset: u64,
    epoch: String,
}

/// The fields of a message that carry a position.
#[derive(Deserialize, Default)]
#[serde(default)]
struct EventMessage<'m> {
    /// The number of a reply's command, or of a push's channel.
    id: i64,
    #[serde(borrow)]
    push: Option<Box<EventMessage<'m>>>,
    #[serde(borrow)]
    channel: Cow<'m, str>,
    #[serde(rename = "pub")]
    publication: Option<OffsetField>,
    #[serde(borrow)]
    connect: Option<ConnectFields<'m>>,
    #[serde(borrow)]
    subscribe: Option<SubscribeFields<'m>>,
    unsubscribe: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConnectFields<'m> {
    #[serde(borrow)]
    subs: BTreeMap<Cow<'m, str>, SubscribeFields<'m>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SubscribeFields<'m> {
    /// The number of the channel.
    id: i64,
    offset: u64,
    #[serde(borrow)]
    epoch: Cow<'m, str>,
    publications: Vec<OffsetField>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OffsetField {
    offset: u64,
}

impl Positions {
    /// Stores the channels of commands in the client's request.
    pub(crate) fn expect_replies(&mut self, commands: &[Command]) {
        let subscribes = commands.iter().filter_map(|command| {
            let subscribe = command.subscribe.as_ref()?;
            Some((command.id, subscribe.channel.clone()))
        });
        self.commands.extend(subscribes);
    }

    /// Appends the `id` line of an event if the message changes a position.
    pub(crate) fn write_id(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let Ok(message) = serde_json::from_slice::<EventMessage<'_>>(message) else {
            return;
        };
        if !self.update(message) {
            return;
        }
        let before = out.len();
        out.extend_from_slice(b"id: ");
        for (at, (channel, position)) in self.channels.iter().enumerate() {
            if at > 0 {
                out.push(b'&');
            }
            escape_channel(channel, out);
            out.extend_from_slice(format!("={}.{}", position.offset, position.epoch).as_bytes());
        }
        if out.len() - before > limits::EVENT_ID_BYTES {
            out.truncate(before);
            // With the previous `id` the publications behind it would be repeated.
            if std::mem::take(&mut self.has_id) {
                out.extend_from_slice(b"id\n");
            }
            return;
        }
        self.has_id = true;
        out.push(b'\n');
    }

    /// Returns whether a position has changed.
    fn update(&mut self, message: EventMessage<'_>) -> bool {
        let message = match message.push {
            Some(push) => *push,
            None => message,
        };
        let mut has_changed = false;
        if let Some(connected) = message.connect {
            for (channel, subscribed) in connected.subs {
                has_changed |= self.set_position(&channel, &subscribed);
            }
        }
        if let Some(subscribed) = message.subscribe {
            let number = u32::try_from(message.id);
            let command = number.ok().and_then(|number| self.commands.remove(&number));
            let channel = command.map_or(message.channel.clone(), Cow::Owned);
            has_changed |= self.set_position(&channel, &subscribed);
        }
        if let Some(publication) = message.publication
            && publication.offset > 0
            && let Some(channel) = push_channel(&self.numbers, &message.channel, message.id)
            && let Some(position) = self.channels.get_mut(channel)
        {
            position.offset = publication.offset;
            has_changed = true;
        }
        if message.unsubscribe.is_some() {
            has_changed |= self.channels.remove(&*message.channel).is_some();
            self.numbers.retain(|_, channel| *channel != message.channel);
        }
        has_changed
    }

    fn set_position(&mut self, channel: &str, subscribed: &SubscribeFields<'_>) -> bool {
        if channel.is_empty() {
            return false;
        }
        if subscribed.id != 0 {
            // It may have been the number of another channel.
            self.numbers.insert(subscribed.id, channel.to_owned());
        }
        // Without an epoch there is no position to recover from.
        if subscribed.epoch.is_empty() {
            return false;
        }
        let last = subscribed
            .publications
            .iter()
            .map(|publication| publication.offset);
        let position = EventPosition {
            offset: last.max().unwrap_or(0).max(subscribed.offset),
            epoch: subscribed.epoch.clone().into_owned(),
        };
        self.channels.insert(channel.to_owned(), position);
        true
    }
}

/// Returns the channel of a push, which has its name or its number.
fn push_channel<'a>(numbers: &'a BTreeMap<i64, String>, name: &'a str, number: i64) -> Option<&'a str> {
    if name.is_empty() {
        numbers.get(&number).map(String::as_str)
    } else {
        Some(name)
    }
}

/// Parses a `Last-Event-ID`. Other texts have no positions.
fn parse_positions(id: &str) -> BTreeMap<String, EventPosition> {
    let entries = id.split('&').filter_map(|entry| {
        let (channel, position) = entry.split_once('=')?;
        let (offset, epoch) = position.split_once('.')?;
        let position = EventPosition {
            offset: offset.parse().ok()?,
            epoch: epoch.to_owned(),
        };
        Some((unescape_channel(channel)?, position))
    });
    if id.len() <= limits::EVENT_ID_BYTES {
        entries.collect()
    } else {
        BTreeMap::new()
    }
}

/// Sets the positions of a connect request's channels to those of the client.
pub(crate) fn resume_connect(id: &str, connect: &mut ConnectRequest) {
    for (channel, position) in parse_positions(id) {
        let subscribe = connect
            .subs
            .entry(channel.clone())
            .or_insert_with(|| SubscribeRequest {
                channel,
                flag: RESUMED,
                ..SubscribeRequest::default()
            });
        set_recovery(subscribe, &position);
    }
}

/// Sets the positions of commands to those of the client.
pub(crate) fn resume_commands(id: &str, commands: &mut [Command]) {
    let positions = parse_positions(id);
    for command in commands {
        if let Some(connect) = &mut command.connect {
            resume_connect(id, connect);
        }
        if let Some(subscribe) = &mut command.subscribe
            && let Some(position) = positions.get(&subscribe.channel)
        {
            set_recovery(subscribe, position);
        }
    }
}

fn set_recovery(subscribe: &mut SubscribeRequest, position: &EventPosition) {
    subscribe.recover = true;
    subscribe.offset = position.offset;
    subscribe.epoch.clone_from(&position.epoch);
}

fn escape_channel(channel: &str, out: &mut Vec<u8>) {
    for byte in channel.bytes() {
        match byte {
            b'%' | b'&' | b'=' | b' ' => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            _ => out.push(byte),
        }
    }
}

fn unescape_channel(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut channel = parts.next()?.to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        channel.push(char::from(u8::from_str_radix(digits, 16).ok()?));
        channel.push_str(rest);
    }
    Some(channel)
}

#[cfg(test)]
mod tests;
