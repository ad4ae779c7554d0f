//! The gateway as a whole: the configuration that holds, what outlives it, and each worker's view of both.
//!
//! ```text
//! replace(config) ─▶ staged: upstreams by name, table ─▶ committed: current, generation + 1
//!                                                  │ looked at once a request
//!                       worker: view ◀─────────────┘ requests under way keep the old one
//! ```
//!
//! A replaced table is dropped by whoever replaces it, never by a worker.

mod filters;
mod replace;
mod sweeping;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::file::Root;
use ringmain_engine::{Addr, Cx, ListenOptions, Listeners};
use ringmain_push::{Inlet, Push};
use ringmain_tls::HandshakeCounts;
use ringmain_web::{self as web, App, LogLimit, RedactedParams};

use crate::care::{self, Lookup};
use crate::changes::Changes;
use crate::compiling::Registries;
use crate::desk::Desk;
use crate::exchange;
use crate::exchange::push::Asks;
use crate::fault::Fault;
use crate::filter::Filters;
use crate::front::{self, Doors, Ids};
use crate::health::Target;
use crate::limits;
use crate::metrics::{Counting, Metrics, RouteReport, SeriesReport, StreamReport};
use crate::model::{Config, Hostname, Name, secret_params};
use crate::passage::StreamPlan;
use crate::plan::Plan;
use crate::policy;
use crate::policy::Standings;
use crate::resolve::{Found, NotFound, Settings};
use crate::status::{CounterStatus, UpstreamStatus};
use crate::table::{Problem, Table};
use crate::upstream::Shared;
use crate::upstream::local::{End, Link, Local};
use crate::upstream::registry::Registry;
use crate::upstream::room::Room;
pub(crate) use view::View;

/// A gateway: shared by its workers and whoever changes its configuration.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Taken before `current`, never by a worker: it is held while listeners open and close.
    doors: Mutex<Doors>,
    metrics: Metrics,
    current: Mutex<State>,
    /// What holds, which workers need not wait for while the next one is compiled.
    published: Mutex<Published>,
    /// Of what is published: workers look at this first.
    generation: AtomicU64,
    /// Of the table and of upstreams.
    changes: Changes,
    /// For connections to all upstreams.
    room: Arc<Room>,
    push: Push,
    /// Parameters of queries that the configuration, or one before it, has declared to hold secrets.
    redacted: RedactedParams,
}

/// What workers see of a configuration.
#[derive(Clone, Debug)]
struct Published {
    table: Arc<Table<Plan>>,
    streams: Arc<BTreeMap<Name, StreamPlan>>,
    asks: Arc<Asks>,
    ids: Ids,
}

#[derive(Debug)]
struct State {
    table: Arc<Table<Plan>>,
    registries: Registries,
    /// What is wrong with the configuration: empty unless it was taken in parts.
    problems: Vec<Problem>,
    lookup: Lookup,
    /// Tables that requests may still hold.
    replaced: Vec<Arc<Table<Plan>>>,
}

impl Gateway {
    /// A gateway with this configuration. What is wrong with it is in [`Gateway::problems`]; all else is served.
    /// `now` is wall time since 1970.
    #[must_use]
    pub fn new(config: Arc<Config>, now: Duration) -> Gateway {
        Gateway::with_filters(config, Filters::new(), now)
    }

    /// The same with filters that the configuration, and what replaces it, may name.
    #[must_use]
    pub fn with_filters(config: Arc<Config>, filters: Filters, now: Duration) -> Gateway {
        let mut registries = Registries {
            upstreams: Registry::default(),
            policies: policy::Registry::new(filters),
        };
        let metrics = Metrics::default();
        let staged = registries.stage(config, None, now);
        let (table, mut problems) = registries.commit(staged, &metrics);
        let mut doors = Doors::default();
        let next = doors.fronts.prepare(&table, now);
        let mut followed = doors.fronts.apply(next);
        problems.append(&mut followed.problems);
        // They are the engine's to open at its start.
        doors.turn(&followed, Vec::new());
        let Registries { upstreams, policies } = &registries;
        let room = Arc::clone(upstreams.room());
        let redacted = RedactedParams::new();
        redacted.add(secret_params(table.config()));
        let push = Push::new();
        replace::follow_push(&push, None, (table.config(), policies.push()));
        Gateway(Arc::new(Inner {
            doors: Mutex::new(doors),
            published: Mutex::new(Published {
                table: Arc::clone(&table),
                streams: Arc::new(StreamPlan::all(table.config(), upstreams, &metrics)),
                asks: Asks::of(table.config(), upstreams, policies.guards(), None),
                ids: followed.ids,
            }),
            metrics,
            redacted,
            current: Mutex::new(State {
                table,
                registries,
                problems,
                lookup: None,
                replaced: Vec::new(),
            }),
            generation: AtomicU64::new(1),
            changes: Changes::default(),
            room,
            push,
        }))
    }

    /// Has the listeners of an engine that runs follow the configuration. It must have been started with those of
    /// [`Gateway::addrs`] and no others; `options` are for new ones. Whether the configuration was replaced before this: then it
    /// is to be replaced again.
    pub fn listen_by(&self, listeners: Listeners, options: ListenOptions) -> bool {
        self.doors().follow_by(listeners, options)
    }

    /// Returns the push server, for state that outlives the process.
    #[must_use]
    pub fn pushing(&self) -> Push {
        self.0.push.clone()
    }

    /// For publishing to those who are pushed to, from other threads than the workers'.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        self.0.push.inlet()
    }

    /// Has names looked up by these texts in place of the host's `/etc/resolv.conf` and `/etc/hosts`. A `nameserver` may
    /// have a port.
    pub fn look_up_by(&self, resolv: &str, hosts: &str) {
        self.state().lookup = Some(Arc::new(Settings::of(resolv, hosts)));
        self.0.changes.tell();
    }

    /// What could not be served as it was told.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.state().problems.clone()
    }

    /// The table that holds.
    #[must_use]
    pub fn table(&self) -> Arc<Table<Plan>> {
        Arc::clone(&self.published().table)
    }

    /// Returns when each configured certificate expires, in seconds since the Unix epoch; one that cannot be read is left out.
    #[must_use]
    pub fn certificate_expiries(&self) -> Vec<(Name, u64)> {
        let table = self.table();
        let certificates = table.config().certificates.iter();
        let expiry = |certificate: &Arc<crate::model::Certificate>| {
            let pem = ringmain_tls::Pem {
                source: certificate.name.to_string(),
                bytes: certificate.chain.to_vec(),
            };
            let leaf = pem.first_certificate().ok()?;
            Some((Arc::clone(&certificate.name), leaf.not_after))
        };
        certificates.filter_map(expiry).collect()
    }

    /// What is known of the upstreams now, in the order of their names.
    #[must_use]
    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        let state = self.state();
        state
            .registries
            .upstreams
            .iter()
            .map(|shared| UpstreamStatus::of(shared))
            .collect()
    }

    /// What policies count by name: keys of rate limits, requests at once.
    #[must_use]
    pub fn counters(&self) -> Vec<CounterStatus> {
        self.state().registries.upstreams.counters().status()
    }

    /// The addresses to listen at: the engine must be given one listener for each, in this order, before it starts. Those of the
    /// configuration, but for such whose TLS cannot be spoken.
    #[must_use]
    pub fn addrs(&self) -> Vec<Addr> {
        self.doors().addrs()
    }

    /// Addresses of the configuration that holds which are not listened at: they could not be opened, or their TLS cannot be
    /// spoken, which is among the problems; or the engine does not run yet.
    #[must_use]
    pub fn unheard(&self) -> Vec<Addr> {
        let published = self.published().clone();
        self.doors().fronts.unheard(&published.table, &published.ids)
    }

    /// Returns the counts of requests by route and upstream since the start; pairs without a request are not among them.
    #[must_use]
    pub fn series(&self) -> Vec<SeriesReport> {
        self.0.metrics.series()
    }

    /// Returns the counts of requests by route since the start; routes without a request are not among them.
    #[must_use]
    pub fn requests(&self) -> Vec<RouteReport> {
        self.0.metrics.routes()
    }

    /// What was counted of connections that were passed on, by stream route, since the start; routes that nobody came by are not
    /// among them.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamReport> {
        self.0.metrics.streams()
    }

    /// How often there was a fault of each kind since the start, tries that were made up for by others counted.
    #[must_use]
    pub fn faults(&self) -> Vec<(Fault, u64)> {
        self.0.metrics.faults()
    }

    /// What was counted of clients that are pushed to, and of channels. `None`: nothing has been pushed yet.
    #[must_use]
    pub fn push(&self) -> Option<ringmain_push::metrics::Report> {
        let push = &self.0.push;
        push.has_settings().then(|| push.report())
    }

    /// TLS handshakes of clients since the start.
    #[must_use]
    pub fn handshakes(&self) -> HandshakeCounts {
        self.doors().fronts.handshakes()
    }

    /// What connections may take, as the listeners of the configuration that holds have it: of each limit the widest, since
    /// there is one set of them. [`Gateway::app`] has those of its making.
    #[must_use]
    pub fn limits(&self) -> web::Limits {
        front::limits(self.table().config())
    }

    /// The application that serves it at [`Gateway::addrs`].
    #[must_use]
    pub fn app(&self) -> App {
        let gateway = self.clone();
        let app = App::new().limits(self.limits());
        app.entrances(self.doors().fronts.entrances())
            .redacted_params(&self.0.redacted)
            .per_worker(move |cx| Worker::new(cx, gateway.clone()))
            .inner(self.0.push.serve(App::new()))
            .early(|req, ticket| match req.local::<Rc<Worker>>() {
                Ok(worker) => exchange::early::look(worker, req, ticket),
                Err(_) => Err(ticket),
            })
            .fallback_streamed(async |req, reply| {
                let worker = Rc::clone(req.local::<Rc<Worker>>()?);
                exchange::serve(&worker, req, reply).await
            })
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.0.changes
    }

    pub(crate) fn lookup(&self) -> Lookup {
        self.state().lookup.clone()
    }

    /// All names that are to be looked up.
    pub(crate) fn names(&self) -> BTreeSet<Hostname> {
        self.state().registries.upstreams.names()
    }

    /// What looking a name up has shown.
    pub(crate) fn found(&self, name: &Hostname, found: Result<Found, NotFound>) {
        if self.state().registries.upstreams.found(name, found) {
            self.0.changes.tell();
        }
    }

    /// Providers whose keys are to be kept up to date.
    pub(crate) fn providers(&self) -> Vec<Arc<policy::jwt::Provider>> {
        self.state().registries.policies.providers().to_vec()
    }

    /// Who is to be asked whether it is well.
    pub(crate) fn targets(&self) -> BTreeMap<(Name, String), Target> {
        let state = self.state();
        let mut targets = BTreeMap::new();
        for shared in state.registries.upstreams.iter() {
            let current = shared.current();
            let Some(health) = &current.config.health.active else {
                continue;
            };
            for endpoint in &current.endpoints {
                let key = (shared.name.clone(), endpoint.addr.to_string());
                let target = Target {
                    shared: Arc::clone(shared),
                    transport: Arc::clone(&current.transport),
                    endpoint: Arc::clone(endpoint),
                    health: health.clone(),
                };
                targets.insert(key, target);
            }
        }
        targets
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.0.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        self.0.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker has for the gateway.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) cx: Cx,
    pub(crate) counting: Counting,
    pub(crate) policies: policy::Local,
    gateway: Gateway,
    view: RefCell<Rc<View>>,
    /// By the upstreams' numbers.
    locals: RefCell<Vec<Option<Rc<Local>>>>,
    pub(crate) desk: RefCell<Desk>,
    /// Directories that files are served from, since when they are open.
    roots: RefCell<BTreeMap<PathBuf, (Root, Time)>>,
    /// A task looks through kept connections.
    sweeping: Cell<bool>,
    /// Copies of requests under way.
    pub(crate) mirroring: Cell<u32>,
    /// Bytes of bodies that were collected for requests which are not worth a place of their upstream yet.
    pub(crate) collected: Cell<usize>,
    /// Responses that are read to their end though their clients have left.
    pub(crate) abandoned: Cell<u32>,
    /// Requests that are held by delays which rules put in.
    pub(crate) delaying: Cell<u32>,
    /// Whether those who count for several gateways are to be asked.
    pub(crate) standings: Standings,
    pub(crate) beginnings: exchange::beginnings::Beginnings,
    pub(crate) filters: filters::Instances,
    /// Lines about requests in the clear on listeners of TLS.
    pub(crate) plain_http: LogLimit,
}

impl Worker {
    fn new(cx: &Cx, gateway: Gateway) -> Rc<Worker> {
        let view = View::new(&gateway);
        let worker = Rc::new(Worker {
            cx: cx.clone(),
            counting: gateway.0.metrics.worker(),
            policies: policy::Local::new(cx),
            view: RefCell::new(Rc::new(view)),
            gateway: gateway.clone(),
            locals: RefCell::default(),
            desk: RefCell::new(Desk::new()),
            roots: RefCell::default(),
            sweeping: Cell::new(false),
            mirroring: Cell::new(0),
            collected: Cell::new(0),
            abandoned: Cell::new(0),
            delaying: Cell::new(0),
            standings: Standings::default(),
            beginnings: exchange::beginnings::Beginnings::default(),
            filters: filters::Instances::default(),
            plain_http: LogLimit::new(),
        });
        if cx.spawn(care::follow(Rc::clone(&worker), gateway)).is_err() {
            log::error!("a worker without room for a task does not look names up");
        }
        worker
    }

    /// Has each upstream looked at: what is there no more is closed.
    pub(crate) fn follow_upstreams(&self) {
        self.locals
            .borrow()
            .iter()
            .flatten()
            .for_each(|local| local.look());
    }

    /// The view that holds now.
    pub(crate) fn view(&self) -> Rc<View> {
        let mut view = self.view.borrow_mut();
        if view.generation != self.gateway.0.generation.load(Ordering::Acquire) {
            *view = Rc::new(View::new(&self.gateway));
            self.filters.follow(&view.table);
            for place in self.locals.borrow_mut().iter_mut() {
                if place.as_ref().is_some_and(|local| local.shared.is_removed()) {
                    *place = None;
                }
            }
        }
        Rc::clone(&view)
    }

    /// Returns the series of a route's requests that are not forwarded, in metrics.
    pub(crate) fn route_number(&self, name: &Name) -> u32 {
        self.gateway.0.metrics.series_number(name, None)
    }

    /// An upstream as this worker sees it.
    pub(crate) fn local(&self, shared: &Arc<Shared>) -> Rc<Local> {
        let mut locals = self.locals.borrow_mut();
        if locals.len() <= shared.id {
            locals.resize(shared.id + 1, None);
        }
        let place = &mut locals[shared.id];
        match place {
            Some(local) if Arc::ptr_eq(&local.shared, shared) => Rc::clone(local),
            place => {
                let local = Rc::new(Local::new(&self.cx, Arc::clone(shared)));
                *place = Some(Rc::clone(&local));
                local
            }
        }
    }

    /// A directory that files are served from.
    pub(crate) async fn root(&self, path: &Path) -> io::Result<Root> {
        let now = self.cx.now();
        if let Some((root, since)) = self.roots.borrow().get(path)
            && now.since(*since) < limits::ROOT_HELD
        {
            return Ok(root.clone());
        }
        let root = self.cx.open_root(path).await?;
        let mut roots = self.roots.borrow_mut();
        // Those of former configurations.
        roots.retain(|_, (_, since)| now.since(*since) < limits::ROOT_HELD);
        roots.insert(path.to_owned(), (root.clone(), now));
        Ok(root)
    }

    /// A [way](Local::link) to an endpoint. What is opened for it and shared stays when the request is over, however and whenever that
    /// comes: it is looked after.
    pub(crate) async fn link(
        self: &Rc<Self>,
        local: &Local,
        end: &Rc<End>,
        (fresh, greeting): (bool, &[u8]),
        span: Duration,
    ) -> Result<Link, Fault> {
        if local.may_share() {
            self.sweep_later();
        }
        let link = local.link(end, fresh, greeting, span).await?;
        if matches!(link, Link::Shared(_)) {
            // What is spoken has changed meanwhile, perhaps.
            self.sweep_later();
        }
        Ok(link)
    }
}
