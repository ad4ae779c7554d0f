//! One target: its rounds, or the search for the highest rate.

use std::path::Path;
use std::time::Duration;

use ringmain_load::knee::{Found, Knee, Outcome, Phase, Step};
use ringmain_load::limits;
use ringmain_load::plan::{Extent, Pace, Plan};
use ringmain_load::report::json::{self, Judged};
use ringmain_load::report::{Round, amount, page, text};
use ringmain_load::server::Server;

use super::client_tls::check_tls_used;
use super::interrupt::Interrupt;
use super::live::Live;
use super::measure::{CpuPlacement, MeasuredRun, Verdict, check_results, run_rounds};
use super::output;
use super::output::{Histograms, Sinks};
use super::request::{Workload, build_plan, client_threads, open_session};
use super::resolve_target::{ServerSource, reach_target, resolve_addresses};
use super::scenario_file::{ScenarioFile, is_scenario};
use crate::args::bench::Bench;
use crate::error::CliError;

/// Default duration of a step of the search.
const STEP: Duration = Duration::from_secs(5);

/// Runs the command.
pub(super) fn run(mut args: Bench) -> Result<(), CliError> {
    let name = args
        .target
        .clone()
        .expect("clap requires a target without a subcommand");
    let scenario = read_scenario(&args, &name)?;
    if let Some(scenario) = &scenario {
        args.load.apply_scenario(scenario.settings());
        args.client.apply_scenario(scenario.settings());
        args.results.threshold.extend_from_slice(&scenario.thresholds);
    }
    if let Some(what) = args.contradiction() {
        return Err(CliError::Usage(what));
    }
    let target = if is_scenario(&name) {
        let target = scenario.as_ref().and_then(ScenarioFile::target);
        target.map(str::to_owned).ok_or_else(|| {
            CliError::Usage(format!(
                "{name} has no target: add `target: http://…` to it, or write --scenario {name} URL"
            ))
        })?
    } else {
        name.clone()
    };
    let workload = Workload::read(&target, scenario.as_ref(), &args.load, &args.request, &args.tls)?;
    check_tls_used(&args.tls, workload.tls.is_some())?;
    run_target(&args, &name, &workload)
}

/// Reads the scenario of the command line, given as target or as option.
fn read_scenario(args: &Bench, name: &str) -> Result<Option<ScenarioFile>, CliError> {
    let path = match (&args.request.scenario, is_scenario(name)) {
        (Some(path), true) => {
            return Err(CliError::Usage(format!(
                "{name} and --scenario {} are two scenarios: drop one, or use a URL as target",
                path.display()
            )));
        }
        (Some(path), false) => path.as_path(),
        (None, true) => Path::new(name),
        (None, false) => return Ok(None),
    };
    if let Some(option) = args.request.first_given_option() {
        return Err(CliError::Usage(format!(
            "{option} describes a single request, and cannot be used with a scenario: set it in {}",
            path.display()
        )));
    }
    ScenarioFile::read(path).map(Some)
}

fn run_target(args: &Bench, name: &str, workload: &Workload) -> Result<(), CliError> {
    let started = &args.server.started;
    let allowed = ringmain_sys::cpu::allowed();
    let threads = client_threads(&args.load, &args.client, started, &allowed)?;
    let sinks = Sinks::open(&args.results, args.histogram.hlog.as_ref())?;
    let mut histograms = Histograms::open(args.histogram.hlog.as_ref())?;
    let interrupt = super::init_process(args.results.quiet)?;
    let addrs = resolve_addresses(&workload.place)?;
    let watched = match (&args.server.server, args.server.server_pid) {
        (Some(command), _) => ServerSource::Command(command),
        (None, Some(pid)) => ServerSource::Process(pid),
        (None, None) => ServerSource::Nothing,
    };
    let (mut server, reached) = reach_target(&addrs, watched, started, &interrupt)?;
    let plan = build_plan(
        workload,
        reached,
        &threads,
        &args.load,
        &args.client,
        args.results.interval.0,
    )?;
    let placement = CpuPlacement::of(server.as_ref(), started, &plan, &allowed);
    let mut bench = TargetBench {
        name,
        workload,
        plan,
        server: server.as_mut(),
        interrupt: &interrupt,
        live: Live::new(args.results.quiet),
        histograms: &mut histograms,
    };
    if args.search.find_max {
        bench.search_highest_rate(args, &placement, sinks)
    } else {
        let measured = bench.measure_rounds()?;
        drop(bench);
        let verdict = Verdict::of(measured.run.clone(), &placement, &args.results.threshold);
        write_results(&verdict, sinks, json::run)?;
        match measured.incomplete_error() {
            Some(failure) => Err(failure),
            None => check_results(&[verdict]),
        }
    }
}

/// A target with its plan and server.
struct TargetBench<'a> {
    name: &'a str,
    workload: &'a Workload,
    plan: Plan,
    server: Option<&'a mut Server>,
    interrupt: &'a Interrupt,
    live: Live,
    histograms: &'a mut Histograms,
}

impl TargetBench<'_> {
    fn measure_rounds(&mut self) -> Result<MeasuredRun, CliError> {
        let plan = self.plan.clone();
        self.run_plan(plan)
    }

    fn run_plan(&mut self, plan: Plan) -> Result<MeasuredRun, CliError> {
        let session = open_session(plan, self.workload)?;
        self.interrupt.set_on_interrupt(session.stop());
        run_rounds(
            self.name,
            &session,
            self.server.as_deref_mut(),
            self.interrupt,
            &mut self.live,
            self.histograms,
        )
    }

    /// Searches the highest rate, starting with the throughput of a closed loop, which is slightly above it.
    fn search_highest_rate(
        mut self,
        args: &Bench,
        placement: &CpuPlacement,
        sinks: Sinks,
    ) -> Result<(), CliError> {
        self.plan.rounds = 1;
        self.plan.extent = Extent::Time(args.load.duration.map_or(STEP, |duration| duration.0));
        self.live
            .print_line("measuring the closed loop, for the start of the search");
        let closed = self.measure_rounds()?;
        let start = closed.run.rounds.first().map_or(1.0, Round::throughput);
        let mut knee = Knee::new(start, limits::RATE);
        let mut last: Option<MeasuredRun> = None;
        while let Some(step) = knee.next() {
            let mut plan = self.plan.clone();
            plan.pace = if args.load.poisson {
                Pace::Poisson(step.rate)
            } else {
                Pace::Constant(step.rate)
            };
            let mut measured = self.run_plan(plan)?;
            if let Some(failed) = measured.failed.take() {
                return Err(failed);
            }
            if measured.interrupted {
                return Err(CliError::Other(
                    "interrupted before the highest rate was found".into(),
                ));
            }
            let outcome = Outcome::of(&measured.run, &args.search.slo);
            self.live.print_line(&describe_step(&step, &outcome));
            knee.feed(outcome);
            // The rounds that confirm a rate are the rounds of the result.
            if let (Some(mut before), Phase::Confirm(1..)) = (last.take(), step.phase) {
                before.run.rounds.append(&mut measured.run.rounds);
                measured.run.rounds = before.run.rounds;
            }
            measured.run.plan.rounds = u32::try_from(measured.run.rounds.len()).unwrap_or(u32::MAX);
            last = Some(measured);
        }
        drop(self);
        let found = knee.found().expect("a search without a next step is finished");
        let summary = describe_result(&found);
        let Some(held) = found.held.and(last) else {
            sinks.write_json(|| json::search(&found, None))?;
            return Err(CliError::Other(summary));
        };
        output::to_standard_error(&summary);
        let verdict = Verdict::of(held.run, placement, &args.search.slo);
        write_results(&verdict, sinks, |judged| json::search(&found, Some(judged)))
    }
}

/// Describes the result of a search step in one line.
fn describe_step(step: &Step, outcome: &Outcome) -> String {
    let phase = match step.phase {
        Phase::Ramp => "ramping up",
        Phase::Bisect => "bisecting",
        Phase::Confirm(_) => "confirming",
    };
    let how = match &outcome.broke[..] {
        [] => "met".to_owned(),
        broke => join_list(broke),
    };
    format!("{} requests/s ({phase}): {how}", amount::number(step.rate))
}

fn join_list(list: &[impl ToString]) -> String {
    list.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Describes the result of the search in one line.
fn describe_result(found: &Found) -> String {
    let above = match &found.broke {
        Some((rate, broke)) => format!(
            "missed at {} requests/s: {}",
            amount::number(*rate),
            join_list(broke)
        ),
        None => "higher rates not measured".into(),
    };
    match found.held {
        Some(rate) => format!("highest rate: {} requests/s; {above}", amount::number(rate)),
        None => format!("no rate meets the objective; {above}"),
    }
}

/// Writes the results.
fn write_results(
    verdict: &Verdict,
    sinks: Sinks,
    json: impl FnOnce(&Judged<'_>) -> String,
) -> Result<(), CliError> {
    let (run, remarks) = (&verdict.run, verdict.remarks());
    sinks.write(
        &remarks,
        || text::run(run, &remarks, output::terminal_style()),
        || json(&verdict.judged()),
        || page::run(run, &remarks),
    )
}
