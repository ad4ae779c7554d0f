//! The interface to a cluster, whose nodes share channels: requests of workers, and events for them.
//!
//! ```text
//! worker ─ ClusterRequest ─▶ queue ─▶ ClusterPort (another thread)
//!        ◀─ ClusterEvent ── queue of the worker ◀─┘
//! ```
//!
//! With a cluster, publications and queries of a channel are answered by its owner, which may be this node, and subscribers wait for the
//! state of the channel. Must not know nodes or links.

pub(crate) mod call;
mod command;
pub(crate) mod queue;

use std::sync::Arc;
use std::sync::atomic::Ordering;
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
    /// Calls the other nodes. [`ClusterEvent::CallFinished`] must follow.
    Call {
        /// The request.
        request: ClusterRequestId,
        /// The content of [`ClusterEvent::Call`], up to [`CLUSTER_CALL_BYTES`](crate::limits::CLUSTER_CALL_BYTES).
        payload: Bytes,
    },
    /// The result of [`ClusterEvent::Call`].
    CallResult {
        /// The node that has called.
        from: u64,
        /// The number of the call there.
        call: u64,
        /// The result, up to [`CLUSTER_CALL_BYTES`](crate::limits::CLUSTER_CALL_BYTES).
        payload: Bytes,
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
    /// A call of another node. [`ClusterRequest::CallResult`] follows, unless the call is unknown.
    Call {
        /// The node.
        from: u64,
        /// The number of the call there.
        call: u64,
        /// The content.
        payload: Bytes,
    },
    /// The other nodes have responded to a call, or have not in time.
    CallFinished {
        /// The request.
        request: ClusterRequestId,
        /// The results by node. `None`: the node has not responded. It may have run the call.
        results: Vec<(u64, Option<Bytes>)>,
    },
}

impl ClusterEvent {
    /// Returns the size for the limit of the worker's queue, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            ClusterEvent::Publication { published, .. } => published.data.len(),
            ClusterEvent::Call { payload, .. } => payload.len(),
            ClusterEvent::CallFinished { results, .. } => {
                let received = results.iter().filter_map(|(_, result)| result.as_ref());
                received.map(Bytes::len).sum()
            }
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
            | ClusterEvent::CallFinished { request, .. } => queue::worker_of_request(*request),
            ClusterEvent::Call { .. } => 0,
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

    /// Sets the name of this node for programs, once.
    pub fn set_name(&self, name: &Arc<str>) {
        let _ = self.0.name.set(Arc::clone(name));
    }

    /// Rejects all clients of this node with 503: it only owns channels.
    pub fn refuse_clients(&self) {
        self.0.refuses_clients.store(true, Ordering::Relaxed);
    }

    /// Returns the next request of the workers.
    pub fn poll_request(&self, context: &Context<'_>) -> Poll<ClusterRequest> {
        match self.0.cluster.get() {
            Some(queue) => queue.poll(context),
            None => Poll::Pending,
        }
    }

    /// Delivers an event. [`ClusterPort::wake_workers`] must follow, once for several events: a worker that is woken for each of them
    /// sleeps in between.
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
        Ok(())
    }

    /// Wakes the workers that have events.
    pub fn wake_workers(&self) {
        let queues = self.0.mesh.inbound_queues().unwrap_or_default();
        queues
            .iter()
            .filter(|queue| !queue.is_empty())
            .for_each(InboundQueue::wake);
    }
}
