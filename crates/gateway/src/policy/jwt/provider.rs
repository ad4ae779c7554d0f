//! A provider's keys: shared by the process, updated by one task; a request waits only if it needs a key that is missing.
//!
//! ```text
//! none, fetching ─▶ set ─▶ set, fetching ─┬─▶ set (unchanged, or another: cached verdicts are discarded)
//!      │ failed                           └─▶ set, failed ─▶ … too old ─▶ none, failed
//!      └─▶ none, failed: requests are refused until the next attempt
//! ```

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_jwt::KeySet;
use ringmain_push::KeySource;

use crate::gateway::change_notifier::ChangeNotifier;
use crate::limits;
use crate::model::{JwtAlgorithm, JwtKeys, JwtProvider};
use crate::resolve::with_timeout;
use crate::upstream::UpstreamState;

/// A provider and its keys.
#[derive(Debug)]
pub(crate) struct KeyProvider {
    /// Unique over the life of the process.
    pub(super) id: u64,
    pub(super) config: Arc<JwtProvider>,
    /// The upstream that serves its keys.
    pub(super) upstream: Option<Arc<UpstreamState>>,
    /// The version of the set.
    generation: AtomicU64,
    state: Mutex<KeyState>,
    /// The number of waiting requests.
    waiting: AtomicU32,
    /// Notified when a request needs a fetch.
    pub(super) demand: ChangeNotifier,
}

#[derive(Debug, Default)]
struct KeyState {
    keys: Option<Arc<KeySet>>,
    /// The set as it was fetched.
    json: Vec<u8>,
    /// An attempt is in progress, or about to begin.
    is_fetching: bool,
    /// The last attempt has failed.
    has_failed: bool,
    /// The start of the last attempt.
    last_attempt: Option<Time>,
    /// The number of finished attempts.
    attempts: u64,
    /// Wakers of waiting requests, by ticket; at most [`limits::KEYS_PARKED`].
    wakers: BTreeMap<u64, Waker>,
    /// The number of tickets issued.
    tickets: u64,
    /// Names of keys that the set lacks, each with the instant until which that is assumed.
    unknown_keys: BTreeMap<String, Time>,
}

/// The result of a key lookup.
#[derive(Debug)]
pub(super) enum KeyLookup {
    Keys(Arc<KeySet>, u64),
    /// An attempt to fetch keys may bring the needed one.
    Wait,
    /// The key does not exist.
    Unknown,
    /// It is unknown whether the key exists.
    Unavailable,
}

/// The permission of a lookup to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPermission {
    Allowed,
    Denied,
    /// It has waited: an attempt has ended since. A key that is missing then does not exist.
    Waited,
}

impl KeyProvider {
    /// Creates a provider. `last` is the previous one of the same name.
    pub(super) fn new(
        id: u64,
        config: &Arc<JwtProvider>,
        upstream: Option<Arc<UpstreamState>>,
        last: Option<&KeyProvider>,
    ) -> Result<KeyProvider, String> {
        let mut state = KeyState {
            is_fetching: matches!(config.keys, JwtKeys::Remote(_)),
            ..KeyState::default()
        };
        match &config.keys {
            JwtKeys::Set(set) => state.keys = Some(Arc::new(KeySet::parse(set.expose())?)),
            // Keys that were fetched from the same source remain valid.
            JwtKeys::Remote(_) => {
                let same = |last: &&KeyProvider| {
                    last.config.keys == config.keys && upstream_is(last, upstream.as_ref())
                };
                if let Some(last) = last.filter(same) {
                    let last = last.state();
                    state.keys.clone_from(&last.keys);
                    state.json.clone_from(&last.json);
                }
            }
        }
        Ok(KeyProvider {
            id,
            config: Arc::clone(config),
            upstream,
            generation: AtomicU64::new(0),
            state: Mutex::new(state),
            waiting: AtomicU32::new(0),
            demand: ChangeNotifier::default(),
        })
    }

    pub(super) fn has_same_config(
        &self,
        config: &JwtProvider,
        upstream: Option<&Arc<UpstreamState>>,
    ) -> bool {
        *self.config == *config && upstream_is(self, upstream)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Looks up the keys that can verify a signature.
    pub(super) fn find_keys(
        &self,
        algorithm: JwtAlgorithm,
        key: Option<&str>,
        now: Time,
        permission: WaitPermission,
    ) -> KeyLookup {
        let mut state = self.state();
        if let Some(keys) = &state.keys
            && (keys.has_candidate(algorithm, key) || matches!(self.config.keys, JwtKeys::Set(_)))
        {
            return if keys.has_candidate(algorithm, key) {
                KeyLookup::Keys(Arc::clone(keys), self.generation())
            } else {
                KeyLookup::Unknown
            };
        }
        let known_to_lack =
            key.is_some_and(|key| state.unknown_keys.get(key).is_some_and(|until| now < *until));
        if state.keys.is_some() && known_to_lack {
            return KeyLookup::Unknown;
        }
        let recent = state
            .last_attempt
            .is_some_and(|started_at| now.since(started_at) < limits::KEYS_LEAST);
        let may_wait = match state.keys {
            // The fetching task retries on its own.
            None => state.is_fetching,
            Some(_) => state.is_fetching || !recent,
        };
        if may_wait && permission == WaitPermission::Allowed {
            return KeyLookup::Wait;
        }
        if state.keys.is_none() || state.has_failed || may_wait {
            return KeyLookup::Unavailable;
        }
        if permission == WaitPermission::Waited
            && let Some(key) = key
        {
            if state.unknown_keys.len() >= limits::KEYS_UNKNOWN {
                state.unknown_keys.retain(|_, until| now < *until);
            }
            if state.unknown_keys.len() < limits::KEYS_UNKNOWN {
                let until = now.after(limits::KEY_UNKNOWN);
                state.unknown_keys.insert(key.to_owned(), until);
            }
        }
        KeyLookup::Unknown
    }

    /// Waits for the end of an attempt; starts one if none is in progress. Returns whether it ended in time and the limit of waiters allowed it.
    pub(super) async fn wait_for_attempt(&self, cx: &Cx) -> bool {
        let Some(mut waiter) = WaitGuard::new(self) else {
            return false;
        };
        let (generation, must_notify) = {
            let mut state = self.state();
            state.tickets += 1;
            waiter.ticket = state.tickets;
            (state.attempts, !state.is_fetching)
        };
        if must_notify {
            self.demand.notify();
        }
        let outcome = poll_fn(|context| {
            let mut state = self.state();
            if state.attempts != generation {
                return Poll::Ready(());
            }
            state.wakers.insert(waiter.ticket, context.waker().clone());
            Poll::Pending
        });
        with_timeout(cx, limits::KEYS_WAIT, outcome).await.is_some()
    }

    /// Records the start of an attempt.
    pub(super) fn start_attempt(&self, now: Time) {
        let mut state = self.state();
        state.is_fetching = true;
        state.last_attempt = Some(now);
    }

    /// Stores a fetched set.
    pub(super) fn store_keys(&self, json: Vec<u8>) -> Result<(), String> {
        let mut state = self.state();
        if state.keys.is_none() || state.json != json {
            let keys = KeySet::parse(&json)?;
            state.keys = Some(Arc::new(keys));
            state.json = json;
            state.unknown_keys.clear();
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Records the end of an attempt.
    pub(super) fn finish_attempt(&self, failed: bool) {
        let mut state = self.state();
        state.is_fetching = false;
        state.has_failed = failed;
        state.attempts += 1;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Discards the set, which is too old.
    pub(super) fn discard_keys(&self) {
        let mut state = self.state();
        state.keys = None;
        state.json.clear();
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(super) fn has_keys(&self) -> bool {
        self.state().keys.is_some()
    }

    fn state(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup for push clients never waits within a connection: the client is asked to reconnect later.
impl KeySource for KeyProvider {
    fn find_keys(&self, algorithm: JwtAlgorithm, key: Option<&str>, now: Time) -> ringmain_push::KeyLookup {
        match KeyProvider::find_keys(self, algorithm, key, now, WaitPermission::Allowed) {
            KeyLookup::Keys(keys, _) => ringmain_push::KeyLookup::Keys(keys),
            KeyLookup::Unknown => ringmain_push::KeyLookup::Unknown,
            KeyLookup::Unavailable => ringmain_push::KeyLookup::Unavailable,
            KeyLookup::Wait => {
                if !self.state().is_fetching {
                    self.demand.notify();
                }
                ringmain_push::KeyLookup::Unavailable
            }
        }
    }
}

fn upstream_is(provider: &KeyProvider, upstream: Option<&Arc<UpstreamState>>) -> bool {
    match (&provider.upstream, upstream) {
        (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
        (None, None) => true,
        _ => false,
    }
}

/// A waiting request.
struct WaitGuard<'p> {
    provider: &'p KeyProvider,
    ticket: u64,
}

impl<'p> WaitGuard<'p> {
    fn new(provider: &'p KeyProvider) -> Option<WaitGuard<'p>> {
        let before = provider.waiting.fetch_add(1, Ordering::Relaxed);
        let waiter = WaitGuard { provider, ticket: 0 };
        (before < limits::KEYS_PARKED).then_some(waiter)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        // Its waker is removed, so that the list stays small however many requests leave during one attempt.
        self.provider.state().wakers.remove(&self.ticket);
        self.provider.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the delay before the next attempt after consecutive failures, when there are no keys.
pub(super) fn retry_delay(failures: u32) -> Duration {
    let delay = limits::KEYS_AGAIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    delay.min(limits::KEYS_LEAST)
}
