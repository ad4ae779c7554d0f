//! The verdict on the findings of all threads, once it is known what was published.

use super::{Agreement, Findings, Ledger, Suspect};
use crate::push::calendar::Mark;
use crate::push::figures::Counts;
use crate::push::report::Totals;

/// Adds what the audits of all threads have found. `is_published` knows whether a publication that a client lacks was published.
pub(in crate::push) fn judge(
    findings: Vec<Findings>,
    counts: &mut Counts,
    totals: &mut Totals,
    is_published: &dyn Fn(Mark) -> bool,
) {
    let mut ledgers = Vec::new();
    for findings in findings {
        let [expected, expected_slow] = findings.expected;
        totals.expected += expected;
        totals.expected_slow += expected_slow;
        let is_false = |suspect: &&Suspect| {
            let channel = suspect.channel;
            let mut missing = suspect.missing.iter().cloned().flatten();
            missing.any(|sequence| is_published(Mark { channel, sequence }))
        };
        counts.falsely_recovered += findings.suspects.iter().filter(is_false).count() as u64;
        ledgers.push((findings.ledger, findings.epochs));
    }
    let Agreement {
        compared,
        conflicting,
        skipped,
    } = Ledger::compare(&ledgers);
    counts.compared += compared;
    counts.conflicting += conflicting;
    counts.not_compared += skipped;
}
