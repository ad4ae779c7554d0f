//! `ringmain tune measure`: a step at a time under load, without and with it in turn, kept only if it helps.
//!
//! Each step is measured with those before it in place. Its own rounds are taken in pairs, and a coin says which side of each is
//! first.

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

use super::{asked, journal, open, output, read_wish, style};
use crate::args::tune::Measure;
use crate::bench::{Bed, Sink};
use crate::error::Failure;

/// How often a step must help beyond noise before it is kept.
const PROOFS: usize = 2;

/// Carries it out.
pub(super) fn run(args: &Measure) -> Result<(), Failure> {
    let pairs = compare::PAIRS;
    if let Some(rounds) = args.load.rounds.filter(|rounds| (*rounds as usize) < pairs) {
        return Err(Failure::Usage(format!(
            "--rounds: expected {pairs} or more, found {rounds}: fewer cannot tell what helps from chance"
        )));
    }
    let html = args
        .html
        .as_ref()
        .map(|file| Sink::open("--html", file))
        .transpose()?;
    let mut ground = Ground {
        root: open(&args.of.host)?,
        asked: asked(&args.of),
        wish: read_wish(&args.wish),
        journal: journal(&args.kept, &args.of.host)?,
        // Until the seed of the load is known.
        coin: Rng::with_seed(0),
    };
    if ground.journal.is_begun() {
        return Err(Failure::Other(
            "something is applied already: what a step is worth shows only against a host without it; \
             ringmain tune revert first"
                .into(),
        ));
    }
    let steps = ground.steps()?;
    if steps.is_empty() {
        return Err(Failure::Other(
            "there is no step that could be applied: ringmain tune plan says why".into(),
        ));
    }
    let mut bed = Bed::open(args)?;
    ground.coin.seed(bed.seed());
    let metric = goal(ground.wish.profile, &bed);
    let mut ladder = Ladder {
        target: args.target.clone(),
        goal: name(metric).into(),
        rounds: bed.rounds(),
        rungs: Vec::new(),
    };
    let mut kept = BTreeSet::new();
    let climbed = climb(&mut ground, &mut bed, metric, steps, &mut kept, &mut ladder);
    if climbed.is_err() {
        // Nobody knows what a step is worth that was not measured to its end.
        ground.only(&kept)?;
    }
    if args.json {
        output(&json::text(&ladder))?;
    } else {
        output(&text(&ladder, style()))?;
    }
    if let Some(sink) = html {
        sink.write(&page(&ladder))?;
    }
    climbed
}

fn climb(
    ground: &mut Ground,
    bed: &mut Bed,
    metric: Metric,
    steps: Vec<Id>,
    kept: &mut BTreeSet<Id>,
    ladder: &mut Ladder,
) -> Result<(), Failure> {
    for step in steps {
        bed.say(&format!("{step}: {}", step.step().title));
        let rung = rung(ground, bed, metric, step, kept)?;
        if rung.verdict == Verdict::Kept {
            kept.insert(step);
        }
        bed.say(&format!("{step}: {}", rung.verdict.word()));
        ladder.rungs.push(rung);
        ground.only(kept)?;
    }
    Ok(())
}

/// The rounds of one step. What seems to help is measured once more, and is only kept if it does so again: by chance all of
/// five rounds are better one time in 32, and there are many steps.
fn rung(
    ground: &mut Ground,
    bed: &mut Bed,
    metric: Metric,
    step: Id,
    kept: &BTreeSet<Id>,
) -> Result<Rung, Failure> {
    let mut with = kept.clone();
    with.insert(step);
    let mut all = [bed.empty("without"), bed.empty("with")];
    let mut verdict = Verdict::Kept;
    for proof in 0..PROOFS {
        if proof > 0 {
            bed.say(&format!("{step}: it seems to help; once more"));
        }
        let runs = match rounds(ground, bed, kept, &with)? {
            Ok(runs) => runs,
            Err(why) => return Ok(failed(step, why)),
        };
        verdict = judged(&runs, metric, bed.seed()).map_or(Verdict::Noise, |ratio| of(&ratio));
        for (all, run) in all.iter_mut().zip(runs) {
            all.rounds.extend(run.rounds);
        }
        if verdict != Verdict::Kept {
            break;
        }
    }
    let Some(ratio) = judged(&all, metric, bed.seed()) else {
        return Ok(failed(step, "nothing was answered that could be compared".into()));
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

/// Rounds without and with the step, in turn; or why it cannot be applied.
fn rounds(
    ground: &mut Ground,
    bed: &mut Bed,
    without: &BTreeSet<Id>,
    with: &BTreeSet<Id>,
) -> Result<Result<[Run; 2], String>, Failure> {
    let mut runs = [bed.empty("without"), bed.empty("with")];
    let mut coin = ground.coin.fork();
    for side in order(bed.rounds(), || coin.bool()) {
        if let Some(why) = ground.only(if side == 0 { without } else { with })? {
            return Ok(Err(why));
        }
        let number = u32::try_from(runs[side].rounds.len()).unwrap_or(u32::MAX);
        let round = bed.round(runs[side].name.as_str(), number)?;
        runs[side].rounds.push(round);
    }
    Ok(Ok(runs))
}

fn judged(runs: &[Run; 2], metric: Metric, seed: u64) -> Option<Ratio> {
    let comparison = compare(runs, seed).into_iter().next()?;
    comparison.ratios.into_iter().find(|ratio| ratio.metric == metric)
}

fn of(ratio: &Ratio) -> Verdict {
    match ratio.verdict {
        compare::Verdict::Different { better: true } => Verdict::Kept,
        compare::Verdict::Different { better: false } => Verdict::Worse,
        compare::Verdict::Noise { .. } => Verdict::Noise,
    }
}

fn failed(step: Id, why: String) -> Rung {
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

/// What is climbed for: answers a second, time, or CPU time where the server's is measured.
fn goal(profile: Profile, bed: &Bed) -> Metric {
    match profile {
        Profile::Throughput => Metric::Throughput,
        Profile::Latency if bed.is_open_loop() => Metric::ResponseP99,
        Profile::Latency => Metric::ServiceP99,
        Profile::Efficiency if bed.has_server() => Metric::ServerCpu,
        Profile::Efficiency => Metric::Throughput,
    }
}

fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "requests/s",
        Metric::ServerCpu => "server CPU in us/request",
        _ => "p99 in us",
    }
}

/// The host that is changed.
struct Ground {
    root: Root,
    asked: Asked,
    wish: Wish,
    journal: Journal,
    /// Says which side of a pair of rounds is first.
    coin: Rng,
}

impl Ground {
    /// The steps that would be applied, in their order.
    fn steps(&self) -> Result<Vec<Id>, Failure> {
        let host = Host::look(&self.root, &self.asked).map_err(Failure::other)?;
        let findings = audit(&self.root, &host, &self.wish);
        let open = findings
            .iter()
            .filter(|finding| finding.status == Status::Change && !finding.changes.is_empty());
        let mut steps: Vec<Id> = open.map(|finding| finding.id).collect();
        steps.dedup();
        Ok(steps)
    }

    /// Has exactly these steps applied; why not, if one cannot be.
    fn only(&mut self, steps: &BTreeSet<Id>) -> Result<Option<String>, Failure> {
        let host = Host::look(&self.root, &self.asked).map_err(Failure::other)?;
        let reverted = apply::undo(&self.root, &host, &mut self.journal, How::Careful, &mut |_| {})
            .map_err(Failure::other)?;
        if let Some(left) = reverted.left.first() {
            return Err(Failure::Other(format!("{}: {}", left.intent.key, left.why)));
        }
        if steps.is_empty() {
            return Ok(None);
        }
        let wish = Wish {
            steps: steps.clone(),
            ..self.wish.clone()
        };
        let applied = apply::apply(&self.root, &self.asked, &wish, &mut self.journal, &mut |_| {});
        let applied = applied.map_err(Failure::other)?;
        Ok(applied.failed.into_iter().next().map(|(_, why)| why))
    }
}
