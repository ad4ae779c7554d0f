//! Filters: what a program adds to what a gateway does with requests and answers, in Rust, where configurations name it.
//!
//! ```text
//!            request ─▶ policies ─▶ first ─▶ second ─▶ upstream, or an answer of the rule's own
//! client                              │        │
//!            answer  ◀────────────── first ◀─ second ◀──────┘
//! ```
//!
//! Four things that live for different times:
//!
//! | | made by | lives |
//! |---|---|---|
//! | what [`Filters::add`] is given | the program | as long as the process |
//! | what that makes of [`Options`] | each place of a configuration | as long as that place is as it is |
//! | the [`Filter`] | each worker, at a place's first request there | until a change of configuration and the end of its last request |
//! | [`Filter::Exchange`] | each request | until its answer is over |
//!
//! A filter is called by one thread, never by two at once and never again before it has returned: `Cell` and `RefCell` are all it
//! needs. What must not happen in a hook is what must not happen on a worker: blocking. What has to be waited for is a future
//! ([`Flow::wait`]).
//!
//! Owns what a program writes and what it is called with. Knows nothing of how requests are sent on: that is the exchange's.

mod answer;
pub(crate) mod body;
mod head;
mod options;
mod registry;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use self::answer::Answer;
pub use self::body::{RequestBody, ResponseBody};
pub use self::head::{About, RequestHead, ResponseHead};
pub(crate) use self::head::{Edits, Whose};
pub use self::registry::Filters;
pub(crate) use self::registry::{Hook, Instance, Running, Use};
pub use crate::model::{FilterUse, Options};
pub use ringmain_engine::Cx;

/// Why a filter cannot go on: anything that is an error, or a text. The request is answered 500 (`filter_failed`), or its answer
/// cut if that has begun, and the log has the text.
pub type Error = Box<dyn std::error::Error>;

/// What a hook has come to.
pub type Outcome<'a> = Result<Flow<'a>, Error>;

/// What a program does with requests and answers. Each hook does nothing unless it is written.
///
/// Hooks of one request are called in this order: [`begin`](Self::begin), [`request_head`](Self::request_head), then
/// [`request_body`](Self::request_body) for each piece, and beside these [`response_head`](Self::response_head) and
/// [`response_body`](Self::response_body), and at last [`over`](Self::over). A request that a filter in front answers, or a policy
/// refuses, never comes here. If a hook waits, others of the same request and filter wait for it.
///
/// Of several filters each sees what the one before has made of the request; answers pass them the other way round.
///
/// A hook that panics, fails, or waits for longer than [`FILTER_WAIT`](crate::limits::FILTER_WAIT) ends its request; other
/// requests go on, by the same filter. After a panic there is no [`over`](Self::over).
pub trait Filter: 'static {
    /// What the filter knows of one request.
    type Exchange: 'static;

    /// A request comes.
    fn begin(&self, about: &About<'_>) -> Self::Exchange;

    /// The request's head, before anything is sent on: it may be changed, or answered here. Its body is not read while this waits,
    /// unless the filter in front wants that. What a filter changes comes behind what the configuration changes.
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

    /// A piece of the request's body, if [`RequestHead::want_body`] was called. The client is held back while this waits.
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

    /// The answer's head, before the client sees any of it: the upstream's, as the configuration has changed it, or one of the
    /// gateway's own. Not for what is no final answer: 1xx, and the 101 of a switch of protocols. Once more if a fault, or a filter,
    /// answers in place of an answer whose head was seen and not sent.
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

    /// A piece of the answer's body, if [`ResponseHead::want_body`] was called. The upstream is held back while this waits.
    ///
    /// # Errors
    /// The answer is cut, or 500 if none of it was sent.
    fn response_body<'a>(
        &'a self,
        exchange: &'a mut Self::Exchange,
        body: &'a mut ResponseBody<'_>,
    ) -> Outcome<'a> {
        let _ = (exchange, body);
        Ok(Flow::Continue)
    }

    /// The exchange is over, however it ended: also when the client has left in the middle of it.
    fn over(&self, exchange: Self::Exchange, end: &End) {
        let _ = (exchange, end);
    }
}

/// How a request goes on behind a hook.
pub enum Flow<'a> {
    /// To the next filter, or on.
    Continue,
    /// Of a body that is [changed](Want::Change): this piece does not go on yet, and comes again together with the next one. At the
    /// end of the body it goes on. More than [`FILTER_HELD_BYTES`](crate::limits::FILTER_HELD_BYTES) held so: 413, or 502 for an
    /// answer's.
    Hold,
    /// With this answer, in place of what else would have come. Filters in front see it as they see every answer; an upstream's
    /// answer that has begun is given up. Of an answer that the client has begun to get there is nothing left but to cut it.
    Answer(Answer),
    /// When this is there: made by [`Flow::wait`].
    Wait(Waiting<'a>),
}

/// What has to be waited for.
pub type Waiting<'a> = Pin<Box<dyn Future<Output = Outcome<'static>> + 'a>>;

impl<'a> Flow<'a> {
    /// Has the request wait for a future, which may use what the hook was called with. Nothing else of the worker waits. The
    /// future is dropped when the client leaves.
    ///
    /// # Errors
    /// None; the type lets it end a hook.
    pub fn wait(future: impl Future<Output = Outcome<'static>> + 'a) -> Outcome<'a> {
        Ok(Flow::Wait(Box::pin(future)))
    }
}

impl std::fmt::Debug for Flow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Flow::Continue => "Continue",
            Flow::Hold => "Hold",
            Flow::Answer(_) => "Answer",
            Flow::Wait(_) => "Wait",
        })
    }
}

/// What a filter wants of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// Nothing: it passes unseen.
    #[default]
    Nothing,
    /// Its pieces, as they pass; they stay as they are, and so does what is said of its length.
    Look,
    /// Its pieces, which may be changed, held back or left out. It goes on in chunks, since nobody knows its length.
    Change,
    /// All of it at once, before the head goes on, which may be changed with it. A longer one than
    /// [`FILTER_HELD_BYTES`](crate::limits::FILTER_HELD_BYTES) is answered 413, of an answer 502.
    Whole,
}

/// How an exchange has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// What the client was answered. `None`: it left before.
    pub status: Option<u16>,
    /// All of the answer was handed over. `false`: it was cut, or its client left.
    pub is_whole: bool,
    /// Since the filter was first called for it.
    pub took: Duration,
}
