//! `ringmain tune measure`: measures each step under load, without and with it, and keeps it only if it helps.
//!
//! Each step is measured on top of the kept ones, in pairs of rounds in random order.

use std::collections::BTreeSet;

use fastrand::Rng;
use ringmain_load::compare::{self, Metric, Ratio, compare};
use ringmain_load::report::Run;
use ringmain_load::stats;
use ringmain_tune::apply::{self, How};
use ringmain_tune::audit::{Status, Wish, audit};
use ringmain_tune::catalogue::{Id, Profile};
use ringmain_tune::host::{Asked, Host};
use ringmain_tune::journal::Journal;
use ringmain_tune::measure::{Ladder, Rung, Verdict, order, page, text};
use ringmain_tune::report::json;
use ringmain_tune::root::Root;

use super::{open_journal, open_sysroot, print_data, service_query, terminal_style, to_request};
use crate::args::tune::Measure;
use crate::bench::{BenchSession, Sink};
use crate::error::CliError;

/// Number of significant improvements before a step is kept.
const PROOFS: usize = 2;

/// Runs the command.
pub(super) fn run(args: &Measure) -> Result<(), CliError> {
    let pairs = compare::PAIRS;
    if let Some(rounds) = args.load.rounds.filter(|rounds| (*rounds as usize) < pairs) {
        return Err(CliError::Usage(format!(
            "--rounds: expected {pairs} or more, found {rounds}: fewer rounds cannot be significant"
        )));
    }
    let html = args
        .html
        .as_ref()
        .map(|file| Sink::open("--html", file))
        .transpose()?;
    let mut measured_host = MeasuredHost {
        root: open_sysroot(&args.service.host)?,
        asked: service_query(&args.service),
        goals: to_request(&args.goals),
        journal: open_journal(&args.journal_args, &args.service.host)?,
        // Seeded with the seed of the load below.
        coin: Rng::with_seed(0),
    };
    if measured_host.journal.is_begun() {
        return Err(CliError::Other(
            "changes are applied already, and steps are measured against a host without them: run ringmain tune revert \
             first"
                .into(),
        ));
    }
    let steps = measured_host.applicable_steps()?;
    if steps.is_empty() {
        return Err(CliError::Other(
            "no applicable step: ringmain tune plan lists the reasons".into(),
        ));
    }
    let mut session = BenchSession::open(args)?;
    measured_host.coin.seed(session.seed());
    let metric = goal_metric(measured_host.goals.profile, &session);
    let mut ladder = Ladder {
        target: args.target.clone(),
        goal: metric_name(metric).into(),
        rounds: session.rounds_per_side(),
        rungs: Vec::new(),
    };
    let mut kept = BTreeSet::new();
    let climbed = measure_steps(
        &mut measured_host,
        &mut session,
        metric,
        steps,
        &mut kept,
        &mut ladder,
    );
    if climbed.is_err() {
        // The effect of an interrupted step is unknown.
        measured_host.apply_only(&kept)?;
    }
    if args.json {
        print_data(&json::text(&ladder))?;
    } else {
        print_data(&text(&ladder, terminal_style()))?;
    }
    if let Some(sink) = html {
        sink.write(&page(&ladder))?;
    }
    climbed
}

fn measure_steps(
    measured_host: &mut MeasuredHost,
    session: &mut BenchSession,
    metric: Metric,
    steps: Vec<Id>,
    kept: &mut BTreeSet<Id>,
    ladder: &mut Ladder,
) -> Result<(), CliError> {
    for step in steps {
        session.print_line(&format!("{step}: {}", step.step().title));
        let rung = measure_step(measured_host, session, metric, step, kept)?;
        if rung.verdict == Verdict::Kept {
            kept.insert(step);
        }
        session.print_line(&format!("{step}: {}", rung.verdict.word()));
        ladder.rungs.push(rung);
        measured_host.apply_only(kept)?;
    }
    Ok(())
}

/// Measures one step. An improvement is measured twice, since with many steps it can be chance: all five rounds are better by
/// chance one time in 32.
fn measure_step(
    measured_host: &mut MeasuredHost,
    session: &mut BenchSession,
    metric: Metric,
    step: Id,
    kept: &BTreeSet<Id>,
) -> Result<Rung, CliError> {
    let mut with = kept.clone();
    with.insert(step);
    let mut all = [session.empty_run("without"), session.empty_run("with")];
    let mut verdict = Verdict::Kept;
    for proof in 0..PROOFS {
        if proof > 0 {
            session.print_line(&format!("{step}: improvement, measuring again"));
        }
        let runs = match run_pairs(measured_host, session, kept, &with)? {
            Ok(runs) => runs,
            Err(why) => return Ok(failed_rung(step, why)),
        };
        verdict =
            judge_runs(&runs, metric, session.seed()).map_or(Verdict::Noise, |ratio| to_verdict(&ratio));
        for (all, run) in all.iter_mut().zip(runs) {
            all.rounds.extend(run.rounds);
        }
        if verdict != Verdict::Kept {
            break;
        }
    }
    let Some(ratio) = judge_runs(&all, metric, session.seed()) else {
        return Ok(failed_rung(step, "no responses to compare".into()));
    };
    let median = |run: &Run, metric: Metric| {
        let values: Vec<f64> = run.rounds.iter().filter_map(|round| metric.of(round)).collect();
        stats::median(&values).unwrap_or(0.0)
    };
    let p99 = Metric::ServiceP99;
    Ok(Rung {
        step,
        pairs: ratio.pairs,
        before: ratio.first,
        after: ratio.other,
        ratio: ratio.ratio.median,
        low: ratio.ratio.low,
        high: ratio.ratio.high,
        p99_us: (median(&all[0], p99), median(&all[1], p99)),
        verdict,
    })
}

/// Runs rounds without and with the step; returns the reason if it cannot be applied.
fn run_pairs(
    measured_host: &mut MeasuredHost,
    session: &mut BenchSession,
    without: &BTreeSet<Id>,
    with: &BTreeSet<Id>,
) -> Result<Result<[Run; 2], String>, CliError> {
    let mut runs = [session.empty_run("without"), session.empty_run("with")];
    let mut coin = measured_host.coin.fork();
    for side in order(session.rounds_per_side(), || coin.bool()) {
        if let Some(why) = measured_host.apply_only(if side == 0 { without } else { with })? {
            return Ok(Err(why));
        }
        let number = u32::try_from(runs[side].rounds.len()).unwrap_or(u32::MAX);
        let round = session.run_round(runs[side].name.as_str(), number)?;
        runs[side].rounds.push(round);
    }
    Ok(Ok(runs))
}

fn judge_runs(runs: &[Run; 2], metric: Metric, seed: u64) -> Option<Ratio> {
    let comparison = compare(runs, seed).into_iter().next()?;
    comparison.ratios.into_iter().find(|ratio| ratio.metric == metric)
}

fn to_verdict(ratio: &Ratio) -> Verdict {
    match ratio.verdict {
        compare::Verdict::Different { better: true } => Verdict::Kept,
        compare::Verdict::Different { better: false } => Verdict::Worse,
        compare::Verdict::Noise { .. } => Verdict::Noise,
    }
}

fn failed_rung(step: Id, why: String) -> Rung {
    Rung {
        step,
        pairs: 0,
        before: 0.0,
        after: 0.0,
        ratio: 1.0,
        low: 1.0,
        high: 1.0,
        p99_us: (0.0, 0.0),
        verdict: Verdict::Failed { why },
    }
}

/// Returns the metric of the goal: throughput, latency, or CPU time if that of the server is measured.
fn goal_metric(profile: Profile, session: &BenchSession) -> Metric {
    match profile {
        Profile::Throughput => Metric::Throughput,
        Profile::Latency if session.is_open_loop() => Metric::ResponseP99,
        Profile::Latency => Metric::ServiceP99,
        Profile::Efficiency if session.has_server() => Metric::ServerCpu,
        Profile::Efficiency => Metric::Throughput,
    }
}

fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "requests/s",
        Metric::ServerCpu => "server CPU in us/request",
        _ => "p99 in us",
    }
}

/// The host that is measured and changed.
struct MeasuredHost {
    root: Root,
    asked: Asked,
    goals: Wish,
    journal: Journal,
    /// Decides the order of a pair of rounds.
    coin: Rng,
}

impl MeasuredHost {
    /// Returns the applicable steps, in their order.
    fn applicable_steps(&self) -> Result<Vec<Id>, CliError> {
        let host = Host::look(&self.root, &self.asked).map_err(CliError::other)?;
        let findings = audit(&self.root, &host, &self.goals);
        let open = findings
            .iter()
            .filter(|finding| finding.status == Status::Change && !finding.changes.is_empty());
        let mut steps: Vec<Id> = open.map(|finding| finding.id).collect();
        steps.dedup();
        Ok(steps)
    }

    /// Applies exactly these steps; returns the reason if one cannot be applied.
    fn apply_only(&mut self, steps: &BTreeSet<Id>) -> Result<Option<String>, CliError> {
        let host = Host::look(&self.root, &self.asked).map_err(CliError::other)?;
        let reverted = apply::undo(&self.root, &host, &mut self.journal, How::Careful, &mut |_| {})
            .map_err(CliError::other)?;
        if let Some(left) = reverted.left.first() {
            return Err(CliError::Other(format!("{}: {}", left.intent.key, left.why)));
        }
        if steps.is_empty() {
            return Ok(None);
        }
        let goals = Wish {
            steps: steps.clone(),
            ..self.goals.clone()
        };
        let applied = apply::apply(&self.root, &self.asked, &goals, &mut self.journal, &mut |_| {});
        let applied = applied.map_err(CliError::other)?;
        Ok(applied.failed.into_iter().next().map(|(_, why)| why))
    }
}
