//! Logs that sources of this process will read: until then, positions in them are unknown here.
//!
//! A client that reconnects to a process that has just started retries until then, instead of being notified of a gap.

use std::sync::Arc;

use super::ChannelShard;
use super::channel::Channel;
use crate::mail::{EpochFilter, RecoverFrom};

/// The channels that such logs may feed.
#[derive(Debug, Default)]
pub(super) struct ExpectedLogs {
    /// The prefixes of their names.
    prefixes: Vec<Arc<str>>,
}

impl ChannelShard {
    /// Replaces the prefixes of channels that are fed by logs which are not read yet.
    pub fn expect_logs(&mut self, prefixes: Vec<Arc<str>>) {
        self.expected_logs.prefixes = prefixes;
    }

    /// Returns whether a client's position may be one of a log that is not read yet: it must retry.
    pub(super) fn expects_log(&self, name: &str, recover_from: Option<RecoverFrom>) -> bool {
        let Some(RecoverFrom {
            epoch: EpochFilter::Exact(epoch),
            ..
        }) = recover_from
        else {
            return false;
        };
        let is_fed = |prefix: &Arc<str>| name.starts_with(&**prefix);
        if !self.expected_logs.prefixes.iter().any(is_fed) || self.logs.is_known(epoch) {
            return false;
        }
        // A channel of a predecessor, or one with publications since.
        let entry = self.names.get(name);
        let channel = entry.and_then(|index| self.channels[*index as usize].as_ref());
        channel
            .and_then(Channel::position)
            .is_none_or(|position| position.epoch != epoch)
    }
}
