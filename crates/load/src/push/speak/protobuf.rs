//! Messages in Protobuf, each behind its length: the fields that count, by hand.

use super::{CONNECT, Malformed, Said, Standing, Wish};

/// The wire type of whole numbers, and of what has a length.
const VARINT: u64 = 0;
const LENGTH: u64 = 2;

/// A field's value.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a kind that no field of ours has.
    Other,
}

/// The first message, and what is behind it.
pub(super) fn split(input: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (length, rest) = varint(input).ok_or(Malformed)?;
    let length = usize::try_from(length).map_err(|_| Malformed)?;
    rest.split_at_checked(length).ok_or(Malformed)
}

/// A `Reply`.
pub(super) fn read(part: &[u8]) -> Option<Said> {
    if part.is_empty() {
        return Some(Said::Ping);
    }
    let (mut id, mut said) = (0, Said::Other);
    let mut error = None;
    for field in Fields(part) {
        match field? {
            (1, Value::Number(number)) => id = number as u32,
            (2, Value::Bytes(bytes)) => error = Some((told(bytes)?, has(bytes, 3)?)),
            (4, Value::Bytes(bytes)) => said = push(bytes)?,
            (5, Value::Bytes(bytes)) => {
                // Nobody but who only listens is subscribed with it, and that is in JSON.
                said = Said::Connected {
                    pong: has(bytes, 8)?,
                    subs: Vec::new(),
                }
            }
            (6, Value::Bytes(bytes)) => {
                said = Said::Subscribed {
                    id: 0,
                    at: standing(bytes)?,
                }
            }
            _ => {}
        }
    }
    if let Said::Subscribed { id: of, .. } = &mut said {
        *of = id;
    }
    Some(match error {
        Some(((code, message), temporary)) => Said::Refused {
            id,
            code,
            message,
            temporary,
        },
        None => said,
    })
}

/// A `SubscribeResult`.
fn standing(part: &[u8]) -> Option<Standing> {
    let mut at = Standing::default();
    for field in Fields(part) {
        match field? {
            (3, Value::Number(number)) => at.recoverable = number != 0,
            (6, Value::Bytes(bytes)) => at.epoch = text(bytes),
            (8, Value::Number(number)) => at.recovered = number != 0,
            // The reply to a recovery has the offset that was asked from, and its publications lead on from there.
            (7, Value::Bytes(bytes)) => {
                let offset = publication_offset(bytes);
                at.offset = at.offset.max(offset);
                at.offsets.push(offset);
            }
            (9, Value::Number(number)) => at.offset = at.offset.max(number),
            _ => {}
        }
    }
    Some(at)
}

/// The offset of a `Reply` with a `Push` with a `Publication`.
pub(super) fn offset(part: &[u8]) -> Option<u64> {
    let publication = inner(inner(part, 4)?, 4)?;
    Some(publication_offset(publication))
}

/// The offset of a `Publication`; 0 without one.
fn publication_offset(part: &[u8]) -> u64 {
    let offset = Fields(part).flatten().find_map(|field| match field {
        (6, Value::Number(offset)) => Some(offset),
        _ => None,
    });
    offset.unwrap_or(0)
}

/// The message in a field.
fn inner(part: &[u8], number: u64) -> Option<&[u8]> {
    Fields(part).flatten().find_map(|field| match field {
        (found, Value::Bytes(bytes)) if found == number => Some(bytes),
        _ => None,
    })
}

/// A `Push`.
fn push(part: &[u8]) -> Option<Said> {
    let (mut name, mut said) = (String::new(), Said::Other);
    for field in Fields(part) {
        match field? {
            (2, Value::Bytes(bytes)) => name = text(bytes),
            (7, Value::Bytes(bytes)) => {
                let mut numbers = Fields(bytes).flatten();
                let code = numbers.find_map(|field| match field {
                    (2, Value::Number(code)) => Some(code as u32),
                    _ => None,
                });
                let mut texts = Fields(bytes).flatten();
                let reason = texts.find_map(|field| match field {
                    (3, Value::Bytes(bytes)) => Some(text(bytes)),
                    _ => None,
                });
                said = Said::Unsubscribed {
                    channel: String::new(),
                    code: code.unwrap_or(0),
                    reason: reason.unwrap_or_default(),
                };
            }
            (11, Value::Bytes(bytes)) => {
                let (code, reason) = told(bytes)?;
                said = Said::Disconnected { code, reason };
            }
            _ => {}
        }
    }
    if let Said::Unsubscribed { channel, .. } = &mut said {
        *channel = name;
    }
    Some(said)
}

/// A code and a text, as errors and ends have them.
fn told(part: &[u8]) -> Option<(u32, String)> {
    let (mut code, mut words) = (0, String::new());
    for field in Fields(part) {
        match field? {
            (1, Value::Number(number)) => code = number as u32,
            (2, Value::Bytes(bytes)) => words = text(bytes),
            _ => {}
        }
    }
    Some((code, words))
}

/// Whether a truth is set.
fn has(part: &[u8], number: u64) -> Option<bool> {
    let mut set = false;
    for field in Fields(part) {
        let (found, value) = field?;
        set |= found == number && matches!(value, Value::Number(1..));
    }
    Some(set)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The fields of a message; `None` ends it where it cannot be read on.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let (key, rest) = varint(self.0)?;
        let (value, rest) = match key & 7 {
            VARINT => {
                let (number, rest) = varint(rest)?;
                (Value::Number(number), rest)
            }
            LENGTH => {
                let (bytes, rest) = split(rest).ok()?;
                (Value::Bytes(bytes), rest)
            }
            1 => (Value::Other, rest.get(8..)?),
            5 => (Value::Other, rest.get(4..)?),
            _ => return None,
        };
        self.0 = rest;
        Some((key >> 3, value))
    }
}

/// A whole number of at most ten bytes, and what is behind it.
fn varint(input: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (index, byte) in input.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &input[index + 1..]));
        }
    }
    None
}

pub(super) fn connect(out: &mut Vec<u8>, token: Option<&str>) {
    let mut request = Vec::new();
    if let Some(token) = token {
        write_bytes(&mut request, 1, token.as_bytes());
    }
    write_command(out, CONNECT, 4, &request);
}

pub(super) fn subscribe(out: &mut Vec<u8>, id: u32, wish: Wish<'_>, name: &dyn Fn(&mut Vec<u8>)) {
    let (mut channel, mut request) = (Vec::new(), Vec::new());
    name(&mut channel);
    write_bytes(&mut request, 1, &channel);
    if let Some((offset, epoch)) = wish.since {
        write_number(&mut request, 3, 1);
        write_bytes(&mut request, 6, epoch.as_bytes());
        write_number(&mut request, 7, offset);
    }
    if wish.recoverable {
        write_number(&mut request, 10, 1);
    }
    write_command(out, id, 5, &request);
}

/// A `Command` behind its length.
fn write_command(out: &mut Vec<u8>, id: u32, field: u64, request: &[u8]) {
    let mut command = Vec::new();
    write_number(&mut command, 1, u64::from(id));
    write_bytes(&mut command, field, request);
    write_varint(out, command.len() as u64);
    out.extend_from_slice(&command);
}

fn write_number(out: &mut Vec<u8>, field: u64, number: u64) {
    write_varint(out, field << 3 | VARINT);
    write_varint(out, number);
}

fn write_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    write_varint(out, field << 3 | LENGTH);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
