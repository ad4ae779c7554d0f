//! Custom filters: Rust code of a program that processes requests and responses where a configuration names it.
//!
//! ```text
//!            request ─▶ policies ─▶ first ─▶ second ─▶ upstream, or a response of the rule itself
//! client                              │        │
//!           response ◀────────────── first ◀─ second ◀──────┘
//! ```
//!
//! Four objects with different lifetimes:
//!
//! | object | created by | lifetime |
//! |---|---|---|
//! | the closure passed to [`Filters::add`] | the program | the process |
//! | its result for some [`Options`] | each use in a configuration | until that use changes |
//! | the [`Filter`] | each worker, at the first request of a use | until a change of configuration and the end of its last request |
//! | [`Filter::Exchange`] | each request | until the response is complete |
//!
//! A filter is called by one thread, never concurrently and never recursively: `Cell` and `RefCell` suffice. A hook must not block, since
//! it runs on a worker. To wait it returns a future ([`Flow::wait`]).
//!
//! Owns the interface of filters. Knows nothing of forwarding, which belongs to `proxy`.

pub(crate) mod body;
mod head;
mod options;
mod registry;
mod response;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use self::body::{RequestBody, ResponseBody};
pub(crate) use self::head::{FilterEdits, RequestContext};
pub use self::head::{RequestHead, RequestInfo, ResponseHead};
pub use self::registry::Filters;
pub(crate) use self::registry::{Factory, Hook, Instance, RunningFilter, Use, UseKind, create_instance};
pub use self::response::FilterResponse;
use crate::fault::Fault;
pub use crate::model::{FilterUse, Options};
pub use ringmain_engine::Cx;

/// The error of a hook: any error type, or a text. The request is answered 500 (`filter_failed`), or its response aborted if it has
/// started, and the text is logged.
pub type FilterError = Box<dyn std::error::Error>;

/// A fault of a filter of the gateway's own, in place of [`FilterFailed`](Fault::FilterFailed).
#[derive(Debug)]
pub(crate) struct FilterFault(pub(crate) Fault);

impl std::fmt::Display for FilterFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for FilterFault {}

/// The result of a hook.
pub type Outcome<'a> = Result<Flow<'a>, FilterError>;

/// A custom filter of requests and responses. The default implementation of each hook does nothing.
///
/// Hooks of one request are called in this order: [`begin`](Self::begin), [`request_head`](Self::request_head), then
/// [`request_body`](Self::request_body) for each piece, and concurrently with these [`response_head`](Self::response_head) and
/// [`response_body`](Self::response_body), and finally [`over`](Self::over). A request that an earlier filter answers, or a policy refuses,
/// does not reach the filter. While a hook waits, others of the same request and filter wait for it.
///
/// Each of several filters receives the request as the one before has changed it; responses pass them in reverse order.
///
/// A hook that panics, fails, or waits for longer than [`FILTER_WAIT`](crate::limits::FILTER_WAIT) fails its request; other requests
/// continue with the same filter. After a panic [`over`](Self::over) is not called.
pub trait Filter: 'static {
    /// The state of the filter for one request.
    type Exchange: 'static;

    /// Creates the state for a new request.
    fn begin(&self, about: &RequestInfo<'_>) -> Self::Exchange;

    /// Processes the request head before anything is forwarded: the filter may change it, or respond. The body is not read while this
    /// waits, unless an earlier filter requested that. Changes of filters apply after those of the configuration.
    ///
    /// # Errors
    /// The request is answered 500.
    fn request_head<'a>(
        &'a self,
        exchange: &'a mut Self::Exchange,
        head: &'a mut RequestHead<'_>,
    ) -> Outcome<'a> {
        let _ = (exchange, head);
        Ok(Flow::Continue)
    }

    /// Processes a piece of the request body, if [`RequestHead::want_body`] was called. The client is subject to back-pressure while this
    /// waits.
    ///
    /// # Errors
    /// The request is answered 500.
    fn request_body<'a>(
        &'a self,
        exchange: &'a mut Self::Exchange,
        body: &'a mut RequestBody<'_>,
    ) -> Outcome<'a> {
        let _ = (exchange, body);
        Ok(Flow::Continue)
    }

    /// Processes the response head before a part is sent: the upstream's, as the configuration has changed it, or one of the gateway. Not
    /// called for 1xx responses, including the 101 of a protocol switch. Called once more if a fault, or a filter, replaces a response
    /// whose head was processed and not sent.
    ///
    /// # Errors
    /// The request is answered 500.
    fn response_head<'a>(
        &'a self,
        exchange: &'a mut Self::Exchange,
        head: &'a mut ResponseHead<'_>,
    ) -> Outcome<'a> {
        let _ = (exchange, head);
        Ok(Flow::Continue)
    }

    /// Processes a piece of the response body, if [`ResponseHead::want_body`] was called. The upstream is subject to back-pressure while
    /// this waits.
    ///
    /// # Errors
    /// The response is aborted, or 500 if no part was sent.
    fn response_body<'a>(
        &'a self,
        exchange: &'a mut Self::Exchange,
        body: &'a mut ResponseBody<'_>,
    ) -> Outcome<'a> {
        let _ = (exchange, body);
        Ok(Flow::Continue)
    }

    /// Receives the outcome of an exchange, however it ended, including when the client disconnected.
    fn over(&self, exchange: Self::Exchange, end: &ExchangeEnd) {
        let _ = (exchange, end);
    }
}

/// The continuation of a request after a hook.
pub enum Flow<'a> {
    /// Continues with the next filter or step.
    Continue,
    /// Retains this piece of a body that is [modified](BodyAccess::Modify), and passes it again together with the next one. At the end of the body
    /// it is relayed. More than [`FILTER_HELD_BYTES`](crate::limits::FILTER_HELD_BYTES) retained: 413, or 502 for a response.
    Hold,
    /// Sends this response in place of any other. Earlier filters process it like every response; a started response of an upstream is
    /// abandoned. If a part of the response was already sent to the client, it is aborted instead.
    Respond(FilterResponse),
    /// Continues when this future, made by [`Flow::wait`], completes.
    Wait(FilterFuture<'a>),
}

/// A future that a request waits for.
pub type FilterFuture<'a> = Pin<Box<dyn Future<Output = Outcome<'static>> + 'a>>;

impl<'a> Flow<'a> {
    /// Makes the request wait for a future, which may use the arguments of the hook. Nothing else on the worker waits. The future is
    /// dropped when the client disconnects.
    ///
    /// # Errors
    /// None; the return type is that of a hook.
    pub fn wait(future: impl Future<Output = Outcome<'static>> + 'a) -> Outcome<'a> {
        Ok(Flow::Wait(Box::pin(future)))
    }
}

impl std::fmt::Debug for Flow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Flow::Continue => "Continue",
            Flow::Hold => "Hold",
            Flow::Respond(_) => "Respond",
            Flow::Wait(_) => "Wait",
        })
    }
}

/// The access of a filter to a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyAccess {
    /// None: the body bypasses the filter.
    #[default]
    Nothing,
    /// Receives the pieces as they pass, unchanged; the declared length stays valid.
    Read,
    /// Receives the pieces, and may change, retain or drop them. The body is sent chunked, since its length is unknown.
    Modify,
    /// Receives the whole body at once, before the head is forwarded, which may be changed together with it. A body longer than
    /// [`FILTER_HELD_BYTES`](crate::limits::FILTER_HELD_BYTES) is answered 413; for a response 502.
    Buffer,
}

/// The outcome of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeEnd {
    /// The status of the response. `None`: the client disconnected before.
    pub status: Option<u16>,
    /// Set if the whole response was handed over. `false`: it was aborted, or the client disconnected.
    pub is_whole: bool,
    /// Time since the first call of the filter for this exchange.
    pub took: Duration,
}
