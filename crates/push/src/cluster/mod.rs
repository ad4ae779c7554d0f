//! The interface to a cluster, whose nodes share channels: requests of workers, and events for them.
//!
//! ```text
//! worker ─ ClusterRequest ─▶ queue ─▶ ClusterPort (another thread)
//!        ◀─ ClusterEvent ── queue of the worker ◀─┘
//! ```
//!
//! With a cluster, publications and queries of a channel are answered by its owner, which may be this node, and subscribers wait for the
//! state of the channel. Must not know nodes or links.

pub(crate) mod command;
pub(crate) mod queue;

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::{ChannelOptions, ChannelQuery, PublishOptions, QueryResult};
use ringmain_hub::protocol::{ClientInfo, Published};
pub use ringmain_hub::shard::MirroredState;

use crate::publish::inbound_queue::{Inbound, InboundQueue, worker_of};
use crate::settings::SharedSettings;
use queue::ClusterQueue;

/// Identifies a request of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterRequestId(pub u64);

/// A request of a worker.
#[derive(Debug)]
pub enum ClusterRequest {
    /// A channel has subscribers here. [`ClusterEvent::Synced`] must follow.
    Interested {
        /// The channel.
        channel: Arc<str>,
        /// Its options.
        options: ChannelOptions,
        /// The state that was delivered before is not available any more.
        needs_state: bool,
    },
    /// The last subscriber has left.
    Uninterested {
        /// The channel.
        channel: Arc<str>,
    },
    /// A member has joined here.
    Joined {
        /// The channel.
        channel: Arc<str>,
        /// The member.
        info: Arc<ClientInfo>,
    },
    /// A member has left here.
    Left {
        /// The channel.
        channel: Arc<str>,
        /// Its client ID.
        client: Arc<str>,
    },
    /// Publishes. [`ClusterEvent::Published`] must follow.
    Publish {
        /// The request.
        request: ClusterRequestId,
        /// The channel.
        channel: Arc<str>,
        /// Its options.
        options: ChannelOptions,
        /// The publication.
        published: Arc<Published>,
        /// Unusual options.
        publish_options: PublishOptions,
    },
    /// Queries a channel. [`ClusterEvent::QueryResult`] must follow.
    Query {
        /// The request.
        request: ClusterRequestId,
        /// The channel.
        channel: Arc<str>,
        /// Its options.
        options: ChannelOptions,
        /// The query.
        query: ChannelQuery,
    },
    /// Runs a command on the other nodes. [`ClusterEvent::CommandFinished`] must follow.
    Command {
        /// The request.
        request: ClusterRequestId,
        /// The command for [`ClusterEvent::Command`].
        payload: Bytes,
    },
    /// The result of [`ClusterEvent::Command`].
    CommandResult {
        /// The node that has sent the command.
        from: u64,
        /// Its number.
        call: u64,
        /// Affected connections here.
        connections: u32,
    },
}

/// The relation of a state to the one that a worker had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorSync {
    /// It replaces the worker's.
    Initial,
    /// Its publications continue the worker's.
    Continued,
    /// It replaces the worker's, and publications are missing in between.
    Gap,
}

/// The outcome of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterPublishOutcome {
    /// Published; the position after it, if it has an offset.
    Published(Option<StreamPosition>),
    /// Not published: the owner's limit of channels is reached.
    ChannelLimit,
    /// The owner has not responded: it may be published or not.
    Unreachable,
}

/// An event for a worker.
#[derive(Debug)]
pub enum ClusterEvent {
    /// The state of a channel. Publications that follow are newer.
    Synced {
        /// The channel.
        channel: Arc<str>,
        /// The state.
        state: MirroredState,
        /// Its relation to the state before.
        kind: MirrorSync,
    },
    /// A publication.
    Publication {
        /// The channel.
        channel: Arc<str>,
        /// The offset; 0 for none.
        offset: u64,
        /// The publication.
        published: Arc<Published>,
    },
    /// A member has joined or left at another node.
    Member {
        /// The channel.
        channel: Arc<str>,
        /// The member.
        info: Arc<ClientInfo>,
        /// True if it has joined.
        is_join: bool,
    },
    /// Publications of a channel may be missing until the next state.
    Lost {
        /// The channel.
        channel: Arc<str>,
    },
    /// The outcome of a publication.
    Published {
        /// The request.
        request: ClusterRequestId,
        /// The outcome.
        outcome: ClusterPublishOutcome,
    },
    /// The result of a query.
    QueryResult {
        /// The request.
        request: ClusterRequestId,
        /// The result.
        result: Box<QueryResult>,
    },
    /// A command of another node. [`ClusterRequest::CommandResult`] follows.
    Command {
        /// The node.
        from: u64,
        /// The number of the command there.
        call: u64,
        /// The command.
        payload: Bytes,
    },
    /// The other nodes have run a command, or have not in time.
    CommandFinished {
        /// The request.
        request: ClusterRequestId,
        /// The nodes that have run it.
        nodes: u32,
        /// The nodes that have not responded. They may have run it.
        missing: u32,
        /// Affected connections of the nodes that have run it.
        connections: u32,
    },
}

impl ClusterEvent {
    /// Returns the size for the limit of the worker's queue, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            ClusterEvent::Publication { published, .. } => published.data.len(),
            ClusterEvent::Synced { state, .. } => state
                .publications
                .iter()
                .map(|(_, published)| published.data.len())
                .sum(),
            _ => 0,
        }
    }

    fn worker(&self, queues: &[InboundQueue]) -> usize {
        match self {
            ClusterEvent::Synced { channel, .. }
            | ClusterEvent::Publication { channel, .. }
            | ClusterEvent::Member { channel, .. }
            | ClusterEvent::Lost { channel } => worker_of(queues, channel),
            ClusterEvent::Published { request, .. }
            | ClusterEvent::QueryResult { request, .. }
            | ClusterEvent::CommandFinished { request, .. } => queue::worker_of_request(*request),
            ClusterEvent::Command { .. } => 0,
        }
    }
}

/// The other end of the workers' requests and events, for one thread.
#[derive(Debug)]
pub struct ClusterPort(Arc<SharedSettings>);

impl ClusterPort {
    /// Creates the port, before workers start. `None`: there is one already, or workers have started.
    pub(crate) fn open(settings: &Arc<SharedSettings>) -> Option<ClusterPort> {
        if settings.mesh.inbound_queues().is_some() || settings.cluster.set(ClusterQueue::new()).is_err() {
            return None;
        }
        Some(ClusterPort(Arc::clone(settings)))
    }

    /// Returns the next request of the workers.
    pub fn poll_request(&self, context: &Context<'_>) -> Poll<ClusterRequest> {
        match self.0.cluster.get() {
            Some(queue) => queue.poll(context),
            None => Poll::Pending,
        }
    }

    /// Delivers an event.
    ///
    /// # Errors
    /// The event: the worker's queue is full, or workers have not started.
    pub fn deliver(&self, event: ClusterEvent) -> Result<(), Box<ClusterEvent>> {
        let Some(queues) = self.0.mesh.inbound_queues() else {
            return Err(Box::new(event));
        };
        let Some(queue) = queues.get(event.worker(queues)) else {
            return Ok(());
        };
        if queue.is_full() || !queue.reserve(event.bytes()) {
            return Err(Box::new(event));
        }
        queue.enqueue_reserved(Inbound::Cluster(Box::new(event)));
        queue.wake();
        Ok(())
    }
}
