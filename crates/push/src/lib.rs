//! Live updates to clients: a part of an application that clients of the Centrifuge protocol connect to.
//!
//! ```text
//! client ─ WebSocket ───────────────▶ session ─▶ desk of its worker ─ queues ─▶ home of the channel, on any worker
//!        ─ /emulation ─ any worker's desk ─▶─┘
//!        ◀─ WebSocket, SSE, HTTP stream ── session ◀─ desk ◀──────── queues ───────┘
//! ```
//!
//! A session is the same on all transports (`session.rs`, `seat.rs`); they are where its messages come from (`socket.rs`,
//! `http.rs`) and go to (`outlet.rs`, `stream.rs`).
//!
//! Each worker has a desk: its own connections, and the channels that are at home there. Desks tell each other by queues of one
//! writer and one reader; nothing is shared behind a lock but keys of tokens and what users' connections are counted by
//! (`admission.rs`), which are looked at when a client connects. Knows nothing of configuration files.
#![forbid(unsafe_code)]

mod admission;
mod api;
mod claims;
mod desk;
mod due;
mod entering;
mod http;
pub mod limits;
mod listening;
mod mesh;
mod options;
mod orders;
mod outlet;
mod publisher;
mod rights;
mod seat;
mod session;
mod socket;
mod stream;
mod tokens;

use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_web::{App, Origins, WsOptions};

pub use options::{Listen, Namespace, Options};
pub use publisher::{Busy, NotPublished, Publisher};
pub use ringmain_jwt::{Algorithm, KeySet};
pub use tokens::{Keys, Tokens};

use desk::Desk;
use mesh::Mesh;
use socket::{Listening, Talking};

/// What the guide shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/push.md")]
struct Guide;

/// Adds to an application what clients connect to and, with a key in `options`, what its owner's programs call (`/api/…`).
///
/// Clients that talk: `/connection/websocket`, `/connection/http_stream` and `/connection/sse`, the latter two with `/emulation`.
/// Clients that only listen: `/connection/uni_websocket`, `/connection/uni_http_stream` and `/connection/uni_sse`.
///
/// An origin in `options` that is none is an error when the application is built; so are tokens that nobody could sign, and a
/// namespace that is not there.
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
#[must_use]
pub fn serve_with(app: App, options: Options, start: impl Fn(&Cx, Publisher) + Send + Sync + 'static) -> App {
    let app = match options.check() {
        Ok(()) => app,
        Err(what) => app.fault(&format!("push: {what}")),
    };
    let options = Arc::new(options);
    let mesh = Arc::new(Mesh::default());
    let mut sockets = WsOptions::new();
    let mut origins = Origins::default();
    for origin in &options.origins {
        sockets = match &**origin {
            "*" => {
                origins.allow_any();
                sockets.allow_any_origin()
            }
            origin => {
                // One that is none is told of by the sockets, which are given the same.
                let _ = origins.allow(origin);
                sockets.allow_origin(origin)
            }
        };
    }
    let listeners = sockets.clone();
    let talkers = sockets.protocols(&["centrifuge-protobuf", "centrifuge-json"]);
    let own = Arc::clone(&options);
    let app = app
        .per_worker(move |cx| {
            let desk = Desk::start(cx, &mesh, Arc::clone(&own));
            start(cx, Publisher(desk.clone()));
            desk
        })
        .ws_with("/connection/websocket", &talkers, Talking::open)
        .ws_with("/connection/uni_websocket", &listeners, Listening::open);
    let app = http::serve(app, origins);
    match &options.api_key {
        Some(_) => api::serve(app, &options),
        None => app,
    }
}
