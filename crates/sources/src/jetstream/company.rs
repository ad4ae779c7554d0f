//! Other processes that read the same durable consumer: each of them gets a part of the messages.
//!
//! Deliveries of a consumer are numbered. A number that does not arrive here arrived elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use tokio::time::{Instant, timeout};

use crate::failure::Failure;

/// The time without messages after which the server is queried for the number of deliveries.
const IDLE: Duration = Duration::from_secs(1);
/// The time that its response may take: together less than [`SILENT_AFTER`](crate::limits::SILENT_AFTER).
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Deliveries that were found missing so often, within that time, are those of another process.
const STRAYS: usize = 3;
const STRAYS_WITHIN: Duration = Duration::from_mins(1);

/// The deliveries of a durable consumer.
pub(super) struct Deliveries {
    consumer: PullConsumer,
    /// The number of the newest one here.
    newest: u64,
    /// The number of the newest one when the server was queried last.
    reported: u64,
    /// The time of the newest one, of the last query, or at which messages were not read for lack of room.
    changed: Instant,
}

impl Deliveries {
    pub(super) fn new(consumer: PullConsumer) -> Deliveries {
        let newest = consumer.cached_info().delivered.consumer_sequence;
        Deliveries {
            consumer,
            newest,
            reported: newest,
            changed: Instant::now(),
        }
    }

    /// Notes a delivery. Returns whether those before it arrived here as well.
    pub(super) fn arrived(&mut self, number: u64) -> bool {
        let is_next = number == self.newest + 1;
        self.newest = number;
        self.changed = Instant::now();
        is_next
    }

    /// Messages are not read for lack of room.
    pub(super) fn paused(&mut self) {
        self.changed = Instant::now();
    }

    /// Returns whether all deliveries of a second ago have arrived here, as far as known.
    pub(super) async fn are_complete(&mut self) -> Result<bool, Failure> {
        if self.changed.elapsed() < IDLE {
            return Ok(true);
        }
        if self.reported > self.newest {
            return Ok(false);
        }
        self.changed = Instant::now();
        match timeout(QUERY_TIMEOUT, self.consumer.info()).await {
            Ok(info) => self.reported = info.map_err(Failure::client)?.delivered.consumer_sequence,
            Err(_) => return Err(Failure::Ended("the server does not respond".to_owned())),
        }
        Ok(true)
    }
}

/// The times at which deliveries were found missing.
#[derive(Debug, Default)]
pub(super) struct Strays(VecDeque<Instant>);

impl Strays {
    /// Notes that deliveries arrived elsewhere. They are read from the stream after the reconnect.
    pub(super) fn add(&mut self, stream: &str) -> Failure {
        self.0.push_back(Instant::now());
        if self.0.len() > STRAYS {
            self.0.pop_front();
        }
        let then = if self.is_shared() {
            "another process reads it: the stream is read without it; use one durable consumer for each process, or none"
        } else {
            "a connection that was lost had them, or another process: they are read from the stream"
        };
        Failure::Ended(format!(
            "messages of the durable consumer of stream {stream} were delivered elsewhere: {then}"
        ))
    }

    /// Returns whether it happens again and again: the stream is read without the consumer.
    pub(super) fn is_shared(&self) -> bool {
        let has_many = self.0.len() == STRAYS;
        has_many
            && self
                .0
                .front()
                .zip(self.0.back())
                .is_some_and(|(first, last)| *last - *first < STRAYS_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::{STRAYS, Strays};

    #[test]
    fn deliveries_that_are_missing_again_and_again_are_those_of_another_process() {
        let mut strays = Strays::default();
        for count in 1..=STRAYS {
            let failure = strays.add("S").to_string();
            assert!(failure.contains("delivered elsewhere"), "{failure}");
            assert_eq!(strays.is_shared(), count == STRAYS);
        }
    }
}
