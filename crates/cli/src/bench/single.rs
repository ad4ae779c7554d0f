//! One target: its rounds, or the search for the highest rate that it keeps.

use std::path::Path;
use std::time::Duration;

use ringmain_load::knee::{Found, Knee, Outcome, Phase, Step};
use ringmain_load::limits;
use ringmain_load::plan::{Extent, Pace, Plan};
use ringmain_load::report::json::{self, Judged};
use ringmain_load::report::{Round, amount, page, text};
use ringmain_load::server::Server;

use super::client_tls::check_used;
use super::interrupt::Interrupt;
use super::live::Live;
use super::measure::{Around, Measured, Verdict, check_results, rounds};
use super::output;
use super::output::{Histograms, Sinks};
use super::request::{Task, plan, session, threads};
use super::resolve_target::{Watched, addresses, open};
use super::scenario_file::{Scene, is_scenario};
use crate::args::bench::Bench;
use crate::error::Failure;

/// A step of the search measures for so long, if nobody says how long.
const STEP: Duration = Duration::from_secs(5);

/// Carries it out.
pub(super) fn run(mut args: Bench) -> Result<(), Failure> {
    let name = args
        .target
        .clone()
        .expect("clap asks for a target where there is no command");
    let scene = scene(&args, &name)?;
    if let Some(scene) = &scene {
        args.load.fill(scene.settings());
        args.client.fill(scene.settings());
        args.results.threshold.extend_from_slice(&scene.thresholds);
    }
    if let Some(what) = args.contradiction() {
        return Err(Failure::Usage(what));
    }
    let target = if is_scenario(&name) {
        let target = scene.as_ref().and_then(Scene::target);
        target.map(str::to_owned).ok_or_else(|| {
            Failure::Usage(format!(
                "{name} does not say where the load goes: add `target: http://…` to it, or write --scenario {name} URL"
            ))
        })?
    } else {
        name.clone()
    };
    let task = Task::read(&target, scene.as_ref(), &args.load, &args.request, &args.tls)?;
    check_used(&args.tls, task.tls.is_some())?;
    carry_out(&args, &name, &task)
}

/// What the command line names as a scenario, in either way.
fn scene(args: &Bench, name: &str) -> Result<Option<Scene>, Failure> {
    let path = match (&args.request.scenario, is_scenario(name)) {
        (Some(path), true) => {
            return Err(Failure::Usage(format!(
                "{name} and --scenario {} are two scenarios: drop one, or write a URL",
                path.display()
            )));
        }
        (Some(path), false) => path.as_path(),
        (None, true) => Path::new(name),
        (None, false) => return Ok(None),
    };
    if let Some(option) = args.request.given() {
        return Err(Failure::Usage(format!(
            "{option} says what one request is, and a scenario says what is sent: write it in {}",
            path.display()
        )));
    }
    Scene::read(path).map(Some)
}

fn carry_out(args: &Bench, name: &str, task: &Task) -> Result<(), Failure> {
    let started = &args.server.started;
    let allowed = ringmain_sys::cpu::allowed();
    let threads = threads(&args.load, &args.client, started, &allowed)?;
    let sinks = Sinks::open(&args.results, args.histogram.hlog.as_ref())?;
    let mut histograms = Histograms::open(args.histogram.hlog.as_ref())?;
    let interrupt = super::prepare(args.results.quiet)?;
    let addrs = addresses(&task.place)?;
    let watched = match (&args.server.server, args.server.server_pid) {
        (Some(command), _) => Watched::Command(command),
        (None, Some(pid)) => Watched::Process(pid),
        (None, None) => Watched::Nothing,
    };
    let (mut server, reached) = open(&addrs, watched, started, &interrupt)?;
    let plan = plan(
        task,
        reached,
        &threads,
        (&args.load, &args.client),
        args.results.interval.0,
    )?;
    let around = Around::of(server.as_ref(), started, &plan, &allowed);
    let mut bench = Single {
        name,
        task,
        plan,
        server: server.as_mut(),
        interrupt: &interrupt,
        live: Live::new(args.results.quiet),
        histograms: &mut histograms,
    };
    if args.search.find_max {
        bench.find_max(args, &around, sinks)
    } else {
        let measured = bench.rounds()?;
        drop(bench);
        let verdict = Verdict::of(measured.run.clone(), &around, &args.results.threshold);
        write(&verdict, sinks, json::run)?;
        match measured.incomplete() {
            Some(failure) => Err(failure),
            None => check_results(&[verdict]),
        }
    }
}

/// One target and what is around it.
struct Single<'a> {
    name: &'a str,
    task: &'a Task,
    plan: Plan,
    server: Option<&'a mut Server>,
    interrupt: &'a Interrupt,
    live: Live,
    histograms: &'a mut Histograms,
}

impl Single<'_> {
    fn rounds(&mut self) -> Result<Measured, Failure> {
        let plan = self.plan.clone();
        self.carry_out(plan)
    }

    fn carry_out(&mut self, plan: Plan) -> Result<Measured, Failure> {
        let session = session(plan, self.task)?;
        self.interrupt.tells(session.stop());
        rounds(
            self.name,
            &session,
            self.server.as_deref_mut(),
            self.interrupt,
            &mut self.live,
            self.histograms,
        )
    }

    /// As fast as the target answers in a closed loop is where the search begins: somewhat above what it keeps.
    fn find_max(mut self, args: &Bench, around: &Around, sinks: Sinks) -> Result<(), Failure> {
        self.plan.rounds = 1;
        self.plan.extent = Extent::Time(args.load.duration.map_or(STEP, |duration| duration.0));
        self.live
            .line("how much it answers in a closed loop, to begin near it");
        let closed = self.rounds()?;
        let start = closed.run.rounds.first().map_or(1.0, Round::throughput);
        let mut knee = Knee::new(start, limits::RATE);
        let mut last: Option<Measured> = None;
        while let Some(step) = knee.next() {
            let mut plan = self.plan.clone();
            plan.pace = if args.load.poisson {
                Pace::Poisson(step.rate)
            } else {
                Pace::Constant(step.rate)
            };
            let mut measured = self.carry_out(plan)?;
            if let Some(failed) = measured.failed.take() {
                return Err(failed);
            }
            if measured.interrupted {
                return Err(Failure::Other(
                    "interrupted before the highest rate was found".into(),
                ));
            }
            let outcome = Outcome::of(&measured.run, &args.search.slo);
            self.live.line(&told(&step, &outcome));
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
        let found = knee.found().expect("a search without a next step has ended");
        let told = said(&found);
        let Some(held) = found.held.and(last) else {
            sinks.write_json(|| json::search(&found, None))?;
            return Err(Failure::Other(told));
        };
        output::to_standard_error(&told);
        let verdict = Verdict::of(held.run, around, &args.search.slo);
        write(&verdict, sinks, |judged| json::search(&found, Some(judged)))
    }
}

/// How a step of the search went, in a line.
fn told(step: &Step, outcome: &Outcome) -> String {
    let phase = match step.phase {
        Phase::Ramp => "looking for the range",
        Phase::Bisect => "closing in",
        Phase::Confirm(_) => "confirming",
    };
    let how = match &outcome.broke[..] {
        [] => "kept".to_owned(),
        broke => listed(broke),
    };
    format!("{} requests/s ({phase}): {how}", amount::number(step.rate))
}

fn listed(list: &[impl ToString]) -> String {
    list.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// What the search has found, in a line.
fn said(found: &Found) -> String {
    let above = match &found.broke {
        Some((rate, broke)) => format!("{} requests/s are not: {}", amount::number(*rate), listed(broke)),
        None => "more was not tried".into(),
    };
    match found.held {
        Some(rate) => format!("highest rate kept: {} requests/s; {above}", amount::number(rate)),
        None => format!("no rate is kept; {above}"),
    }
}

/// Writes the results.
fn write(verdict: &Verdict, sinks: Sinks, json: impl FnOnce(&Judged<'_>) -> String) -> Result<(), Failure> {
    let (run, remarks) = (&verdict.run, verdict.remarks());
    sinks.write(
        &remarks,
        || text::run(run, &remarks, output::style()),
        || json(&verdict.judged()),
        || page::run(run, &remarks),
    )
}
