//! The messages of an authorization service over gRPC, written and read without the gateway's own definitions.

use std::collections::BTreeMap;

/// Appends a varint.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field of bytes: a text or a message.
pub(crate) fn bytes(tag: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, tag << 3 | 2);
    varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

pub(crate) fn number(tag: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, tag << 3);
    varint(&mut out, value);
    out
}

/// A message with its length in front.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// A field of `OkHttpResponse`.
pub(crate) type Change = Vec<u8>;

fn option(tag: u64, name: &str, value: &str, more: &[u8]) -> Change {
    let header = [bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat();
    bytes(tag, &[&bytes(1, &header)[..], more].concat())
}

pub(crate) fn set(name: &str, value: &str) -> Change {
    option(2, name, value, &[])
}

pub(crate) fn append(name: &str, value: &str) -> Change {
    option(2, name, value, &bytes(2, &number(1, 1)))
}

pub(crate) fn overwrite(name: &str, value: &str) -> Change {
    option(2, name, value, &number(3, 2))
}

pub(crate) fn add_if_absent(name: &str, value: &str) -> Change {
    option(2, name, value, &number(3, 1))
}

pub(crate) fn overwrite_if_exists(name: &str, value: &str) -> Change {
    option(2, name, value, &number(3, 3))
}

/// The same change, of the response.
pub(crate) fn response(mut change: Change) -> Change {
    change[0] = 6 << 3 | 2;
    change
}

pub(crate) fn remove(name: &str) -> Change {
    bytes(5, name.as_bytes())
}

pub(crate) fn set_query(name: &str, value: &str) -> Change {
    bytes(
        7,
        &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat(),
    )
}

pub(crate) fn remove_query(name: &str) -> Change {
    bytes(8, name.as_bytes())
}

/// An allowing response.
pub(crate) fn ok(changes: &[Change]) -> Vec<u8> {
    [status(0), bytes(3, &changes.concat())].concat()
}

/// A response with this status alone.
pub(crate) fn status(code: u64) -> Vec<u8> {
    bytes(1, &number(1, code))
}

fn http_response(code: u64, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let fields = fields.iter().flat_map(|(name, value)| set(name, value));
    let fields: Vec<u8> = fields.collect();
    [bytes(1, &number(1, code)), fields, bytes(3, body.as_bytes())].concat()
}

/// A denying response.
pub(crate) fn denied(code: u64, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    [status(7), bytes(2, &http_response(code, fields, body))].concat()
}

/// A response that reports a failure.
pub(crate) fn error(code: u64, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    [status(13), bytes(5, &http_response(code, fields, body))].concat()
}

/// A query as received.
#[derive(Debug, Default)]
pub(crate) struct Check {
    texts: BTreeMap<String, String>,
    pub(crate) raw_body: Vec<u8>,
    pub(crate) size: i64,
}

impl Check {
    /// Reads a framed query.
    pub(crate) fn parse(framed: &[u8]) -> Check {
        let mut check = Check::default();
        each(&framed[5..], &mut |tag, value, _| {
            assert_eq!(tag, 1, "attributes");
            each(value, &mut |tag, value, _| match tag {
                1 => check.peer("source", value),
                2 => check.peer("destination", value),
                4 => each(value, &mut |tag, value, _| {
                    if tag == 2 {
                        each(value, &mut |tag, value, number| check.http(tag, value, number));
                    }
                }),
                10 => check.entry("context.", value),
                _ => {}
            });
        });
        check
    }

    /// Returns an attribute, or the value of a header.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let absent = matches!(name, "body").then_some("");
        self.texts.get(name).map(String::as_str).or(absent)
    }

    fn peer(&mut self, name: &str, value: &[u8]) {
        each(value, &mut |tag, value, _| match tag {
            1 => each(value, &mut |_, value, _| {
                each(value, &mut |tag, value, _| {
                    if tag == 2 {
                        self.put(name, value);
                    }
                });
            }),
            4 => self.put(&format!("{name}.principal"), value),
            _ => {}
        });
    }

    fn http(&mut self, tag: u64, value: &[u8], number: u64) {
        match tag {
            2 => self.put("method", value),
            3 => self.entry("", value),
            4 => self.put("path", value),
            5 => self.put("host", value),
            6 => self.put("scheme", value),
            9 => self.size = number as i64,
            10 => self.put("protocol", value),
            11 => self.put("body", value),
            12 => self.raw_body = value.to_vec(),
            _ => {}
        }
    }

    fn entry(&mut self, start: &str, value: &[u8]) {
        let (mut name, mut text) = (start.to_owned(), Vec::new());
        each(value, &mut |tag, value, _| match tag {
            1 => name.push_str(str::from_utf8(value).expect("a name")),
            _ => text = value.to_vec(),
        });
        self.put(&name, &text);
    }

    fn put(&mut self, name: &str, value: &[u8]) {
        let text = str::from_utf8(value).expect("texts are UTF-8").to_owned();
        self.texts.insert(name.to_owned(), text);
    }
}

/// Calls `read` with each field of a message: its tag, its bytes, its number.
pub(crate) fn each(mut message: &[u8], read: &mut dyn FnMut(u64, &[u8], u64)) {
    let varint = |message: &mut &[u8]| {
        let mut value = 0;
        for shift in 0.. {
            let (&byte, rest) = message.split_first().expect("a whole number");
            *message = rest;
            value |= u64::from(byte & 0x7f) << (7 * shift);
            if byte < 0x80 {
                break;
            }
        }
        value
    };
    while !message.is_empty() {
        let key = varint(&mut message);
        let number = varint(&mut message);
        match key & 7 {
            0 => read(key >> 3, &[], number),
            2 => {
                let (value, rest) = message.split_at(number as usize);
                message = rest;
                read(key >> 3, value, 0);
            }
            kind => panic!("expected no field of kind {kind}"),
        }
    }
}
