//! Requests to services that speak HTTP.

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Method, Parsed, parse_request};

/// A request.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    pub(super) is_head: bool,
    fields: Vec<(String, String)>,
}

impl Asked {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }
}

/// Parses the next request of the gateway, which must be valid.
pub(super) fn request(kept: &mut Vec<u8>) -> Option<Asked> {
    let mut table = FieldTable::new(&Limits::INTERNET);
    let parsed = parse_request(kept, &Limits::INTERNET, &mut HeadScanner::new(), &mut table);
    let Parsed::Complete { head, bytes } = parsed.expect("the gateway writes what is right") else {
        return None;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = head.fields.iter_known();
    let mut asked = Asked {
        body: Vec::new(),
        path: head.target.path().to_owned(),
        is_head: head.method == Method::Head,
        fields: fields
            .map(|(_, field)| (text(field.name), text(field.value)))
            .collect(),
    };
    let length = asked.field("Content-Length").map_or("0", |length| length);
    let length: usize = length.parse().expect("a length");
    if kept.len() < bytes + length {
        return None;
    }
    kept.drain(..bytes);
    asked.body = kept.drain(..length).collect();
    Some(asked)
}

pub(super) fn answer(status: u16, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Said\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Returns bytes that are not a valid response of any service.
pub(super) fn lie(random: &mut fastrand::Rng) -> Vec<u8> {
    let lies: [&[u8]; 8] = [
        b"what?\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"k",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-User: ro\0ot\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    ];
    lies[random.usize(..lies.len())].to_vec()
}
