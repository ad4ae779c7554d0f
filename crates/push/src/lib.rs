//! Real-time push: adds endpoints for clients of the Centrifuge protocol to an application.
//!
//! ```text
//! client ─ WebSocket ────────────────▶ session ─▶ push part of its worker ─ queues ─▶ shard of the channel, on any worker
//!        ─ /emulation ─ any worker ───▶─┘
//!        ◀─ WebSocket, SSE, HTTP stream, gRPC ── session ◀─ worker ◀──────── queues ─────┘
//! ```
//!
//! - `client`: a session, the same on all transports: connect, commands, subscriptions, permissions, queued replies
//! - `transport`: WebSocket, HTTP streams, gRPC, emulation
//! - `worker`: the clients and channels of one worker, pings, expiry, the queues between workers
//! - `publish`: publishers on workers and on other threads
//! - `cluster`: the interface to other nodes
//! - `api`: the HTTP API for programs; `app_proxy`: requests to the application; `tokens`: their verification and claims
//! - `hand_over`: the state of channels for the next process
//!
//! Workers share only two parts behind locks, which are used when a client connects: keys of tokens and the number of users' connections.
//! Knows nothing of configuration files.
#![forbid(unsafe_code)]

mod api;
mod app_proxy;
mod client;
pub mod cluster;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hand_over;
pub mod limits;
pub mod metrics;
mod options;
mod publish;
mod settings;
mod tokens;
mod transport;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringmain_engine::Cx;
use ringmain_web::{App, WsOptions};

pub use app_proxy::{Application, Backend, Proxy, ProxyError, ProxyEvent, ProxyRequest, ResponseFuture};
pub use options::{DataFormat, Namespace, Options, OptionsError, SubscribeAccess};
pub use ringmain_hub::history::HistoryOptions;
pub use ringmain_hub::mail::{ChannelOptions, SlowConsumerPolicy};
pub use ringmain_hub::shard::StateRecord;
pub use ringmain_hub::subscribers::SubscriberLimits as Limits;

pub use api::UserCommand;
pub use hand_over::state::{HandOverState, StateError};
pub use hand_over::{FreezeHandle, Successor};
pub use publish::batch::{Batch, SourceRecord};
pub use publish::receipts::{ReceiptOutcome, Receipts};
pub use publish::thread_publisher::{SubmitError, ThreadPublisher};
pub use ringmain_hub::history::Epoch;
pub use ringmain_hub::shard::{LogEvent, LogId};

pub use publish::publisher::{Busy, PublishError, Publisher};
pub use ringmain_jwt::{Algorithm, KeySet};
pub use tokens::{KeyLookup, KeySource, Keys, Tokens};

use options::ValidOptions;
use publish::inbound_queue::Inbound;
use settings::SharedSettings;
use transport::websocket::{BidirectionalSocket, UnidirectionalSocket};
use transport::{grpc_stream, http};
use worker::worker_slot::WorkerSlot;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/push-embed.md")]
struct Guide;

/// Called on each worker when clients can connect to it.
type Start = dyn Fn(&Cx, Publisher) + Send + Sync;

/// Push with options that can be replaced while it serves, and that may be set later. Clones refer to the same.
#[derive(Clone, Default)]
pub struct Push(Arc<SharedSettings>);

impl Push {
    /// Creates push without options: its endpoints respond 404 until they are [set](Push::replace), at the cost of a task on each worker.
    #[must_use]
    pub fn new() -> Push {
        Push::default()
    }

    /// Replaces the options. They apply to commands, requests and publications from then on; connections and subscriptions remain. They
    /// cannot be removed.
    ///
    /// # Errors
    /// [`OptionsError`]: nothing has changed.
    pub fn replace(&self, options: Options) -> Result<(), OptionsError> {
        self.0.replace_options(ValidOptions::new(options)?);
        Ok(())
    }

    /// Returns whether there are options, so that the endpoints are served.
    #[must_use]
    pub fn has_settings(&self) -> bool {
        self.0.newer_than(0).is_some()
    }

    /// Returns the counters across all workers.
    #[must_use]
    pub fn report(&self) -> metrics::Report {
        self.0.report()
    }

    /// Returns a publisher for other threads than the workers'.
    #[must_use]
    pub fn thread_publisher(&self) -> ThreadPublisher {
        ThreadPublisher::new(&self.0)
    }

    /// Makes this process a node of a cluster, before its workers start: channels are shared with the nodes that the port's owner knows.
    /// `None`: it is one already, or its workers have started.
    #[must_use]
    pub fn cluster_port(&self) -> Option<cluster::ClusterPort> {
        cluster::ClusterPort::open(&self.0)
    }

    /// Disconnects so many random clients over the next second with code 3011, on which SDKs reconnect at once: to other nodes, if a load
    /// balancer sends them there. Each worker disconnects its part, or all that it has; a worker whose queue is full skips its part.
    pub fn move_clients(&self, count: u32) {
        let Some(queues) = self.0.mesh.inbound_queues() else {
            return;
        };
        let workers = queues.len() as u32;
        let first = self.0.next_move.fetch_add(1, Ordering::Relaxed);
        for place in 0..workers {
            let part = count / workers + u32::from(place < count % workers);
            if part > 0 {
                queues[(first + place as usize) % queues.len()].enqueue(Inbound::Move(part));
            }
        }
    }

    /// Adds the endpoints for clients and programs to an application: see [`serve`]. An application serves one `Push`, and a `Push` one
    /// application.
    #[must_use]
    pub fn serve(&self, app: App) -> App {
        self.serve_with(app, |_, _| {})
    }

    /// Adds the endpoints as [`serve_with`].
    #[must_use]
    pub fn serve_with(&self, app: App, start: impl Fn(&Cx, Publisher) + Send + Sync + 'static) -> App {
        let (settings, start): (_, Arc<Start>) = (Arc::clone(&self.0), Arc::new(start));
        // The options decide which origins are allowed.
        let listeners = WsOptions::new().allow_any_origin();
        let bidirectional = listeners
            .clone()
            .protocols(&["centrifuge-protobuf", "centrifuge-json"]);
        let app = app
            .per_worker(move |cx| WorkerSlot::new(cx, &settings, &start))
            .ws_with("/connection/websocket", &bidirectional, BidirectionalSocket::open)
            .ws_with(
                "/connection/uni_websocket",
                &listeners,
                UnidirectionalSocket::open,
            );
        api::add_routes(grpc_stream::add_routes(http::add_routes(app)))
    }
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Push")
    }
}

/// Adds the endpoints for clients to an application and, with a key in `options`, the API for programs (`/api/…`).
///
/// Bidirectional: `/connection/websocket`, `/connection/http_stream` and `/connection/sse`, the latter two with `/emulation`.
/// Unidirectional: `/connection/uni_websocket`, `/connection/uni_http_stream`, `/connection/uni_sse`, and the method `Consume` of the gRPC
/// service `centrifugal.centrifugo.unistream.CentrifugoUniStream`.
///
/// Invalid options ([`OptionsError`]) are an error when the application is built.
#[must_use]
pub fn serve(app: App, options: Options) -> App {
    serve_with(app, options, |_, _| {})
}

/// Adds the endpoints as [`serve`]. Each worker calls `start` when clients can connect to it, for tasks that publish.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use ringmain_push::{Options, Publisher, serve_with};
/// use ringmain_web::{App, Exit};
///
/// fn main() -> Exit {
///     let options = Options {
///         anonymous: true,
///         ..Options::default()
///     };
///     let app = serve_with(App::new(), options, |cx, publisher: Publisher| {
///         if cx.worker() != 0 {
///             return;
///         }
///         let (cx, beats) = (cx.clone(), Arc::from("beats"));
///         let spawned = cx.clone().spawn(async move {
///             loop {
///                 cx.sleep(Duration::from_secs(1)).await;
///                 let _ = publisher.publish(&beats, b"1");
///             }
///         });
///         spawned.expect("room for a task");
///     });
///     app.run("127.0.0.1:8000")
/// }
/// ```
///
/// Invalid options ([`OptionsError`]) are an error when the application is built.
#[must_use]
pub fn serve_with(app: App, options: Options, start: impl Fn(&Cx, Publisher) + Send + Sync + 'static) -> App {
    let push = Push::new();
    match push.replace(options) {
        Ok(()) => push.serve_with(app, start),
        Err(error) => app.build_error(error.to_string()),
    }
}
