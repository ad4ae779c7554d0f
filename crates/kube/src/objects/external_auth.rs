//! Experimental: the filter `ExternalAuth`, a service that decides whether requests are allowed.

use serde::Deserialize;

use super::route::BackendRef;

/// A service of authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalAuth {
    /// `HTTP` or `GRPC`.
    pub protocol: String,
    /// The service.
    pub backend_ref: BackendRef,
    /// For `HTTP`.
    pub http: Option<HttpAuth>,
    /// For `GRPC`.
    pub grpc: Option<GrpcAuth>,
    /// `None`: bodies are not sent.
    pub forward_body: Option<ForwardBody>,
}

/// Requests of authorization over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpAuth {
    /// A prefix of their paths; empty: none.
    pub path: String,
    /// Headers of the client's request that are sent, beside `Authorization`.
    pub allowed_headers: Vec<String>,
    /// Headers of the response that backends receive; none: all.
    pub allowed_response_headers: Vec<String>,
}

/// Requests of authorization over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcAuth {
    /// Headers of the client's request that are sent; none: all.
    pub allowed_headers: Vec<String>,
}

/// Bodies for a service of authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ForwardBody {
    /// Bytes; 0: bodies are not sent.
    pub max_size: u64,
}
