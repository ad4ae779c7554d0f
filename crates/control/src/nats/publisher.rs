//! Publishing to a NATS from a thread that has nothing else to do, such as a command's.

use std::time::Duration;

use ringmain_gateway::model::NatsAccess;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::connection::{Access, Connection, Failure, refused};
use super::protocol::Event;
use super::runtime;

/// A connection to publish by. It waits for the network where it says so, and nowhere else.
#[derive(Debug)]
pub struct Publisher {
    runtime: Runtime,
    connection: Connection,
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
        let connection = outcome?;
        Ok(Publisher { runtime, connection })
    }

    /// Has something published by [`Publisher::carry_on`].
    ///
    /// # Errors
    /// [`Failure::Settings`]: it cannot be; nothing has changed.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), Failure> {
        self.connection.publish(subject, payload)
    }

    /// Sends what waits, for so long at most, and hears what the server says. Returns the bytes that wait still.
    ///
    /// # Errors
    /// [`Failure`]: the connection is over.
    pub fn carry_on(&mut self, within: Duration) -> Result<usize, Failure> {
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            if let Ok(sent) = timeout(within, connection.flush()).await {
                sent?;
            }
            // What is there already, and nothing that is waited for.
            if let Ok(filled) = timeout(Duration::ZERO, connection.fill()).await {
                filled?;
            }
            let mut pings = 0;
            while let Some(event) = connection.event()? {
                match event {
                    Event::Ping => pings += 1,
                    Event::Error(why) => return Err(refused(why)),
                    _ => {}
                }
            }
            (0..pings).for_each(|_| connection.pong());
            Ok(connection.waiting())
        })
    }
}
