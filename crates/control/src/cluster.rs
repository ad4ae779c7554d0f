//! The thread that follows a Kubernetes cluster, if the configuration has one and the build the feature `kubernetes`.
//!
//! Owns the thread and its runtime. Knows no objects: `ringmain_kube` does.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
#[cfg(feature = "kubernetes")]
use std::time::Duration;

#[cfg(feature = "kubernetes")]
use ringmain_gateway::model::{Config, Endpoint, Name};
#[cfg(feature = "kubernetes")]
use ringmain_gateway::table::Problem;
#[cfg(feature = "kubernetes")]
use ringmain_kube::api::Api;
#[cfg(feature = "kubernetes")]
use ringmain_kube::live::{self, DataPlane, Health};
#[cfg(feature = "kubernetes")]
use ringmain_kube::translate::Location;
#[cfg(feature = "kubernetes")]
use ringmain_sys::clock;
use tokio::sync::watch;

use crate::config::KubernetesSource;
#[cfg(feature = "kubernetes")]
use crate::limits;
use crate::merge::ConfigMerger;

#[cfg(all(test, feature = "kubernetes"))]
mod tests;

/// A cluster that is followed. Dropping it ends that.
#[derive(Debug)]
pub struct Cluster {
    #[cfg(feature = "kubernetes")]
    health: Arc<Health>,
    /// `true` once listeners follow the configuration: before, an address that cannot be bound would be detected too late.
    listeners_ready: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    /// Notifies about an applied file: statuses depend on its listeners.
    again: watch::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the thread. The API server need not be reachable yet.
    ///
    /// # Errors
    /// There is no access to an API server, or no thread.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn start(settings: &Arc<KubernetesSource>, merger: Arc<ConfigMerger>) -> io::Result<Cluster> {
        let (stop, stopped) = watch::channel(false);
        let (again, changed) = watch::channel(());
        let (listeners_ready, mut listeners_are_ready) = watch::channel(false);
        let health = Arc::new(Health::default());
        let (started, start) = std::sync::mpsc::sync_channel(1);
        let settings = live::Settings {
            controller: Arc::clone(&settings.controller),
            pool: settings.pool,
            identity: replica_identity(),
            location: Location {
                node: std::env::var("NODE_NAME").ok().map(Into::into),
                zone: settings.zone.clone(),
            },
        };
        let runtime = crate::nats::runtime()?;
        let shared_health = Arc::clone(&health);
        let builder = std::thread::Builder::new().name("ringmain-kube".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "the one thread that waits for the API server, which no worker may"
        )]
        let thread = builder.spawn(move || {
            runtime.block_on(async move {
                match Api::from_environment().await {
                    Ok(api) => {
                        // The receiver waits for this value.
                        let _ = started.send(Ok(()));
                        if listeners_are_ready
                            .wait_for(|listeners_ready| *listeners_ready)
                            .await
                            .is_err()
                        {
                            return;
                        }
                        let receiver = stopped.clone();
                        let follow = move || {
                            let merger = Arc::clone(&merger);
                            live::run(
                                api.clone(),
                                settings.clone(),
                                Box::new(ClusterDataPlane(merger)),
                                Arc::clone(&shared_health),
                                receiver.clone(),
                                changed.clone(),
                            )
                        };
                        supervise(follow, limits::CLUSTER_RESTART_DELAY, stopped).await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        })?;
        let cluster = Cluster {
            health,
            listeners_ready,
            stop,
            again,
            thread: Some(thread),
        };
        match start.recv() {
            Ok(Ok(())) => Ok(cluster),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(io::Error::other("the thread that follows Kubernetes has ended")),
        }
    }

    /// Fails: builds without the feature reject a file with this source.
    #[cfg(not(feature = "kubernetes"))]
    pub(crate) fn start(_: &Arc<KubernetesSource>, _: Arc<ConfigMerger>) -> io::Result<Cluster> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Starts applying the cluster's objects: listeners follow the configuration from now on.
    pub fn start_sync(&self) {
        self.listeners_ready.send_replace(true);
    }

    /// Updates the statuses of objects after a file was applied.
    pub fn update_statuses(&self) {
        self.again.send_replace(());
    }

    /// Returns the state of the connection to the cluster.
    #[cfg(feature = "kubernetes")]
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Returns `true` once all lists of the cluster have arrived and are served.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        #[cfg(feature = "kubernetes")]
        return self.health.is_synced();
        #[cfg(not(feature = "kubernetes"))]
        false
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.listeners_ready.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic has been logged.
            let _ = thread.join();
        }
    }
}

/// Runs the future of `follow` until it completes or `stop` changes, and restarts it after a panic: a fault in the translation of
/// one object must not stop the translation of others silently. The served configuration stays.
#[cfg(feature = "kubernetes")]
async fn supervise<F>(mut follow: impl FnMut() -> F, again: Duration, mut stop: watch::Receiver<bool>)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        match tokio::spawn(follow()).await {
            Ok(()) => return,
            Err(error) => log::error!(
                "the task that follows Kubernetes has panicked and restarts in {again:?}; please report this bug: {error}"
            ),
        }
        tokio::select! {
            () = tokio::time::sleep(again) => {}
            _ = stop.changed() => return,
        }
    }
}

#[cfg(feature = "kubernetes")]
struct ClusterDataPlane(Arc<ConfigMerger>);

#[cfg(feature = "kubernetes")]
impl DataPlane for ClusterDataPlane {
    fn replace(&mut self, config: Config) -> Vec<Problem> {
        self.0.replace_objects(config, clock::realtime())
    }

    fn put_endpoints(&mut self, endpoints: Vec<(Name, Vec<Endpoint>)>) {
        self.0.put_endpoints(endpoints);
    }
}

/// Returns the name of this replica: that of its Pod or host, with a random part, since two processes of a host may be replicas of each
/// other.
#[cfg(feature = "kubernetes")]
fn replica_identity() -> String {
    let name = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
    let name = name.unwrap_or_else(|_| "ringmain".to_owned());
    format!("{name}_{:08x}", fastrand::u32(..))
}
