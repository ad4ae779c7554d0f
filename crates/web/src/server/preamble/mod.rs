//! The start of responses: the status line, `Server`, `Date` and the usual content types, encoded once a second.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ringmain_wire::h1::{FieldBlock, Misuse, Preface};

use crate::http::date;
use crate::http::reply::Kind;

/// One worker's preambles. Allocates nothing after the first second.
pub(crate) struct Preamble {
    server: Option<Box<[u8]>>,
    /// Preambles by kind of content.
    beginnings: [Beginning; Kind::COUNT],
    /// The wall clock's second in `Date`.
    second: u64,
}

/// The fields of the preamble that a response omits: its handler has replaced or removed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Omitted {
    server: bool,
    date: bool,
}

impl Omitted {
    /// Records a field that a handler has set or removed.
    #[inline]
    pub(crate) fn note(&mut self, name: &str) {
        match name.len() {
            4 => self.date |= name.eq_ignore_ascii_case("date"),
            6 => self.server |= name.eq_ignore_ascii_case("server"),
            _ => {}
        }
    }

    /// Returns true if the preamble is sent unchanged.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        !self.server && !self.date
    }

    fn has(self, name: &str) -> bool {
        match name {
            "Server" => self.server,
            "Date" => self.date,
            _ => false,
        }
    }
}

/// The start of responses with one kind of content.
struct Beginning {
    fields: FieldBlock,
    /// The fields after the status line of 200.
    ok: Preface,
}

impl Preamble {
    /// Returns a preamble with `server` as the product (RFC 9110 §10.2.4), if any.
    ///
    /// # Errors
    /// `FieldValue`: control characters.
    pub(crate) fn new(server: Option<&str>) -> Result<Preamble, Misuse> {
        let ok = Preface::new(200)?;
        let mut preamble = Preamble {
            server: server.map(|name| name.as_bytes().into()),
            beginnings: std::array::from_fn(|_| Beginning {
                fields: FieldBlock::new(),
                ok: ok.clone(),
            }),
            second: 0,
        };
        preamble.renew(0)?;
        Ok(preamble)
    }

    /// Updates `Date`: `wall` is the time since 1970-01-01.
    #[inline]
    pub(crate) fn follow(&mut self, wall: Duration) {
        let second = wall.as_secs();
        if second != self.second {
            self.renew(second).expect("checked when it was made");
        }
    }

    /// Returns the fields of a response with any status.
    #[inline]
    pub(crate) fn fields(&self, kind: Kind) -> &FieldBlock {
        &self.beginnings[kind.index()].fields
    }

    /// Returns a number that identifies [these fields](Preamble::fields) among the worker's preambles.
    #[inline]
    pub(crate) fn id(&self, kind: Kind) -> u64 {
        (self.second + 1) * Kind::COUNT as u64 + kind.index() as u64
    }

    /// Passes the fields of a response with any status to `write`, without the omitted ones.
    pub(crate) fn write_fields<E>(
        &self,
        kind: Kind,
        omitted: Omitted,
        mut write: impl FnMut(&str, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (name, value) in self.fields(kind).iter() {
            if !omitted.has(name) {
                write(name, value)?;
            }
        }
        Ok(())
    }

    /// Returns the start of a response with status 200.
    #[inline]
    pub(crate) fn ok(&self, kind: Kind) -> &Preface {
        &self.beginnings[kind.index()].ok
    }

    #[cold]
    fn renew(&mut self, second: u64) -> Result<(), Misuse> {
        self.second = second;
        let date = date::http_date(Duration::from_secs(second));
        for (index, beginning) in self.beginnings.iter_mut().enumerate() {
            let fields = &mut beginning.fields;
            fields.clear();
            if let Some(server) = &self.server {
                fields.push("Server", server)?;
            }
            fields.push("Date", &date)?;
            if let Some(content_type) = Kind::CONTENT_TYPES[index] {
                fields.push("Content-Type", content_type.as_bytes())?;
            }
            beginning.ok.clear();
            beginning.ok.block(&beginning.fields);
        }
        Ok(())
    }
}
