//! The order of password checks: limited in checks and bytes, in turn by client. Pure: knows no clocks, wakers or requests.
//!
//! ```text
//! join ─┬─ room, no queue ─▶ Granted
//!       ├─ queue of its client, or of all, is full ─▶ Refused (or the longest queue loses its last entry)
//!       └─ Queued ─▶ release ─▶ next client in turn ─▶ granted
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::ClientAddr;
use crate::limits;

/// The queue of password checks.
#[derive(Debug, Default)]
pub(super) struct CheckQueue {
    checks: u32,
    bytes: u64,
    waiting: usize,
    clients: BTreeMap<ClientAddr, VecDeque<QueuedCheck>>,
    /// Clients with entries, the next one first.
    turns: VecDeque<ClientAddr>,
    last_ticket: u64,
}

#[derive(Debug)]
struct QueuedCheck {
    ticket: u64,
    bytes: u64,
}

/// The result of a request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRequest {
    Granted,
    Queued {
        ticket: u64,
        /// The entry that lost its position to this one.
        evicted: Option<u64>,
    },
    Refused,
}

impl CheckQueue {
    /// Requests a slot for a check that takes `bytes`.
    pub(super) fn request_slot(&mut self, client: ClientAddr, bytes: u64) -> SlotRequest {
        if self.waiting == 0 && self.fits(bytes) {
            self.add_running(bytes);
            return SlotRequest::Granted;
        }
        let queued = self.clients.get(&client).map_or(0, VecDeque::len);
        if queued >= limits::PASSWORDS_WAITING_CLIENT {
            return SlotRequest::Refused;
        }
        let evicted = if self.waiting >= limits::PASSWORDS_WAITING {
            match self.evict_longest(queued) {
                None => return SlotRequest::Refused,
                evicted => evicted,
            }
        } else {
            None
        };
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let entries = self.clients.entry(client).or_default();
        if entries.is_empty() {
            self.turns.push_back(client);
        }
        entries.push_back(QueuedCheck { ticket, bytes });
        self.waiting += 1;
        SlotRequest::Queued { ticket, evicted }
    }

    /// Ends a check. Returns the tickets whose turn it is now.
    pub(super) fn release(&mut self, bytes: u64) -> Vec<u64> {
        self.checks -= 1;
        self.bytes -= bytes;
        self.grant_next()
    }

    /// Removes a waiting entry. Returns the tickets whose turn it is now.
    pub(super) fn remove_entry(&mut self, client: ClientAddr, ticket: u64) -> Vec<u64> {
        let Some(entries) = self.clients.get_mut(&client) else {
            return Vec::new();
        };
        if let Some(at) = entries.iter().position(|entry| entry.ticket == ticket) {
            entries.remove(at);
            self.waiting -= 1;
        }
        self.remove_if_empty(client);
        self.grant_next()
    }

    /// Returns the number of running checks, and their bytes.
    #[cfg(test)]
    pub(super) fn running(&self) -> (u32, u64) {
        (self.checks, self.bytes)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Grants slots in turn. A large check is not overtaken: small ones could delay it without limit.
    fn grant_next(&mut self) -> Vec<u64> {
        let mut granted = Vec::new();
        while let Some(&client) = self.turns.front() {
            let first = self.clients.get(&client).and_then(VecDeque::front);
            let Some(bytes) = first.map(|entry| entry.bytes) else {
                self.turns.pop_front();
                continue;
            };
            if !self.fits(bytes) {
                break;
            }
            self.add_running(bytes);
            self.waiting -= 1;
            let entry = self.clients.get_mut(&client).and_then(VecDeque::pop_front);
            granted.extend(entry.map(|entry| entry.ticket));
            self.turns.rotate_left(1);
            self.remove_if_empty(client);
        }
        granted
    }

    /// Returns whether a check fits. One always does when none runs.
    fn fits(&self, bytes: u64) -> bool {
        self.checks == 0
            || (self.checks < limits::PASSWORD_CHECKS && self.bytes + bytes <= limits::PASSWORD_BYTES)
    }

    fn add_running(&mut self, bytes: u64) {
        self.checks += 1;
        self.bytes += bytes;
    }

    /// Evicts the last entry of the client with the most entries, if it has more than one in excess of `queued`.
    fn evict_longest(&mut self, queued: usize) -> Option<u64> {
        let (&client, entries) = self.clients.iter_mut().max_by_key(|(_, entries)| entries.len())?;
        if entries.len() <= queued + 1 {
            return None;
        }
        let evicted = entries.pop_back()?;
        self.waiting -= 1;
        self.remove_if_empty(client);
        Some(evicted.ticket)
    }

    fn remove_if_empty(&mut self, client: ClientAddr) {
        if self.clients.get(&client).is_some_and(VecDeque::is_empty) {
            self.clients.remove(&client);
            self.turns.retain(|other| *other != client);
        }
    }
}
