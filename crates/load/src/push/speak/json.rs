//! Messages as objects of JSON.

use std::collections::BTreeMap;
use std::io::Write;

use memchr::memmem;
use serde::Deserialize;

use super::{CONNECT, Malformed, Said, Standing, Wish};

/// What of a reply, or of a push to one that only listens, is looked at.
#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    id: u32,
    error: Option<Error>,
    connect: Option<Connect>,
    subscribe: Option<Subscribe>,
    push: Option<Push>,
    disconnect: Option<End>,
    unsubscribe: Option<End>,
    #[serde(default)]
    channel: String,
}

#[derive(Deserialize)]
struct Push {
    #[serde(default)]
    channel: String,
    disconnect: Option<End>,
    unsubscribe: Option<End>,
}

#[derive(Deserialize)]
struct Error {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    message: String,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
struct End {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct Connect {
    #[serde(default)]
    pong: bool,
    #[serde(default)]
    subs: BTreeMap<String, Subscribe>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Subscribe {
    recoverable: bool,
    recovered: bool,
    offset: u64,
    epoch: String,
    publications: Vec<Publication>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Publication {
    offset: u64,
}

impl From<Subscribe> for Standing {
    fn from(said: Subscribe) -> Standing {
        let Subscribe {
            recoverable,
            recovered,
            offset,
            epoch,
            publications,
        } = said;
        let offsets: Vec<u64> = publications
            .iter()
            .map(|publication| publication.offset)
            .collect();
        let last = offsets.last().copied().unwrap_or(0);
        Standing {
            recoverable,
            recovered,
            // The reply to a recovery has the offset that was asked from, and its publications lead on from there.
            offset: offset.max(last),
            epoch,
            offsets,
        }
    }
}

pub(super) fn read(part: &[u8]) -> Result<Said, Malformed> {
    let part = part.trim_ascii();
    if part == b"{}" {
        return Ok(Said::Ping);
    }
    let reply: Reply = serde_json::from_slice(part).map_err(|_| Malformed)?;
    let ended = |channel: String, end: End| Said::Unsubscribed {
        channel,
        code: end.code,
        reason: end.reason,
    };
    let pushed = reply
        .push
        .map(|push| (push.channel, push.disconnect, push.unsubscribe));
    let (channel, disconnect, unsubscribe) =
        pushed.unwrap_or((reply.channel, reply.disconnect, reply.unsubscribe));
    if let Some(error) = reply.error {
        return Ok(Said::Refused {
            id: reply.id,
            code: error.code,
            message: error.message,
            temporary: error.temporary,
        });
    }
    Ok(match (reply.connect, disconnect, unsubscribe, reply.subscribe) {
        (Some(Connect { pong, subs }), ..) => Said::Connected {
            pong,
            subs: subs.into_iter().map(|(name, at)| (name, at.into())).collect(),
        },
        (_, Some(End { code, reason }), ..) => Said::Disconnected { code, reason },
        (_, _, Some(end), _) => ended(channel, end),
        (_, _, _, Some(at)) => Said::Subscribed {
            id: reply.id,
            at: at.into(),
        },
        _ => Said::Other,
    })
}

/// What stands before a publication's offset.
const OFFSET: &[u8] = b"\"offset\":";

pub(super) fn offset(part: &[u8], end: usize) -> u64 {
    // Behind the data, where it is found at once; data of ours holds no such text.
    let (before, behind) = part.split_at(end);
    let found = |text: &[u8]| {
        let at = memmem::find(text, OFFSET)? + OFFSET.len();
        let digits = text[at..].trim_ascii_start();
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.take(20).try_fold(0u64, |number, digit| {
            number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
    };
    found(behind).or_else(|| found(before)).unwrap_or(0)
}

pub(super) fn connect(out: &mut Vec<u8>, token: Option<&str>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{{\"id\":{CONNECT},\"connect\":{{");
    write_token(out, token);
    out.extend_from_slice(b"}}");
}

pub(super) fn subscribe(out: &mut Vec<u8>, id: u32, wish: Wish<'_>, name: &dyn Fn(&mut Vec<u8>)) {
    // A line for each command.
    if !out.is_empty() {
        out.push(b'\n');
    }
    let _ = write!(out, "{{\"id\":{id},\"subscribe\":{{\"channel\":\"");
    name(out);
    out.push(b'"');
    write_wish(out, wish, true);
    out.extend_from_slice(b"}}");
}

/// Appends the fields of a wish, with a comma before the first where something is `before` it.
fn write_wish(out: &mut Vec<u8>, wish: Wish<'_>, before: bool) {
    let comma = if before { "," } else { "" };
    if wish.recoverable {
        let _ = write!(out, "{comma}\"recoverable\":true");
    }
    if let Some((offset, epoch)) = wish.since {
        let comma = if wish.recoverable { "," } else { comma };
        let _ = write!(out, "{comma}\"recover\":true,\"offset\":{offset},\"epoch\":");
        let written = serde_json::to_writer(out, epoch);
        debug_assert!(written.is_ok(), "a text is written to memory");
    }
}

pub(super) fn listening(out: &mut Vec<u8>, token: Option<&str>, channels: &[(Vec<u8>, Wish<'_>)]) {
    out.push(b'{');
    write_token(out, token);
    if token.is_some() {
        out.push(b',');
    }
    out.extend_from_slice(b"\"subs\":{");
    for (index, (name, wish)) in channels.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(name);
        out.extend_from_slice(b"\":{");
        write_wish(out, *wish, false);
        out.push(b'}');
    }
    out.extend_from_slice(b"}}");
}

fn write_token(out: &mut Vec<u8>, token: Option<&str>) {
    if let Some(token) = token {
        out.extend_from_slice(b"\"token\":");
        let written = serde_json::to_writer(out, token);
        debug_assert!(written.is_ok(), "a text is written to memory");
    }
}
