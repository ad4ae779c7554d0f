//! The results of a request's policies, and the proof that it has passed them; their memory is reused.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use super::body_buffer::CollectedBody;
use super::jwt::Claims;
use crate::filter::Edits;
use crate::gateway::Worker;
use crate::limits;
use crate::proxy::is_folded;
use crate::rate::counters::Runs;

/// The proof that a request has passed its rule's policies, with their results.
#[derive(Debug)]
#[must_use]
pub(crate) struct Cleared {
    found: Option<Box<Findings>>,
    /// The pool of memory for results.
    spare: Rc<Spare>,
}

/// The results of policies.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) upstream: FieldBlock,
    pub(super) answer: FieldBlock,
    identity: Option<Arc<str>>,
    /// The claims of the token that admitted the request.
    pub(super) claims: Option<Rc<Claims>>,
    /// The concurrency counts that include the request.
    pub(super) runs: RefCell<Vec<Runs>>,
    /// Changes of the head by filters.
    edits: Option<Edits>,
    /// Names written by a policy that does not declare them: the client's fields of that name are dropped.
    replaced: Vec<Box<str>>,
    /// The request's body, if a policy has collected it.
    body: Option<CollectedBody>,
    /// Memory for composed values.
    pub(super) text: String,
}

static NOTHING: FieldBlock = FieldBlock::new();

impl Cleared {
    /// Creates empty results. Only the walk over policies may call it.
    pub(super) fn new(worker: &Worker) -> Cleared {
        Cleared {
            found: None,
            spare: worker.policies.spare(),
        }
    }

    /// Adds a header for the upstream, unless the value is invalid. The name must be one of [`Policies::drops`](super::Policies::drops).
    pub(super) fn tell_upstream(&mut self, name: &str, value: &[u8]) {
        tell(&mut self.findings().upstream, name, value);
    }

    /// Sets a header for the upstream; replaces fields of clients and of other policies with this name in any spelling.
    pub(super) fn replace_upstream(&mut self, name: &str, value: &[u8]) {
        let findings = self.findings();
        if !findings
            .replaced
            .iter()
            .any(|own| is_folded(name.as_bytes(), own))
        {
            findings.upstream.remove(name);
            findings.replaced.push(name.into());
        }
        tell(&mut findings.upstream, name, value);
    }

    /// Returns whether a policy has replaced the client's fields of a name.
    pub(crate) fn replaces(&self, name: &[u8]) -> bool {
        let found = self.found.as_ref();
        found.is_some_and(|found| found.replaced.iter().any(|own| is_folded(name, own)))
    }

    /// Removes from trailers the names that policies have replaced and filters have changed in the head.
    pub(crate) fn sift(&self, trailers: &mut FieldBlock) {
        let Some(found) = &self.found else { return };
        if !found.replaced.is_empty() {
            let replaced = trailers.iter().map(|(name, _)| name);
            let replaced = replaced.filter(|name| self.replaces(name.as_bytes()));
            let replaced: Vec<String> = replaced.map(str::to_owned).collect();
            replaced.iter().for_each(|name| trailers.remove(name));
        }
        if let Some(edits) = &found.edits {
            edits.sift(trailers);
        }
    }

    /// Returns the request's body if a policy has collected it: complete, and consumed from the client.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        Some(self.found.as_ref()?.body.as_ref()?.bytes())
    }

    pub(super) fn hold_body(&mut self, body: CollectedBody) {
        self.findings().body = Some(body);
    }

    /// Sets the identity of the client, unless one is set already.
    pub(super) fn identify(&mut self, identity: &Arc<str>) {
        let known = &mut self.findings().identity;
        known.get_or_insert_with(|| Arc::clone(identity));
    }

    pub(super) fn findings(&mut self) -> &mut Findings {
        self.found.get_or_insert_with(|| self.spare.take())
    }

    /// Extends the concurrency counts until the last byte of the response.
    pub(crate) fn stay(&self, req: &Request<'_>) {
        let runs = self.found.as_ref().map(|found| found.runs.take());
        if let Some(runs) = runs.filter(|runs| !runs.is_empty()) {
            req.extend(Rc::new(runs));
        }
    }

    /// Sets the changes of the head by filters.
    pub(crate) fn edit(&mut self, edits: Edits) {
        self.findings().edits = Some(edits);
    }

    /// Returns the changes of the head by filters.
    pub(crate) fn edits(&self) -> Option<&Edits> {
        self.found.as_ref()?.edits.as_ref()
    }

    /// Returns the headers for the upstream, which clients cannot have sent.
    pub(crate) fn upstream(&self) -> &FieldBlock {
        self.found.as_ref().map_or(&NOTHING, |found| &found.upstream)
    }

    /// Returns the headers for the client, whatever the source of the response.
    pub(crate) fn answer(&self) -> &FieldBlock {
        self.found.as_ref().map_or(&NOTHING, |found| &found.answer)
    }

    /// Returns the identity of the client, as far as a policy has established it.
    pub(crate) fn identity(&self) -> Option<&Arc<str>> {
        self.found.as_ref()?.identity.as_ref()
    }

    /// Returns the claims of the token that admitted the request; of several tokens the first.
    pub(super) fn claims(&self) -> Option<&Rc<Claims>> {
        self.found.as_ref()?.claims.as_ref()
    }
}

impl Drop for Cleared {
    fn drop(&mut self) {
        if let Some(found) = self.found.take() {
            self.spare.put(found);
        }
    }
}

/// Adds a header, unless its value is invalid.
pub(super) fn tell(fields: &mut FieldBlock, name: &str, value: &[u8]) {
    if let Err(misuse) = fields.push(name, value) {
        log::debug!("a policy's header `{name}` cannot be sent: {misuse}");
    }
}

impl Findings {
    /// Clears the results and retains the memory. Returns its size in bytes.
    fn clear(&mut self) -> usize {
        self.upstream.clear();
        self.answer.clear();
        self.identity = None;
        self.claims = None;
        self.runs.get_mut().clear();
        self.edits = None;
        self.replaced.clear();
        self.body = None;
        self.text.clear();
        self.upstream.capacity() + self.answer.capacity() + self.text.capacity()
    }
}

/// A pool of memory for results: at most [`limits::FINDINGS_IDLE`] per worker, none larger than
/// [`limits::FINDINGS_BYTES`].
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "the box itself is passed on")]
pub(super) struct Spare(RefCell<Vec<Box<Findings>>>);

impl Spare {
    fn take(&self) -> Box<Findings> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    fn put(&self, mut findings: Box<Findings>) {
        let bytes = findings.clear();
        let mut idle = self.0.borrow_mut();
        if bytes <= limits::FINDINGS_BYTES && idle.len() < limits::FINDINGS_IDLE {
            idle.push(findings);
        }
    }
}
