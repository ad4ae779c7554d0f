//! A target under load that others ask for one round at a time: `ringmain tune measure`.

use ringmain_load::plan::{Pace, Plan};
use ringmain_load::report::{Round, Run};
use ringmain_load::run::Session;
use ringmain_load::server::Server;

use super::client_tls::check_used;
use super::interrupt::Interrupt;
use super::live::Live;
use super::measure::{empty, one};
use super::output::Histograms;
use super::request::{Task, plan, session, threads};
use super::resolve_target::{Watched, addresses, open};
use super::scenario_file::Scene;
use crate::args::Time;
use crate::args::tune::Measure;
use crate::error::Failure;
use crate::limits::{COMPARED_ROUNDS, MEASURE_INTERVAL};

/// A load that is ready.
pub(crate) struct Bed {
    session: Session,
    server: Option<Server>,
    interrupt: Interrupt,
    live: Live,
}

impl Bed {
    /// Starts or finds the server, and makes the load's plan.
    pub(crate) fn open(args: &Measure) -> Result<Bed, Failure> {
        if let Some(what) = args.load.contradiction(false, args.request.grpc.grpc) {
            return Err(Failure::Usage(what));
        }
        let scene = args.request.scenario.as_deref().map(Scene::read).transpose()?;
        let task = Task::read(&args.target, scene.as_ref(), &args.load, &args.request, &args.tls)?;
        check_used(&args.tls, task.tls.is_some())?;
        let started = &args.server.started;
        let allowed = ringmain_sys::cpu::allowed();
        let threads = threads(&args.load, &args.client, started, &allowed)?;
        let interrupt = super::prepare(args.quiet)?;
        let watched = match (&args.server.server, args.server.server_pid) {
            (Some(command), _) => Watched::Command(command),
            (None, Some(pid)) => Watched::Process(pid),
            (None, None) => Watched::Nothing,
        };
        let (server, reached) = open(&addresses(&task.place)?, watched, started, &interrupt)?;
        let interval = Time(MEASURE_INTERVAL).0;
        let plan = plan(&task, reached, &threads, (&args.load, &args.client), interval)?;
        let plan = Plan {
            seed: args.client.seed.unwrap_or_else(ringmain_sys::clock::random),
            rounds: args.load.rounds.unwrap_or(COMPARED_ROUNDS),
            ..plan
        };
        let session = session(plan, &task)?;
        interrupt.tells(session.stop());
        Ok(Bed {
            session,
            server,
            interrupt,
            live: Live::new(args.quiet),
        })
    }

    /// Rounds of each side.
    pub(crate) fn rounds(&self) -> u32 {
        self.session.plan().rounds
    }

    /// What random choices follow from.
    pub(crate) fn seed(&self) -> u64 {
        self.session.plan().seed
    }

    /// Whether requests are sent by a schedule.
    pub(crate) fn is_open_loop(&self) -> bool {
        !matches!(self.session.plan().pace, Pace::Closed)
    }

    /// Whether the server's CPU time is measured.
    pub(crate) fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// A run without rounds yet.
    pub(crate) fn empty(&self, name: &str) -> Run {
        empty(name, &self.session)
    }

    /// Says a line between rounds.
    pub(crate) fn say(&mut self, text: &str) {
        self.live.line(text);
    }

    /// One round.
    pub(crate) fn round(&mut self, name: &str, number: u32) -> Result<Round, Failure> {
        self.live.begin(Some(name), number, self.session.plan());
        let mut histograms = Histograms::none();
        let round = one(
            &self.session,
            number,
            self.server.as_mut(),
            &mut self.live,
            &mut histograms,
        )?;
        round.filter(|_| !self.interrupt.came()).ok_or_else(|| {
            Failure::Other("interrupted: what was kept so far stays, the rest is taken back".into())
        })
    }
}
