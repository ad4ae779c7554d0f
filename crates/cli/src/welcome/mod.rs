//! The built-in application of `ringmain run`: a dashboard with live metrics, and paths for tests.
//!
//! Owns presentation and transport of the metrics; engine and application count.

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

/// The page, without other resources. [`ORIGIN`] is replaced for each request, so that its commands work without a script.
const PAGE: &str = include_str!("page.html");

/// The place of the server's scheme and address in [`PAGE`].
const ORIGIN: &str = "{origin}";

/// The content security policy: one script and one style by their digests (a test computes them), requests to this server.
const POLICY: &str = "default-src 'none'; style-src 'sha256-80jy3ZEcIJmEDZHDRxPd51ibOhRTKUUafF4AfnP+kPA='; script-src 'sha256-+5Cdjx9xlhHtj/PM2G1x2l19xcFirTdRbiWYhAZt++c='; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The latest metrics, written each second by the main thread and read by each viewer's stream.
#[derive(Clone, Default)]
pub(crate) struct MetricsBoard(Arc<Mutex<LatestMetrics>>);

#[derive(Clone)]
struct LatestMetrics {
    /// Number of published documents; 0: none.
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
    /// Publishes a document.
    pub(crate) fn publish(&self, document: String) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.number += 1;
        latest.document = document.into();
    }

    fn latest(&self) -> LatestMetrics {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The index for clients other than browsers.
struct PlainIndex(String);

/// Returns the application.
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

/// Serves the page to browsers, and text to other clients.
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
    reply.html(PAGE.replace(ORIGIN, &origin(request.scheme(), request.host())))
}

/// Returns the address for commands, as the client has requested it. A host with other characters than those of names and addresses
/// is left out: the text becomes part of a page and of shell commands.
fn origin(scheme: &str, host: Option<&str>) -> String {
    let is_plain = |host: &&str| {
        let mut bytes = host.bytes();
        !host.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    };
    let host = host.filter(is_plain).unwrap_or("127.0.0.1:8080");
    format!("{scheme}://{host}")
}

/// Streams the metrics, one event per second.
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

/// The JSON test of TechEmpower: an object, serialized for each request.
fn serve_json(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    #[derive(Serialize)]
    struct Message {
        message: &'static str,
    }
    reply.json(&Message {
        message: "Hello, World!",
    })
}

/// The plaintext test of TechEmpower.
fn serve_plaintext(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.text("Hello, World!")
}

/// Echoes the request body. `nosniff`: a browser must not interpret the bytes as another type.
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

/// A WebSocket echo.
struct EchoSocket;

impl Socket for EchoSocket {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        ws.send(message);
        Ok(())
    }
}

/// Returns the index: version, engine, workers, and paths.
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
