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

use self::call::Seat;
use super::{Failure, Found, Rest, client, local_response};
use crate::fault::Fault;
use crate::filter::{About, Answer, End, Use, Want, Whose};
use crate::gateway::{View, Worker};
use crate::limits;
use crate::model::{Action, Name};
use crate::policy::Cleared;

/// The filters of one request.
pub(super) struct Chain {
    cx: Cx,
    began: Time,
    whose: Whose,
    all: Box<[Entry]>,
    /// Number of filters, from the first, that process the response.
    reached: Cell<usize>,
    up: Upward,
    down: Downward,
    end: Cell<Option<End>>,
}

/// One filter of the chain.
struct Entry {
    name: Name,
    seat: Seat,
    up: Side,
    down: Side,
}

/// A filter's access to a body, and the bytes held for it.
#[derive(Default)]
struct Side {
    want: Cell<Want>,
    held: RefCell<Vec<u8>>,
}

/// The state of the request body.
#[derive(Default)]
struct Upward {
    /// Set if filters process it.
    seen: Cell<bool>,
    /// Set once all of the body was taken from the client.
    over: Cell<bool>,
    /// Set while filters process a piece that was taken from the client: a caller that is dropped meanwhile loses it.
    midway: Cell<bool>,
    /// The bytes to send next.
    ready: RefCell<Bytes>,
    /// Bytes that the client has sent, and the limit.
    came: Cell<u64>,
    most: Option<u64>,
}

/// The state of the response body.
#[derive(Default)]
struct Downward {
    /// Set if filters process it.
    seen: Cell<bool>,
    /// Names that filters have set or removed in the head.
    dropped: RefCell<Vec<Box<str>>>,
    over: Cell<bool>,
    /// The buffer of the body while the head waits for its end.
    whole: RefCell<Option<Vec<u8>>>,
}

/// Passes a request and its response through the filters of its rule. `place` has the filters afterwards, for the rest of the response.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    view: &View,
    found: &Found<'_>,
    (cleared, uses, place): (&mut Cleared, &[Use], &mut Option<Box<Chain>>),
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Rest, Error> {
    let outcome = act(worker, view, found, (cleared, uses, place), req, reply).await;
    let rest = match outcome {
        Err(Failure::Instead(answer)) if !reply.is_streaming() => {
            instead(found, cleared, &answer, reply)?;
            Rest::Nothing
        }
        outcome => {
            if outcome.is_err() && reply.is_forwarded() && !reply.is_streaming() {
                afresh(found, cleared, reply);
            }
            super::answered(worker, found, outcome, req, reply)?
        }
    };
    if let (Rest::Nothing, Some(chain), false) = (&rest, place, reply.is_streaming()) {
        chain.own(worker, found, cleared, req, reply).await?;
    }
    Ok(rest)
}

/// Creates the error of a filter that responds after a response has started.
#[cold]
pub(super) fn too_late() -> Error {
    Error::internal("a filter answers when an answer has begun")
}

/// Passes a request through the filters of its rule, and runs the rule's action.
async fn act(
    worker: &Rc<Worker>,
    view: &View,
    found: &Found<'_>,
    (cleared, uses, place): (&mut Cleared, &[Use], &mut Option<Box<Chain>>),
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Rest, Failure> {
    let chain: &Chain = place.insert(Box::new(Chain::begin(worker, found, cleared, uses, req)?));
    chain.request(found, cleared, req).await?;
    let rest = super::act(worker, view, found, (cleared, None, Some(chain)), req, reply).await?;
    match rest {
        // Here, where the rule handles faults: no byte of the response is sent before it is complete.
        Rest::Body(download) if chain.down.whole.borrow().is_some() => {
            download.drive(worker, req, reply, Some(chain)).await?;
            Ok(Rest::Nothing)
        }
        rest => Ok(rest),
    }
}

/// Sends a filter's response in place of any other.
pub(super) fn instead(
    found: &Found<'_>,
    cleared: &Cleared,
    answer: &Answer,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    afresh(found, cleared, reply);
    reply.status(answer.status);
    reply.add_headers(&answer.fields);
    if allows_content(answer.status) {
        reply.body().extend_from_slice(&answer.body);
    }
    match found.matched.plan() {
        Ok(plan) => local_response::changes(reply, &plan.response),
        Err(_) => Ok(()),
    }
}

/// Resets the reply to its state before any response.
fn afresh(found: &Found<'_>, cleared: &Cleared, reply: &mut Reply<'_>) {
    reply.forget();
    if let Some(cross) = &found.cross {
        reply.add_headers(&cross.fields);
    }
    reply.add_headers(cleared.answer());
}

impl Chain {
    fn begin(
        worker: &Rc<Worker>,
        found: &Found<'_>,
        cleared: &Cleared,
        uses: &[Use],
        req: &Request<'_>,
    ) -> Result<Chain, Failure> {
        let whose = Whose {
            route: found.matched.route().route().name.clone(),
            client: client::address(&found.listener.client_address, req),
            identity: cleared.identity().cloned(),
            path: found.decoded.clone(),
        };
        let about = About { req, whose: &whose };
        let begin = |wanted: &Use| {
            let begun = worker.filters.get(wanted, &worker.cx).and_then(|instance| {
                // The process' panic hook reports a panic.
                catch_unwind(AssertUnwindSafe(|| instance.begin(&about))).ok()
            });
            let Some(running) = begun else {
                log::error!(
                    "{req:?}: the filter `{}` panicked when it was created",
                    wanted.name
                );
                return Err(Fault::FilterFailed);
            };
            Ok(Entry {
                name: wanted.name.clone(),
                seat: Seat::new(running),
                up: Side::default(),
                down: Side::default(),
            })
        };
        let all = uses.iter().map(begin).collect::<Result<_, Fault>>()?;
        let most = match &found.matched.rule().action {
            Action::Forward(forward) => forward.body.request,
            _ => None,
        };
        Ok(Chain {
            cx: worker.cx.clone(),
            began: worker.cx.now(),
            whose,
            all,
            reached: Cell::new(0),
            up: Upward {
                most,
                ..Upward::default()
            },
            down: Downward::default(),
            end: Cell::new(None),
        })
    }

    fn about<'h>(&'h self, req: &'h Request<'h>) -> About<'h> {
        About {
            req,
            whose: &self.whose,
        }
    }

    /// Records the outcome of the exchange. Filters are notified when this is dropped, also without an outcome.
    pub(super) fn ended(&self, outcome: &Result<(), Error>, reply: &Reply<'_>) {
        let (status, is_whole) = match outcome {
            Err(error) if error.is_disconnected() => return,
            Err(error) if !reply.is_streaming() => (error.status(), true),
            outcome => (reply.status_now(), outcome.is_ok()),
        };
        self.end.set(Some(End {
            status: Some(status),
            is_whole,
            took: self.cx.now().since(self.began),
        }));
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| End {
            status: None,
            is_whole: false,
            took: self.cx.now().since(self.began),
        });
        for entry in &self.all {
            entry.seat.over(&end);
        }
    }
}

impl Entry {
    /// Returns the bytes that a filter must process after more of a body has arrived; `None`: none yet.
    fn gather(
        &self,
        side: &Side,
        bytes: Vec<u8>,
        is_end: bool,
        full: Fault,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let held = &mut *side.held.borrow_mut();
        let waits = side.want.get() == Want::Whole && !is_end;
        if held.is_empty() && !waits {
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
        Ok((!waits).then(|| std::mem::take(held)))
    }

    /// Holds bytes that are passed again with the next piece.
    fn hold(&self, side: &Side, bytes: Vec<u8>, full: Fault) -> Result<(), Fault> {
        if side.want.get() != Want::Change {
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
    fn check(&self, before: usize, after: usize) -> Result<(), Fault> {
        if after > before + limits::FILTER_GROWTH_BYTES {
            log::error!("the filter `{}` extended {before} bytes to {after}", self.name);
            return Err(Fault::FilterFailed);
        }
        Ok(())
    }
}
