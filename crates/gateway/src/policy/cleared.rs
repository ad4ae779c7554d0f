//! What a request's policies have found out, and that it has passed them: the memory for it is used again.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use super::body::CollectedBody;
use super::jwt::Claims;
use crate::exchange::is_folded;
use crate::filter::Edits;
use crate::gateway::Worker;
use crate::limits;
use crate::rate::counters::Runs;

/// The proof that a request has passed its rule's policies, and what they have found out.
#[derive(Debug)]
#[must_use]
pub(crate) struct Cleared {
    found: Option<Box<Findings>>,
    /// Where that comes from and goes to.
    spare: Rc<Spare>,
}

/// What policies have found out.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) upstream: FieldBlock,
    pub(super) answer: FieldBlock,
    identity: Option<Arc<str>>,
    /// What the token says that has let it in.
    pub(super) claims: Option<Rc<Claims>>,
    /// What it is counted at.
    pub(super) runs: RefCell<Vec<Runs>>,
    /// What filters have changed of the head.
    edits: Option<Edits>,
    /// Names that a policy has written which is not known to write them: the client's fields go no further.
    replaced: Vec<Box<str>>,
    /// The request's body, if a policy has collected it.
    body: Option<CollectedBody>,
    /// Memory for values that are put together.
    pub(super) text: String,
}

static NOTHING: FieldBlock = FieldBlock::new();

impl Cleared {
    /// Nothing is found out yet. For the walk alone.
    pub(super) fn new(worker: &Worker) -> Cleared {
        Cleared {
            found: None,
            spare: worker.policies.spare(),
        }
    }

    /// The upstream is told; what cannot be a header's value is not. The name is one of [`Policies::drops`].
    pub(super) fn tell_upstream(&mut self, name: &str, value: &[u8]) {
        tell(&mut self.findings().upstream, name, value);
    }

    /// Tells the upstream, in place of fields that clients and other policies have written under this name in any spelling.
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

    /// The request's body, if a policy has collected it. It is whole, and taken from the client.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        Some(self.found.as_ref()?.body.as_ref()?.bytes())
    }

    pub(super) fn hold_body(&mut self, body: CollectedBody) {
        self.findings().body = Some(body);
    }

    /// Who asks is known. What was found out first stays.
    pub(super) fn identify(&mut self, identity: &Arc<str>) {
        let known = &mut self.findings().identity;
        known.get_or_insert_with(|| Arc::clone(identity));
    }

    pub(super) fn findings(&mut self) -> &mut Findings {
        self.found.get_or_insert_with(|| self.spare.take())
    }

    /// Has the request counted for longer than this lives: until its answer's last byte.
    pub(crate) fn stay(&self, req: &Request<'_>) {
        let runs = self.found.as_ref().map(|found| found.runs.take());
        if let Some(runs) = runs.filter(|runs| !runs.is_empty()) {
            req.extend(Rc::new(runs));
        }
    }

    /// Filters have changed the head.
    pub(crate) fn edit(&mut self, edits: Edits) {
        self.findings().edits = Some(edits);
    }

    /// What filters have changed of the head.
    pub(crate) fn edits(&self) -> Option<&Edits> {
        self.found.as_ref()?.edits.as_ref()
    }

    /// Headers for the upstream, which no client can have sent.
    pub(crate) fn upstream(&self) -> &FieldBlock {
        self.found.as_ref().map_or(&NOTHING, |found| &found.upstream)
    }

    /// Headers for the client, whoever answers.
    pub(crate) fn answer(&self) -> &FieldBlock {
        self.found.as_ref().map_or(&NOTHING, |found| &found.answer)
    }

    /// Who asks, as far as a policy has found out.
    pub(crate) fn identity(&self) -> Option<&Arc<str>> {
        self.found.as_ref()?.identity.as_ref()
    }

    /// What the token says that has let the request in: of several the first.
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

/// What cannot be a header's value is not told.
pub(super) fn tell(fields: &mut FieldBlock, name: &str, value: &[u8]) {
    if let Err(misuse) = fields.push(name, value) {
        log::debug!("a policy's header `{name}` cannot be sent: {misuse}");
    }
}

impl Findings {
    /// Forgets all and keeps the memory; how many bytes that is.
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

/// Memory for findings, used again: [`limits::FINDINGS_IDLE`] of a worker at most, none larger than
/// [`limits::FINDINGS_BYTES`].
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "what is handed on is the box")]
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
