//! Responses that filters produce.

use bytes::Bytes;
use ringmain_wire::h1::FieldBlock;

use super::FilterError;
use super::head::check_name;

/// A response in place of the upstream's. The gateway writes `Content-Length`.
#[derive(Clone, Debug)]
pub struct FilterResponse {
    pub(crate) status: u16,
    pub(crate) fields: FieldBlock,
    pub(crate) body: Bytes,
}

impl FilterResponse {
    /// Creates a response without a body. A `status` that no final response has (below 200 or above 599) is sent as 500.
    #[must_use]
    pub fn new(status: u16) -> FilterResponse {
        FilterResponse {
            status,
            fields: FieldBlock::new(),
            body: Bytes::new(),
        }
    }

    /// Creates a response with one line of plain text.
    #[must_use]
    pub fn text(status: u16, text: impl Into<String>) -> FilterResponse {
        let mut answer = FilterResponse::new(status);
        // Name and value are constants, and valid.
        let _ = answer.fields.push("Content-Type", b"text/plain; charset=utf-8");
        let mut text: String = text.into();
        text.push('\n');
        answer.body = text.into();
        answer
    }

    /// Sets the body, which is not sent with 204 and 304.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> FilterResponse {
        self.body = body.into();
        self
    }

    /// Adds a field, next to others of its name.
    ///
    /// # Errors
    /// The name is not a token, or the gateway writes the field itself (`Content-Length`, `Connection` and the like); the value has control
    /// characters.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<FilterResponse, FilterError> {
        check_name(name)?;
        self.fields
            .push(name, value.as_ref())
            .map_err(|misuse| format!("the header `{}`: {misuse}", name.escape_debug()))?;
        Ok(self)
    }
}
