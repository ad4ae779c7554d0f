//! A request's head as plain bytes, for whoever answers it later: without compression, in the order in which it is read.

use crate::h1::{Authority, FieldTable, Framing, Known, Method, Record, RequestHead, Target, Version};

/// Bytes in front of the texts: lengths of method, target, authority and protocol, the framing, and whether the client waits.
const FIXED: usize = 4 * 4 + 9 + 1;
/// Bytes in front of each field: the known one, and the lengths of name and value.
const FIELD: usize = 1 + 2 + 4;
const UNKNOWN: u8 = u8::MAX;

/// Appends a head, to be read again by [`load_request`].
pub fn store_request(head: &RequestHead<'_>, out: &mut Vec<u8>) {
    let authority = head.authority.map_or(&b""[..], Authority::as_bytes);
    let texts = [
        head.method.as_str().as_bytes(),
        head.target_text.as_bytes(),
        authority,
        head.protocol.unwrap_or_default().as_bytes(),
    ];
    for text in texts {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    }
    let (framing, length) = match head.framing {
        Framing::None => (0, 0),
        Framing::Length(length) => (1, length),
        Framing::Chunked | Framing::UntilClose => (2, 0),
    };
    out.push(framing);
    out.extend_from_slice(&length.to_le_bytes());
    out.push(u8::from(head.expect_continue));
    for text in texts {
        out.extend_from_slice(text);
    }
    for (known, field) in head.fields.iter_known() {
        out.push(known.map_or(UNKNOWN, |known| known as u8));
        out.extend_from_slice(&(field.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&(field.value.len() as u32).to_le_bytes());
        out.extend_from_slice(field.name);
        out.extend_from_slice(field.value);
    }
}

/// The head that [`store_request`] has stored; `None` for other bytes. The table must have room for as many fields as that from which
/// the head was stored.
#[must_use]
pub fn load_request<'a>(stored: &'a [u8], table: &'a mut FieldTable) -> Option<RequestHead<'a>> {
    let (fixed, mut rest) = stored.split_at_checked(FIXED)?;
    let mut texts = [""; 4];
    for (text, length) in texts.iter_mut().zip(fixed.chunks_exact(4)) {
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (taken, behind) = rest.split_at_checked(length)?;
        *text = str::from_utf8(taken).ok()?;
        rest = behind;
    }
    let [method, target_text, authority, protocol] = texts;
    let method = Method::new(method);
    let protocol = (!protocol.is_empty()).then_some(protocol);
    let length = u64::from_le_bytes(fixed[17..25].try_into().ok()?);
    let authority = Authority::new(authority.as_bytes()).ok()?;
    let target = match (target_text, method, protocol) {
        (_, Method::Connect, None) => Target::Authority(authority),
        ("*", ..) => Target::Asterisk,
        (text, ..) => Target::origin(Method::Get, text)?,
    };
    table.clear();
    let mut at = stored.len() - rest.len();
    while at < stored.len() {
        let fixed = stored.get(at..at + FIELD)?;
        let name = usize::from(u16::from_le_bytes([fixed[1], fixed[2]]));
        let value = u32::from_le_bytes([fixed[3], fixed[4], fixed[5], fixed[6]]) as usize;
        let name_at = at + FIELD;
        at = name_at + name + value;
        table.push(Record {
            name_at: name_at as u32,
            name_end: (name_at + name) as u32,
            value_at: (name_at + name) as u32,
            value_end: at as u32,
            known: Known::ALL.get(usize::from(fixed[0])).copied(),
        });
    }
    if at != stored.len() {
        return None;
    }
    Some(RequestHead {
        method,
        target,
        target_text,
        version: Version::Http2,
        fields: table.fields(stored),
        authority: Some(authority),
        framing: match fixed[16] {
            0 => Framing::None,
            1 => Framing::Length(length),
            _ => Framing::Chunked,
        },
        keep_alive: true,
        expect_continue: fixed[25] == 1,
        upgrade: None,
        protocol,
    })
}
