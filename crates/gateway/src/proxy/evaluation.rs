//! The first steps of every request, none of which waits: its rule, the checks before policies, and the policies that need not wait.
//!
//! ```text
//! find ─▶ can it be forwarded? ─▶ policies ─┬─ cleared or refused
//!                                           └─ one has to wait: nothing was counted, a task evaluates all
//! ```
//!
//! Both the fast path and tasks start here. Must not know replies: an outcome that is a response is written by a task.

use std::rc::Rc;

use ringmain_web::Request;

use super::{Failure, RequestRoute, Routed, find_route, log_fields, reject_unforwardable};
use crate::fault::Fault;
use crate::gateway::{View, Worker};
use crate::model::{HttpsRedirect, Listener};
use crate::policy::{self, Cleared, PolicyOutcome, Refusal};

/// The result of a request's policies.
pub(super) type PolicyResult = Result<Cleared, Box<Refusal>>;

/// The state of a request after the steps that do not wait.
pub(super) enum Evaluation<'v> {
    /// The request has a rule. `None`: a policy has to wait, and none was evaluated.
    Matched(RequestRoute<'v>, Option<PolicyResult>),
    /// The rule cannot forward the request.
    Unforwardable(RequestRoute<'v>, Fault),
    /// The listener redirects every request to the same URL under `https`.
    ToHttps(&'v Listener, HttpsRedirect),
    /// The request has no rule.
    Unmatched(Failure),
}

/// Finds the rule of a request, and evaluates its policies unless `known` has their result. `on_match` is called as soon as the rule is
/// known; returns `false` to stop before the policies.
pub(super) fn evaluate<'v>(
    worker: &Rc<Worker>,
    view: &'v View,
    req: &Request<'_>,
    known: Option<PolicyResult>,
    on_match: impl FnOnce(&mut RequestRoute<'v>) -> bool,
) -> Evaluation<'v> {
    let mut route = match find_route(worker, view, req) {
        Ok(Routed::Rule(route)) => route,
        Ok(Routed::ToHttps(listener, redirect)) => return Evaluation::ToHttps(listener, redirect),
        Err(failure) => return Evaluation::Unmatched(failure),
    };
    let continues = on_match(&mut route);
    if let Err(fault) = reject_unforwardable(&route, req) {
        return Evaluation::Unforwardable(route, fault);
    }
    if !continues {
        return Evaluation::Matched(route, None);
    }
    let result = known.or_else(|| match policy::evaluate_sync(worker, &route, req) {
        PolicyOutcome::Cleared(cleared) => Some(Ok(cleared)),
        PolicyOutcome::Refused(refusal) => Some(Err(refusal)),
        PolicyOutcome::Pending => None,
    });
    if let Some(result) = &result {
        log_fields::log_policies(result, req);
    }
    Evaluation::Matched(route, result)
}
