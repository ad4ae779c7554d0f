//! The start of responses: the status line, `Server`, `Date` and the usual content types, encoded once a second.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ringmain_wire::h1::{FieldBlock, Misuse, Preface};

use crate::http::date;
use crate::http::reply::ContentKind;

/// One worker's preambles. Allocates nothing after the first second.
pub(crate) struct Preamble {
    server: Option<Box<[u8]>>,
    /// Preambles by kind of content.
    templates: [HeadTemplate; ContentKind::COUNT],
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
    pub(crate) fn record(&mut self, name: &str) {
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
struct HeadTemplate {
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
            templates: std::array::from_fn(|_| HeadTemplate {
                fields: FieldBlock::new(),
                ok: ok.clone(),
            }),
            second: 0,
        };
        preamble.encode(0)?;
        Ok(preamble)
    }

    /// Updates `Date`: `wall` is the time since 1970-01-01.
    #[inline]
    pub(crate) fn update(&mut self, wall: Duration) {
        let second = wall.as_secs();
        if second != self.second {
            self.encode(second).expect("checked when it was made");
        }
    }

    /// Returns the fields of a response with any status.
    #[inline]
    pub(crate) fn fields(&self, kind: ContentKind) -> &FieldBlock {
        &self.templates[kind.index()].fields
    }

    /// Returns a number that identifies [these fields](Preamble::fields) among the worker's preambles.
    #[inline]
    pub(crate) fn id(&self, kind: ContentKind) -> u64 {
        (self.second + 1) * ContentKind::COUNT as u64 + kind.index() as u64
    }

    /// Passes the fields of a response with any status to `write`, without the omitted ones.
    pub(crate) fn write_fields<E>(
        &self,
        kind: ContentKind,
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
    pub(crate) fn ok(&self, kind: ContentKind) -> &Preface {
        &self.templates[kind.index()].ok
    }

    #[cold]
    fn encode(&mut self, second: u64) -> Result<(), Misuse> {
        self.second = second;
        let date = date::http_date(Duration::from_secs(second));
        for (index, template) in self.templates.iter_mut().enumerate() {
            let fields = &mut template.fields;
            fields.clear();
            if let Some(server) = &self.server {
                fields.push("Server", server)?;
            }
            fields.push("Date", &date)?;
            if let Some(content_type) = ContentKind::CONTENT_TYPES[index] {
                fields.push("Content-Type", content_type.as_bytes())?;
            }
            template.ok.clear();
            template.ok.block(&template.fields);
        }
        Ok(())
    }
}
