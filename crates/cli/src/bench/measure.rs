//! The rounds of one session, shown and recorded while they run, and the check of thresholds.

use std::collections::BTreeMap;

use ringmain_load::doubts::{Context, Doubt, doubts};
use ringmain_load::plan::Plan;
use ringmain_load::report::json::Judged;
use ringmain_load::report::{Remark, Round, Run};
use ringmain_load::run::{Progress, RunError, Session};
use ringmain_load::server::Server;
use ringmain_load::threshold::{Judgement, Threshold};
use ringmain_sys::cpu;

use super::interrupt::Interrupt;
use super::live::Live;
use super::output::Histograms;
use crate::args::bench::Started;
use crate::error::CliError;

/// A run with its measured rounds.
#[derive(Debug)]
pub(super) struct MeasuredRun {
    pub(super) run: Run,
    /// A signal ended the run early.
    pub(super) interrupted: bool,
    /// The error that ended the run after the first measured rounds: these are reported, and the command fails.
    pub(super) failed: Option<CliError>,
}

impl MeasuredRun {
    /// Returns the reason for missing rounds, if any.
    pub(super) fn incomplete_error(self) -> Option<CliError> {
        let (rounds, asked) = (self.run.rounds.len(), self.run.plan.rounds);
        if let Some(failed) = self.failed {
            return Some(CliError::Other(format!(
                "round {} of {asked}: {}",
                rounds + 1,
                failed.message()
            )));
        }
        let text = format!("interrupted in round {rounds} of {asked}");
        self.interrupted.then_some(CliError::Other(text))
    }
}

/// Runs the rounds of one target.
pub(super) fn run_rounds(
    name: &str,
    session: &Session,
    mut server: Option<&mut Server>,
    interrupt: &Interrupt,
    live: &mut Live,
    histograms: &mut Histograms,
) -> Result<MeasuredRun, CliError> {
    let (mut run, mut failed) = (empty_run(name, session), None);
    for number in 0..session.plan().rounds {
        live.begin_round(None, number, session.plan());
        match run_round(session, number, server.as_deref_mut(), live, histograms) {
            Ok(Some(round)) => run.rounds.push(round),
            Ok(None) => break,
            Err(error) if run.rounds.is_empty() => return Err(error),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        if interrupt.is_interrupted() {
            break;
        }
    }
    if run.rounds.is_empty() {
        return Err(CliError::Other("interrupted before anything was measured".into()));
    }
    Ok(MeasuredRun {
        run,
        interrupted: interrupt.is_interrupted(),
        failed,
    })
}

/// Returns a run without rounds.
pub(super) fn empty_run(name: &str, session: &Session) -> Run {
    Run {
        name: name.to_owned(),
        plan: session.plan().clone(),
        engine: session.engine().to_owned(),
        rounds: Vec::new(),
    }
}

/// Runs one round. Returns `None` if a signal ended it before the measurement.
pub(super) fn run_round(
    session: &Session,
    number: u32,
    server: Option<&mut Server>,
    live: &mut Live,
    histograms: &mut Histograms,
) -> Result<Option<Round>, CliError> {
    histograms.write_head(session)?;
    let mut written = Ok(());
    let round = session.round(number, server, &mut |progress| {
        match &progress {
            Progress::Measuring => histograms.mark_round_start(),
            Progress::Interval { interval, figures } if written.is_ok() => {
                written = histograms.write_interval(interval, figures);
            }
            _ => {}
        }
        live.show_progress(&progress);
    });
    written?;
    match round {
        Ok(round) => {
            live.end_round(&round);
            Ok(Some(round))
        }
        Err(RunError::Stopped) => Ok(None),
        Err(error) => Err(CliError::other(error)),
    }
}

/// The CPUs of client and server.
#[derive(Clone, Debug)]
pub(super) struct CpuPlacement(Context);

impl CpuPlacement {
    /// Detects the CPUs. `allowed`: the CPUs of this process, and of a started server that is not pinned.
    pub(super) fn of(
        server: Option<&Server>,
        started: &Started,
        plan: &Plan,
        allowed: &[usize],
    ) -> CpuPlacement {
        let pinned = started.server_cpus.clone();
        let cpus = |server: &Server| pinned.or_else(|| cpu::allowed_of(server.pid()).ok());
        CpuPlacement(Context {
            server_cpus: server.and_then(cpus),
            client_cpus: if plan.cpus.is_empty() {
                allowed.to_vec()
            } else {
                plan.cpus.clone()
            },
        })
    }
}

/// A run with its warnings and thresholds.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) run: Run,
    pub(super) doubts: Vec<Doubt>,
    pub(super) thresholds: Vec<Judgement>,
}

impl Verdict {
    pub(super) fn of(run: Run, placement: &CpuPlacement, thresholds: &[Threshold]) -> Verdict {
        Verdict {
            doubts: doubts(&run, &placement.0),
            thresholds: thresholds.iter().map(|threshold| threshold.judge(&run)).collect(),
            run,
        }
    }

    /// Returns the warnings as texts.
    pub(super) fn remarks(&self) -> Vec<Remark> {
        self.doubts.iter().map(to_remark).collect()
    }

    /// Returns the parts of a JSON document.
    pub(super) fn judged(&self) -> Judged<'_> {
        Judged {
            run: &self.run,
            doubts: &self.doubts,
            thresholds: &self.thresholds,
        }
    }
}

fn to_remark(doubt: &Doubt) -> Remark {
    let place = doubt
        .round
        .map_or_else(String::new, |round| format!("round {}: ", round + 1));
    Remark {
        severity: doubt.severity,
        message: format!("{place}{}", doubt.message),
    }
}

/// Returns the errors of a run with their numbers, in parentheses; empty without errors.
fn error_counts(verdict: &Verdict) -> String {
    let mut all = BTreeMap::new();
    for round in &verdict.run.rounds {
        let counts = &round.figures.counts;
        for (reason, count) in counts.broken.iter().chain(&counts.connect_errors) {
            *all.entry(*reason).or_insert(0) += count;
        }
    }
    let all: Vec<String> = all
        .iter()
        .map(|(reason, count)| format!("{reason}: {count}"))
        .collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" ({})", all.join(", "))
    }
}

/// Returns an error if a run has no response at all, or misses a threshold.
pub(super) fn check_results(verdicts: &[Verdict]) -> Result<(), CliError> {
    for verdict in verdicts {
        let counts = verdict.run.rounds.iter().map(|round| &round.figures.counts);
        let (answered, sent) = counts.fold((0, 0), |(answered, sent), counts| {
            (answered + counts.answered, sent + counts.sent)
        });
        if answered == 0 {
            let name = &verdict.run.name;
            return Err(CliError::Other(format!(
                "{name}: no response to any of {sent} requests{}; check the address, and try one request by hand",
                error_counts(verdict)
            )));
        }
    }
    let mut missed = Vec::new();
    for verdict in verdicts {
        for judgement in verdict.thresholds.iter().filter(|judgement| !judgement.held()) {
            missed.push(match verdicts {
                [_] => judgement.to_string(),
                _ => format!("{}: {judgement}", verdict.run.name),
            });
        }
    }
    match missed.len() {
        0 => Ok(()),
        1 => Err(CliError::Other(format!("a threshold is missed: {}", missed[0]))),
        count => Err(CliError::Other(format!(
            "{count} thresholds are missed: {}",
            missed.join("; ")
        ))),
    }
}
