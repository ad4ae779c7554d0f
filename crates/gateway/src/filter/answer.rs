//! An answer of a filter's own.

use bytes::Bytes;
use ringmain_wire::h1::FieldBlock;

use super::Error;
use super::head::check_name;

/// An answer in place of the upstream's. `Content-Length` is written by the gateway.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: FieldBlock,
    pub(crate) body: Bytes,
}

impl Answer {
    /// One without a body. A `status` that no final answer has (below 200 or above 599) is sent as 500.
    #[must_use]
    pub fn new(status: u16) -> Answer {
        Answer {
            status,
            fields: FieldBlock::new(),
            body: Bytes::new(),
        }
    }

    /// One line of plain text.
    #[must_use]
    pub fn text(status: u16, text: impl Into<String>) -> Answer {
        let mut answer = Answer::new(status);
        // Both are texts of ours.
        let _ = answer.fields.push("Content-Type", b"text/plain; charset=utf-8");
        let mut text: String = text.into();
        text.push('\n');
        answer.body = text.into();
        answer
    }

    /// With this body, which is not sent with 204 and 304.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Answer {
        self.body = body.into();
        self
    }

    /// With this field, beside others of its name.
    ///
    /// # Errors
    /// The name is none, or the gateway's own to write (`Content-Length`, `Connection` and the like); the value has control
    /// characters.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Answer, Error> {
        check_name(name)?;
        self.fields
            .push(name, value.as_ref())
            .map_err(|misuse| format!("the header `{}`: {misuse}", name.escape_debug()))?;
        Ok(self)
    }
}
