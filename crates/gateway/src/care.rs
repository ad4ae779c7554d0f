//! What a worker does without being asked: it follows changes of configuration; one of them looks names up and asks
//! endpoints whether they are well, for the whole process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ringmain_engine::TaskId;

use crate::gateway::{Gateway, Worker};
use crate::health::{self, Target, Verdict};
use crate::model::{Hostname, Name};
use crate::policy::jwt::{Provider, fetch};
use crate::resolve::{self, Settings};

/// What runs for the whole process.
#[derive(Debug, Default)]
struct Care {
    lookups: RefCell<BTreeMap<Hostname, TaskId>>,
    checks: RefCell<BTreeMap<(Name, String), (Target, TaskId)>>,
    keys: RefCell<Vec<(Arc<Provider>, TaskId)>>,
}

/// The worker that takes care.
const CARETAKER: usize = 0;

/// Follows changes for ever.
pub(crate) async fn follow(worker: Rc<Worker>, gateway: Gateway) {
    let care = (worker.cx.worker() == CARETAKER).then(Care::default);
    // What is there at the start is news, too.
    let mut seen = u64::MAX;
    loop {
        poll_fn(|context| {
            // Registered before it looks: a change in between is not missed.
            gateway.changes().watch(worker.cx.worker(), context.waker());
            let now = gateway.changes().count();
            if now == seen {
                return Poll::Pending;
            }
            seen = now;
            Poll::Ready(())
        })
        .await;
        worker.view();
        worker.follow_upstreams();
        if let Some(care) = &care {
            care.look_up(&worker, &gateway);
            care.ask(&worker, &gateway);
            care.fetch(&worker, &gateway);
        }
    }
}

impl Care {
    /// Looks up the names that there are, and no others.
    fn look_up(&self, worker: &Rc<Worker>, gateway: &Gateway) {
        let names = gateway.names();
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

    /// Keeps the keys of those providers up to date whose rules there are, and of no others.
    fn fetch(&self, worker: &Rc<Worker>, gateway: &Gateway) {
        let providers = gateway.providers();
        let mut keys = self.keys.borrow_mut();
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
            let task = fetch::keep(Rc::clone(worker), Arc::clone(&provider));
            if let Ok(task) = worker.cx.spawn(task) {
                keys.push((provider, task));
            }
        }
    }

    /// Asks those who are to be asked, and no others.
    fn ask(&self, worker: &Rc<Worker>, gateway: &Gateway) {
        let mut wanted = gateway.targets();
        let mut checks = self.checks.borrow_mut();
        checks.retain(|key, (target, task)| {
            let same = wanted.get(key).is_some_and(|other| other.is(target));
            if same {
                wanted.remove(key);
            } else {
                worker.cx.cancel(*task);
                // Nobody would take the verdict back.
                target.endpoint.state.health().tell(Verdict::Unknown);
                target.shared.health_changed();
            }
            same
        });
        for (key, target) in wanted {
            if let Ok(task) = worker.cx.spawn(health::watch(worker.cx.clone(), target.clone())) {
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
            Some(settings) => resolve::by(cx, &settings, name.as_str()).await,
            None => resolve::resolve(cx, name.as_str()).await,
        };
        let again = match &found {
            Ok(found) => found.holds,
            Err(none) => none.again,
        };
        // What has to be worked out anew is worked out elsewhere.
        let (told, of) = (gateway.clone(), name.clone());
        if cx.blocking(move || told.found(&of, found)).await.is_err() {
            cx.sleep(crate::limits::DNS_AGAIN).await;
            continue;
        }
        cx.sleep(again).await;
    }
}

/// Names are looked up by these settings instead of the host's.
pub(crate) type Lookup = Option<std::sync::Arc<Settings>>;
