//! A head as plain bytes, for whoever looks at it later: without compression, in the order in which it is read.

use crate::h1::{
    Authority, FieldTable, Fields, Framing, Known, Method, Record, RequestHead, ResponseHead, Target, Version,
};

/// Bytes in front of the texts: lengths of method, target, authority and protocol, the framing, and whether the client waits.
const FIXED: usize = 4 * 4 + 9 + 1;
/// Bytes in front of an answer's fields: the status and the framing.
const FIXED_RESPONSE: usize = 2 + 9;
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
    store_framing(head.framing, out);
    out.push(u8::from(head.expect_continue));
    for text in texts {
        out.extend_from_slice(text);
    }
    store_fields(&head.fields, out);
}

fn store_framing(framing: Framing, out: &mut Vec<u8>) {
    let (framing, length) = match framing {
        Framing::None => (0, 0),
        Framing::Length(length) => (1, length),
        Framing::Chunked | Framing::UntilClose => (2, 0),
    };
    out.push(framing);
    out.extend_from_slice(&u64::to_le_bytes(length));
}

fn store_fields(fields: &Fields<'_>, out: &mut Vec<u8>) {
    for (known, field) in fields.iter_known() {
        out.push(known.map_or(UNKNOWN, |known| known as u8));
        out.extend_from_slice(&(field.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&(field.value.len() as u32).to_le_bytes());
        out.extend_from_slice(field.name);
        out.extend_from_slice(field.value);
    }
}

/// Appends an answer's head, to be read again by [`load_response`].
pub fn store_response(head: &ResponseHead<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&head.status.to_le_bytes());
    store_framing(head.framing, out);
    store_fields(&head.fields, out);
}

/// The head that [`store_response`] has stored; `None` for other bytes. The table must have room for as many fields as that from
/// which the head was stored.
#[must_use]
pub fn load_response<'a>(stored: &'a [u8], table: &'a mut FieldTable) -> Option<ResponseHead<'a>> {
    let (fixed, _) = stored.split_first_chunk::<FIXED_RESPONSE>()?;
    load_fields(stored, FIXED_RESPONSE, table)?;
    Some(ResponseHead {
        version: Version::Http2,
        status: u16::from_le_bytes([fixed[0], fixed[1]]),
        reason: b"",
        fields: table.fields(stored),
        framing: load_framing(&fixed[2..])?,
        keep_alive: true,
        switches: false,
    })
}

/// Of the bytes that [`store_framing`] appends.
fn load_framing(stored: &[u8]) -> Option<Framing> {
    let (kind, length) = stored.split_first()?;
    let length = u64::from_le_bytes(*length.first_chunk()?);
    Some(match kind {
        0 => Framing::None,
        1 => Framing::Length(length),
        _ => Framing::Chunked,
    })
}

/// Fills the table with what [`store_fields`] has appended.
fn load_fields(stored: &[u8], from: usize, table: &mut FieldTable) -> Option<()> {
    table.clear();
    let mut at = from;
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
    (at == stored.len()).then_some(())
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
    let authority = Authority::new(authority.as_bytes()).ok()?;
    let target = match (target_text, method, protocol) {
        (_, Method::Connect, None) => Target::Authority(authority),
        ("*", ..) => Target::Asterisk,
        (text, ..) => Target::origin_of(Method::Get, text)?,
    };
    load_fields(stored, stored.len() - rest.len(), table)?;
    Some(RequestHead {
        method,
        target,
        target_text,
        version: Version::Http2,
        fields: table.fields(stored),
        authority: Some(authority),
        framing: load_framing(&fixed[16..])?,
        keep_alive: true,
        expect_continue: fixed[25] == 1,
        // Of an extended CONNECT that was stored as an upgrade.
        upgrade: protocol.filter(|_| method != Method::Connect).map(str::as_bytes),
        protocol,
    })
}
