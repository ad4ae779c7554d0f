//! The fields that every answer of a worker begins with: `Server` and `Date`, encoded once a second.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ringmain_wire::h1::{FieldBlock, Misuse};

use crate::date;

/// One worker's fields. No allocation after the first answer.
pub(crate) struct Preamble {
    server: Option<Box<[u8]>>,
    block: FieldBlock,
    /// The wall clock's second that the block says.
    second: u64,
}

impl Preamble {
    /// A preamble that names `server` as the product (RFC 9110 §10.2.4), if any.
    ///
    /// # Errors
    /// `FieldValue`: control characters.
    pub(crate) fn new(server: Option<&str>) -> Result<Preamble, Misuse> {
        let mut preamble = Preamble {
            server: server.map(|name| name.as_bytes().into()),
            block: FieldBlock::new(),
            second: 0,
        };
        preamble.renew(0)?;
        Ok(preamble)
    }

    /// The fields for an answer at `wall`, the time since 1970-01-01.
    #[inline]
    pub(crate) fn at(&mut self, wall: Duration) -> &FieldBlock {
        let second = wall.as_secs();
        if second != self.second {
            self.renew(second).expect("checked when it was made");
        }
        &self.block
    }

    #[cold]
    fn renew(&mut self, second: u64) -> Result<(), Misuse> {
        self.second = second;
        self.block.clear();
        if let Some(server) = &self.server {
            self.block.push("Server", server)?;
        }
        self.block
            .push("Date", &date::http_date(Duration::from_secs(second)))
    }
}
