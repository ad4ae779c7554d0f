//! Requests of push clients: delegated to the inner routes once nothing of the configuration is held.
//!
//! The application may be queried about a client (`application.rs`): the headers that it receives are copied from the request here.

mod app_proxy;

use std::rc::Rc;

use ringmain_push::Backend;
use ringmain_web::{Error, Reply, Request};

use super::{RequestRoute, local_response};
use crate::compile::plan::{Plan, StatusHeaderEdits};
use crate::gateway::{View, Worker};
use crate::model::{Path, PushEndpoints};
use crate::policy::Cleared;
use app_proxy::PushApplication;
pub(crate) use app_proxy::PushQueries;

/// A request that is delegated to push.
pub(super) struct PushRequest {
    base_path: Option<Path>,
    /// The path that the rule was matched with, if it differs from the request's own.
    path: Option<Rc<str>>,
    /// Edits of the response head, if there are any.
    changes: Option<Box<StatusHeaderEdits>>,
    /// The application for queries of the session.
    backend: Option<Backend>,
}

impl PushRequest {
    pub(super) fn new(
        worker: &Rc<Worker>,
        view: &View,
        route: &RequestRoute<'_>,
        plan: &Plan,
        cleared: &Cleared,
        at: &PushEndpoints,
        req: &Request<'_>,
    ) -> PushRequest {
        let queries = (!view.push_queries.is_empty()).then_some(&view.push_queries);
        let application =
            queries.map(|queries| PushApplication::of(worker, queries, route, plan, cleared, req));
        PushRequest {
            base_path: at.below.clone(),
            path: route.decoded_path.clone(),
            changes: (!plan.response.is_empty()).then(|| Box::new(plan.response.clone())),
            backend: application.map(|application| Backend(Rc::new(application))),
        }
    }

    pub(super) async fn run(self, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
        if let Some(changes) = &self.changes {
            local_response::edit_headers(reply, changes)?;
        }
        if let Some(backend) = self.backend {
            req.extend(backend);
        }
        let below = self.base_path.as_ref().map_or("", |path| path.as_str());
        let full_path = self.path.as_deref().unwrap_or_else(|| req.path());
        let path = full_path.strip_prefix(below.trim_end_matches('/'));
        // Paths of the rule's other matches are no endpoints: `/live` itself, or `/lively` next to `/live`.
        let path = path.filter(|path| path.starts_with('/')).unwrap_or("/");
        let outcome = reply.delegate(path).await;
        match outcome {
            Err(error) if !error.is_disconnected() && !reply.is_streaming() => {
                reply.problem(&error);
                if let Some(changes) = &self.changes {
                    local_response::edit_headers(reply, changes)?;
                }
                Ok(())
            }
            outcome => outcome,
        }
    }
}
