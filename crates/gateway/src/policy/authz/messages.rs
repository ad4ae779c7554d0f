//! The messages of `envoy.service.auth.v3`, with its field numbers, as far as they are written or read.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

pub(crate) use super::super::envoy_messages::{HeaderOption, HttpStatus, Struct, Value, ValueKind};

/// The method of the service.
pub(super) const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) attributes: Option<AttributeContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttributeContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) source: Option<AttributePeer>,
    #[prost(message, optional, tag = "2")]
    pub(crate) destination: Option<AttributePeer>,
    #[prost(message, optional, tag = "4")]
    pub(crate) request: Option<AttributeRequest>,
    #[prost(btree_map = "string, string", tag = "10")]
    pub(crate) context_extensions: BTreeMap<String, String>,
    #[prost(message, optional, tag = "12")]
    pub(crate) tls_session: Option<TlsSession>,
}

/// A side of the client's connection.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttributePeer {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<Address>,
    /// The name in the client's certificate.
    #[prost(string, tag = "4")]
    pub(crate) principal: String,
    /// The certificate as PEM, percent-encoded.
    #[prost(string, tag = "5")]
    pub(crate) certificate: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(crate) socket: Option<SocketAddress>,
    #[prost(message, optional, tag = "2")]
    pub(crate) pipe: Option<PipeAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(uint32, tag = "3")]
    pub(crate) port: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PipeAddress {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttributeRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) time: Option<Timestamp>,
    #[prost(message, optional, tag = "2")]
    pub(crate) http: Option<HttpAttributes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpAttributes {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) headers: BTreeMap<String, String>,
    /// Path and query.
    #[prost(string, tag = "4")]
    pub(crate) path: String,
    #[prost(string, tag = "5")]
    pub(crate) host: String,
    #[prost(string, tag = "6")]
    pub(crate) scheme: String,
    /// The length of the body in bytes; -1: unknown.
    #[prost(int64, tag = "9")]
    pub(crate) size: i64,
    #[prost(string, tag = "10")]
    pub(crate) protocol: String,
    #[prost(string, tag = "11")]
    pub(crate) body: String,
    #[prost(bytes = "vec", tag = "12")]
    pub(crate) raw_body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TlsSession {
    #[prost(string, tag = "1")]
    pub(crate) sni: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<RpcStatus>,
    #[prost(oneof = "HttpResponse", tags = "2, 3, 5")]
    pub(crate) http_response: Option<HttpResponse>,
    #[prost(message, optional, tag = "4")]
    pub(crate) dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum HttpResponse {
    #[prost(message, tag = "2")]
    Denied(DeniedResponse),
    #[prost(message, tag = "3")]
    Ok(OkResponse),
    /// The service has failed.
    #[prost(message, tag = "5")]
    Error(DeniedResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeniedResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) headers: Vec<HeaderOption>,
    #[prost(string, tag = "3")]
    pub(crate) body: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OkResponse {
    /// Changes of request headers.
    #[prost(message, repeated, tag = "2")]
    pub(crate) headers: Vec<HeaderOption>,
    /// The former place of [`CheckResponse::dynamic_metadata`].
    #[prost(message, optional, tag = "3")]
    pub(crate) dynamic_metadata: Option<Struct>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) response_headers: Vec<HeaderOption>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) query_to_set: Vec<QueryParameter>,
    #[prost(string, repeated, tag = "8")]
    pub(crate) query_to_remove: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QueryParameter {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}
