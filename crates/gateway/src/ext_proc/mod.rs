//! An external processor: a filter whose decisions a service takes over gRPC (`envoy.service.ext_proc.v3.ExternalProcessor`).
//!
//! ```text
//! request head ─▶ message ─▶ response ─┬─ changes ─▶ next filter
//! piece of a body ─▶ …                 ├─ an immediate response ─▶ client
//! response head ─▶ …                   ├─ the stream has ended ─▶ no further messages
//! piece of a body ─▶ …                 └─ failed ─▶ 503, or no further messages if configured
//! ```
//!
//! One stream for each exchange, opened by its first message; one message at a time, each followed by its response within the time limit. A
//! response is applied as a whole or is a failure. As with external authorization a failure concerns the exchange whose stream failed.
//!
//! Owns the conversation about one exchange. The parts that it receives, and the order of filters, belong to `proxy`.

mod conversation;
mod headers;
mod messages;
mod mutation;

use std::rc::Rc;
use std::sync::Arc;

use self::conversation::Conversation;
use self::headers::RequestOrigin;
use self::messages::{
    BodySendMode, CommonResponse, HttpBody, HttpHeaders, ModeOverride, ProcessingRequest, ProcessingResponse,
    ProtocolConfiguration, RequestPart, ResponsePart, SendMode,
};
use self::mutation::{Changes, Side, changes, immediate_response};
use crate::fault::Fault;
use crate::filter::{
    BodyAccess, ExchangeEnd, FilterError, FilterFault, FilterResponse, Flow, Hook, Outcome, RequestBody,
    RequestHead, ResponseBody, ResponseHead, RunningFilter,
};
use crate::gateway::Worker;
use crate::grpc::GrpcError;
use crate::model::{BodyMode, ExternalProcessor, ProcessingMode, Target};
use crate::policy::PolicyInput;
use crate::stats::{ExtensionKind, ExtensionOutcome};
use crate::upstream::UpstreamState;
use crate::upstream::registry::UpstreamRegistry;

/// The processor of a rule.
#[derive(Debug)]
pub(crate) struct Processor {
    policy: Arc<ExternalProcessor>,
    upstream: Arc<UpstreamState>,
}

impl Processor {
    pub(crate) fn compile(
        policy: &Arc<ExternalProcessor>,
        upstreams: &UpstreamRegistry,
    ) -> Result<Processor, String> {
        let upstream = match &policy.upstream {
            Target::Upstream(name) => upstreams.find(name).cloned().ok_or_else(|| {
                format!("the external processor's upstream `{name}`, which is not configured")
            })?,
            Target::Broken { reason } => return Err(reason.to_string()),
        };
        Ok(Processor {
            policy: Arc::clone(policy),
            upstream,
        })
    }

    /// Starts processing a request. `query`: the one that policies have set in place of the client's.
    pub(crate) fn begin(&self, at: &PolicyInput<'_, '_>, query: Option<&str>) -> Box<dyn RunningFilter> {
        Box::new(ProcessorExchange {
            policy: Arc::clone(&self.policy),
            upstream: Arc::clone(&self.upstream),
            worker: Rc::clone(at.worker),
            origin: RequestOrigin::new(at, query),
            mode: self.policy.mode,
            state: State::Idle,
            request_body: None,
            response_body: None,
            has_response_head: false,
        })
    }
}

/// A processor with its state for one exchange.
struct ProcessorExchange {
    policy: Arc<ExternalProcessor>,
    upstream: Arc<UpstreamState>,
    worker: Rc<Worker>,
    origin: RequestOrigin,
    /// The parts that the service receives from now on.
    mode: ProcessingMode,
    state: State,
    /// The body that replaces the whole one.
    request_body: Option<Vec<u8>>,
    response_body: Option<Vec<u8>>,
    /// The head of a response was processed; a response of the gateway may replace that response.
    has_response_head: bool,
}

/// The stream of an exchange.
#[expect(
    clippy::large_enum_variant,
    reason = "a part of the exchange, which is boxed itself: another box would add an indirection"
)]
enum State {
    /// There was no message yet.
    Idle,
    Open(Conversation),
    /// There are no further messages.
    Finished,
}

/// The part that a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    RequestHead,
    RequestBody,
    ResponseHead,
    ResponseBody,
}

/// The continuation of an exchange after a message.
enum Answer {
    /// There is no response: the exchange continues without the service.
    Nothing,
    Changes(Changes),
    Respond(FilterResponse),
}

impl RunningFilter for ProcessorExchange {
    fn call<'a>(&'a mut self, hook: Hook<'a, '_>) -> Outcome<'a> {
        match hook {
            Hook::RequestHead(head) => Flow::wait(self.request_head(head)),
            Hook::RequestBody(body) => Flow::wait(self.request_body(body)),
            Hook::ResponseHead(head) => Flow::wait(self.response_head(head)),
            Hook::ResponseBody(body) => Flow::wait(self.response_body(body)),
        }
    }

    fn finish(self: Box<Self>, _end: &ExchangeEnd) {
        if let State::Open(conversation) = self.state {
            conversation.close();
        }
    }
}

impl ProcessorExchange {
    async fn request_head(&mut self, head: &mut RequestHead<'_>) -> Outcome<'static> {
        if self.mode.request_headers {
            let headers = HttpHeaders {
                headers: Some(self.origin.request_headers(head)?),
                end_of_stream: !head.has_body(),
            };
            let mut part = RequestPart::RequestHeaders(headers);
            match self.exchange(Part::RequestHead, &mut part).await? {
                Answer::Nothing => {}
                Answer::Respond(response) => return Ok(Flow::Respond(response)),
                Answer::Changes(changes) => {
                    let applied = changes.head.apply_to_request(head);
                    applied.map_err(|error| self.reject(&error.to_string()))?;
                    if changes.replaces {
                        self.mode.request_body = BodyMode::None;
                        self.request_body = changes.body;
                        self.check_replaceable(self.request_body.as_deref(), head.has_body())?;
                    }
                }
            }
        }
        head.want_body(access(self.mode.request_body, self.request_body.is_some()));
        Ok(Flow::Continue)
    }

    async fn response_head(&mut self, head: &mut ResponseHead<'_>) -> Outcome<'static> {
        if self.mode.response_headers && !self.has_response_head {
            self.has_response_head = true;
            let headers = HttpHeaders {
                headers: Some(headers::response_headers(head)),
                end_of_stream: !head.has_body(),
            };
            let mut part = RequestPart::ResponseHeaders(headers);
            match self.exchange(Part::ResponseHead, &mut part).await? {
                Answer::Nothing => {}
                Answer::Respond(response) => return Ok(Flow::Respond(response)),
                Answer::Changes(changes) => {
                    let applied = changes.head.apply_to_response(head);
                    applied.map_err(|error| self.reject(&error.to_string()))?;
                    if changes.replaces {
                        self.mode.response_body = BodyMode::None;
                        self.response_body = changes.body;
                        self.check_replaceable(self.response_body.as_deref(), head.has_body())?;
                    }
                }
            }
        }
        head.want_body(access(self.mode.response_body, self.response_body.is_some()));
        Ok(Flow::Continue)
    }

    async fn request_body(&mut self, body: &mut RequestBody<'_>) -> Outcome<'static> {
        if let Some(whole) = self.request_body.take() {
            *body.bytes_mut()? = whole;
            return Ok(Flow::Continue);
        }
        if self.mode.request_body == BodyMode::None {
            return Ok(Flow::Continue);
        }
        let piece = HttpBody {
            body: std::mem::take(body.bytes_mut()?),
            end_of_stream: body.is_end(),
        };
        let mut part = RequestPart::RequestBody(piece);
        let answer = self.exchange(Part::RequestBody, &mut part).await?;
        *body.bytes_mut()? = into_body(part);
        match answer {
            Answer::Nothing => {}
            Answer::Respond(response) => return Ok(Flow::Respond(response)),
            Answer::Changes(changes) => {
                if let Some(head) = body.head() {
                    let applied = changes.head.apply_to_request(head);
                    applied.map_err(|error| self.reject(&error.to_string()))?;
                }
                if let Some(changed) = changes.body {
                    *body.bytes_mut()? = changed;
                }
                if changes.replaces {
                    self.mode.request_body = BodyMode::None;
                }
            }
        }
        Ok(Flow::Continue)
    }

    async fn response_body(&mut self, body: &mut ResponseBody<'_>) -> Outcome<'static> {
        if let Some(whole) = self.response_body.take() {
            *body.bytes_mut()? = whole;
            return Ok(Flow::Continue);
        }
        if self.mode.response_body == BodyMode::None {
            return Ok(Flow::Continue);
        }
        let piece = HttpBody {
            body: std::mem::take(body.bytes_mut()?),
            end_of_stream: body.is_end(),
        };
        let mut part = RequestPart::ResponseBody(piece);
        let answer = self.exchange(Part::ResponseBody, &mut part).await?;
        *body.bytes_mut()? = into_body(part);
        match answer {
            Answer::Nothing => {}
            Answer::Respond(response) => return Ok(Flow::Respond(response)),
            Answer::Changes(changes) => {
                if let Some(head) = body.head() {
                    let applied = changes.head.apply_to_response(head);
                    applied.map_err(|error| self.reject(&error.to_string()))?;
                }
                if let Some(changed) = changes.body {
                    *body.bytes_mut()? = changed;
                }
                if changes.replaces {
                    self.mode.response_body = BodyMode::None;
                }
            }
        }
        Ok(Flow::Continue)
    }

    /// Checks that a body can be replaced: a message without one cannot be given one.
    fn check_replaceable(&self, body: Option<&[u8]>, has_body: bool) -> Result<(), FilterError> {
        if has_body || body.is_none_or(<[u8]>::is_empty) {
            return Ok(());
        }
        Err(self.reject("a body for a message without one"))
    }

    /// Rejects the exchange after a response that cannot be applied, a part of which may have been.
    fn reject(&self, reason: &str) -> FilterError {
        log::debug!("`{}` failed a request: {reason}", self.upstream.name);
        unavailable()
    }

    /// Sends a part, and reads the response.
    async fn exchange(&mut self, part: Part, message: &mut RequestPart) -> Result<Answer, FilterError> {
        if matches!(self.state, State::Finished) {
            return Ok(Answer::Nothing);
        }
        let started_at = self.worker.cx.now();
        let mut request = ProcessingRequest {
            part: Some(std::mem::replace(message, EMPTY)),
            protocol: matches!(self.state, State::Idle).then(|| protocol(self.mode)),
        };
        let received = self.converse(&request).await;
        if let Some(sent) = request.part.take() {
            *message = sent;
        }
        let read = match received {
            Ok(Some(response)) => self.read(part, response).map_err(|reason| (reason, true)),
            Ok(None) => {
                // The service needs no further messages.
                self.finish_stream();
                Ok(Answer::Nothing)
            }
            Err(error) => Err((error.to_string(), error.is_of_service())),
        };
        let outcome = match &read {
            Ok(Answer::Respond(_)) => ExtensionOutcome::Denied,
            Ok(_) => ExtensionOutcome::Allowed,
            Err(_) => ExtensionOutcome::Failed,
        };
        let span = self.worker.cx.now().since(started_at);
        let extension = (ExtensionKind::Processor, &self.upstream.name);
        self.worker.counters.count_extension(extension, outcome, span);
        read.or_else(|(reason, by_service)| self.handle_failure(&reason, by_service))
    }

    async fn converse(
        &mut self,
        request: &ProcessingRequest,
    ) -> Result<Option<ProcessingResponse>, GrpcError> {
        match &self.state {
            State::Open(conversation) => conversation.exchange(&self.policy, request).await,
            State::Idle | State::Finished => {
                let opened = Conversation::open(&self.worker, &self.upstream, &self.policy, request);
                let (conversation, response) = opened.await?;
                self.state = State::Open(conversation);
                Ok(response)
            }
        }
    }

    /// Reads the response to a part.
    fn read(&mut self, part: Part, response: ProcessingResponse) -> Result<Answer, String> {
        let (answered, found) = match response.part.ok_or("a response without content")? {
            ResponsePart::Immediate(response) => {
                let response = immediate_response(response)?;
                self.finish_stream();
                return Ok(Answer::Respond(response));
            }
            ResponsePart::RequestHeaders(found) => (Part::RequestHead, found),
            ResponsePart::RequestBody(found) => (Part::RequestBody, found),
            ResponsePart::ResponseHeaders(found) => (Part::ResponseHead, found),
            ResponsePart::ResponseBody(found) => (Part::ResponseBody, found),
            ResponsePart::RequestTrailers(_) | ResponsePart::ResponseTrailers(_) => {
                return Err(format!("a response to trailers, expected one to {part:?}"));
            }
        };
        if answered != part {
            return Err(format!("a response to {answered:?}, expected one to {part:?}"));
        }
        let is_head = matches!(part, Part::RequestHead | Part::ResponseHead);
        let side = match part {
            Part::RequestHead | Part::RequestBody => Side::Request,
            Part::ResponseHead | Part::ResponseBody => Side::Response,
        };
        let common: CommonResponse = found.response.unwrap_or_default();
        let changes = changes(common, side)?;
        if let Some(chosen) = response.mode_override
            && is_head
            && self.policy.allow_mode_override
        {
            self.mode = overridden(self.policy.mode, self.mode, chosen)?;
        }
        Ok(Answer::Changes(changes))
    }

    /// Handles a failure. `by_service`: it is of the service, not of a limit of the gateway or of the request.
    fn handle_failure(&mut self, reason: &str, by_service: bool) -> Result<Answer, FilterError> {
        log::debug!("`{}` failed a request: {reason}", self.upstream.name);
        self.state = State::Finished;
        if self.policy.fail_open && by_service {
            self.worker.counters.count_fault(Fault::ProcessorUnavailable);
            return Ok(Answer::Nothing);
        }
        Err(unavailable())
    }

    fn finish_stream(&mut self) {
        if let State::Open(conversation) = std::mem::replace(&mut self.state, State::Finished) {
            conversation.close();
        }
    }
}

const EMPTY: RequestPart = RequestPart::RequestBody(HttpBody {
    body: Vec::new(),
    end_of_stream: false,
});

fn unavailable() -> FilterError {
    Box::new(FilterFault(Fault::ProcessorUnavailable))
}

/// Returns the body that a message had.
fn into_body(part: RequestPart) -> Vec<u8> {
    match part {
        RequestPart::RequestBody(piece) | RequestPart::ResponseBody(piece) => piece.body,
        RequestPart::RequestHeaders(_) | RequestPart::ResponseHeaders(_) => Vec::new(),
    }
}

/// Returns the access to a body that a mode requires. `is_replaced`: the whole body is replaced.
fn access(mode: BodyMode, is_replaced: bool) -> BodyAccess {
    match mode {
        _ if is_replaced => BodyAccess::Buffer,
        BodyMode::None => BodyAccess::Nothing,
        BodyMode::Buffered => BodyAccess::Buffer,
        BodyMode::Streamed => BodyAccess::Modify,
    }
}

fn protocol(mode: ProcessingMode) -> ProtocolConfiguration {
    let send = |mode| match mode {
        BodyMode::None => BodySendMode::None as i32,
        BodyMode::Buffered => BodySendMode::Buffered as i32,
        BodyMode::Streamed => BodySendMode::Streamed as i32,
    };
    ProtocolConfiguration {
        request_body: send(mode.request_body),
        response_body: send(mode.response_body),
    }
}

/// Returns the mode that a service chooses, for the parts that follow.
///
/// # Errors
/// It chooses one that is not supported.
fn overridden(
    configured: ProcessingMode,
    current: ProcessingMode,
    chosen: ModeOverride,
) -> Result<ProcessingMode, String> {
    let body = |mode| match BodySendMode::try_from(mode) {
        Ok(BodySendMode::None) => Ok(BodyMode::None),
        Ok(BodySendMode::Streamed) => Ok(BodyMode::Streamed),
        Ok(BodySendMode::Buffered) => Ok(BodyMode::Buffered),
        Err(_) => Err(format!("the mode of bodies {mode}, which is not supported")),
    };
    for mode in [chosen.request_trailers, chosen.response_trailers] {
        if mode == SendMode::Send as i32 {
            return Err("a mode with trailers, which is not supported".to_owned());
        }
    }
    let response_headers = match SendMode::try_from(chosen.response_headers) {
        Ok(SendMode::Default) => configured.response_headers,
        Ok(SendMode::Send) => true,
        Ok(SendMode::Skip) => false,
        Err(_) => return Err(format!("the unknown mode of headers {}", chosen.response_headers)),
    };
    Ok(ProcessingMode {
        request_headers: current.request_headers,
        response_headers,
        request_body: body(chosen.request_body)?,
        response_body: body(chosen.response_body)?,
    })
}

#[cfg(test)]
mod tests;
