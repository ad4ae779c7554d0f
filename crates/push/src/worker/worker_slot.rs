//! Access of a request to the push part of its worker, which starts as soon as options are set.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_web::{Error, Request, Result};

use super::PushWorker;
use crate::Start;
use crate::publish::publisher::Publisher;
use crate::settings::SharedSettings;

/// See the module. Clones refer to the same.
#[derive(Clone)]
pub(crate) struct WorkerSlot(Rc<SlotState>);

struct SlotState {
    cx: Cx,
    settings: Arc<SharedSettings>,
    start: Arc<Start>,
    worker: OnceCell<PushWorker>,
}

impl WorkerSlot {
    /// Starts together with its worker. The push part starts at once or when there are options, also without a request: channels may belong
    /// to its shard.
    pub(crate) fn new(cx: &Cx, settings: &Arc<SharedSettings>, start: &Arc<Start>) -> WorkerSlot {
        let slot = WorkerSlot(Rc::new(SlotState {
            cx: cx.clone(),
            settings: Arc::clone(settings),
            start: Arc::clone(start),
            worker: OnceCell::new(),
        }));
        if slot.get_or_start().is_none() {
            let waiting = slot.clone();
            let spawned = cx.spawn(async move {
                poll_fn(|context| waiting.0.settings.poll_options(context)).await;
                waiting.get_or_start();
            });
            if spawned.is_err() {
                let worker = cx.worker();
                log::error!("push: worker {worker} has no capacity for its tasks, so push is disabled there");
            }
        }
        slot
    }

    fn get_or_start(&self) -> Option<&PushWorker> {
        if let Some(worker) = self.0.worker.get() {
            return Some(worker);
        }
        let (generation, options) = self.0.settings.newer_than(0)?;
        // The workers belong to the first application that serves this `Push`.
        let worker = PushWorker::start(&self.0.cx, &self.0.settings, generation, options)?;
        let worker = self.0.worker.get_or_init(|| worker);
        (self.0.start)(&self.0.cx, Publisher(worker.clone()));
        Some(worker)
    }
}

/// Returns the push part of the worker that handles a request.
///
/// # Errors
/// 404 if there are no options yet.
pub(crate) fn request_worker<'r>(request: &Request<'r>) -> Result<&'r PushWorker> {
    let slot: &'r WorkerSlot = request.local()?;
    slot.get_or_start()
        .ok_or_else(|| Error::not_found("push is not configured yet"))
}

/// Like [`request_worker`], and checks the origin of the page.
///
/// # Errors
/// As [`request_worker`]; 403 for a page of another origin that is not allowed.
pub(crate) fn origin_checked_worker<'r>(request: &Request<'r>) -> Result<&'r PushWorker> {
    let worker = request_worker(request)?;
    worker.options().pages.check(request)?;
    Ok(worker)
}
