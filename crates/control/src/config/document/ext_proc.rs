//! Keys of an external processor.

use ringmain_gateway::model::{HeaderName, Hostname};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OnFailure, OneOrManyField};
use crate::config::fields::Parsed;
use crate::config::scalars::{Time, UpstreamTarget};

/// An external processor, which reads and changes requests and responses over gRPC, by Envoy's
/// `envoy.service.ext_proc.v3.ExternalProcessor/Process`: one stream for each request, with a message for each part that it receives. It
/// applies before `filters`. Not with `authz.body` or push. Example: `{to: "h2c://127.0.0.1:9292"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ExternalProcessor")]
pub(in crate::config) struct ProcessorSection {
    /// The upstream of the service, which must use HTTP/2. Required.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// The `Host` of calls. Default: the endpoint's host.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// Sends the head of the request. Default: `true`.
    pub(in crate::config) request_headers: Field<bool>,
    /// Sends the head of the response. Default: `true`.
    pub(in crate::config) response_headers: Field<bool>,
    /// The form in which the body of the request is sent. Default: `none`.
    pub(in crate::config) request_body: Field<ProcessorBody>,
    /// The form in which the body of the response is sent. Default: `none`.
    pub(in crate::config) response_body: Field<ProcessorBody>,
    /// Lets the service choose other parts with its response to a head (`mode_override`). Default: `false`, its choice is ignored.
    pub(in crate::config) allow_mode_override: Field<bool>,
    /// Headers that the service may set for the upstream, and that are never accepted from clients. It may change others, too.
    pub(in crate::config) upstream_headers: OneOrManyField<Parsed<HeaderName>>,
    /// The timeout of the response to a message, from `1ms` to `10s`; includes connecting. Default: `200ms`.
    pub(in crate::config) message_timeout: Field<Parsed<Time>>,
    /// The most time that the service may request for one response (`override_message_timeout`), from `1ms` to `10s`. Default: none, its
    /// requests are ignored.
    pub(in crate::config) max_message_timeout: Field<Parsed<Time>>,
    /// The handling of requests and responses when the service fails: `allow` continues without it. Default: `deny`, 503. Failures that are
    /// due to limits of the gateway, or that a client can cause, always deny.
    pub(in crate::config) on_failure: Field<OnFailure>,
}

/// The form in which a processor receives a body.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum ProcessorBody {
    /// It does not receive the body.
    None,
    /// In one message, before the head is forwarded. A body over 1 MiB is rejected with 413; one of a response with 502.
    Buffered,
    /// In pieces, as they arrive.
    Streamed,
}
