//! Publications of programs and of tasks on this worker.

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

use super::PushWorker;
use super::pending_replies::{QueryError, ReplyGroup};
use crate::client::reply_queue::publication_weight;
use crate::limits;
use crate::options::{DataFormat, publication_limit};
use crate::publish::publisher::PublishError;

/// Pooled memory of publications.
#[derive(Default)]
pub(crate) struct PublicationPool {
    data: BufferPool,
    published: ArcPool<Published>,
}

impl PublicationPool {
    /// Returns a publication without a publisher. One that is retained, may be held, or may be the base of a delta has memory of its own, since it lives longer.
    fn acquire(&mut self, channel_options: &ChannelOptions, data: &[u8]) -> Arc<Published> {
        if is_retained(channel_options) || data.len() > POOLED_MAX_BYTES {
            return Arc::new(Published {
                data: Bytes::copy_from_slice(data),
                ..Published::default()
            });
        }
        let PublicationPool {
            data: buffers,
            published,
        } = self;
        published.acquire(|published| {
            // Dropped first, so that the buffer of the previous data can be reused.
            *published = Published::default();
            published.data = buffers.copy(data);
        })
    }

    /// Returns the same with data that has memory of its own.
    pub(super) fn acquire_with_data(
        &mut self,
        channel_options: &ChannelOptions,
        data: Bytes,
    ) -> Arc<Published> {
        let published = Published {
            data,
            ..Published::default()
        };
        if is_retained(channel_options) || published.data.len() > POOLED_MAX_BYTES {
            return Arc::new(published);
        }
        self.published.acquire(|pooled| *pooled = published)
    }

    /// Drops memory that was not used since the last call.
    pub(super) fn shrink(&mut self) {
        // Publications refer to the buffers.
        self.published.shrink();
        self.data.shrink();
    }
}

fn is_retained(channel_options: &ChannelOptions) -> bool {
    channel_options.history.is_some()
        || channel_options.conflation_interval.is_some()
        || channel_options.delta
}

/// A publication of a program, in one channel or in many.
pub(crate) struct ApiPublication {
    pub(crate) published: Arc<Published>,
    /// The data is JSON.
    pub(crate) is_json: bool,
    pub(crate) options: Option<Box<PublishOptions>>,
}

impl ApiPublication {
    /// Checks the data against the format of a channel.
    fn check_format(&self, format: DataFormat) -> Result<(), Fault> {
        if self.is_json {
            return format.check_json(&self.published.data);
        }
        if format != DataFormat::Binary {
            return Err(Fault::BAD_REQUEST);
        }
        Ok(())
    }

    /// Returns the options of a channel that takes this publication.
    fn check_channel(
        &self,
        channel_options: ChannelOptions,
        format: DataFormat,
    ) -> Result<ChannelOptions, Fault> {
        if self.is_transient() && channel_options.conflation_interval.is_some() {
            // The publication would overtake the held update, which would then overwrite it.
            return Err(Fault::NOT_AVAILABLE);
        }
        self.check_format(format)?;
        if publication_weight(&self.published) > publication_limit(&channel_options) {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        Ok(channel_options)
    }

    fn is_transient(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.transient)
    }

    fn has_key(&self) -> bool {
        self.options
            .as_ref()
            .is_some_and(|options| options.idempotency.is_some())
    }
}

/// The outcome in one channel: the position of the publication, in a channel that has positions.
pub(crate) type PublishOutcome = Result<Option<StreamPosition>, Fault>;

/// A publication that was sent to its channels, and may not have their replies yet.
pub(crate) struct PendingPublish {
    /// The outcomes that are known at once.
    outcomes: Vec<PublishOutcome>,
    /// The replies that arrive later, and the indices of their outcomes.
    replies: Option<(Rc<ReplyGroup<ProgramReply>>, Vec<usize>)>,
}

impl PushWorker {
    /// Publishes JSON in a channel. No reply is waited for.
    pub(crate) fn publish_json(&self, channel: &Arc<str>, json: &[u8]) -> Result<(), PublishError> {
        if self.is_frozen() || self.0.subscribers.borrow().backlog() > limits::BACKLOG {
            return Err(PublishError::Busy);
        }
        let options = self.options();
        let namespace = options.namespace(channel).map_err(PublishError::Fault)?;
        let channel_options = namespace.channel_options;
        let data = compacted(json).map_err(|_| PublishError::Fault(Fault::BAD_REQUEST))?;
        namespace
            .data_format
            .check_json(&data)
            .map_err(PublishError::Fault)?;
        if data.len() > publication_limit(&channel_options) {
            return Err(PublishError::Fault(Fault::LIMIT_EXCEEDED));
        }
        let published = self.0.pool.borrow_mut().acquire(&channel_options, &data);
        let mut subscribers = self.0.subscribers.borrow_mut();
        subscribers.publish_for(channel, channel_options, &published, None, None);
        drop(subscribers);
        self.wake();
        Ok(())
    }

    /// Publishes in each of these channels, behind the previous publications of this worker.
    ///
    /// # Errors
    /// [`QueryError::Busy`]: nothing was published.
    pub(crate) fn publish_in(
        &self,
        channels: &[Arc<str>],
        publication: &ApiPublication,
    ) -> Result<PendingPublish, QueryError> {
        let options = self.options();
        let (is_transient, has_key) = (publication.is_transient(), publication.has_key());
        let has_owner = self.0.cluster.is_some();
        let mut checked = Vec::with_capacity(channels.len());
        let mut indices = Vec::new();
        for (index, channel) in channels.iter().enumerate() {
            let channel_options = options.namespace(channel).and_then(|namespace| {
                publication.check_channel(namespace.channel_options, namespace.data_format)
            });
            // In a cluster the owner may be another node, which can refuse.
            let has_outcome = |options: ChannelOptions| {
                has_key || has_owner || (options.history.is_some() && !is_transient)
            };
            if channel_options.is_ok_and(has_outcome) {
                indices.push(index);
            }
            checked.push(channel_options);
        }
        let mut pending = self.0.pending_replies.borrow_mut();
        let mut subscribers = self.0.subscribers.borrow_mut();
        if indices.len() > pending.capacity_left() || subscribers.backlog() > limits::BACKLOG {
            return Err(QueryError::Busy);
        }
        let group = (!indices.is_empty()).then(|| ReplyGroup::new(indices.len()));
        let mut at = 0;
        for (index, (channel, channel_options)) in channels.iter().zip(&checked).enumerate() {
            let Ok(channel_options) = *channel_options else {
                continue;
            };
            let replies = group.as_ref().filter(|_| indices.get(at) == Some(&index));
            let number = replies.map(|group| pending.add_query(group, at));
            at += usize::from(number.is_some());
            subscribers.publish_for(
                channel,
                channel_options,
                &publication.published,
                publication.options.clone(),
                number,
            );
        }
        drop((pending, subscribers));
        self.wake();
        let outcomes = checked.into_iter().map(|checked| checked.map(|_| None)).collect();
        Ok(PendingPublish {
            outcomes,
            replies: group.map(|group| (group, indices)),
        })
    }

    /// Waits for the replies of channels that report the outcome of a [publication](PushWorker::publish_in).
    ///
    /// # Errors
    /// [`QueryError::Late`]: it may be published in some channels.
    pub(crate) async fn await_outcomes(
        &self,
        sent: PendingPublish,
        deadline: Duration,
    ) -> Result<Vec<PublishOutcome>, QueryError> {
        let PendingPublish {
            mut outcomes,
            replies,
        } = sent;
        if let Some((group, indices)) = replies {
            let replies = group.all(&self.0.cx, deadline).await.ok_or(QueryError::Late)?;
            for (index, reply) in indices.into_iter().zip(replies) {
                outcomes[index] = match reply {
                    ProgramReply::Published(position) => Ok(position),
                    // It may be published in other channels.
                    ProgramReply::QueryResult(result)
                        if matches!(*result, QueryResult::Draining | QueryResult::Unreachable) =>
                    {
                        return Err(QueryError::Late);
                    }
                    ProgramReply::QueryResult(result) if matches!(*result, QueryResult::ChannelLimit) => {
                        Err(Fault::LIMIT_EXCEEDED)
                    }
                    ProgramReply::QueryResult(_) => Err(Fault::INTERNAL),
                };
            }
        }
        Ok(outcomes)
    }
}
