//! What a field is, and whether its name and value may stand in HTTP/2 at all (RFC 9113 §8.2, §8.3): found out once for each
//! field that comes, and kept beside those in the dynamic table.
//!
//! Knows no message: which fields must or must not be together is for `head`.

use super::fault::FaultKind;
use crate::h1::grammar::{self, TARGET, TOKEN};
use crate::h1::{Authority, Known};

/// What kind of field a name makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Method,
    Scheme,
    Authority,
    Path,
    Status,
    Protocol,
    ContentLength,
    Host,
    Cookie,
    /// Any other.
    Plain,
}

/// What is known of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) kind: Kind,
    pub(super) known: Option<Known>,
    /// Why a message with it is malformed.
    pub(super) fault: Option<FaultKind>,
}

impl Tag {
    /// Of a field as it came.
    pub(super) fn of(name: &[u8], value: &[u8]) -> Tag {
        let mut tag = Tag::of_name(name);
        tag.fault = tag.fault.or_else(|| value_fault(tag, value));
        tag
    }

    /// The same name with another value.
    pub(super) fn with_value(self, value: &[u8]) -> Tag {
        // What is wrong with a name is so with any value; what was wrong with a value is found out anew.
        let name_fault = self.fault.filter(|fault| fault.is_of_a_name());
        Tag {
            fault: name_fault.or_else(|| value_fault(self, value)),
            ..self
        }
    }

    fn of_name(name: &[u8]) -> Tag {
        if let [b':', ..] = name {
            return pseudo(name);
        }
        let known = Known::of(name);
        let kind = match known {
            Some(Known::ContentLength) => Kind::ContentLength,
            Some(Known::Host) => Kind::Host,
            Some(Known::Cookie) => Kind::Cookie,
            _ => Kind::Plain,
        };
        let fault = if name.iter().any(u8::is_ascii_uppercase) {
            Some(FaultKind::FieldNameCase)
        } else if name.is_empty() || grammar::class_end(name, 0, TOKEN) < name.len() {
            Some(FaultKind::FieldName)
        } else if is_of_the_connection(known, name) {
            Some(FaultKind::ConnectionField)
        } else {
            None
        };
        Tag { kind, known, fault }
    }
}

fn pseudo(name: &[u8]) -> Tag {
    let kind = match name {
        b":method" => Kind::Method,
        b":scheme" => Kind::Scheme,
        b":authority" => Kind::Authority,
        b":path" => Kind::Path,
        b":status" => Kind::Status,
        b":protocol" => Kind::Protocol,
        _ => Kind::Plain,
    };
    let unknown = kind == Kind::Plain;
    Tag {
        kind,
        known: None,
        fault: unknown.then_some(FaultKind::PseudoUnknown),
    }
}

/// RFC 9113 §8.2.2. What `TE` may say is looked at with its value.
fn is_of_the_connection(known: Option<Known>, name: &[u8]) -> bool {
    match known {
        Some(known) => matches!(
            known,
            Known::Connection | Known::KeepAlive | Known::TransferEncoding | Known::Upgrade
        ),
        None => name == b"proxy-connection",
    }
}

fn value_fault(tag: Tag, value: &[u8]) -> Option<FaultKind> {
    let (right, fault) = match tag.kind {
        Kind::Method => (is_all(value, TOKEN), FaultKind::Method),
        Kind::Scheme => (is_scheme(value), FaultKind::Scheme),
        Kind::Authority => (Authority::new(value).is_ok(), FaultKind::Authority),
        Kind::Path => (is_path(value), FaultKind::Path),
        Kind::Status => (is_status(value), FaultKind::Status),
        Kind::Protocol => (is_all(value, TOKEN), FaultKind::Protocol),
        Kind::ContentLength => (length(value).is_some(), FaultKind::ContentLength),
        Kind::Host => (Authority::new(value).is_ok(), FaultKind::Authority),
        Kind::Plain if tag.known == Some(Known::Te) => (value == b"trailers", FaultKind::Te),
        Kind::Plain | Kind::Cookie => (is_value(value), FaultKind::FieldValue),
    };
    (!right).then_some(fault)
}

fn is_all(text: &[u8], class: u8) -> bool {
    !text.is_empty() && grammar::class_end(text, 0, class) == text.len()
}

/// RFC 3986 §3.1.
fn is_scheme(text: &[u8]) -> bool {
    let rest = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(rest)
}

/// RFC 9113 §8.3.1: not empty, and `/…` or `*`.
fn is_path(text: &[u8]) -> bool {
    (text.first() == Some(&b'/') || text == b"*") && is_all(text, TARGET)
}

fn is_status(text: &[u8]) -> bool {
    matches!(text, [b'1'..=b'9', tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit())
}

/// No control character but tab, and no space at either end (RFC 9113 §8.2.1).
fn is_value(value: &[u8]) -> bool {
    let spaced = |byte: Option<&u8>| byte.is_some_and(|&byte| grammar::is_space(byte));
    grammar::text_end(value, 0) == value.len() && !spaced(value.first()) && !spaced(value.last())
}

/// `1*DIGIT` below 2⁶³.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = str::from_utf8(value).ok()?.parse().ok()?;
    (number <= i64::MAX as u64).then_some(number)
}
