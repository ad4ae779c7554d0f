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

use crate::gateway::change_notifier::Changes;
use crate::limits;
use crate::model::{JwtAlgorithm, JwtKeys, JwtProvider};
use crate::resolve::within;
use crate::upstream::UpstreamState;

/// A provider and its keys.
#[derive(Debug)]
pub(crate) struct Provider {
    /// Unique over the life of the process.
    pub(super) id: u64,
    pub(super) config: Arc<JwtProvider>,
    /// The upstream that serves its keys.
    pub(super) upstream: Option<Arc<UpstreamState>>,
    /// The version of the set.
    generation: AtomicU64,
    state: Mutex<State>,
    /// The number of waiting requests.
    parked: AtomicU32,
    /// Notified when a request needs a fetch.
    pub(super) wanted: Changes,
}

#[derive(Debug, Default)]
struct State {
    keys: Option<Arc<KeySet>>,
    /// The set as it was fetched.
    json: Vec<u8>,
    /// An attempt is in progress, or about to begin.
    is_busy: bool,
    /// The last attempt has failed.
    has_failed: bool,
    /// The start of the last attempt.
    begun: Option<Time>,
    /// The number of finished attempts.
    attempts: u64,
    /// Wakers of waiting requests, by ticket; at most [`limits::KEYS_PARKED`].
    wakers: BTreeMap<u64, Waker>,
    /// The number of tickets issued.
    tickets: u64,
    /// Names of keys that the set lacks, each with the instant until which that is assumed.
    unknown: BTreeMap<String, Time>,
}

/// The result of a key lookup.
#[derive(Debug)]
pub(super) enum Look {
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
pub(super) enum Patience {
    May,
    MayNot,
    /// It has waited: an attempt has ended since. A key that is missing then does not exist.
    Has,
}

impl Provider {
    /// Creates a provider. `last` is the previous one of the same name.
    pub(super) fn new(
        id: u64,
        config: &Arc<JwtProvider>,
        upstream: Option<Arc<UpstreamState>>,
        last: Option<&Provider>,
    ) -> Result<Provider, String> {
        let mut state = State {
            is_busy: matches!(config.keys, JwtKeys::Remote(_)),
            ..State::default()
        };
        match &config.keys {
            JwtKeys::Set(set) => state.keys = Some(Arc::new(KeySet::parse(set.expose())?)),
            // Keys that were fetched from the same source remain valid.
            JwtKeys::Remote(_) => {
                let same = |last: &&Provider| {
                    last.config.keys == config.keys && upstream_is(last, upstream.as_ref())
                };
                if let Some(last) = last.filter(same) {
                    let last = last.state();
                    state.keys.clone_from(&last.keys);
                    state.json.clone_from(&last.json);
                }
            }
        }
        Ok(Provider {
            id,
            config: Arc::clone(config),
            upstream,
            generation: AtomicU64::new(0),
            state: Mutex::new(state),
            parked: AtomicU32::new(0),
            wanted: Changes::default(),
        })
    }

    pub(super) fn is(&self, config: &JwtProvider, upstream: Option<&Arc<UpstreamState>>) -> bool {
        *self.config == *config && upstream_is(self, upstream)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Looks up the keys that can verify a signature.
    pub(super) fn look(
        &self,
        algorithm: JwtAlgorithm,
        key: Option<&str>,
        now: Time,
        patience: Patience,
    ) -> Look {
        let mut state = self.state();
        if let Some(keys) = &state.keys
            && (keys.has_candidate(algorithm, key) || matches!(self.config.keys, JwtKeys::Set(_)))
        {
            return match keys.has_candidate(algorithm, key) {
                true => Look::Keys(Arc::clone(keys), self.generation()),
                false => Look::Unknown,
            };
        }
        let known_to_lack = key.is_some_and(|key| state.unknown.get(key).is_some_and(|until| now < *until));
        if state.keys.is_some() && known_to_lack {
            return Look::Unknown;
        }
        let recent = state
            .begun
            .is_some_and(|begun| now.since(begun) < limits::KEYS_LEAST);
        let may_wait = match state.keys {
            // The fetching task retries on its own.
            None => state.is_busy,
            Some(_) => state.is_busy || !recent,
        };
        if may_wait && patience == Patience::May {
            return Look::Wait;
        }
        if state.keys.is_none() || state.has_failed || may_wait {
            return Look::Unavailable;
        }
        if patience == Patience::Has
            && let Some(key) = key
        {
            if state.unknown.len() >= limits::KEYS_UNKNOWN {
                state.unknown.retain(|_, until| now < *until);
            }
            if state.unknown.len() < limits::KEYS_UNKNOWN {
                let until = now.after(limits::KEY_UNKNOWN);
                state.unknown.insert(key.to_owned(), until);
            }
        }
        Look::Unknown
    }

    /// Waits for the end of an attempt; starts one if none is in progress. Returns whether it ended in time and the limit of waiters allowed it.
    pub(super) async fn wait(&self, cx: &Cx) -> bool {
        let Some(mut parked) = Parked::new(self) else {
            return false;
        };
        let (seen, asks) = {
            let mut state = self.state();
            state.tickets += 1;
            parked.ticket = state.tickets;
            (state.attempts, !state.is_busy)
        };
        if asks {
            self.wanted.tell();
        }
        let ended = poll_fn(|context| {
            let mut state = self.state();
            if state.attempts != seen {
                return Poll::Ready(());
            }
            state.wakers.insert(parked.ticket, context.waker().clone());
            Poll::Pending
        });
        within(cx, limits::KEYS_WAIT, ended).await.is_some()
    }

    /// Records the start of an attempt.
    pub(super) fn begin(&self, now: Time) {
        let mut state = self.state();
        state.is_busy = true;
        state.begun = Some(now);
    }

    /// Stores a fetched set.
    pub(super) fn fetched(&self, json: Vec<u8>) -> Result<(), String> {
        let mut state = self.state();
        if state.keys.is_none() || state.json != json {
            let keys = KeySet::parse(&json)?;
            state.keys = Some(Arc::new(keys));
            state.json = json;
            state.unknown.clear();
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Records the end of an attempt.
    pub(super) fn end(&self, failed: bool) {
        let mut state = self.state();
        state.is_busy = false;
        state.has_failed = failed;
        state.attempts += 1;
        let woken = std::mem::take(&mut state.wakers);
        drop(state);
        woken.into_values().for_each(Waker::wake);
    }

    /// Discards the set, which is too old.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.keys = None;
        state.json.clear();
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(super) fn has_keys(&self) -> bool {
        self.state().keys.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup for push clients never waits within a connection: the client is asked to reconnect later.
impl KeySource for Provider {
    fn look(&self, algorithm: JwtAlgorithm, key: Option<&str>, now: Time) -> ringmain_push::Look {
        match Provider::look(self, algorithm, key, now, Patience::May) {
            Look::Keys(keys, _) => ringmain_push::Look::Keys(keys),
            Look::Unknown => ringmain_push::Look::Unknown,
            Look::Unavailable => ringmain_push::Look::Unavailable,
            Look::Wait => {
                if !self.state().is_busy {
                    self.wanted.tell();
                }
                ringmain_push::Look::Unavailable
            }
        }
    }
}

fn upstream_is(provider: &Provider, upstream: Option<&Arc<UpstreamState>>) -> bool {
    match (&provider.upstream, upstream) {
        (Some(own), Some(other)) => Arc::ptr_eq(own, other),
        (None, None) => true,
        _ => false,
    }
}

/// A waiting request.
struct Parked<'p> {
    provider: &'p Provider,
    ticket: u64,
}

impl<'p> Parked<'p> {
    fn new(provider: &'p Provider) -> Option<Parked<'p>> {
        let before = provider.parked.fetch_add(1, Ordering::Relaxed);
        let parked = Parked { provider, ticket: 0 };
        (before < limits::KEYS_PARKED).then_some(parked)
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        // Its waker is removed, so that the list stays small however many requests leave during one attempt.
        self.provider.state().wakers.remove(&self.ticket);
        self.provider.parked.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the delay before the next attempt after consecutive failures, when there are no keys.
pub(super) fn again(failures: u32) -> Duration {
    let doubled = limits::KEYS_AGAIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(limits::KEYS_LEAST)
}
