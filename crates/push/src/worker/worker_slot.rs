//! A worker's place for its desk, which is there as soon as there are settings.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_web::{Error, Request, Result};

use crate::Start;
use crate::publish::publisher::Publisher;
use crate::settings::Settings;
use crate::worker::Desk;

/// See the module; clones are the same.
#[derive(Clone)]
pub(crate) struct Place(Rc<Inner>);

struct Inner {
    cx: Cx,
    settings: Arc<Settings>,
    start: Arc<Start>,
    desk: OnceCell<Desk>,
}

impl Place {
    /// Begins with its worker. Its desk begins with it, or when there are settings: also where nobody asks for it, for channels
    /// may be at home there.
    pub(crate) fn new(cx: &Cx, settings: &Arc<Settings>, start: &Arc<Start>) -> Place {
        let place = Place(Rc::new(Inner {
            cx: cx.clone(),
            settings: Arc::clone(settings),
            start: Arc::clone(start),
            desk: OnceCell::new(),
        }));
        if place.desk().is_none() {
            let waits = place.clone();
            let spawned = cx.spawn(async move {
                poll_fn(|context| waits.0.settings.poll_first(context)).await;
                waits.desk();
            });
            if spawned.is_err() {
                log::error!(
                    "push: worker {} has no room for its tasks, so nothing is pushed there",
                    cx.worker()
                );
            }
        }
        place
    }

    fn desk(&self) -> Option<&Desk> {
        if let Some(desk) = self.0.desk.get() {
            return Some(desk);
        }
        let settings = self.0.settings.newer(0)?;
        // Of a second application the workers are nobody's.
        let desk = Desk::start(&self.0.cx, &self.0.settings, settings)?;
        let desk = self.0.desk.get_or_init(|| desk);
        (self.0.start)(&self.0.cx, Publisher(desk.clone()));
        Some(desk)
    }
}

/// The desk of the worker that has a request.
pub(crate) fn desk_of<'r>(request: &Request<'r>) -> Result<&'r Desk> {
    let place: &'r Place = request.local()?;
    place
        .desk()
        .ok_or_else(|| Error::not_found("nothing is pushed: push has no settings yet"))
}

/// The same, for pages that may connect.
pub(crate) fn allowed<'r>(request: &Request<'r>) -> Result<&'r Desk> {
    let desk = desk_of(request)?;
    desk.options().pages.check(request)?;
    Ok(desk)
}
