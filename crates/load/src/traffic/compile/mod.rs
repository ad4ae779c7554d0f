//! From a request as it was written to the pieces that are sent.
//!
//! The head is always one that `h1::RequestEncoder` made: it is given a marker for each token, which it checks and
//! places like any text, and the result is cut at the markers. So framing, field names and the target's form have
//! passed the encoder once, and what is filled in later can break none of it (see [`super::template::Place`]).

#[cfg(test)]
mod tests;

use bytes::Bytes;
use ringmain_wire::h1::{BodyEncoder, Framing, Method, Misuse, RequestEncoder};

use super::draft::{Body, Request};
use super::error::{Part, Problem};
use super::parts::{self, Parts};
use super::template::{self, Names, Piece, Place, Span, Token, shorten};
use super::values::Values;
use super::{Sequence, template::decimal_digits};
use crate::limits;

/// A request, ready to be sent any number of times: as a whole, and in its parts.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) whole: Whole,
    pub(super) parts: Parts,
}

/// A request as the bytes that HTTP/1.1 sends.
#[derive(Clone, Debug)]
pub(super) enum Whole {
    /// Without tokens: the same bytes each time.
    Constant(Bytes),
    /// With tokens.
    Template(Template),
}

/// A request with tokens.
#[derive(Clone, Debug)]
pub(super) struct Template {
    head: Box<[Piece]>,
    body: Box<[Piece]>,
    /// Digits of the largest length that the body can have, if that is not known: then `head` ends where the digits of
    /// `Content-Length` begin. If it is known, `head` is the whole head.
    length_digits: Option<usize>,
}

/// What stands between a length and the body: `Content-Length` is the last field, since the encoder writes it last.
const HEAD_END: &[u8] = b"\r\n\r\n";

impl Message {
    /// Compiles a request. `names` are the values that are captured before it is sent.
    pub(super) fn new(request: &Request, names: &Names) -> Result<Message, Problem> {
        let head = Head::new(request, names)?;
        let body = body_pieces(&request.body, names)?;
        let tokens = head.holes.len() + body.iter().filter(|piece| is_hole(piece)).count();
        if tokens > limits::TOKENS {
            let expected = format!("at most {} tokens in a request", limits::TOKENS);
            return Err(Problem::new(Part::Request, expected, format!("{tokens}")));
        }
        let (least, most) = body_length(&body);
        if least > limits::REQUEST_BODY_BYTES {
            let expected = format!("a body of at most {} bytes", limits::REQUEST_BODY_BYTES);
            return Err(Problem::new(Part::Body, expected, format!("{least}")));
        }
        let known = least == most;
        let framing = match request.body {
            // RFC 9110 §8.6: methods that usually have content say that there is none.
            Body::None if !matches!(&*request.method, "POST" | "PUT" | "PATCH") => Framing::None,
            _ if known => Framing::Length(least as u64),
            _ => Framing::Length(0),
        };
        let bytes = head.encode(request, |encoder| encoder.finish(framing, true))?;
        let (whole, shared) = match parts::literal(&body).filter(|_| tokens == 0) {
            Some(literal) => {
                let head_bytes = bytes.len();
                let whole = Bytes::from([bytes, literal].concat());
                let body = whole.slice(head_bytes..);
                (Whole::Constant(whole), parts::Body::Constant(body))
            }
            None => {
                let shared = match parts::literal(&body) {
                    Some(literal) => parts::Body::Constant(literal.into()),
                    None => parts::Body::Template(body.clone().into()),
                };
                let length_digits = (!known).then(|| decimal_digits(most as u64));
                let template = Template::new(&head, bytes, body, length_digits);
                (Whole::Template(template), shared)
            }
        };
        // The encoder has taken it, so that it may be sent in parts, too.
        let parts = head.parts(request, shared, framing != Framing::None);
        Ok(Message { whole, parts })
    }
}

fn is_hole(piece: &Piece) -> bool {
    matches!(piece, Piece::Hole(..))
}

fn is_value(span: &Span) -> bool {
    matches!(span, Span::Token(Token::Value { .. }))
}

/// The least and the most bytes that the body can have.
pub(super) fn body_length(body: &[Piece]) -> (usize, usize) {
    let lengths = body.iter().map(|piece| match piece {
        Piece::Literal(bytes) => (bytes.len(), bytes.len()),
        Piece::Hole(token, place) => token.bytes(*place),
    });
    lengths.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

pub(super) fn body_pieces(body: &Body, names: &Names) -> Result<Vec<Piece>, Problem> {
    let (text, place) = match body {
        Body::None => return Ok(Vec::new()),
        Body::Bytes(bytes) => return Ok(vec![Piece::Literal(bytes[..].into())]),
        Body::Text(text) => (text, Place::Body),
        Body::Json(text) => (text, Place::Json),
    };
    let spans = template::parse(text, Part::Body, names)?.into_iter();
    let pieces = spans.map(|span| match span {
        Span::Text(text) => Piece::Literal(text.into_bytes().into()),
        Span::Token(token) => Piece::Hole(token, place),
    });
    Ok(pieces.collect())
}

/// A head whose tokens are markers.
pub(super) struct Head {
    target: String,
    host: String,
    /// Where the host was written down.
    host_part: Part,
    /// Values with the index of their header; all but `Host`.
    fields: Vec<(usize, String)>,
    /// By the number in the marker.
    holes: Vec<(Token, Place)>,
    marker: String,
}

/// Digits of the number in a marker.
const MARKER_DIGITS: usize = 6;

const _: () = assert!(limits::HEAD_BYTES < 1_000_000, "a marker's number has six digits");

impl Head {
    pub(super) fn new(request: &Request, names: &Names) -> Result<Head, Problem> {
        let headers = &request.headers;
        let own_host = headers
            .iter()
            .position(|(name, _)| name.eq_ignore_ascii_case("host"));
        let (host_text, host_part) = match own_host {
            Some(index) => (&headers[index].1, Part::Header(index)),
            None => (&request.host, Part::Host),
        };
        let texts = headers.iter().map(|(_, value)| value.as_str());
        let mut head = Head {
            target: String::new(),
            host: String::new(),
            host_part,
            fields: Vec::new(),
            holes: Vec::new(),
            marker: marker(texts.chain([request.target.as_str(), host_text])),
        };
        let target = template::parse(&request.target, Part::Target, names)?;
        head.target = head.mark_target(target);
        let host = template::parse(host_text, host_part, names)?;
        if host.iter().any(is_value) {
            let expected = "a host without captured values";
            return Err(Problem::new(
                host_part,
                expected,
                format!("`{}`", shorten(host_text)),
            ));
        }
        head.host = head.mark(host, Place::Field);
        for (index, (_, value)) in headers.iter().enumerate() {
            if Some(index) != own_host {
                let value = template::parse(value, Part::Header(index), names)?;
                let value = head.mark(value, Place::Field);
                head.fields.push((index, value));
            }
        }
        Ok(head)
    }

    fn mark_target(&mut self, spans: Vec<Span>) -> String {
        let starts_with_value = spans.first().is_some_and(is_value);
        let text = self.mark(spans, Place::Target);
        if !starts_with_value {
            return text;
        }
        self.holes[0].1 = Place::TargetStart;
        // A slash for the encoder; `cut` takes it out again, since the value brings its own.
        format!("/{text}")
    }

    fn mark(&mut self, spans: Vec<Span>, place: Place) -> String {
        let mut text = String::new();
        for span in spans {
            match span {
                Span::Text(literal) => text.push_str(&literal),
                Span::Token(token) => {
                    text.push_str(&format!("{}{:0MARKER_DIGITS$}", self.marker, self.holes.len()));
                    self.holes.push((token, place));
                }
            }
        }
        text
    }

    /// Leaves the header of that index out.
    pub(super) fn skip(&mut self, header: usize) {
        self.fields.retain(|(index, _)| *index != header);
    }

    /// The head with its markers; `end` writes what stands behind the request's own fields.
    pub(super) fn encode(
        &self,
        request: &Request,
        end: impl FnOnce(RequestEncoder<'_>) -> Result<BodyEncoder, Misuse>,
    ) -> Result<Vec<u8>, Problem> {
        let mut out = Vec::new();
        let method = Method::new(&request.method);
        if method == Method::Connect {
            let expected = "a method other than CONNECT: a tunnel has no response to measure";
            return Err(Problem::new(Part::Method, expected, "`CONNECT`"));
        }
        if !(self.target.starts_with('/') || method == Method::Options && self.target == "*") {
            let expected = "a path that begins with `/`";
            let found = format!("`{}`", shorten(&request.target));
            return Err(Problem::new(Part::Target, expected, found));
        }
        let begun = RequestEncoder::new(&mut out, method, &self.target, &self.host);
        let mut encoder = begun.map_err(|misuse| self.wrong_start(misuse, request))?;
        for (index, value) in &self.fields {
            let (name, written) = &request.headers[*index];
            let added = encoder.field(name, value.as_bytes());
            added.map_err(|misuse| wrong_field(misuse, Part::Header(*index), name, written))?;
        }
        // A body is written by others, who count it.
        if let Err(misuse) = end(encoder) {
            let expected = "a request that can be framed";
            return Err(Problem::new(Part::Request, expected, misuse.to_string()));
        }
        if out.len() > limits::HEAD_BYTES {
            let expected = format!("a head of at most {} bytes", limits::HEAD_BYTES);
            let found = format!("{} bytes", out.len());
            return Err(Problem::new(Part::Request, expected, found));
        }
        Ok(out)
    }

    #[cold]
    fn wrong_start(&self, misuse: Misuse, request: &Request) -> Problem {
        let (part, expected, found) = match misuse {
            Misuse::Method => (
                Part::Method,
                "a method of letters, digits and hyphens",
                &request.method,
            ),
            Misuse::Target => {
                let expected = "a path of visible ASCII characters other than `#`, the rest percent-encoded";
                (Part::Target, expected, &request.target)
            }
            _ => {
                let found = match self.host_part {
                    Part::Header(index) => &request.headers[index].1,
                    _ => &request.host,
                };
                (self.host_part, "`host` or `host:port`", found)
            }
        };
        Problem::new(part, expected, format!("`{}`", shorten(found)))
    }

    /// The pieces of what the encoder has made.
    pub(super) fn cut(&self, bytes: &[u8]) -> Box<[Piece]> {
        self.cut_at(&mut self.holes.iter(), bytes)
    }

    /// The request in its parts.
    fn parts(&self, request: &Request, body: parts::Body, says_length: bool) -> Parts {
        // In the order in which the markers were made.
        let mut holes = self.holes.iter();
        let path = self.cut_at(&mut holes, self.target.as_bytes());
        let authority = self.cut_at(&mut holes, self.host.as_bytes());
        let fields = self.fields.iter().map(|(index, value)| {
            let name = request.headers[*index].0.as_str().into();
            (name, self.cut_at(&mut holes, value.as_bytes()))
        });
        let fields = fields.collect();
        Parts::new(authority, path, fields, body, says_length)
    }

    /// Cuts a text at its markers, whose tokens are the next of `holes`.
    fn cut_at(&self, holes: &mut std::slice::Iter<'_, (Token, Place)>, bytes: &[u8]) -> Box<[Piece]> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while let Some(at) = memchr::memmem::find(rest, self.marker.as_bytes()) {
            let &(token, place) = holes.next().expect("a marker was made for each hole");
            let before = if place == Place::TargetStart { at - 1 } else { at };
            if before > 0 {
                pieces.push(Piece::Literal(rest[..before].into()));
            }
            pieces.push(Piece::Hole(token, place));
            rest = &rest[at + self.marker.len() + MARKER_DIGITS..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.into()));
        }
        pieces.into()
    }
}

/// What no text holds and what may stand anywhere in a head. Since its first character is in it only once, it cannot begin
/// in a text and end in a marker either.
fn marker<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> String {
    let mut marker = "~token".to_owned();
    while texts.clone().any(|text| text.contains(&marker)) {
        marker.push('n');
    }
    marker
}

fn wrong_field(misuse: Misuse, part: Part, name: &str, value: &str) -> Problem {
    let (name, value) = (shorten(name), shorten(value));
    match misuse {
        Misuse::FieldName => {
            let expected = "a header name of letters, digits and hyphens";
            Problem::new(part, expected, format!("`{name}`"))
        }
        Misuse::FramingField => {
            let expected = "a header that does not frame the message: Content-Length, Transfer-Encoding, \
                            Connection, Upgrade and Host are written for you";
            Problem::new(part, expected, format!("`{name}`"))
        }
        _ => {
            let expected = "a header value without control characters";
            Problem::new(part, expected, format!("`{name}: {value}`"))
        }
    }
}

impl Template {
    /// `bytes` are what the encoder has made of the head.
    fn new(head: &Head, mut bytes: Vec<u8>, body: Vec<Piece>, length_digits: Option<usize>) -> Template {
        if length_digits.is_some() {
            let end = bytes
                .strip_suffix(b"0\r\n\r\n")
                .expect("the length is the last field")
                .len();
            bytes.truncate(end);
        }
        Template {
            head: head.cut(&bytes),
            body: body.into(),
            length_digits,
        }
    }

    /// Appends the request.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        values: &Values,
        random: &mut fastrand::Rng,
        sequence: &mut Sequence,
    ) {
        for piece in &self.head {
            piece.write(out, values, random, sequence);
        }
        let digits_at = out.len();
        if let Some(digits) = self.length_digits {
            out.resize(digits_at + digits, b'0');
            out.extend_from_slice(HEAD_END);
        }
        let body_at = out.len();
        for piece in &self.body {
            piece.write(out, values, random, sequence);
        }
        if let Some(digits) = self.length_digits {
            declare(out, digits_at, digits, out.len() - body_at);
        }
    }
}

/// Writes `length` at `at`, where `room` digits are kept free; what stands behind them moves up if it has fewer.
fn declare(out: &mut Vec<u8>, at: usize, room: usize, length: usize) {
    let digits = decimal_digits(length as u64);
    debug_assert!(digits <= room, "room was made for the longest body");
    let mut rest = length;
    for digit in out[at..at + digits].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    if digits < room {
        out.copy_within(at + room.., at + digits);
        out.truncate(out.len() - (room - digits));
    }
}
