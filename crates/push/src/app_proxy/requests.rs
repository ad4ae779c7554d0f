//! Bodies of requests, as in Centrifugo's proxy. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_hub::protocol::Fault;
use serde::Serialize;
use serde_json::value::RawValue;

/// The body of a request. Empty fields are omitted.
#[derive(Debug, Default, Serialize)]
pub(super) struct RequestBody<'a> {
    pub(super) client: &'a str,
    pub(super) transport: &'static str,
    pub(super) protocol: &'static str,
    pub(super) encoding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channel: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) b64data: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) version: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) channels: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<&'a RawValue>,
}

impl<'a> RequestBody<'a> {
    /// Adds the client's data.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`]: the data is not JSON, and is not sent as base64.
    pub(super) fn with_data(mut self, data: &'a Bytes, binary: bool) -> Result<RequestBody<'a>, Fault> {
        self.encoding = if binary { "binary" } else { "json" };
        if data.is_empty() {
            return Ok(self);
        }
        if binary {
            self.b64data = STANDARD.encode(data);
        } else {
            let raw: &RawValue = serde_json::from_slice(data).map_err(|_| Fault::BAD_REQUEST)?;
            self.data = Some(raw);
        }
        Ok(self)
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>, Fault> {
        serde_json::to_vec(self).map_err(|_| Fault::INTERNAL)
    }
}
