//! The messages of an external processor, written and read without the gateway's own definitions.

use std::collections::BTreeMap;

use super::authz_messages::{bytes, each, number};

/// The fields of messages, by their part.
pub(crate) const REQUEST_HEAD: u64 = 1;
pub(crate) const RESPONSE_HEAD: u64 = 2;
pub(crate) const REQUEST_BODY: u64 = 3;
pub(crate) const RESPONSE_BODY: u64 = 4;

/// A message as the service receives it.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// The field of the response that it requires.
    pub(crate) part: u64,
    headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_end: bool,
    /// The modes of the bodies of requests and responses.
    pub(crate) protocol: Option<(u64, u64)>,
}

impl Message {
    /// Reads a message.
    pub(crate) fn parse(message: &[u8]) -> Message {
        let mut found = Message::default();
        each(message, &mut |tag, value, _| match tag {
            2..=5 => {
                found.part = tag - 1;
                each(value, &mut |field, value, number| match (tag, field) {
                    (2 | 3, 1) => each(value, &mut |_, value, _| found.header(value)),
                    (4 | 5, 1) => found.body = value.to_vec(),
                    (2 | 3, 3) | (4 | 5, 2) => found.is_end = number == 1,
                    _ => panic!("expected no field {field} in {tag}"),
                });
            }
            11 => {
                let mut modes = (0, 0);
                each(value, &mut |tag, _, number| match tag {
                    1 => modes.0 = number,
                    _ => modes.1 = number,
                });
                found.protocol = Some(modes);
            }
            _ => panic!("expected no field {tag}"),
        });
        found
    }

    fn header(&mut self, message: &[u8]) {
        let (mut name, mut text) = (String::new(), String::new());
        each(message, &mut |tag, value, _| {
            let value = String::from_utf8(value.to_vec()).expect("text");
            match tag {
                1 => name = value,
                3 => text = value,
                _ => panic!("expected values as bytes"),
            }
        });
        let values = self.headers.entry(name).or_default();
        values.push_str(if values.is_empty() { "" } else { "," });
        values.push_str(&text);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// A field of `CommonResponse`.
pub(crate) type Change = Vec<u8>;

/// Changes of headers: [`set`], [`append`] and [`remove`].
pub(crate) fn headers(changes: &[Change]) -> Change {
    bytes(2, &changes.concat())
}

pub(crate) fn set(name: &str, value: &str) -> Change {
    option(name, value, &number(3, 2))
}

pub(crate) fn append(name: &str, value: &str) -> Change {
    option(name, value, &bytes(2, &number(1, 1)))
}

fn option(name: &str, value: &str, more: &[u8]) -> Change {
    let header = [bytes(1, name.as_bytes()), bytes(3, value.as_bytes())].concat();
    bytes(1, &[&bytes(1, &header)[..], more].concat())
}

pub(crate) fn remove(name: &str) -> Change {
    bytes(2, name.as_bytes())
}

pub(crate) fn body(body: &[u8]) -> Change {
    bytes(3, &bytes(1, body))
}

pub(crate) fn clear_body() -> Change {
    bytes(3, &number(2, 1))
}

/// The status by which the whole body is replaced.
pub(crate) fn replace() -> Change {
    number(1, 1)
}

/// A response to a part, with changes.
pub(crate) fn reply(part: u64, changes: &[Change]) -> Vec<u8> {
    bytes(part, &bytes(1, &changes.concat()))
}

/// The choice of another mode, in addition to a response: the head of the response (1: sent, 2: not), the bodies (1: streamed, 2: whole).
pub(crate) fn mode(response_headers: u64, request_body: u64, response_body: u64) -> Vec<u8> {
    let mode = [
        number(2, response_headers),
        number(3, request_body),
        number(4, response_body),
    ];
    bytes(9, &mode.concat())
}

/// A request for more time.
pub(crate) fn more_time(seconds: u64) -> Vec<u8> {
    bytes(10, &number(1, seconds))
}

/// A response in place of any other.
pub(crate) fn immediate(status: u64, changes: &[Change], body: &str) -> Vec<u8> {
    let response = [
        bytes(1, &number(1, status)),
        bytes(2, &changes.concat()),
        bytes(3, body.as_bytes()),
    ];
    bytes(7, &response.concat())
}
