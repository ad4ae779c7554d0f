//! Publishing: by tasks of the process, and by programs that wait for what comes of it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::StreamPosition;
use ringmain_hub::limits::POOLED_MAX_BYTES;
use ringmain_hub::mail::{ChannelOptions, PublishOptions, QueryResult};
use ringmain_hub::pool::{ArcPool, BufferPool};
use ringmain_hub::protocol::{Fault, Published, compacted};
use ringmain_hub::subscribers::ProgramReply;

use crate::limits;
use crate::options::DataFormat;
use crate::worker::Desk;
use crate::worker::pending_replies::{Gathering, Unanswered};

/// Publishes from one worker. What serves clients hands it out: see [`serve_with`](crate::serve_with).
#[derive(Clone)]
pub struct Publisher(pub(crate) Desk);

/// Why nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPublished {
    /// The channel cannot be, or the data is no JSON.
    #[error("{}", .0.message)]
    Fault(Fault),
    /// [`BACKLOG`](limits::BACKLOG) messages of this worker wait already.
    #[error("more is being published than can be carried on")]
    Busy,
}

/// Nothing was done: [`ORDERS`](limits::ORDERS) orders wait on their way to a worker already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more orders are on their way between workers than can be carried on; try again a little later")]
pub struct Busy;

impl Publisher {
    /// Publishes JSON in a channel; who listens has it soon, whichever worker it is on.
    ///
    /// # Errors
    /// [`NotPublished`].
    pub fn publish(&self, channel: &Arc<str>, json: &[u8]) -> Result<(), NotPublished> {
        let desk = &self.0;
        if desk.is_frozen() || desk.local.borrow().backlog() > limits::BACKLOG {
            return Err(NotPublished::Busy);
        }
        let options = desk.options();
        let namespace = options.namespace(channel).map_err(NotPublished::Fault)?;
        let rules = namespace.rules;
        let data = compacted(json).map_err(|_| NotPublished::Fault(Fault::BAD_REQUEST))?;
        namespace
            .data_format
            .check_json(&data)
            .map_err(NotPublished::Fault)?;
        if data.len() > limits::PUBLICATION_BYTES {
            return Err(NotPublished::Fault(Fault::LIMIT_EXCEEDED));
        }
        let published = desk.places.borrow_mut().published(&rules, &data);
        let mut local = desk.local.borrow_mut();
        local.publish_for(channel, rules, &published, None, None);
        drop(local);
        desk.ring();
        Ok(())
    }

    /// Clients that are connected to the process.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.0.clients()
    }
}

/// Memory of what is published here, which goes round.
#[derive(Default)]
pub(crate) struct Places {
    data: BufferPool,
    published: ArcPool<Published>,
}

impl Places {
    /// A publication by nobody. One that is kept, or may be held, has memory of its own: it is there for longer than others.
    fn published(&mut self, rules: &ChannelOptions, data: &[u8]) -> Arc<Published> {
        if is_kept(rules) || data.len() > POOLED_MAX_BYTES {
            return Arc::new(Published {
                data: Bytes::copy_from_slice(data),
                ..Published::default()
            });
        }
        let Places {
            data: buffers,
            published,
        } = self;
        published.acquire(|published| {
            // First: its data may be in the place that is used now.
            *published = Published::default();
            published.data = buffers.copy(data);
        })
    }

    /// The same with data that has its memory.
    pub(crate) fn with_data(&mut self, rules: &ChannelOptions, data: Bytes) -> Arc<Published> {
        let published = Published {
            data,
            ..Published::default()
        };
        match is_kept(rules) || published.data.len() > POOLED_MAX_BYTES {
            true => Arc::new(published),
            false => self.published.acquire(|place| *place = published),
        }
    }

    /// To be called now and then: what was not used since the last time is let go of.
    pub(crate) fn tidy(&mut self) {
        // They hold what is in the buffers.
        self.published.shrink();
        self.data.shrink();
    }
}

fn is_kept(rules: &ChannelOptions) -> bool {
    rules.history.is_some() || rules.conflation_interval.is_some()
}

/// What a program publishes, in one channel or in many.
pub(crate) struct Publishing {
    pub(crate) published: Arc<Published>,
    /// Whether its data is JSON.
    pub(crate) is_json: bool,
    pub(crate) manner: Option<Box<PublishOptions>>,
}

impl Publishing {
    /// Whether a channel of this format takes it.
    fn check(&self, format: DataFormat) -> Result<(), Fault> {
        match self.is_json {
            true => format.check_json(&self.published.data),
            false if format == DataFormat::Binary => Ok(()),
            false => Err(Fault::BAD_REQUEST),
        }
    }
}

/// What comes of it in a channel: where that stands then, if it has numbers.
pub(crate) type Outcome = Result<Option<StreamPosition>, Fault>;

impl Desk {
    /// Waits for the channels that can say something about what was [published](Desk::publish) in them.
    pub(crate) async fn outcomes(&self, sent: Sent, until: Duration) -> Result<Vec<Outcome>, Unanswered> {
        let Sent { mut outcomes, asked } = sent;
        if let Some((gathering, indices)) = asked {
            let answers = gathering.all(&self.cx, until).await.ok_or(Unanswered::Late)?;
            for (index, answer) in indices.into_iter().zip(answers) {
                outcomes[index] = match answer {
                    ProgramReply::Published(place) => Ok(place),
                    // In other channels it may be published.
                    ProgramReply::QueryResult(told) if matches!(*told, QueryResult::Draining) => {
                        return Err(Unanswered::Late);
                    }
                    ProgramReply::QueryResult(told) if matches!(*told, QueryResult::ChannelLimit) => {
                        Err(Fault::LIMIT_EXCEEDED)
                    }
                    ProgramReply::QueryResult(_) => Err(Fault::INTERNAL),
                };
            }
        }
        Ok(outcomes)
    }

    /// Publishes in each of these channels, behind what this worker has published before.
    pub(crate) fn publish(&self, channels: &[Arc<str>], what: &Publishing) -> Result<Sent, Unanswered> {
        let options = self.options();
        let (is_unkept, is_once) = match &what.manner {
            Some(manner) => (manner.transient, manner.idempotency.is_some()),
            None => (false, false),
        };
        let mut outcomes = Vec::with_capacity(channels.len());
        let mut indices = Vec::new();
        for (index, channel) in channels.iter().enumerate() {
            let found = options
                .namespace(channel)
                .and_then(|namespace| match namespace.rules {
                    // It would come before what waits, and be forgotten by what comes then.
                    rules if is_unkept && rules.conflation_interval.is_some() => Err(Fault::NOT_AVAILABLE),
                    rules => what.check(namespace.data_format).map(|()| rules),
                });
            if found.is_ok_and(|rules| is_once || (rules.history.is_some() && !is_unkept)) {
                indices.push(index);
            }
            outcomes.push(found);
        }
        let (mut asking, mut local) = (self.asking.borrow_mut(), self.local.borrow_mut());
        if indices.len() > asking.room() || local.backlog() > limits::BACKLOG {
            return Err(Unanswered::Busy);
        }
        let gathering = (!indices.is_empty()).then(|| Gathering::new(indices.len()));
        let mut at = 0;
        for (index, (channel, found)) in channels.iter().zip(&outcomes).enumerate() {
            let Ok(rules) = *found else { continue };
            let asks = gathering.as_ref().filter(|_| indices.get(at) == Some(&index));
            let number = asks.map(|gathering| asking.ask(gathering, at));
            at += usize::from(number.is_some());
            local.publish_for(channel, rules, &what.published, what.manner.clone(), number);
        }
        drop((asking, local));
        self.ring();
        let outcomes = outcomes.into_iter().map(|found| found.map(|_| None)).collect();
        Ok(Sent {
            outcomes,
            asked: gathering.map(|gathering| (gathering, indices)),
        })
    }
}

/// What was published and may not have been answered yet.
pub(crate) struct Sent {
    /// What is known at once.
    outcomes: Vec<Outcome>,
    /// Answers that come later, and which of the outcomes they are.
    asked: Option<(Rc<Gathering<ProgramReply>>, Vec<usize>)>,
}
