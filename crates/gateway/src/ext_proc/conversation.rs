//! One stream to a processor: each message is followed by its response, within a time limit.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_wire::h1::FieldBlock;

use super::messages::{PROCESS, ProcessingRequest, ProcessingResponse, Span};
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::grpc::{GrpcCall, GrpcError, GrpcStream};
use crate::limits;
use crate::model::ExternalProcessor;
use crate::policy::service_endpoints::ServiceEndpoints;
use crate::upstream::UpstreamState;

/// An open stream.
pub(super) struct Conversation {
    stream: GrpcStream,
    /// The request counts at the service's upstream as long as the stream is open.
    endpoints: ServiceEndpoints,
    worker: Rc<Worker>,
}

impl Conversation {
    /// Opens a stream and sends the first message. A stream that the service refuses before it has processed anything is opened once
    /// more.
    ///
    /// # Errors
    /// The reason that there is no response.
    pub(super) async fn open(
        worker: &Rc<Worker>,
        upstream: &Arc<UpstreamState>,
        policy: &ExternalProcessor,
        message: &ProcessingRequest,
    ) -> Result<(Conversation, Option<ProcessingResponse>), GrpcError> {
        let until = worker.cx.now().after(policy.message_timeout);
        let call = GrpcCall {
            path: PROCESS,
            host: policy.host.as_ref().map(|host| host.as_str()),
            metadata: &FieldBlock::new(),
            until,
            is_stream: true,
            message_limit: limits::PROCESSOR_MESSAGE_BYTES,
            ignore_health: policy.fail_open,
        };
        let mut endpoints = ServiceEndpoints::new(worker, upstream, until, policy.fail_open).await?;
        let mut fresh = false;
        loop {
            let opened = GrpcStream::open(&mut endpoints, &call, fresh).await;
            let stream = match opened {
                Ok(stream) => stream,
                Err(Fault::StreamRefused) if !fresh => {
                    fresh = true;
                    continue;
                }
                Err(fault) => return Err(fault.into()),
            };
            let conversation = Conversation {
                stream,
                endpoints,
                worker: Rc::clone(worker),
            };
            match conversation.exchange_until(policy, message, until).await {
                Err(GrpcError::Fault(Fault::StreamRefused)) if !fresh => fresh = true,
                Ok(response) => {
                    let pool = conversation.endpoints.pool();
                    pool.count_response(conversation.stream.http_status());
                    return Ok((conversation, response));
                }
                Err(error) => {
                    conversation.count(&error);
                    return Err(error);
                }
            }
            endpoints = conversation.endpoints;
        }
    }

    /// Sends a message, and returns the response; `None`: the service has ended the stream.
    ///
    /// # Errors
    /// The reason that there is no response.
    pub(super) async fn exchange(
        &self,
        policy: &ExternalProcessor,
        message: &ProcessingRequest,
    ) -> Result<Option<ProcessingResponse>, GrpcError> {
        let until = self.worker.cx.now().after(policy.message_timeout);
        let result = self.exchange_until(policy, message, until).await;
        if let Err(error) = &result {
            self.count(error);
        }
        result
    }

    async fn exchange_until(
        &self,
        policy: &ExternalProcessor,
        message: &ProcessingRequest,
        mut until: Time,
    ) -> Result<Option<ProcessingResponse>, GrpcError> {
        self.stream.limit_wait(self.remaining(until)?);
        // If the service accepts no more messages, its status is more informative.
        let _ = self.stream.send(message).await;
        let mut is_extended = false;
        loop {
            self.stream.limit_wait(self.remaining(until)?);
            let Some(response) = self.stream.receive::<ProcessingResponse>().await? else {
                return Ok(None);
            };
            let Some(span) = response.override_message_timeout else {
                return Ok(Some(response));
            };
            if let Some(span) = extension(span, policy.max_message_timeout)
                && !is_extended
            {
                is_extended = true;
                until = self.worker.cx.now().after(span);
            }
        }
    }

    /// Ends the messages to the service, so that it can finish; a service that does not is cancelled.
    pub(super) fn close(self) {
        let _ = self.stream.finish();
    }

    fn remaining(&self, until: Time) -> Result<Duration, GrpcError> {
        let remaining = until.since(self.worker.cx.now());
        if remaining.is_zero() {
            return Err(Fault::HeadTimeout.into());
        }
        Ok(remaining)
    }

    /// Counts the outcome of the stream at the service's endpoint.
    fn count(&self, error: &GrpcError) {
        match error {
            GrpcError::Fault(fault) => self.endpoints.pool().count_fault(*fault),
            _ => self.endpoints.pool().count_response(self.stream.http_status()),
        }
    }
}

/// Returns the time that a service requests, if it is from 1 ms to `most`.
fn extension(span: Span, most: Option<Duration>) -> Option<Duration> {
    let seconds = u64::try_from(span.seconds).ok()?;
    let nanos = u32::try_from(span.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    let span = Duration::new(seconds, nanos);
    (span >= Duration::from_millis(1) && span <= most?).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_requests_time_within_a_limit() {
        let most = Some(Duration::from_secs(2));
        for (seconds, nanos, most, expect) in [
            (1, 500_000_000, most, Some(1500)),
            (2, 0, most, Some(2000)),
            (2, 1, most, None),
            (0, 1_000_000, most, Some(1)),
            (0, 999_999, most, None),
            (-1, 0, most, None),
            (0, -1, most, None),
            (0, 1_000_000_000, most, None),
            (i64::MAX, 0, most, None),
            (1, 0, None, None),
        ] {
            let found = extension(Span { seconds, nanos }, most);
            assert_eq!(found, expect.map(Duration::from_millis), "{seconds} {nanos}");
        }
    }
}
