//! A request in its parts, as HTTP/2 sends it: method, authority, path, fields, body.
//!
//! Cut from texts that the HTTP/1.1 encoder has taken, so that what may stand where was checked once for both. Knows no frame.

use bytes::Bytes;
use ringmain_wire::h1::FieldBlock;

use super::Sequence;
use super::template::Piece;
use super::values::Values;

/// A request's parts.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    head: Head,
    body: Body,
    /// A length is said also if there is no body.
    says_length: bool,
}

/// A field's name, and its value in pieces.
pub(super) type Named = (Box<str>, Box<[Piece]>);

#[derive(Clone, Debug)]
enum Head {
    /// The same each time.
    Constant(Fixed),
    /// With tokens.
    Template {
        authority: Box<[Piece]>,
        path: Box<[Piece]>,
        fields: Box<[Named]>,
    },
}

/// A head without tokens.
#[derive(Clone, Debug)]
struct Fixed {
    authority: Box<str>,
    path: Box<str>,
    fields: FieldBlock,
}

/// What follows a head.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// The same each time, perhaps nothing.
    Constant(Bytes),
    /// With tokens.
    Template(Box<[Piece]>),
}

/// A request that is about to be sent: what its tokens have become.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    authority: Vec<u8>,
    path: Vec<u8>,
    fields: FieldBlock,
    body: Vec<u8>,
    value: Vec<u8>,
}

/// What is drawn from while tokens are filled in.
pub(crate) struct Filling<'a> {
    pub(crate) values: &'a Values,
    pub(crate) random: &'a mut fastrand::Rng,
    pub(crate) sequence: &'a mut Sequence,
}

/// A head as it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) authority: &'a str,
    pub(crate) path: &'a str,
    pub(crate) fields: &'a FieldBlock,
    /// What `Content-Length` says.
    pub(crate) length: Option<u64>,
    /// It is the same each time.
    pub(crate) constant: bool,
}

/// A body as it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// The same each time.
    Shared(&'a Bytes),
    /// Put together for this request.
    Own(&'a [u8]),
}

impl Content<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Content::Shared(bytes) => bytes,
            Content::Own(bytes) => bytes,
        }
    }

    /// What follows the first `from` bytes, to be kept.
    pub(crate) fn rest(&self, from: usize) -> Bytes {
        match self {
            Content::Shared(bytes) => bytes.slice(from..),
            Content::Own(bytes) => Bytes::copy_from_slice(&bytes[from..]),
        }
    }
}

impl Parts {
    /// Of pieces, whose texts have passed the encoder.
    pub(super) fn new(
        authority: Box<[Piece]>,
        path: Box<[Piece]>,
        fields: Vec<Named>,
        body: Body,
        says_length: bool,
    ) -> Parts {
        let head = match fixed(&authority, &path, &fields) {
            Some(fixed) => Head::Constant(fixed),
            None => Head::Template {
                authority,
                path,
                fields: fields.into(),
            },
        };
        Parts {
            head,
            body,
            says_length,
        }
    }

    /// Fills tokens in. Allocates nothing once `filled` is large enough.
    pub(crate) fn fill<'a>(
        &'a self,
        filled: &'a mut Filled,
        filling: &mut Filling<'_>,
    ) -> (Asked<'a>, Content<'a>) {
        if let Head::Template {
            authority,
            path,
            fields,
        } = &self.head
        {
            filled.path.clear();
            filling.write(path, &mut filled.path);
            filled.authority.clear();
            filling.write(authority, &mut filled.authority);
            filled.fields.clear();
            for (name, value) in fields {
                filled.value.clear();
                filling.write(value, &mut filled.value);
                let pushed = filled.fields.push(name, &filled.value);
                debug_assert!(pushed.is_ok(), "tokens give what may stand in a field");
            }
        }
        let content = match &self.body {
            Body::Constant(bytes) => Content::Shared(bytes),
            Body::Template(pieces) => {
                filled.body.clear();
                filling.write(pieces, &mut filled.body);
                Content::Own(&filled.body)
            }
        };
        let bytes = content.as_bytes().len() as u64;
        let length = (self.says_length || bytes > 0).then_some(bytes);
        let asked = match &self.head {
            Head::Constant(fixed) => Asked {
                authority: &fixed.authority,
                path: &fixed.path,
                fields: &fixed.fields,
                length,
                // A length that changes is part of the head.
                constant: matches!(self.body, Body::Constant(_)),
            },
            Head::Template { .. } => Asked {
                authority: ascii(&filled.authority),
                path: ascii(&filled.path),
                fields: &filled.fields,
                length,
                constant: false,
            },
        };
        (asked, content)
    }
}

impl Filling<'_> {
    fn write(&mut self, pieces: &[Piece], out: &mut Vec<u8>) {
        for piece in pieces {
            piece.write(out, self.values, self.random, self.sequence);
        }
    }
}

fn ascii(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("targets and hosts are ASCII, whatever was captured")
}

/// The bytes of pieces without tokens.
pub(super) fn literal(pieces: &[Piece]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => bytes.extend_from_slice(literal),
            Piece::Hole(..) => return None,
        }
    }
    Some(bytes)
}

fn fixed(authority: &[Piece], path: &[Piece], fields: &[Named]) -> Option<Fixed> {
    let mut block = FieldBlock::new();
    for (name, value) in fields {
        let pushed = block.push(name, &literal(value)?);
        debug_assert!(pushed.is_ok(), "the encoder has taken it");
    }
    Some(Fixed {
        authority: ascii(&literal(authority)?).into(),
        path: ascii(&literal(path)?).into(),
        fields: block,
    })
}
