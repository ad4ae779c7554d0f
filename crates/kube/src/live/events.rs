//! Events about objects whose conditions cannot carry a finding: one for each object and reason, whose series counts repetitions.
//!
//! ```text
//! Finding ─▶ ledger ─▶ at most EVENTS_PER_SECOND, by the holder of the Lease ─┬─ new ─▶ created
//!                                                                            └─ repeated ─▶ its series, every EVENT_SERIES_EVERY
//! ```
//!
//! Never in the way of serving: findings that find no room are dropped, and were logged. Knows neither feeds nor translations.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_sys::clock;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::backoff::Backoff;
use super::lease::{Term, micro_time};
use super::pace::Pace;
use crate::api::{Api, Error};
use crate::limits::{EVENT_SERIES_EVERY, EVENTS, EVENTS_AT_ONCE, EVENTS_PER_SECOND};
use crate::objects::Key;

/// Bytes of a note, as the API allows.
const NOTE_BYTES: usize = 1024;

/// Characters of `reportingInstance`, as the API allows.
const INSTANCE_CHARS: usize = 128;

/// Characters of the name of an object.
const NAME_CHARS: usize = 253;

/// The reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// The object does not have the form of its kind. Its last version that had is served.
    Unreadable,
    /// There are more objects of its kind than are read.
    TooManyObjects,
    /// More Secrets and ConfigMaps are referred to than are read: this one is not.
    TooManyReferences,
    /// The rights to read it are missing.
    ReadForbidden,
    /// The Service of a Gateway has another owner.
    ServiceConflict,
    /// The API server has refused its status or Service for good.
    NotWritten,
}

/// A finding about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) key: Key,
    /// Empty if it is not known.
    pub(super) uid: String,
    pub(super) reason: Reason,
    /// A sentence with a next step.
    pub(super) note: String,
}

/// Writes Events.
pub(super) struct Recorder {
    api: Api,
    findings: mpsc::Receiver<Finding>,
    leads: watch::Receiver<Term>,
    ledger: Ledger,
    pace: Pace,
    backoff: Backoff,
    /// No write before this time, after a failure.
    resumes: Duration,
}

/// The Events that are known, by object and reason.
pub(super) struct Ledger {
    controller: String,
    instance: String,
    events: BTreeMap<(Key, Reason), Entry>,
}

#[derive(Debug)]
struct Entry {
    finding: Finding,
    /// The first and the last time, since 1970.
    first: Duration,
    last: Duration,
    count: u32,
    /// The count that the API server has. `None`: there is no Event yet, as far as is known.
    written: Option<u32>,
    /// A write is due from this time on.
    due: Duration,
}

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Due {
    of: (Key, Reason),
    count: u32,
    pub(super) at: Duration,
    /// The path of the Events of the namespace, and the name.
    pub(super) path: String,
    pub(super) name: String,
    pub(super) write: EventWrite,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum EventWrite {
    /// A new Event.
    Create(Value),
    /// The series of one that exists.
    Series(Value),
}

impl Reason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Unreadable => "Unreadable",
            Reason::TooManyObjects => "TooManyObjects",
            Reason::TooManyReferences => "TooManyReferences",
            Reason::ReadForbidden => "ReadForbidden",
            Reason::ServiceConflict => "ServiceConflict",
            Reason::NotWritten => "NotWritten",
        }
    }

    /// The action that did not succeed.
    fn action(self) -> &'static str {
        match self {
            Reason::ServiceConflict | Reason::NotWritten => "Write",
            _ => "Read",
        }
    }
}

impl Recorder {
    pub(super) fn new(
        api: Api,
        controller: &str,
        instance: &str,
        findings: mpsc::Receiver<Finding>,
        leads: watch::Receiver<Term>,
    ) -> Recorder {
        Recorder {
            api,
            findings,
            leads,
            ledger: Ledger::new(controller, instance),
            pace: Pace::new(EVENTS_PER_SECOND, EVENTS_AT_ONCE),
            backoff: Backoff::new(),
            resumes: clock::monotonic(),
        }
    }

    /// Runs until nothing reports findings any more.
    pub(super) async fn run(mut self) {
        loop {
            let leads = self.leads.borrow_and_update().is_current();
            let at = self.ledger.due().filter(|_| leads);
            let at = at.map(|at| at.max(self.resumes));
            tokio::select! {
                biased;
                finding = self.findings.recv() => match finding {
                    Some(finding) => self.ledger.record(finding, clock::monotonic(), clock::realtime(), leads),
                    None => return,
                },
                changed = self.leads.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(at.unwrap_or_default().saturating_sub(clock::monotonic())), if at.is_some() => self.write().await,
            }
        }
    }

    async fn write(&mut self) {
        self.pace.wait().await;
        let Some(due) = self.ledger.next().filter(|_| self.leads.borrow().is_current()) else {
            return;
        };
        let written = match &due.write {
            EventWrite::Create(event) => self.api.create::<Value>(&due.path, event).await.map(drop),
            EventWrite::Series(series) => {
                let patched = self.api.merge::<Value>(&due.path, &due.name, series).await;
                patched.map(drop)
            }
        };
        match (written, &due.write) {
            (Ok(()), _) => {
                self.backoff.reset();
                self.ledger.written(&due, clock::monotonic());
            }
            // Of another replica, or of an earlier process: its series continues.
            (Err(error), EventWrite::Create(_)) if error.is_conflict() => self.resume(&due).await,
            // Events expire.
            (Err(error), EventWrite::Series(_)) if error.is_missing() => self.ledger.expired(&due),
            (Err(error), _) if error.is_unreachable() => {
                log::debug!("Event not written yet: {error}");
                self.resumes = clock::monotonic() + self.backoff.next();
            }
            (Err(error), _) => self.give_up(&due, &error),
        }
    }

    async fn resume(&mut self, due: &Due) {
        match self.api.read::<Value>(&due.path, &due.name).await {
            Ok(event) => {
                let count = event["series"]["count"].as_u64().unwrap_or(1);
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                self.ledger.resume(due, count, clock::monotonic());
            }
            Err(error) => self.give_up(due, &error),
        }
    }

    /// Retries an Event that was refused after EVENT_SERIES_EVERY; one that never succeeds is forgotten, such as that of a namespace that is
    /// gone.
    fn give_up(&mut self, due: &Due, error: &Error) {
        let level = if self.backoff.is_reset() {
            log::Level::Warn
        } else {
            log::Level::Debug
        };
        log::log!(level, "Event not written: {error}");
        // The first of several failures is logged.
        self.backoff.next();
        if error.is_permanent() || error.is_missing() {
            self.ledger.forget(due);
        } else {
            self.ledger.retry_later(due, clock::monotonic());
        }
    }
}

impl Ledger {
    pub(super) fn new(controller: &str, instance: &str) -> Ledger {
        Ledger {
            controller: controller.to_owned(),
            instance: instance.chars().take(INSTANCE_CHARS).collect(),
            events: BTreeMap::new(),
        }
    }

    /// Counts a finding. A new one at the limit replaces the one that was found least recently.
    /// Repetitions count only while this replica writes: otherwise another one counts them.
    pub(super) fn record(&mut self, finding: Finding, now: Duration, since_1970: Duration, leads: bool) {
        let id = (finding.key.clone(), finding.reason);
        // Another object of the same name has an Event of its own.
        let known = self.events.get_mut(&id);
        if let Some(entry) = known.filter(|entry| entry.finding.uid == finding.uid) {
            entry.count = entry.count.saturating_add(u32::from(leads));
            entry.last = since_1970;
            entry.finding = finding;
            return;
        }
        if self.events.len() >= EVENTS && !self.events.contains_key(&id) {
            let oldest = self.events.iter().min_by_key(|(_, entry)| entry.last);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                self.events.remove(&oldest);
            }
        }
        let entry = Entry {
            finding,
            first: since_1970,
            last: since_1970,
            count: 1,
            written: None,
            due: now,
        };
        self.events.insert(id, entry);
    }

    /// The time of the next write.
    pub(super) fn due(&self) -> Option<Duration> {
        self.pending().map(|(_, entry)| entry.due).min()
    }

    /// The next write.
    pub(super) fn next(&self) -> Option<Due> {
        let (id, entry) = self.pending().min_by_key(|(_, entry)| entry.due)?;
        let name = event_name(&entry.finding);
        // Those of objects without a namespace have this one.
        let namespace = match &*id.0.namespace {
            "" => "default",
            namespace => namespace,
        };
        let write = match entry.written {
            None => EventWrite::Create(self.event(&name, namespace, entry)),
            Some(_) => EventWrite::Series(json!({"series": series(entry)})),
        };
        Some(Due {
            of: id.clone(),
            count: entry.count,
            at: entry.due,
            path: format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"),
            name,
            write,
        })
    }

    /// The write has succeeded.
    pub(super) fn written(&mut self, due: &Due, now: Duration) {
        if let Some(entry) = self.events.get_mut(&due.of) {
            entry.written = Some(due.count);
            entry.due = now + EVENT_SERIES_EVERY;
        }
    }

    /// There is an Event with this count already, which the findings of this replica repeat.
    pub(super) fn resume(&mut self, due: &Due, count: u32, now: Duration) {
        if let Some(entry) = self.events.get_mut(&due.of) {
            entry.count = entry.count.saturating_add(count);
            entry.written = Some(count);
            entry.due = now + EVENT_SERIES_EVERY;
        }
    }

    /// The Event no longer exists: it is created again.
    pub(super) fn expired(&mut self, due: &Due) {
        if let Some(entry) = self.events.get_mut(&due.of) {
            entry.written = None;
            entry.first = entry.last;
            entry.count = 1;
        }
    }

    pub(super) fn forget(&mut self, due: &Due) {
        self.events.remove(&due.of);
    }

    /// The write was refused.
    pub(super) fn retry_later(&mut self, due: &Due, now: Duration) {
        if let Some(entry) = self.events.get_mut(&due.of) {
            entry.due = now + EVENT_SERIES_EVERY;
        }
    }

    fn pending(&self) -> impl Iterator<Item = (&(Key, Reason), &Entry)> {
        let is_pending = |entry: &Entry| entry.written.is_none_or(|written| entry.count > written);
        self.events.iter().filter(move |(_, entry)| is_pending(entry))
    }

    fn event(&self, name: &str, namespace: &str, entry: &Entry) -> Value {
        let Finding {
            key,
            uid,
            reason,
            note,
        } = &entry.finding;
        let mut regarding = json!({
            "apiVersion": key.kind.api_version(),
            "kind": key.kind.name(),
            "name": key.name,
        });
        if key.kind.is_namespaced() {
            regarding["namespace"] = json!(key.namespace);
        }
        if !uid.is_empty() {
            regarding["uid"] = json!(uid);
        }
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(entry.first),
            "type": "Warning",
            "reason": reason.name(),
            "action": reason.action(),
            "note": cut(note),
            "regarding": regarding,
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        });
        if entry.count > 1 {
            event["series"] = series(entry);
        }
        event
    }
}

fn series(entry: &Entry) -> Value {
    json!({"count": entry.count, "lastObservedTime": micro_time(entry.last)})
}

/// The same in each replica and after a restart, so that there is one Event.
fn event_name(Finding { key, uid, reason, .. }: &Finding) -> String {
    let hash = crate::hash::hash(&format!("{key} {uid} {}", reason.name()));
    let beginning: String = key.name.chars().take(NAME_CHARS - 17).collect();
    format!("{}.{hash:016x}", beginning.trim_end_matches(['.', '-']))
}

fn cut(note: &str) -> &str {
    &note[..note.floor_char_boundary(NOTE_BYTES)]
}

/// Reports a finding about an object. Without room it is dropped: callers log it.
pub(super) fn report(
    findings: &mpsc::Sender<Finding>,
    key: Key,
    uid: impl Into<String>,
    reason: Reason,
    note: String,
) {
    let uid = uid.into();
    // The receiver ends with the whole.
    let _ = findings.try_send(Finding {
        key,
        uid,
        reason,
        note,
    });
}
