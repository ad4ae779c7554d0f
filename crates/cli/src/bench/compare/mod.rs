//! `ringmain bench compare`: alternating rounds of several targets, and the significance of their differences.

use ringmain_load::compare::{self, Comparison, Metric, Ratio, compare, order};
use ringmain_load::plan::Plan;
use ringmain_load::report::json::{self, Judged};
use ringmain_load::report::{self, Against, Row, Run, Tone, Unit, amount, page, text};
use ringmain_load::run::Session;
use ringmain_load::server::Server;
use ringmain_load::stats;

use super::client_tls::check_tls_used;
use super::interrupt::Interrupt;
use super::live::Live;
use super::measure::{CpuPlacement, Verdict, check_results, empty_run, run_round};
use super::output::{Histograms, Sinks, terminal_style};
use super::request::{Workload, build_plan, client_threads, open_session};
use super::resolve_target::{ServerSource, reach_target, resolve_addresses};
use super::scenario_file::ScenarioFile;
use crate::args::bench::Compare;
use crate::args::bench::values::Named;
use crate::error::CliError;
use crate::limits::COMPARE_ROUNDS;

#[cfg(test)]
mod tests;

/// A target of the comparison.
struct ComparedTarget {
    session: Session,
    server: Option<Server>,
    placement: CpuPlacement,
    run: Run,
}

/// Runs the command.
pub(super) fn run(mut args: Compare) -> Result<(), CliError> {
    let scenario = args
        .request
        .scenario
        .as_deref()
        .map(ScenarioFile::read)
        .transpose()?;
    if let Some(scenario) = &scenario {
        args.load.apply_scenario(scenario.settings());
        args.client.apply_scenario(scenario.settings());
        args.results.threshold.extend_from_slice(&scenario.thresholds);
    }
    if let Some(what) = args.contradiction() {
        return Err(CliError::Usage(what));
    }
    let workloads: Vec<Workload> = args
        .targets
        .iter()
        .map(|Named(_, target)| {
            Workload::read(target, scenario.as_ref(), &args.load, &args.request, &args.tls)
        })
        .collect::<Result<_, _>>()?;
    check_tls_used(&args.tls, workloads.iter().any(|workload| workload.tls.is_some()))?;
    run_comparison(&args, &workloads)
}

fn run_comparison(args: &Compare, workloads: &[Workload]) -> Result<(), CliError> {
    let watched: Vec<ServerSource<'_>> = args
        .targets
        .iter()
        .map(|Named(name, _)| server_source(args, name))
        .collect::<Result<_, _>>()?;
    let allowed = ringmain_sys::cpu::allowed();
    let threads = client_threads(&args.load, &args.client, &args.server.started, &allowed)?;
    let sinks = Sinks::open(&args.results, None)?;
    let interrupt = super::init_process(args.results.quiet)?;
    // Arrivals and random tokens are the same for every target.
    let seed = args.client.seed.unwrap_or_else(ringmain_sys::clock::random);
    let mut sides = Vec::new();
    for ((Named(name, _), workload), watched) in args.targets.iter().zip(workloads).zip(watched) {
        let addrs = resolve_addresses(&workload.place)?;
        let (server, reached) = reach_target(&addrs, watched, &args.server.started, &interrupt)?;
        let plan = build_plan(
            workload,
            reached,
            &threads,
            &args.load,
            &args.client,
            args.results.interval.0,
        )?;
        let plan = Plan {
            seed,
            rounds: args.load.rounds.unwrap_or(COMPARE_ROUNDS),
            ..plan
        };
        let placement = CpuPlacement::of(server.as_ref(), &args.server.started, &plan, &allowed);
        let session = open_session(plan, workload)?;
        interrupt.set_on_interrupt(session.stop());
        let run = empty_run(name, &session);
        sides.push(ComparedTarget {
            session,
            server,
            placement,
            run,
        });
    }
    let failed = run_rounds(&mut sides, &interrupt, Live::new(args.results.quiet))?;
    write_results(args, sides, seed, sinks, failed, interrupt.is_interrupted())
}

/// Returns the server of the target with this name.
fn server_source<'a>(args: &'a Compare, name: &str) -> Result<ServerSource<'a>, CliError> {
    let of = |list: &'a [Named]| {
        list.iter()
            .find(|Named(other, _)| other == name)
            .map(|Named(_, value)| value)
    };
    if let Some(command) = of(&args.server.server) {
        return Ok(ServerSource::Command(command));
    }
    let Some(pid) = of(&args.server.server_pid) else {
        return Ok(ServerSource::Nothing);
    };
    let number = pid.parse().ok().filter(|number| *number > 0);
    number.map(ServerSource::Process).ok_or_else(|| {
        CliError::Usage(format!(
            "--server-pid {name}={pid}: expected a process ID, found `{pid}`"
        ))
    })
}

/// Runs the rounds of every target. Returns the error after the first measured rounds: these are reported, and the command
/// fails.
fn run_rounds(
    sides: &mut [ComparedTarget],
    interrupt: &Interrupt,
    mut live: Live,
) -> Result<Option<CliError>, CliError> {
    let mut failed = None;
    let rounds = sides.first().map_or(0, |side| side.session.plan().rounds);
    let mut histograms = Histograms::without_file();
    for index in order(sides.len(), rounds) {
        let side = &mut sides[index];
        let number = u32::try_from(side.run.rounds.len()).unwrap_or(u32::MAX);
        live.begin_round(Some(&side.run.name), number, side.session.plan());
        let round = run_round(
            &side.session,
            number,
            side.server.as_mut(),
            &mut live,
            &mut histograms,
        );
        match round {
            Ok(round) => side.run.rounds.extend(round),
            Err(error) => {
                let text = format!("{}: round {}: {}", side.run.name, number + 1, error.message());
                failed = Some(CliError::Other(text));
                break;
            }
        }
        if interrupt.is_interrupted() {
            break;
        }
    }
    // A round without a counterpart cannot be compared.
    let least = sides.iter().map(|side| side.run.rounds.len()).min().unwrap_or(0);
    if least == 0 {
        let text = "interrupted before every target had a round";
        return Err(failed.unwrap_or(CliError::Other(text.into())));
    }
    for side in sides {
        side.run.rounds.truncate(least);
    }
    Ok(failed)
}

fn write_results(
    args: &Compare,
    sides: Vec<ComparedTarget>,
    seed: u64,
    sinks: Sinks,
    failed: Option<CliError>,
    interrupted: bool,
) -> Result<(), CliError> {
    let runs: Vec<Run> = sides.iter().map(|side| side.run.clone()).collect();
    let comparisons = compare(&runs, seed);
    let comparison = comparison_table(&args.targets, &runs, &comparisons);
    let verdicts: Vec<Verdict> = sides
        .into_iter()
        .map(|side| Verdict::of(side.run, &side.placement, &args.results.threshold))
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
        || text::comparison(&comparison, &runs, &remarks, terminal_style()),
        || json::comparison(&judged, &comparisons),
        || page::comparison(&comparison, &runs, &remarks),
    )?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    if interrupted {
        return Err(CliError::Other(format!(
            "interrupted after {} of {} rounds of each target",
            runs[0].rounds.len(),
            runs[0].plan.rounds
        )));
    }
    check_results(&verdicts)
}

/// Returns the comparison as the rows of a report.
fn comparison_table(targets: &[Named], runs: &[Run], comparisons: &[Comparison]) -> report::ComparisonTable {
    let rows = Metric::ALL
        .into_iter()
        .filter_map(|metric| metric_row(metric, runs, comparisons));
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

/// Returns one metric of every target; `None` if no target has it.
fn metric_row(metric: Metric, runs: &[Run], comparisons: &[Comparison]) -> Option<Row> {
    // Times of the comparison are in microseconds.
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
                    .map(describe_ratio)
            })
            .collect(),
    })
}

fn describe_ratio(ratio: &Ratio) -> Against {
    let (verdict, tone) = match ratio.verdict {
        compare::Verdict::Different { better } => (
            describe_difference(ratio.metric, ratio.ratio.median),
            if better { Tone::Better } else { Tone::Worse },
        ),
        compare::Verdict::Noise { more_rounds: None } => ("within noise".into(), Tone::Neutral),
        compare::Verdict::Noise { more_rounds: Some(1) } => (
            "not significant: 1 more round may be enough".into(),
            Tone::Neutral,
        ),
        compare::Verdict::Noise {
            more_rounds: Some(more),
        } => (
            format!(
                "not significant: {} more rounds may be enough",
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

/// Describes a ratio: `3 % fewer`, `2.1 times as long`.
fn describe_difference(metric: Metric, ratio: f64) -> String {
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
