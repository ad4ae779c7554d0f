//! A followed Kubernetes cluster, as the administration shows it: one document for the API and the page. Instants are in seconds since
//! 1970. Knows no objects.

use std::collections::BTreeMap;

use serde::Serialize;

use super::AdminContext;

/// The state of following a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ClusterStatus {
    /// The URL of the API server.
    pub(super) api_server: String,
    /// The controller name of the served GatewayClasses.
    pub(super) controller: String,
    /// The name of this replica.
    pub(super) identity: String,
    /// All lists have arrived and are served.
    pub(super) synced: bool,
    pub(super) synced_at: Option<u64>,
    /// This replica writes statuses.
    pub(super) leader: bool,
    pub(super) leader_since: Option<u64>,
    /// The replica that holds the Lease; `None`: unknown.
    pub(super) holder: Option<String>,
    pub(super) translations: u64,
    pub(super) translated_at: Option<u64>,
    /// The number of objects by kind.
    pub(super) objects: BTreeMap<&'static str, usize>,
    pub(super) failing: Vec<FailingWatch>,
    /// Further ones, which are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) more_failing: usize,
    /// The problems of the served configuration.
    pub(super) problems: Vec<String>,
    /// Further ones, which are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) more_problems: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl ClusterStatus {
    /// Limits the lists of failing watches and problems to `most` entries, and counts the rest.
    pub(super) fn truncate(&mut self, most: usize) {
        self.more_failing += self.failing.len().saturating_sub(most);
        self.failing.truncate(most);
        self.more_problems += self.problems.len().saturating_sub(most);
        self.problems.truncate(most);
    }
}

/// A list or a watch that fails: earlier objects are served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct FailingWatch {
    pub(super) objects: String,
    pub(super) error: String,
    pub(super) since: u64,
}

/// Returns the state of following a cluster. `None`: the configuration has none.
#[cfg(feature = "kubernetes")]
pub(super) fn cluster_status(inner: &AdminContext) -> Option<ClusterStatus> {
    let health = inner.control.cluster()?.health();
    let details = health.details();
    let failing = details
        .failing
        .into_iter()
        .map(|(objects, failure)| FailingWatch {
            objects,
            error: failure.error,
            since: failure.since.as_secs(),
        });
    Some(ClusterStatus {
        api_server: details.api_server,
        controller: details.controller,
        identity: details.identity,
        synced: health.is_synced(),
        synced_at: details.synced_at.map(|at| at.as_secs()),
        leader: health.leads(),
        leader_since: details.leads_since.map(|since| since.as_secs()),
        holder: details.holder,
        translations: health.translations(),
        translated_at: details.translated_at.map(|at| at.as_secs()),
        objects: details.objects,
        failing: failing.collect(),
        more_failing: 0,
        problems: inner.gateway.problems().iter().map(ToString::to_string).collect(),
        more_problems: 0,
    })
}

/// A build without the feature follows none.
#[cfg(not(feature = "kubernetes"))]
pub(super) fn cluster_status(_: &AdminContext) -> Option<ClusterStatus> {
    None
}
