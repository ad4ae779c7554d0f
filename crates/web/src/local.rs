//! What one worker keeps for its application: its own state, constant lines, runners, counts.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_wire::h1::FieldBlock;

use crate::preamble::Preamble;
use crate::reply::Kind;
use crate::server::runner::Runners;
use crate::site::Site;
use crate::stats::WorkerStats;

pub(crate) struct Local {
    pub(crate) cx: Cx,
    states: Vec<(TypeId, Box<dyn Any>)>,
    pub(crate) preamble: RefCell<Preamble>,
    pub(crate) lines: Lines,
    pub(crate) runners: Runners,
    pub(crate) stats: Arc<WorkerStats>,
}

impl Local {
    pub(crate) fn new(site: &Site, cx: Cx) -> Local {
        let states = site.per_worker.iter().map(|make| make(&cx)).collect();
        let preamble =
            Preamble::new(site.server_name.as_deref()).expect("checked when the application was built");
        let stats = site.stats.worker(cx.worker());
        Local {
            states,
            preamble: RefCell::new(preamble),
            lines: Lines::new(),
            runners: Runners::new(site.limits.running_requests),
            stats,
            cx,
        }
    }

    pub(crate) fn state<T: 'static>(&self) -> Option<&T> {
        let (_, value) = self.states.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        value.downcast_ref()
    }
}

/// Content types, checked and written once.
pub(crate) struct Lines {
    json: FieldBlock,
    text: FieldBlock,
    html: FieldBlock,
    problem: FieldBlock,
}

impl Lines {
    fn new() -> Lines {
        let line = |value: &str| {
            let mut block = FieldBlock::new();
            block
                .push("Content-Type", value.as_bytes())
                .expect("a constant of this file");
            block
        };
        Lines {
            json: line("application/json"),
            text: line("text/plain; charset=utf-8"),
            html: line("text/html; charset=utf-8"),
            problem: line("application/problem+json"),
        }
    }

    pub(crate) fn of(&self, kind: Kind) -> Option<&FieldBlock> {
        match kind {
            Kind::None | Kind::Own => None,
            Kind::Json => Some(&self.json),
            Kind::Text => Some(&self.text),
            Kind::Html => Some(&self.html),
            Kind::Problem => Some(&self.problem),
        }
    }
}
