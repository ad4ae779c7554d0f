//! Logs that sources of this process are about to read: until they do, positions in them are unknown here.
//!
//! A client that reconnects to a process that has just started retries until then, instead of being told that it has missed something.

use std::sync::Arc;

use super::Home;
use super::channel::Channel;
use crate::mail::{Life, Since};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Names of channels that such a log may feed begin with one of these.
    prefixes: Vec<Arc<str>>,
}

impl Home {
    /// Replaces the prefixes of channels that are fed by logs that are not read yet.
    pub fn expect_logs(&mut self, prefixes: Vec<Arc<str>>) {
        self.expected.prefixes = prefixes;
    }

    /// Returns whether a client's position may be one of a log that is not read yet: it has to retry.
    pub(super) fn expects_log(&self, name: &str, since: Option<Since>) -> bool {
        let Some(Since {
            life: Life::Of(epoch),
            ..
        }) = since
        else {
            return false;
        };
        let is_fed = |prefix: &Arc<str>| name.starts_with(&**prefix);
        if !self.expected.prefixes.iter().any(is_fed) || self.logs.is_known(epoch) {
            return false;
        }
        // A predecessor's channel, or one that was published in since.
        let found = self.names.get(name);
        let channel = found.and_then(|index| self.channels[*index as usize].as_ref());
        channel
            .and_then(Channel::place)
            .is_none_or(|place| place.epoch != epoch)
    }
}
