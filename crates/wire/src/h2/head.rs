//! Heads and trailers out of decoded fields: which may be together, and what they say (RFC 9113 §8).
//!
//! ```text
//! block ─▶ hpack ─▶ arena: name value name value …     Fields: where they are     ─▶ RequestHead, ResponseHead, Fields
//!                    └─ too much of it: cut, and the block is decoded to its end
//! ```
//!
//! One buffer serves any number of connections, one head at a time. A block that comes again at once, and changes nothing in the
//! table, is not decoded again. Knows no streams.

use super::fault::FaultKind;
use super::hpack::{Decoded, Decoder};
use super::limits::Limits;
use super::tag::{self, Kind};
use crate::h1::{
    Authority, FieldTable, Fields, Framing, Known, Method, Record, RequestHead, ResponseHead, Target, Version,
};

/// Bytes of a header block that may be recognised when it comes again.
const MEMO_BYTES: usize = 512;

/// What an entry of a header list counts beside its bytes (RFC 9113 §6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// Between the values of several `cookie` fields (RFC 9113 §8.2.3).
const COOKIE_SEPARATOR: &[u8] = b"; ";

/// Bytes of the arena that are kept from head to head.
const ARENA_BYTES: usize = 64 * 1024;

/// The number of no connection.
const NOBODY: u64 = u64::MAX;

/// Where heads are decoded to: one of a worker's, for all of its connections.
#[derive(Debug)]
pub struct HeadBuffer {
    arena: Vec<u8>,
    table: FieldTable,
    found: Found,
    /// Values of `cookie` put together, if there is more than one.
    cookies: Vec<u8>,
    /// Numbers that connections are known by here.
    owners: u64,
    memo: Memo,
}

/// The block that `found` is of.
#[derive(Debug)]
struct Memo {
    owner: u64,
    version: u64,
    block: Vec<u8>,
}

/// Part of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    at: u32,
    end: u32,
}

/// What a block said.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
    status: Option<u16>,
    /// `Content-Length`.
    length: Option<u64>,
    host: Option<Span>,
    /// As RFC 9113 §6.5.2 counts.
    size: usize,
    fields: usize,
    /// A field that is no pseudo-header field was there.
    regular: bool,
    cookies: usize,
    /// The first rule that was broken.
    fault: Option<FaultKind>,
}

/// Whose memory blocks build on.
pub(super) struct Owner<'c> {
    /// 0: not known yet.
    pub(super) number: &'c mut u64,
    pub(super) decoder: &'c mut Decoder,
}

impl HeadBuffer {
    /// A buffer for heads within `limits`.
    #[must_use]
    pub fn new(limits: &Limits) -> HeadBuffer {
        let h1 = crate::h1::Limits {
            fields: limits.fields,
            ..crate::h1::Limits::INTERNET
        };
        HeadBuffer {
            arena: Vec::new(),
            table: FieldTable::new(&h1),
            found: Found::default(),
            cookies: Vec::new(),
            owners: 0,
            memo: Memo {
                owner: NOBODY,
                version: 0,
                block: Vec::new(),
            },
        }
    }

    /// Decodes a block. Its faults on the connection are told here, those of the message when it is asked for.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        owner: Owner<'_>,
        limits: &Limits,
    ) -> Result<(), FaultKind> {
        let version = owner.decoder.version();
        if self.memo.owner == *owner.number && self.memo.version == version && self.memo.block == block {
            return Ok(());
        }
        self.memo.owner = NOBODY;
        self.arena.clear();
        self.arena.shrink_to(ARENA_BYTES);
        self.table.clear();
        self.cookies.clear();
        self.cookies.shrink_to(ARENA_BYTES);
        self.found = Found::default();
        let (table, found, cookies) = (&mut self.table, &mut self.found, &mut self.cookies);
        owner
            .decoder
            .decode(block, &mut self.arena, &mut |arena, field| {
                if field.tag.kind == Kind::Cookie && found.cookies > 0 && found.fault.is_none() {
                    return take_crumb(arena, field, limits, table, cookies, found);
                }
                take(arena, field, limits, table, found);
            })?;
        if self.found.cookies > 1 {
            self.join_cookies();
        }
        // A block that changes the table means something else the next time.
        if block.len() <= MEMO_BYTES && owner.decoder.version() == version {
            if *owner.number == 0 {
                self.owners += 1;
                *owner.number = self.owners;
            }
            self.memo.owner = *owner.number;
            self.memo.version = version;
            self.memo.block.clear();
            self.memo.block.extend_from_slice(block);
        }
        Ok(())
    }

    /// RFC 9113 §8.2.3: one field where there were several.
    fn join_cookies(&mut self) {
        let at = self.arena.len();
        self.arena.extend_from_slice(&self.cookies);
        self.table
            .set_value(Known::Cookie, at as u32, self.arena.len() as u32);
    }

    fn bytes(&self, span: Span) -> &[u8] {
        &self.arena[span.at as usize..span.end as usize]
    }

    /// Text that was checked to be ASCII.
    fn text(&self, span: Span) -> &str {
        str::from_utf8(self.bytes(span)).expect("tokens, targets and hosts were checked to be ASCII")
    }

    /// The head of a request. `end`: there is no body.
    pub(super) fn request(&self, end: bool, limits: &Limits) -> Result<RequestHead<'_>, FaultKind> {
        let found = &self.found;
        if let Some(fault) = found.fault {
            return Err(fault);
        }
        if found.status.is_some() {
            return Err(FaultKind::PseudoPlace);
        }
        let method = self.text(found.method.ok_or(FaultKind::PseudoMissing)?);
        let method = Method::new(method);
        let protocol = found.protocol.map(|span| self.text(span));
        let authority = self.authority()?;
        let (target, target_text) = match (method, protocol) {
            (Method::Connect, None) => self.connect(limits)?,
            (Method::Connect, Some(_)) if limits.extended_connect => self.target(method)?,
            (_, Some(_)) => return Err(FaultKind::Protocol),
            (_, None) => self.target(method)?,
        };
        let framing = match (end, found.length) {
            (true, None | Some(0)) => Framing::None,
            (true, Some(_)) => return Err(FaultKind::ContentLengthSum),
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Chunked,
        };
        let fields = self.table.fields(&self.arena);
        Ok(RequestHead {
            method,
            target,
            target_text,
            version: Version::Http2,
            fields,
            authority: Some(authority),
            framing,
            keep_alive: true,
            expect_continue: expects(&fields, framing)?,
            upgrade: None,
            protocol,
        })
    }

    /// RFC 9113 §8.3.1: `:authority`, or `host`, or both of the same origin, normalised by the scheme.
    fn authority(&self) -> Result<Authority<'_>, FaultKind> {
        let found = &self.found;
        let read = |span| Authority::new(self.bytes(span)).map_err(|_| FaultKind::Authority);
        match (found.authority, found.host) {
            (Some(authority), Some(host)) => {
                let authority = read(authority)?;
                let scheme = found.scheme.map_or(&b""[..], |scheme| self.bytes(scheme));
                if authority.is_equivalent(read(host)?, scheme) {
                    Ok(authority)
                } else {
                    Err(FaultKind::AuthorityHost)
                }
            }
            (Some(one), None) | (None, Some(one)) => read(one),
            (None, None) => Err(FaultKind::Authority),
        }
    }

    fn target(&self, method: Method<'_>) -> Result<(Target<'_>, &str), FaultKind> {
        let found = &self.found;
        let (Some(_), Some(path)) = (found.scheme, found.path) else {
            return Err(FaultKind::PseudoMissing);
        };
        let text = self.text(path);
        let target = match text {
            "*" if method == Method::Options => Target::Asterisk,
            "*" => return Err(FaultKind::Path),
            // Extended CONNECT has a path like any other request.
            text => Target::origin_of(Method::Get, text).ok_or(FaultKind::Path)?,
        };
        Ok((target, text))
    }

    /// RFC 9113 §8.5.
    fn connect(&self, limits: &Limits) -> Result<(Target<'_>, &str), FaultKind> {
        let found = &self.found;
        let (Some(authority), None, None, true) = (found.authority, found.scheme, found.path, limits.connect)
        else {
            return Err(FaultKind::Connect);
        };
        let target = Authority::with_port(self.bytes(authority)).map_err(|_| FaultKind::Connect)?;
        Ok((Target::Authority(target), self.text(authority)))
    }

    /// The head of an answer. `end`: there is no body; `bodiless`: whatever the head says, as to HEAD.
    pub(super) fn response(&self, end: bool, bodiless: bool) -> Result<ResponseHead<'_>, FaultKind> {
        let found = &self.found;
        if let Some(fault) = found.fault {
            return Err(fault);
        }
        let asks = [
            found.method,
            found.scheme,
            found.authority,
            found.path,
            found.protocol,
        ];
        if asks.iter().any(Option::is_some) {
            return Err(FaultKind::PseudoPlace);
        }
        let status = found.status.ok_or(FaultKind::PseudoMissing)?;
        if status == 101 {
            return Err(FaultKind::Status);
        }
        let none = bodiless || matches!(status, 100..=199 | 204 | 304);
        let framing = match (end, found.length) {
            _ if none => Framing::None,
            (true, None | Some(0)) => Framing::None,
            (true, Some(_)) => return Err(FaultKind::ContentLengthSum),
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Chunked,
        };
        Ok(ResponseHead {
            version: Version::Http2,
            status,
            reason: b"",
            fields: self.table.fields(&self.arena),
            framing,
            keep_alive: true,
            switches: false,
        })
    }

    /// Trailers.
    pub(super) fn trailers(&self) -> Result<Fields<'_>, FaultKind> {
        let found = &self.found;
        if let Some(fault) = found.fault {
            return Err(fault);
        }
        let pseudo = [
            found.method,
            found.scheme,
            found.authority,
            found.path,
            found.protocol,
        ];
        if pseudo.iter().any(Option::is_some) || found.status.is_some() {
            return Err(FaultKind::PseudoPlace);
        }
        if found.length.is_some() || found.host.is_some() {
            return Err(FaultKind::TrailerField);
        }
        Ok(self.table.fields(&self.arena))
    }
}

/// Takes a field that was decoded, or cuts it off again.
#[inline]
fn take(arena: &mut Vec<u8>, field: Decoded, limits: &Limits, table: &mut FieldTable, found: &mut Found) {
    if found.fault.is_some() {
        return arena.truncate(field.at);
    }
    if let Err(fault) = try_take(arena, field, limits, table, found) {
        found.fault = Some(fault);
        arena.truncate(field.at);
    }
}

/// Takes a `cookie` beside the first one: they are one field, whose bytes count as those of one (RFC 9113 §8.2.3).
fn take_crumb(
    arena: &mut Vec<u8>,
    field: Decoded,
    limits: &Limits,
    table: &FieldTable,
    cookies: &mut Vec<u8>,
    found: &mut Found,
) {
    let Decoded { at, name, value, tag } = field;
    found.size += value + COOKIE_SEPARATOR.len();
    found.fault = match tag.fault {
        _ if found.size > limits.head_bytes as usize => Some(FaultKind::HeadTooLarge),
        fault => fault,
    };
    if found.fault.is_none() {
        if found.cookies == 1
            && let Some(first) = table.fields(arena).known(Known::Cookie)
        {
            cookies.extend_from_slice(first);
        }
        found.cookies += 1;
        if value > 0 {
            if !cookies.is_empty() {
                cookies.extend_from_slice(COOKIE_SEPARATOR);
            }
            cookies.extend_from_slice(&arena[at + name..at + name + value]);
        }
    }
    arena.truncate(at);
}

#[inline]
fn try_take(
    arena: &[u8],
    field: Decoded,
    limits: &Limits,
    table: &mut FieldTable,
    found: &mut Found,
) -> Result<(), FaultKind> {
    let Decoded { at, name, value, tag } = field;
    found.size += name + value + FIELD_OVERHEAD;
    if found.size > limits.head_bytes as usize {
        return Err(FaultKind::HeadTooLarge);
    }
    if let Some(fault) = tag.fault {
        return Err(fault);
    }
    let value = Span {
        at: (at + name) as u32,
        end: (at + name + value) as u32,
    };
    let bytes = &arena[value.at as usize..value.end as usize];
    let pseudo = match tag.kind {
        Kind::Method => &mut found.method,
        Kind::Scheme => &mut found.scheme,
        Kind::Authority => &mut found.authority,
        Kind::Path => &mut found.path,
        Kind::Protocol => &mut found.protocol,
        Kind::Status => {
            let digits = bytes
                .iter()
                .fold(0, |sum, byte| sum * 10 + u16::from(byte - b'0'));
            if found.regular {
                return Err(FaultKind::PseudoPlace);
            }
            return match found.status.replace(digits) {
                None => Ok(()),
                Some(_) => Err(FaultKind::PseudoRepeated),
            };
        }
        Kind::ContentLength | Kind::Host | Kind::Cookie | Kind::Plain => {
            found.regular = true;
            found.fields += 1;
            if found.fields > usize::from(limits.fields) {
                return Err(FaultKind::TooManyFields);
            }
            if !note(tag.kind, bytes, value, found)? {
                return Ok(());
            }
            table.push(Record {
                name_at: at as u32,
                name_end: value.at,
                value_at: value.at,
                value_end: value.end,
                known: tag.known,
            });
            return Ok(());
        }
    };
    if found.regular {
        return Err(FaultKind::PseudoPlace);
    }
    match pseudo.replace(value) {
        None => Ok(()),
        Some(_) => Err(FaultKind::PseudoRepeated),
    }
}

/// Fields that say something of the message; whether it is one of its fields too.
fn note(kind: Kind, bytes: &[u8], value: Span, found: &mut Found) -> Result<bool, FaultKind> {
    match kind {
        Kind::ContentLength => match (tag::length(bytes), found.length) {
            (Some(length), None) => found.length = Some(length),
            // The same once more.
            (Some(length), Some(before)) if length == before => return Ok(false),
            _ => return Err(FaultKind::ContentLength),
        },
        Kind::Host if found.host.replace(value).is_some() => return Err(FaultKind::AuthorityHost),
        Kind::Cookie => found.cookies += 1,
        _ => {}
    }
    Ok(true)
}

/// RFC 9110 §10.1.1: moot without a body.
fn expects(fields: &Fields<'_>, framing: Framing) -> Result<bool, FaultKind> {
    match fields.known(Known::Expect) {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") && !fields.is_repeated(Known::Expect) => {
            Ok(!matches!(framing, Framing::None | Framing::Length(0)))
        }
        Some(_) => Err(FaultKind::Expectation),
    }
}
