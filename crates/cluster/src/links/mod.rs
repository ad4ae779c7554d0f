//! A node on a thread of its own, with connections to the other nodes.
//!
//! ```text
//! workers ─ ClusterPort ─▶ actor: Node ─ bytes ─▶ writer of each link ─▶ TCP or TLS
//!         ◀─ events ──                 ◀─ frames ─ reader of each link ◀─
//!                                      names ─ resolved ─▶ dialers
//! ```
//!
//! All links of a process are on this one thread; its workers exchange queues with it. Both nodes of a pair dial each other, and one
//! connection is kept (see [`Node::link_up`](crate::node::Node::link_up)).

mod actor;
mod connection;
mod dial;
mod tls;
mod translate;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ringmain_push::cluster::ClusterPort;
use ringmain_sys::clock;
use tokio::sync::watch;

use crate::log::NodePort;
use crate::member::{Member, Role, Uid};
pub use crate::node::{Load, LogCounts, LogOptions, LogReport, Rebalance};
use crate::node::{Node, NodeCounts};
use actor::{Actor, LogContext};
pub use tls::{TlsError, TlsFiles};

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// The name of this node, for logs and status.
    pub name: Arc<str>,
    /// Its zone; empty for none.
    pub zone: Arc<str>,
    /// Its tasks.
    pub role: Role,
    /// Its share of channels relative to other nodes, from 1 to [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX).
    pub weight: u16,
    /// The address for links of other nodes.
    pub listen: SocketAddr,
    /// The other nodes. This one may be among them.
    pub membership: Membership,
    /// The limits of rebalancing. `None`: no clients are sent away.
    pub rebalance: Option<Rebalance>,
    /// The certificate for both directions. `None`: links are not encrypted, and only to and from loopback addresses.
    pub tls: Option<TlsFiles>,
}

/// The log of a cluster, as this node uses it.
#[derive(Debug)]
pub struct LogLink {
    /// The log. Equal on all nodes.
    pub options: LogOptions,
    /// The name of the broker, for status.
    pub engine: &'static str,
    /// A digest of its settings: nodes with different ones are not linked.
    pub digest: u64,
    /// The queues to the adapter of the broker. `None` on a node that owns no channels.
    pub port: Option<NodePort>,
}

/// The addresses of the nodes.
#[derive(Clone, Debug)]
pub enum Membership {
    /// Names, as `HOST:PORT`. Each address of a name is a node, and names are resolved again each
    /// [`RESOLVE_INTERVAL`](crate::limits::RESOLVE_INTERVAL).
    Names(Vec<String>),
    /// Addresses that another component watches.
    Watched(watch::Receiver<Arc<[SocketAddr]>>),
}

/// The reason why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate, key or authority is unusable.
    #[error("cluster: {0}")]
    Tls(#[from] TlsError),
    /// An address that is not loopback requires TLS.
    #[error("cluster: expected TLS for links at {0}, which is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The address cannot be bound, or the thread cannot be started.
    #[error("cluster: cannot serve links at {0}: {1}")]
    Io(SocketAddr, io::Error),
}

/// The state of a node.
#[derive(Clone, Debug, Default)]
pub struct ClusterReport {
    /// The counters.
    pub counts: NodeCounts,
    /// The other nodes, without those that are gone, in the order of their names.
    pub nodes: Vec<NodeReport>,
    /// This node has handed over all its channels since [`Cluster::leave`].
    pub has_left: bool,
    /// The log, if there is one.
    pub log: Option<LogReport>,
    /// The name of the log's broker; empty without a log.
    pub log_engine: &'static str,
    /// The name of a node with other settings of the log, which this one has met while it started: this node is not ready.
    pub other_log: Option<Arc<str>>,
}

/// Another node, as it has reported itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// Its identity.
    pub uid: Uid,
    /// Its configured name.
    pub name: Arc<str>,
    /// Its zone; empty for none.
    pub zone: Arc<str>,
    /// Its tasks.
    pub role: Role,
    /// Its share relative to other nodes.
    pub weight: u16,
    /// The clients that are connected to it.
    pub clients: u32,
    /// It hands its channels over, and will end.
    pub is_leaving: bool,
}

/// The state that the actor and its owner share.
#[derive(Debug, Default)]
struct ActorState {
    report: Mutex<ClusterReport>,
    is_leaving: AtomicBool,
    clients: AtomicU32,
    /// The clients to send away that were not taken yet.
    to_move: AtomicU32,
}

impl ActorState {
    /// Returns the state before the first report: with a log the node is not ready.
    fn new(has_log: bool) -> ActorState {
        let log = has_log.then(|| LogReport {
            reason: "not connected yet".into(),
            ..LogReport::default()
        });
        ActorState {
            report: Mutex::new(ClusterReport {
                log,
                ..ClusterReport::default()
            }),
            ..ActorState::default()
        }
    }
}

/// A running node. Dropping it closes its links.
#[derive(Debug)]
pub struct Cluster {
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<ActorState>,
    address: SocketAddr,
    member: Member,
}

impl Cluster {
    /// Starts a node for the workers of a port.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: LinkOptions, port: ClusterPort) -> Result<Cluster, StartError> {
        Cluster::start_with_log(options, port, None)
    }

    /// Starts a node whose channels with history are in a log.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with_log(
        options: LinkOptions,
        port: ClusterPort,
        log: Option<LogLink>,
    ) -> Result<Cluster, StartError> {
        let tls = options.tls.as_ref().map(TlsFiles::load).transpose()?;
        if tls.is_none() && !options.listen.ip().is_loopback() {
            return Err(StartError::NotLoopback(options.listen));
        }
        let failed = |error| StartError::Io(options.listen, error);
        let listener = TcpListener::bind(options.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let member = Member {
            uid: Uid(random()),
            name: Arc::clone(&options.name),
            zone: Arc::clone(&options.zone),
            role: options.role,
            weight: options.weight,
        };
        let mut node = Node::new(member.clone(), random(), clock::monotonic());
        node.set_rebalance(options.rebalance);
        if let Some(log) = &log {
            node.set_log(log.options);
        }
        let log = log.map_or_else(LogContext::default, |log| LogContext {
            engine: log.engine,
            digest: Some(log.digest),
            port: log.port,
        });
        let shared = Arc::new(ActorState::new(log.digest.is_some()));
        let (stop, stopped) = watch::channel(());
        let actor_shared = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("ringmain-cluster".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "the one thread of the links: they wait for other nodes, which no worker may"
        )]
        let thread = builder.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build();
            match runtime {
                Ok(runtime) => runtime.block_on(async move {
                    match Actor::new(node, port, listener, options, tls, actor_shared, log) {
                        Ok(actor) => actor.run(stopped).await,
                        Err(error) => log::error!("cluster: links cannot be served: {error}"),
                    }
                }),
                Err(error) => log::error!("cluster: the thread of the links cannot run: {error}"),
            }
        });
        let thread = thread.map_err(|error| StartError::Io(address, error))?;
        Ok(Cluster {
            stop: Some(stop),
            thread: Some(thread),
            shared,
            address,
            member,
        })
    }

    /// Returns the address for links of other nodes.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns this node.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Returns the state, at most some 50 ms old.
    #[must_use]
    pub fn report(&self) -> ClusterReport {
        let report = self.shared.report.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the planned end of this node: it hands its channels over, and other nodes send no clients here any more.
    pub fn leave(&self) {
        self.shared.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Returns whether this node has handed over all its channels since [`leave`](Cluster::leave), or cannot any more.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let is_finished = |thread: &JoinHandle<()>| thread.is_finished();
        self.thread.as_ref().is_none_or(is_finished) || self.report().has_left
    }

    /// Sets the load of this node, which other nodes receive within a second.
    pub fn set_load(&self, load: Load) {
        self.shared.clients.store(load.clients, Ordering::Relaxed);
    }

    /// Returns the number of clients that this node should send away now under [`LinkOptions::rebalance`]. They are not returned again.
    #[must_use]
    pub fn clients_to_move(&self) -> u32 {
        self.shared.to_move.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was logged.
            let _ = thread.join();
        }
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        // As unique, and only more predictable.
        return crate::member::mix(clock::realtime().as_nanos() as u64 ^ u64::from(std::process::id()) << 32);
    }
    u64::from_le_bytes(bytes)
}
