//! A load that runs one round at a time, for `ringmain tune measure`.

use ringmain_load::plan::{Pace, Plan};
use ringmain_load::report::{Round, Run};
use ringmain_load::run::Session;
use ringmain_load::server::Server;

use super::client_tls::check_tls_used;
use super::interrupt::Interrupt;
use super::live::Live;
use super::measure::{empty_run, run_round};
use super::output::Histograms;
use super::request::{Workload, build_plan, client_threads, open_session};
use super::resolve_target::{ServerSource, reach_target, resolve_addresses};
use super::scenario_file::ScenarioFile;
use crate::args::Time;
use crate::args::tune::Measure;
use crate::error::CliError;
use crate::limits::{COMPARE_ROUNDS, MEASURE_INTERVAL};

/// A prepared load.
pub(crate) struct BenchSession {
    session: Session,
    server: Option<Server>,
    interrupt: Interrupt,
    live: Live,
}

impl BenchSession {
    /// Starts or finds the server, and plans the load.
    ///
    /// # Errors
    /// Fails on conflicting options, and if the server cannot be started or reached.
    pub(crate) fn open(args: &Measure) -> Result<BenchSession, CliError> {
        if let Some(what) = args.load.contradiction(false, args.request.grpc.grpc) {
            return Err(CliError::Usage(what));
        }
        let scenario = args
            .request
            .scenario
            .as_deref()
            .map(ScenarioFile::read)
            .transpose()?;
        let workload = Workload::read(
            &args.target,
            scenario.as_ref(),
            &args.load,
            &args.request,
            &args.tls,
        )?;
        check_tls_used(&args.tls, workload.tls.is_some())?;
        let started = &args.server.started;
        let allowed = ringmain_sys::cpu::allowed();
        let threads = client_threads(&args.load, &args.client, started, &allowed)?;
        let interrupt = super::init_process(args.quiet)?;
        let watched = match (&args.server.server, args.server.server_pid) {
            (Some(command), _) => ServerSource::Command(command),
            (None, Some(pid)) => ServerSource::Process(pid),
            (None, None) => ServerSource::Nothing,
        };
        let (server, reached) =
            reach_target(&resolve_addresses(&workload.place)?, watched, started, &interrupt)?;
        let interval = Time(MEASURE_INTERVAL).0;
        let plan = build_plan(&workload, reached, &threads, &args.load, &args.client, interval)?;
        let plan = Plan {
            seed: args.client.seed.unwrap_or_else(ringmain_sys::clock::random),
            rounds: args.load.rounds.unwrap_or(COMPARE_ROUNDS),
            ..plan
        };
        let session = open_session(plan, &workload)?;
        interrupt.set_on_interrupt(session.stop());
        Ok(BenchSession {
            session,
            server,
            interrupt,
            live: Live::new(args.quiet),
        })
    }

    /// Returns the number of rounds of each side.
    pub(crate) fn rounds_per_side(&self) -> u32 {
        self.session.plan().rounds
    }

    /// Returns the random seed.
    pub(crate) fn seed(&self) -> u64 {
        self.session.plan().seed
    }

    /// Returns whether requests are sent on schedule.
    pub(crate) fn is_open_loop(&self) -> bool {
        !matches!(self.session.plan().pace, Pace::Closed)
    }

    /// Returns whether the server's CPU time is measured.
    pub(crate) fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// Returns a run without rounds.
    pub(crate) fn empty_run(&self, name: &str) -> Run {
        empty_run(name, &self.session)
    }

    /// Prints a line between rounds.
    pub(crate) fn print_line(&mut self, text: &str) {
        self.live.print_line(text);
    }

    /// Runs one round.
    pub(crate) fn run_round(&mut self, name: &str, number: u32) -> Result<Round, CliError> {
        self.live.begin_round(Some(name), number, self.session.plan());
        let mut histograms = Histograms::without_file();
        let round = run_round(
            &self.session,
            number,
            self.server.as_mut(),
            &mut self.live,
            &mut histograms,
        )?;
        round.filter(|_| !self.interrupt.is_interrupted()).ok_or_else(|| {
            CliError::Other("interrupted: the kept steps remain, the others are reverted".into())
        })
    }
}
