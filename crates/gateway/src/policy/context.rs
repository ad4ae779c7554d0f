//! The results of a request's policies, and the proof that it has passed them; their memory is reused.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_web::{Reply, Request};
use ringmain_wire::h1::FieldBlock;

use super::body_buffer::CollectedBody;
use super::header_change::HeaderChange;
use super::jwt::TokenClaims;
use crate::filter::FilterEdits;
use crate::gateway::Worker;
use crate::limits;
use crate::model::ClaimPath;
use crate::proxy::eq_folded;
use crate::rate::counters::CountGuard;

/// The proof that a request has passed its rule's policies, with their results.
#[derive(Debug)]
#[must_use]
pub(crate) struct Cleared {
    context: Option<Box<PolicyContext>>,
    /// The pool of memory for results.
    pool: Rc<ContextPool>,
}

/// The results of policies.
#[derive(Debug, Default)]
pub(super) struct PolicyContext {
    pub(super) upstream: FieldBlock,
    pub(super) response: FieldBlock,
    record: PolicyRecord,
    /// The claims of the token that admitted the request.
    pub(super) claims: Option<Rc<TokenClaims>>,
    /// The concurrency counts that include the request.
    pub(super) permits: RefCell<Vec<CountGuard>>,
    /// Changes of the head by filters.
    edits: Option<FilterEdits>,
    /// Names written by a policy that does not declare them: the client's fields of that name are dropped.
    replaced: Vec<Box<str>>,
    /// The request's body, if a policy has collected it.
    body: Option<CollectedBody>,
    /// The query for the upstream, if a policy has changed it.
    query: Option<String>,
    /// Changes of the response's head, which do not only add to it.
    response_changes: Vec<HeaderChange>,
    /// Memory for composed values.
    pub(super) text: String,
}

/// The access log fields of a request's policies. Retained with their result: the request may continue in a task, with a log of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyRecord {
    pub(crate) identity: Option<Arc<str>>,
    /// The limit with `log_only` that the request exceeds.
    pub(crate) over_limit: Option<Arc<str>>,
    /// Metadata of the authorization service, as JSON.
    pub(crate) authz: Option<Arc<str>>,
}

static NO_FIELDS: FieldBlock = FieldBlock::new();

impl Cleared {
    /// Creates empty results. Only the walk over policies may call it.
    pub(super) fn new(worker: &Worker) -> Cleared {
        Cleared {
            context: None,
            pool: worker.credentials.context_pool(),
        }
    }

    /// Adds a header for the upstream, unless the value is invalid. The name must be one of the names that the policies of the rule declare.
    pub(super) fn add_upstream_header(&mut self, name: &str, value: &[u8]) {
        add_header(&mut self.context_mut().upstream, name, value);
    }

    /// Sets a header for the upstream; replaces fields of clients and of other policies with this name in any spelling.
    pub(super) fn set_upstream_header(&mut self, name: &str, value: &[u8]) {
        let findings = self.context_mut();
        if !findings
            .replaced
            .iter()
            .any(|own| eq_folded(name.as_bytes(), own))
        {
            findings.upstream.remove(name);
            findings.replaced.push(name.into());
        }
        add_header(&mut findings.upstream, name, value);
    }

    /// Removes the fields of a name, those of clients in any spelling.
    pub(super) fn remove_upstream_header(&mut self, name: &str) {
        let context = self.context_mut();
        context.upstream.remove(name);
        if !context.replaced.iter().any(|own| eq_folded(name.as_bytes(), own)) {
            context.replaced.push(name.into());
        }
    }

    /// Sets the query for the upstream; empty: none.
    pub(super) fn set_query(&mut self, query: String) {
        self.context_mut().query = Some(query);
    }

    /// Returns the query for the upstream, if a policy has changed it; empty: none.
    pub(crate) fn query(&self) -> Option<&str> {
        self.context.as_ref()?.query.as_deref()
    }

    /// Adds changes of the response's head.
    pub(super) fn add_response_changes(&mut self, changes: Vec<HeaderChange>) {
        if !changes.is_empty() {
            self.context_mut().response_changes.extend(changes);
        }
    }

    /// Adds the fields of policies to a response of the gateway's own.
    pub(crate) fn add_to_response(&self, reply: &mut Reply<'_>) {
        reply.add_headers(self.response_headers());
        let changes = self.response_changes();
        if changes.is_empty() {
            return;
        }
        let mut fields = FieldBlock::new();
        changes.iter().for_each(|change| change.apply(&mut fields));
        reply.add_headers(&fields);
    }

    /// Returns the changes of the response's head, which apply after [`Cleared::response_headers`] are added.
    pub(crate) fn response_changes(&self) -> &[HeaderChange] {
        self.context
            .as_ref()
            .map_or(&[], |context| &context.response_changes)
    }

    /// Records the metadata of the authorization service.
    pub(super) fn set_authz_metadata(&mut self, metadata: Arc<str>) {
        self.context_mut().record.authz = Some(metadata);
    }

    /// Returns whether a policy has replaced the client's fields of a name.
    pub(crate) fn has_replaced(&self, name: &[u8]) -> bool {
        let context = self.context.as_ref();
        context.is_some_and(|context| context.replaced.iter().any(|own| eq_folded(name, own)))
    }

    /// Removes from trailers the names that policies have replaced and filters have changed in the head.
    pub(crate) fn filter_trailers(&self, trailers: &mut FieldBlock) {
        let Some(context) = &self.context else { return };
        if !context.replaced.is_empty() {
            let replaced = trailers.iter().map(|(name, _)| name);
            let replaced = replaced.filter(|name| self.has_replaced(name.as_bytes()));
            let replaced: Vec<String> = replaced.map(str::to_owned).collect();
            replaced.iter().for_each(|name| trailers.remove(name));
        }
        if let Some(edits) = &context.edits {
            edits.sift(trailers);
        }
    }

    /// Returns the request's body if a policy has collected it: complete or its beginning, and consumed from the client.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        Some(self.context.as_ref()?.body.as_ref()?.bytes())
    }

    /// Returns the request's body if a policy has collected the whole body.
    pub(super) fn complete_body(&self) -> Option<&[u8]> {
        let body = self.context.as_ref()?.body.as_ref()?;
        body.is_complete().then(|| body.bytes())
    }

    pub(super) fn take_body(&mut self) -> Option<CollectedBody> {
        self.context.as_mut()?.body.take()
    }

    pub(super) fn set_body(&mut self, body: CollectedBody) {
        self.context_mut().body = Some(body);
    }

    /// Sets the identity of the client, unless one is set already.
    pub(super) fn set_identity(&mut self, identity: &Arc<str>) {
        let known = &mut self.context_mut().record.identity;
        known.get_or_insert_with(|| Arc::clone(identity));
    }

    /// Records the limit with `log_only` that the request exceeds; of several the last.
    pub(super) fn set_over_limit(&mut self, limit: &Arc<str>) {
        self.context_mut().record.over_limit = Some(Arc::clone(limit));
    }

    /// Returns the access log fields of the policies.
    pub(crate) fn record(&self) -> Option<&PolicyRecord> {
        self.context.as_ref().map(|context| &context.record)
    }

    pub(super) fn context_mut(&mut self) -> &mut PolicyContext {
        self.context.get_or_insert_with(|| self.pool.take())
    }

    /// Extends the concurrency counts until the last byte of the response.
    pub(crate) fn hold_permits(&self, req: &Request<'_>) {
        let permits = self.context.as_ref().map(|context| context.permits.take());
        if let Some(permits) = permits.filter(|permits| !permits.is_empty()) {
            req.extend(Rc::new(permits));
        }
    }

    /// Sets the changes of the head by filters.
    pub(crate) fn set_edits(&mut self, edits: FilterEdits) {
        self.context_mut().edits = Some(edits);
    }

    /// Returns the changes of the head by filters.
    pub(crate) fn edits(&self) -> Option<&FilterEdits> {
        self.context.as_ref()?.edits.as_ref()
    }

    /// Returns the headers for the upstream, which clients cannot have sent.
    pub(crate) fn upstream_headers(&self) -> &FieldBlock {
        self.context
            .as_ref()
            .map_or(&NO_FIELDS, |context| &context.upstream)
    }

    /// Returns the headers for the client, whatever the source of the response.
    pub(crate) fn response_headers(&self) -> &FieldBlock {
        self.context
            .as_ref()
            .map_or(&NO_FIELDS, |context| &context.response)
    }

    /// Returns the identity of the client, as far as a policy has established it.
    pub(crate) fn identity(&self) -> Option<&Arc<str>> {
        self.record()?.identity.as_ref()
    }

    /// Passes a claim of the token that admitted the request to `read`; `None`: there is no such claim.
    pub(crate) fn with_claim<T>(&self, path: &ClaimPath, read: impl FnOnce(&str) -> T) -> Option<T> {
        let mut text = String::new();
        self.claims()?.header_value(path, &mut text).map(read)
    }

    /// Returns the claims of the token that admitted the request; of several tokens the first.
    pub(super) fn claims(&self) -> Option<&Rc<TokenClaims>> {
        self.context.as_ref()?.claims.as_ref()
    }
}

impl Drop for Cleared {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            self.pool.put(context);
        }
    }
}

/// Adds a header, unless its value is invalid.
pub(super) fn add_header(fields: &mut FieldBlock, name: &str, value: &[u8]) {
    if let Err(misuse) = fields.push(name, value) {
        log::debug!("a policy's header `{name}` cannot be sent: {misuse}");
    }
}

impl PolicyContext {
    /// Clears the results and retains the memory. Returns its size in bytes.
    fn reset(&mut self) -> usize {
        self.upstream.clear();
        self.response.clear();
        self.record = PolicyRecord::default();
        self.claims = None;
        self.permits.get_mut().clear();
        self.edits = None;
        self.replaced.clear();
        self.body = None;
        self.query = None;
        self.response_changes.clear();
        self.text.clear();
        self.upstream.capacity() + self.response.capacity() + self.text.capacity()
    }
}

/// A pool of memory for results: at most [`limits::FINDINGS_IDLE`] per worker, none larger than
/// [`limits::FINDINGS_BYTES`].
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "the box itself is passed on")]
pub(super) struct ContextPool(RefCell<Vec<Box<PolicyContext>>>);

impl ContextPool {
    fn take(&self) -> Box<PolicyContext> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    fn put(&self, mut findings: Box<PolicyContext>) {
        let bytes = findings.reset();
        let mut idle = self.0.borrow_mut();
        if bytes <= limits::FINDINGS_BYTES && idle.len() < limits::FINDINGS_IDLE {
            idle.push(findings);
        }
    }
}
