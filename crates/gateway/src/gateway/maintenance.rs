//! Background tasks of a worker: each worker follows changes of the configuration; one worker resolves names, fetches keys and
//! runs active health checks for the whole process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ringmain_engine::TaskId;

use crate::gateway::{Gateway, Worker};
use crate::health::{self, HealthTarget};
use crate::model::{Hostname, Name};
use crate::policy::jwt::{KeyProvider, jwks_fetch};
use crate::resolve::{self, ResolverSettings};
use crate::udp;

/// Tasks that run once per process, by subject.
#[derive(Debug, Default)]
struct Maintenance {
    lookups: RefCell<BTreeMap<Hostname, TaskId>>,
    health_checks: RefCell<BTreeMap<(Name, String), (HealthTarget, TaskId)>>,
    key_fetches: RefCell<Vec<(Arc<KeyProvider>, TaskId)>>,
}

/// The worker that runs the tasks of the whole process.
const MAINTENANCE_WORKER: usize = 0;

/// Follows changes of the configuration until the worker stops.
pub(crate) async fn follow_changes(worker: Rc<Worker>, gateway: Gateway) {
    let maintenance = (worker.cx.worker() == MAINTENANCE_WORKER).then(Maintenance::default);
    // The configuration at the start counts as a change, too.
    let mut last_generation = u64::MAX;
    loop {
        poll_fn(|context| {
            // Registered before the count is read: a change in between is not missed.
            gateway.changes().register(worker.cx.worker(), context.waker());
            let now = gateway.changes().count();
            if now == last_generation {
                return Poll::Pending;
            }
            last_generation = now;
            Poll::Ready(())
        })
        .await;
        worker.view();
        worker.follow_upstreams();
        udp::follow_configuration(&worker);
        if let Some(maintenance) = &maintenance {
            maintenance.run_lookups(&worker, &gateway);
            maintenance.run_health_checks(&worker, &gateway);
            maintenance.run_key_fetches(&worker, &gateway);
        }
    }
}

impl Maintenance {
    /// Runs one lookup task for each name of the configuration, and cancels the others.
    fn run_lookups(&self, worker: &Rc<Worker>, gateway: &Gateway) {
        let names = gateway.hostnames();
        let mut lookups = self.lookups.borrow_mut();
        lookups.retain(|name, task| {
            let wanted = names.contains(name);
            if !wanted {
                worker.cx.cancel(*task);
            }
            wanted
        });
        for name in names {
            if lookups.contains_key(&name) {
                continue;
            }
            let lookup = look_up(Rc::clone(worker), gateway.clone(), name.clone());
            if let Ok(task) = worker.cx.spawn(lookup) {
                lookups.insert(name, task);
            }
        }
    }

    /// Runs one task for each provider in use that keeps its keys up to date, and cancels the others.
    fn run_key_fetches(&self, worker: &Rc<Worker>, gateway: &Gateway) {
        let providers = gateway.providers();
        let mut keys = self.key_fetches.borrow_mut();
        keys.retain(|(provider, task)| {
            let wanted = providers.iter().any(|other| Arc::ptr_eq(other, provider));
            if !wanted {
                worker.cx.cancel(*task);
            }
            wanted
        });
        for provider in providers {
            if keys.iter().any(|(known, _)| Arc::ptr_eq(known, &provider)) {
                continue;
            }
            let task = jwks_fetch::keep_current(Rc::clone(worker), Arc::clone(&provider));
            if let Ok(task) = worker.cx.spawn(task) {
                keys.push((provider, task));
            }
        }
    }

    /// Runs one health check for each target of the configuration, and cancels the others.
    fn run_health_checks(&self, worker: &Rc<Worker>, gateway: &Gateway) {
        let mut wanted = gateway.health_check_targets();
        let mut checks = self.health_checks.borrow_mut();
        checks.retain(|key, (target, task)| {
            let same = wanted.get(key).is_some_and(|other| other.is_same(target));
            if same {
                wanted.remove(key);
            } else {
                worker.cx.cancel(*task);
                // Without a check, no later result would replace the last one.
                target.endpoint.state.health().clear_checks();
                target.endpoint.state.record_load(None, 0);
                target.upstream.bump_health_version();
            }
            same
        });
        for (key, target) in wanted {
            if let Ok(task) = worker
                .cx
                .spawn(health::run_checks(worker.cx.clone(), target.clone()))
            {
                checks.insert(key, (target, task));
            }
        }
    }
}

/// Keeps the addresses of a name up to date.
async fn look_up(worker: Rc<Worker>, gateway: Gateway, name: Hostname) {
    let cx = &worker.cx;
    loop {
        let found = match gateway.lookup() {
            Some(settings) => resolve::resolve_with(cx, &settings, name.as_str()).await,
            None => resolve::resolve_name(cx, name.as_str()).await,
        };
        let again = match &found {
            Ok(found) => found.ttl,
            Err(none) => none.retry_after,
        };
        // A change of addresses recompiles the configuration, which must not run on a worker.
        let (told, of) = (gateway.clone(), name.clone());
        if cx.blocking(move || told.record_lookup(&of, found)).await.is_err() {
            cx.sleep(crate::limits::DNS_AGAIN).await;
            continue;
        }
        cx.sleep(again).await;
    }
}

/// Settings for name lookups that replace the host's; `None`: the host's apply.
pub(crate) type LookupSettings = Option<std::sync::Arc<ResolverSettings>>;
