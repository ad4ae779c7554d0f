//! The Lease that one of several replicas holds: that one writes statuses. Every replica serves.
//!
//! ```text
//! free, or not renewed for LEASE_SECONDS ─▶ ours, renewed every LEASE_EVERY
//!                  ▲                          └─ not renewed for LEASE_RENEW_WITHIN ─▶ not ours any more
//!                  └── released at the end ◀──┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use ringmain_sys::clock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::Health;
use crate::api::{Api, Error};
use crate::limits::{LEASE_EVERY, LEASE_RENEW_WITHIN, LEASE_SECONDS};

/// The name of the Lease for a controller name: `ringmain.dev/gateway` has `ringmain.dev-gateway`.
pub(super) fn lease_name(controller: &str) -> String {
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '.' || char == '-';
    let name = controller.chars().map(|char| if fits(char) { char } else { '-' });
    name.collect::<String>().to_ascii_lowercase()
}

/// Writes an instant, given since 1970, as RFC 3339 with microseconds, as fields of a Lease have it.
pub(super) fn micro_time(since_1970: Duration) -> String {
    format!("{:.6}", super::timestamp(since_1970))
}

/// A replica that holds a Lease, or wants to.
pub(super) struct Candidate {
    api: Api,
    collection: String,
    name: String,
    identity: String,
    /// Is notified of the holder.
    health: Arc<Health>,
    /// The Lease as another replica last renewed it, with the instant at which that was first seen: clocks of other hosts are not trusted.
    seen: Option<(Spec, Instant)>,
    /// The last renewal.
    renewed: Option<Instant>,
    /// The last notification was of holding the Lease.
    has_told: bool,
}

/// The instant until which a replica may write. `None`: it may not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Term(Option<Instant>);

impl Term {
    /// Returns whether a write may begin now. To be called before each: a process that was stopped and continued learns of the end
    /// in no other way.
    pub(super) fn is_current(self) -> bool {
        self.0.is_some_and(|end| Instant::now() < end)
    }
}

#[derive(Deserialize)]
struct Lease {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<u64>,
}

impl Candidate {
    pub(super) fn new(api: Api, name: String, identity: String, health: Arc<Health>) -> Candidate {
        let namespace = api.namespace().to_owned();
        Candidate {
            collection: format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            api,
            name,
            identity,
            health,
            seen: None,
            renewed: None,
            has_told: false,
        }
    }

    /// Holds the Lease whenever it can until `stop` changes, then releases it. `leads` is notified of the beginning and of the end,
    /// not of renewals.
    pub(super) async fn run(mut self, leads: watch::Sender<Term>, mut stop: watch::Receiver<bool>) {
        let mut has_failed = false;
        loop {
            let within = self.left().unwrap_or(LEASE_RENEW_WITHIN) / 2;
            let attempt = timeout(within.max(Duration::from_millis(100)), self.attempt()).await;
            match attempt {
                Ok(Ok(())) => has_failed = false,
                failed => {
                    let why = failed.map_or_else(
                        |_| "the API server has not responded in time".to_owned(),
                        |result| result.err().map(|error| error.to_string()).unwrap_or_default(),
                    );
                    if !std::mem::replace(&mut has_failed, true) {
                        log::warn!("the Lease {} is not renewed: {why}", self.name);
                    }
                }
            }
            self.publish(&leads);
            let pause = if has_failed { LEASE_EVERY / 4 } else { LEASE_EVERY };
            tokio::select! {
                () = sleep(pause) => {}
                _ = stop.changed() => break,
                // Nothing is written any more.
                () = leads.closed() => break,
            }
        }
        if self.left().is_some() {
            leads.send_replace(Term::default());
            let _ = timeout(Duration::from_secs(1), self.release()).await;
        }
    }

    fn publish(&mut self, leads: &watch::Sender<Term>) {
        let term = Term(self.renewed.map(|renewed| renewed + LEASE_RENEW_WITHIN));
        let holds = term.is_current();
        let is_new = std::mem::replace(&mut self.has_told, holds) != holds;
        leads.send_if_modified(|last| {
            // A term that had expired before it was renewed, because the process was stopped, begins again.
            let begins = holds && !last.is_current();
            *last = term;
            is_new || begins
        });
        if is_new {
            let verb = if holds { "starts" } else { "stops" };
            log::info!(
                "Lease {} of {}: this replica {verb} writing statuses",
                self.name,
                self.api.namespace()
            );
        }
    }

    /// The time for which the Lease is ours without being renewed. `None`: it is not ours.
    fn left(&self) -> Option<Duration> {
        let left = LEASE_RENEW_WITHIN.checked_sub(self.renewed?.elapsed());
        left.filter(|left| !left.is_zero())
    }

    /// Takes or renews the Lease, or finds that it is another replica's.
    async fn attempt(&mut self) -> Result<(), Error> {
        let at = Instant::now();
        let taken = match self.api.read::<Lease>(&self.collection, &self.name).await {
            Err(error) if error.is_missing() => {
                let object = self.object(None, &Spec::default());
                self.api.create::<Value>(&self.collection, &object).await
            }
            Err(error) => return Err(error),
            Ok(lease) if self.may_take(&lease.spec) => {
                let object = self.object(Some(&lease.metadata.resource_version), &lease.spec);
                self.api
                    .replace::<Value>(&self.collection, &self.name, &object)
                    .await
            }
            Ok(lease) => {
                self.health.set_holder(lease.spec.holder_identity.as_deref());
                self.renewed = None;
                return Ok(());
            }
        };
        match taken {
            Ok(_) => {
                self.health.set_holder(Some(&self.identity));
                self.renewed = Some(at);
                self.seen = None;
                Ok(())
            }
            // Another replica was faster. Its renewal is seen at the next attempt.
            Err(error) if error.is_conflict() => {
                self.renewed = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn may_take(&mut self, spec: &Spec) -> bool {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == self.identity {
            return true;
        }
        let lasts = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(LEASE_SECONDS));
        match &self.seen {
            Some((last, since)) if last == spec => since.elapsed() > lasts,
            _ => {
                self.seen = Some((spec.clone(), Instant::now()));
                false
            }
        }
    }

    /// The Lease as ours.
    fn object(&self, version: Option<&str>, last: &Spec) -> Value {
        let now = micro_time(clock::realtime());
        let is_ours = last.holder_identity.as_deref() == Some(&self.identity);
        let acquired = last
            .acquire_time
            .clone()
            .filter(|_| is_ours)
            .unwrap_or_else(|| now.clone());
        let transitions = last.lease_transitions.unwrap_or(0) + u64::from(!is_ours && version.is_some());
        self.document(
            version,
            &json!({
                "holderIdentity": self.identity,
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": transitions,
            }),
        )
    }

    fn document(&self, version: Option<&str>, spec: &Value) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "resourceVersion": version},
            "spec": spec,
        })
    }

    /// Gives the Lease up, so that another replica need not wait until it expires.
    async fn release(&self) -> Result<(), Error> {
        let lease = self.api.read::<Lease>(&self.collection, &self.name).await?;
        if lease.spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        let spec = json!({
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": micro_time(clock::realtime()),
            "leaseTransitions": lease.spec.lease_transitions,
        });
        let object = self.document(Some(&lease.metadata.resource_version), &spec);
        self.api
            .replace::<Value>(&self.collection, &self.name, &object)
            .await
            .map(drop)
    }
}
