//! Deltas between publications of a channel. Must not know subscribers.

pub mod fossil;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;

use crate::protocol::Published;

/// The delta of a publication from the one before it, once made. It belongs to the value: a clone has none, and it is not compared.
#[derive(Default)]
pub struct DeltaMemo(OnceLock<(Weak<Published>, Option<Bytes>)>);

impl Published {
    /// Returns the delta of the data from that of another publication, for all subscribers that have that one. `None`: there is none that
    /// is shorter than the data.
    ///
    /// The first result is stored, so subscribers on all workers and clients that recover share the deltas of consecutive publications.
    #[must_use]
    pub fn delta_from(&self, base: &Arc<Published>) -> Option<Bytes> {
        // As long as the weak pointer exists, no other publication has the address.
        if let Some((stored, delta)) = self.delta.0.get()
            && std::ptr::eq(stored.as_ptr(), Arc::as_ptr(base))
        {
            return delta.clone();
        }
        let delta = fossil::create(&base.data, &self.data).map(Bytes::from);
        let _ = self.delta.0.set((Arc::downgrade(base), delta.clone()));
        delta
    }
}

impl Clone for DeltaMemo {
    fn clone(&self) -> DeltaMemo {
        DeltaMemo::default()
    }
}

impl PartialEq for DeltaMemo {
    fn eq(&self, _: &DeltaMemo) -> bool {
        true
    }
}

impl fmt::Debug for DeltaMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeltaMemo")
    }
}
