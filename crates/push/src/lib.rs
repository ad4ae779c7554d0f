//! Live updates to clients: a part of an application that clients of the Centrifuge protocol connect to.
//!
//! ```text
//! client ─ WebSocket ───────────────▶ session ─▶ desk of its worker ─ queues ─▶ home of the channel, on any worker
//!        ─ /emulation ─ any worker's desk ─▶─┘
//!        ◀─ WebSocket, SSE, HTTP stream, gRPC ── session ◀─ desk ◀──────── queues ───────┘
//! ```
//!
//! A session is the same on all transports (`session.rs`, `seat.rs`, `pending.rs`, `replies.rs`); they are where its messages come from (`socket.rs`,
//! `http.rs`, `calls.rs`) and go to (`outlet.rs`, `stream.rs`).
//!
//! What other threads publish comes in by `inlet.rs`.
//!
//! Each worker has a desk: its own connections, and the channels that are at home there. Desks tell each other by queues of one
//! writer and one reader; nothing is shared behind a lock but keys of tokens and what users' connections are counted by
//! (`admission.rs`), which are looked at when a client connects. Knows nothing of configuration files.
#![forbid(unsafe_code)]

mod admission;
mod api;
mod asking;
mod batch;
mod calls;
mod claims;
mod desk;
mod due;
mod entering;
mod event_id;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gathering;
mod hand_over;
mod handshakes;
mod http;
mod identity;
mod inlet;
mod interruptions;
pub mod limits;
mod listening;
mod mesh;
pub mod metrics;
mod names;
mod options;
mod orders;
mod outlet;
mod pacing;
mod pending;
mod place;
mod publisher;
mod receipts;
mod replies;
mod rights;
mod rounds;
mod seat;
mod sending;
mod session;
mod settings;
mod socket;
mod state;
mod stream;
mod survey;
mod tokens;

use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_web::{App, WsOptions};

pub use asking::{Answering, Application, Backend, Event, Proxy, Question, Unanswered};
pub use options::{DataFormat, Listen, Namespace, Options, OptionsError};
pub use ringmain_hub::history::HistoryOptions;
pub use ringmain_hub::mail::{ChannelOptions, SlowConsumerPolicy};
pub use ringmain_hub::shard::StateRecord;
pub use ringmain_hub::subscribers::SubscriberLimits as Limits;

pub use api::UserCommand;
pub use batch::{Batch, SourceRecord};
pub use hand_over::{Freezing, Successor};
pub use inlet::{Inlet, NotTaken};
pub use receipts::{Receipted, Receipts};
pub use ringmain_hub::history::Epoch;
pub use ringmain_hub::shard::{LogEvent, LogId};
pub use state::{State, StateError};

pub use publisher::{Busy, NotPublished, Publisher};
pub use ringmain_jwt::{Algorithm, KeySet};
pub use tokens::{KeySource, Keys, Look, Tokens};

use options::Checked;
use place::Place;
use settings::Settings;
use socket::{Listening, Talking};

/// What the guide shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/push.md")]
struct Guide;

/// What each worker calls when clients can connect to it.
type Start = dyn Fn(&Cx, Publisher) + Send + Sync;

/// Push whose settings can be replaced while it serves, and may come later than that. Clones are the same.
#[derive(Clone, Default)]
pub struct Push(Arc<Settings>);

impl Push {
    /// Without settings yet: what is asked of it is answered 404, and it costs a task a worker.
    #[must_use]
    pub fn new() -> Push {
        Push::default()
    }

    /// Replaces the settings. Commands, requests and publications from then on are looked at by the new ones; connections and
    /// subscriptions stay, and channels follow with the next of these. There is no way back to none.
    ///
    /// # Errors
    /// [`OptionsError`]: nothing has changed.
    pub fn replace(&self, options: Options) -> Result<(), OptionsError> {
        self.0.replace(Checked::new(options)?);
        Ok(())
    }

    /// Whether there are settings, so that something is pushed.
    #[must_use]
    pub fn has_settings(&self) -> bool {
        self.0.newer(0).is_some()
    }

    /// What has been counted so far, of all workers.
    #[must_use]
    pub fn report(&self) -> metrics::Report {
        self.0.report()
    }

    /// For publishing from other threads than the workers'.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        Inlet::new(&self.0)
    }

    /// Adds to an application what clients connect to and what its owner's programs call: see [`serve`]. An application serves one
    /// `Push`, and a `Push` one application.
    #[must_use]
    pub fn serve(&self, app: App) -> App {
        self.serve_with(app, |_, _| {})
    }

    /// The same; see [`serve_with`].
    #[must_use]
    pub fn serve_with(&self, app: App, start: impl Fn(&Cx, Publisher) + Send + Sync + 'static) -> App {
        let (settings, start): (_, Arc<Start>) = (Arc::clone(&self.0), Arc::new(start));
        // Which pages may, the settings say.
        let listeners = WsOptions::new().allow_any_origin();
        let talkers = listeners
            .clone()
            .protocols(&["centrifuge-protobuf", "centrifuge-json"]);
        let app = app
            .per_worker(move |cx| Place::new(cx, &settings, &start))
            .ws_with("/connection/websocket", &talkers, Talking::open)
            .ws_with("/connection/uni_websocket", &listeners, Listening::open);
        api::serve(calls::serve(http::serve(app)))
    }
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Push")
    }
}

/// Adds to an application what clients connect to and, with a key in `options`, what its owner's programs call (`/api/…`).
///
/// Clients that talk: `/connection/websocket`, `/connection/http_stream` and `/connection/sse`, the latter two with `/emulation`.
/// Clients that only listen: `/connection/uni_websocket`, `/connection/uni_http_stream`, `/connection/uni_sse`, and the method `Consume`
/// of the gRPC service `centrifugal.centrifugo.unistream.CentrifugoUniStream`.
///
/// Options that cannot be ([`OptionsError`]) are an error when the application is built.
#[must_use]
pub fn serve(app: App, options: Options) -> App {
    serve_with(app, options, |_, _| {})
}

/// The same; each worker calls `start` when clients can connect to it, for tasks that publish.
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
/// Options that cannot be ([`OptionsError`]) are an error when the application is built.
#[must_use]
pub fn serve_with(app: App, options: Options, start: impl Fn(&Cx, Publisher) + Send + Sync + 'static) -> App {
    let push = Push::new();
    match push.replace(options) {
        Ok(()) => push.serve_with(app, start),
        Err(error) => app.build_error(error.to_string()),
    }
}
