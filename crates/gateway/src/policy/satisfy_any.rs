//! `satisfy: any`: several policies of which one is sufficient.
//!
//! Policies that need not wait are evaluated first, in the order of the rule; then the others in theirs. The first that admits a request
//! ends the evaluation: no other sets the identity. If all refuse, the response has the challenges of each.

use super::{Cleared, PolicyInput, PolicyStep, Refusal, StepResult};
use crate::fault::Fault;

/// A set of policies of which one is sufficient.
#[derive(Debug)]
pub(super) struct SatisfyAny(Box<[PolicyStep]>);

const CHALLENGE: &str = "WWW-Authenticate";

impl SatisfyAny {
    /// Builds the set, which must have at least two policies.
    pub(super) fn compile(steps: Vec<PolicyStep>) -> Result<SatisfyAny, String> {
        match steps.len() {
            0 | 1 => Err("`satisfy: any` of less than two".to_owned()),
            _ => Ok(SatisfyAny(steps.into())),
        }
    }

    pub(super) fn steps(&self) -> &[PolicyStep] {
        &self.0
    }

    /// Returns whether no policy admits the request without waiting, and a policy that must wait might.
    pub(super) fn must_wait(&self, at: &PolicyInput<'_, '_>) -> bool {
        let mut may_wait = false;
        for step in &self.0 {
            if step.must_wait(at) {
                may_wait = true;
            } else if step.check(at, &mut Cleared::new(at.worker)).is_ok() {
                // Its results are discarded: it is evaluated again by `pass`.
                return false;
            }
        }
        may_wait
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let mut refusals = Vec::new();
        for step in self.0.iter().filter(|step| !step.must_wait(at)) {
            match step.check(at, cleared) {
                Ok(()) => return Ok(()),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(combine_refusals(refusals))
    }

    pub(super) async fn check_async(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let mut refusals: Vec<Option<Box<Refusal>>> = Vec::new();
        for step in &self.0 {
            refusals.push(if step.must_wait(at) {
                None
            } else {
                match step.check(at, cleared) {
                    Ok(()) => return Ok(()),
                    Err(refusal) => Some(refusal),
                }
            });
        }
        for (step, refusal) in self.0.iter().zip(&mut refusals) {
            if refusal.is_none() {
                match Box::pin(step.check_async(at, cleared)).await {
                    Ok(()) => return Ok(()),
                    Err(error) => *refusal = Some(error),
                }
            }
        }
        Err(combine_refusals(refusals.into_iter().flatten().collect()))
    }
}

/// Combines refusals: the most specific one, with the challenges of each.
#[expect(clippy::vec_box, reason = "the box itself is passed on")]
fn combine_refusals(mut refusals: Vec<Box<Refusal>>) -> Box<Refusal> {
    let challenges: Vec<Vec<u8>> = refusals
        .iter()
        .flat_map(|refusal| refusal.fields.iter())
        .filter(|(name, _)| *name == CHALLENGE)
        .map(|(_, value)| value.to_vec())
        .collect();
    let first = (0..refusals.len()).min_by_key(|&index| refusal_rank(&refusals[index]));
    let Some(index) = first else {
        // There are at least two policies, and each admits or refuses.
        return Fault::BrokenRule.into();
    };
    let mut refusal = refusals.swap_remove(index);
    refusal.fields.remove(CHALLENGE);
    // A client that is refused because of a server error could not satisfy a challenge.
    for challenge in challenges.iter().filter(|_| refusal.fault.status() < 500) {
        if let Err(misuse) = refusal.fields.push(CHALLENGE, challenge) {
            log::error!("a challenge cannot be sent: {misuse}");
        }
    }
    refusal
}

/// Returns the rank of a refusal, the most specific lowest: a server error, wrong credentials, missing credentials.
fn refusal_rank(refusal: &Refusal) -> u8 {
    match refusal.fault {
        fault if fault.status() >= 500 => 0,
        Fault::CredentialsMissing | Fault::TokenMissing => 2,
        Fault::NoCertificate | Fault::AddressDenied => 3,
        _ => 1,
    }
}
