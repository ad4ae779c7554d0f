//! Publishes from tasks on a worker.

use std::sync::Arc;

use ringmain_hub::protocol::Fault;

use crate::tokens::claims::SubscribeOptions;
use crate::worker::PushWorker;
use crate::worker::user_commands::{ConnectionCommand, UserAction};

/// Publishes from one worker. Passed to the callback of [`serve_with`](crate::serve_with).
#[derive(Clone)]
pub struct Publisher(pub(crate) PushWorker);

/// The reason why nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The channel's name or namespace is invalid, the data is not JSON, or it exceeds [`PUBLICATION_BYTES`](crate::limits::PUBLICATION_BYTES).
    #[error("{}", .0.message)]
    Fault(Fault),
    /// [`BACKLOG`](crate::limits::BACKLOG) messages of this worker are queued already.
    #[error("overloaded: too many publications are queued on this worker")]
    Busy,
}

/// The queue of commands to a worker is full ([`USER_COMMANDS`](crate::limits::USER_COMMANDS)): nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("overloaded: too many commands are queued between workers; retry a little later")]
pub struct Busy;

impl Publisher {
    /// Publishes JSON in a channel, for its subscribers on all workers.
    ///
    /// # Errors
    /// [`PublishError`]: nothing was published.
    pub fn publish(&self, channel: &Arc<str>, json: &[u8]) -> Result<(), PublishError> {
        self.0.publish_json(channel, json)
    }

    /// Returns the number of clients that are connected to the process.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.0.client_count()
    }

    /// Disconnects all connections of a user, on all workers; SDKs do not reconnect by themselves
    /// ([`Disconnect::FORCED`](ringmain_hub::protocol::Disconnect::FORCED)). The user may connect again with a valid token.
    ///
    /// # Errors
    /// [`Busy`]: nothing was done.
    pub fn disconnect(&self, user: &str) -> Result<(), Busy> {
        let action = UserAction::Disconnect(Arc::default());
        self.0.run_on_all(&ConnectionCommand::for_user(user, action))
    }

    /// Subscribes all connections of a user to a channel, whatever their permissions. A connection that is subscribed already, or at its
    /// limit of subscriptions, is not affected; nor are later connections.
    ///
    /// # Errors
    /// [`Busy`]: nothing was done.
    pub fn subscribe(&self, user: &str, channel: &str) -> Result<(), Busy> {
        let action = UserAction::Subscribe(channel.into(), SubscribeOptions::default());
        self.0.run_on_all(&ConnectionCommand::for_user(user, action))
    }

    /// Ends the subscriptions to a channel on every connection of a user; SDKs do not subscribe again by themselves
    /// ([`Unsubscribed::SERVER`](ringmain_hub::protocol::Unsubscribed::SERVER)).
    ///
    /// # Errors
    /// [`Busy`]: nothing was done.
    pub fn unsubscribe(&self, user: &str, channel: &str) -> Result<(), Busy> {
        let action = UserAction::Unsubscribe(channel.into());
        self.0.run_on_all(&ConnectionCommand::for_user(user, action))
    }
}
