//! Whether requests were answered, and rightly.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::{Kind, Seen, Severity, percent};
use crate::figures::Counts;
use crate::report::{Round, Run, amount};

pub(super) fn none(_: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    (counts.answered == 0).then(|| Seen {
        kind: Kind::NoAnswer,
        severity: Severity::Warning,
        badness: 0.0,
        message: format!(
            "none of {} requests was answered: there is nothing to judge; check the address and try a single request by \
             hand",
            counts.sent,
        ),
    })
}

/// Where all answers are as expected, such statuses are what was asked for.
pub(super) fn statuses(_: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    let others = others(counts);
    if counts.unexpected == 0 {
        return None;
    }
    let count = others.values().sum();
    let what = "answers with a status other than 2xx or 3xx";
    let advice = "errors are often cheaper than what they stand for, so throughput and latency are not those of the real \
                  work; check URL, method and headers";
    wrong(
        Kind::Statuses,
        what,
        count,
        counts.answered,
        &list(&others),
        advice,
    )
}

/// Those that a wrong status explains are told of by [`statuses`].
pub(super) fn unexpected(_: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    if counts.unexpected <= others(counts).values().sum() {
        return None;
    }
    let advice = "the figures contain answers that are not what they should be; look at one by hand, then at the checks";
    wrong(
        Kind::Unexpected,
        "answers that failed a check",
        counts.unexpected,
        counts.answered,
        "",
        advice,
    )
}

pub(super) fn timeouts(run: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    let what = format!(
        "requests without an answer within {}",
        amount::span(run.plan.timeout)
    );
    let advice = "they are missing in the latencies, whose tail looks better than it is; lower the load or raise the timeout";
    wrong(Kind::Timeouts, &what, counts.timeouts, counts.sent, "", advice)
}

pub(super) fn broken(_: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    let what = "requests that lost their connection or got what is no answer";
    let advice = "they are missing in the latencies; look at the server's log and limits";
    wrong(
        Kind::Broken,
        what,
        counts.broken.values().sum(),
        counts.sent,
        &list(&counts.broken),
        advice,
    )
}

pub(super) fn connect_errors(_: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    let failed = counts.connect_errors.values().sum();
    let what = "attempts to connect that failed";
    let advice = "fewer connections carried load than asked for; look at the server's listen queue, its limits and the \
                  ports of this host";
    wrong(
        Kind::ConnectErrors,
        what,
        failed,
        counts.connects + failed,
        &list(&counts.connect_errors),
        advice,
    )
}

/// Answers with a status other than 2xx and 3xx.
fn others(counts: &Counts) -> BTreeMap<u16, u64> {
    let others = counts
        .statuses
        .iter()
        .filter(|(status, _)| !(200..400).contains(*status));
    others.map(|(status, count)| (*status, *count)).collect()
}

/// `detail` says of which kinds they were, if there are kinds.
fn wrong(kind: Kind, what: &str, count: u64, of: u64, detail: &str, advice: &str) -> Option<Seen> {
    let share = if of > 0 { count as f64 / of as f64 } else { 1.0 };
    let separator = if detail.is_empty() { "" } else { "; " };
    (count > 0).then(|| Seen {
        kind,
        severity: Severity::Warning,
        badness: share,
        message: format!(
            "{what}: {count} ({} of all{separator}{detail}): {advice}",
            percent(share)
        ),
    })
}

/// Each with its count, the most frequent first.
fn list<K: Display + Ord>(counts: &BTreeMap<K, u64>) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    sorted
        .iter()
        .map(|(what, count)| format!("{what}: {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}
