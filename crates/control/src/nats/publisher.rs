//! Publishing to a NATS from a thread that has nothing else to do, such as a command's.
//!
//! Core NATS does not acknowledge publications. A server answers a `PING` once it has processed all earlier data: this confirms
//! publications.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ringmain_gateway::model::NatsAccess;
use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::connection::{ConnectOptions, Connection, ConnectionError, server_refusal};
use super::protocol::ServerEvent;
use super::runtime;

/// A connection for publishing. It waits for the network only where documented.
#[derive(Debug)]
pub struct Publisher {
    /// First, since fields are dropped in order: the connection is closed after its runtime.
    runtime: Runtime,
    connection: Connection,
    published: u64,
    /// Publications before the `PING` that is not answered yet.
    ping_sent: Option<u64>,
    arrived: u64,
}

impl Publisher {
    /// Connects to the first server that can be reached.
    ///
    /// # Errors
    /// [`ConnectionError`] of the last one.
    pub fn connect(access: &NatsAccess) -> Result<Publisher, ConnectionError> {
        let (runtime, ready) = (runtime()?, ConnectOptions::new(access)?);
        let mut outcome = Err(ConnectionError::Settings(
            "expected a server, found none".to_owned(),
        ));
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
            ping_sent: None,
            arrived: 0,
        })
    }

    /// Queues a publication for [`Publisher::send_pending`].
    ///
    /// # Errors
    /// [`ConnectionError::Settings`]: it cannot be; nothing has changed.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), ConnectionError> {
        self.connection.publish(subject, payload)?;
        self.published += 1;
        Ok(())
    }

    /// Returns the number of bytes that are not sent yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.connection.waiting()
    }

    /// Returns the number of publications that the server has not confirmed.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        self.published - self.arrived
    }

    /// Sends buffered data, for at most `limit`, and handles events that have arrived.
    ///
    /// # Errors
    /// [`ConnectionError`]: the connection has failed. With [`ConnectionError::is_permanent`] and a server that rejects a subject
    /// it is still open, but remains unusable.
    pub fn send_pending(&mut self, limit: Duration) -> Result<(), ConnectionError> {
        if self.ping_sent.is_none() && self.unconfirmed() > 0 {
            self.connection.ping();
            self.ping_sent = Some(self.published);
        }
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            if let Ok(sent) = timeout(limit, connection.flush()).await {
                sent?;
            }
            // Polls the socket once, without waiting.
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
                ServerEvent::Ping => pings += 1,
                ServerEvent::Pong => self.arrived = self.ping_sent.take().unwrap_or(self.arrived),
                ServerEvent::Error(message) => return Err(server_refusal(message)),
                _ => {}
            }
        }
        (0..pings).for_each(|_| self.connection.pong());
        Ok(())
    }
}
