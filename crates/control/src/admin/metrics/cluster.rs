//! The state of following Kubernetes. Kinds of objects are a fixed set; objects that are read by name count as one kind.

use super::MetricsPage;
use crate::admin::AdminContext;

/// Nothing without Kubernetes.
pub(super) fn write_cluster(page: &mut MetricsPage, inner: &AdminContext) {
    let Some(health) = inner.control.cluster().map(crate::cluster::Cluster::health) else {
        return;
    };
    let failing = health.details().failing;
    let oldest = failing.values().map(|failure| failure.since).min();
    let oldest = oldest.map_or(0.0, |since| since.as_secs_f64());
    for (name, kind, help, value) in [
        (
            "ringmain_kubernetes_synced",
            "gauge",
            "1 once all lists of the cluster have arrived and are served.",
            f64::from(u8::from(health.is_synced())),
        ),
        (
            "ringmain_kubernetes_leader",
            "gauge",
            "1 while this replica holds the Lease and writes statuses.",
            f64::from(u8::from(health.leads())),
        ),
        (
            "ringmain_kubernetes_translations_total",
            "counter",
            "Translations of objects that were applied.",
            health.translations() as f64,
        ),
        (
            "ringmain_kubernetes_delays_seconds_total",
            "counter",
            "The sum over these translations of the time from the first change that a watch delivered until every worker served it.",
            health.delays().as_secs_f64(),
        ),
        (
            "ringmain_kubernetes_failing_watches",
            "gauge",
            "Lists and watches that fail; earlier objects are served.",
            failing.len() as f64,
        ),
        (
            "ringmain_kubernetes_failing_since_seconds",
            "gauge",
            "The time at which the first failing list or watch began to fail, since 1970; 0 while none fails.",
            oldest,
        ),
    ] {
        page.metric(name, kind, help);
        page.sample(name, &[], value);
    }
}
