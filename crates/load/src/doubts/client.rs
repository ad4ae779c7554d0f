//! Whether the client did its part: had CPU to spare, sent in time, kept out of the server's way.

use std::time::Duration;

use super::{Context, Doubt, Kind, Seen, Severity, percent};
use crate::limits;
use crate::report::{Round, Run, amount};

/// A worker that used this share of its time was the limit.
const BUSY: f64 = 0.9;

/// A worker that was kept off the CPU for this share of its time measured that too.
const STARVED: f64 = 0.05;

/// So late may one in a hundred requests leave.
const LAG: Duration = Duration::from_millis(1);

/// The share of requests that may leave later than [`limits::LATE`].
const LATE: f64 = 0.01;

pub(super) fn busy(_: &Run, round: &Round) -> Option<Seen> {
    let elapsed = round.elapsed.as_secs_f64();
    let share = |cpu: Duration| cpu.as_secs_f64() / elapsed;
    let busy = round
        .workers
        .iter()
        .filter(|worker| share(worker.cpu) >= BUSY)
        .count();
    let busiest = round
        .workers
        .iter()
        .map(|worker| share(worker.cpu))
        .fold(0.0, f64::max);
    (busy > 0 && elapsed > 0.0).then(|| Seen {
        kind: Kind::ClientBusy,
        severity: Severity::Warning,
        badness: busiest,
        message: format!(
            "{busy} of the client's {} workers used up to {} of a CPU: the client was the limit, not the server; give it \
             more threads or CPUs, or the server fewer",
            round.workers.len(),
            percent(busiest),
        ),
    })
}

pub(super) fn starved(_: &Run, round: &Round) -> Option<Seen> {
    let waited = round.workers.iter().filter_map(|worker| worker.waited).max()?;
    let share = waited.as_secs_f64() / round.elapsed.as_secs_f64();
    (share > STARVED && share.is_finite()).then(|| Seen {
        kind: Kind::ClientStarved,
        severity: Severity::Warning,
        badness: share,
        message: format!(
            "a worker of the client waited for a CPU {} of the time, because other programs used it: its latencies contain \
             that wait; quiet the host, or give the client CPUs of its own (--cpus)",
            percent(share),
        ),
    })
}

pub(super) fn send_lag(run: &Run, round: &Round) -> Option<Seen> {
    run.plan.pace.rate()?;
    let lag = round.figures.lag.percentile(99.0);
    (lag >= LAG).then(|| Seen {
        kind: Kind::SendLag,
        severity: Severity::Warning,
        badness: lag.as_secs_f64(),
        message: format!(
            "one in a hundred requests was sent {} or more late although a connection was free: response times \
             contain the client's own lateness; give it CPUs of its own (--cpus) or lower the rate",
            amount::time(lag),
        ),
    })
}

/// Late for want of a connection. What was late with one free is the client's own lag, and [`send_lag`]'s.
pub(super) fn late(run: &Run, round: &Round) -> Option<Seen> {
    run.plan.pace.rate()?;
    let counts = &round.figures.counts;
    let waited = counts
        .late
        .saturating_sub(round.figures.lag.count_above(limits::LATE));
    let share = waited as f64 / counts.sent as f64;
    (counts.sent > 0 && share > LATE).then(|| Seen {
        kind: Kind::Late,
        severity: Severity::Warning,
        badness: share,
        message: format!(
            "{} of the requests were sent more than {} late: they waited for a connection, so the server received \
             less load than scheduled; response times count the wait, service times do not; use more connections",
            percent(share),
            amount::span(limits::LATE),
        ),
    })
}

pub(super) fn shared_cpu(context: &Context) -> Option<Doubt> {
    let server = context.server_cpus.as_ref()?;
    let mut shared: Vec<usize> = context
        .client_cpus
        .iter()
        .copied()
        .filter(|cpu| server.contains(cpu))
        .collect();
    shared.sort_unstable();
    shared.dedup();
    let (first, others) = shared.split_first()?;
    let list = others
        .iter()
        .fold(first.to_string(), |list, cpu| format!("{list}, {cpu}"));
    Some(Doubt {
        kind: Kind::SharedCpu,
        round: None,
        severity: Severity::Warning,
        message: format!(
            "client and server may both run on CPU {list}: they compete for it, and the figures include both; pin them to \
             different CPUs (--cpus for the client, taskset or a cpuset for the server)"
        ),
    })
}
