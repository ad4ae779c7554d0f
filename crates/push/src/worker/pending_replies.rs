//! What programs want to know of channels, which are at home on any worker, and where the answers are waited for.
//!
//! ```text
//! request ─▶ a number for each question ─▶ local ─ queues ─▶ home ─ queues ─▶ local ─▶ by its number ─▶ the request's gathering
//! ```
//!
//! A number is taken until its answer is there, also when nobody waits for that any more: so there are never more on their way
//! than may be.

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

use crate::limits;
use crate::worker::Desk;

/// Why a program is not told what it wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    Fault(Fault),
    /// As much is on its way as may be: nothing was done.
    Busy,
    /// The answer did not come in time: what was to be done may be.
    Late,
}

impl From<Fault> for Unanswered {
    fn from(fault: Fault) -> Unanswered {
        Unanswered::Fault(fault)
    }
}

/// Questions that are on their way, by their numbers.
#[derive(Default)]
pub(crate) struct Asking {
    waiting: Vec<Option<(Rc<Gathering<ProgramReply>>, usize)>>,
    free: Vec<usize>,
}

impl Asking {
    /// How many more may be asked.
    pub(crate) fn room(&self) -> usize {
        limits::QUESTIONS.saturating_sub(self.waiting.len() - self.free.len())
    }

    /// The number of a question whose answer is one of a gathering's.
    pub(crate) fn ask(&mut self, gathering: &Rc<Gathering<ProgramReply>>, at: usize) -> u64 {
        let entry = Some((Rc::clone(gathering), at));
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

    fn answered(&mut self, number: u64, answer: ProgramReply) {
        let number = number as usize;
        if let Some((gathering, at)) = self.waiting.get_mut(number).and_then(Option::take) {
            self.free.push(number);
            gathering.put(at, answer);
        }
    }
}

/// Answers that a request waits for.
pub(crate) struct Gathering<T> {
    answers: RefCell<Vec<Option<T>>>,
    left: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Gathering<T> {
    /// Of so many.
    pub(crate) fn new(count: usize) -> Rc<Gathering<T>> {
        Rc::new(Gathering {
            answers: RefCell::new((0..count).map(|_| None).collect()),
            left: Cell::new(count),
            waker: RefCell::default(),
        })
    }

    /// Each is put once.
    pub(crate) fn put(&self, at: usize, answer: T) {
        self.answers.borrow_mut()[at] = Some(answer);
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// All of them, in order; `None`: they were not there in time.
    pub(crate) async fn all(&self, cx: &Cx, until: Duration) -> Option<Vec<T>> {
        let now = cx.now().since(Time(0));
        let mut sleep = pin!(cx.sleep(until.saturating_sub(now)));
        poll_fn(|context| {
            if self.left.get() == 0 {
                return Poll::Ready(self.answers.take().into_iter().collect());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            sleep.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

impl Desk {
    /// Until when what is asked now is waited for.
    pub(crate) fn patience(&self) -> Duration {
        self.cx.now().since(Time(0)) + limits::ANSWERED_WITHIN
    }

    /// Asks a channel.
    pub(crate) async fn ask(
        &self,
        channel: String,
        question: ChannelQuery,
        until: Duration,
    ) -> Result<QueryResult, Unanswered> {
        let gathering = Gathering::new(1);
        {
            let options = self.options();
            let rules = options.namespace(&channel)?.rules;
            let is_there = match question {
                ChannelQuery::History { .. } | ChannelQuery::ClearHistory => rules.history.is_some(),
                ChannelQuery::Presence | ChannelQuery::PresenceStats => rules.presence,
            };
            if !is_there {
                return Err(Fault::NOT_AVAILABLE.into());
            }
            let (mut asking, mut local) = (self.asking.borrow_mut(), self.local.borrow_mut());
            if asking.room() == 0 || local.backlog() > limits::BACKLOG {
                return Err(Unanswered::Busy);
            }
            let number = asking.ask(&gathering, 0);
            local.query_for(&Arc::from(channel), rules, question, number);
        }
        self.ring();
        let answers = gathering.all(&self.cx, until).await;
        match answers.ok_or(Unanswered::Late)?.pop() {
            Some(ProgramReply::QueryResult(told)) => Ok(*told),
            _ => Err(Fault::INTERNAL.into()),
        }
    }

    /// Hands answers to those who wait for them.
    pub(crate) fn tell_programs(&self) {
        loop {
            let answer = self.local.borrow_mut().poll_reply();
            let Some((number, answer)) = answer else { break };
            self.asking.borrow_mut().answered(number, answer);
        }
    }
}
