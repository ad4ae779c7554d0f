//! The policies between a rule and its action: evaluated in one order for all rules.
//!
//! ```text
//! rule ─▶ walk_now ─┬─ Cleared ─▶ action        no policy waits for anything: no task is needed
//!                   ├─ Refused ─▶ answer
//!                   └─ Waits ─▶ walk ─┬─ Cleared ─▶ action
//!                                     └─ Refused ─▶ answer
//! ```
//!
//! No request reaches a rule's action without a [`Cleared`], and only the walk creates one. Each kind of policy has a file; this
//! one knows their order and not their meaning.

mod api_keys;
mod authz;
mod basic_auth;
mod body_buffer;
mod client_certificate;
mod concurrency;
mod context;
mod credential_cache;
mod fault_injection;
pub(crate) mod http_client;
mod ip_access;
pub(crate) mod jwt;
mod limit_key;
mod load_shedding;
pub(crate) mod passwords;
mod rate_limit;
mod redis;
mod reserved_headers;
mod satisfy_any;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use crate::fault::Fault;
use crate::filter::{Filters, Use};
use crate::gateway::Worker;
use crate::model::{HeaderChanges, HeaderName, Name, Policy, Push, PushTokens, Rule};
use crate::proxy::{Found, log_fields};
use crate::upstream::registry::UpstreamRegistry as Upstreams;
use api_keys::Keys;
use authz::Authz;
use basic_auth::Basic;
use client_certificate::Certificate;
use concurrency::Concurrency;
pub(crate) use context::Cleared;
use context::{Findings, Spare, tell};
pub(crate) use credential_cache::Local;
use fault_injection::Inject;
use ip_access::Addresses;
use jwt::{Jwt, Provider};
use load_shedding::Shed;
use rate_limit::Limits;
pub(crate) use redis::Standings;
pub(crate) use reserved_headers::{Guards, leads_to};
use satisfy_any::Any;

/// A position in the order of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Load shedding: before any work is done for the request.
    Shed,
    /// Address allow and deny lists.
    Addresses,
    /// Preflights are answered here; later policies do not apply to them, since browsers send preflights without credentials.
    Cors,
    /// Rate limits whose key is in the request itself: before any expensive computation.
    Rate,
    /// Authentication: the identity of the client by its credentials.
    Authentication,
    /// Authorization by an external service.
    Authorization,
    /// Rate limits by identity.
    IdentityRate,
    /// Concurrency limits: after all policies that may refuse, so that refused requests occupy no slots.
    Concurrency,
    /// Fault injection.
    Inject,
    /// The program's own filters: after all policies that may refuse, and with the identity known.
    Filters,
}

/// The order of evaluation: cheap policies that refuse the most are first, policies that need the identity follow those that
/// establish it. Within a phase the order is that of the rule.
pub(crate) const PHASES: &[Phase] = &[
    Phase::Shed,
    Phase::Addresses,
    Phase::Cors,
    Phase::Rate,
    Phase::Authentication,
    Phase::Authorization,
    Phase::IdentityRate,
    Phase::Concurrency,
    Phase::Inject,
    Phase::Filters,
];

impl Phase {
    /// Returns the phase of a policy.
    pub(crate) fn of(policy: &Policy) -> Phase {
        match policy {
            Policy::Addresses(_) => Phase::Addresses,
            Policy::Cors(_) => Phase::Cors,
            Policy::ClientCertificate(_)
            | Policy::Basic(_)
            | Policy::ApiKeys(_)
            | Policy::Jwt(_)
            | Policy::SatisfyAny => Phase::Authentication,
            Policy::ExternalAuth(_) => Phase::Authorization,
            Policy::RateLimit(policy) if limit_key::needs_identity(&policy.by) => Phase::IdentityRate,
            Policy::RateLimit(_) => Phase::Rate,
            Policy::Concurrency(_) => Phase::Concurrency,
            Policy::Shed(_) => Phase::Shed,
            Policy::Inject(_) => Phase::Inject,
            Policy::Filter(_) => Phase::Filters,
        }
    }

    fn place(self) -> usize {
        let place = PHASES.iter().position(|phase| *phase == self);
        place.unwrap_or(PHASES.len())
    }
}

/// Returns policies in the order of evaluation.
pub(crate) fn in_order(policies: &[Policy]) -> Vec<&Policy> {
    let mut ordered: Vec<&Policy> = policies.iter().collect();
    // The mode that joins policies precedes them.
    ordered.sort_by_key(|policy| (Phase::of(policy).place(), **policy != Policy::SatisfyAny));
    ordered
}

/// A rule's compiled policies.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    steps: Box<[Step]>,
    /// The number of policies that apply to preflights.
    before_cors: usize,
    /// Request headers that policies write or consume: those of clients are not forwarded.
    drops: Box<[HeaderName]>,
    /// The number of `drops`, from the start, that policies write.
    written: usize,
}

/// A compiled policy. Each kind has a file of its own.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each policy of a rule, compiled once and walked by each request: a box would be a step more"
)]
enum Step {
    Addresses(Addresses),
    Certificate(Certificate),
    Basic(Basic),
    Keys(Keys),
    Jwt(Jwt),
    /// Several policies of which one is sufficient.
    Any(Any),
    Authz(Authz),
    /// All rate limits of a phase.
    Limits(Limits),
    /// All concurrency limits of a rule.
    Concurrency(Concurrency),
    Shed(Shed),
    Inject(Inject),
}

/// State of policies for the whole process, by stable names: it survives a change of configuration.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    providers: Vec<Arc<Provider>>,
    /// The provider of push clients' tokens.
    push: Option<Arc<Provider>>,
    last_id: u64,
    filters: Filters,
    last_filter: u64,
    guards: Guards,
}

/// The state of a [`Registry`] before a configuration was compiled.
#[derive(Debug)]
pub(crate) struct Before {
    providers: Vec<Arc<Provider>>,
    push: Option<Arc<Provider>>,
    guards: Guards,
}

impl Before {
    /// Returns the headers that clients were not allowed to send to upstreams.
    pub(crate) fn guards(&self) -> &Guards {
        &self.guards
    }

    /// Returns the provider of push clients' tokens.
    pub(crate) fn push(&self) -> Option<&Arc<Provider>> {
        self.push.as_ref()
    }
}

impl Registry {
    /// Returns the current state, to be restored if the next compiled configuration is discarded.
    pub(crate) fn before(&self) -> Before {
        Before {
            providers: self.providers.clone(),
            push: self.push.clone(),
            guards: self.guards.clone(),
        }
    }

    /// Restores a former state.
    pub(crate) fn restore(&mut self, before: Before) {
        self.providers = before.providers;
        self.push = before.push;
        self.guards = before.guards;
    }

    /// Creates the state with the program's filters.
    pub(crate) fn new(filters: Filters) -> Registry {
        Registry {
            filters,
            ..Registry::default()
        }
    }

    /// Sets the headers that clients must not send to upstreams in the next compiled configuration.
    pub(crate) fn guard(&mut self, guards: Guards) {
        self.guards = guards;
    }

    /// Returns the headers that clients must not send to upstreams.
    pub(crate) fn guards(&self) -> &Guards {
        &self.guards
    }

    /// Returns the filters of a rule.
    ///
    /// # Errors
    /// The reason that a filter of the rule cannot be used.
    pub(crate) fn filters(&mut self, rule: &Rule) -> Result<Option<Box<[Use]>>, String> {
        self.filters.of(rule, &mut self.last_filter)
    }

    /// Sets up the provider of push clients' tokens, if one is configured.
    ///
    /// # Errors
    /// The upstream of its keys does not exist: then there is no provider.
    pub(crate) fn follow_push(&mut self, push: &Push, upstreams: &Upstreams) -> Result<(), String> {
        self.push = None;
        if let Some(config) = push.tokens.as_ref().and_then(PushTokens::provider) {
            self.push = Some(self.provider(config, upstreams)?);
        }
        Ok(())
    }

    /// Returns the provider of push clients' tokens.
    pub(crate) fn push(&self) -> Option<&Arc<Provider>> {
        self.push.as_ref()
    }

    /// Removes providers that neither a rule nor push uses.
    pub(crate) fn retain<'p>(&mut self, used: impl Iterator<Item = &'p Policies>) {
        // Most configurations have no providers, and may have thousands of routes to scan.
        if self.providers.is_empty() {
            return;
        }
        let used: Vec<*const Provider> = used
            .flat_map(|policies| &policies.steps)
            .flat_map(|step| match step {
                Step::Any(any) => any.steps(),
                step => std::slice::from_ref(step),
            })
            .filter_map(|step| match step {
                Step::Jwt(jwt) => Some(jwt.providers()),
                _ => None,
            })
            .flatten()
            .map(Arc::as_ptr)
            .collect();
        let push = self.push.as_ref().map(Arc::as_ptr);
        self.providers.retain(|provider| {
            let provider = Arc::as_ptr(provider);
            used.contains(&provider) || push == Some(provider)
        });
    }

    /// Returns the providers of keys for tokens.
    pub(crate) fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }
}

/// Request headers that a rule's policies use.
#[derive(Debug, Default)]
struct Names {
    /// Written by policies: clients cannot send these.
    written: Vec<HeaderName>,
    /// Consumed by policies.
    hidden: Vec<HeaderName>,
}

/// A request and its route, as policies see them.
#[derive(Clone, Copy)]
pub(crate) struct At<'a, 'r> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) found: &'a Found<'a>,
    pub(crate) req: &'a Request<'r>,
}

/// The reason for a refusal, and its response.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) fault: Fault,
    /// Replaces the fault's status.
    pub(crate) status: Option<u16>,
    /// Headers of the response: a challenge (RFC 9110 §11.6.1), or the time to retry after.
    pub(crate) fields: FieldBlock,
    /// The response of an external service, in place of the fault's status and text.
    pub(crate) answer: Option<ExternalResponse>,
}

/// The response of an external service.
#[derive(Debug)]
pub(crate) struct ExternalResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl From<Fault> for Box<Refusal> {
    fn from(fault: Fault) -> Box<Refusal> {
        Box::new(Refusal {
            fault,
            status: None,
            fields: FieldBlock::new(),
            answer: None,
        })
    }
}

/// The result of a walk that does not wait.
#[derive(Debug)]
pub(crate) enum Walk {
    Cleared(Cleared),
    Refused(Box<Refusal>),
    /// A policy has to wait. Nothing was changed: [`walk`] starts over.
    Waits,
}

impl Refusal {
    /// Creates a refusal with a challenge (RFC 9110 §11.6.1).
    fn challenge(fault: Fault, challenge: &str) -> Box<Refusal> {
        let mut refusal: Box<Refusal> = fault.into();
        if let Err(misuse) = refusal.fields.push("WWW-Authenticate", challenge.as_bytes()) {
            log::error!("a challenge cannot be sent: {misuse}");
        }
        refusal
    }
}

type Outcome = Result<(), Box<Refusal>>;

/// Evaluates a rule's policies without waiting. Nothing is counted, acquired or recorded when it returns [`Walk::Waits`].
pub(crate) fn walk_now(worker: &Rc<Worker>, found: &Found<'_>, req: &Request<'_>) -> Walk {
    let steps = match steps_of(found) {
        Ok([]) => return Walk::Cleared(Cleared::new(worker)),
        Ok(steps) => steps,
        Err(refusal) => return Walk::Refused(refusal),
    };
    let at = At { worker, found, req };
    if steps.iter().any(|step| step.waits(&at)) {
        return Walk::Waits;
    }
    let mut cleared = Cleared::new(worker);
    for step in steps {
        if let Err(refusal) = step.pass(&at, &mut cleared) {
            return Walk::Refused(refusal);
        }
    }
    note(&at, &cleared);
    Walk::Cleared(cleared)
}

/// Evaluates a rule's policies, waiting where needed.
///
/// # Errors
/// The refusal of the first policy that refuses the request, or that of a broken rule.
pub(crate) async fn walk(
    worker: &Rc<Worker>,
    found: &Found<'_>,
    req: &Request<'_>,
) -> Result<Cleared, Box<Refusal>> {
    let at = At { worker, found, req };
    let mut cleared = Cleared::new(worker);
    for step in steps_of(found)? {
        if step.waits(&at) {
            // Boxed, so that requests that do not wait reserve no space for it.
            Box::pin(step.pass_waiting(&at, &mut cleared)).await?;
        } else {
            step.pass(&at, &mut cleared)?;
        }
    }
    note(&at, &cleared);
    Ok(cleared)
}

/// Returns the policies of a request's rule. A rule that is broken passes no request.
fn steps_of<'f>(found: &'f Found<'_>) -> Result<&'f [Step], Box<Refusal>> {
    let plan = found.matched.plan().map_err(|_why| Fault::BrokenRule)?;
    let policies = &plan.policies;
    match &found.cross {
        Some(cross) if cross.is_preflight => Ok(&policies.steps[..policies.before_cors]),
        _ => Ok(&policies.steps),
    }
}

fn note(at: &At<'_, '_>, cleared: &Cleared) {
    if let Some(identity) = cleared.identity() {
        log_fields::identity(identity, at.req);
    }
}

impl Policies {
    /// Compiles a rule's policies. Counters are shared by name.
    ///
    /// # Errors
    /// The reason that a policy cannot be compiled: the rule is broken.
    pub(crate) fn of(
        rule: &Rule,
        missing: &[Name],
        known: &mut Registry,
        upstreams: &Upstreams,
    ) -> Result<Policies, String> {
        let counters = upstreams.counters();
        let mut policies = Policies::default();
        let mut steps: Vec<Step> = Vec::new();
        let mut last = None;
        let mut names = Names::default();
        let any = rule.policies.contains(&Policy::SatisfyAny);
        let (mut alternatives, mut place) = (Vec::new(), 0);
        for policy in in_order(&rule.policies) {
            let phase = Phase::of(policy);
            let same = last.replace(phase) == Some(phase);
            // Limits that are evaluated together with the previous one.
            match (policy, steps.last_mut()) {
                (Policy::RateLimit(policy), Some(Step::Limits(limits))) if same => {
                    limits.add(policy, missing, upstreams)?;
                    continue;
                }
                (Policy::Concurrency(policy), Some(Step::Concurrency(caps))) if same => {
                    caps.add(policy, counters);
                    continue;
                }
                _ => {}
            }
            let step = match policy {
                Policy::Addresses(policy) if any => {
                    alternatives.extend(Addresses::alone_allowed(policy).map(Step::Addresses));
                    Step::Addresses(Addresses::alone_denied(policy))
                }
                Policy::Addresses(policy) => Step::Addresses(Addresses::of(policy)),
                // The exchange applies these around the rule's action.
                Policy::Cors(_) | Policy::Filter(_) | Policy::SatisfyAny => continue,
                Policy::ClientCertificate(policy) => {
                    Step::Certificate(Certificate::of(policy, any, &mut names))
                }
                Policy::Basic(policy) => Step::Basic(Basic::of(policy, &mut names, counters.passwords())),
                Policy::ApiKeys(policy) => Step::Keys(Keys::of(policy, &mut names)),
                Policy::Jwt(policy) => Step::Jwt(Jwt::of(policy, &mut names, known, upstreams)?),
                Policy::ExternalAuth(policy) => Step::Authz(Authz::of(policy, &mut names, upstreams)?),
                Policy::RateLimit(policy) => Step::Limits(Limits::of(policy, missing, upstreams)?),
                Policy::Concurrency(policy) => Step::Concurrency(Concurrency::of(policy, counters)),
                Policy::Shed(policy) => Step::Shed(Shed(policy.late)),
                Policy::Inject(policy) => Step::Inject(Inject::of(policy, &mut names.hidden)),
            };
            if any && phase == Phase::Authentication {
                alternatives.push(step);
                continue;
            }
            steps.push(step);
            if phase.place() < Phase::Cors.place() {
                policies.before_cors = steps.len();
            }
            if phase.place() < Phase::Authentication.place() {
                place = steps.len();
            }
        }
        if any {
            steps.insert(place, Step::Any(Any::of(alternatives)?));
        }
        policies.steps = steps.into();
        policies.written = names.written.len();
        policies.drops = [names.written, names.hidden].concat().into();
        Ok(policies)
    }

    /// Returns the request headers that are not forwarded: policies write or consume them.
    pub(crate) fn drops(&self) -> &[HeaderName] {
        &self.drops
    }

    /// Returns the first header that both policies write and the rule changes: one of the values would be lost.
    pub(crate) fn conflict(&self, changes: &HeaderChanges) -> Option<&HeaderName> {
        let changed = |name: &HeaderName| {
            let set = changes.set.iter().chain(&changes.add).map(|(name, _)| name);
            set.chain(&changes.remove).any(|changed| changed == name)
        };
        self.drops[..self.written].iter().find(|name| changed(name))
    }
}

impl Step {
    /// Returns whether evaluating it now would have to wait. Changes no state that another request or step could observe.
    fn waits(&self, at: &At<'_, '_>) -> bool {
        match self {
            Step::Addresses(_)
            | Step::Certificate(_)
            | Step::Keys(_)
            | Step::Concurrency(_)
            | Step::Shed(_) => false,
            Step::Basic(policy) => policy.waits(at),
            Step::Any(any) => any.waits(at),
            Step::Jwt(policy) => policy.waits(at),
            Step::Authz(_) => true,
            Step::Inject(policy) => policy.waits(at),
            Step::Limits(limits) => limits.wait(),
        }
    }

    /// Evaluates it; it must not have to wait.
    fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        match self {
            Step::Addresses(policy) => policy.pass(at),
            Step::Certificate(policy) => policy.pass(at, cleared),
            Step::Basic(policy) => policy.pass(at, cleared),
            Step::Keys(policy) => policy.pass(at, cleared),
            Step::Jwt(policy) => policy.pass(at, cleared),
            Step::Any(any) => any.pass(at, cleared),
            // External authorization always has to wait.
            Step::Authz(_) => Err(Fault::AuthzUnavailable.into()),
            Step::Limits(limits) => limits.pass(at, cleared),
            Step::Concurrency(caps) => caps.pass(at, cleared),
            Step::Shed(policy) => policy.pass(at),
            Step::Inject(policy) => policy.pass(at),
        }
    }

    /// Evaluates it, waiting where needed.
    async fn pass_waiting(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        match self {
            Step::Basic(policy) => policy.pass_waiting(at, cleared).await,
            Step::Jwt(policy) => policy.pass_waiting(at, cleared).await,
            Step::Any(any) => any.pass_waiting(at, cleared).await,
            Step::Authz(policy) => policy.pass_waiting(at, cleared).await,
            Step::Inject(policy) => policy.pass_waiting(at).await,
            Step::Limits(limits) => limits.pass_waiting(at, cleared).await,
            _ => self.pass(at, cleared),
        }
    }
}

impl fmt::Debug for At<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("At")
            .field("req", self.req)
            .finish_non_exhaustive()
    }
}
