//! Limits new connections, each per worker: how many have not been identified yet, and how many are accepted within a second. Others are
//! asked to retry before anything is done for them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_web::{Error, Result};

use super::PushWorker;
use crate::limits;
use crate::metrics::Refusal;

/// See the module.
#[derive(Default)]
pub(super) struct ConnectLimiter {
    in_flight: Rc<Cell<u32>>,
    /// The time at which the accepted connections would have arrived if evenly spaced.
    evenly_spaced: Cell<Duration>,
}

/// A connection that has not been identified yet. Counted until it is dropped.
pub(crate) struct Handshake(Rc<Cell<u32>>);

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl ConnectLimiter {
    /// # Errors
    /// The limit that is reached.
    fn try_admit(
        &self,
        limit: u32,
        rate: Option<u32>,
        now: Duration,
    ) -> std::result::Result<Handshake, Refusal> {
        if self.in_flight.get() >= limit {
            return Err(Refusal::Handshakes);
        }
        if let Some(rate) = rate {
            let second = Duration::from_secs(1);
            let span = second / rate.max(1);
            let next = self.evenly_spaced.get().max(now) + span;
            // The connections of a whole second may arrive at once.
            if next > now + second {
                return Err(Refusal::Rate);
            }
            self.evenly_spaced.set(next);
        }
        self.in_flight.set(self.in_flight.get() + 1);
        Ok(Handshake(Rc::clone(&self.in_flight)))
    }
}

/// Returns the seconds after which a client should reconnect: random, so that clients that connected at once do not do so again.
pub(crate) fn reconnect_after(cx: &Cx) -> u64 {
    1 + cx.random() % limits::RECONNECT_WITHIN.as_secs()
}

impl PushWorker {
    /// Admits a new connection.
    ///
    /// # Errors
    /// 503 with a random `Retry-After`, so that clients that connected at once do not do so again.
    pub(crate) fn admit_connection(&self) -> Result<Handshake> {
        if self.0.settings.refuses_clients.load(Ordering::Relaxed) {
            self.0.metrics.count_refused(Refusal::Role);
            return Err(self
                .retry_later("this node is a push-server, which has no clients: connect to a push-gateway"));
        }
        let options = self.options();
        let now = self.0.cx.now().since(Time(0));
        let limiter = &self.0.connect_limiter;
        let admitted = limiter.try_admit(options.pending_connects, options.connects_per_second, now);
        admitted.map_err(|refusal| {
            self.0.metrics.count_refused(refusal);
            self.retry_later("too many clients connect at once; retry a little later")
        })
    }

    fn retry_later(&self, message: &'static str) -> Error {
        let after = reconnect_after(&self.0.cx);
        Error::new(503, message).with_header("Retry-After", after.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ConnectLimiter;
    use crate::metrics::Refusal;

    #[test]
    fn connections_in_flight_are_limited() {
        let limiter = ConnectLimiter::default();
        let now = Duration::from_secs(5);
        let first = limiter.try_admit(2, None, now).ok();
        let second = limiter.try_admit(2, None, now).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(limiter.try_admit(2, None, now).err(), Some(Refusal::Handshakes));
        drop(first);
        let third = limiter.try_admit(2, None, now).ok();
        assert!(third.is_some());
        drop((second, third));
        assert_eq!(limiter.in_flight.get(), 0);
        assert_eq!(limiter.try_admit(0, None, now).err(), Some(Refusal::Handshakes));
    }

    #[test]
    fn connections_per_second_are_limited() {
        let limiter = ConnectLimiter::default();
        let admit = |rate, millis| {
            let admitted = limiter.try_admit(u32::MAX, Some(rate), Duration::from_millis(millis));
            admitted.map(drop).err()
        };
        for _ in 0..4 {
            assert_eq!(admit(4, 1000), None);
        }
        assert_eq!(admit(4, 1000), Some(Refusal::Rate));
        assert_eq!(admit(4, 1249), Some(Refusal::Rate));
        assert_eq!(admit(4, 1250), None);
        assert_eq!(admit(4, 1250), Some(Refusal::Rate));
        for _ in 0..4 {
            assert_eq!(
                admit(4, 9000),
                None,
                "unused connections add up to one second's at most"
            );
        }
        assert_eq!(admit(4, 9000), Some(Refusal::Rate));
    }
}
