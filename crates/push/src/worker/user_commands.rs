//! What the owner wants done to a user's connections, on whichever workers these are.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_hub::protocol::{Disconnect, Push, Refresh, Reply, Unsubscribed};
use ringmain_hub::subscribers::ConnId;

use crate::client::Seat;
use crate::client::commands::Session;
use crate::limits;
use crate::publish::publisher::{Busy, Publisher};
use crate::publish::receipts::{Receipt, Receipted};
use crate::tokens::claims::{Lasts, Terms};
use crate::worker::Desk;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Nobody's connections are nobody's: an empty name has none.
    pub(crate) user: Arc<str>,
    /// One of them. `None`: all.
    pub(crate) client: Option<Arc<str>>,
    pub(crate) what: What,
    /// Counts the connections that it reached, for a program that waits.
    pub(crate) reached: Option<Arc<Reached>>,
}

/// The connections that an order has reached, of all workers.
#[derive(Debug)]
pub(crate) struct Reached {
    connections: AtomicU32,
    /// Workers that have not carried it out yet.
    left: AtomicUsize,
    waker: Mutex<Option<Waker>>,
    /// The receipt of a source's command, completed by the last worker.
    receipt: Mutex<Option<Receipt>>,
}

impl Reached {
    fn new(workers: usize) -> Arc<Reached> {
        Reached::with_receipt(workers, None)
    }

    pub(crate) fn with_receipt(workers: usize, receipt: Option<Receipt>) -> Arc<Reached> {
        Arc::new(Reached {
            connections: AtomicU32::new(0),
            left: AtomicUsize::new(workers),
            waker: Mutex::new(None),
            receipt: Mutex::new(receipt),
        })
    }

    fn add(&self, connections: u32) {
        self.connections.fetch_add(connections, Ordering::AcqRel);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            waker.iter().for_each(Waker::wake_by_ref);
            let receipt = self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(receipt) = receipt {
                receipt.complete(Receipted::Published);
            }
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<u32> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        // Behind the waker: the last worker wakes it, or is seen here.
        match self.left.load(Ordering::Acquire) {
            0 => Poll::Ready(self.connections.load(Ordering::Acquire)),
            _ => Poll::Pending,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// They end, for good ([`Disconnect::FORCED`]); but for these.
    Disconnect(Arc<[Arc<str>]>),
    /// They end, as those whose time is over ([`Disconnect::EXPIRED`]).
    Expire,
    /// They go on until then, in seconds since 1970 (`None`: for ever), and others are told this of them from now on, unless it is
    /// empty.
    Refresh { until: Option<u64>, info: Bytes },
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
            what: What::Disconnect(Arc::default()),
            reached: None,
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
            reached: None,
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
            reached: None,
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

    /// Has it done by all workers, and returns how many connections it reached once all have; `None`: not in time.
    ///
    /// # Errors
    /// [`Busy`]: nothing was done.
    pub(crate) async fn order_counted(&self, mut order: Order, until: Duration) -> Result<Option<u32>, Busy> {
        let reached = Reached::new(self.cx.workers());
        order.reached = Some(Arc::clone(&reached));
        self.order(order)?;
        let now = self.cx.now().since(Time(0));
        let mut sleep = pin!(self.cx.sleep(until.saturating_sub(now)));
        let counted = poll_fn(|context| match reached.poll(context) {
            Poll::Ready(count) => Poll::Ready(Some(count)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        });
        Ok(counted.await)
    }

    /// Does it to the connections here.
    pub(crate) fn follow(&self, order: &Order) {
        let connections = self.carry_out_order(order);
        if let Some(reached) = &order.reached {
            reached.add(connections);
        }
    }

    fn carry_out_order(&self, order: &Order) -> u32 {
        let mut connections = 0;
        let is_meant = |seat: &Rc<Seat>| {
            let client = seat.identity().client;
            order.client.as_ref().is_none_or(|name| client.is(name))
        };
        let is_open = |seat: &Rc<Seat>| seat.outlet.borrow().is_open();
        let seats = self.of_user(&order.user).into_iter();
        for seat in seats.filter(is_meant).filter(is_open) {
            match (&order.what, seat.id()) {
                (What::Disconnect(keeps), _) => {
                    let client = seat.identity().client;
                    if keeps.iter().any(|kept| client.is(kept)) {
                        continue;
                    }
                    seat.disconnect(Disconnect::FORCED);
                }
                (What::Expire, _) => seat.disconnect(Disconnect::EXPIRED),
                (What::Refresh { until, info }, Some(id)) => self.refresh(&seat, id, *until, info),
                (What::Unsubscribe(channel), Some(id)) => {
                    let mut local = self.local.borrow_mut();
                    if !local.unsubscribe(id, channel, Unsubscribed::SERVER) {
                        continue;
                    }
                }
                (What::Subscribe(channel, terms), Some(id)) => {
                    let desk = self.clone();
                    let done = Session { desk, seat }.be_subscribed(id, channel, terms.clone());
                    if let Err(fault) = done {
                        log::debug!(
                            "push: a client is not subscribed by the server: {}",
                            fault.message
                        );
                        continue;
                    }
                }
                (What::Subscribe(..) | What::Unsubscribe(_) | What::Refresh { .. }, None) => continue,
            }
            connections += 1;
        }
        connections
    }

    /// A connection goes on for another time than by its token.
    fn refresh(&self, seat: &Seat, id: ConnId, until: Option<u64>, info: &Bytes) {
        let leeway = self
            .options()
            .tokens
            .as_ref()
            .map_or(Duration::ZERO, |tokens| tokens.leeway);
        let lasts = Lasts {
            until,
            leeway: leeway.as_secs(),
        };
        let now = self.cx.wall();
        if lasts.is_over(now) {
            return seat.disconnect(Disconnect::EXPIRED);
        }
        let grace = match seat.bare {
            true => Duration::ZERO,
            false => limits::REFRESH_WITHIN,
        };
        let ends = lasts.ends(grace);
        let before = seat.rights.borrow_mut().set_ends(ends);
        self.due(id, None, before, ends);
        if !info.is_empty() {
            seat.identify(seat.identity().with_info(info.clone()));
        }
        let (expires, ttl) = lasts.told(now);
        let told_first = seat
            .pending
            .joining(|joining| (joining.connect.expires, joining.connect.ttl) = (expires, ttl));
        if told_first.is_some() {
            return;
        }
        let push = Push {
            refresh: Some(Refresh { expires, ttl }),
            ..Push::default()
        };
        seat.say(Reply {
            push: Some(push),
            ..Reply::default()
        });
    }
}
