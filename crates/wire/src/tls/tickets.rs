//! Session tickets (RFC 5077, RFC 8446 §4.6.1): what a client brings back to resume its session on any worker.
//!
//! Owns their keys and how these change. Stateless: a ticket holds the session, and nothing is kept of it here.

use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;

use super::clock::Clock;

/// Seconds after which tickets are made with a new key; the one before opens them for as long again.
pub const TICKET_KEY_PERIOD: u64 = 6 * 3600;

const KEY_NAME: usize = 8;
const NONCE: usize = 12;

/// Keys of tickets, shared by all workers and kept while settings change; a clone is the same keys.
///
/// They change every [`TICKET_KEY_PERIOD`], looked at whenever one is used. A lock is held to copy a reference, twice in a
/// handshake and never after it.
#[derive(Clone, Debug)]
pub struct Tickets {
    keys: Arc<RwLock<Keys>>,
    clock: Clock,
}

#[derive(Clone, Debug)]
struct Keys {
    current: Arc<Key>,
    previous: Option<Arc<Key>>,
}

#[derive(Debug)]
struct Key {
    name: [u8; KEY_NAME],
    key: LessSafeKey,
    since: u64,
}

/// There is no randomness, or no cipher: nothing can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected random bytes for the keys of session tickets; the system gave none")]
pub struct NoKeys;

impl Tickets {
    /// New keys, whose time goes by `clock`.
    ///
    /// # Errors
    /// [`NoKeys`] when the system has no random bytes.
    pub fn new(clock: &Clock) -> Result<Self, NoKeys> {
        let current = Arc::new(Key::new(clock.seconds())?);
        let keys = Keys {
            current,
            previous: None,
        };
        Ok(Self {
            keys: Arc::new(RwLock::new(keys)),
            clock: clock.clone(),
        })
    }

    /// The clock by which sessions are judged.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Tickets that open only where the same is asked of clients: `policy` says what that is.
    pub(super) fn bound(&self, policy: [u8; 32]) -> BoundTickets {
        BoundTickets {
            tickets: self.clone(),
            policy,
        }
    }

    /// The keys of now.
    fn keys(&self) -> Keys {
        let now = self.clock.seconds();
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        if now < keys.current.since.saturating_add(TICKET_KEY_PERIOD) {
            return keys;
        }
        // Made outside of the lock; who comes second throws its own away.
        let Ok(new) = Key::new(now) else {
            return keys;
        };
        let mut shared = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if now >= shared.current.since.saturating_add(TICKET_KEY_PERIOD) {
            let old = std::mem::replace(&mut shared.current, Arc::new(new));
            let fresh = now < old.since.saturating_add(2 * TICKET_KEY_PERIOD);
            shared.previous = fresh.then_some(old);
        }
        shared.clone()
    }
}

impl Key {
    fn new(since: u64) -> Result<Self, NoKeys> {
        let mut name = [0; KEY_NAME];
        let mut bytes = [0; 32];
        rand::fill(&mut name).map_err(|_| NoKeys)?;
        rand::fill(&mut bytes).map_err(|_| NoKeys)?;
        // Many tickets under one key with random nonces: SIV forgives when two are the same.
        let key = UnboundKey::new(&AES_256_GCM_SIV, &bytes).map_err(|_| NoKeys)?;
        Ok(Self {
            name,
            key: LessSafeKey::new(key),
            since,
        })
    }
}

/// See [`Tickets::bound`].
#[derive(Debug)]
pub(super) struct BoundTickets {
    tickets: Tickets,
    policy: [u8; 32],
}

impl ProducesTickets for BoundTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        // The youngest ticket of a key lives that long, and none shorter.
        TICKET_KEY_PERIOD as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let key = self.tickets.keys().current;
        let mut nonce = [0; NONCE];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(KEY_NAME + NONCE + plain.len() + AES_256_GCM_SIV.tag_len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let sealed = &mut ticket[KEY_NAME + NONCE..];
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(self.policy), sealed)
            .ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(KEY_NAME)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE)?;
        let keys = self.tickets.keys();
        let key = [Some(keys.current), keys.previous]
            .into_iter()
            .flatten()
            .find(|key| key.name == name)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let length = key
            .key
            .open_in_place(nonce, Aad::from(self.policy), &mut plain)
            .ok()?
            .len();
        plain.truncate(length);
        Some(plain)
    }
}
