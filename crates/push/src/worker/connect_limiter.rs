//! Who is let in while many come at once: how many may be about to say who they are, and how many may come within a second, each
//! of one worker. Others are told to come back, before anything is done for them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_web::{Error, Result};

use crate::limits;
use crate::metrics::Refusal;
use crate::worker::Desk;

/// See the module; one worker's.
#[derive(Default)]
pub(crate) struct Doorway {
    under_way: Rc<Cell<u32>>,
    /// When those that have come would have, had they come evenly.
    evenly: Cell<Duration>,
}

/// Somebody who is about to say who it is. It counts until this is dropped.
pub(crate) struct Handshake(Rc<Cell<u32>>);

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Doorway {
    /// # Errors
    /// Why nobody may enter now.
    fn enter(&self, most: u32, rate: Option<u32>, now: Duration) -> std::result::Result<Handshake, Refusal> {
        if self.under_way.get() >= most {
            return Err(Refusal::Handshakes);
        }
        if let Some(rate) = rate {
            let second = Duration::from_secs(1);
            let span = second / rate.max(1);
            let next = self.evenly.get().max(now) + span;
            // As many as may come within a second may come at once.
            if next > now + second {
                return Err(Refusal::Rate);
            }
            self.evenly.set(next);
        }
        self.under_way.set(self.under_way.get() + 1);
        Ok(Handshake(Rc::clone(&self.under_way)))
    }
}

/// Returns the seconds after which a client should reconnect: random, so that clients that connected at once do not do so again.
pub(crate) fn come_back_after(cx: &Cx) -> u64 {
    1 + cx.random() % limits::COME_BACK_WITHIN.as_secs()
}

impl Desk {
    /// Lets somebody in who wants to connect.
    ///
    /// # Errors
    /// 503, with when to come back: drawn by lot, so that those who came at once do not do so again.
    pub(crate) fn enter(&self) -> Result<Handshake> {
        let options = self.options();
        let now = self.cx.now().since(Time(0));
        let entered = self
            .doorway
            .enter(options.handshakes, options.connects_per_second, now);
        entered.map_err(|why| {
            self.counts.refused(why);
            let after = come_back_after(&self.cx);
            let what = "more clients connect than are let in at once; come back a little later";
            Error::new(503, what).with_header("Retry-After", after.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Doorway;
    use crate::metrics::Refusal;

    #[test]
    fn so_many_at_once_are_let_in() {
        let doorway = Doorway::default();
        let now = Duration::from_secs(5);
        let first = doorway.enter(2, None, now).ok();
        let second = doorway.enter(2, None, now).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(doorway.enter(2, None, now).err(), Some(Refusal::Handshakes));
        drop(first);
        let third = doorway.enter(2, None, now).ok();
        assert!(third.is_some());
        drop((second, third));
        assert_eq!(doorway.under_way.get(), 0);
        assert_eq!(doorway.enter(0, None, now).err(), Some(Refusal::Handshakes));
    }

    #[test]
    fn so_many_within_a_second_are_let_in() {
        let doorway = Doorway::default();
        let enter = |rate, millis| {
            let entered = doorway.enter(u32::MAX, Some(rate), Duration::from_millis(millis));
            entered.map(drop).err()
        };
        for _ in 0..4 {
            assert_eq!(enter(4, 1000), None);
        }
        assert_eq!(enter(4, 1000), Some(Refusal::Rate));
        assert_eq!(enter(4, 1249), Some(Refusal::Rate));
        assert_eq!(enter(4, 1250), None);
        assert_eq!(enter(4, 1250), Some(Refusal::Rate));
        for _ in 0..4 {
            assert_eq!(
                enter(4, 9000),
                None,
                "what was not used is no more than a second's"
            );
        }
        assert_eq!(enter(4, 9000), Some(Refusal::Rate));
    }
}
