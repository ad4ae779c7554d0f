//! When channels hand on what they hold, and when clients are given what is new: one timer for both.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ringmain_engine::backend::Time;

use crate::limits;
use crate::worker::Desk;

impl Desk {
    /// Puts what is new among what waits for clients whose moment has come, and sees to it that the next moment is not missed.
    /// Whether there are more.
    pub(crate) fn give_states(&self) -> bool {
        let now = self.cx.now().since(Time(0));
        self.local.borrow_mut().release(now);
        if self.is_sooner()
            && let Some(alarm) = &*self.alarm.borrow()
        {
            alarm.wake_by_ref();
        }
        let next = self.local.borrow().next_release();
        next.is_some_and(|next| next <= now)
    }

    /// Hands on what channels hold, and has clients given what they are behind with, when the time has come. That is done
    /// [elsewhere](Desk::give_states), some of them a turn: what is published meanwhile is taken in between.
    pub(crate) async fn pace(&self) {
        loop {
            let now = self.cx.now().since(Time(0));
            self.home.borrow_mut().release(now);
            let next = self.next_release();
            self.next_release.set(next);
            let wait = next.map_or(limits::NO_RELEASE, |next| next.saturating_sub(now));
            let mut sleep = pin!(self.cx.sleep(wait));
            poll_fn(|context| {
                *self.alarm.borrow_mut() = Some(context.waker().clone());
                match self.is_sooner() {
                    true => Poll::Ready(()),
                    false => sleep.as_mut().poll(context),
                }
            })
            .await;
            self.ring();
        }
    }

    /// Whether something is to be sent before the time that is waited for.
    fn is_sooner(&self) -> bool {
        self.next_release()
            .is_some_and(|next| self.next_release.get().is_none_or(|waits| next < waits))
    }

    /// When the next is due of what channels hold, and of the moments of clients; those that have come are being given already.
    fn next_release(&self) -> Option<Duration> {
        let now = self.cx.now().since(Time(0));
        let (home, local) = (self.home.borrow(), self.local.borrow());
        let moment = local.next_release().filter(|next| *next > now);
        [home.next_release(), moment].into_iter().flatten().min()
    }
}
