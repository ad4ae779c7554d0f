//! `grpc.health.v1.Health`: the serving status of services, for load balancers and orchestrators.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use prost::Message;
use ringmain_wire::grpc::Code;

use super::call::Call;
use super::replies::Replies;
use super::service::Service;
use super::status::{Result, Status};

/// The serving status of services, process-wide; clones share it. The empty name represents the whole server, which serves unless
/// set otherwise. Nothing serves once a shutdown has begun.
///
/// ```
/// use ringmain_web::App;
/// use ringmain_web::grpc::HealthService;
///
/// let health = HealthService::new();
/// health.set("demo.Greeter", true);
/// let app = App::new().grpc(health.service());
/// ```
#[derive(Clone)]
pub struct HealthService {
    shared: Arc<Mutex<Statuses>>,
}

struct Statuses {
    serving: BTreeMap<String, bool>,
    /// Wakers of waiting watchers, by number.
    waiting: BTreeMap<u64, Waker>,
    watchers: u64,
}

/// `HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `HealthCheckResponse`, with the numbers of `ServingStatus`.
#[derive(Clone, Copy, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `HealthListRequest`.
#[derive(Clone, Copy, PartialEq, Message)]
struct HealthListRequest {}

/// `HealthListResponse`.
#[derive(Clone, PartialEq, Message)]
struct HealthListResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    statuses: BTreeMap<String, HealthCheckResponse>,
}

const SERVING: HealthCheckResponse = HealthCheckResponse { status: 1 };
const NOT_SERVING: HealthCheckResponse = HealthCheckResponse { status: 2 };
const SERVICE_UNKNOWN: HealthCheckResponse = HealthCheckResponse { status: 3 };

fn response(serving: bool) -> HealthCheckResponse {
    if serving { SERVING } else { NOT_SERVING }
}

impl HealthService {
    /// Returns a status of the whole server that serves, without single services.
    #[must_use]
    pub fn new() -> HealthService {
        let shared = Statuses {
            serving: [(String::new(), true)].into(),
            waiting: BTreeMap::new(),
            watchers: 0,
        };
        HealthService {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// Sets the status of a service, from any thread, and notifies its watchers.
    pub fn set(&self, service: impl Into<String>, serving: bool) {
        let mut shared = self.lock();
        shared.serving.insert(service.into(), serving);
        let waiting = std::mem::take(&mut shared.waiting);
        drop(shared);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Returns the service, to be added to an application.
    #[must_use]
    pub fn service(&self) -> Service {
        let (checked, watched, listing) = (self.clone(), self.clone(), self.clone());
        Service::new("grpc.health.v1.Health")
            .unary(
                "Check",
                async move |call: &Call<'_>, request: HealthCheckRequest| {
                    let status = checked.find(call, &request.service);
                    let unknown = || Status::new(Code::NotFound, "unknown service");
                    status.ok_or_else(unknown)
                },
            )
            .unary("List", async move |call: &Call<'_>, _: HealthListRequest| {
                let draining = call.request().cx().is_drain_pending();
                let shared = listing.lock();
                let statuses = shared
                    .serving
                    .iter()
                    .map(|(name, serving)| (name.clone(), response(*serving && !draining)));
                Ok(HealthListResponse {
                    statuses: statuses.collect(),
                })
            })
            .server_streaming(
                "Watch",
                async move |call: &Call<'_>,
                            request: HealthCheckRequest,
                            replies: &mut Replies<'_, '_, HealthCheckResponse>| {
                    watched.watch(call, &request.service, replies).await
                },
            )
    }

    /// Returns the response for a service; `None`: it is unknown.
    fn find(&self, call: &Call<'_>, service: &str) -> Option<HealthCheckResponse> {
        let serving = *self.lock().serving.get(service)?;
        Some(response(serving && !call.request().cx().is_drain_pending()))
    }

    async fn watch(
        &self,
        call: &Call<'_>,
        service: &str,
        replies: &mut Replies<'_, '_, HealthCheckResponse>,
    ) -> Result {
        let watcher = self.watcher();
        let mut last_sent = None;
        let mut draining = pin!(call.request().cx().draining());
        loop {
            let (now, is_draining) = poll_fn(|context| {
                let is_draining = draining.as_mut().poll(context).is_ready();
                // Registers the waker before the check, so that no change in between is missed.
                watcher.wait(context.waker());
                let now = self.find(call, service).unwrap_or(SERVICE_UNKNOWN);
                if is_draining || last_sent != Some(now) {
                    Poll::Ready((now, is_draining))
                } else {
                    Poll::Pending
                }
            })
            .await;
            if last_sent != Some(now) {
                replies.send(&now).await?;
                last_sent = Some(now);
            }
            if is_draining {
                return Err(Status::new(Code::Unavailable, "the server is shutting down"));
            }
        }
    }

    fn watcher(&self) -> Watcher<'_> {
        let mut shared = self.lock();
        shared.watchers += 1;
        Watcher {
            health: self,
            number: shared.watchers,
        }
    }

    /// Locks the statuses, also after a panic of another thread, which leaves them consistent.
    fn lock(&self) -> MutexGuard<'_, Statuses> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for HealthService {
    fn default() -> HealthService {
        HealthService::new()
    }
}

/// Removes a watcher when dropped.
struct Watcher<'h> {
    health: &'h HealthService,
    number: u64,
}

impl Watcher<'_> {
    fn wait(&self, waker: &Waker) {
        self.health.lock().waiting.insert(self.number, waker.clone());
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        self.health.lock().waiting.remove(&self.number);
    }
}

impl std::fmt::Debug for HealthService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(&self.lock().serving).finish()
    }
}
