//! Publishing from within the process.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::protocol::{Fault, Published, compact};

use crate::desk::Desk;
use crate::limits;

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
        self.0.publish(std::slice::from_ref(channel), json)
    }

    /// Clients that are connected to the process.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.0.clients()
    }
}

impl Desk {
    /// In all of these channels, or in none if one of them cannot be.
    pub(crate) fn publish(&self, channels: &[Arc<str>], json: &[u8]) -> Result<(), NotPublished> {
        if self.local.borrow().backlog() > limits::BACKLOG {
            return Err(NotPublished::Busy);
        }
        let options = self.options();
        let named = channels.iter().map(|channel| options.namespace(channel));
        let namespaces: Vec<_> = named.collect::<Result<_, _>>().map_err(NotPublished::Fault)?;
        let data =
            compact(&Bytes::copy_from_slice(json)).map_err(|_| NotPublished::Fault(Fault::BAD_REQUEST))?;
        for (channel, namespace) in channels.iter().zip(namespaces) {
            let published = Published {
                data: data.clone(),
                ..Published::default()
            };
            let mut local = self.local.borrow_mut();
            local.publish(channel, namespace.rules, published, None);
        }
        self.ring();
        Ok(())
    }
}
