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
mod authz;
mod basic;
mod call;
mod certificate;
mod concurrency;
mod inject;
pub(crate) mod jwt;
mod keys;
mod limit;
mod local;
mod redis;
mod shed;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use crate::exchange::{Found, note};
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::model::{HeaderChanges, HeaderName, Name, Policy, Rule};
use crate::upstream::registry::Registry as Upstreams;
use addresses::Addresses;
use authz::Authz;
use basic::Basic;
use certificate::Certificate;
use concurrency::{Concurrency, Counted};
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
];

impl Phase {
    /// That of a policy.
    fn of(policy: &Policy) -> Phase {
        match policy {
            Policy::Addresses(_) => Phase::Addresses,
            Policy::Cors(_) => Phase::Cors,
            Policy::ClientCertificate(_) | Policy::Basic(_) | Policy::ApiKeys(_) | Policy::Jwt(_) => {
                Phase::Authentication
            }
            Policy::ExternalAuth(_) => Phase::Authorization,
            Policy::RateLimit(policy) if limit::needs_identity(policy) => Phase::IdentityRate,
            Policy::RateLimit(_) => Phase::Rate,
            Policy::Concurrency(_) => Phase::Concurrency,
            Policy::Shed(_) => Phase::Shed,
            Policy::Inject(_) => Phase::Inject,
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
    ordered.sort_by_key(|policy| Phase::of(policy).place());
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
enum Step {
    Addresses(Addresses),
    Certificate(Certificate),
    Basic(Basic),
    Keys(Keys),
    Jwt(Jwt),
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
    last_id: u64,
}

impl Registry {
    /// Forgets what no rule uses.
    pub(crate) fn retain<'p>(&mut self, used: impl Iterator<Item = &'p Policies>) {
        // Most configurations have none, and thousands of routes to go through.
        if self.providers.is_empty() {
            return;
        }
        let used: Vec<*const Provider> = used
            .flat_map(|policies| &policies.steps)
            .filter_map(|step| match step {
                Step::Jwt(jwt) => Some(jwt.providers()),
                _ => None,
            })
            .flatten()
            .map(Arc::as_ptr)
            .collect();
        self.providers
            .retain(|provider| used.contains(&Arc::as_ptr(provider)));
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

/// The proof that a request has passed its rule's policies, and what they have found out.
#[derive(Debug)]
#[must_use]
pub(crate) struct Cleared(Option<Box<Findings>>);

/// What policies have found out.
#[derive(Debug, Default)]
struct Findings {
    upstream: FieldBlock,
    answer: FieldBlock,
    identity: Option<Arc<str>>,
    counted: Option<Rc<Counted>>,
}

static NOTHING: FieldBlock = FieldBlock::new();

impl Cleared {
    /// Nothing is found out yet. For the walk alone.
    fn new() -> Cleared {
        Cleared(None)
    }

    /// The upstream is told; what cannot be a header's value is not. The name is one of [`Policies::drops`].
    fn tell_upstream(&mut self, name: &str, value: &[u8]) {
        if let Err(misuse) = self.findings().upstream.push(name, value) {
            log::debug!("a policy's header `{name}` cannot be sent: {misuse}");
        }
    }

    /// Who asks is known. What was found out first stays.
    fn identify(&mut self, identity: Arc<str>) {
        self.findings().identity.get_or_insert(identity);
    }

    fn findings(&mut self) -> &mut Findings {
        self.0.get_or_insert_default()
    }

    /// Has the request counted for longer than this lives: until its answer's last byte.
    pub(crate) fn stay(&self, req: &Request<'_>) {
        if let Some(counted) = self.0.as_ref().and_then(|found| found.counted.clone()) {
            req.extend(counted);
        }
    }

    /// Headers for the upstream, which no client can have sent.
    pub(crate) fn upstream(&self) -> &FieldBlock {
        self.0.as_ref().map_or(&NOTHING, |found| &found.upstream)
    }

    /// Headers for the client, whoever answers.
    pub(crate) fn answer(&self) -> &FieldBlock {
        self.0.as_ref().map_or(&NOTHING, |found| &found.answer)
    }

    /// Who asks, as far as a policy has found out.
    pub(crate) fn identity(&self) -> Option<&Arc<str>> {
        self.0.as_ref()?.identity.as_ref()
    }
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
    pub(crate) answer: Option<Said>,
}

/// An answer of somebody who was asked.
#[derive(Debug)]
pub(crate) struct Said {
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
        Ok([]) => return Walk::Cleared(Cleared::new()),
        Ok(steps) => steps,
        Err(refusal) => return Walk::Refused(refusal),
    };
    let at = At { worker, found, req };
    if steps.iter().any(|step| step.waits(&at)) {
        return Walk::Waits;
    }
    let mut cleared = Cleared::new();
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
    let mut cleared = Cleared::new();
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
                Policy::Addresses(policy) => Step::Addresses(Addresses::of(policy)),
                Policy::Cors(_) => continue,
                Policy::ClientCertificate(policy) => Step::Certificate(Certificate::of(policy, &mut names)),
                Policy::Basic(policy) => Step::Basic(Basic::of(policy, &mut names)),
                Policy::ApiKeys(policy) => Step::Keys(Keys::of(policy, &mut names)),
                Policy::Jwt(policy) => Step::Jwt(Jwt::of(policy, &mut names, known, upstreams)?),
                Policy::ExternalAuth(policy) => Step::Authz(Authz::of(policy, &mut names, upstreams)?),
                Policy::RateLimit(policy) => Step::Limits(Limits::of(policy, missing, upstreams)?),
                Policy::Concurrency(policy) => Step::Concurrency(Concurrency::of(policy, counters)),
                Policy::Shed(policy) => Step::Shed(Shed(policy.late)),
                Policy::Inject(policy) => Step::Inject(Inject::of(policy, &mut names.hidden)),
            };
            steps.push(step);
            if phase.place() < Phase::Cors.place() {
                policies.before_cors = steps.len();
            }
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
            // It always has to wait.
            Step::Authz(_) => Err(Fault::AuthzUnavailable.into()),
            Step::Limits(limits) => limits.pass(at, cleared),
            Step::Concurrency(caps) => caps.pass(cleared),
            Step::Shed(policy) => policy.pass(at),
            Step::Inject(policy) => policy.pass(at),
        }
    }

    /// Asks it, waiting for what it needs.
    async fn pass_waiting(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        match self {
            Step::Basic(policy) => policy.pass_waiting(at, cleared).await,
            Step::Jwt(policy) => policy.pass_waiting(at, cleared).await,
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
