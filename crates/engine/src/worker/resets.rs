//! Resets that a back-end has not reported, see [`Backend::may_miss_resets`](crate::backend::Backend::may_miss_resets).
//!
//! Owns the list of connections that have received bytes. One that is quiet after them begins to receive again, once: a new receive
//! reports a reset that came right behind the bytes.

use super::core::Core;
use super::record::Check;
use crate::backend::{Op, Slot, Time};
use crate::limits;

/// The connections to check, and when.
pub(crate) struct Resets {
    /// The back-end may miss some.
    are_missed: bool,
    unchecked: Vec<Slot>,
    /// [`Time::NEVER`]: there is nothing to check.
    pub(crate) check_at: Time,
}

impl Resets {
    pub(crate) fn new(are_missed: bool) -> Resets {
        Resets {
            are_missed,
            unchecked: Vec::new(),
            check_at: Time::NEVER,
        }
    }
}

impl Core {
    /// The connection has received bytes.
    pub(crate) fn check_later(&mut self, slot: Slot) {
        if !self.resets.are_missed {
            return;
        }
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if std::mem::replace(&mut connection.check, Check::Fed) != Check::Unlisted {
            return;
        }
        self.resets.unchecked.push(slot);
        if self.resets.check_at == Time::NEVER {
            self.resets.check_at = self.now().after(limits::RESET_CHECK_INTERVAL);
        }
    }

    /// Begins the receive of every connection again that has received nothing since the last check.
    pub(crate) fn check_resets(&mut self) {
        let now = self.now();
        if now < self.resets.check_at {
            return;
        }
        let mut unchecked = std::mem::take(&mut self.resets.unchecked);
        unchecked.retain(|slot| {
            let Some(connection) = self.connection(*slot) else {
                return false;
            };
            if connection.check == Check::Fed {
                connection.check = Check::Quiet;
                return true;
            }
            connection.check = Check::Unlisted;
            let flags = &mut connection.flags;
            if flags.recv_armed && !flags.recv_cancelled {
                // `on_recv_ended` arms it again.
                flags.recv_cancelled = true;
                self.backend.cancel(Op::Recv, *slot);
            }
            false
        });
        unchecked.shrink_to(limits::RESET_CHECK_KEPT);
        self.resets.check_at = if unchecked.is_empty() {
            Time::NEVER
        } else {
            now.after(limits::RESET_CHECK_INTERVAL)
        };
        self.resets.unchecked = unchecked;
    }
}
