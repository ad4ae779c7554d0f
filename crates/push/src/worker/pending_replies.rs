//! Queries of programs about channels of any worker, and the replies that a request waits for.
//!
//! ```text
//! request ─▶ a number for each query ─▶ subscribers ─ queues ─▶ shard ─ queues ─▶ subscribers ─▶ by its number ─▶ the request's group
//! ```
//!
//! A number is in use until its reply has arrived, even if the request has timed out, so the limit of queries in flight holds.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_hub::mail::{ChannelQuery, QueryResult};
use ringmain_hub::protocol::Fault;
use ringmain_hub::subscribers::ProgramReply;

use super::PushWorker;
use crate::limits;

/// The reason why a program's request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryError {
    Fault(Fault),
    /// The limit of requests in flight is reached: nothing was done.
    Busy,
    /// The reply did not arrive in time: the command may have been executed or not.
    Late,
}

impl From<Fault> for QueryError {
    fn from(fault: Fault) -> QueryError {
        QueryError::Fault(fault)
    }
}

/// Queries in flight, by number.
#[derive(Default)]
pub(super) struct PendingReplies {
    waiting: Vec<Option<(Rc<ReplyGroup<ProgramReply>>, usize)>>,
    free: Vec<usize>,
}

impl PendingReplies {
    /// Returns how many more queries may be sent.
    pub(super) fn capacity_left(&self) -> usize {
        limits::QUERIES.saturating_sub(self.waiting.len() - self.free.len())
    }

    /// Adds a query whose reply is the one at `index` of a group. Returns its number.
    pub(super) fn add_query(&mut self, group: &Rc<ReplyGroup<ProgramReply>>, index: usize) -> u64 {
        let entry = Some((Rc::clone(group), index));
        let number = match self.free.pop() {
            Some(number) => {
                self.waiting[number] = entry;
                number
            }
            None => {
                self.waiting.push(entry);
                self.waiting.len() - 1
            }
        };
        number as u64
    }

    fn complete(&mut self, number: u64, reply: ProgramReply) {
        let number = number as usize;
        if let Some((group, index)) = self.waiting.get_mut(number).and_then(Option::take) {
            self.free.push(number);
            group.set_reply(index, reply);
        }
    }
}

/// The replies that a request waits for.
pub(super) struct ReplyGroup<T> {
    replies: RefCell<Vec<Option<T>>>,
    missing: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl<T> ReplyGroup<T> {
    pub(super) fn new(count: usize) -> Rc<ReplyGroup<T>> {
        Rc::new(ReplyGroup {
            replies: RefCell::new((0..count).map(|_| None).collect()),
            missing: Cell::new(count),
            waker: RefCell::default(),
        })
    }

    /// Stores a reply; each is stored once.
    pub(super) fn set_reply(&self, index: usize, reply: T) {
        self.replies.borrow_mut()[index] = Some(reply);
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// Returns all replies, in order. `None`: they did not arrive in time.
    pub(super) async fn all(&self, cx: &Cx, deadline: Duration) -> Option<Vec<T>> {
        let now = cx.now().since(Time(0));
        let mut sleep = pin!(cx.sleep(deadline.saturating_sub(now)));
        poll_fn(|context| {
            if self.missing.get() == 0 {
                return Poll::Ready(self.replies.take().into_iter().collect());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            sleep.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

impl PushWorker {
    /// Returns the time at which a request that starts now times out.
    pub(crate) fn reply_deadline(&self) -> Duration {
        self.0.cx.now().since(Time(0)) + limits::REPLY_TIMEOUT
    }

    /// Queries a channel.
    ///
    /// # Errors
    /// [`QueryError`]; [`Fault::NOT_AVAILABLE`] if the channel's namespace does not have it.
    pub(crate) async fn query_channel(
        &self,
        channel: String,
        query: ChannelQuery,
        deadline: Duration,
    ) -> Result<QueryResult, QueryError> {
        let group = ReplyGroup::new(1);
        {
            let options = self.options();
            let channel_options = options.namespace(&channel)?.channel_options;
            let is_available = match query {
                ChannelQuery::History { .. } | ChannelQuery::ClearHistory => {
                    channel_options.history.is_some()
                }
                ChannelQuery::Presence | ChannelQuery::PresenceStats => channel_options.presence,
            };
            if !is_available {
                return Err(Fault::NOT_AVAILABLE.into());
            }
            let mut pending = self.0.pending_replies.borrow_mut();
            let mut subscribers = self.0.subscribers.borrow_mut();
            if pending.capacity_left() == 0 || subscribers.backlog() > limits::BACKLOG {
                return Err(QueryError::Busy);
            }
            let number = pending.add_query(&group, 0);
            subscribers.query_for(&Arc::from(channel), channel_options, query, number);
        }
        self.wake();
        let replies = group.all(&self.0.cx, deadline).await;
        match replies.ok_or(QueryError::Late)?.pop() {
            Some(ProgramReply::QueryResult(result)) => Ok(*result),
            _ => Err(Fault::INTERNAL.into()),
        }
    }

    /// Delivers replies to the requests that wait for them.
    pub(super) fn deliver_replies(&self) {
        loop {
            let reply = self.0.subscribers.borrow_mut().poll_reply();
            let Some((number, reply)) = reply else { break };
            self.0.pending_replies.borrow_mut().complete(number, reply);
        }
    }
}
