//! One fan-out: an engine, its workers begun together, what they tell put together.
//!
//! Owns the thread between the workers and whoever watches. Knows no output.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Config, Engine, Running, Start};
use ringmain_sys::{clock, process};

use super::audit::{Findings, judge};
use super::calendar::Calendar;
use super::error::PushError;
use super::figures::{Heard, Published, Spread};
use super::kill_server::ServerKill;
use super::knee::{Break, Search, Searched, outcome};
use super::layout::Layout;
use super::listen::{Common, Gauge, Listeners};
use super::outages::Outages;
use super::plan::Plan;
use super::publish::Publisher;
use super::report::{Effort, Joined, Recorded, Run, Totals};
use super::worker::{News, Order, Worker};
use crate::client::{Secures, Unsecured};
use crate::knee::{Outcome, Step};
use crate::limits;
use crate::plan::Tls;
use crate::run::is_final;
use crate::server::Server;
use crate::threshold::Threshold;

/// How often it is looked at what goes on.
const LOOK: Duration = Duration::from_millis(50);

/// From the order to begin to the first publication.
const LEAD: Duration = Duration::from_millis(20);

/// What can be shown while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// So many clients stand.
    Joining(u32),
    /// All stand; publications are due, not counted yet.
    Warming,
    /// Counting goes on; so many deliveries so far.
    Counting(u64),
    /// What is on its way is waited for.
    Settling,
}

/// A fan-out that can be carried out.
#[derive(Debug)]
pub struct Session {
    plan: Arc<Plan>,
    stop: Arc<AtomicBool>,
    engine: String,
}

impl Session {
    /// Checks that the plan makes sense and the engine is there.
    ///
    /// # Errors
    /// [`PushError::Plan`] names the setting; [`PushError::Engine`] says why a forced engine is not there, [`PushError::Tls`] what is
    /// wrong with certificates and keys.
    pub fn new(plan: Plan) -> Result<Session, PushError> {
        if let Some((setting, expected, found)) = plan.fault() {
            return Err(PushError::Plan {
                setting,
                expected,
                found,
            });
        }
        secures(&plan)?;
        let engine = Engine::new(config(&plan))?;
        Ok(Session {
            engine: engine.selection().to_string(),
            plan: Arc::new(plan),
            stop: Arc::default(),
        })
    }

    /// Set to true it ends the run.
    #[must_use]
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Carries it out. With a `server` to watch its use is part of the result.
    ///
    /// # Errors
    /// Clients that do not stand within [`Plan::connect_timeout`], a server that refuses them or what is published, a worker
    /// that ended, a server that is gone.
    pub fn run(&self, server: Option<&mut Server>, show: &mut dyn FnMut(Progress)) -> Result<Run, PushError> {
        self.conducted(server, |conduct| {
            conduct.join(show)?;
            conduct.step(self.plan.rates(), true, show)
        })
    }

    /// Searches the highest rate that meets these objectives (see [`outcome`]), from the plan's on and with its share of the common
    /// channel. Clients connect once and stay for all steps, each of which takes warm-up and duration of the plan; those that were cut
    /// off are waited for before the next. `told` hears of each step.
    ///
    /// # Errors
    /// Those of [`Session::run`]; [`PushError::Plan`] for a plan that publishes nothing.
    pub fn search(
        &self,
        objectives: &[Threshold],
        server: Option<&mut Server>,
        show: &mut dyn FnMut(Progress),
        told: &mut dyn FnMut(&Step, &Outcome<Break>),
    ) -> Result<Searched, PushError> {
        let plan = &self.plan;
        if !plan.publishes() || plan.rates().iter().sum::<f64>() <= 0.0 {
            return Err(PushError::Plan {
                setting: "rate",
                expected: "something to be published".into(),
                found: "0".into(),
            });
        }
        let mut search = Search::new(plan.rates(), plan.warmup + plan.duration);
        self.conducted(server, |conduct| {
            conduct.join(show)?;
            while let Some((step, rates)) = search.next() {
                conduct.wait_standing()?;
                let run = conduct.step(rates, false, show)?;
                let outcome = outcome(&run, objectives);
                told(&step, &outcome);
                search.feed(step, run, outcome);
            }
            conduct.order(Order::End { is_last: true });
            Ok(search.found().expect("a search without a next step has ended"))
        })
    }

    /// Has workers begun and ended around what `body` does with them.
    fn conducted<T>(
        &self,
        server: Option<&mut Server>,
        body: impl FnOnce(&mut Conduct<'_>) -> Result<T, PushError>,
    ) -> Result<T, PushError> {
        let plan = &self.plan;
        let before = process::resident_bytes();
        let engine = Engine::new(config(plan))?;
        let (news, told) = mpsc::channel();
        let layout = Layout {
            clients: plan.clients,
            channels: plan.channels,
            each: plan.each,
            common: plan.common.is_some(),
            slow: plan.slow,
        };
        let common = Common {
            plan: Arc::clone(plan),
            layout,
            calendar: Calendar::new(plan),
            run: plan.listening.unwrap_or_else(|| clock::random() as u32),
            news,
            tops: tops(plan),
            exchange: Arc::default(),
        };
        let gauges: Vec<Arc<Gauge>> = (0..plan.threads).map(|_| Arc::default()).collect();
        let (threads, shown) = (plan.threads, gauges.clone());
        let given = std::sync::Mutex::new(common.clone());
        let secures = secures(plan)?;
        let running = engine.start(move |start| {
            let common = given.lock().expect("nothing panics with it").clone();
            worker(&start, common, &gauges, &secures)
        })?;
        let started = match &plan.broker {
            Some(broker) => common.exchange.start(&*broker.broker, running.inbox(threads)),
            None => Ok(()),
        };
        let mut conduct = Conduct {
            session: self,
            common,
            running: &running,
            told,
            gauges: shown,
            server,
            before,
            efforts: vec![Effort::default(); threads + 1],
            outages: Outages::default(),
            joined: Joined::default(),
            stood: (Time(0), Duration::ZERO),
            joining: None,
            kill: ServerKill::default(),
        };
        let outcome = match started {
            Ok(()) => body(&mut conduct),
            Err(error) => Err(PushError::Broker(error)),
        };
        match &outcome {
            Ok(_) => running.shut_down(),
            Err(_) => running.stop(),
        }
        running.join()?;
        outcome
    }
}

/// The counts of all workers in a run.
#[derive(Default)]
struct Collected {
    heard: Heard,
    spreads: Vec<Vec<Spread>>,
    findings: Vec<Findings>,
    recorded: Recorded,
}

/// A run that goes on.
struct Conduct<'a> {
    session: &'a Session,
    common: Common,
    running: &'a Running<Order>,
    told: Receiver<News>,
    gauges: Vec<Arc<Gauge>>,
    server: Option<&'a mut Server>,
    /// Memory of this process before it began.
    before: Option<u64>,
    efforts: Vec<Effort>,
    outages: Outages,
    joined: Joined,
    /// When all stood: by the workers' clock, and by that of this thread.
    stood: (Time, Duration),
    /// What was counted of joining, with the first step.
    joining: Option<Box<Heard>>,
    kill: ServerKill,
}

impl Conduct<'_> {
    /// Publishes at these rates, and puts together what came of it. After the last step clients need not come back.
    fn step(
        &mut self,
        rates: [f64; 2],
        is_last: bool,
        show: &mut dyn FnMut(Progress),
    ) -> Result<Run, PushError> {
        let session = self.session;
        let [rate, common] = rates;
        let plan = Plan {
            rate,
            common: session.plan.common.map(|_| common),
            ..(*session.plan).clone()
        };
        let calendar = Calendar::new(&plan);
        let run = self.common.run;
        self.common.run = run.wrapping_add(1);
        self.efforts.fill(Effort::default());
        show(Progress::Warming);
        let (at, then) = self.stood;
        let at = at.after(clock::monotonic().saturating_sub(then)).after(LEAD);
        let lead = at.since(self.stood.0) + plan.warmup;
        self.kill = ServerKill::new(plan.kill_server, then + lead)?;
        self.order(Order::Begin { at, calendar, run });
        let (published, accepted, used) = self.publish(show)?;
        show(Progress::Settling);
        let layout = self.common.layout;
        let totals = Totals::new(&layout, &calendar, &accepted);
        self.settle(&totals, published.unanswered == 0)?;
        self.order(Order::End { is_last });
        let Collected {
            mut heard,
            spreads,
            findings,
            recorded,
        } = self.hear()?;
        let mut totals = totals.spread(&layout, &calendar, &accepted, &spreads, &recorded);
        let is_published = |mark| {
            let Some(place) = calendar.place(mark) else {
                return plan.listening.is_some();
            };
            let has_arrived =
                |spreads: &Vec<Spread>| spreads.get(place).is_some_and(|spread| spread.count > 0);
            accepted[place] || spreads.iter().any(has_arrived)
        };
        judge(findings, &mut heard.counts, &mut totals, &is_published);
        self.outages.tell(&mut heard.outages);
        match &self.joining {
            None => self.joining = Some(Box::new(heard.joining())),
            Some(joining) => heard.merge(joining),
        }
        Ok(Run {
            plan,
            engine: session.engine.clone(),
            joined: self.joined,
            published: *published,
            heard,
            totals,
            killed_after: self.kill.sent(),
            efforts: self.efforts.clone(),
            server: used,
        })
    }

    /// Waits until clients that were cut off stand again.
    fn wait_standing(&mut self) -> Result<(), PushError> {
        let began = clock::monotonic();
        while self.standing() < self.session.plan.clients {
            if clock::monotonic().saturating_sub(began) >= self.session.plan.connect_timeout {
                return Err(self.not_connected(None, began));
            }
            if let Some(news) = self.next()? {
                self.take(news)?;
            }
        }
        Ok(())
    }

    /// What is told within a look; nothing if that is nothing.
    fn next(&mut self) -> Result<Option<News>, PushError> {
        if self.session.stop.load(Ordering::Relaxed) {
            return Err(PushError::Stopped);
        }
        self.kill.poll(clock::monotonic())?;
        let left = self.kill.left(clock::monotonic()).unwrap_or(LOOK);
        match self.told.recv_timeout(LOOK.min(left)) {
            Ok(News::Refused { message }) => Err(PushError::Refused(message)),
            Ok(news) => Ok(Some(news)),
            Err(RecvTimeoutError::Timeout) if !self.running.is_over() => Ok(None),
            Err(_) => Err(PushError::Worker),
        }
    }

    fn standing(&self) -> u32 {
        self.gauges
            .iter()
            .map(|gauge| gauge.standing.load(Ordering::Relaxed))
            .sum()
    }

    fn delivered(&self) -> u64 {
        self.gauges
            .iter()
            .map(|gauge| gauge.delivered.load(Ordering::Relaxed))
            .sum()
    }

    /// Waits until all clients stand.
    fn join(&mut self, show: &mut dyn FnMut(Progress)) -> Result<(), PushError> {
        let plan = &self.session.plan;
        let memory = match &mut self.server {
            Some(server) => {
                server.begin()?;
                Some(server.memory()?)
            }
            None => None,
        };
        let began = clock::monotonic();
        let (mut left, mut now, mut last) = (plan.threads + 1, Time(0), None);
        // Nodes that took no connection for a reason that does not go away, a bit each.
        let (mut failed, all) = (0u64, (1u64 << plan.nodes.len()) - 1);
        while left > 0 {
            match self.next()? {
                Some(News::Standing { now: at }) => {
                    now = now.max(at);
                    left -= 1;
                }
                Some(News::NotConnected { node, error }) => {
                    if is_final(error.kind()) {
                        failed |= node.map_or(all, |node| 1 << node);
                    }
                    let hopeless = self.standing() == 0 && failed == all;
                    last = Some(error);
                    if hopeless {
                        return Err(self.not_connected(last, began));
                    }
                }
                Some(_) => {}
                None => show(Progress::Joining(self.standing())),
            }
            if clock::monotonic().saturating_sub(began) >= plan.connect_timeout && left > 0 {
                return Err(self.not_connected(last, began));
            }
        }
        self.stood = (now, clock::monotonic());
        let took = self.stood.1.saturating_sub(began);
        let (used, after) = match &mut self.server {
            Some(server) => (Some(server.end()?), Some(server.memory()?)),
            None => (None, None),
        };
        let own = process::resident_bytes().zip(self.before);
        self.joined = Joined {
            took,
            server_cpu: used.map(|used| used.cpu),
            server_bytes: after
                .zip(memory)
                .map(|(after, before)| after.saturating_sub(before)),
            own_bytes: own.map(|(after, before)| after.saturating_sub(before)),
        };
        Ok(())
    }

    fn not_connected(&self, last: Option<io::Error>, began: Duration) -> PushError {
        PushError::NotConnected {
            standing: self.standing(),
            clients: self.session.plan.clients,
            waited: clock::monotonic().saturating_sub(began),
            last,
        }
    }

    /// Waits until all is published; also says what the server used while that counted.
    #[expect(clippy::type_complexity, reason = "told once, taken apart at once")]
    fn publish(
        &mut self,
        show: &mut dyn FnMut(Progress),
    ) -> Result<(Box<Published>, Vec<bool>, Option<crate::report::ServerUse>), PushError> {
        let (mut used, mut counting) = (None, false);
        let mut ticked = clock::monotonic();
        loop {
            match self.next()? {
                Some(News::Counting) => {
                    counting = true;
                    if let Some(server) = &mut self.server {
                        server.begin()?;
                    }
                }
                Some(News::Counted) => {
                    counting = false;
                    if let Some(server) = &mut self.server {
                        used = Some(server.end()?);
                    }
                }
                Some(News::Published { figures, accepted }) => return Ok((figures, accepted, used)),
                Some(news) => self.take(news)?,
                None => {}
            }
            if counting {
                show(Progress::Counting(self.delivered()));
                let now = clock::monotonic();
                if let Some(server) = self
                    .server
                    .as_deref_mut()
                    .filter(|_| now.saturating_sub(ticked) >= limits::PUSH_TICK)
                {
                    server.tick()?;
                    ticked = now;
                }
            }
        }
    }

    fn take(&mut self, news: News) -> Result<(), PushError> {
        let (threads, server) = (self.session.plan.threads, &mut self.server);
        let cpu = || server.as_mut().map(|server| server.cpu()).transpose();
        match news {
            News::Effort { worker, cpu, waited } => self.efforts[worker] = Effort { cpu, waited },
            News::Cut { number } => self.outages.cut(number, cpu)?,
            News::Back { number } => self.outages.back(number, threads, cpu)?,
            _ => {}
        }
        Ok(())
    }

    /// Waits for what is on its way: until all has come, and clients that were cut off are back, or for [`Plan::settle`]. Unless
    /// all answers `are_known`: what was published without one comes, too, and would stand for what does not.
    fn settle(&mut self, totals: &Totals, are_known: bool) -> Result<(), PushError> {
        let plan = &self.session.plan;
        let began = clock::monotonic();
        let all = totals.expected + totals.expected_slow;
        while clock::monotonic().saturating_sub(began) < plan.settle {
            let is_killed = plan.kill.is_some() || plan.kill_server.is_some();
            let are_back = !is_killed || self.standing() == plan.clients;
            let are_known = are_known && plan.listening.is_none();
            if are_known && plan.conflated.is_none() && self.delivered() >= all && are_back {
                return Ok(());
            }
            if let Some(news) = self.next()? {
                self.take(news)?;
            }
        }
        Ok(())
    }

    /// Collects what the workers have counted.
    fn hear(&mut self) -> Result<Collected, PushError> {
        let mut all = Collected::default();
        let mut is_recorded = self.session.plan.broker.is_none();
        while all.spreads.len() < self.gauges.len() || !is_recorded {
            match self.next()? {
                Some(News::Heard {
                    figures,
                    spreads: some,
                    findings,
                }) => {
                    all.heard.merge(&figures);
                    all.findings.extend(findings.map(|findings| *findings));
                    all.spreads.push(some);
                }
                Some(News::Recorded {
                    acknowledged,
                    consumed,
                }) => {
                    is_recorded = true;
                    all.recorded = Recorded {
                        acknowledged,
                        consumed,
                    };
                }
                Some(news) => self.take(news)?,
                None => {}
            }
        }
        Ok(all)
    }

    fn order(&self, order: Order) {
        for worker in 0..=self.session.plan.threads {
            // A worker that has ended is noticed by its silence.
            let _ = self.running.inbox(worker).post(order);
        }
    }
}

/// Highest sequence numbers of an external producer's channels; none without one.
fn tops(plan: &Plan) -> Arc<[AtomicU32]> {
    let channels = plan.listening.map_or(0, |_| plan.channels + 1);
    (0..channels).map(|_| AtomicU32::new(0)).collect()
}

/// Returns the worker of a thread: clients, or on the last one the publisher.
fn worker(start: &Start<Order>, common: Common, gauges: &[Arc<Gauge>], secures: &AllSecures) -> Worker {
    let handle = |secures: &Option<Secures>| secures.as_ref().map(Secures::handle);
    let (listening, publishing) = secures;
    match gauges.get(start.cx.worker()) {
        Some(gauge) => {
            let secure = listening.iter().map(handle).collect();
            Worker::Listen(Box::new(Listeners::new(start, common, Arc::clone(gauge), secure)))
        }
        None => Worker::Publish(Box::new(Publisher::new(start, common, handle(publishing)))),
    }
}

/// TLS of clients' connections to each node, and of those for publishing; `None`: not secured.
type AllSecures = (Vec<Option<Secures>>, Option<Secures>);

/// TLS of clients' connections to each node, and of those for publishing.
fn secures(plan: &Plan) -> Result<AllSecures, Unsecured> {
    let made = |tls: Option<&Tls>| tls.map(Secures::new).transpose();
    let nodes: Result<Vec<_>, _> = plan.nodes.iter().map(|node| made(node.tls.as_ref())).collect();
    let publishing = plan.publishing.as_ref();
    let publishing = publishing.and_then(|publishing| publishing.tls.as_ref());
    Ok((nodes?, made(publishing)?))
}

fn config(plan: &Plan) -> Config {
    Config {
        engine: plan.engine,
        workers: Some(plan.threads + 1),
        clients_only: true,
        grace: limits::CLOSE_WAIT,
        stall: limits::STALL,
        cpus: plan.cpus.clone(),
        pin: false,
        ..Config::default()
    }
}
