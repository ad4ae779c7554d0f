//! Writes to the API server: statuses and Services, by the replica that holds the Lease.
//!
//! ```text
//! wanted (all that differs, newest only) ─▶ queue ─▶ at most WRITES_PER_SECOND ─┬─ done ─▶ the object as it is now
//!                                             ▲                                ├─ conflict ─▶ the object as it is now
//!                                             ├── a pause of this object ◀──────┼─ failed
//!                                             └── a pause of all ◀──────────────┴─ no API server
//! ```
//!
//! Pauses grow. Never in the way of serving: nothing waits for this task.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_sys::clock;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::backoff::Backoff;
use super::events::{self, Finding, Reason};
use super::lease::Term;
use super::pace::Pace;
use super::queue::{Next, Queue, Write};
use super::services;
use crate::api::{Api, Error};
use crate::limits::{WRITES_AT_ONCE, WRITES_PER_SECOND};
use crate::objects::{Id, Key, Kind, Object};

/// All that is to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// Services by namespace and name.
    pub(super) services: BTreeMap<Id, Arc<Value>>,
    /// Objects with the status that they should have, and with the version that it was made for; in the order of writing.
    pub(super) statuses: Vec<(Key, Arc<Value>)>,
}

pub(super) struct Writer {
    api: Api,
    wanted: watch::Receiver<Arc<Wanted>>,
    leads: watch::Receiver<Term>,
    /// Objects as the API server has returned them.
    returned: mpsc::Sender<Object>,
    findings: mpsc::Sender<Finding>,
    /// Services as they were last applied.
    applied: BTreeMap<Id, Arc<Value>>,
    queue: Queue,
    pace: Pace,
    /// While the API server does not respond.
    backoff: Backoff,
}

impl Writer {
    pub(super) fn new(
        api: Api,
        wanted: watch::Receiver<Arc<Wanted>>,
        leads: watch::Receiver<Term>,
        returned: mpsc::Sender<Object>,
        findings: mpsc::Sender<Finding>,
    ) -> Writer {
        Writer {
            api,
            wanted,
            leads,
            returned,
            findings,
            applied: BTreeMap::new(),
            queue: Queue::default(),
            pace: Pace::new(WRITES_PER_SECOND, WRITES_AT_ONCE),
            backoff: Backoff::new(),
        }
    }

    /// Runs until the sender of documents is gone.
    pub(super) async fn run(mut self) {
        loop {
            // Newer documents replace those in the queue.
            if self.wanted.has_changed().unwrap_or(false) {
                self.refill();
            }
            let leads = self.leads.borrow_and_update().is_current();
            let next = if leads {
                self.queue.next(clock::monotonic())
            } else {
                Next::Empty
            };
            let due = match next {
                Next::Ready(write) => {
                    self.pace.wait().await;
                    if self.leads.borrow().is_current() {
                        let result = self.write(&write).await;
                        self.finish(&write, result).await;
                    }
                    continue;
                }
                Next::At(due) => Some(due),
                Next::Empty => None,
            };
            tokio::select! {
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.refill(),
                    Err(_) => return,
                },
                changed = self.leads.changed() => match changed {
                    // Another replica may have written meanwhile.
                    Ok(()) => {
                        self.applied.clear();
                        self.queue.forget_failures();
                        self.refill();
                    }
                    Err(_) => return,
                },
                () = sleep(due.unwrap_or_default().saturating_sub(clock::monotonic())), if due.is_some() => {}
            }
        }
    }

    /// Removes a write from the queue, or has it wait for its next attempt. Only an API server that does not respond delays others.
    async fn finish(&mut self, write: &Write, result: Result<(), Error>) {
        let Err(error) = result else {
            self.backoff.reset();
            return self.queue.done(write);
        };
        if error.is_missing() {
            log::debug!("not written: {error}");
            self.queue.done(write);
        } else if error.is_permanent() {
            log::error!("not written: {error}");
            self.report_refused(write, &error).await;
            self.queue.done(write);
        } else {
            let is_unreachable = error.is_unreachable();
            let is_first = if is_unreachable {
                self.backoff.is_reset()
            } else {
                self.queue.fail(write, clock::monotonic())
            };
            let level = if is_first {
                log::Level::Warn
            } else {
                log::Level::Debug
            };
            log::log!(level, "not written yet: {error}");
            if is_unreachable {
                self.queue.postpone(write);
                sleep(self.backoff.next()).await;
            }
        }
    }

    /// Reports that the API server has refused a document: for a Service, at its Gateway.
    async fn report_refused(&self, write: &Write, error: &Error) {
        let (key, uid) = match write {
            Write::Service(id, service) => services::owner(id, service),
            Write::Status(key, _) => {
                let namespace = key.kind.is_namespaced().then_some(&*key.namespace);
                let collection = super::path(key.kind, namespace);
                let object = self.api.read::<Value>(&collection, &key.name).await;
                let uid = object.map_or(Value::Null, |mut object| object["metadata"]["uid"].take());
                (key.clone(), uid.as_str().unwrap_or_default().to_owned())
            }
        };
        events::report(&self.findings, key, uid, Reason::NotWritten, error.to_string());
    }

    fn refill(&mut self) {
        let wanted = Arc::clone(&self.wanted.borrow_and_update());
        self.applied.retain(|id, _| wanted.services.contains_key(id));
        let services = wanted.services.iter();
        let services = services.filter(|(id, service)| self.applied.get(id) != Some(service));
        let services = services.map(|(id, service)| Write::Service(id.clone(), Arc::clone(service)));
        let statuses = wanted.statuses.iter();
        let statuses = statuses.map(|(key, object)| Write::Status(key.clone(), Arc::clone(object)));
        self.queue.replace(services.chain(statuses));
    }

    async fn write(&mut self, write: &Write) -> Result<(), Error> {
        match write {
            Write::Service(id, service) => {
                let collection = super::path(Kind::Service, Some(&id.namespace));
                let present = self.api.read::<Value>(&collection, &id.name).await;
                let is_ours = match &present {
                    Err(error) if error.is_missing() => true,
                    Err(error) => return Err(error.clone()),
                    Ok(present) => services::have_one_owner(present, service),
                };
                if is_ours {
                    self.api.apply::<Value>(&collection, &id.name, service).await?;
                } else {
                    let note = format!(
                        "Service {id} is not written: there is a Service of that name that its Gateway does not own; rename the Service or the Gateway"
                    );
                    log::error!("{note}");
                    let (key, uid) = services::owner(id, service);
                    events::report(&self.findings, key, uid, Reason::ServiceConflict, note);
                }
                self.applied.insert(id.clone(), Arc::clone(service));
                Ok(())
            }
            Write::Status(key, object) => {
                let namespace = key.kind.is_namespaced().then_some(&*key.namespace);
                let collection = super::path(key.kind, namespace);
                let written = self
                    .api
                    .write_status::<Box<RawValue>>(&collection, &key.name, object)
                    .await;
                let object = match written {
                    Err(error) if error.is_conflict() => self.api.read(&collection, &key.name).await?,
                    written => written?,
                };
                match Object::parse(key.kind, object.get().as_bytes()) {
                    // The receiver ends with the whole.
                    Ok(object) => drop(self.returned.send(object).await),
                    Err(error) => log::debug!("{key}: {error}"),
                }
                Ok(())
            }
        }
    }
}
