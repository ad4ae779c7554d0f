//! Several policies of which one is enough.
//!
//! Those that need not wait are asked first, in the order of all; then the others in theirs. The first that lets a request in ends
//! it: nobody else is asked, so nobody else says who asks. When all refuse, the client is told how to come in by each of them.

use super::{At, Cleared, Outcome, Refusal, Step};
use crate::fault::Fault;

/// See the module.
#[derive(Debug)]
pub(super) struct Any(Box<[Step]>);

const CHALLENGE: &str = "WWW-Authenticate";

impl Any {
    /// Of two at least.
    pub(super) fn of(steps: Vec<Step>) -> Result<Any, String> {
        match steps.len() {
            0 | 1 => Err("`satisfy: any` of less than two".to_owned()),
            _ => Ok(Any(steps.into())),
        }
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether nobody lets a request in who need not wait, and somebody might who must.
    pub(super) fn waits(&self, at: &At<'_, '_>) -> bool {
        let mut waits = false;
        for step in &self.0 {
            if step.waits(at) {
                waits = true;
            } else if step.pass(at, &mut Cleared::new(at.worker)).is_ok() {
                // What that has found out is found out again: nothing comes of it here.
                return false;
            }
        }
        waits
    }

    pub(super) fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        let mut refusals = Vec::new();
        for step in self.0.iter().filter(|step| !step.waits(at)) {
            match step.pass(at, cleared) {
                Ok(()) => return Ok(()),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(together(refusals))
    }

    pub(super) async fn pass_waiting(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        let mut refusals: Vec<Option<Box<Refusal>>> = Vec::new();
        for step in &self.0 {
            refusals.push(match step.waits(at) {
                true => None,
                false => match step.pass(at, cleared) {
                    Ok(()) => return Ok(()),
                    Err(refusal) => Some(refusal),
                },
            });
        }
        for (step, refusal) in self.0.iter().zip(&mut refusals) {
            if refusal.is_none() {
                match Box::pin(step.pass_waiting(at, cleared)).await {
                    Ok(()) => return Ok(()),
                    Err(found) => *refusal = Some(found),
                }
            }
        }
        Err(together(refusals.into_iter().flatten().collect()))
    }
}

/// What a client is told that all have refused: the reason that says most, and how to come in by each.
#[expect(clippy::vec_box, reason = "what is handed on is the box")]
fn together(mut refusals: Vec<Box<Refusal>>) -> Box<Refusal> {
    let challenges: Vec<Vec<u8>> = refusals
        .iter()
        .flat_map(|refusal| refusal.fields.iter())
        .filter(|(name, _)| *name == CHALLENGE)
        .map(|(_, value)| value.to_vec())
        .collect();
    let first = (0..refusals.len()).min_by_key(|&index| rank(&refusals[index]));
    let Some(index) = first else {
        // There are two at least, of which one lets in or each refuses.
        return Fault::BrokenRule.into();
    };
    let mut refusal = refusals.swap_remove(index);
    refusal.fields.remove(CHALLENGE);
    // Who was refused because something is out of order has shown enough.
    for challenge in challenges.iter().filter(|_| refusal.fault.status() < 500) {
        if let Err(misuse) = refusal.fields.push(CHALLENGE, challenge) {
            log::error!("a challenge cannot be sent: {misuse}");
        }
    }
    refusal
}

/// The lowest says most: that it might have passed, that what was shown is wrong, that something can be shown.
fn rank(refusal: &Refusal) -> u8 {
    match refusal.fault {
        fault if fault.status() >= 500 => 0,
        Fault::CredentialsMissing | Fault::TokenMissing => 2,
        Fault::NoCertificate | Fault::AddressDenied => 3,
        _ => 1,
    }
}
