//! The policies between a rule and its action: evaluated in one order for all rules.
//!
//! ```text
//! rule ─▶ evaluate_sync ─┬─ Cleared ─▶ action        no policy waits for anything: no task is needed
//!                   ├─ Refused ─▶ answer
//!                   └─ Waits ─▶ walk ─┬─ Cleared ─▶ action
//!                                     └─ Refused ─▶ answer
//! ```
//!
//! No request reaches a rule's action without a [`Cleared`], and only the evaluation creates one. Each kind of policy has a file; this
//! one knows their order and not their meaning.

mod api_keys;
mod authz;
mod basic_auth;
mod body_buffer;
mod client_certificate;
mod compile_step;
mod concurrency;
mod context;
mod credential_cache;
pub(crate) mod envoy_messages;
mod fault_injection;
pub(crate) mod header_change;
pub(crate) mod http_client;
mod ip_access;
pub(crate) mod jwt;
mod limit_key;
mod load_shedding;
pub(crate) mod passwords;
mod rate_limit;
mod rate_service;
mod redis;
mod refusal;
mod reserved_headers;
mod satisfy_any;
pub(crate) mod service_endpoints;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_web::Request;

use crate::ext_proc::Processor;
use crate::fault::Fault;
use crate::filter::{Filters, Use};
use crate::gateway::Worker;
use crate::model::{HeaderChanges, HeaderName, Name, Policy, Push, PushTokens, Rule};
use crate::proxy::RequestRoute;
use crate::upstream::registry::UpstreamRegistry as Upstreams;
use api_keys::ApiKeyAuth;
use authz::ExternalAuthz;
#[cfg(feature = "fuzzing")]
pub(crate) use authz::authz_outcome;
use basic_auth::PasswordAuth;
use client_certificate::CertificateAuth;
use compile_step::compile_step;
use concurrency::ConcurrencyLimits;
pub(crate) use context::{Cleared, PolicyRecord};
use context::{ContextPool, PolicyContext, add_header};
pub(crate) use credential_cache::CredentialCache;
use fault_injection::FaultInjector;
pub(crate) use header_change::HeaderChange;
use ip_access::IpAccess;
use jwt::{JwtAuth, KeyProvider};
use load_shedding::LoadShedder;
use rate_limit::RateLimits;
use rate_service::RateService;
pub(crate) use redis::RedisBreakers;
pub(crate) use refusal::{ExternalResponse, Refusal};
pub(crate) use reserved_headers::{ReservedHeaders, targets_any};
use satisfy_any::SatisfyAny;

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
    /// A rate limit service, unless it needs the identity: after the limits of this process, whose refusals cause no call.
    RateService,
    /// Authentication: the identity of the client by its credentials.
    Authentication,
    /// Authorization by an external service.
    Authorization,
    /// Rate limits by identity.
    IdentityRate,
    /// A rate limit service with descriptors by identity.
    IdentityRateService,
    /// Concurrency limits: after all policies that may refuse, so that refused requests occupy no slots.
    Concurrency,
    /// Fault injection.
    Inject,
    /// External processors.
    Processors,
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
    Phase::RateService,
    Phase::Authentication,
    Phase::Authorization,
    Phase::IdentityRate,
    Phase::IdentityRateService,
    Phase::Concurrency,
    Phase::Inject,
    Phase::Processors,
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
            Policy::RateService(policy) if policy.needs_identity() => Phase::IdentityRateService,
            Policy::RateService(_) => Phase::RateService,
            Policy::Concurrency(_) => Phase::Concurrency,
            Policy::Shed(_) => Phase::Shed,
            Policy::Inject(_) => Phase::Inject,
            Policy::Processor(_) => Phase::Processors,
            Policy::Filter(_) => Phase::Filters,
        }
    }

    fn position(self) -> usize {
        let position = PHASES.iter().position(|phase| *phase == self);
        position.unwrap_or(PHASES.len())
    }
}

/// Returns policies in the order of evaluation.
pub(crate) fn in_order(policies: &[Policy]) -> Vec<&Policy> {
    let mut ordered: Vec<&Policy> = policies.iter().collect();
    // The mode that joins policies precedes them.
    ordered.sort_by_key(|policy| (Phase::of(policy).position(), **policy != Policy::SatisfyAny));
    ordered
}

/// A rule's compiled policies.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    steps: Box<[PolicyStep]>,
    /// The number of policies that apply to preflights.
    before_cors: usize,
    /// Request headers that policies write or consume: those of clients are not forwarded.
    consumed_headers: Box<[HeaderName]>,
    /// The number of `drops`, from the start, that policies write.
    written_count: usize,
}

/// A compiled policy. Each kind has a file of its own.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each policy of a rule, compiled once and evaluated for each request: a box would add an indirection"
)]
enum PolicyStep {
    Addresses(IpAccess),
    Certificate(CertificateAuth),
    Basic(PasswordAuth),
    Keys(ApiKeyAuth),
    Jwt(JwtAuth),
    /// Several policies of which one is sufficient.
    Any(SatisfyAny),
    Authz(ExternalAuthz),
    /// All rate limits of a phase.
    Limits(RateLimits),
    RateService(RateService),
    /// All concurrency limits of a rule.
    Concurrency(ConcurrencyLimits),
    Shed(LoadShedder),
    Inject(FaultInjector),
}

/// State of policies for the whole process, by stable names: it survives a change of configuration.
#[derive(Debug, Default)]
pub(crate) struct PolicyRegistry {
    providers: Vec<Arc<KeyProvider>>,
    /// The provider of push clients' tokens.
    push_provider: Option<Arc<KeyProvider>>,
    last_id: u64,
    filters: Filters,
    last_filter: u64,
    reserved_headers: ReservedHeaders,
}

/// The state of a [`PolicyRegistry`] before a configuration was compiled.
#[derive(Debug)]
pub(crate) struct PolicySnapshot {
    providers: Vec<Arc<KeyProvider>>,
    push_provider: Option<Arc<KeyProvider>>,
    reserved_headers: ReservedHeaders,
}

impl PolicySnapshot {
    /// Returns the headers that clients were not allowed to send to upstreams.
    pub(crate) fn reserved_headers(&self) -> &ReservedHeaders {
        &self.reserved_headers
    }

    /// Returns the provider of push clients' tokens.
    pub(crate) fn push_provider(&self) -> Option<&Arc<KeyProvider>> {
        self.push_provider.as_ref()
    }
}

impl PolicyRegistry {
    /// Returns the current state, to be restored if the next compiled configuration is discarded.
    pub(crate) fn before(&self) -> PolicySnapshot {
        PolicySnapshot {
            providers: self.providers.clone(),
            push_provider: self.push_provider.clone(),
            reserved_headers: self.reserved_headers.clone(),
        }
    }

    /// Restores a former state.
    pub(crate) fn restore(&mut self, before: PolicySnapshot) {
        self.providers = before.providers;
        self.push_provider = before.push_provider;
        self.reserved_headers = before.reserved_headers;
    }

    /// Creates the state with the program's filters.
    pub(crate) fn new(filters: Filters) -> PolicyRegistry {
        PolicyRegistry {
            filters,
            ..PolicyRegistry::default()
        }
    }

    /// Sets the headers that clients must not send to upstreams in the next compiled configuration.
    pub(crate) fn set_reserved_headers(&mut self, guards: ReservedHeaders) {
        self.reserved_headers = guards;
    }

    /// Returns the headers that clients must not send to upstreams.
    pub(crate) fn reserved_headers(&self) -> &ReservedHeaders {
        &self.reserved_headers
    }

    /// Returns the filters of a rule: its external processors, then those of the program.
    ///
    /// # Errors
    /// The reason that a filter of the rule cannot be used.
    pub(crate) fn compile_filters(
        &mut self,
        rule: &Rule,
        upstreams: &Upstreams,
    ) -> Result<Option<Box<[Use]>>, String> {
        let processors = rule.policies.iter().filter_map(|policy| match policy {
            Policy::Processor(policy) => Some(policy),
            _ => None,
        });
        let processors = processors.map(|policy| Processor::compile(policy, upstreams).map(Use::processor));
        let mut uses: Vec<Use> = processors.collect::<Result<_, String>>()?;
        uses.extend(self.filters.compile(rule, &mut self.last_filter)?);
        Ok((!uses.is_empty()).then(|| uses.into()))
    }

    /// Sets up the provider of push clients' tokens, if one is configured.
    ///
    /// # Errors
    /// The upstream of its keys does not exist: then there is no provider.
    pub(crate) fn set_push_provider(&mut self, push: &Push, upstreams: &Upstreams) -> Result<(), String> {
        self.push_provider = None;
        if let Some(config) = push.tokens.as_ref().and_then(PushTokens::provider) {
            self.push_provider = Some(self.provider(config, upstreams)?);
        }
        Ok(())
    }

    /// Returns the provider of push clients' tokens.
    pub(crate) fn push_provider(&self) -> Option<&Arc<KeyProvider>> {
        self.push_provider.as_ref()
    }

    /// Removes providers that neither a rule nor push uses.
    pub(crate) fn retain<'p>(&mut self, used_policies: impl Iterator<Item = &'p Policies>) {
        // Most configurations have no providers, and may have thousands of routes to scan.
        if self.providers.is_empty() {
            return;
        }
        let used_policies: Vec<*const KeyProvider> = used_policies
            .flat_map(|policies| &policies.steps)
            .flat_map(|step| match step {
                PolicyStep::Any(any) => any.steps(),
                step => std::slice::from_ref(step),
            })
            .filter_map(|step| match step {
                PolicyStep::Jwt(jwt) => Some(jwt.providers()),
                _ => None,
            })
            .flatten()
            .map(Arc::as_ptr)
            .collect();
        let push = self.push_provider.as_ref().map(Arc::as_ptr);
        self.providers.retain(|provider| {
            let provider = Arc::as_ptr(provider);
            used_policies.contains(&provider) || push == Some(provider)
        });
    }

    /// Returns the providers of keys for tokens.
    pub(crate) fn providers(&self) -> &[Arc<KeyProvider>] {
        &self.providers
    }
}

/// Request headers that a rule's policies use.
#[derive(Debug, Default)]
struct UsedHeaders {
    /// Written by policies: clients cannot send these.
    written: Vec<HeaderName>,
    /// Consumed by policies.
    hidden: Vec<HeaderName>,
}

/// A request and its route, as policies see them.
#[derive(Clone, Copy)]
pub(crate) struct PolicyInput<'a, 'r> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) route: &'a RequestRoute<'a>,
    pub(crate) req: &'a Request<'r>,
}

/// The result of an evaluation that does not wait.
#[derive(Debug)]
pub(crate) enum PolicyOutcome {
    Cleared(Cleared),
    Refused(Box<Refusal>),
    /// A policy has to wait. Nothing was changed: [`evaluate`] starts over.
    Pending,
}

type StepResult = Result<(), Box<Refusal>>;

/// Evaluates a rule's policies without waiting. Nothing is counted, acquired or recorded when it returns [`PolicyOutcome::Pending`].
pub(crate) fn evaluate_sync(
    worker: &Rc<Worker>,
    route: &RequestRoute<'_>,
    req: &Request<'_>,
) -> PolicyOutcome {
    let steps = match rule_steps(route) {
        Ok([]) => return PolicyOutcome::Cleared(Cleared::new(worker)),
        Ok(steps) => steps,
        Err(refusal) => return PolicyOutcome::Refused(refusal),
    };
    let at = PolicyInput { worker, route, req };
    if steps.iter().any(|step| step.must_wait(&at)) {
        return PolicyOutcome::Pending;
    }
    let mut cleared = Cleared::new(worker);
    match steps.iter().try_for_each(|step| step.check(&at, &mut cleared)) {
        Ok(()) => PolicyOutcome::Cleared(cleared),
        Err(refusal) => PolicyOutcome::Refused(refusal.with_record_of(&cleared)),
    }
}

/// Evaluates a rule's policies, waiting where needed.
///
/// # Errors
/// The refusal of the first policy that refuses the request, or that of a broken rule.
pub(crate) async fn evaluate(
    worker: &Rc<Worker>,
    route: &RequestRoute<'_>,
    req: &Request<'_>,
) -> Result<Cleared, Box<Refusal>> {
    let at = PolicyInput { worker, route, req };
    let mut cleared = Cleared::new(worker);
    for step in rule_steps(route)? {
        let result = if step.must_wait(&at) {
            // Boxed, so that requests that do not wait reserve no space for it.
            Box::pin(step.check_async(&at, &mut cleared)).await
        } else {
            step.check(&at, &mut cleared)
        };
        result.map_err(|refusal| refusal.with_record_of(&cleared))?;
    }
    Ok(cleared)
}

/// Returns the policies of a request's rule. A rule that is broken passes no request.
fn rule_steps<'f>(route: &'f RequestRoute<'_>) -> Result<&'f [PolicyStep], Box<Refusal>> {
    let plan = route.matched.plan().map_err(|_error| Fault::BrokenRule)?;
    let policies = &plan.policies;
    match &route.cors {
        Some(cors) if cors.is_preflight => Ok(&policies.steps[..policies.before_cors]),
        _ => Ok(&policies.steps),
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
        registry: &mut PolicyRegistry,
        upstreams: &Upstreams,
    ) -> Result<Policies, String> {
        let counters = upstreams.counters();
        let mut policies = Policies::default();
        let mut steps: Vec<PolicyStep> = Vec::new();
        let mut last = None;
        let mut names = UsedHeaders::default();
        let any = rule.policies.contains(&Policy::SatisfyAny);
        let (mut alternatives, mut position) = (Vec::new(), 0);
        for policy in in_order(&rule.policies) {
            let phase = Phase::of(policy);
            let is_same_phase = last.replace(phase) == Some(phase);
            // Limits that are evaluated together with the previous one.
            match (policy, steps.last_mut()) {
                (Policy::RateLimit(policy), Some(PolicyStep::Limits(limits))) if is_same_phase => {
                    limits.add_limit(policy, missing, upstreams)?;
                    continue;
                }
                (Policy::Concurrency(policy), Some(PolicyStep::Concurrency(concurrency)))
                    if is_same_phase =>
                {
                    concurrency.add_limit(policy, counters);
                    continue;
                }
                _ => {}
            }
            let step = match policy {
                Policy::Addresses(policy) if any => {
                    alternatives.extend(IpAccess::allow_list_only(policy).map(PolicyStep::Addresses));
                    PolicyStep::Addresses(IpAccess::deny_list_only(policy))
                }
                Policy::ClientCertificate(policy) => {
                    PolicyStep::Certificate(CertificateAuth::compile(policy, any, &mut names))
                }
                policy => match compile_step(policy, missing, registry, upstreams, &mut names)? {
                    Some(step) => step,
                    None => continue,
                },
            };
            if any && phase == Phase::Authentication {
                alternatives.push(step);
                continue;
            }
            steps.push(step);
            if phase.position() < Phase::Cors.position() {
                policies.before_cors = steps.len();
            }
            if phase.position() < Phase::Authentication.position() {
                position = steps.len();
            }
        }
        if any {
            steps.insert(position, PolicyStep::Any(SatisfyAny::compile(alternatives)?));
        }
        policies.steps = steps.into();
        policies.written_count = names.written.len();
        policies.consumed_headers = [names.written, names.hidden].concat().into();
        Ok(policies)
    }

    /// Returns the request headers that are not forwarded: policies write or consume them.
    pub(crate) fn consumed_headers(&self) -> &[HeaderName] {
        &self.consumed_headers
    }

    /// Returns the first header that both policies write and the rule changes: one of the values would be lost.
    pub(crate) fn conflicting_header(&self, changes: &HeaderChanges) -> Option<&HeaderName> {
        let changed = |name: &HeaderName| {
            let set = changes.set.iter().chain(&changes.add).map(|(name, _)| name);
            set.chain(&changes.remove).any(|changed| changed == name)
        };
        self.consumed_headers[..self.written_count]
            .iter()
            .find(|name| changed(name))
    }
}

impl PolicyStep {
    /// Returns whether the step would have to wait. Changes no state that another request or step could observe.
    fn must_wait(&self, at: &PolicyInput<'_, '_>) -> bool {
        match self {
            PolicyStep::Addresses(_)
            | PolicyStep::Certificate(_)
            | PolicyStep::Keys(_)
            | PolicyStep::Concurrency(_)
            | PolicyStep::Shed(_) => false,
            PolicyStep::Basic(policy) => policy.must_wait(at),
            PolicyStep::Any(any) => any.must_wait(at),
            PolicyStep::Jwt(policy) => policy.must_wait(at),
            PolicyStep::Authz(_) | PolicyStep::RateService(_) => true,
            PolicyStep::Inject(policy) => policy.must_wait(at),
            PolicyStep::Limits(limits) => limits.needs_redis(),
        }
    }

    /// Evaluates the step, which must not have to wait.
    fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        match self {
            PolicyStep::Addresses(policy) => policy.check(at),
            PolicyStep::Certificate(policy) => policy.check(at, cleared),
            PolicyStep::Basic(policy) => policy.check(at, cleared),
            PolicyStep::Keys(policy) => policy.check(at, cleared),
            PolicyStep::Jwt(policy) => policy.check(at, cleared),
            PolicyStep::Any(any) => any.check(at, cleared),
            // External services always have to wait.
            PolicyStep::Authz(_) => Err(Fault::AuthzUnavailable.into()),
            PolicyStep::RateService(_) => Err(Fault::LimiterDown.into()),
            PolicyStep::Limits(limits) => limits.check(at, cleared),
            PolicyStep::Concurrency(concurrency) => concurrency.check(at, cleared),
            PolicyStep::Shed(policy) => policy.check(at),
            PolicyStep::Inject(policy) => policy.check(at),
        }
    }

    /// Evaluates the step, waiting where needed.
    async fn check_async(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        match self {
            PolicyStep::Basic(policy) => policy.check_async(at, cleared).await,
            PolicyStep::Jwt(policy) => policy.check_async(at, cleared).await,
            PolicyStep::Any(any) => any.check_async(at, cleared).await,
            PolicyStep::Authz(policy) => policy.check_async(at, cleared).await,
            PolicyStep::RateService(policy) => policy.check_async(at, cleared).await,
            PolicyStep::Inject(policy) => policy.check_async(at).await,
            PolicyStep::Limits(limits) => limits.check_async(at, cleared).await,
            _ => self.check(at, cleared),
        }
    }
}

impl fmt::Debug for PolicyInput<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("At")
            .field("req", self.req)
            .finish_non_exhaustive()
    }
}
