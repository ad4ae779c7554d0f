//! An external processor.

use std::sync::Arc;
use std::time::Duration;

use super::{HeaderName, Hostname, Target};
use crate::limits;

/// An external service that reads and changes requests and responses over one stream each
/// (`envoy.service.ext_proc.v3.ExternalProcessor/Process`). It applies before the filters of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalProcessor {
    /// The upstream of the service, which must speak HTTP/2.
    pub upstream: Target,
    /// The `Host` of calls. Default: `None`, the endpoint's own.
    pub host: Option<Hostname>,
    /// The parts that the service receives.
    pub mode: ProcessingMode,
    /// Lets the service choose other parts, in its response to a head. Default: `false`, its choice is ignored.
    pub allow_mode_override: bool,
    /// Headers for the upstream that the service may set, and clients cannot.
    pub upstream_headers: Vec<HeaderName>,
    /// Time limit of each response of the service, connecting included, at most [`limits::PROCESSOR_TIMEOUT_MOST`]. Default:
    /// [`limits::PROCESSOR_TIMEOUT`].
    pub message_timeout: Duration,
    /// The most time that the service may request for one response, at most [`limits::PROCESSOR_TIMEOUT_MOST`]. Default: `None`, its
    /// requests for more time are ignored.
    pub max_message_timeout: Option<Duration>,
    /// Continues without the service if it fails; never because of a limit of the gateway, or of a failure that the request may have
    /// caused. Default: `false`, 503.
    pub fail_open: bool,
}

impl ExternalProcessor {
    /// Creates a policy for this service, with defaults otherwise.
    #[must_use]
    pub fn new(upstream: Target) -> ExternalProcessor {
        ExternalProcessor {
            upstream,
            host: None,
            mode: ProcessingMode::default(),
            allow_mode_override: false,
            upstream_headers: Vec::new(),
            message_timeout: limits::PROCESSOR_TIMEOUT,
            max_message_timeout: None,
            fail_open: false,
        }
    }

    /// Returns the policy's shared form.
    #[must_use]
    pub fn shared(self) -> Arc<ExternalProcessor> {
        Arc::new(self)
    }
}

/// The parts of a request and its response that an external processor receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessingMode {
    /// The head of the request. Default: `true`.
    pub request_headers: bool,
    /// The head of the response. Default: `true`.
    pub response_headers: bool,
    /// The body of the request. Default: none.
    pub request_body: BodyMode,
    /// The body of the response. Default: none.
    pub response_body: BodyMode,
}

impl Default for ProcessingMode {
    fn default() -> ProcessingMode {
        ProcessingMode {
            request_headers: true,
            response_headers: true,
            request_body: BodyMode::None,
            response_body: BodyMode::None,
        }
    }
}

/// The form in which an external processor receives a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyMode {
    /// It does not.
    #[default]
    None,
    /// In one message, before the head is forwarded, which may be changed together with it. A body longer than
    /// [`limits::FILTER_HELD_BYTES`] is answered 413; for a response 502.
    Buffered,
    /// In pieces, as they arrive.
    Streamed,
}
