//! The thread of the adapter that appends to the log of a push cluster, and reads it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringmain_cluster::links::{LogLink, LogOptions};
use ringmain_cluster::log::ports;
use ringmain_gateway::model::{PushCluster, PushLog, PushRole};

/// Starts the adapter: it ends with the node. `None`: the cluster has no log.
///
/// # Errors
/// There is no thread.
pub(crate) fn start(cluster: &PushCluster) -> io::Result<Option<LogLink>> {
    let Some(log) = &cluster.log else {
        return Ok(None);
    };
    let options = LogOptions {
        partitions: log.partitions,
        takeover_time: log.takeover.time,
        takeover_bytes: log.takeover.bytes,
    };
    let port = match cluster.role {
        PushRole::PushGateway => None,
        PushRole::All | PushRole::PushServer => Some(spawn(log)?),
    };
    Ok(Some(LogLink {
        options,
        engine: log.engine.label(),
        digest: ringmain_sources::log::digest(log),
        port,
    }))
}

fn spawn(log: &Arc<PushLog>) -> io::Result<ringmain_cluster::log::NodePort> {
    let (node, adapter) = ports();
    let log = Arc::clone(log);
    let runtime = crate::nats::runtime()?;
    let builder = std::thread::Builder::new().name("ringmain-push-log".into());
    #[expect(
        clippy::disallowed_methods,
        reason = "the one thread that waits for the broker of the log, which no worker may"
    )]
    builder.spawn(move || {
        runtime.block_on(ringmain_sources::log::run(log, adapter));
        // Its clients may have tasks that wait for names.
        runtime.shutdown_timeout(Duration::from_secs(1));
    })?;
    Ok(node)
}
