//! The filters of one request: those that have processed it, their access to its bodies, and its end.
//!
//! ```text
//! up:   head of each, first to last ─▶ pieces, first to last ─▶ upstream
//! down: head of each, last to first ─▶ pieces, last to first ─▶ client       for those that have processed the request's head
//! ```
//!
//! Used only by requests of rules with filters; all others pay for one check. Knows nothing of the filters' purposes.

mod call;
mod request;
mod response;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::h1::allows_content;

use self::call::FilterSlot;
use super::{Continuation, Failure, RequestRoute, RoutedRequest, client, local_response};
use crate::fault::Fault;
use crate::filter::{BodyAccess, ExchangeEnd, FilterResponse, RequestContext, RequestInfo, Use, UseKind};
use crate::gateway::Worker;
use crate::limits;
use crate::model::{Action, Name};
use crate::policy::{Cleared, PolicyInput};

/// The filters of one request.
pub(super) struct FilterChain {
    cx: Cx,
    started: Time,
    request_facts: RequestContext,
    entries: Box<[ChainEntry]>,
    /// Number of filters, from the first, that process the response.
    reached: Cell<usize>,
    request_state: RequestState,
    response_state: ResponseState,
    outcome: Cell<Option<ExchangeEnd>>,
}

/// One filter of the chain.
struct ChainEntry {
    name: Name,
    slot: FilterSlot,
    request_body: BodyHold,
    response_body: BodyHold,
}

/// A filter's access to a body, and the bytes held for it.
#[derive(Default)]
struct BodyHold {
    want: Cell<BodyAccess>,
    held: RefCell<Vec<u8>>,
}

/// The state of the request body.
#[derive(Default)]
struct RequestState {
    /// Set if filters process it.
    has_body_filter: Cell<bool>,
    /// Set once all of the body was taken from the client.
    is_finished: Cell<bool>,
    /// Set while filters process a piece that was taken from the client: a caller that is dropped meanwhile loses it.
    is_partial: Cell<bool>,
    /// The bytes to send next.
    ready: RefCell<Bytes>,
    /// Bytes that the client has sent, and the limit.
    received: Cell<u64>,
    limit: Option<u64>,
}

/// The state of the response body.
#[derive(Default)]
struct ResponseState {
    /// Set if filters process it.
    has_body_filter: Cell<bool>,
    /// Names that filters have set or removed in the head.
    dropped: RefCell<Vec<Box<str>>>,
    is_finished: Cell<bool>,
    /// The buffer of the body while the head waits for its end.
    buffered: RefCell<Option<Vec<u8>>>,
}

/// Passes a request and its response through the filters of its rule. `place` has the filters afterwards, for the rest of the response.
pub(super) async fn serve_filtered(
    worker: &Rc<Worker>,
    request: RoutedRequest<'_, '_>,
    cleared: &mut Cleared,
    uses: &[Use],
    place: &mut Option<Box<FilterChain>>,
    reply: &mut Reply<'_>,
) -> Result<Continuation, Error> {
    let RoutedRequest { route, req, .. } = request;
    let outcome = run_action(worker, request, cleared, uses, place, reply).await;
    let rest = match outcome {
        Err(Failure::FilterResponse(answer)) if !reply.is_streaming() => {
            send_filter_response(route, cleared, &answer, reply)?;
            Continuation::Done
        }
        outcome => {
            if outcome.is_err() && reply.is_forwarded() && !reply.is_streaming() {
                reset_reply(route, cleared, reply);
            }
            super::finish_response(worker, route, outcome, req, reply)?
        }
    };
    if let (Continuation::Done, Some(chain), false) = (&rest, place, reply.is_streaming()) {
        chain.filter_local(worker, route, cleared, req, reply).await?;
    }
    Ok(rest)
}

/// Creates the error of a filter that responds after a response has started.
#[cold]
pub(super) fn late_response_error() -> Error {
    Error::internal("a filter responded after the response had started")
}

/// Passes a request through the filters of its rule, and runs the rule's action.
async fn run_action(
    worker: &Rc<Worker>,
    request: RoutedRequest<'_, '_>,
    cleared: &mut Cleared,
    uses: &[Use],
    place: &mut Option<Box<FilterChain>>,
    reply: &mut Reply<'_>,
) -> Result<Continuation, Failure> {
    let RoutedRequest { route, req, .. } = request;
    let chain: &FilterChain = place.insert(Box::new(FilterChain::start(worker, route, cleared, uses, req)?));
    chain.filter_request(route, cleared, req).await?;
    let rest = super::run_action(worker, request, cleared, None, Some(chain), reply).await?;
    match rest {
        // Here, where the rule handles faults: no byte of the response is sent before it is complete.
        Continuation::Body(download) if chain.response_state.buffered.borrow().is_some() => {
            download.relay_rest(worker, req, reply, Some(chain)).await?;
            Ok(Continuation::Done)
        }
        rest => Ok(rest),
    }
}

/// Sends a filter's response in place of any other.
pub(super) fn send_filter_response(
    route: &RequestRoute<'_>,
    cleared: &Cleared,
    answer: &FilterResponse,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    reset_reply(route, cleared, reply);
    reply.status(answer.status);
    reply.add_headers(&answer.fields);
    if allows_content(answer.status) {
        reply.body().extend_from_slice(&answer.body);
    }
    match route.matched.plan() {
        Ok(plan) => local_response::edit_headers(reply, &plan.response),
        Err(_) => Ok(()),
    }
}

/// Resets the reply to its state before any response.
fn reset_reply(route: &RequestRoute<'_>, cleared: &Cleared, reply: &mut Reply<'_>) {
    reply.discard();
    if let Some(cors) = &route.cors {
        reply.add_headers(&cors.fields);
    }
    cleared.add_to_response(reply);
}

impl FilterChain {
    fn start(
        worker: &Rc<Worker>,
        route: &RequestRoute<'_>,
        cleared: &Cleared,
        uses: &[Use],
        req: &Request<'_>,
    ) -> Result<FilterChain, Failure> {
        let context = RequestContext {
            route: route.matched.route().route().name.clone(),
            client: client::address(&route.listener.client_address, req),
            identity: cleared.identity().cloned(),
            path: route.decoded_path.clone(),
        };
        let info = RequestInfo { req, whose: &context };
        let at = PolicyInput { worker, route, req };
        let begin = |filter: &Use| {
            let opened = match &filter.kind {
                UseKind::Processor(processor) => Some(processor.begin(&at, cleared.query())),
                UseKind::Custom { id, factory } => {
                    let instance = worker.filters.get_or_create(*id, &**factory, &worker.cx);
                    // The process' panic hook reports a panic.
                    instance
                        .and_then(|instance| catch_unwind(AssertUnwindSafe(|| instance.begin(&info))).ok())
                }
            };
            let Some(running) = opened else {
                log::error!(
                    "{req:?}: the filter `{}` panicked when it was created",
                    filter.name
                );
                return Err(Fault::FilterFailed);
            };
            Ok(ChainEntry {
                name: filter.name.clone(),
                slot: FilterSlot::new(running),
                request_body: BodyHold::default(),
                response_body: BodyHold::default(),
            })
        };
        let all = uses.iter().map(begin).collect::<Result<_, Fault>>()?;
        let body_limit = match &route.matched.rule().action {
            Action::Forward(forward) => forward.body.request,
            _ => None,
        };
        Ok(FilterChain {
            cx: worker.cx.clone(),
            started: worker.cx.now(),
            request_facts: context,
            entries: all,
            reached: Cell::new(0),
            request_state: RequestState {
                limit: body_limit,
                ..RequestState::default()
            },
            response_state: ResponseState::default(),
            outcome: Cell::new(None),
        })
    }

    fn request_info<'h>(&'h self, req: &'h Request<'h>) -> RequestInfo<'h> {
        RequestInfo {
            req,
            whose: &self.request_facts,
        }
    }

    /// Records the outcome of the exchange. Filters are notified when this is dropped, also without an outcome.
    pub(super) fn record_outcome(&self, outcome: &Result<(), Error>, reply: &Reply<'_>) {
        let (status, is_whole) = match outcome {
            Err(error) if error.is_disconnected() => return,
            Err(error) if !reply.is_streaming() => (error.status(), true),
            outcome => (reply.current_status(), outcome.is_ok()),
        };
        self.outcome.set(Some(ExchangeEnd {
            status: Some(status),
            is_whole,
            took: self.cx.now().since(self.started),
        }));
    }
}

impl Drop for FilterChain {
    fn drop(&mut self) {
        let end = self.outcome.take().unwrap_or_else(|| ExchangeEnd {
            status: None,
            is_whole: false,
            took: self.cx.now().since(self.started),
        });
        for entry in &self.entries {
            entry.slot.finish(&end);
        }
    }
}

impl ChainEntry {
    /// Returns the bytes that a filter must process after more of a body has arrived; `None`: none yet.
    fn gather_bytes(
        &self,
        side: &BodyHold,
        bytes: Vec<u8>,
        is_end: bool,
        full: Fault,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let held = &mut *side.held.borrow_mut();
        let buffers = side.want.get() == BodyAccess::Buffer && !is_end;
        if held.is_empty() && !buffers {
            return Ok((is_end || !bytes.is_empty()).then_some(bytes));
        }
        if held.len() + bytes.len() > limits::FILTER_HELD_BYTES {
            return Err(full);
        }
        if held.is_empty() {
            *held = bytes;
        } else {
            held.extend_from_slice(&bytes);
        }
        Ok((!buffers).then(|| std::mem::take(held)))
    }

    /// Holds bytes that are passed again with the next piece.
    fn hold_bytes(&self, side: &BodyHold, bytes: Vec<u8>, full: Fault) -> Result<(), Fault> {
        if side.want.get() != BodyAccess::Modify {
            log::error!("the filter `{}` holds a body that it does not change", self.name);
            return Err(Fault::FilterFailed);
        }
        if bytes.len() > limits::FILTER_HELD_BYTES {
            return Err(full);
        }
        *side.held.borrow_mut() = bytes;
        Ok(())
    }

    /// Checks that a filter has not extended bytes beyond the limit.
    fn check_growth(&self, before: usize, after: usize) -> Result<(), Fault> {
        if after > before + limits::FILTER_GROWTH_BYTES {
            log::error!("the filter `{}` extended {before} bytes to {after}", self.name);
            return Err(Fault::FilterFailed);
        }
        Ok(())
    }
}
