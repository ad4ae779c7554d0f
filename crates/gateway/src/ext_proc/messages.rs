//! The messages of `envoy.service.ext_proc.v3`, with its field numbers, as far as they are written or read.

use prost::{Enumeration, Message, Oneof};

pub(super) use crate::policy::envoy_messages::{HeaderOption, HeaderValue, HttpStatus, Span};

/// The method of the service.
pub(super) const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessingRequest {
    #[prost(oneof = "RequestPart", tags = "2, 3, 4, 5")]
    pub(crate) part: Option<RequestPart>,
    /// In the first message only.
    #[prost(message, optional, tag = "11")]
    pub(crate) protocol: Option<ProtocolConfiguration>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum RequestPart {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ProtocolConfiguration {
    /// A [`BodySendMode`].
    #[prost(int32, tag = "1")]
    pub(crate) request_body: i32,
    /// A [`BodySendMode`].
    #[prost(int32, tag = "2")]
    pub(crate) response_body: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(crate) headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub(crate) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(crate) headers: Vec<HeaderValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpBody {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) body: Vec<u8>,
    #[prost(bool, tag = "2")]
    pub(crate) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessingResponse {
    #[prost(oneof = "ResponsePart", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(crate) part: Option<ResponsePart>,
    #[prost(message, optional, tag = "9")]
    pub(crate) mode_override: Option<ModeOverride>,
    #[prost(message, optional, tag = "10")]
    pub(crate) override_message_timeout: Option<Span>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ResponsePart {
    #[prost(message, tag = "1")]
    RequestHeaders(PartResponse),
    #[prost(message, tag = "2")]
    ResponseHeaders(PartResponse),
    #[prost(message, tag = "3")]
    RequestBody(PartResponse),
    #[prost(message, tag = "4")]
    ResponseBody(PartResponse),
    #[prost(message, tag = "5")]
    RequestTrailers(Unread),
    #[prost(message, tag = "6")]
    ResponseTrailers(Unread),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// `HeadersResponse` and `BodyResponse`, which have the same form.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) response: Option<CommonResponse>,
}

/// A message whose fields are not read.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Unread {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CommonResponse {
    /// A [`ResponseStatus`].
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub(crate) body_mutation: Option<BodyMutation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum ResponseStatus {
    Continue = 0,
    ContinueAndReplace = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub(crate) set_headers: Vec<HeaderOption>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) remove_headers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BodyMutation {
    #[prost(oneof = "BodyChange", tags = "1, 2, 3")]
    pub(crate) change: Option<BodyChange>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum BodyChange {
    #[prost(bytes, tag = "1")]
    Body(Vec<u8>),
    #[prost(bool, tag = "2")]
    Clear(bool),
    /// Of a mode that is not supported.
    #[prost(message, tag = "3")]
    Streamed(Unread),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(crate) headers: Option<HeaderMutation>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) body: Vec<u8>,
}

/// `ProcessingMode` of `envoy.extensions.filters.http.ext_proc.v3`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ModeOverride {
    /// A [`SendMode`].
    #[prost(int32, tag = "2")]
    pub(crate) response_headers: i32,
    /// A [`BodySendMode`].
    #[prost(int32, tag = "3")]
    pub(crate) request_body: i32,
    /// A [`BodySendMode`].
    #[prost(int32, tag = "4")]
    pub(crate) response_body: i32,
    /// A [`SendMode`].
    #[prost(int32, tag = "5")]
    pub(crate) request_trailers: i32,
    /// A [`SendMode`].
    #[prost(int32, tag = "6")]
    pub(crate) response_trailers: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum SendMode {
    Default = 0,
    Send = 1,
    Skip = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum BodySendMode {
    None = 0,
    Streamed = 1,
    Buffered = 2,
}
