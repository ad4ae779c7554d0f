//! The messages of a rate limit service, written and read without the gateway's own definitions.

use super::authz_messages::{bytes, each, number};

/// Descriptors by their entries, in the form `key=value`, with the hits in front, if there are any.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) domain: String,
    pub(crate) descriptors: Vec<String>,
}

impl Asked {
    /// Reads a framed query.
    pub(crate) fn parse(framed: &[u8]) -> Asked {
        let mut asked = Asked::default();
        each(&framed[5..], &mut |tag, value, _| match tag {
            1 => asked.domain = text(value),
            2 => asked.descriptors.push(descriptor(value)),
            _ => panic!("expected no field {tag}"),
        });
        asked
    }
}

fn descriptor(message: &[u8]) -> String {
    let (mut entries, mut hits) = (Vec::new(), String::new());
    each(message, &mut |tag, value, _| match tag {
        1 => {
            let (mut key, mut found) = (String::new(), String::new());
            each(value, &mut |tag, value, _| match tag {
                1 => key = text(value),
                _ => found = text(value),
            });
            entries.push(format!("{key}={found}"));
        }
        3 => each(value, &mut |_, _, number| hits = format!("{number}*")),
        _ => panic!("expected no field {tag}"),
    });
    hits + &entries.join(";")
}

fn text(value: &[u8]) -> String {
    str::from_utf8(value).expect("texts are UTF-8").to_owned()
}

/// A field of `RateLimitResponse`.
pub(crate) type Part = Vec<u8>;

fn header(tag: u64, name: &str, value: &str) -> Part {
    bytes(
        tag,
        &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat(),
    )
}

pub(crate) fn response_header(name: &str, value: &str) -> Part {
    header(3, name, value)
}

pub(crate) fn request_header(name: &str, value: &str) -> Part {
    header(4, name, value)
}

pub(crate) fn raw_body(body: &str) -> Part {
    bytes(5, body.as_bytes())
}

/// The status of a descriptor: its code, `(requests, unit, name)` of its limit, the remaining requests, and the seconds until its reset.
pub(crate) fn status(code: u64, limit: Option<(u64, u64, &str)>, remaining: u64, reset: u64) -> Part {
    let limit = limit.map(|(requests, unit, name)| {
        let limit = [number(1, requests), number(2, unit), bytes(3, name.as_bytes())];
        bytes(2, &limit.concat())
    });
    let status = [
        number(1, code),
        limit.unwrap_or_default(),
        number(3, remaining),
        bytes(4, &number(1, reset)),
    ];
    bytes(2, &status.concat())
}

/// A response that admits the request.
pub(crate) fn ok(parts: &[Part]) -> Vec<u8> {
    [number(1, 1), parts.concat()].concat()
}

/// A response that refuses it.
pub(crate) fn over_limit(parts: &[Part]) -> Vec<u8> {
    [number(1, 2), parts.concat()].concat()
}
