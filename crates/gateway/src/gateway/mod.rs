//! The gateway: the current configuration, the state that survives a reload, and each worker's view of both.
//!
//! ```text
//! replace(config) ─▶ staged: upstreams by name, table ─▶ committed: current, generation + 1
//!                                                  │ checked once per request
//!                       worker: view ◀─────────────┘ requests in flight keep the old one
//! ```
//!
//! A replaced table is dropped by the thread that replaces it, never by a worker.

pub(crate) mod change_notifier;
mod datagrams;
mod filter_instances;
pub(crate) mod maintenance;
mod pool_sweep;
mod replace;
pub(crate) mod scratch;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::file::Root;
use ringmain_engine::{Addr, Cx, ListenOptions, Listeners};
use ringmain_push::cluster::ClusterPort;
use ringmain_push::{Push, ThreadPublisher};
use ringmain_tls::HandshakeCounts;
use ringmain_web::{self as web, App, LogLimit, RedactedParams, StreamLog, StreamLogs};

use crate::compile::Registries;
use crate::compile::plan::Plan;
use crate::fault::Fault;
use crate::filter::Filters;
use crate::gateway::change_notifier::ChangeNotifier;
use crate::gateway::maintenance::LookupSettings;
use crate::gateway::scratch::WorkerScratch;
use crate::health::HealthTarget;
use crate::l4::StreamPlan;
use crate::limits;
use crate::listeners::datagrams::{DatagramAddress, DatagramWorkers};
use crate::listeners::{self, AddressIds, Bindings, ListenerController, ListenerReport};
use crate::model::{Config, Hostname, Name, secret_params};
use crate::policy;
use crate::policy::RedisBreakers;
use crate::proxy;
use crate::proxy::push::PushQueries;
use crate::resolve::{LookupError, ResolvedName, ResolverSettings};
use crate::stats::upstreams::{CounterStatus, UpstreamStatus};
use crate::stats::{
    DatagramReport, ExtensionReport, Metrics, RouteReport, SeriesReport, StreamReport, WorkerCounters,
};
use crate::table::{Problem, Table};
use crate::udp::DatagramRelay;
use crate::upstream::UpstreamState;
use crate::upstream::connection_budget::ConnectionBudget;
use crate::upstream::pool::{PoolEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::registry::UpstreamRegistry;
pub(crate) use view::View;

/// A gateway, shared by its workers and the threads that replace its configuration.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<GatewayInner>);

#[derive(Debug)]
struct GatewayInner {
    /// Locked before `current`, never by a worker: it is held while listeners open and close.
    listeners: Mutex<ListenerController>,
    metrics: Metrics,
    current: Mutex<GatewayState>,
    /// The current configuration, for which workers need not wait while the next one is compiled.
    published: Mutex<PublishedConfig>,
    /// The generation of `published`: workers check this first.
    generation: AtomicU64,
    /// Notifies about changes of the table and of upstreams.
    changes: ChangeNotifier,
    /// The budget of connections to all upstreams.
    connection_budget: Arc<ConnectionBudget>,
    push: Push,
    /// Query parameters that the configuration, or an earlier one, has declared to hold secrets.
    redacted: RedactedParams,
}

/// The parts of a configuration that workers read.
#[derive(Clone, Debug)]
struct PublishedConfig {
    table: Arc<Table<Plan>>,
    streams: Arc<BTreeMap<Name, StreamPlan>>,
    push_queries: Arc<PushQueries>,
    address_ids: AddressIds,
    datagrams: Arc<[DatagramAddress]>,
}

#[derive(Debug)]
struct GatewayState {
    table: Arc<Table<Plan>>,
    registries: Registries,
    /// The problems of the configuration; empty unless it was applied in parts.
    problems: Vec<Problem>,
    lookup: LookupSettings,
    /// Replaced tables that requests may still hold.
    replaced: Vec<Arc<Table<Plan>>>,
}

impl Gateway {
    /// Creates a gateway with this configuration. Invalid parts are in [`Gateway::problems`]; all others are served. `now` is the time
    /// since the Unix epoch.
    #[must_use]
    pub fn new(config: Arc<Config>, now: Duration) -> Gateway {
        Gateway::with_filters(config, Filters::new(), now)
    }

    /// Creates a gateway like [`Gateway::new`], with filters that this configuration and its successors may name.
    #[must_use]
    pub fn with_filters(config: Arc<Config>, filters: Filters, now: Duration) -> Gateway {
        let mut registries = Registries {
            upstreams: UpstreamRegistry::default(),
            policies: policy::PolicyRegistry::new(filters),
        };
        let metrics = Metrics::default();
        let staged = registries.stage(config, None, now);
        let (table, mut problems) = registries.commit(staged, &metrics);
        let mut controller = ListenerController::default();
        let next = controller.prepare(&table, now);
        let mut applied = controller.apply_addresses(next, &mut Bindings::default());
        problems.append(&mut applied.problems);
        // The engine opens them at its start.
        controller.apply(&applied, Bindings::default());
        let datagrams = controller.datagrams.published();
        let Registries { upstreams, policies } = &registries;
        let connection_budget = Arc::clone(upstreams.connection_budget());
        let redacted = RedactedParams::new();
        let routes = table.compiled_routes().map(|route| route.route());
        redacted.add(secret_params(&table.config().listeners, routes));
        let push = Push::new();
        replace::follow_push(&push, None, (table.config(), policies.push_provider()));
        Gateway(Arc::new(GatewayInner {
            listeners: Mutex::new(controller),
            published: Mutex::new(PublishedConfig {
                table: Arc::clone(&table),
                streams: Arc::new(StreamPlan::compile_all(table.config(), upstreams, &metrics)),
                push_queries: PushQueries::compile(
                    table.config(),
                    upstreams,
                    policies.reserved_headers(),
                    None,
                ),
                address_ids: applied.ids,
                datagrams,
            }),
            metrics,
            redacted,
            current: Mutex::new(GatewayState {
                table,
                registries,
                problems,
                lookup: None,
                replaced: Vec::new(),
            }),
            generation: AtomicU64::new(1),
            changes: ChangeNotifier::default(),
            connection_budget,
            push,
        }))
    }

    /// Makes the listeners of a running engine follow the configuration. The engine must have been started with those of [`Gateway::listen_addrs`]
    /// and no others; `options` are for new ones. Returns whether the configuration was replaced before this call: then it must be replaced
    /// again.
    pub fn manage_listeners(&self, listeners: Listeners, options: ListenOptions) -> bool {
        let workers = DatagramWorkers::Bound(listeners.workers());
        let is_outdated = self.lock_listeners().attach_engine(listeners, options);
        for problem in self.open_datagrams(workers, false) {
            log::error!("{problem}");
        }
        is_outdated
    }

    /// Returns the push server, for state that outlives the process.
    #[must_use]
    pub fn push_server(&self) -> Push {
        self.0.push.clone()
    }

    /// Returns a handle for publishing to push clients from threads that are not workers.
    #[must_use]
    pub fn inlet(&self) -> ThreadPublisher {
        self.0.push.thread_publisher()
    }

    /// Makes push a node of a cluster: see [`Push::cluster_port`].
    #[must_use]
    pub fn push_cluster_port(&self) -> Option<ClusterPort> {
        self.0.push.cluster_port()
    }

    /// Makes name resolution use these texts in place of the host's `/etc/resolv.conf` and `/etc/hosts`. A `nameserver` may have a port.
    pub fn set_resolver_files(&self, resolv: &str, hosts: &str) {
        self.lock_state().lookup = Some(Arc::new(ResolverSettings::parse(resolv, hosts)));
        self.0.changes.notify();
    }

    /// Returns the problems of the parts that could not be served as configured.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.lock_state().problems.clone()
    }

    /// Returns the current table.
    #[must_use]
    pub fn table(&self) -> Arc<Table<Plan>> {
        Arc::clone(&self.lock_published().table)
    }

    /// Returns the configured certificates, each with the name of its entry; one that cannot be read is left out.
    #[must_use]
    pub fn certificates(&self) -> Vec<(Name, ringmain_tls::Certificate)> {
        let table = self.table();
        let certificates = table.config().certificates.iter();
        let read = |certificate: &Arc<crate::model::Certificate>| {
            let pem = ringmain_tls::Pem {
                source: certificate.name.to_string(),
                bytes: certificate.chain.to_vec(),
            };
            Some((Arc::clone(&certificate.name), pem.first_certificate().ok()?))
        };
        certificates.filter_map(read).collect()
    }

    /// Returns the current status of the upstreams, sorted by name.
    #[must_use]
    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        let state = self.lock_state();
        state
            .registries
            .upstreams
            .iter()
            .map(|shared| UpstreamStatus::read(shared))
            .collect()
    }

    /// Returns the counters of policies by name: keys of rate limits, concurrent requests.
    #[must_use]
    pub fn counters(&self) -> Vec<CounterStatus> {
        self.lock_state().registries.upstreams.counters().status()
    }

    /// Returns the addresses to listen on. The engine must be given one listener for each, in this order, before it starts. Addresses of
    /// the configuration whose TLS settings are invalid are left out.
    #[must_use]
    pub fn listen_addrs(&self) -> Vec<Addr> {
        self.lock_listeners().listen_addrs()
    }

    /// Returns the addresses of the current configuration that are not listened on: they could not be opened, or their TLS settings are
    /// invalid, which is among the problems; or the engine is not running yet.
    #[must_use]
    pub fn unbound_addrs(&self) -> Vec<Addr> {
        let published = self.lock_published().clone();
        self.lock_listeners()
            .unbound_addrs(&published.table, &published.address_ids)
    }

    /// Returns the addresses of the current configuration with their listeners, in its order.
    #[must_use]
    pub fn listener_reports(&self) -> Vec<ListenerReport> {
        let published = self.lock_published().clone();
        self.lock_listeners()
            .reports(&published.table, &published.address_ids)
    }

    /// Returns the counts of requests by route and upstream since the start; pairs without a request are not among them.
    #[must_use]
    pub fn series_reports(&self) -> Vec<SeriesReport> {
        self.0.metrics.series()
    }

    /// Returns the counts of requests by route since the start; routes without a request are not among them.
    #[must_use]
    pub fn route_reports(&self) -> Vec<RouteReport> {
        self.0.metrics.routes()
    }

    /// Returns the counts of stream connections by stream route since the start; routes without a connection are not among them.
    #[must_use]
    pub fn stream_reports(&self) -> Vec<StreamReport> {
        self.0.metrics.streams()
    }

    /// Returns the counts of UDP sessions by stream route since the start; routes without a datagram are not among them.
    #[must_use]
    pub fn datagram_reports(&self) -> Vec<DatagramReport> {
        self.0.metrics.datagrams()
    }

    /// Returns the number of faults of each kind since the start, including failed attempts that a retry made up for.
    #[must_use]
    pub fn fault_counts(&self) -> Vec<(Fault, u64)> {
        self.0.metrics.faults()
    }

    /// Returns the counts of calls to external services that take part in requests, by extension and upstream.
    #[must_use]
    pub fn extension_reports(&self) -> Vec<ExtensionReport> {
        self.0.metrics.extensions()
    }

    /// Returns the push metrics of clients and channels. `None`: push has never been configured.
    #[must_use]
    pub fn push_report(&self) -> Option<ringmain_push::metrics::Report> {
        let push = &self.0.push;
        push.has_settings().then(|| push.report())
    }

    /// Returns the counts of TLS handshakes of clients since the start.
    #[must_use]
    pub fn handshake_counts(&self) -> HandshakeCounts {
        self.lock_listeners().addresses.handshake_counts()
    }

    /// Returns the connection limits: of each limit the least restrictive among the current listeners, since there is one set for all
    /// listeners. [`Gateway::app`] uses those at the time of its call.
    #[must_use]
    pub fn limits(&self) -> web::Limits {
        listeners::connection_limits(self.table().config())
    }

    /// Returns the application that serves requests at [`Gateway::listen_addrs`].
    #[must_use]
    pub fn app(&self) -> App {
        let gateway = self.clone();
        let app = App::new().limits(self.limits());
        app.listener_protocols(self.lock_listeners().addresses.protocols())
            .redacted_params(&self.0.redacted)
            .per_worker(move |cx| Worker::new(cx, gateway.clone()))
            .on_worker_start(|started| {
                if let Some(worker) = started.local::<Rc<Worker>>() {
                    worker.stream_logs.replace(Some(started.stream_logs()));
                }
            })
            .delegate_to(self.0.push.serve(App::new()))
            .fast_path(|req, ticket| match req.local::<Rc<Worker>>() {
                Ok(worker) => proxy::fast_path::try_fast_path(worker, req, ticket),
                Err(_) => Err(ticket),
            })
            .fallback_streamed(async |req, reply| {
                let worker = Rc::clone(req.local::<Rc<Worker>>()?);
                proxy::serve_request(&worker, req, reply).await
            })
    }

    pub(crate) fn changes(&self) -> &ChangeNotifier {
        &self.0.changes
    }

    pub(crate) fn lookup(&self) -> LookupSettings {
        self.lock_state().lookup.clone()
    }

    /// Returns every name that must be resolved.
    pub(crate) fn hostnames(&self) -> BTreeSet<Hostname> {
        self.lock_state().registries.upstreams.hostnames()
    }

    /// Applies the result of resolving a name.
    pub(crate) fn record_lookup(&self, name: &Hostname, found: Result<ResolvedName, LookupError>) {
        if self.lock_state().registries.upstreams.record_lookup(name, found) {
            self.0.changes.notify();
        }
    }

    /// Returns the providers whose keys must be kept up to date.
    pub(crate) fn providers(&self) -> Vec<Arc<policy::jwt::KeyProvider>> {
        self.lock_state().registries.policies.providers().to_vec()
    }

    /// Returns the endpoints to health-check.
    pub(crate) fn health_check_targets(&self) -> BTreeMap<(Name, String), HealthTarget> {
        let state = self.lock_state();
        let mut targets = BTreeMap::new();
        for shared in state.registries.upstreams.special() {
            let current = shared.snapshot();
            let Some(health) = &current.config.health.active else {
                continue;
            };
            for endpoint in &current.endpoints {
                let key = (shared.name.clone(), endpoint.addr.to_string());
                let target = HealthTarget {
                    upstream: Arc::clone(shared),
                    transport: Arc::clone(&current.transport),
                    endpoint: Arc::clone(endpoint),
                    health: health.clone(),
                };
                targets.insert(key, target);
            }
        }
        targets
    }

    fn lock_published(&self) -> MutexGuard<'_, PublishedConfig> {
        self.0.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_listeners(&self) -> MutexGuard<'_, ListenerController> {
        self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_state(&self) -> MutexGuard<'_, GatewayState> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The gateway's state of one worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) cx: Cx,
    pub(crate) counters: WorkerCounters,
    pub(crate) credentials: policy::CredentialCache,
    gateway: Gateway,
    view: RefCell<Rc<View>>,
    /// By upstream number.
    pools: RefCell<Vec<Option<Rc<UpstreamPool>>>>,
    pub(crate) scratch: RefCell<WorkerScratch>,
    /// Open directories of file rules, with the time since which they are open.
    roots: RefCell<BTreeMap<PathBuf, (Root, Time)>>,
    /// Set while a task sweeps the pools.
    is_sweeping: Cell<bool>,
    /// Mirrored requests in flight.
    pub(crate) mirrors_in_flight: Cell<u32>,
    /// Bytes of bodies that are buffered for requests that are not entitled to a slot of their upstream yet.
    pub(crate) collected_bytes: Cell<usize>,
    /// Responses that are read to their end after their clients have disconnected.
    pub(crate) abandoned_responses: Cell<u32>,
    /// Requests that are delayed by fault injection.
    pub(crate) delayed_requests: Cell<u32>,
    /// Availability of the Redis servers that count for several gateways.
    pub(crate) redis_breakers: RedisBreakers,
    pub(crate) fast_path: proxy::fast_path::requests::FastPathRequests,
    pub(crate) filters: filter_instances::FilterInstances,
    /// Limits log lines about plaintext requests on TLS listeners.
    pub(crate) plain_http: LogLimit,
    pub(crate) datagrams: DatagramRelay,
    /// Set once the worker has started.
    stream_logs: RefCell<Option<StreamLogs>>,
}

impl Worker {
    fn new(cx: &Cx, gateway: Gateway) -> Rc<Worker> {
        let view = View::new(&gateway);
        let worker = Rc::new(Worker {
            cx: cx.clone(),
            counters: gateway.0.metrics.add_worker(),
            credentials: policy::CredentialCache::new(cx),
            view: RefCell::new(Rc::new(view)),
            gateway: gateway.clone(),
            pools: RefCell::default(),
            scratch: RefCell::new(WorkerScratch::new()),
            roots: RefCell::default(),
            is_sweeping: Cell::new(false),
            mirrors_in_flight: Cell::new(0),
            collected_bytes: Cell::new(0),
            abandoned_responses: Cell::new(0),
            delayed_requests: Cell::new(0),
            redis_breakers: RedisBreakers::default(),
            fast_path: proxy::fast_path::requests::FastPathRequests::default(),
            filters: filter_instances::FilterInstances::default(),
            plain_http: LogLimit::new(),
            datagrams: DatagramRelay::default(),
            stream_logs: RefCell::default(),
        });
        if cx
            .spawn(maintenance::follow_changes(Rc::clone(&worker), gateway))
            .is_err()
        {
            log::error!("no task is available on a worker, which will not resolve names");
        }
        worker
    }

    /// Makes each upstream follow its current configuration, which closes connections to removed endpoints.
    pub(crate) fn follow_upstreams(&self) {
        self.pools
            .borrow()
            .iter()
            .flatten()
            .for_each(|pool| pool.apply_changes());
    }

    /// Returns the access log for traffic of a client that has no connection. `None`: there is no access log.
    pub(crate) fn stream_log(&self, client: IpAddr) -> Option<StreamLog> {
        self.stream_logs.borrow().as_ref()?.for_client(client)
    }

    /// Returns the current view.
    pub(crate) fn view(&self) -> Rc<View> {
        let mut view = self.view.borrow_mut();
        if view.generation != self.gateway.0.generation.load(Ordering::Acquire) {
            *view = Rc::new(View::new(&self.gateway));
            self.filters.drop_unused(&view.table);
            for place in self.pools.borrow_mut().iter_mut() {
                if place.as_ref().is_some_and(|pool| pool.upstream.is_removed()) {
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

    /// Returns this worker's pool of an upstream.
    pub(crate) fn pool(&self, shared: &Arc<UpstreamState>) -> Rc<UpstreamPool> {
        let mut pools = self.pools.borrow_mut();
        if pools.len() <= shared.id {
            pools.resize(shared.id + 1, None);
        }
        let place = &mut pools[shared.id];
        match place {
            Some(pool) if Arc::ptr_eq(&pool.upstream, shared) => Rc::clone(pool),
            place => {
                let pool = Rc::new(UpstreamPool::new(&self.cx, Arc::clone(shared)));
                *place = Some(Rc::clone(&pool));
                pool
            }
        }
    }

    /// Opens a directory of a file rule, or returns one that has been open for less than [`limits::ROOT_HELD`].
    pub(crate) async fn open_root(&self, path: &Path) -> io::Result<Root> {
        let now = self.cx.now();
        if let Some((root, since)) = self.roots.borrow().get(path)
            && now.since(*since) < limits::ROOT_HELD
        {
            return Ok(root.clone());
        }
        let root = self.cx.open_root(path).await?;
        let mut roots = self.roots.borrow_mut();
        // Evicts those of former configurations.
        roots.retain(|_, (_, since)| now.since(*since) < limits::ROOT_HELD);
        roots.insert(path.to_owned(), (root.clone(), now));
        Ok(root)
    }

    /// [Connects](crate::upstream::pool::UpstreamPool) to an endpoint. A shared connection that it opens outlives the request, and is swept until it closes.
    pub(crate) async fn acquire_conn(
        self: &Rc<Self>,
        pool: &UpstreamPool,
        endpoint: &Rc<PoolEndpoint>,
        fresh: bool,
        proxy_header: &[u8],
        span: Duration,
    ) -> Result<UpstreamConn, Fault> {
        if pool.may_multiplex() {
            self.start_sweeping();
        }
        let conn = pool.acquire(endpoint, fresh, proxy_header, span).await?;
        if matches!(conn, UpstreamConn::H2(_)) {
            // The protocol may have changed in the meantime.
            self.start_sweeping();
        }
        Ok(conn)
    }
}
