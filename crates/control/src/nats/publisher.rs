//! Publishing to a NATS from a thread that has nothing else to do, such as a command's.
//!
//! Core NATS answers no publication. A server answers a `PING` once it has what came before: that is how it is known what arrived.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ringmain_gateway::model::NatsAccess;
use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::connection::{Access, Connection, Failure, refused};
use super::protocol::Event;
use super::runtime;

/// A connection to publish by. It waits for the network where it says so, and nowhere else.
#[derive(Debug)]
pub struct Publisher {
    /// First, as fields are dropped in order: a connection is forgotten after what carries it.
    runtime: Runtime,
    connection: Connection,
    published: u64,
    /// Publications before the `PING` that is not answered yet.
    asked: Option<u64>,
    arrived: u64,
}

impl Publisher {
    /// Connects to the first server that can be reached.
    ///
    /// # Errors
    /// [`Failure`] of the last one.
    pub fn connect(access: &NatsAccess) -> Result<Publisher, Failure> {
        let (runtime, ready) = (runtime()?, Access::new(access)?);
        let mut outcome = Err(Failure::Settings("expected a server, found none".to_owned()));
        for server in &access.servers {
            outcome = runtime.block_on(Connection::open(&ready, server));
            if outcome.is_ok() {
                break;
            }
        }
        Ok(Publisher {
            runtime,
            connection: outcome?,
            published: 0,
            asked: None,
            arrived: 0,
        })
    }

    /// Has something published by [`Publisher::carry_on`].
    ///
    /// # Errors
    /// [`Failure::Settings`]: it cannot be; nothing has changed.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), Failure> {
        self.connection.publish(subject, payload)?;
        self.published += 1;
        Ok(())
    }

    /// Bytes that are not sent yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.connection.waiting()
    }

    /// Publications of which nothing says yet that the server has them.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        self.published - self.arrived
    }

    /// Sends what waits, for so long at most, and hears what the server has said already.
    ///
    /// # Errors
    /// [`Failure`]: the connection is over. That of [`Failure::is_final`] with a server that refuses a subject is not, but nothing
    /// better comes of it.
    pub fn carry_on(&mut self, within: Duration) -> Result<(), Failure> {
        if self.asked.is_none() && self.unconfirmed() > 0 {
            self.connection.ping();
            self.asked = Some(self.published);
        }
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            if let Ok(sent) = timeout(within, connection.flush()).await {
                sent?;
            }
            // The runtime looks at the socket once; what it finds is read, and nothing is waited for.
            yield_now().await;
            let mut fill = pin!(connection.fill());
            match poll_fn(|context| Poll::Ready(fill.as_mut().poll(context))).await {
                Poll::Ready(filled) => filled,
                Poll::Pending => Ok(()),
            }
        })?;
        let mut pings = 0;
        while let Some(event) = self.connection.event()? {
            match event {
                Event::Ping => pings += 1,
                Event::Pong => self.arrived = self.asked.take().unwrap_or(self.arrived),
                Event::Error(why) => return Err(refused(why)),
                _ => {}
            }
        }
        (0..pings).for_each(|_| self.connection.pong());
        Ok(())
    }
}
