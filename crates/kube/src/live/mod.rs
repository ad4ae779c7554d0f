//! A gateway that follows the objects of a cluster.
//!
//! ```text
//! feeds (a list and a watch each) ─▶ store ─▶ burst? ─▶ translate ─▶ applied by every worker ─▶ statuses ─▶ writer (with the Lease)
//!   ▲                                  │
//!   └── Secrets, ConfigMaps by name ◀──┘ references
//! ```
//!
//! The loop is one task on the caller's runtime; feeds, the Lease and the writer are tasks beside it. A feed that fails, an API server
//! that is gone or a lost Lease do not change the served configuration. Knows neither files nor how a configuration is applied.

mod backoff;
mod events;
mod feed;
mod health;
mod lease;
mod nodes;
mod pace;
mod pool;
mod queue;
mod services;
mod turn;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ringmain_gateway::model::{Config, Endpoint, Name, Network};
use ringmain_gateway::table::Problem;
use ringmain_sys::clock;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use self::backoff::Backoff;
use self::events::{Finding, Reason, Recorder};
use self::feed::{Change, Feed, Topic};
pub use self::health::{Details, Failure, Health};
use self::lease::{Candidate, Term};
pub use self::nodes::follow_nodes;
use self::pool::Pool;
use self::turn::Turn;
use self::writer::{Wanted, Writer};
use crate::api::{Api, Error};
use crate::limits;
use crate::objects::{Key, Kind, Object};
use crate::store::Store;
use crate::translate::Location;

/// Settings of following a cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The `spec.controllerName` of the GatewayClasses that are served.
    pub controller: Arc<str>,
    /// The range that each Gateway has an address of.
    pub pool: Network,
    /// The name of this replica, unique among those of the controller.
    pub identity: String,
    /// The location of this process. A zone that is unknown is read from the Node, if its name is known and it may be read.
    pub location: Location,
}

/// The label of a Node with its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Completes a location by the zone of the Node. Waits for an API server that does not respond: nothing is served before it does.
async fn find_zone(api: &Api, location: &mut Location) {
    if let Some(node) = location.node.clone().filter(|_| location.zone.is_none()) {
        location.zone = zone_of_node(api, &node).await;
    }
}

/// Returns the zone of a Node, if it has one and may be read. Waits for an API server that does not respond.
pub async fn zone_of_node(api: &Api, node: &str) -> Option<Arc<str>> {
    let mut backoff = Backoff::new();
    loop {
        match api.read::<serde_json::Value>("/api/v1/nodes", node).await {
            Ok(found) => {
                let zone = found["metadata"]["labels"][ZONE_LABEL].as_str();
                match zone {
                    Some(zone) => log::info!("node {node} is in zone {zone}"),
                    None => log::info!("node {node} has no label {ZONE_LABEL}: no zone is preferred"),
                }
                return zone.map(Arc::from);
            }
            Err(error) if error.is_unreachable() => sleep(backoff.next()).await,
            Err(error) => {
                let next = "set the key `zone`, or permit reading Nodes";
                log::info!("the zone of node {node} is unknown, no zone is preferred: {error}; {next}");
                return None;
            }
        }
    }
}

/// A server of the parts that objects were translated to.
pub trait DataPlane: Send {
    /// Serves these parts in place of the last ones. Returns once all workers do, with the problems of the parts.
    fn replace(&mut self, parts: Config) -> Vec<Problem>;

    /// Replaces the endpoints of some upstreams of these parts, and nothing else.
    fn put_endpoints(&mut self, endpoints: Vec<(Name, Vec<Endpoint>)>);
}

/// Writes an instant, given since 1970, as RFC 3339 with seconds.
fn rfc3339(since_1970: Duration) -> String {
    format!("{:.0}", timestamp(since_1970))
}

fn timestamp(since_1970: Duration) -> Timestamp {
    SignedDuration::try_from(since_1970)
        .ok()
        .and_then(|since| Timestamp::from_duration(since).ok())
        .unwrap_or(Timestamp::MAX)
}

/// The path of a collection; with `None`, in all namespaces, or of a kind without them.
fn path(kind: Kind, namespace: Option<&str>) -> String {
    let group = match kind.group() {
        "" => format!("/api/{}", kind.version()),
        group => format!("/apis/{group}/{}", kind.version()),
    };
    let namespace = namespace.map(|namespace| format!("/namespaces/{namespace}"));
    format!("{group}{}/{}", namespace.unwrap_or_default(), kind.plural())
}

/// Follows a cluster until `stop` changes. `again` notifies of changes of other sources, upon which problems of objects may differ.
pub async fn run(
    api: Api,
    mut settings: Settings,
    plane: Box<dyn DataPlane>,
    health: Arc<Health>,
    mut stop: watch::Receiver<bool>,
    mut again: watch::Receiver<()>,
) {
    log::info!("following Gateways of {} at {}", settings.controller, api.url());
    health.begin(api.url(), &settings.controller, &settings.identity);
    tokio::select! {
        _ = stop.changed() => return,
        () = find_zone(&api, &mut settings.location) => {}
    }
    let (sender, mut changes) = mpsc::channel(limits::CHANGES);
    let (wanted, wishes) = watch::channel(Arc::new(Wanted::default()));
    let (leads, mut leading) = watch::channel(Term::default());
    let (returned, mut objects) = mpsc::channel(limits::CHANGES);
    let lease = lease::lease_name(&settings.controller);
    let candidate = Candidate::new(api.clone(), lease, settings.identity.clone(), Arc::clone(&health));
    let candidate = tokio::spawn(candidate.run(leads, stop.clone()));
    let (findings, found) = mpsc::channel(limits::EVENTS_QUEUED);
    let (controller, identity) = (&settings.controller, &settings.identity);
    let recorder = Recorder::new(api.clone(), controller, identity, found, leading.clone());
    let recorder = tokio::spawn(recorder.run());
    let writer = Writer::new(api.clone(), wishes, leading.clone(), returned, findings.clone());
    let writer = tokio::spawn(writer.run());
    let mut live = Live::new(api, settings, plane, health, wanted, sender, findings);
    loop {
        let begun = Instant::now();
        let wake = live.turn();
        let applied = Instant::now();
        let rested = applied + (applied - begun).min(limits::BURST);
        let wake = async move {
            match wake {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = stop.changed() => break,
            Some(change) = changes.recv() => live.take(change),
            Some(object) = objects.recv() => live.take_returned(object),
            Ok(()) = leading.changed() => {
                let leads = leading.borrow_and_update().is_current();
                live.health.set_leads(leads, clock::realtime());
                // Statuses of the holder report its own listeners: those that could not be opened are retried.
                live.is_stale = true;
            }
            Ok(()) = again.changed() => live.is_stale = true,
            () = wake => continue,
        }
        while let Ok(change) = changes.try_recv() {
            live.take(change);
        }
        live.take_burst(&mut changes, &mut objects, rested).await;
    }
    for feed in live.feeds.values() {
        feed.task.abort();
    }
    writer.abort();
    recorder.abort();
    // It releases the Lease.
    let _ = candidate.await;
}

struct Live {
    api: Api,
    settings: Settings,
    health: Arc<Health>,
    sender: mpsc::Sender<Change>,
    findings: mpsc::Sender<Finding>,
    feeds: BTreeMap<Topic, Running>,
    store: Store,
    pool: Pool,
    turn: Turn,
    /// Everything is to be translated and applied again, whatever has changed.
    is_stale: bool,
    /// Secrets and ConfigMaps that are referred to and not read: there are too many.
    unread: BTreeSet<Topic>,
    /// The instant at which the first change was received that is not applied yet.
    oldest: Option<Instant>,
}

struct Running {
    task: AbortHandle,
    since: Instant,
    /// Its first list has arrived, or failed in a way that a later one will not repair soon.
    is_listed: bool,
    /// The last failure was that the API server did not respond.
    is_unreachable: bool,
}

impl Live {
    fn new(
        api: Api,
        settings: Settings,
        plane: Box<dyn DataPlane>,
        health: Arc<Health>,
        wanted: watch::Sender<Arc<Wanted>>,
        sender: mpsc::Sender<Change>,
        findings: mpsc::Sender<Finding>,
    ) -> Live {
        let mut live = Live {
            pool: Pool::new(settings.pool),
            turn: Turn::new(&settings.controller, settings.location.clone(), plane, wanted),
            api,
            settings,
            health,
            sender,
            findings,
            feeds: BTreeMap::new(),
            store: Store::new(),
            is_stale: true,
            unread: BTreeSet::new(),
            oldest: None,
        };
        for kind in Kind::ALL {
            if !matches!(kind, Kind::Secret | Kind::ConfigMap) {
                live.start(Topic::all(kind));
            }
        }
        live
    }

    fn start(&mut self, topic: Topic) {
        let (changes, findings) = (self.sender.clone(), self.findings.clone());
        let feed = Feed::new(self.api.clone(), topic.clone(), changes, findings);
        let running = Running {
            task: tokio::spawn(feed.run()).abort_handle(),
            since: Instant::now(),
            is_listed: false,
            is_unreachable: false,
        };
        self.feeds.insert(topic, running);
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Objects {
                topic,
                put,
                deleted,
                is_list,
                received,
            } => {
                self.oldest.get_or_insert(received);
                let Some(running) = self.feeds.get_mut(&topic) else {
                    return;
                };
                self.is_stale |= is_list && !running.is_listed;
                running.is_listed |= is_list;
                running.is_unreachable = false;
                put.into_iter().for_each(|object| self.put(object));
                for key in deleted {
                    self.store.remove(&key);
                }
            }
            Change::Failed { topic, error } => self.fail(topic, &error),
            Change::Recovered { topic } => {
                log::info!("{topic}: delivered again");
                self.health.recover(&topic.to_string());
            }
        }
    }

    fn fail(&mut self, topic: Topic, error: &Error) {
        let Some(running) = self.feeds.get_mut(&topic) else {
            return;
        };
        if let Some(reason) = topic.kind.absence(error) {
            log::info!("{topic}: {reason}");
            self.health.recover(&topic.to_string());
        } else {
            log::warn!("{topic}: {error}; earlier objects are served, and it is retried");
            self.health
                .fail(topic.to_string(), error.to_string(), clock::realtime());
        }
        // A kind that is not installed has no objects. A Secret that may not be read is as one that does not exist. One that could not
        // be read because the API server is gone may exist: what refers to it is translated once the server is back.
        running.is_unreachable = error.is_unreachable();
        let is_listed = topic.kind.absence(error).is_some() || (error.is_denied() && topic.only.is_some());
        if is_listed && !std::mem::replace(&mut running.is_listed, true) {
            self.is_stale = true;
        }
        if let Some(key) = topic.key().filter(|_| error.is_denied()) {
            self.report(key, Reason::ReadForbidden, error.to_string());
        }
    }

    /// Reports a finding about an object that is in the store or does not exist.
    fn report(&self, key: Key, reason: Reason, note: String) {
        let uid = self.store.object(&key).map(|object| object.meta().uid.clone());
        events::report(&self.findings, key, uid.unwrap_or_default(), reason, note);
    }

    fn put(&mut self, object: Object) {
        match self.store.apply(object.clone()) {
            // Another replica may have published an address for the Gateway.
            Ok(_) => {
                self.is_stale |= match &object {
                    Object::Gateway(gateway) => self.pool.differs_from_status(gateway),
                    _ => false,
                };
            }
            Err(error) => {
                log::error!("{error}");
                let (key, uid) = (object.key(), &*object.meta().uid);
                events::report(
                    &self.findings,
                    key,
                    uid,
                    Reason::TooManyObjects,
                    error.to_string(),
                );
            }
        }
    }

    /// Takes the changes of a burst until an instant, which may have passed.
    async fn take_burst(
        &mut self,
        changes: &mut mpsc::Receiver<Change>,
        objects: &mut mpsc::Receiver<Object>,
        until: Instant,
    ) {
        while Instant::now() < until {
            tokio::select! {
                biased;
                Ok(Some(change)) = timeout_at(until, changes.recv()) => self.take(change),
                Ok(Some(object)) = timeout_at(until, objects.recv()) => self.take_returned(object),
                else => break,
            }
        }
    }

    /// An object as a write has returned it, which the watch will deliver, too. It must not replace a later version.
    fn take_returned(&mut self, object: Object) {
        let version = |object: &Object| object.meta().resource_version.parse::<u64>().unwrap_or(0);
        let known = self.store.object(&object.key());
        if known.is_some_and(|known| version(&known) < version(&object)) {
            self.put(object);
        }
    }

    /// Translates and applies changes, once all lists have arrived. Returns the instant of the next attempt.
    fn turn(&mut self) -> Option<Instant> {
        if self.is_stale || self.store.changes().affect_listeners() {
            self.follow_references();
        }
        let mut unlisted = self.feeds.iter().filter(|(_, running)| !running.is_listed);
        let (core, referenced): (Vec<_>, Vec<_>) =
            unlisted.by_ref().partition(|(topic, _)| topic.only.is_none());
        if !core.is_empty() {
            return None;
        }
        if referenced.iter().any(|(_, running)| running.is_unreachable) {
            return None;
        }
        let due = referenced
            .iter()
            .map(|(_, running)| running.since + limits::REFERENCED_WITHIN);
        if let Some(due) = due.max().filter(|due| *due > Instant::now()) {
            return Some(due);
        }
        let mut changes = self.store.take_changes();
        let is_stale = std::mem::take(&mut self.is_stale);
        if is_stale || changes.affect_listeners() {
            self.pool.assign(&self.turn.gateways(&self.store));
        }
        let (changed, is_applied) = if is_stale {
            (self.turn.translate(&self.store, &self.pool), true)
        } else {
            self.turn.update(&self.store, &self.pool, &changes)
        };
        let delay = self.oldest.take().map(|oldest| oldest.elapsed());
        if is_applied {
            self.count_translation(delay.unwrap_or_default());
        }
        changes.statuses.extend(changed);
        self.turn
            .publish(&self.store, &changes.statuses, clock::realtime());
        if !self.health.is_synced() {
            log::info!("all lists of the cluster have arrived, and are served");
            self.health.set_synced(clock::realtime());
        }
        None
    }

    /// Counts a translation that was served after this time.
    fn count_translation(&self, delay: Duration) {
        let objects = Kind::ALL.map(|kind| (kind.name(), self.store.count(kind)));
        self.health
            .count_translation(objects.into_iter(), delay, clock::realtime());
    }

    /// Has a feed for each Secret and ConfigMap that is referred to, and for no other.
    fn follow_references(&mut self) {
        let references = self.store.references(&self.settings.controller);
        let key = |kind| move |id: &crate::objects::Id| Key::new(kind, &*id.namespace, &*id.name);
        let secrets = references.secrets.iter().map(key(Kind::Secret));
        let config_maps = references.config_maps.iter().map(key(Kind::ConfigMap));
        let topics: Vec<_> = secrets.chain(config_maps).map(|key| Topic::one(&key)).collect();
        // Objects that are watched already take precedence over further references.
        let (read, new): (Vec<_>, Vec<_>) = topics
            .into_iter()
            .partition(|topic| self.feeds.contains_key(topic));
        let mut topics: Vec<_> = read.into_iter().chain(new).collect();
        let unread = topics.split_off(topics.len().min(limits::REFERENCED));
        self.report_unread(unread.into_iter().collect());
        let topics: BTreeSet<_> = topics.into_iter().collect();
        let is_unused = |topic: &Topic| topic.only.is_some() && !topics.contains(topic);
        for (topic, running) in self.feeds.extract_if(.., |topic, _| is_unused(topic)) {
            running.task.abort();
            self.health.recover(&topic.to_string());
            if let Some(key) = topic.key() {
                self.store.remove(&key);
            }
        }
        for topic in topics {
            if !self.feeds.contains_key(&topic) {
                self.start(topic);
            }
        }
    }

    fn report_unread(&mut self, unread: BTreeSet<Topic>) {
        let limit = limits::REFERENCED;
        if !unread.is_empty() && self.unread.is_empty() {
            log::error!(
                "{} Secrets and ConfigMaps are referred to; only {limit} are read",
                limit + unread.len()
            );
        }
        for key in unread.difference(&self.unread).filter_map(Topic::key) {
            let note = format!(
                "not read, and treated as missing: more than {limit} Secrets and ConfigMaps are referred to by Gateways, \
                 ListenerSets and BackendTLSPolicies"
            );
            self.report(key, Reason::TooManyReferences, note);
        }
        self.unread = unread;
    }
}
