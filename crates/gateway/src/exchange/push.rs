//! Requests of clients that are pushed to: led to the inner routes, once nothing of the configuration is held.

use ringmain_web::{Error, Reply, Request};

use super::own;
use crate::model::{Path, PushAt};
use crate::plan::Changes;

/// What is left to do.
pub(super) struct Pushed {
    below: Option<Path>,
    /// Of the answer's head, if there are any.
    changes: Option<Box<Changes>>,
}

impl Pushed {
    pub(super) fn new(at: &PushAt, changes: &Changes) -> Pushed {
        Pushed {
            below: at.below.clone(),
            changes: (!changes.is_empty()).then(|| Box::new(changes.clone())),
        }
    }

    pub(super) async fn run(self, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
        if let Some(changes) = &self.changes {
            own::changes(reply, changes)?;
        }
        let below = self.below.as_ref().map_or("", |path| path.as_str());
        let path = req.path().strip_prefix(below.trim_end_matches('/'));
        // What other matches of the rule bring is no endpoint: `/live` itself, or `/lively` beside `/live`.
        let path = path.filter(|path| path.starts_with('/')).unwrap_or("/");
        let outcome = reply.lead_inside(path).await;
        match outcome {
            Err(error) if !error.is_disconnected() && !reply.is_streaming() => {
                reply.problem(&error);
                if let Some(changes) = &self.changes {
                    own::changes(reply, changes)?;
                }
                Ok(())
            }
            outcome => outcome,
        }
    }
}
