//! Whether requests were answered, and rightly.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::{Kind, Seen, Severity, percent};
use crate::figures::Counts;
use crate::plan::{Messages, Protocol};
use crate::report::{Round, Run, amount};

pub(super) fn none(_: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    (counts.answered == 0).then(|| Seen {
        kind: Kind::NoAnswer,
        severity: Severity::Warning,
        badness: 0.0,
        message: format!(
            "none of {} requests received a response: there is no result; check the address and try a single request by \
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
    let what = "responses with a status other than 2xx or 3xx";
    let advice = "errors are often cheaper than successful responses, so throughput and latency are not those of the real \
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
pub(super) fn unexpected(run: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    if counts.unexpected <= others(counts).values().sum() {
        return None;
    }
    let (what, advice) = match run.plan.protocol {
        Protocol::WebSocket(_) => (
            "messages that were not echoed unchanged",
            "the figures contain invalid responses; the server must echo each message unchanged, and send nothing \
             else",
        ),
        Protocol::Grpc(_) => (
            "calls that did not complete as expected",
            "errors are often cheaper than successful responses, so throughput and latency are not those of the real work; \
             look at their statuses, then at the method and the message",
        ),
        Protocol::Http1 | Protocol::Http2 | Protocol::Echo { .. } => (
            "responses that failed a check",
            "the figures contain unexpected responses; inspect one by hand, then the checks",
        ),
    };
    wrong(
        Kind::Unexpected,
        what,
        counts.unexpected,
        counts.answered,
        &list(&counts.codes),
        advice,
    )
}

pub(super) fn timeouts(run: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    let what = format!(
        "requests without a response within {}",
        amount::span(run.plan.timeout)
    );
    let advice = "they are missing in the latencies shown, whose tail looks better than it is (thresholds and comparisons count them with the time they \
                  waited); lower the load or raise the timeout";
    wrong(Kind::Timeouts, &what, counts.timeouts, counts.sent, "", advice)
}

pub(super) fn broken(_: &Run, round: &Round) -> Option<Seen> {
    let counts = &round.figures.counts;
    let what = "requests with a lost connection or an invalid response";
    let advice = "they are missing in the latencies shown (thresholds and comparisons count them as infinite); look at the server's log and limits";
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
    let advice = if counts.first_errors.is_empty() {
        "fewer connections carried load than requested; look at the server's listen queue, its limits and the ports of \
         this host"
    } else {
        "fewer connections carried load than requested; check the errors of the first failed handshakes, and the server's \
         log and limits"
    };
    wrong(
        Kind::ConnectErrors,
        what,
        failed,
        counts.connects + failed,
        &list(&counts.connect_errors),
        advice,
    )
}

pub(super) fn not_deflated(run: &Run, round: &Round) -> Option<Seen> {
    let Protocol::WebSocket(Messages { deflate: true, .. }) = run.plan.protocol else {
        return None;
    };
    let counts = &round.figures.counts;
    wrong(
        Kind::NotDeflated,
        "WebSockets whose server did not agree to permessage-deflate",
        counts.connects.saturating_sub(counts.deflated),
        counts.connects,
        "",
        "their messages were sent uncompressed; enable it at the server, or drop --deflate",
    )
}

/// The load is another one than was asked for.
pub(super) fn fewer_streams(run: &Run, round: &Round) -> Option<Seen> {
    let allowed = round.figures.counts.streams_allowed?;
    let asked = run.plan.pipeline;
    (allowed < asked).then(|| Seen {
        kind: Kind::FewerStreams,
        severity: Severity::Note,
        badness: f64::from(asked - allowed),
        message: format!(
            "{asked} streams were requested on each connection, and the server's limit (SETTINGS_MAX_CONCURRENT_STREAMS) is \
             {allowed}: no more were used; raise its limit, or use more connections",
        ),
    })
}

/// The first connections of a round have nothing to resume.
pub(super) fn not_resumed(run: &Run, round: &Round) -> Option<Seen> {
    let tls = run.plan.tls.as_ref().filter(|tls| tls.settings.resume)?;
    let counts = &round.figures.counts;
    let later = counts
        .tls_handshakes()
        .saturating_sub(u64::from(run.plan.connections));
    (later > 0 && counts.tls_resumed == 0).then(|| Seen {
        kind: Kind::NotResumed,
        severity: Severity::Note,
        badness: later as f64,
        message: format!(
            "none of {later} later handshakes with {} resumed a session: the server issues no tickets, or accepts none; \
             each connection pays for a full handshake",
            tls.name,
        ),
    })
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
