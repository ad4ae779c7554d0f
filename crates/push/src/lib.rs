//! Live updates to clients: a part of an application that clients of the Centrifuge protocol connect to.
//!
//! ```text
//! client ─ WebSocket ─▶ session ─▶ desk of its worker ─ queues ─▶ home of the channel, on any worker
//!        ◀─ replies, pushes ────────── desk ◀──────── queues ───────┘
//! ```
//!
//! Each worker has a desk: its own connections, and the channels that are at home there. Desks tell each other by queues of one
//! writer and one reader; nothing is shared behind a lock. Knows nothing of configuration files.
#![forbid(unsafe_code)]

mod api;
mod desk;
pub mod limits;
mod mesh;
mod options;
mod session;

use std::sync::Arc;

use ringmain_web::{App, WsOptions};

pub use options::{Namespace, Options};

use desk::Desk;
use mesh::Mesh;
use session::Session;

/// Adds to an application what clients connect to (`/connection/websocket`) and, with a key in `options`, what its owner's
/// programs call (`/api/…`).
#[must_use]
pub fn serve(app: App, options: Options) -> App {
    let options = Arc::new(options);
    let mesh = Arc::new(Mesh::default());
    let mut sockets = WsOptions::new().protocols(&["centrifuge-protobuf", "centrifuge-json"]);
    for origin in &options.origins {
        sockets = match &**origin {
            "*" => sockets.allow_any_origin(),
            origin => sockets.allow_origin(origin),
        };
    }
    let own = Arc::clone(&options);
    let app = app
        .per_worker(move |cx| Desk::start(cx, &mesh, Arc::clone(&own)))
        .ws_with("/connection/websocket", &sockets, |request| {
            Session::new(request, request.local()?)
        });
    match &options.api_key {
        Some(_) => api::serve(app, &options),
        None => app,
    }
}
