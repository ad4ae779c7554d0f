//! `ringmain bench compare`: rounds of several targets in turn, and what their differences are worth.

use ringmain_load::compare::{self, Comparison, Metric, Ratio, compare, order};
use ringmain_load::plan::Plan;
use ringmain_load::report::json::{self, Judged};
use ringmain_load::report::{self, Against, Row, Run, Tone, Unit, amount, page, text};
use ringmain_load::run::Session;
use ringmain_load::server::Server;
use ringmain_load::stats;

use super::client_tls::check_used;
use super::interrupt::Interrupt;
use super::live::Live;
use super::measure::{Around, Verdict, check_results, empty, one};
use super::output::{Histograms, Sinks, style};
use super::request::{Task, plan, session, threads};
use super::resolve_target::{Watched, addresses, open};
use super::scenario_file::Scene;
use crate::args::bench::Compare;
use crate::args::bench::values::Named;
use crate::error::Failure;
use crate::limits::COMPARED_ROUNDS;

#[cfg(test)]
mod tests;

/// One of the targets.
struct Side {
    session: Session,
    server: Option<Server>,
    around: Around,
    run: Run,
}

/// Carries it out.
pub(super) fn run(mut args: Compare) -> Result<(), Failure> {
    let scene = args.request.scenario.as_deref().map(Scene::read).transpose()?;
    if let Some(scene) = &scene {
        args.load.fill(scene.settings());
        args.client.fill(scene.settings());
        args.results.threshold.extend_from_slice(&scene.thresholds);
    }
    if let Some(what) = args.contradiction() {
        return Err(Failure::Usage(what));
    }
    let tasks: Vec<Task> = args
        .targets
        .iter()
        .map(|Named(_, target)| Task::read(target, scene.as_ref(), &args.load, &args.request, &args.tls))
        .collect::<Result<_, _>>()?;
    check_used(&args.tls, tasks.iter().any(|task| task.tls.is_some()))?;
    carry_out(&args, &tasks)
}

fn carry_out(args: &Compare, tasks: &[Task]) -> Result<(), Failure> {
    let watched: Vec<Watched<'_>> = args
        .targets
        .iter()
        .map(|Named(name, _)| watched(args, name))
        .collect::<Result<_, _>>()?;
    let allowed = ringmain_sys::cpu::allowed();
    let threads = threads(&args.load, &args.client, &args.server.started, &allowed)?;
    let sinks = Sinks::open(&args.results, None)?;
    let interrupt = super::prepare(args.results.quiet)?;
    // Arrivals and random tokens are the same for all.
    let seed = args.client.seed.unwrap_or_else(ringmain_sys::clock::random);
    let mut sides = Vec::new();
    for ((Named(name, _), task), watched) in args.targets.iter().zip(tasks).zip(watched) {
        let addrs = addresses(&task.place)?;
        let (server, reached) = open(&addrs, watched, &args.server.started, &interrupt)?;
        let plan = plan(
            task,
            reached,
            &threads,
            (&args.load, &args.client),
            args.results.interval.0,
        )?;
        let plan = Plan {
            seed,
            rounds: args.load.rounds.unwrap_or(COMPARED_ROUNDS),
            ..plan
        };
        let around = Around::of(server.as_ref(), &args.server.started, &plan, &allowed);
        let session = session(plan, task)?;
        interrupt.tells(session.stop());
        let run = empty(name, &session);
        sides.push(Side {
            session,
            server,
            around,
            run,
        });
    }
    let failed = rounds(&mut sides, &interrupt, Live::new(args.results.quiet))?;
    finish(args, sides, seed, sinks, (failed, interrupt.came()))
}

/// How the server of the target of this name is watched.
fn watched<'a>(args: &'a Compare, name: &str) -> Result<Watched<'a>, Failure> {
    let of = |list: &'a [Named]| {
        list.iter()
            .find(|Named(other, _)| other == name)
            .map(|Named(_, value)| value)
    };
    if let Some(command) = of(&args.server.server) {
        return Ok(Watched::Command(command));
    }
    let Some(pid) = of(&args.server.server_pid) else {
        return Ok(Watched::Nothing);
    };
    let number = pid.parse().ok().filter(|number| *number > 0);
    number.map(Watched::Process).ok_or_else(|| {
        Failure::Usage(format!(
            "--server-pid {name}={pid}: expected the number of a process, found `{pid}`"
        ))
    })
}

/// Runs the rounds of all targets. Returns the error that ended the run after some rounds were measured: those are shown, and
/// the command fails.
fn rounds(sides: &mut [Side], interrupt: &Interrupt, mut live: Live) -> Result<Option<Failure>, Failure> {
    let mut failed = None;
    let rounds = sides.first().map_or(0, |side| side.session.plan().rounds);
    let mut histograms = Histograms::none();
    for index in order(sides.len(), rounds) {
        let side = &mut sides[index];
        let number = u32::try_from(side.run.rounds.len()).unwrap_or(u32::MAX);
        live.begin(Some(&side.run.name), number, side.session.plan());
        let round = one(
            &side.session,
            number,
            side.server.as_mut(),
            &mut live,
            &mut histograms,
        );
        match round {
            Ok(round) => side.run.rounds.extend(round),
            Err(error) => {
                let text = format!("{}: round {}: {}", side.run.name, number + 1, error.text());
                failed = Some(Failure::Other(text));
                break;
            }
        }
        if interrupt.came() {
            break;
        }
    }
    // A round that has no counterpart compares with nothing.
    let least = sides.iter().map(|side| side.run.rounds.len()).min().unwrap_or(0);
    if least == 0 {
        let text = "interrupted before every target was measured";
        return Err(failed.unwrap_or(Failure::Other(text.into())));
    }
    for side in sides {
        side.run.rounds.truncate(least);
    }
    Ok(failed)
}

fn finish(
    args: &Compare,
    sides: Vec<Side>,
    seed: u64,
    sinks: Sinks,
    (failed, interrupted): (Option<Failure>, bool),
) -> Result<(), Failure> {
    let runs: Vec<Run> = sides.iter().map(|side| side.run.clone()).collect();
    let comparisons = compare(&runs, seed);
    let comparison = told(&args.targets, &runs, &comparisons);
    let verdicts: Vec<Verdict> = sides
        .into_iter()
        .map(|side| Verdict::of(side.run, &side.around, &args.results.threshold))
        .collect();
    let mut remarks = Vec::new();
    for verdict in &verdicts {
        for mut remark in verdict.remarks() {
            remark.message = format!("{}: {}", verdict.run.name, remark.message);
            remarks.push(remark);
        }
    }
    let judged: Vec<Judged<'_>> = verdicts.iter().map(Verdict::judged).collect();
    sinks.write(
        &remarks,
        || text::comparison(&comparison, &runs, &remarks, style()),
        || json::comparison(&judged, &comparisons),
        || page::comparison(&comparison, &runs, &remarks),
    )?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    if interrupted {
        return Err(Failure::Other(format!(
            "interrupted after {} of {} rounds of each target",
            runs[0].rounds.len(),
            runs[0].plan.rounds
        )));
    }
    check_results(&verdicts)
}

/// The judgement as the rows of a report.
fn told(targets: &[Named], runs: &[Run], comparisons: &[Comparison]) -> report::ComparisonTable {
    let rows = Metric::ALL
        .into_iter()
        .filter_map(|metric| row(metric, runs, comparisons));
    report::ComparisonTable {
        targets: runs.iter().map(|run| run.name.clone()).collect(),
        places: targets.iter().map(|Named(_, place)| place.clone()).collect(),
        rounds: runs
            .first()
            .map_or(0, |run| u32::try_from(run.rounds.len()).unwrap_or(u32::MAX)),
        confidence: stats::CONFIDENCE,
        rows: rows.collect(),
    }
}

/// One figure of all targets; nothing if none has it.
fn row(metric: Metric, runs: &[Run], comparisons: &[Comparison]) -> Option<Row> {
    // The judgement's times are microseconds.
    let (name, unit, factor) = match metric {
        Metric::Throughput => ("requests/s", Unit::Number, 1.0),
        Metric::ServerCpu => ("server CPU/request", Unit::Seconds, 1e-6),
        Metric::ServiceP50 => ("p50 service", Unit::Seconds, 1e-6),
        Metric::ServiceP99 => ("p99 service", Unit::Seconds, 1e-6),
        Metric::ResponseP50 => ("p50 response", Unit::Seconds, 1e-6),
        Metric::ResponseP99 => ("p99 response", Unit::Seconds, 1e-6),
    };
    let median = |run: &Run| {
        let values: Vec<f64> = run.rounds.iter().filter_map(|round| metric.of(round)).collect();
        stats::median(&values).map(|value| value * factor)
    };
    let values: Vec<Option<f64>> = runs.iter().map(median).collect();
    values.iter().any(Option::is_some).then(|| Row {
        metric: name.into(),
        unit,
        values,
        against: comparisons
            .iter()
            .map(|comparison| {
                comparison
                    .ratios
                    .iter()
                    .find(|ratio| ratio.metric == metric)
                    .map(against)
            })
            .collect(),
    })
}

fn against(ratio: &Ratio) -> Against {
    let (verdict, tone) = match ratio.verdict {
        compare::Verdict::Different { better } => (
            difference(ratio.metric, ratio.ratio.median),
            if better { Tone::Better } else { Tone::Worse },
        ),
        compare::Verdict::Noise { more_rounds: None } => ("noise explains it".into(), Tone::Neutral),
        compare::Verdict::Noise { more_rounds: Some(1) } => {
            ("no proof yet: 1 more round may show it".into(), Tone::Neutral)
        }
        compare::Verdict::Noise {
            more_rounds: Some(more),
        } => (
            format!(
                "no proof yet: {} more rounds may show it",
                amount::count(more.into())
            ),
            Tone::Neutral,
        ),
    };
    Against {
        ratio: ratio.ratio.median,
        low: ratio.ratio.low,
        high: ratio.ratio.high,
        verdict,
        tone,
    }
}

/// `3 % fewer`, `2.1 times as long`.
fn difference(metric: Metric, ratio: f64) -> String {
    let (more, less, as_much) = match metric {
        Metric::Throughput => ("more", "fewer", "as many"),
        Metric::ServerCpu => ("more", "less", "as much"),
        _ => ("longer", "shorter", "as long"),
    };
    let percent = (ratio - 1.0).abs() * 100.0;
    let percent = if percent < 10.0 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    };
    match ratio {
        2.0.. => format!("{ratio:.1} times {as_much}"),
        1.0.. => format!("{percent} % {more}"),
        _ => format!("{percent} % {less}"),
    }
}
