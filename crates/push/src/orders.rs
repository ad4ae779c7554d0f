//! What the owner wants done to a user's connections, on whichever workers these are.

use std::rc::Rc;
use std::sync::Arc;

use ringmain_hub::protocol::{Disconnect, Unsubscribed};

use crate::claims::Terms;
use crate::desk::Desk;
use crate::publisher::{Busy, Publisher};
use crate::seat::Seat;
use crate::session::Session;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Nobody's connections are nobody's: an empty name has none.
    pub(crate) user: Arc<str>,
    /// One of them. `None`: all.
    pub(crate) client: Option<Arc<str>>,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// They end, for good ([`Disconnect::FORCED`]).
    Disconnect,
    /// They listen to this channel, too.
    Subscribe(Arc<str>, Terms),
    /// They listen to this channel no longer ([`Unsubscribed::SERVER`]).
    Unsubscribe(Arc<str>),
}

impl Publisher {
    /// Ends all connections of a user, on all workers; SDKs do not come back by themselves
    /// ([`Disconnect::FORCED`](ringmain_hub::protocol::Disconnect::FORCED)). A token that still holds lets the user in again.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn disconnect(&self, user: &str) -> Result<(), Busy> {
        self.0.order(Order {
            user: user.into(),
            client: None,
            what: What::Disconnect,
        })
    }

    /// Subscribes all connections of a user to a channel, whoever else may. One that listens to it already goes on as it does;
    /// one that listens to as many channels as it may does not. Connections that begin later are not meant.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn subscribe(&self, user: &str, channel: &str) -> Result<(), Busy> {
        self.0.order(Order {
            user: user.into(),
            client: None,
            what: What::Subscribe(channel.into(), Terms::default()),
        })
    }

    /// Ends the subscriptions of all connections of a user to a channel; SDKs do not subscribe again by themselves
    /// ([`Unsubscribed::SERVER`](ringmain_hub::protocol::Unsubscribed::SERVER)).
    ///
    /// # Errors
    /// [`Busy`].
    pub fn unsubscribe(&self, user: &str, channel: &str) -> Result<(), Busy> {
        self.0.order(Order {
            user: user.into(),
            client: None,
            what: What::Unsubscribe(channel.into()),
        })
    }
}

impl Desk {
    /// Has it done by all workers: here at once, by the others soon.
    pub(crate) fn order(&self, order: Order) -> Result<(), Busy> {
        if !self.send_order(&order) {
            return Err(Busy);
        }
        self.follow(&order);
        self.ring();
        Ok(())
    }

    /// Does it to the connections here.
    pub(crate) fn follow(&self, order: &Order) {
        let is_meant = |seat: &Rc<Seat>| {
            let info = seat.info.borrow();
            order.client.as_ref().is_none_or(|client| info.client == **client)
        };
        for seat in self.of_user(&order.user).into_iter().filter(is_meant) {
            match (&order.what, seat.id()) {
                (What::Disconnect, _) => seat.disconnect(Disconnect::FORCED),
                (What::Unsubscribe(channel), Some(id)) => {
                    let mut local = self.local.borrow_mut();
                    local.unsubscribe(id, channel, Unsubscribed::SERVER);
                }
                (What::Subscribe(channel, terms), Some(id)) => {
                    let desk = self.clone();
                    let done = Session { desk, seat }.be_subscribed(id, channel, terms.clone());
                    if let Err(fault) = done {
                        log::debug!(
                            "push: a client is not subscribed by the server: {}",
                            fault.message
                        );
                    }
                }
                (What::Subscribe(..) | What::Unsubscribe(_), None) => {}
            }
        }
    }
}
