//! The policy of an external processor.

use std::time::Duration;

use ringmain_gateway::limits::PROCESSOR_TIMEOUT_MOST;
use ringmain_gateway::model::{BodyMode, ExternalProcessor, Policy, ProcessingMode};

use super::{Builder, field_value, parsed_items, parsed_value, set_if_some};
use crate::config::document;
use crate::config::error::FilePosition;

impl Builder<'_> {
    pub(super) fn build_processor(
        &mut self,
        part: document::ProcessorSection,
        position: FilePosition,
    ) -> Option<Policy> {
        let upstream = self.resolve_service(part.to, position, true)?;
        let mut policy = ExternalProcessor::new(upstream);
        policy.host = parsed_value(part.host);
        policy.mode = ProcessingMode {
            request_headers: field_value(part.request_headers).unwrap_or(true),
            response_headers: field_value(part.response_headers).unwrap_or(true),
            request_body: field_value(part.request_body).map_or(BodyMode::None, body_mode),
            response_body: field_value(part.response_body).map_or(BodyMode::None, body_mode),
        };
        policy.allow_mode_override = field_value(part.allow_mode_override).unwrap_or(false);
        if policy.mode == NOTHING {
            self.errors
                .report(position, "at least one part that the service receives", "none");
        }
        policy.upstream_headers = parsed_items(part.upstream_headers);
        let min = Duration::from_millis(1);
        let time = |key: &str, at| self.check_time_range(key, at, min, PROCESSOR_TIMEOUT_MOST);
        set_if_some(
            &mut policy.message_timeout,
            time("message_timeout", &part.message_timeout),
        );
        policy.max_message_timeout = time("max_message_timeout", &part.max_message_timeout);
        policy.fail_open = field_value(part.on_failure) == Some(document::OnFailure::Allow);
        Some(Policy::Processor(policy.into()))
    }
}

/// A mode in which there is never a message.
const NOTHING: ProcessingMode = ProcessingMode {
    request_headers: false,
    response_headers: false,
    request_body: BodyMode::None,
    response_body: BodyMode::None,
};

fn body_mode(mode: document::ProcessorBody) -> BodyMode {
    match mode {
        document::ProcessorBody::None => BodyMode::None,
        document::ProcessorBody::Buffered => BodyMode::Buffered,
        document::ProcessorBody::Streamed => BodyMode::Streamed,
    }
}
