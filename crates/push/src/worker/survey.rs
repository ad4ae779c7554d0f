//! What a program wants to know of all channels: each worker looks at those that are at home there, a few at a time.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringmain_hub::protocol::Fault;

use crate::api::Pattern;
use crate::limits;
use crate::worker::Desk;
use crate::worker::pending_replies::{Gathering, Unanswered};

/// Channels with subscribers, each with how many.
type Found = Result<Vec<(Arc<str>, u32)>, Unanswered>;

/// Between two workers. What one asks another one answers by the same number.
pub(crate) enum Survey {
    Asks {
        number: usize,
        pattern: Option<Arc<Pattern>>,
    },
    Tells {
        number: usize,
        found: Found,
    },
}

/// Those that are under way, by their numbers, with how many workers have not answered yet.
#[derive(Default)]
pub(crate) struct Surveys([Option<(Rc<Gathering<Found>>, usize)>; limits::SURVEYS]);

impl Desk {
    /// Channels of all workers that somebody listens to, each with how many do; those of a pattern, or all.
    pub(crate) async fn channels(
        &self,
        pattern: Option<Pattern>,
        until: Duration,
    ) -> Result<BTreeMap<String, u32>, Unanswered> {
        let gathering = self.ask_all(pattern.map(Arc::new))?;
        let answers = gathering.all(&self.cx, until).await.ok_or(Unanswered::Late)?;
        let mut channels = BTreeMap::new();
        for found in answers {
            channels.extend(found?.into_iter().map(|(name, count)| (name.to_string(), count)));
        }
        match channels.len() <= limits::CHANNELS_TOLD {
            true => Ok(channels),
            false => Err(Fault::LIMIT_EXCEEDED.into()),
        }
    }

    fn ask_all(&self, pattern: Option<Arc<Pattern>>) -> Result<Rc<Gathering<Found>>, Unanswered> {
        let workers = self.cx.workers();
        let gathering = Gathering::new(workers);
        let number = {
            let surveys = &mut self.surveys.borrow_mut().0;
            let number = surveys.iter().position(Option::is_none);
            let number = number.ok_or(Unanswered::Busy)?;
            surveys[number] = Some((Rc::clone(&gathering), workers));
            number
        };
        for worker in 0..workers {
            let pattern = pattern.clone();
            match worker == self.cx.worker() {
                true => self.look(worker, number, pattern),
                false => self
                    .ends
                    .borrow_mut()
                    .survey(worker, Survey::Asks { number, pattern }),
            }
        }
        Ok(gathering)
    }

    /// Takes what other workers say.
    pub(crate) fn take_surveys(&self) {
        loop {
            let next = self.ends.borrow_mut().next_survey();
            match next {
                None => break,
                Some((from, Survey::Asks { number, pattern })) => self.look(from, number, pattern),
                Some((from, Survey::Tells { number, found })) => self.found(from, number, found),
            }
        }
    }

    /// Looks at the channels here, and tells who asked.
    fn look(&self, asker: usize, number: usize, pattern: Option<Arc<Pattern>>) {
        let desk = self.clone();
        let spawned = self.cx.spawn(async move {
            let found = desk.heard(pattern.as_deref()).await;
            desk.tell_asker(asker, number, found);
        });
        if spawned.is_err() {
            self.tell_asker(asker, number, Err(Unanswered::Busy));
        }
    }

    fn tell_asker(&self, asker: usize, number: usize, found: Found) {
        match asker == self.cx.worker() {
            true => self.found(asker, number, found),
            false => self
                .ends
                .borrow_mut()
                .survey(asker, Survey::Tells { number, found }),
        }
    }

    async fn heard(&self, pattern: Option<&Pattern>) -> Found {
        let mut found = Vec::new();
        let mut after: Option<Arc<str>> = None;
        loop {
            let from = after.take();
            after = self.home.borrow().visit_subscribed(
                from.as_deref(),
                limits::SURVEYED_A_TURN,
                |name, count| {
                    if pattern.is_none_or(|pattern| pattern.is_of(name)) {
                        found.push((Arc::clone(name), count));
                    }
                },
            );
            if found.len() > limits::CHANNELS_TOLD {
                return Err(Fault::LIMIT_EXCEEDED.into());
            }
            if after.is_none() {
                return Ok(found);
            }
            let mut has_waited = false;
            poll_fn(|context| {
                if std::mem::replace(&mut has_waited, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
    }

    fn found(&self, worker: usize, number: usize, found: Found) {
        let surveys = &mut self.surveys.borrow_mut().0;
        if let Some((gathering, left)) = &mut surveys[number] {
            gathering.put(worker, found);
            *left -= 1;
            if *left == 0 {
                surveys[number] = None;
            }
        }
    }
}
