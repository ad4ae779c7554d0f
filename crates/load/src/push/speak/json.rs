//! Messages as objects of JSON.

use std::io::Write;

use serde::Deserialize;

use super::{CONNECT, Malformed, Said};

/// What of a reply, or of a push to one that only listens, is looked at.
#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    id: u32,
    error: Option<Error>,
    connect: Option<Connect>,
    subscribe: Option<Any>,
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
}

/// Whatever it holds.
#[derive(Deserialize)]
struct Any {}

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
    Ok(match (reply.error, reply.connect, disconnect, unsubscribe) {
        (Some(Error { code, message }), ..) => Said::Refused {
            id: reply.id,
            code,
            message,
        },
        (_, Some(Connect { pong }), ..) => Said::Connected { pong },
        (_, _, Some(End { code, reason }), _) => Said::Disconnected { code, reason },
        (_, _, _, Some(end)) => ended(channel, end),
        _ if reply.subscribe.is_some() => Said::Subscribed,
        _ => Said::Other,
    })
}

pub(super) fn connect(out: &mut Vec<u8>, token: Option<&str>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{{\"id\":{CONNECT},\"connect\":{{");
    write_token(out, token);
    out.extend_from_slice(b"}}");
}

pub(super) fn subscribe(out: &mut Vec<u8>, id: u32, name: &dyn Fn(&mut Vec<u8>)) {
    // A line for each command.
    if !out.is_empty() {
        out.push(b'\n');
    }
    let _ = write!(out, "{{\"id\":{id},\"subscribe\":{{\"channel\":\"");
    name(out);
    out.extend_from_slice(b"\"}}");
}

pub(super) fn listening(out: &mut Vec<u8>, token: Option<&str>, names: &[Vec<u8>]) {
    out.push(b'{');
    write_token(out, token);
    if token.is_some() {
        out.push(b',');
    }
    out.extend_from_slice(b"\"subs\":{");
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(name);
        out.extend_from_slice(b"\":{}");
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
