//! The application that `ringmain run` serves: a page that shows the server at work, and the paths to try it on.
//!
//! Knows what is shown and how it gets there. What is counted comes from the engine and the application.

pub(crate) mod metrics;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_web::ws::Message;
use ringmain_web::{App, Event, Reply, Request, Result, Socket, Ws};
use serde::Serialize;

use self::metrics::ServerInfo;
use crate::args::PATHS;
use crate::limits::{RETRY, VIEWER_POLL};
use crate::ticker;

/// The page: no file beside it, nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// What a browser may do for the page: run its one script and style, by their digests (a test computes them), and
/// ask this server.
const POLICY: &str = "default-src 'none'; style-src 'sha256-FXiTD8eVw+uk39EOnCOPyZ72sUVTzdu/60/+5XjR2QQ='; script-src 'sha256-bMHTkQrcp6Tsy4n+rK2PqlilYFEZ6uWVzQs5nF5+Ack='; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The newest figures, written each second by the main thread and read by each viewer's stream.
#[derive(Clone, Default)]
pub(crate) struct MetricsBoard(Arc<Mutex<LatestMetrics>>);

#[derive(Clone)]
struct LatestMetrics {
    /// Counts up with each document; none is there at 0.
    number: u64,
    document: Arc<str>,
}

impl Default for LatestMetrics {
    fn default() -> LatestMetrics {
        LatestMetrics {
            number: 0,
            document: Arc::from(""),
        }
    }
}

impl MetricsBoard {
    /// Puts up a document.
    pub(crate) fn publish(&self, document: String) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.number += 1;
        latest.document = document.into();
    }

    fn latest(&self) -> LatestMetrics {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is said to those who ask with something other than a browser.
struct PlainIndex(String);

/// The application.
pub(crate) fn build_app(server_info: &ServerInfo, board: &MetricsBoard) -> App {
    let app = App::new()
        .state(board.clone())
        .state(PlainIndex(plain_text(server_info)))
        .get("/", serve_front)
        .get_async("/live", stream_metrics)
        .get("/json", serve_json)
        .get("/plaintext", serve_plaintext)
        .any("/echo", serve_echo)
        .ws("/ws", |_| Ok(EchoSocket))
        .health();
    ticker::add_ticker(app)
}

/// The page for browsers, text for the rest.
fn serve_front(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply
        .header("Vary", "Accept")?
        .header("Cache-Control", "no-cache")?;
    if request.preferred_type(&["text/plain", "text/html"]) != Some("text/html") {
        return reply.text(&request.state::<PlainIndex>()?.0);
    }
    reply
        .header("Content-Security-Policy", POLICY)?
        .header("X-Content-Type-Options", "nosniff")?
        .header("Referrer-Policy", "no-referrer")?;
    reply.html(PAGE)
}

/// The figures, an event for each second.
async fn stream_metrics(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let board = request.state::<MetricsBoard>()?;
    let mut events = reply.events().await?;
    events.send(&Event::new().retry(RETRY)).await?;
    let mut seen = 0;
    loop {
        let latest = board.latest();
        if latest.number != seen {
            seen = latest.number;
            events.send(&Event::new().data(&latest.document)).await?;
        }
        request.cx().sleep(VIEWER_POLL).await;
    }
}

/// TechEmpower's JSON test: an object made and serialised for each request.
fn serve_json(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    #[derive(Serialize)]
    struct Message {
        message: &'static str,
    }
    reply.json(&Message {
        message: "Hello, World!",
    })
}

/// TechEmpower's plaintext test.
fn serve_plaintext(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.text("Hello, World!")
}

/// What came goes back. `nosniff`: a browser must not make more of foreign bytes than they say they are.
fn serve_echo(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let kind = request
        .header("Content-Type")
        .unwrap_or("application/octet-stream");
    reply
        .header("Content-Type", kind)?
        .header("X-Content-Type-Options", "nosniff")?;
    reply.body().extend_from_slice(request.body());
    Ok(())
}

/// A socket on which every message comes back.
struct EchoSocket;

impl Socket for EchoSocket {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        ws.send(message);
        Ok(())
    }
}

/// Who serves, and what there is to ask for.
fn plain_text(server_info: &ServerInfo) -> String {
    let engine = if server_info.engine == "uring" {
        "io_uring"
    } else {
        server_info.engine
    };
    let plural = if server_info.workers == 1 { "" } else { "s" };
    let mut out = format!(
        "ringmain {}, {engine}, {} worker{plural}\n\n",
        server_info.version, server_info.workers
    );
    for (path, what) in PATHS {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {path:11} {what}");
    }
    out.push_str("\nAll options: ringmain --help\n");
    out
}
