//! The queues between a node's thread and the adapter of a broker.

use tokio::sync::mpsc;

use super::{LogEvent, LogRequest};
use crate::limits;

/// The adapter's side.
#[derive(Debug)]
pub struct LogPort {
    /// The requests of the node, in batches. The node limits those in flight:
    /// [`LOG_APPENDS`](limits::LOG_APPENDS), [`LOG_APPEND_BYTES`](limits::LOG_APPEND_BYTES). Closed when the node ends.
    pub requests: mpsc::UnboundedReceiver<Vec<LogRequest>>,
    /// The events for the node, in batches; at most [`LOG_EVENT_BATCHES`](limits::LOG_EVENT_BATCHES). If the queue is full the adapter
    /// waits, and stops reading its broker.
    pub events: mpsc::Sender<Vec<LogEvent>>,
}

/// The node's side.
#[derive(Debug)]
pub struct NodePort {
    /// The requests.
    pub requests: mpsc::UnboundedSender<Vec<LogRequest>>,
    /// The events.
    pub events: mpsc::Receiver<Vec<LogEvent>>,
}

/// Creates both sides.
#[must_use]
pub fn ports() -> (NodePort, LogPort) {
    let (request_sender, requests) = mpsc::unbounded_channel();
    let (event_sender, events) = mpsc::channel(limits::LOG_EVENT_BATCHES);
    let node = NodePort {
        requests: request_sender,
        events,
    };
    let adapter = LogPort {
        requests,
        events: event_sender,
    };
    (node, adapter)
}
