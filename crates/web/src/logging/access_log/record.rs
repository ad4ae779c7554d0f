//! One request as a line of the access log. No text from a client can end the line, end a quotation or control a terminal.
//!
//! Pure: no clock, no file, no allocation except in the caller's buffer, and for a line with values to redact.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use ringmain_wire::h1::Version;

use super::template::{FIELDS, Piece, Template};
use crate::http::client_text;
use crate::http::date;
use crate::limits;
use crate::logging::json_text::{self, hex};
use crate::logging::log_field::LogField;
use crate::logging::redact::redacted_target;

/// The format of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The Common Log Format: `127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] "GET / HTTP/1.1" 200 5`. In quotations `"` and `\` are
    /// escaped with a backslash, and bytes that are not visible ASCII are `\xHH`.
    Common,
    /// As [`Common`](Format::Common), with `Referer` and `User-Agent`.
    #[default]
    Combined,
    /// A JSON object per line, with all known values; an absent value has no member.
    Json,
    /// A custom template. Values are escaped as in quotations; an absent value is `-`.
    Template(Template),
}

/// The values of one request. Client texts longer than [`limits::ACCESS_LOG_FIELD_BYTES`] are cut.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The client's address; `None`: unknown, or not an IP connection.
    pub remote: Option<IpAddr>,
    /// The time at which the response was complete, since 1970-01-01.
    pub time: Duration,
    /// The method as it was sent.
    pub method: &'a str,
    /// The target as it was sent.
    pub target: &'a str,
    /// The HTTP version of the request; `None`: another protocol.
    pub version: Option<Version>,
    /// The status of the response.
    pub status: u16,
    /// Bytes of the response body.
    pub body_bytes: u64,
    /// Microseconds from the request's head to the end of the response.
    pub duration_us: u64,
    /// `Referer`.
    pub referer: Option<&'a [u8]>,
    /// `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// The request's id.
    pub request_id: Option<&'a str>,
    /// Further fields added by the handler.
    pub log_fields: &'a [(&'static str, LogField)],
}

impl Record<'_> {
    /// Appends the record as a line.
    ///
    /// The values of `hidden` parameters are redacted, in the target and in `Referer`.
    pub(super) fn write(&self, format: &Format, hidden: &[Box<str>], out: &mut Vec<u8>) {
        let target = redacted_target(self.target.as_bytes(), hidden);
        let referer = self.referer.map(|referer| redacted_target(referer, hidden));
        let record = Record {
            // Redaction only splits at ASCII characters, so the target remains UTF-8.
            target: std::str::from_utf8(&target).unwrap_or_default(),
            referer: referer.as_deref(),
            ..*self
        };
        record.write_shown(format, out);
    }

    fn write_shown(&self, format: &Format, out: &mut Vec<u8>) {
        match format {
            Format::Common => self.write_common(out),
            Format::Combined => {
                self.write_common(out);
                for value in [self.referer, self.user_agent] {
                    out.extend_from_slice(b" \"");
                    quoted(out, value.unwrap_or(b"-"));
                    out.push(b'"');
                }
            }
            Format::Json => self.write_json(out),
            Format::Template(template) => self.write_template(template, out),
        }
        out.push(b'\n');
    }

    fn write_template(&self, template: &Template, out: &mut Vec<u8>) {
        for piece in template.pieces() {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Field(number) => self.write_field(FIELDS[*number], out),
                Piece::LogField(name) => match self.log_fields.iter().find(|(noted, _)| **noted == **name) {
                    Some((_, LogField::Word(word))) => quoted(out, word.as_bytes()),
                    Some((_, LogField::Text(text))) => quoted(out, text.as_bytes()),
                    Some((_, LogField::Number(count))) => number_of(out, *count),
                    None => out.push(b'-'),
                },
            }
        }
    }

    fn write_field(&self, name: &str, out: &mut Vec<u8>) {
        match name {
            "time" => out.extend_from_slice(&date::timestamp(self.time)),
            "remote" => match self.remote {
                Some(remote) => address(out, remote),
                None => out.push(b'-'),
            },
            "method" => quoted(out, self.method.as_bytes()),
            "target" => quoted(out, self.target.as_bytes()),
            "version" => out.extend_from_slice(self.version().as_bytes()),
            "status" => number_of(out, u64::from(self.status)),
            "bytes" => number_of(out, self.body_bytes),
            "duration_us" => number_of(out, self.duration_us),
            "referer" => quoted(out, self.referer.unwrap_or(b"-")),
            "user_agent" => quoted(out, self.user_agent.unwrap_or(b"-")),
            _ => quoted(out, self.request_id.unwrap_or("-").as_bytes()),
        }
    }

    fn write_common(&self, out: &mut Vec<u8>) {
        match self.remote {
            Some(remote) => address(out, remote),
            None => out.push(b'-'),
        }
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(&date::log_date(self.time));
        out.extend_from_slice(b"] \"");
        quoted(out, self.method.as_bytes());
        out.push(b' ');
        quoted(out, self.target.as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.version().as_bytes());
        out.extend_from_slice(b"\" ");
        number_of(out, u64::from(self.status));
        out.push(b' ');
        number_of(out, self.body_bytes);
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&date::timestamp(self.time));
        out.push(b'"');
        if let Some(remote) = self.remote {
            out.extend_from_slice(b",\"remote\":\"");
            address(out, remote);
            out.push(b'"');
        }
        member(out, b"method", Some(self.method.as_bytes()));
        member(out, b"target", Some(self.target.as_bytes()));
        member(out, b"version", self.version.map(|_| self.version().as_bytes()));
        for (name, value) in [
            (&b",\"status\":"[..], u64::from(self.status)),
            (b",\"bytes\":", self.body_bytes),
            (b",\"duration_us\":", self.duration_us),
        ] {
            out.extend_from_slice(name);
            number_of(out, value);
        }
        member(out, b"referer", self.referer);
        member(out, b"user_agent", self.user_agent);
        member(out, b"request_id", self.request_id.map(str::as_bytes));
        for (name, note) in self.log_fields {
            match note {
                LogField::Word(word) => member(out, name.as_bytes(), Some(word.as_bytes())),
                LogField::Text(text) => member(out, name.as_bytes(), Some(text.as_bytes())),
                LogField::Number(count) => {
                    out.extend_from_slice(b",\"");
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(b"\":");
                    number_of(out, *count);
                }
            }
        }
        out.push(b'}');
    }

    fn version(&self) -> &'static str {
        match self.version {
            Some(Version::Http10) => "HTTP/1.0",
            Some(Version::Http11) => "HTTP/1.1",
            Some(Version::Http2) => "HTTP/2.0",
            None => "-",
        }
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    write!(out, "{address}").expect("memory takes it");
}

fn number_of(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(client_text::decimal(&mut [0; 20], number));
}

/// Returns `value` up to the limit, and the rest.
fn cut(value: &[u8]) -> (&[u8], &[u8]) {
    match value.get(..limits::ACCESS_LOG_FIELD_BYTES) {
        Some(start) if start.len() < value.len() => (start, b"..."),
        _ => (value, b""),
    }
}

/// Appends text between the quotation marks of the Common Log Format, escaped as by Apache.
fn quoted(out: &mut Vec<u8>, value: &[u8]) {
    let (value, text) = cut(value);
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte & 15)]),
        }
    }
    out.extend_from_slice(text);
}

fn member(out: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    let Some(value) = value else { return };
    let (value, text) = cut(value);
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name);
    out.extend_from_slice(b"\":\"");
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            json_text::push_escaped(out, character);
        }
        if !chunk.invalid().is_empty() {
            json_text::push_escaped(out, char::REPLACEMENT_CHARACTER);
        }
    }
    out.extend_from_slice(text);
    out.push(b'"');
}
