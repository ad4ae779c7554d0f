//! What a reader must know before believing the figures of a fan-out. Each says what to do.

use std::time::Duration;

use super::report::Run;
use crate::report::{Remark, Severity, amount};

/// A thread that used this share of its time was the limit.
const BUSY: f64 = 0.9;

/// A thread that was kept off the CPU for this share of its time measured that too.
const STARVED: f64 = 0.05;

/// So late may one in a hundred publications leave, and one in a hundred receipts be looked at.
const LATE: Duration = Duration::from_millis(1);

/// A percentile rests on so many figures at least.
const FEW: u64 = 1000;

/// All that is to be doubted, the weightier first.
pub(super) fn doubts(run: &Run, shared: &[usize]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    clients(run, shared, &mut remarks);
    publishing(run, &mut remarks);
    answers(run, &mut remarks);
    returns(run, &mut remarks);
    nodes(run, &mut remarks);
    remarks.sort_by_key(|remark| std::cmp::Reverse(remark.severity));
    remarks
}

fn warn(remarks: &mut Vec<Remark>, message: String) {
    remarks.push(Remark {
        severity: Severity::Warning,
        message,
    });
}

fn note(remarks: &mut Vec<Remark>, message: String) {
    remarks.push(Remark {
        severity: Severity::Note,
        message,
    });
}

/// Whether this program had CPU to spare.
fn clients(run: &Run, shared: &[usize], remarks: &mut Vec<Remark>) {
    let seconds = run.plan.duration.as_secs_f64();
    let share = |span: Duration| span.as_secs_f64() / seconds;
    let busiest = run
        .efforts
        .iter()
        .map(|effort| share(effort.cpu))
        .fold(0.0, f64::max);
    if busiest >= BUSY {
        warn(
            remarks,
            format!(
                "a thread of the client used {:.0} % of a CPU: the client was the limit, not the server; give it more threads or \
             CPUs (--threads, --cpus)",
                busiest * 100.0,
            ),
        );
    }
    let waited = run
        .efforts
        .iter()
        .filter_map(|effort| effort.waited)
        .max()
        .unwrap_or_default();
    if share(waited) > STARVED {
        warn(
            remarks,
            format!(
                "a thread of the client waited for a CPU {:.0} % of the time, because other programs used it: latencies contain that \
             wait; quiet the host, or give the client CPUs of its own (--cpus)",
                share(waited) * 100.0,
            ),
        );
    }
    let behind = run.heard.behind.percentile(99.0);
    if behind >= LATE {
        warn(
            remarks,
            format!(
                "one in a hundred receipts waited {} or more until the client read it: latencies contain the client's own \
             lateness",
                amount::time(behind),
            ),
        );
    }
    if let [first, others @ ..] = shared {
        let list = others
            .iter()
            .fold(first.to_string(), |list, cpu| format!("{list}, {cpu}"));
        warn(
            remarks,
            format!(
                "client and server may both run on CPU {list}: they compete for it, and the figures include both; pin them to different \
             CPUs (--cpus for the client, --server-cpus or taskset for the server)"
            ),
        );
    }
}

fn publishing(run: &Run, remarks: &mut Vec<Remark>) {
    let published = &run.published;
    let lag = published.lag.percentile(99.0);
    if lag >= LATE && published.lag.count() > 0 {
        warn(
            remarks,
            format!(
                "one in a hundred publications was sent {} or more late: the server accepted them too slowly, or the client had no \
             CPU; latencies count from the scheduled time and include that",
                amount::time(lag),
            ),
        );
    }
    let failed = published.unanswered + published.unsent + published.refused.total();
    if failed > 0 {
        warn(
            remarks,
            format!(
                "{} of {} publications did not reach the server, or were refused: the load was lower than requested",
                amount::count(failed),
                amount::count(published.due),
            ),
        );
    }
    if published.broken > 0 {
        warn(
            remarks,
            format!(
                "{} connections for publishing were lost",
                amount::count(published.broken)
            ),
        );
    }
}

fn answers(run: &Run, remarks: &mut Vec<Remark>) {
    let counts = &run.heard.counts;
    if run.lost() > 0 {
        let why = why_lost(run);
        warn(
            remarks,
            format!(
                "{} deliveries were lost, and of {} publications there is no time to the last client; {why}",
                amount::count(run.lost()),
                amount::count(run.totals.incomplete),
            ),
        );
    }
    if counts.misdelivered + counts.changed > 0 {
        warn(
            remarks,
            "clients received publications that they had not subscribed to, or that were altered: check the server"
                .into(),
        );
    }
    if counts.doubled + counts.old > 0 {
        warn(
            remarks,
            format!(
                "{} deliveries were duplicates, or so late that they may be",
                amount::count(counts.doubled + counts.old)
            ),
        );
    }
    if run.plan.conflated.is_some() && counts.behind_at_end > 0 {
        warn(
            remarks,
            format!(
                "{} subscriptions did not receive the last value of their channel: raise --settle above the interval, or the server \
             dropped it",
                amount::count(counts.behind_at_end),
            ),
        );
    }
    if run.plan.conflated.is_some() && run.missing() == 0 && run.totals.expected > 0 {
        note(remarks, "nothing was conflated: check that the server conflates these channels (--prefix), and that more is published than it sends".into());
    }
    if run.plan.conflated.is_none() && run.heard.fast.count() < FEW && run.plan.publishes() {
        note(
            remarks,
            format!(
                "there were {} deliveries: too few for precise percentiles; measure longer",
                amount::count(run.heard.fast.count()),
            ),
        );
    }
    if run.plan.slow > 0.0 && run.totals.slow_clients == 0 {
        note(
            remarks,
            "no client reads slowly: with so few clients chance chose none; raise --slow".into(),
        );
    }
}

/// The possible fates of lost deliveries.
fn why_lost(run: &Run) -> String {
    let cut = run.heard.counts.disconnects.total();
    match cut {
        _ if run.plan.kill_server.is_some() || (cut == 0 && run.plan.kill.is_some()) => {
            "clients that reconnected did not recover them, or they arrived after the end (--settle)"
                .to_owned()
        }
        0 => "no client was disconnected: the server dropped them, or they arrived after the end (--settle)"
            .to_owned(),
        _ => format!(
            "{} clients were disconnected, and miss the publications until they reconnected",
            amount::count(cut)
        ),
    }
}

/// Whether nodes and clients agree on what was published.
fn nodes(run: &Run, remarks: &mut Vec<Remark>) {
    let counts = &run.heard.counts;
    if counts.falsely_recovered > 0 {
        warn(
            remarks,
            format!(
                "{} subscriptions were reported as recovered (recovered: true) and lack publications that were published before: the \
                 server has lost them without a notice",
                amount::count(counts.falsely_recovered),
            ),
        );
    }
    if counts.conflicting > 0 {
        warn(
            remarks,
            format!(
                "{} positions (epoch and offset) were delivered with different publications: a client that fails over to another node \
                 cannot recover from its position",
                amount::count(counts.conflicting),
            ),
        );
    }
    if run.plan.nodes.len() > 1 && run.plan.has_publications() && counts.compared == 0 && run.delivered() > 0
    {
        note(
            remarks,
            "no position was delivered by more than one node, so nothing was compared: do the nodes share the channels' history, and do \
             clients get positions (a namespace with keep and recovery, --prefix)?"
                .into(),
        );
    }
    let (cut, _) = run.cut_and_back();
    if run.plan.kill_server.is_some() && cut == 0 {
        warn(
            remarks,
            "no client lost its session when the server was killed: check that --kill-server is the process behind a URL".into(),
        );
    }
}

/// Whether clients that were cut off on purpose came back, and to what.
fn returns(run: &Run, remarks: &mut Vec<Remark>) {
    let counts = &run.heard.counts;
    let (cut, back) = run.cut_and_back();
    if back < cut {
        warn(
            remarks,
            format!(
                "of {} disconnected clients {} were not reconnected at the end: wait longer (--settle, or a --duration beyond the last \
                 kill), or see under `failed` why they could not connect",
                amount::count(cut),
                amount::count(cut - back),
            ),
        );
    }
    let outages = &run.heard.outages;
    let busy = outages.iter().map(|outage| outage.busy).fold(0.0, f64::max);
    if busy >= BUSY {
        warn(
            remarks,
            format!(
                "while clients reconnected a thread of the client used {:.0} % of a CPU: the duration shows the client's limit, not the \
                 server's; give it more threads or CPUs (--threads, --cpus), or limit the connection rate (--connect-rate)",
                busy * 100.0,
            ),
        );
    }
    if counts.unrecovered > 0 && run.plan.recovers() {
        warn(
            remarks,
            format!(
                "the server did not have all that {} of {} subscriptions had missed: it retains too few publications, or not for long \
                 enough",
                amount::count(counts.unrecovered),
                amount::count(counts.unrecovered + counts.recoveries),
            ),
        );
    }
    if counts.unplaced > 0 && run.plan.recovers() {
        warn(
            remarks,
            format!(
                "{} subscriptions were resumed without recovery of missed publications: the server had not sent their \
                 position",
                amount::count(counts.unplaced),
            ),
        );
    }
}
