//! Lists of the channels across all workers: each worker visits the channels of its shard, a limited number a turn.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringmain_hub::protocol::Fault;

use super::PushWorker;
use super::pending_replies::{QueryError, ReplyGroup};
use crate::api::ChannelPattern;
use crate::limits;

/// Channels and their numbers of subscribers.
type SurveyResult = Result<Vec<(Arc<str>, u32)>, QueryError>;

/// A message between two workers. A response has the number of its request.
pub(super) enum SurveyMessage {
    Request {
        number: usize,
        pattern: Option<Arc<ChannelPattern>>,
    },
    Response {
        number: usize,
        result: SurveyResult,
    },
}

/// The surveys in flight, by number, each with the number of workers that have not responded.
#[derive(Default)]
pub(super) struct PendingSurveys([Option<(Rc<ReplyGroup<SurveyResult>>, usize)>; limits::SURVEYS]);

impl PendingSurveys {
    /// Adds a survey, and returns its number. `None`: [`limits::SURVEYS`] are in flight.
    fn add(&mut self, group: &Rc<ReplyGroup<SurveyResult>>, workers: usize) -> Option<usize> {
        let number = self.0.iter().position(Option::is_none)?;
        self.0[number] = Some((Rc::clone(group), workers));
        Some(number)
    }

    fn add_response(&mut self, number: usize, worker: usize, result: SurveyResult) {
        if let Some((group, left)) = &mut self.0[number] {
            group.set_reply(worker, result);
            *left -= 1;
            if *left == 0 {
                self.0[number] = None;
            }
        }
    }
}

impl PushWorker {
    /// Returns the channels across all workers that have subscribers and match the pattern, each with the number of subscribers.
    ///
    /// # Errors
    /// [`QueryError`]; [`Fault::LIMIT_EXCEEDED`] for more than [`limits::LISTED_CHANNELS`].
    pub(crate) async fn list_channels(
        &self,
        pattern: Option<ChannelPattern>,
        deadline: Duration,
    ) -> Result<BTreeMap<String, u32>, QueryError> {
        let group = self.start_survey(pattern.map(Arc::new))?;
        let results = group.all(&self.0.cx, deadline).await.ok_or(QueryError::Late)?;
        let mut channels = BTreeMap::new();
        for result in results {
            channels.extend(result?.into_iter().map(|(name, count)| (name.to_string(), count)));
        }
        if channels.len() > limits::LISTED_CHANNELS {
            return Err(Fault::LIMIT_EXCEEDED.into());
        }
        Ok(channels)
    }

    fn start_survey(
        &self,
        pattern: Option<Arc<ChannelPattern>>,
    ) -> Result<Rc<ReplyGroup<SurveyResult>>, QueryError> {
        let workers = self.0.cx.workers();
        let group = ReplyGroup::new(workers);
        let number = self.0.surveys.borrow_mut().add(&group, workers);
        let number = number.ok_or(QueryError::Busy)?;
        for worker in 0..workers {
            let pattern = pattern.clone();
            if worker == self.0.cx.worker() {
                self.survey_shard(worker, number, pattern);
            } else {
                let request = SurveyMessage::Request { number, pattern };
                self.0.mesh.borrow_mut().send_survey(worker, request);
            }
        }
        Ok(group)
    }

    /// Handles the requests and responses of other workers.
    pub(super) fn receive_surveys(&self) {
        loop {
            let next = self.0.mesh.borrow_mut().pop_survey();
            match next {
                None => break,
                Some((from, SurveyMessage::Request { number, pattern })) => {
                    self.survey_shard(from, number, pattern);
                }
                Some((from, SurveyMessage::Response { number, result })) => {
                    self.0.surveys.borrow_mut().add_response(number, from, result);
                }
            }
        }
    }

    /// Lists the channels here in a task of its own, and sends them to the worker that has requested them.
    fn survey_shard(&self, requester: usize, number: usize, pattern: Option<Arc<ChannelPattern>>) {
        let worker = self.clone();
        let spawned = self.0.cx.spawn(async move {
            let result = worker.list_shard(pattern.as_deref()).await;
            worker.send_response(requester, number, result);
        });
        if spawned.is_err() {
            self.send_response(requester, number, Err(QueryError::Busy));
        }
    }

    fn send_response(&self, requester: usize, number: usize, result: SurveyResult) {
        if requester == self.0.cx.worker() {
            let mut surveys = self.0.surveys.borrow_mut();
            surveys.add_response(number, requester, result);
        } else {
            let response = SurveyMessage::Response { number, result };
            self.0.mesh.borrow_mut().send_survey(requester, response);
        }
    }

    async fn list_shard(&self, pattern: Option<&ChannelPattern>) -> SurveyResult {
        let mut channels = Vec::new();
        let mut after: Option<Arc<str>> = None;
        loop {
            let from = after.take();
            after = self.0.shard.borrow().visit_subscribed(
                from.as_deref(),
                limits::SURVEYED_PER_TURN,
                |name, count| {
                    if pattern.is_none_or(|pattern| pattern.matches(name)) {
                        channels.push((Arc::clone(name), count));
                    }
                },
            );
            if channels.len() > limits::LISTED_CHANNELS {
                return Err(Fault::LIMIT_EXCEEDED.into());
            }
            if after.is_none() {
                return Ok(channels);
            }
            yield_turn().await;
        }
    }
}

/// Continues in the worker's next turn.
async fn yield_turn() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
