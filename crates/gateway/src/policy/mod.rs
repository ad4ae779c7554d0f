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
mod certificate;
mod concurrency;
mod inject;
mod limit;
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
use crate::model::{HeaderName, Name, Policy, Rule};
use crate::upstream::registry::Registry;
use addresses::Addresses;
use certificate::Certificate;
use concurrency::{Concurrency, Counted};
use inject::Inject;
use limit::Limits;
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
            Policy::ClientCertificate(_) => Phase::Authentication,
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
}

/// One policy. What is done is in its own file.
#[derive(Debug)]
enum Step {
    Addresses(Addresses),
    Certificate(Certificate),
    /// All of a phase.
    Limits(Limits),
    /// All of a rule.
    Concurrency(Concurrency),
    Shed(Shed),
    Inject(Inject),
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
}

impl From<Fault> for Box<Refusal> {
    fn from(fault: Fault) -> Box<Refusal> {
        Box::new(Refusal {
            fault,
            status: None,
            fields: FieldBlock::new(),
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
    pub(crate) fn of(rule: &Rule, missing: &[Name], registry: &Registry) -> Result<Policies, String> {
        let counters = registry.counters();
        let mut policies = Policies::default();
        let mut steps: Vec<Step> = Vec::new();
        let mut last = None;
        let mut drops = Vec::new();
        for policy in in_order(&rule.policies) {
            let phase = Phase::of(policy);
            let same = last.replace(phase) == Some(phase);
            // Those that are asked together with the one before.
            match (policy, steps.last_mut()) {
                (Policy::RateLimit(policy), Some(Step::Limits(limits))) if same => {
                    limits.add(policy, missing, registry)?;
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
                Policy::ClientCertificate(policy) => Step::Certificate(Certificate::of(policy, &mut drops)),
                Policy::RateLimit(policy) => Step::Limits(Limits::of(policy, missing, registry)?),
                Policy::Concurrency(policy) => Step::Concurrency(Concurrency::of(policy, counters)),
                Policy::Shed(policy) => Step::Shed(Shed(policy.late)),
                Policy::Inject(policy) => Step::Inject(Inject::of(policy, &mut drops)),
            };
            steps.push(step);
            if phase.place() < Phase::Cors.place() {
                policies.before_cors = steps.len();
            }
        }
        policies.steps = steps.into();
        policies.drops = drops.into();
        Ok(policies)
    }

    /// Headers of requests that go no further: policies write them, or take them out.
    pub(crate) fn drops(&self) -> &[HeaderName] {
        &self.drops
    }
}

impl Step {
    /// Whether asking it now would have to wait. Changes nothing that another request or step could see.
    fn waits(&self, at: &At<'_, '_>) -> bool {
        match self {
            Step::Inject(policy) => policy.waits(at),
            Step::Limits(limits) => limits.wait(),
            Step::Addresses(_) | Step::Certificate(_) | Step::Concurrency(_) | Step::Shed(_) => false,
        }
    }

    /// Asks it; it must not have to wait.
    fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        match self {
            Step::Addresses(policy) => policy.pass(at),
            Step::Certificate(policy) => policy.pass(at, cleared),
            Step::Limits(limits) => limits.pass(at, cleared),
            Step::Concurrency(caps) => caps.pass(cleared),
            Step::Shed(policy) => policy.pass(at),
            Step::Inject(policy) => policy.pass(at),
        }
    }

    /// Asks it, waiting for what it needs.
    async fn pass_waiting(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        match self {
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
