//! The objects of one kind, or a single one, as the API server has them: listed once, then watched.
//!
//! ```text
//! list ─▶ watch ─┬─ ended, lost ─▶ watch again from the last version
//!   ▲            └─ version expired ─▶ list again: all others were deleted
//!   └─ failed: a pause, which grows
//! ```
//!
//! Knows no kind of object. While it fails, its objects stay as they were.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::events::{self, Finding, Reason};
use crate::api::{Api, Collection, Error, Event};
use crate::limits;
use crate::objects::{Id, Key, Kind, Object, ParseError, SERVICE_NAME};

/// The objects that a feed is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Topic {
    pub(super) kind: Kind,
    /// `None`: all of the kind.
    pub(super) only: Option<Id>,
    /// The EndpointSlices of this Service alone.
    pub(super) service: Option<Id>,
}

impl Kind {
    /// Returns the reason why a cluster has no objects of this kind, which is no failure: it is not installed, or it is experimental and the
    /// rights to read it are not granted (the chart's `rbac.experimental`).
    pub(super) fn absence(self, error: &Error) -> Option<&'static str> {
        match error {
            _ if error.is_missing() => Some("not installed in this cluster"),
            Error::Refused { status: 403, .. } if self.is_experimental() => {
                Some("no rights to read this experimental kind, whose objects are ignored")
            }
            _ => None,
        }
    }
}

/// A change that a feed reports.
#[derive(Debug)]
pub(super) enum Change {
    /// Objects that are new or have changed, and those that are gone.
    Objects {
        topic: Topic,
        put: Vec<Object>,
        deleted: Vec<Key>,
        /// `true`: these are all objects of the topic.
        is_list: bool,
        received: Instant,
    },
    /// The list or watch fails.
    Failed { topic: Topic, error: Error },
    /// The watch delivers again.
    Recovered { topic: Topic },
}

pub(super) struct Feed {
    api: Api,
    topic: Topic,
    collection: Collection,
    changes: mpsc::Sender<Change>,
    findings: mpsc::Sender<Finding>,
    known: BTreeSet<Key>,
    /// The version to watch from. `None`: the objects have to be listed.
    version: Option<String>,
    /// The failure that was reported last: whether it was for a missing right.
    failure: Option<bool>,
    /// Pauses after failures without anything delivered between them.
    backoff: Backoff,
}

/// The receiver of changes is gone.
struct Over;

impl Topic {
    pub(super) fn all(kind: Kind) -> Topic {
        Topic {
            kind,
            only: None,
            service: None,
        }
    }

    pub(super) fn one(key: &Key) -> Topic {
        Topic {
            kind: key.kind,
            only: Some(key.id()),
            service: None,
        }
    }

    /// The EndpointSlices of a Service.
    pub(super) fn endpoints_of(service: Id) -> Topic {
        Topic {
            kind: Kind::EndpointSlice,
            only: None,
            service: Some(service),
        }
    }

    /// The object, if it is a single one.
    pub(super) fn key(&self) -> Option<Key> {
        let id = self.only.as_ref()?;
        Some(Key::new(self.kind, &*id.namespace, &*id.name))
    }

    fn collection(&self) -> Collection {
        match (&self.only, &self.service) {
            (None, None) => Collection::all(super::path(self.kind, None)),
            (Some(id), _) => Collection::one(super::path(self.kind, Some(&id.namespace)), &id.name),
            (None, Some(service)) => {
                let path = super::path(self.kind, Some(&service.namespace));
                Collection::labelled(path, SERVICE_NAME, &service.name)
            }
        }
    }
}

impl std::fmt::Display for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.only, &self.service) {
            (None, None) => write!(f, "{}", self.kind.plural()),
            (Some(id), _) => write!(f, "{} {id}", self.kind),
            (None, Some(service)) => write!(f, "{} of the Service {service}", self.kind.plural()),
        }
    }
}

impl Feed {
    pub(super) fn new(
        api: Api,
        topic: Topic,
        changes: mpsc::Sender<Change>,
        findings: mpsc::Sender<Finding>,
    ) -> Feed {
        Feed {
            collection: topic.collection(),
            api,
            topic,
            changes,
            findings,
            known: BTreeSet::new(),
            version: None,
            failure: None,
            backoff: Backoff::new(),
        }
    }

    /// Runs until nothing receives changes any more.
    pub(super) async fn run(mut self) {
        loop {
            let begun = Instant::now();
            let result = match self.version.take() {
                None => self.list().await,
                Some(version) => self.watch(version).await,
            };
            let pause = match result {
                Err(Over) => return,
                Ok(Ok(())) if begun.elapsed() >= Duration::from_secs(1) || self.version.is_some() => {
                    self.backoff.reset();
                    Duration::ZERO
                }
                Ok(Ok(())) => self.backoff.next(),
                Ok(Err(error)) => {
                    let is_missing = error.is_missing();
                    if error.is_expired() {
                        log::info!(
                            "{}: listed again: the version that was watched has expired",
                            self.topic
                        );
                        self.version = None;
                    } else {
                        // The same line would follow again.
                        if matches!(error, Error::Unexpected { .. }) {
                            self.version = None;
                        }
                        if self.fail(error).await.is_err() {
                            return;
                        }
                    }
                    if is_missing {
                        limits::MISSING_AGAIN
                    } else {
                        self.backoff.next()
                    }
                }
            };
            sleep(pause).await;
        }
    }

    /// Lists the objects, and reports those that have changed or are gone.
    async fn list(&mut self) -> Result<Result<(), Error>, Over> {
        let listed = match self.api.list::<Box<RawValue>>(&self.collection).await {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(error)),
        };
        let received = Instant::now();
        let (mut put, mut keys) = (Vec::new(), BTreeSet::new());
        for item in &listed.items {
            if let Some(object) = self.parse(item) {
                // The key shares its texts with the object.
                keys.insert(object.key());
                put.push(object);
            } else {
                keys.extend(self.identify(item).map(|(key, _)| key));
            }
        }
        let deleted = self.known.difference(&keys).cloned().collect();
        self.known = keys;
        self.version = Some(listed.version);
        self.recover().await?;
        self.report(put, deleted, true, received).await.map(Ok)
    }

    /// Watches from a version until the watch ends.
    async fn watch(&mut self, version: String) -> Result<Result<(), Error>, Over> {
        let begun = self.api.watch(&self.collection, &version).await;
        self.version = Some(version);
        let mut watch = match begun {
            Ok(watch) => watch,
            Err(error) => return Ok(Err(error)),
        };
        self.recover().await?;
        loop {
            let next = watch.next::<Box<RawValue>>().await;
            let received = Instant::now();
            if matches!(next, Ok(Some(_))) {
                // A watch that has delivered continues soon after it is cut, however often that has happened before.
                self.backoff.reset();
            }
            match next {
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
                Ok(Some(Event::Bookmark(version))) => self.version = Some(version),
                Ok(Some(Event::Put(json))) => {
                    if let Some(object) = self.parse(&json) {
                        self.version = Some(object.meta().resource_version.clone());
                        self.known.replace(object.key());
                        self.report(vec![object], Vec::new(), false, received).await?;
                    } else if let Some((key, version)) = self.identify(&json) {
                        self.version = Some(version);
                        self.known.insert(key);
                    }
                }
                Ok(Some(Event::Deleted(json))) => {
                    let Some((key, version)) = self.identify(&json) else {
                        continue;
                    };
                    self.version = Some(version);
                    self.known.remove(&key);
                    self.report(Vec::new(), vec![key], false, received).await?;
                }
            }
        }
    }

    /// Returns the key and the version of an object, also of one that cannot be read otherwise.
    fn identify(&self, json: &RawValue) -> Option<(Key, String)> {
        Object::identify(self.topic.kind, json.get().as_bytes())
            .inspect_err(|error| log::error!("{}: an object is ignored: {error}", self.topic))
            .ok()
    }

    /// An object that cannot be read is logged and reported by an Event, and stays as it was.
    fn parse(&self, json: &RawValue) -> Option<Object> {
        let parsed = Object::parse(self.topic.kind, json.get().as_bytes());
        parsed.inspect_err(|error| self.ignore(json, error)).ok()
    }

    fn ignore(&self, json: &RawValue, error: &ParseError) {
        #[derive(Deserialize)]
        struct Head {
            metadata: Uid,
        }
        #[derive(Deserialize)]
        struct Uid {
            uid: String,
        }
        log::error!("{}: an object is ignored: {error}", self.topic);
        if let Ok((key, _)) = Object::identify(self.topic.kind, json.get().as_bytes()) {
            let uid = serde_json::from_str(json.get()).map_or(String::new(), |head: Head| head.metadata.uid);
            let note = format!("ignored, an earlier version stays in use: {error}");
            events::report(&self.findings, key, uid, Reason::Unreadable, note);
        }
    }

    async fn report(
        &self,
        put: Vec<Object>,
        deleted: Vec<Key>,
        is_list: bool,
        received: Instant,
    ) -> Result<(), Over> {
        let topic = self.topic.clone();
        self.send(Change::Objects {
            topic,
            put,
            deleted,
            is_list,
            received,
        })
        .await
    }

    async fn fail(&mut self, error: Error) -> Result<(), Over> {
        let is_denied = error.is_denied();
        if self.failure.replace(is_denied) == Some(is_denied) {
            log::debug!("{}: {error}", self.topic);
            return Ok(());
        }
        let topic = self.topic.clone();
        self.send(Change::Failed { topic, error }).await
    }

    async fn recover(&mut self) -> Result<(), Over> {
        if self.failure.take().is_none() {
            return Ok(());
        }
        let topic = self.topic.clone();
        self.send(Change::Recovered { topic }).await
    }

    async fn send(&self, change: Change) -> Result<(), Over> {
        self.changes.send(change).await.map_err(|_| Over)
    }
}
