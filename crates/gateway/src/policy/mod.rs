//! What a request must pass between its rule and that rule's action: the walk over the rule's policies, in one order for all rules.
//!
//! ```text
//! rule ─▶ walk_now ─┬─ Cleared ─▶ action        no policy waits for anything: no task is needed
//!                   ├─ Refused ─▶ answer
//!                   └─ Waits ─▶ walk ─┬─ Cleared ─▶ action
//!                                     └─ Refused ─▶ answer
//! ```
//!
//! Nothing gets to a rule's action without a [`Cleared`], and nothing but the walk makes one. A file for each kind of policy; this
//! one knows their order and none of their meanings.

mod addresses;
mod any;
mod authz;
mod basic;
mod body;
pub(crate) mod call;
mod certificate;
mod cleared;
mod concurrency;
mod guards;
mod inject;
pub(crate) mod jwt;
mod key;
mod keys;
mod limit;
mod local;
pub(crate) mod passwords;
mod redis;
mod shed;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use crate::exchange::{Found, note};
use crate::fault::Fault;
use crate::filter::{Filters, Use};
use crate::gateway::Worker;
use crate::model::{HeaderChanges, HeaderName, Name, Policy, Push, PushTokens, Rule};
use crate::upstream::registry::Registry as Upstreams;
use addresses::Addresses;
use any::Any;
use authz::Authz;
use basic::Basic;
use certificate::Certificate;
pub(crate) use cleared::Cleared;
use cleared::{Findings, Spare, tell};
use concurrency::Concurrency;
pub(crate) use guards::{Guards, leads_to};
use inject::Inject;
use jwt::{Jwt, Provider};
use keys::Keys;
use limit::Limits;
pub(crate) use local::Local;
pub(crate) use redis::Standings;
use shed::Shed;

/// When a kind of policy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// What goes first when there is too much to do: before any work is done for it.
    Shed,
    /// Addresses that are let in.
    Addresses,
    /// Preflights are answered here; they meet nothing of what follows, since browsers send them without credentials.
    Cors,
    /// Rates by what a request says by itself: before anything is computed for it.
    Rate,
    /// What a client has shown by itself or must show: who it is.
    Authentication,
    /// Whether who it is may do this, as others say.
    Authorization,
    /// Rates by who asks.
    IdentityRate,
    /// Requests at once: behind all that may refuse, so that who is refused takes nobody's place.
    Concurrency,
    /// Faults that are put in.
    Inject,
    /// The program's own filters: behind all that may refuse, and with who asks known.
    Filters,
}

/// The order in which a request meets policies: what is cheap and keeps most away first, what needs to know who asks behind
/// what finds that out. Those of one phase stand in the order of the rule.
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
    /// That of a policy.
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
            Policy::RateLimit(policy) if key::needs_identity(&policy.by) => Phase::IdentityRate,
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

/// Policies in the order in which a request meets them.
pub(crate) fn in_order(policies: &[Policy]) -> Vec<&Policy> {
    let mut ordered: Vec<&Policy> = policies.iter().collect();
    // What says how policies are joined stands in front of them.
    ordered.sort_by_key(|policy| (Phase::of(policy).place(), **policy != Policy::SatisfyAny));
    ordered
}

/// A rule's policies, ready to be asked.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    steps: Box<[Step]>,
    /// How many of them a preflight meets.
    before_cors: usize,
    /// Headers of requests that policies write or take out: of clients they go no further.
    drops: Box<[HeaderName]>,
    /// How many of them, the first, are written.
    written: usize,
}

/// One policy. What is done is in its own file.
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
    /// One of them is enough.
    Any(Any),
    Authz(Authz),
    /// All of a phase.
    Limits(Limits),
    /// All of a rule.
    Concurrency(Concurrency),
    Shed(Shed),
    Inject(Inject),
}

/// What policies know for the whole process, by stable names: it survives a change of configuration.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    providers: Vec<Arc<Provider>>,
    /// The one whose tokens clients of push show.
    push: Option<Arc<Provider>>,
    last_id: u64,
    filters: Filters,
    last_filter: u64,
    guards: Guards,
}

/// What a [`Registry`] knew before a configuration was compiled.
#[derive(Debug)]
pub(crate) struct Before {
    providers: Vec<Arc<Provider>>,
    push: Option<Arc<Provider>>,
    guards: Guards,
}

impl Before {
    /// What no client might send to upstreams.
    pub(crate) fn guards(&self) -> &Guards {
        &self.guards
    }

    /// The provider whose tokens clients of push showed.
    pub(crate) fn push(&self) -> Option<&Arc<Provider>> {
        self.push.as_ref()
    }
}

impl Registry {
    /// What is known now, to be restored if the configuration that is compiled next is not taken.
    pub(crate) fn before(&self) -> Before {
        Before {
            providers: self.providers.clone(),
            push: self.push.clone(),
            guards: self.guards.clone(),
        }
    }

    /// Restores what was known.
    pub(crate) fn restore(&mut self, before: Before) {
        self.providers = before.providers;
        self.push = before.push;
        self.guards = before.guards;
    }

    /// With what filters the program has.
    pub(crate) fn new(filters: Filters) -> Registry {
        Registry {
            filters,
            ..Registry::default()
        }
    }

    /// What no client may say to upstreams, as the configuration that is compiled next has it.
    pub(crate) fn guard(&mut self, guards: Guards) {
        self.guards = guards;
    }

    /// What no client may say to upstreams.
    pub(crate) fn guards(&self) -> &Guards {
        &self.guards
    }

    /// The filters of a rule.
    pub(crate) fn filters(&mut self, rule: &Rule) -> Result<Option<Box<[Use]>>, String> {
        self.filters.of(rule, &mut self.last_filter)
    }

    /// Has the provider at work whose tokens clients of push show, if it is to be one.
    ///
    /// # Errors
    /// Nobody can be asked for its keys: then there is none.
    pub(crate) fn follow_push(&mut self, push: &Push, upstreams: &Upstreams) -> Result<(), String> {
        self.push = None;
        if let Some(config) = push.tokens.as_ref().and_then(PushTokens::provider) {
            self.push = Some(self.provider(config, upstreams)?);
        }
        Ok(())
    }

    /// The provider whose tokens clients of push show.
    pub(crate) fn push(&self) -> Option<&Arc<Provider>> {
        self.push.as_ref()
    }

    /// Forgets what neither a rule nor push uses.
    pub(crate) fn retain<'p>(&mut self, used: impl Iterator<Item = &'p Policies>) {
        // Most configurations have none, and thousands of routes to go through.
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

    /// Providers of keys for tokens.
    pub(crate) fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }
}

/// Headers of requests that a rule's policies are about.
#[derive(Debug, Default)]
struct Names {
    /// They write them: clients cannot.
    written: Vec<HeaderName>,
    /// They take them out.
    hidden: Vec<HeaderName>,
}

/// A request and where it belongs, as policies see it.
#[derive(Clone, Copy)]
pub(crate) struct At<'a, 'r> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) found: &'a Found<'a>,
    pub(crate) req: &'a Request<'r>,
}

/// Why a request goes no further, and what its client is told besides the fault.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) fault: Fault,
    /// In place of the fault's.
    pub(crate) status: Option<u16>,
    /// Headers of the answer: what to show next time (RFC 9110 §11.6.1), when to come back.
    pub(crate) fields: FieldBlock,
    /// What somebody else says in place of the fault's own status and text.
    pub(crate) answer: Option<ExternalResponse>,
}

/// An answer of somebody who was asked.
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

/// What has come of a walk that does not wait.
#[derive(Debug)]
pub(crate) enum Walk {
    Cleared(Cleared),
    Refused(Box<Refusal>),
    /// A policy has to wait. Nothing was done: [`walk`] begins at the beginning.
    Waits,
}

impl Refusal {
    /// With a challenge (RFC 9110 §11.6.1).
    fn challenge(fault: Fault, challenge: &str) -> Box<Refusal> {
        let mut refusal: Box<Refusal> = fault.into();
        if let Err(misuse) = refusal.fields.push("WWW-Authenticate", challenge.as_bytes()) {
            log::error!("a challenge cannot be sent: {misuse}");
        }
        refusal
    }
}

type Outcome = Result<(), Box<Refusal>>;

/// Asks a rule's policies as far as that needs no waiting. Nothing is counted, taken or noted when it [`Walk::Waits`].
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

/// Asks a rule's policies, waiting where one has to.
pub(crate) async fn walk(
    worker: &Rc<Worker>,
    found: &Found<'_>,
    req: &Request<'_>,
) -> Result<Cleared, Box<Refusal>> {
    let at = At { worker, found, req };
    let mut cleared = Cleared::new(worker);
    for step in steps_of(found)? {
        if step.waits(&at) {
            // Apart, so that requests that wait for nothing have no room for it.
            Box::pin(step.pass_waiting(&at, &mut cleared)).await?;
        } else {
            step.pass(&at, &mut cleared)?;
        }
    }
    note(&at, &cleared);
    Ok(cleared)
}

/// The policies that a request meets. A rule that is broken lets nothing pass.
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
        note::identity(identity, at.req);
    }
}

impl Policies {
    /// A rule's. What it counts belongs to names.
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
            // Those that are asked together with the one before.
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
                // What is made around the rule's action is the exchange's.
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

    /// Headers of requests that go no further: policies write them, or take them out.
    pub(crate) fn drops(&self) -> &[HeaderName] {
        &self.drops
    }

    /// The first header that policies write and a rule changes, too: one of both would be lost.
    pub(crate) fn conflict(&self, changes: &HeaderChanges) -> Option<&HeaderName> {
        let changed = |name: &HeaderName| {
            let set = changes.set.iter().chain(&changes.add).map(|(name, _)| name);
            set.chain(&changes.remove).any(|changed| changed == name)
        };
        self.drops[..self.written].iter().find(|name| changed(name))
    }
}

impl Step {
    /// Whether asking it now would have to wait. Changes nothing that another request or step could see.
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

    /// Asks it; it must not have to wait.
    fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        match self {
            Step::Addresses(policy) => policy.pass(at),
            Step::Certificate(policy) => policy.pass(at, cleared),
            Step::Basic(policy) => policy.pass(at, cleared),
            Step::Keys(policy) => policy.pass(at, cleared),
            Step::Jwt(policy) => policy.pass(at, cleared),
            Step::Any(any) => any.pass(at, cleared),
            // It always has to wait.
            Step::Authz(_) => Err(Fault::AuthzUnavailable.into()),
            Step::Limits(limits) => limits.pass(at, cleared),
            Step::Concurrency(caps) => caps.pass(at, cleared),
            Step::Shed(policy) => policy.pass(at),
            Step::Inject(policy) => policy.pass(at),
        }
    }

    /// Asks it, waiting for what it needs.
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
